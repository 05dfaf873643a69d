"""What a run leaves on disk, and who may write there.

    OUT/config.json         every setting
    OUT/environment.json    versions, machine, commit
    OUT/graph.safetensors   only of a run on one's own data: the graph, see `Dataset.save`
    OUT/told.safetensors    beside it, the table of its nodes as it was written, see `datasets.told`
    OUT/pictures.safetensors   and the pictures of its nodes, if it has any
    OUT/portfolio.json      only where several configurations competed for it, see `portfolio`
    OUT/portfolio/NAME/     the run of one of them, as long as it may win
    OUT/references.json     only where it was asked for: what others reach on the split of run 0
    OUT/summary.json        mean and std over runs; there when all runs are done
    OUT/report.html         only where 'sta report' wrote it: for people, and in no list
    OUT/SHA256SUMS          of the others, but for the graph, told and pictures, which have
                            checksums of their own
    OUT/run-0/metrics.jsonl        a line per epoch
    OUT/run-0/summary.json         the run's result
    OUT/run-0/model.safetensors    weights at the best validation epoch, and how to build the model
    OUT/run-0/reference.safetensors   only where the model stands on one: the fitted reference
    OUT/run-0/map.safetensors      only where it was looked at: where `sta explore` puts its nodes
    OUT/run-0/SHA256SUMS           written last: the run is done
    OUT/run-0/checkpoint.safetensors   only while the run is not done: all it needs to go on
    OUT/metrics.csv, OUT/tensorboard/, OUT/run-0/log.json   only where --log asked for them

Every file but metrics.jsonl and environment.json has a format number, see `upgrade`. What is not in
the list of its folder was cut off before it counted; what is in it must be what it was.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from .. import _check, io
from ..config import Config
from ..datasets.told import PICTURES, TOLD
from ..datasets.told import REMEDY as UNTOLD
from ..io import FileError
from ..upgrade import FORMAT, upgrade

CONFIG, SUMMARY, ENVIRONMENT = "config.json", "summary.json", "environment.json"
GRAPH, MODEL, CHECKPOINT = "graph.safetensors", "model.safetensors", "checkpoint.safetensors"
METRICS, LIST, PORTFOLIO = "metrics.jsonl", "SHA256SUMS", "portfolio.json"
REFERENCES, REFERENCE = "references.json", "reference.safetensors"
LOGGED, MAP = "log.json", "map.safetensors"
FILES = (
    *(CONFIG, SUMMARY, ENVIRONMENT, GRAPH, MODEL, CHECKPOINT),
    *(METRICS, LIST, PORTFOLIO, REFERENCES, REFERENCE, LOGGED, TOLD, PICTURES, MAP),
)
COMPETING = "portfolio"
"""Below the folder, those that may still win."""
RUNS = Path("runs")
"""Where new folders are made, below the one that one is in."""


@dataclass(frozen=True)
class Epoch:
    """One line of metrics.jsonl, with the scores of the task's metric."""

    epoch: int
    loss: float
    train: float
    val: float
    test: float


@dataclass(frozen=True)
class RunResult:
    """One run: scores at its best validation epoch, and what makes answers of its outputs.

    That is the temperature of its probabilities, with an offset of each class where classes had
    weights; or of numbers, where outputs 0 and 1 lie, and how far most validation units are off.
    Where labels of training nodes correct outputs, it is said how, see `tasks.smooth`; the scores
    are with it.
    """

    run: int
    seed: int
    val: float
    test: float
    best_epoch: int
    epochs: int
    seconds: float
    temperature: float | None = None
    offsets: list[float] | None = None
    center: float | None = None
    scale: float | None = None
    half_width: float | None = None
    correct_reach: float | None = None
    correct_scale: float | None = None
    smooth_reach: float | None = None

    @property
    def found(self) -> dict[str, Any]:
        """What the task found, see `settle` and `correction`; nothing in an older folder."""
        names = [about.name for about in fields(RunResult) if about.default is None]
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it: what this task has not is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}


# -------------------------------------------------------------------------------- what is in it


def read_config(folder: Path) -> Config:
    """The configuration that a folder was started with."""
    path = folder / CONFIG
    if not path.exists():
        raise FileError(
            f"nothing was begun in {folder}, so there is nothing to go on with ({CONFIG} is "
            "missing): give the whole command again, without --resume"
        )
    try:
        return config_from(_read_json(path), path)
    except FileError as error:
        if (folder / LIST).exists() or run_folders(folder):
            raise
        words = f"{error}. If a run was cut off here before it began, delete it and begin again"
        raise FileError(words) from None


