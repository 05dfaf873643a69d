"""Predictions of a large graph as a folder of parts, written one by one; gone on with if cut off.

    OUT/manifest.json       of which run, graph and question these are; which parts are there
    OUT/part-00000.csv      the first rows, as one file of predictions would have them
    OUT/.logits             what the model says of all units, float64 [U, ...]; gone in the end

Logits of all nodes are one walk over the whole graph, so they are computed in one go, within a
budget of memory, and kept; answers are then made of some rows at a time. The manifest is written
after the file that it speaks of: what it does not name, or names with another size, is made again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import _check, io
from ..datasets.tables.schema import TableNotes
from ..io import FileError
from ..nn import set_memory
from ..tasks.calibration import Calibration, Intervals
from ..tasks.deciding import Asked, Decided, refuse
from . import folder as files
from .predictions import refuse_pairs, write_answers
from .saved import Folder, SavedRun, open

MANIFEST = "manifest.json"
FORMAT = 1
PART_ROWS = 1_000_000
FORMATS = ("csv", "parquet")
OWN, NEW = ".logits", ".logits-new"
"""Of the run's own graph, and of new tables."""
CHECKED = 1 << 24
"""Bytes that a checksum is made of at a time."""


@dataclass(frozen=True)
class Blocks:
    """A folder of predictions.

    Attributes:
        folder: where they are.
        units: how many nodes or graphs are predicted.
        parts: files.
        written: how many of them were written now; the others were there.
        run: the folder of the run whose model it is.
        unit, kind: what is predicted: of a "node" or "graph" a "class", "labels" or a "number".
        calibration: how far answers can be trusted; None if all was there already.
        notes: what was done with new tables, if any.
        decided: see `Predictions`.
    """

    folder: Path
    units: int
    parts: int
    written: int
    run: Path
    unit: str
    kind: str
    calibration: Calibration | Intervals | None = None
    notes: TableNotes | None = None
    decided: Decided | None = None


