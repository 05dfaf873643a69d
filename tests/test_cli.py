"""The command line, as a user runs it: in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = str(Path(__file__).parents[1] / "src")  # so that it also runs without installation
ENV = {**os.environ, "COLUMNS": "100", "PYTHONPATH": SOURCE}
QUICK = ["--runs", "2", "--epochs", "6", "--hops", "1", "--device", "cpu"]


def sta(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "subtree_attention", *args],
        cwd=cwd,
        env={**ENV, **env},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    done = sta("train", *QUICK, "--out", "mine", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "saved in mine" in done.stdout
    assert "mean" in done.stdout
    return folder / "mine"


def test_evaluate_gives_the_stored_scores(trained: Path) -> None:
    done = sta("evaluate", str(trained), cwd=trained.parent)
    assert done.returncode == 0, done.stderr
    rows = [line.split("│") for line in done.stdout.splitlines() if line.startswith("│")]
    assert len(rows) == 2
    for row in rows:
        assert row[4].strip() == row[5].strip()  # test now, test when trained


def test_training_prints_plain_lines_when_not_on_a_terminal(trained: Path) -> None:
    done = sta("train", *QUICK, "--out", "other", cwd=trained.parent)
    assert "run 0  " in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_an_error_is_one_line_without_traceback(tmp_path: Path) -> None:
    done = sta("train", "coraa", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown graph 'coraa'. Did you mean 'cora'")
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


# The rest runs in this process: starting torch anew for every call would take minutes.

Outcome = tuple[int | None, str, str]


@pytest.fixture
def run(run_sta: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Call `sta`: -> exit code, what it printed, its errors."""
    return run_sta


def test_datasets_lists_every_graph_and_where_it_is(
    run: Callable[..., Outcome], tmp_path: Path
) -> None:
    code, out, _ = run("datasets", "--data-dir", str(tmp_path / "d"))
    assert code == 0
    for name in ("digits", "cora", "corafull", "minesweeper"):
        assert name in out
    assert "embedded" in out
    assert not (tmp_path / "d").exists()


def test_info_names_versions_and_backends(run: Callable[..., Outcome]) -> None:
    code, out, _ = run("info")
    assert code == 0
    for word in ("torch-geometric", "backend", "auto picks"):
        assert word in out


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("train",),
        ("tune",),
        ("evaluate",),
        ("predict",),
        ("explain",),
        ("report",),
        ("explore",),
        ("serve",),
        ("datasets",),
        ("info",),
    ],
)
def test_help_is_there(command: tuple[str, ...], run: Callable[..., Outcome]) -> None:
    code, out, _ = run(*command, "--help")
    assert code == 0
    assert "Usage" in out


def test_without_a_command_there_is_help_and_no_error(run: Callable[..., Outcome]) -> None:
    code, out, err = run()
    assert code == 2
    assert "Usage" in out + err
    assert "error" not in err


def test_a_reason_with_brackets_is_shown_whole(
    run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subtree_attention.ops.kernels.cpu._numba_problem", lambda: "needs [cpu]")
    assert "needs [cpu]" in run("info")[1]


def test_help_teaches(run: Callable[..., Outcome]) -> None:
    out = run("train", "--help")[1]
    assert "sta train cora --runs 5" in out
    assert "id,age,city,label" in out
    assert "sta train --nodes nodes.csv --edges edges.csv --target label" in out


def test_sta_backend_overrides_and_a_wrong_one_is_refused(
    run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STA_BACKEND", "torhc")
    code, _, err = run("train", *QUICK)
    assert code == 2
    assert "Did you mean 'torch'" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "--hops", "-1"), "hops must be at least 0, got -1"),
        (("train", "--hops", "many"), "'--hops'"),
        (("train", "--heads", "0"), "heads must be at least 1, got 0"),
        (("train", "--heads", "100"), "heads=100 is more than hidden_channels=64"),
        (("train", "--gate", "softmaks"), "Did you mean 'softmax'"),
        (("tune", "people.csv"), "'people.csv' is a table and no graph of the registry: sta train"),
        (("train", "--device", "gpu"), "unknown device 'gpu'"),
        (("train", "--resume"), "no unfinished run"),
        (("train", "--resume", "--out", "nowhere"), "nowhere"),
        (("train", "--split", "own"), "no split 'own'"),
        (("train", "cora", "--mirror", "nowhere", "--data-dir", "d"), "nowhere is not a folder"),
        (("train", "--colour", "red"), "--colour"),
        (("evaluate", "nowhere"), "nowhere is not a folder"),
        (("evaluate", "no\x1b[2Jwhere\r[bold]"), "no\ufffd[2Jwhere\ufffd[bold] is not a folder"),
        (("trane",), "trane"),
        (("explain", "runs/mine"), "see: sta explain --help"),
        (("bench", "cora", "--rounds", "3"), "python -m experiments bench cora --rounds 3"),
        (("reproduce", "table1"), "python -m experiments reproduce table1"),
    ],
)
def test_a_users_mistake_is_two_lines_and_exit_code_2(
    arguments: tuple[str, ...], message: str, run: Callable[..., Outcome], tmp_path: Path
) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert message in err
    assert len(err.splitlines()) <= 2
    assert not list(tmp_path.iterdir()), "a refused command leaves nothing behind"


