"""The commands that faults are injected into: how each is begun, and what it must leave behind."""

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subtree_attention import cli, io
from tests.experiments.reproduce.jobs import PLACE, job
from tests.faults.disk import Disk, Fault, Step
from tests.samples import csv_text, friends, people

SECONDS = 120
"""After which a command that hangs is ended."""
QUICK = "--runs 2 --epochs 3 --hops 1 --heads 2 --device cpu"
TABLES = "--nodes nodes.csv --edges edges.csv --target label --weight strength"
ALONE = f"{TABLES} --no-portfolio --no-references"
"""For commands that only need some run."""


def train(words: str = "") -> Callable[[], None]:
    return sta(f"train {words} {QUICK} --checkpoint-seconds 0 --out out")


def sta(words: str) -> Callable[[], None]:
    return lambda: cli.main(words.split())


def queue() -> None:
    """Two runs of the experiments' queue, as `python -m experiments reproduce` works them off."""
    from experiments.reproduce.queue import missing, work_off
    from experiments.reproduce.store import Store
    from subtree_attention.train.watch import Watch

    store = Store(Path("store"))
    try:
        work_off(missing([job(0), job(1)], store), PLACE, store, Watch())
    except ValueError as error:
        print(error)
        sys.exit(2)


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        run: what runs it.
        before: makes what it needs to be there.
        same: whether it leaves the same every time.
        perhaps: what it may leave besides, where that goes by a clock.
        checked: whether what it leaves has checksums: what only people read has none.
    """

    run: Callable[[], None]
    before: Callable[[], None] | None = None
    same: bool = True
    perhaps: tuple[str, ...] = ()
    checked: bool = True


COMMANDS = {
    "train": Command(train()),
    "train on tables": Command(train(TABLES)),
    "tune": Command(sta("tune digits --trials 2 --runs 1 --epochs 2 --device cpu --out out")),
    "tune, then train": Command(
        sta(f"train {TABLES} --epochs 2 --runs 1 --tune 1s --device cpu --out out"),
        same=False,
        perhaps=("out/run-0/reference.safetensors",),  # of a winner that stands on one
        checked=False,
    ),
    "predict": Command(
        sta("predict out --device cpu --out predictions.csv"), train(ALONE), checked=False
    ),
    "evaluate": Command(sta("evaluate out --device cpu"), train(ALONE), checked=False),
    "report": Command(sta("report out --device cpu"), train(ALONE), checked=False),
    "check --accept": Command(sta("check out --accept"), train(ALONE)),
    "experiments' queue": Command(queue),
}


def prepare(command: Command, folder: Path) -> None:
    """A folder as it is before the command."""
    folder.mkdir(parents=True)
    _tables(folder)
    if command.before is not None:
        code, said, _ = call(command.before, folder)
        assert code == 0, said


def _tables(folder: Path) -> None:
    (folder / "nodes.csv").write_text(csv_text(people()), encoding="utf-8")
    (folder / "edges.csv").write_text(csv_text(friends()), encoding="utf-8")


def warm_up(folder: Path) -> None:
    """Run commands once in this process: those forked from it have all that they import.

    Not what reads tables: that is done by threads, which do not survive a fork.
    """
    folder.mkdir(parents=True)
    asked = [sta(f"{words} out --device cpu") for words in ("evaluate", "predict --out p.csv")]
    with contextlib.chdir(folder), open(os.devnull, "w") as nowhere:
        for function in (train(), *asked, sta("report out --device cpu"), queue):
            with (
                contextlib.redirect_stdout(nowhere),
                contextlib.redirect_stderr(nowhere),
                contextlib.suppress(SystemExit),
            ):
                function()


def call(
    function: Callable[[], None], folder: Path, fault: Fault | None = None, kill: float = 0.0
) -> tuple[int, str, list[Step]]:
    """Run a function in a process of its own, in a folder: exit code, what it said, its steps.

    Args:
        function: what to run.
        folder: where.
        fault: what goes wrong meanwhile.
        kill: seconds after which it is killed; 0: never.
    """
    said, noted = folder / "said", folder / "steps"
    process = os.fork()
    if process == 0:
        _child(function, folder, Disk(fault), said, noted)
    if kill:
        signal.signal(signal.SIGALRM, lambda *_: _kill(process))
        signal.setitimer(signal.ITIMER_REAL, kill)
    _, status = os.waitpid(process, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    steps = [Step(*step) for step in json.loads(noted.read_text())] if noted.exists() else []
    words = said.read_text(encoding="utf-8", errors="replace") if said.exists() else ""
    for path in (said, noted):
        path.unlink(missing_ok=True)
    return os.waitstatus_to_exitcode(status), words, steps


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
        os.kill(process, signal.SIGKILL)


def _child(function: Callable[[], None], folder: Path, disk: Disk, said: Path, noted: Path) -> None:
    code: Any = 0
    try:
        signal.alarm(SECONDS)
        output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(output, number)
        os.chdir(folder)
        io.os = disk  # type: ignore[assignment]
        function()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
        code = 70
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        noted.write_text(json.dumps(disk.steps))
        os._exit(code if isinstance(code, int) else 1)


def left_behind(folder: Path) -> dict[str, Any]:
    """What a command has left in a folder, by name, without times and what depends on them."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir() or path.suffix == ".lock" or name in ("nodes.csv", "edges.csv"):
            continue
        if path.name in ("environment.json", "SHA256SUMS") or path.suffix in (".png", ".html"):
            found[name] = None  # it is there
        elif path.name == "study.jsonl":
            found[name] = _trials(path)
        elif path.suffix in (".json", ".jsonl") and path.name != "metrics.jsonl":
            text = path.read_text(encoding="utf-8")
            parts = text.splitlines() if path.suffix == ".jsonl" else [text]
            same = "\n".join(json.dumps(json.loads(part)) for part in parts)  # 1E-05 is 1e-05
            found[name] = re.sub(r'"(seconds|crc32|commit)": [^,}\n]+', "", same)
        else:
            found[name] = path.read_bytes()
    return found


def _trials(journal: Path) -> list[Any]:
    """The settings and scores of the trials that were done."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this part of Optuna may still change
        storage = JournalStorage(JournalFileBackend(str(journal)))
    trials = storage.get_all_trials(storage.get_all_studies()[0]._study_id)
    done = [trial for trial in trials if trial.state.name == "COMPLETE"]
    return sorted((sorted(trial.params.items()), trial.value) for trial in done)


def copied(folder: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    return to