def config_from(content: Any, path: Path) -> Config:
    """A configuration that was read from a file; the file is named if it is none."""
    try:
        return Config.from_dict(content)
    except (TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{path} holds no configuration of ours: {error}") from None


def write_result(run: Path, result: RunResult, history: Sequence[Epoch]) -> None:
    """The summary and the epochs of a run, which say that it is done."""
    summary = io.json_bytes({"format": FORMAT, **result.to_dict()})
    there = [name for name in (MODEL, REFERENCE) if name == MODEL or (run / name).exists()]
    write_listed(run, {METRICS: _lines(history), SUMMARY: summary}, there=there)


def read_result(run: Path) -> RunResult:
    """The result of a finished run."""
    path = run / SUMMARY
    content = _read_json(path)
    try:
        summary = upgrade("summary", content)
        found = summary if isinstance(summary, dict) else {}
        result: dict[str, Any] = {about.name: found.get(about.name) for about in fields(RunResult)}
        for about in fields(RunResult):
            if about.type == "int":
                _check.integer(about.name, result[about.name], 0, _check.MOST_SEED)
            elif about.name == "offsets":
                _check_offsets(result[about.name])
            elif result[about.name] is not None or about.type == "float":
                signed = about.name in ("val", "test", "center")  # R2 may be below 0
                _check.number(about.name, result[about.name], -math.inf if signed else 0.0)
        for name in ("temperature", "scale"):
            if result[name] == 0:
                raise ValueError(f"{name} must be above 0, got 0")
    except (TypeError, ValueError) as error:
        raise FileError(f"{path} is no summary of a run: {error}") from None
    return RunResult(**result)


def _check_offsets(offsets: Any) -> None:
    """A number of each class, if there are any."""
    for offset in _check.kind("offsets", [] if offsets is None else offsets, list, "a list"):
        _check.number("an offset", offset, -math.inf)


def write_curves(run: Path, history: Sequence[Epoch]) -> None:
    """The epochs of a run that goes on, a line each."""
    io.write_bytes(run / METRICS, _lines(history))


def append_curves(run: Path, epochs: Sequence[Epoch]) -> bool:
    """Further epochs of a run that goes on, without waiting for the disk: what a run needs to go on
    is in its checkpoint. Whether they could be written."""
    try:
        with open(run / METRICS, "ab", opener=_no_link) as file:
            file.write(_lines(epochs))
    except OSError:
        return False
    return True


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _lines(history: Sequence[Epoch]) -> bytes:
    return "".join(json.dumps(asdict(epoch)) + "\n" for epoch in history).encode()


def read_curves(run: Path) -> list[Epoch]:
    """The inverse of `write_curves`."""
    path = run / METRICS
    content = read_listed(path)
    try:
        epochs = [Epoch(**io.parse_json(line, path)) for line in content.splitlines()]
    except TypeError:
        names = ", ".join(about.name for about in fields(Epoch))
        raise FileError(f"{path} cannot be read: a line must have {names}") from None
    numbers = (number for epoch in epochs for number in asdict(epoch).values())
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
        raise FileError(f"{path} cannot be read: an epoch is not made of finite numbers")
    return epochs


def read_environment(folder: Path) -> dict[str, Any]:
    """Where and when it was trained; an old or copied folder may not say."""
    path = folder / ENVIRONMENT
    content = _read_json(path) if path.exists() else {}
    return content if isinstance(content, dict) else {}


def run_folders(folder: Path) -> list[Path]:
    """OUT/run-0, OUT/run-1, ..., done or not; what a link leads to is none of them."""
    inside = folder.iterdir() if folder.is_dir() else ()
    runs = [run for run in inside if re.fullmatch(r"run-\d{1,9}", run.name)]
    runs = [run for run in runs if run.is_dir() and not run.is_symlink()]
    return sorted(runs, key=lambda run: int(run.name.removeprefix("run-")))


def finished_runs(folder: Path) -> list[Path]:
    """OUT/run-0, OUT/run-1, ... as far as they are done; or the folder itself if it is one."""
    if not folder.is_dir():
        raise FileError(f"{folder} is not a folder")
    if (folder / MODEL).exists():
        return [folder]
    begun = run_folders(folder)
    runs = [run for run in begun if is_done(run)]
    if len(runs) < len(begun) and is_done(folder):
        broken = next(run for run in begun if run not in runs)
        raise FileError(f"{broken} was done, but its {LIST} is missing: {_remedy(folder)}")
    if not runs and holds_run(folder):
        raise FileError(
            f"no run in {folder} is finished yet: go on with 'sta train --resume --out {folder}'"
        )
    if not runs:
        raise FileError(f"no finished run in {folder}: 'sta train' writes such folders")
    return runs


# ---------------------------------------------------------------------------- the list of a folder


def write_listed(folder: Path, contents: Mapping[str, bytes], there: Sequence[str] = ()) -> None:
    """Write files, and last the list that says what they, and others that are there, are: only then
    do they count."""
    for name, content in contents.items():
        io.write_bytes(folder / name, content)
    digests = {name: _sha256(content) for name, content in contents.items()}
    digests |= {name: digest(folder / name) for name in there}
    _write_list(folder, listed(folder) | digests)


def _write_list(folder: Path, digests: Mapping[str, str]) -> None:
    lines = [f"{digest}  {name}\n" for name, digest in sorted(digests.items())]
    io.write_bytes(folder / LIST, "".join(lines).encode())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with io.open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def listed(folder: Path) -> dict[str, str]:
    """Name -> SHA-256, as `sha256sum -c` reads it; empty if there is no list."""
    path = folder / LIST
    if not path.exists():
        return {}
    *lines, rest = io.read_bytes(path).decode(errors="replace").split("\n")
    rows = [re.fullmatch(r"([0-9a-f]{64})  ([\w.-]+)", line) for line in lines]
    if rest or not rows or not all(rows):
        raise FileError(f"{path} is damaged: {_remedy(folder)}")
    return {row[2]: row[1] for row in rows if row}


def is_done(folder: Path) -> bool:
    """Whether its summary counts: that of a run, or of all runs."""
    if (folder / LIST).exists():
        return SUMMARY in listed(folder)
    if (folder / CHECKPOINT).exists():  # it was cut off, whatever a damaged summary says
        return False
    with suppress(FileError):
        return io.is_unchecked(io.read_json(folder / SUMMARY))
    return False


def check(out: Path) -> Iterator[tuple[Path, str]]:
    """Every file of a run folder that has a checksum, and what is the matter with it, if anything.

    Files of older formats have none, and are not named.
    """
    for folder in (out, *run_folders(out)):
        listing: list[Path] = []
        with suppress(FileError):  # said below, when the list itself is read
            listing = [folder / name for name in listed(folder)]
        tensors = sorted(folder.glob("*.safetensors"))
        summary = folder / (CONFIG if folder == out and not tensors else SUMMARY)
        for path in dict.fromkeys([folder / LIST, *listing, *tensors]):
            try:
                if path.name == LIST and not path.exists() and summary.exists():
                    _read_json(summary)  # says that the list is missing, unless it is an older one
                elif path.name == LIST:
                    listed(folder)
                elif path in listing:
                    check_listed(path)
                if path in tensors:
                    remedy = UNTOLD if path.name in (TOLD, PICTURES) else ""
                    io.read_header(path, remedy, whole=True)
            except FileError as error:
                yield path, str(error)
            else:
                if path.exists():
                    yield path, ""


def accept(out: Path) -> None:
    """Let the files of a run folder be what they are now, if they can be read."""
    if (out / COMPETING).exists() and not (out / LIST).exists():
        raise FileError(
            f"{out} holds a portfolio that has no winner yet: go on with 'sta train --resume "
            f"--out {out}' first"
        )
    for folder in (out, *run_folders(out)):
        known = (CONFIG, ENVIRONMENT, METRICS, SUMMARY, MODEL, PORTFOLIO, REFERENCES, REFERENCE)
        digests = {name: digest(folder / name) for name in known if (folder / name).exists()}
        if CONFIG in digests:
            config_from(io.read_json(folder / CONFIG), folder / CONFIG)
        elif SUMMARY not in digests:
            continue  # a run that is not done has no list
        elif MODEL not in digests:
            raise FileError(f"{folder / MODEL} is missing: there is no run to accept")
        _write_list(folder, digests)


def _read_json(path: Path) -> Any:
    """A file of the list; where there is none, one of an older format, or of a run that was cut
    off before it had begun."""
    content = io.parse_json(read_listed(path), path)
    begun = path.name != CONFIG or any(path.parent.glob("run-*/*"))
    if begun and not (path.parent / LIST).exists() and not io.is_unchecked(content):
        raise FileError(f"{path.parent / LIST} is missing: {_remedy(path.parent)}")
    return content


def read_listed(path: Path) -> bytes:
    """A file that is what the list of its folder says, if there is a list."""
    if path.name in listed(path.parent) and not path.exists():
        raise FileError(f"{path} is missing: {_remedy(path.parent)}")
    content = io.read_bytes(path)
    _compare(path, _sha256(content))
    return content


def check_listed(path: Path) -> None:
    """Refuse a file that is not what the list of its folder says, if there is a list."""
    _compare(path, digest(path))


def _compare(path: Path, digest: str) -> None:
    names = listed(path.parent)
    if not names or names.get(path.name) == digest:
        return
    if path.name not in names:
        raise FileError(f"{path} is not in {LIST}: it was cut off; {_remedy(path.parent)}")
    raise FileError(
        f"{path} is not what {LIST} says: one of them is damaged or was changed; "
        f"{_remedy(path.parent)}"
    )


def _remedy(folder: Path) -> str:
    if not (folder / CONFIG).exists() and (folder.parent / CONFIG).exists():  # one run of several
        again = "delete the folder of that run and go on with sta train --resume, "
        return f"take it from a copy, {again}or accept it: sta check --accept {folder.parent}"
    return f"take it from a copy, or accept what is there: sta check --accept {folder}"


# ------------------------------------------------------------------- opening a folder for writing


def holds_run(folder: Path) -> bool:
    """Whether training was begun there; of a portfolio, its own file comes first."""
    return (folder / CONFIG).exists() or (folder / PORTFOLIO).exists()


def check_open(folder: Path | None) -> None:
    """Refuse a folder in which nothing can be begun or gone on with, before any work is done.

    None is a new one, see `new_folder`.
    """
    if folder is None:
        folder = RUNS
    elif holds_run(folder):
        if is_done(folder):
            raise FileError(
                f"{folder} holds a run already, which is finished: choose another folder "
                "(--resume, from Python resume=True, shows what is there)"
            )
    elif folder.is_dir() and not all(io.is_leftover(path, FILES) for path in folder.iterdir()):
        raise FileError(f"{folder} is not empty and holds no run: choose another folder")
    elif folder.exists() and not folder.is_dir():
        raise FileError(f"{folder} is a file: choose a folder")
    io.check_writable(folder)


def may_write(config: Config, out: Path | None, resume: bool) -> Path | None:
    """The folder to write to, if it may be written to; None if a new one is to be made.

    A run with the same settings that was cut off is gone on with, asked or not: it has nothing that
    would be lost. One that is finished is only looked at if that is asked for.
    """
    if out is None and not resume:
        check_open(None)
        return None
    out = out or latest_unfinished(config.data.graph)
    if not resume or not holds_run(out):
        check_open(out)
    changed = read_config(out).differences(config) if holds_run(out) else []
    if changed:
        raise FileError(
            f"{out} holds a run already, which was started with other settings: "
            f"{'; '.join(changed)}: choose another folder"
        )
    return out


def new_folder(graph: str, parent: Path = RUNS) -> Path:
    """A new empty folder, named after the graph and the time; never one that is there already."""
    stamp = f"{graph}-{datetime.now():%Y%m%d-%H%M%S}"
    parent.mkdir(parents=True, exist_ok=True)
    for folder in [parent / stamp, *(parent / f"{stamp}-{i}" for i in range(2, 1000))]:
        with suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise FileError(f"no free name for a folder like {parent / stamp}")


def latest(parent: Path = RUNS) -> Path:
    """The folder in which training was begun last."""
    begun = [path.parent for name in (CONFIG, PORTFOLIO) for path in parent.glob(f"*/{name}")]
    if not begun:
        raise FileError(f"no run in {parent}/: name its folder, or begin one by 'sta train'")
    return max(begun, key=lambda folder: folder.stat().st_mtime)


def latest_unfinished(graph: str | None, parent: Path = RUNS) -> Path:
    """The newest run folder that has a configuration (of this graph) but no summary."""

    def wanted(folder: Path) -> bool:
        with suppress(FileError):  # a configuration that is broken
            return graph is None or read_config(folder).data.graph == graph
        return False

    begun = [path.parent for path in parent.glob(f"*/{CONFIG}")]
    found = [run for run in begun if wanted(run) and not is_done(run)]
    if not found:
        of = f" of {graph}" if graph else ""
        raise FileError(f"no unfinished run{of} in {parent}/ to resume: name it with --out")
    return max(found, key=lambda folder: (folder / CONFIG).stat().st_mtime)


PROBES, PROBE_SECONDS = 20, 0.01
"""How often, and how long apart, a folder is asked for: who only looks holds it for a moment."""


def is_claimed(folder: Path) -> bool:
    """Whether a process holds a folder; where there are no locks, nobody can tell, and it may."""
    if not io.LOCKS:
        return True
    with suppress(FileNotFoundError):
        lock = os.open(folder, os.O_RDONLY)
        try:
            return not io.try_lock(lock)
        finally:
            os.close(lock)
    return False


def _taken(lock: int) -> bool:
    for _ in range(PROBES):
        if io.try_lock(lock):
            return True
        time.sleep(PROBE_SECONDS)
    return False


@contextmanager
def claimed(folder: Path, work: str = "training") -> Iterator[None]:
    """Hold a folder for this process; a second process is refused, and told what this one's work
    is. Ends with the process."""
    if not io.LOCKS:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)  # the folder itself is the lock: no file to leave behind
    try:
        if not _taken(lock):
            raise FileError(f"another process is {work} into {folder}")
        yield
    finally:
        os.close(lock)