def test_a_folder_with_a_run_is_not_overwritten(trained: Path, run: Callable[..., Outcome]) -> None:
    code, _, err = run("train", *QUICK, "--out", str(trained))
    assert code == 2
    assert "--resume" in err


def test_divergence_is_said_and_is_exit_code_1(run: Callable[..., Outcome]) -> None:
    code, _, err = run("train", *QUICK, "--lr", "1e30")
    assert code == 1
    assert "not finite any more" in err


def test_missing_data_names_the_file_and_the_folder_in_two_lines(
    run: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STA_MIRROR", raising=False)

    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("torch_geometric.data.download_url", offline)
    code, _, err = run("train", "corafull", "--data-dir", str(tmp_path / "d"))
    assert code == 2
    assert "cora.npz" in err
    assert str(tmp_path / "d" / "CitationFull" / "cora" / "raw") in err
    assert len(err.splitlines()) <= 2
    assert not (tmp_path / "runs").exists()


def test_an_unexpected_error_is_said_without_traceback(
    run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr("subtree_attention.train.fit.fit", broken)
    assert run("train", *QUICK)[::2] == (1, "error: out of memory\n")


def test_without_typer_the_reason_is_said(tmp_path: Path) -> None:
    code = "import sys; sys.modules['typer'] = None; import runpy; "
    code += "runpy.run_module('subtree_attention', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], env=ENV, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the command line needs typer")


def test_interrupted_it_says_how_to_go_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "subtree_attention", "train", "--out", "mine"]
    command += ["--checkpoint-seconds", "0.1", "--patience", "3000", "--device", "cpu"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, env=ENV, text=True, **pipes) as process:
        wait_for(tmp_path / "mine/run-0/checkpoint.safetensors")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "sta train --resume --out mine" in err


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert path.exists()


def test_killed_and_resumed_equals_never_stopped(tmp_path: Path) -> None:
    """kill -9 in the middle of a run, then --resume: the same numbers, bit for bit."""
    settings = ["--runs", "1", "--epochs", "120", "--patience", "1000", "--device", "cpu"]
    settings += ["--checkpoint-seconds", "0.2"]
    whole = sta("train", *settings, "--out", "whole", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr

    checkpoint = tmp_path / "killed/run-0/checkpoint.safetensors"
    command = [sys.executable, "-m", "subtree_attention", "train", *settings, "--out", "killed"]
    with subprocess.Popen(command, cwd=tmp_path, env=ENV, stdout=subprocess.DEVNULL) as process:
        wait_for(checkpoint)
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "killed/summary.json").exists(), "it was killed too late"

    resumed = sta("train", "--resume", "--out", "killed", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    for name in ("run-0/metrics.jsonl", "run-0/model.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    summaries = [
        json.loads((tmp_path / f / "run-0/summary.json").read_text()) for f in ("whole", "killed")
    ]
    for summary in summaries:
        del summary["seconds"]
    assert summaries[0] == summaries[1]
