"""A study that processes and machines share: each point once, no trial lost, no secret kept."""

import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import pytest

from subtree_attention.io import FileError
from subtree_attention.tune import Plan, loop, search
from subtree_attention.tune import storage as places
from subtree_attention.tune.space import key
from subtree_attention.tune.storage import Database, StorageError, storage_of
from subtree_attention.tune.study import ELSEWHERE, JOURNAL, Study, TakenOver, opened
from tests.postgresql import PASSWORD, QUOTED

optuna = pytest.importorskip("optuna")

SOURCE = str(Path(__file__).parents[2] / "src")
PLAN = Plan("digits", "grid", runs=1, changes={"epochs": 2, "encoding": 0})
Outcome = tuple[int, str, str]


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STA_BACKEND", "torch")  # two epochs are not worth compiling kernels


@pytest.fixture(scope="module")
def server(postgresql: str) -> str:
    """A database for studies: the other one has tables that tests list."""
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute("create database studies")
    return postgresql.replace("/postgres", "/studies")


@pytest.fixture(params=["folder", "journal", "sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What --storage is; nothing where the study is kept in its folder."""
    if request.param == "postgresql":
        return request.getfixturevalue("server")
    return {
        "folder": "",
        "journal": str(tmp_path / "shared.jsonl"),
        "sqlite": f"sqlite:///{tmp_path}/shared.db",
    }[request.param]


def states(study: Study) -> list[str]:
    return [trial.state.name for trial in study.optuna.get_trials()]


def silence(address: str) -> None:
    """Nobody who has a trial here was heard of for years."""
    from sqlalchemy import text

    with Database(address)._engine.begin() as connection:
        connection.execute(text("update trial_heartbeats set heartbeat = '2020-01-01 00:00:00'"))


# ----------------------------------------------------------------------------- several processes

WORKER = """
import json, os, sys, time
from pathlib import Path
import subtree_attention.tune.loop as loop
from subtree_attention.tune import Plan, search

folder, name, storage = Path(sys.argv[1]), sys.argv[2], sys.argv[3] or None
out = folder / ("out" if storage is None else f"out-{name}")  # of a machine of its own

def meet(*names):
    (folder / names[0].replace("*", name)).touch()
    while not all((folder / n.replace("*", w)).exists() for n in names for w in "ab"):
        time.sleep(0.01)

if name == "killed":
    loop.fit = lambda *_, **__: os.kill(os.getpid(), 9)
else:
    meet("*", "go")
task = Plan("digits", "grid", runs=1, changes={"epochs": 2, "encoding": 0})
study = search(task, out, storage=storage, study=storage and "shared", trials=6, device="cpu")
meet("*-done")
best = study.done()[0]
print(json.dumps([best.number, best.params, best.value]))
"""


def start(folder: Path, name: str, place: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORKER, str(folder), name, place]
    path = os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "STA_BACKEND": "torch", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_processes_share_a_study_and_do_again_what_a_killed_one_left(
    tmp_path: Path, place: str
) -> None:
    with ExitStack() as ended:
        killed, *both = (
            ended.enter_context(start(tmp_path, name, place)) for name in ("killed", "a", "b")
        )
        for process in both:
            ended.callback(process.kill)  # one that waits for the other, where something failed
        _, err = killed.communicate(timeout=120)
        assert killed.returncode == -9, err
        if "://" in place:
            silence(place)
        (tmp_path / "go").touch()
        said = [process.communicate(timeout=120) for process in both]
    best, same = (json.loads(out) if out else err for out, err in said)
    assert best == same, "both see the same best trial"
    storage = storage_of(place) if place else None
    with opened(PLAN, tmp_path / ("here" if place else "out"), storage, "shared") as study:
        assert sorted(states(study)) == ["COMPLETE"] * 6 + ["FAIL"]
        killed_trial, *done = study.optuna.get_trials()
        assert study.next(6) is None, "trials are counted over all processes"
        assert [study.done()[0].number, study.done()[0].params] == best[:2]
    assert len({key(trial.params) for trial in done}) == 6
    assert killed_trial.params in [trial.params for trial in done]
    assert len({trial.user_attrs["worker"] for trial in done}) == 2


# ------------------------------------------------------------------------------------- who lives


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/study.db"


def test_who_is_silent_loses_its_trial_and_is_told_so(tmp_path: Path, address: str) -> None:
    for method in ("grid", "optuna"):
        plan, name = Plan("digits", method, runs=1), f"study-{method}"
        with (
            opened(plan, tmp_path / f"{method}-a", Database(address), name) as one,
            opened(plan, tmp_path / f"{method}-b", Database(address), name) as other,
        ):
            mine, yours = one.next(2), other.next(2)
            assert mine is not None
            assert yours is not None
            assert mine.params != yours.params
            assert other.next(2) is None, "a trial of a living process is left to it"
            silence(address)
            other.storage.claim(yours)  # it is heard of again
            again = other.next(2)
            assert again is not None
            assert again.params == mine.params
            with pytest.raises(TakenOver):
                one.finish(mine, [1.0], [1], 1.0)
            with pytest.raises(TakenOver):
                one.prune(mine)
            other.finish(again, [0.5], [1], 1.0)
            one.put_back(mine)  # which is over: nothing happens
            assert [trial.value for trial in one.done()] == [0.5]


def test_the_search_goes_on_without_a_trial_that_was_taken_over(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = Study.finish, iter(range(9))

    def finish(self: Study, *args: object) -> None:
        if next(calls) == 0:
            silence(address)
            with opened(PLAN, tmp_path / "other", Database(address)) as other:
                taken = other.next(1)
                assert taken is not None
                original(other, taken, [0.25], [1], 1.0)
        original(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Study, "finish", finish)
    study = search(PLAN, tmp_path / "out", storage=address, trials=2, device="cpu")
    assert states(study) == ["FAIL", "COMPLETE", "COMPLETE"]
    assert study.trials()[0].value == 0.25


@pytest.mark.filterwarnings("ignore:Heartbeat of storage")
def test_who_died_while_choosing_leaves_nothing(tmp_path: Path, address: str) -> None:
    with opened(PLAN, tmp_path / "out", Database(address)) as study:
        study.optuna.ask()  # and then the process was killed: no settings, no sign of life
        trial = study.next(1)
        assert trial is not None
        assert states(study) == ["FAIL", "RUNNING"]


def test_signs_of_life_are_given_while_a_trial_is_under_way(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from optuna.storages import RDBStorage

    original, heard, seen = RDBStorage.record_heartbeat, [], Event()

    def record(self: RDBStorage, trial: int) -> None:
        heard.append(trial)
        if len(heard) == 2:  # the server is away: the next sign gets through
            raise OSError
        original(self, trial)
        if len(heard) > 3:
            seen.set()

    monkeypatch.setattr(RDBStorage, "record_heartbeat", record)
    monkeypatch.setattr(places, "HEARTBEAT", 0.01)
    with opened(PLAN, tmp_path / "out", Database(address)) as study:
        trial = study.next(1)
        assert trial is not None
        assert heard[0] == trial._trial_id
        assert seen.wait(20)
    number = len(heard)
    time.sleep(0.1)
    assert len(heard) == number, "it ends with the search"


# ------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("kind", ["study.jsonl", "study.db"])
def test_another_search_of_the_same_name_is_refused(tmp_path: Path, kind: str) -> None:
    there = str(tmp_path / kind)
    with opened(PLAN, tmp_path / "out", storage_of(there)) as study:
        assert study.name == "tune-digits"
    wide = Plan("digits", "optuna", "wide", runs=1)
    message = r"the study tune-digits at .* holds another search \(method 'grid', not 'optuna'; spa"
    with (
        pytest.raises(FileError, match=message + r".*choose another name with --study"),
        opened(wide, tmp_path / "wide", storage_of(there)),
    ):
        pass
    with opened(wide, tmp_path / "new", storage_of(there), "wide") as study:
        assert study.name == "wide"
    cora = Plan("cora", "optuna", "wide", runs=1)
    with (
        pytest.raises(FileError, match=r"study wide at .*graph 'digits', not 'cora'"),
        opened(cora, tmp_path / "cora", storage_of(there), "wide"),
    ):
        pass


def test_a_folder_is_of_one_search(tmp_path: Path) -> None:
    here, there = (storage_of(str(tmp_path / f"{name}.jsonl")) for name in ("here", "there"))
    with opened(PLAN, tmp_path / "out", here):
        assert json.loads((tmp_path / "out" / ELSEWHERE).read_text())["study"] == "tune-digits"
    with (
        pytest.raises(FileError, match="out belongs to another search than the study tune-digits"),
        opened(PLAN, tmp_path / "out", there),
    ):
        pass
    with pytest.raises(FileError, match="out is not empty and holds no search"):
        search(PLAN, tmp_path / "out")
    with opened(PLAN, tmp_path / "own"):
        assert (tmp_path / "own" / JOURNAL).exists()
    with pytest.raises(FileError, match="own is not empty and holds no part of a search at"):
        search(PLAN, tmp_path / "own", storage=str(tmp_path / "here.jsonl"))


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    for content in ("no journal\n", '{"id": "ann"}\n'):
        (tmp_path / "rows.jsonl").write_text(content)
        with pytest.raises(StorageError, match=r"rows.jsonl is no journal of Optuna"):
            search(PLAN, tmp_path / "out", storage=str(tmp_path / "rows.jsonl"))
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(StorageError, match=r"folder.jsonl is a folder"):
        search(PLAN, tmp_path / "out", storage=str(tmp_path / "folder.jsonl"))
    assert not (tmp_path / "out").exists()


def test_a_file_system_without_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError("not supported")

    monkeypatch.setattr("subtree_attention.io.fcntl.flock", no_locks)
    with pytest.raises(StorageError, match=r"no locks on files.*keep the study in PostgreSQL"):
        search(PLAN, tmp_path / "out", storage=str(tmp_path / "study.jsonl"))


def test_a_missing_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    words = r"postgresql://host/x: a study in postgresql needs psycopg: pip install .*databases"
    with pytest.raises(ImportError, match=words):
        search(PLAN, tmp_path / "out", storage="postgresql://ann:secret@host/x")


# ------------------------------------------------------------------------------------- passwords


def test_the_password_ends_up_nowhere(
    server: str, run_sta: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    few = ["--runs", "1", "--epochs", "2", "--device", "cpu", "--trials", "2", "--study", "secret"]
    code, out, err = run_sta("tune", "digits", "--storage", server, *few)
    assert code == 0, err
    shown = f"postgresql://{server.rpartition('@')[2]}"
    assert f"into the study secret at {shown}" in out
    said = out + err
    changes = [
        ((QUOTED, "wrong-s3cret"), "password authentication failed for user .*PGPASSWORD"),
        ((f":{QUOTED}", ""), "no password supplied"),
        (("/studies", "/nothing"), 'database "nothing" does not exist'),
    ]
    for change, message in changes:
        with pytest.raises(StorageError, match=message) as refused:
            search(PLAN, tmp_path / "out", storage=server.replace(*change))
        said += "".join(traceback.format_exception(refused.value.__context__ or refused.value))
        said += str(refused.value)
    port = server.rpartition(":")[2].partition("/")[0]
    code, out, err = run_sta("tune", "digits", "--storage", server.replace(f":{port}/", ":1/"))
    assert code == 2
    assert "Connection refused" in err
    said += out + err

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "fit", stop)
    code, out, err = run_sta("tune", "digits", "--storage", server, *few[:-4], "--study", "other")
    assert code == 130
    assert "--storage 'postgresql://***@" in err
    said += out + err
    with psycopg.connect(server) as connection:
        for table in ("study_user_attributes", "trial_user_attributes", "studies"):
            said += str(connection.execute(f"select * from {table}").fetchall())
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == ELSEWHERE for path in files)
    for content in (said.encode(), *(path.read_bytes() for path in files)):
        for secret in (PASSWORD, QUOTED, "s3cret"):
            assert secret.encode() not in content


def test_a_server_that_goes_away_is_said_and_the_search_can_go_on(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    original, other = loop.fit, server.replace("/studies", "/postgres")

    def cut(*args: object, **how: object) -> object:
        with psycopg.connect(other, autocommit=True) as admin:
            admin.execute("alter database studies with allow_connections false")
            admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where pid <> "
                "pg_backend_pid() and datname = 'studies'"
            )
        return original(*args, **how)  # type: ignore[arg-type]

    how = {"storage": server, "study": "away", "trials": 1, "device": "cpu"}
    with monkeypatch.context() as cutting:
        cutting.setattr(loop, "fit", cut)
        with pytest.raises(StorageError, match="not currently accepting connections"):
            search(PLAN, tmp_path / "out", **how)  # type: ignore[arg-type]
    with psycopg.connect(other, autocommit=True) as admin:
        admin.execute("alter database studies with allow_connections true")
    silence(server)
    study = search(PLAN, tmp_path / "out", **how)  # type: ignore[arg-type]
    assert states(study) == ["FAIL", "COMPLETE"]
