"""What a run leaves on disk, and who may write there.

    OUT/config.json         every setting
    OUT/environment.json    versions, machine, commit
    OUT/graph.safetensors   only of a run on one's own data: the graph, see `Dataset.save`
    OUT/summary.json        mean and std over runs; there when all runs are done
    OUT/run-0/metrics.jsonl        a line per epoch
    OUT/run-0/summary.json         the run's result; there when the run is done
    OUT/run-0/model.safetensors    weights at the best validation epoch, and how to build the model
    OUT/run-0/checkpoint.safetensors   only while the run is not done: all it needs to go on

Every file but metrics.jsonl and environment.json has a format number, see `upgrade`.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from .. import io
from ..config import Config
from ..io import FileError
from ..upgrade import FORMAT, upgrade

CONFIG, SUMMARY, ENVIRONMENT = "config.json", "summary.json", "environment.json"
GRAPH, MODEL, CHECKPOINT = "graph.safetensors", "model.safetensors", "checkpoint.safetensors"
METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class Epoch:
    """One line of metrics.jsonl. Scores lie between 0 and 1."""

    epoch: int
    loss: float
    train: float
    val: float
    test: float


@dataclass(frozen=True)
class RunResult:
    """One run: scores at its best validation epoch, and the temperature of its probabilities."""

    run: int
    seed: int
    val: float
    test: float
    best_epoch: int
    epochs: int
    seconds: float
    temperature: float | None = None


# -------------------------------------------------------------------------------- what is in it


def read_config(folder: Path) -> Config:
    """The configuration that a folder was started with."""
    return config_from(io.read_json(folder / CONFIG), folder / CONFIG)


def config_from(content: Any, path: Path) -> Config:
    """A configuration that was read from a file; the file is named if it is none."""
    try:
        return Config.from_dict(content)
    except (TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{path} holds no configuration of ours: {error}") from None


def write_result(run: Path, result: RunResult) -> None:
    """The summary of a run, which says that it is done."""
    io.write_json(run / SUMMARY, {"format": FORMAT, **asdict(result)})


def read_result(run: Path) -> RunResult:
    """The result of a finished run."""
    path = run / SUMMARY
    summary = upgrade("summary", io.read_json(path))
    *needed, _ = names = [about.name for about in fields(RunResult)]  # not the temperature
    found = summary if isinstance(summary, dict) else {}
    if not all(isinstance(found.get(name), int | float) for name in needed):
        raise FileError(f"{path} is no summary of a run: it needs {', '.join(needed)}")
    return RunResult(**{name: summary.get(name) for name in names})


def write_curves(run: Path, history: Sequence[Epoch]) -> None:
    """The epochs of a run, a line each."""
    lines = "".join(json.dumps(asdict(epoch)) + "\n" for epoch in history)
    io.write_bytes(run / METRICS, lines.encode())


def read_curves(run: Path) -> list[Epoch]:
    """The inverse of `write_curves`."""
    path = run / METRICS
    try:
        epochs = [Epoch(**json.loads(line)) for line in path.read_text().splitlines()]
    except FileNotFoundError:
        raise FileError(f"{path} is missing: it has the epochs of the run") from None
    except (TypeError, ValueError) as error:
        raise FileError(f"{path} cannot be read: {error}") from None
    numbers = (number for epoch in epochs for number in asdict(epoch).values())
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
        raise FileError(f"{path} cannot be read: an epoch is not made of finite numbers")
    return epochs


def finished_runs(folder: Path) -> list[Path]:
    """OUT/run-0, OUT/run-1, ... as far as they are done; or the folder itself if it is one."""
    if not folder.is_dir():
        raise FileError(f"{folder} is not a folder")
    if (folder / MODEL).exists():
        return [folder]
    runs = [run for run in folder.iterdir() if re.fullmatch(r"run-\d+", run.name)]
    runs = [run for run in runs if (run / SUMMARY).exists()]
    if not runs and holds_run(folder):
        raise FileError(
            f"no run in {folder} is finished yet: go on with 'sta train --resume --out {folder}'"
        )
    if not runs:
        raise FileError(f"no finished run in {folder}: 'sta train' writes such folders")
    return sorted(runs, key=lambda run: int(run.name.removeprefix("run-")))


# ------------------------------------------------------------------- opening a folder for writing


def holds_run(folder: Path) -> bool:
    """Whether training was begun there."""
    return (folder / CONFIG).exists()


def check_new(folder: Path) -> None:
    """Refuse a folder in which nothing can be begun, before any work is done."""
    if holds_run(folder):
        raise FileError(
            f"{folder} holds a run already: go on with it (--resume, from Python resume=True), or "
            "choose another folder"
        )
    if folder.is_dir() and any(folder.iterdir()):
        raise FileError(f"{folder} is not empty and holds no run: choose another folder")
    if folder.exists() and not folder.is_dir():
        raise FileError(f"{folder} is a file: choose a folder")


def may_write(config: Config, out: Path | None, resume: bool) -> Path | None:
    """The folder to write to, if it may be written to; None if a new one is to be made."""
    if out is None and not resume:
        return None
    out = out or latest_unfinished(config.data.graph)
    if not resume or not holds_run(out):
        check_new(out)
        return out
    changed = read_config(out).differences(config)
    if changed:
        raise FileError(f"{out} was started with other settings: {'; '.join(changed)}")
    return out


def new_folder(graph: str, parent: Path = Path("runs")) -> Path:
    """A new empty folder, named after the graph and the time; never one that is there already."""
    stamp = f"{graph}-{datetime.now():%Y%m%d-%H%M%S}"
    parent.mkdir(parents=True, exist_ok=True)
    for folder in [parent / stamp, *(parent / f"{stamp}-{i}" for i in range(2, 1000))]:
        with suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise FileError(f"no free name for a folder like {parent / stamp}")


def latest_unfinished(graph: str | None, parent: Path = Path("runs")) -> Path:
    """The newest run folder that has a configuration (of this graph) but no summary."""

    def wanted(folder: Path) -> bool:
        with suppress(FileError):  # a configuration that is broken
            return graph is None or read_config(folder).data.graph == graph
        return False

    begun = [path.parent for path in parent.glob(f"*/{CONFIG}")]
    found = [run for run in begun if not (run / SUMMARY).exists() and wanted(run)]
    if not found:
        of = f" of {graph}" if graph else ""
        raise FileError(f"no unfinished run{of} in {parent}/ to resume: name it with --out")
    return max(found, key=lambda folder: (folder / CONFIG).stat().st_mtime)


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; a second process is refused. Ends with the process."""
    if not io.LOCKS:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)  # the folder itself is the lock: no file to leave behind
    try:
        if not io.try_lock(lock):
            raise FileError(f"another process is training into {folder}")
        yield
    finally:
        os.close(lock)