def predict_in_blocks(
    folder: Folder,
    out: Folder,
    nodes: Any = None,
    edges: Any = None,
    *,
    join: bool = False,
    unknown_ends: str = "error",
    graphs: Any = None,
    part_rows: int = PART_ROWS,
    part_format: str = "csv",
    memory: str | int | None = None,
    force: bool = False,
    device: str = "auto",
    told: Callable[[str], None] = lambda line: None,
    **answers: Any,
) -> Blocks:
    """Predict as `predict` does, into a folder of parts; the same call goes on with what is there.

    Args:
        folder: see `predict`, like all that is not named here.
        out: the folder to write; a second process that writes there is refused.
        part_rows: rows of a part.
        part_format: "csv" or "parquet".
        memory: a bound for what the model takes: "8GB", a number of bytes, or "free". See `STAGNN`.
        force: begin again if the folder has other predictions.
        told: hears what is being done, in words.
        answers: threshold, cls, reject or coverage.
    """
    out = _check.path("out", out)
    rows = _check.integer("part_rows", part_rows, 1)
    _check.known("part_format", part_format, FORMATS)
    asked = Asked(**answers)
    run = open(folder, device=device)
    refuse_pairs(run)
    refuse(asked, run.task.kind, run.task.names(run.dataset))
    _check_folder(out)
    if memory is not None:
        set_memory(run.model, memory)
    with files.claimed(out, "predicting"):
        io.sweep(out, (MANIFEST, OWN, NEW))  # what a killed process has left
        tables = nodes, edges, join, unknown_ends, graphs
        given = nodes is not None or edges is not None or graphs is not None
        new, start = run.read_tables(*tables) if given else (None, 0)
        units = (run.dataset if new is None else new).num_units - start
        about = {
            "format": FORMAT,
            "model": files.digest(run.folder / files.MODEL),
            "summary": files.digest(run.folder / files.SUMMARY),
            "graph": run.dataset.fingerprint(),
            "tables": None if new is None else f"{new.fingerprint()}, {'join' * join}",
            "answers": {name: value for name, value in asdict(asked).items() if value is not None},
            "units": units,
            "part_rows": rows,
            "part_format": part_format,
        }
        work = _Work(out, about, told, force)
        names = [f"part-{number:05d}.{part_format}" for number in range(-(-units // rows))]
        missing = [name for name in names if not work.has(name)]
        told(f"{len(names) - len(missing)} of {len(names)} parts are there")
        ended = out, units, len(names), len(missing), run.folder, run.task.unit, run.task.kind
        if not missing:
            work.end()
            return Blocks(*ended)
        work.logits(run, OWN)
        run = run.deciding(asked) if asked else run
        other = run
        if new is not None:
            other = run.on(new, join)
            work.logits(other, NEW)
        for number, name in enumerate(names):
            if name in missing:
                first = start + number * rows
                work.write(name, other, slice(first, min(first + rows, start + units)))
                told(f"{name}: part {number + 1:,} of {len(names):,}")
        work.end()
        notes = None if new is None else new.notes
        return Blocks(*ended, run.calibration, notes, run.decided)


def _check_folder(out: Path) -> None:
    """Refuse a folder that holds something else, before any work is done."""
    if out.exists() and not out.is_dir():
        raise FileError(f"{out} is a file: name a folder for --blocks")
    foreign = out.is_dir() and not (out / MANIFEST).exists()
    if foreign and not all(io.is_leftover(path, (MANIFEST,)) for path in out.iterdir()):
        raise FileError(f"{out} is not empty and holds no predictions: choose another folder")
    io.check_writable(out)


class _Work:
    """A folder of parts, and what its manifest says."""

    def __init__(
        self, out: Path, about: dict[str, Any], told: Callable[[str], None], force: bool
    ) -> None:
        self.out, self.told = out, told
        self.about = about
        self.kept: dict[str, dict[str, Any]] = {"logits": {}, "parts": {}}
        if not (out / MANIFEST).exists():
            self._write()
            return
        found = self._read()
        others = [name for name in about if found.get(name) != about[name]]
        if others and not force:
            raise FileError(
                f"{out} holds predictions of another {_words(others[0])}: choose another folder, "
                "or begin again with --force"
            )
        if others:
            self._clear(found)
            self._write()
        else:
            self.kept = {name: dict(found[name]) for name in self.kept}

    def _read(self) -> dict[str, Any]:
        path = self.out / MANIFEST
        found = io.parse_checked(io.read_bytes(path), path, "delete the folder and begin again")
        if not all(isinstance(found.get(name), dict) for name in ("logits", "parts")):
            raise FileError(f"{path} is no manifest of ours: delete the folder and begin again")
        return found

    def _write(self) -> None:
        io.write_json(self.out / MANIFEST, io.with_checksum({**self.about, **self.kept}))

    def _clear(self, found: dict[str, Any]) -> None:
        """Remove what another question has left; nothing but files of ours."""
        for name in (*found["parts"], OWN, NEW):
            if name in (OWN, NEW) or _is_part(name):
                (self.out / name).unlink(missing_ok=True)

    # -------------------------------------------------------------------------------- logits

    def logits(self, run: SavedRun, name: str) -> None:
        """Let a run have its logits from the file, which is written first if it is not there."""
        path, noted = self.out / name, self.kept["logits"].get(name)
        if noted is None or not _is(path, noted):
            self.told("logits are computed")
            logits = np.ascontiguousarray(run.logits, np.float64)
            io.write_bytes(path, logits.data.cast("B"))
            crc = _crc(path)
            self.kept["logits"][name] = {"shape": list(logits.shape), "crc32": crc}
            self._write()
            del logits
        shape = tuple(self.kept["logits"][name]["shape"])
        for computed in ("outputs", "logits"):
            run.__dict__.pop(computed, None)
        empty = 0 in shape  # which cannot be mapped
        mapped = np.zeros(shape) if empty else np.memmap(path, np.float64, "r", shape=shape)
        run.__dict__["logits"] = mapped

    # -------------------------------------------------------------------------------- parts

    def has(self, name: str) -> bool:
        """Whether a part is there, as the manifest has it."""
        noted, path = self.kept["parts"].get(name), self.out / name
        return noted is not None and path.is_file() and path.stat().st_size == noted["bytes"]

    def write(self, name: str, run: SavedRun, rows: slice) -> None:
        """A part, and that it is there."""
        logits, target = np.asarray(run.logits[rows]), run.target[rows]
        answers = run.task.answers(logits, target, run.found, run.task.names(run.dataset))
        path = self.out / name
        write_answers(run.unit_ids[rows], answers, path, force=True)
        self.kept["parts"][name] = {"rows": len(logits), "bytes": path.stat().st_size}
        self._write()

    def end(self) -> None:
        """All parts are there: logits are wanted no more."""
        if self.kept["logits"]:
            self.kept["logits"] = {}
            self._write()
        for name in (OWN, NEW):
            (self.out / name).unlink(missing_ok=True)


def _words(name: str) -> str:
    names = {"model": "run", "summary": "run", "format": "version", "answers": "question"}
    return names.get(name, name.replace("_", " "))


def _is_part(name: str) -> bool:
    return name.startswith("part-") and Path(name).name == name


def _is(path: Path, noted: dict[str, Any]) -> bool:
    """Whether a file of logits is what was noted down of it."""
    size = 8 * int(np.prod(noted["shape"]))
    return path.is_file() and path.stat().st_size == size and _crc(path) == noted["crc32"]


def _crc(path: Path) -> str:
    crc = 0
    with io.open_regular(path) as file:
        while part := file.read(CHECKED):
            crc = zlib.crc32(part, crc)
    return f"{crc:08x}"
