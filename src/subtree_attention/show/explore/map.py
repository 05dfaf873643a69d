"""All nodes of a run on a map, those with like logits side by side.

By principal components at once. By t-SNE when a process beside the server is done with it; what it
found is kept in the folder of the run, where that can be written.
"""

from __future__ import annotations

import atexit
import re
import subprocess
import sys
from contextlib import suppress
from functools import cached_property
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock, Thread
from typing import IO, Any

import numpy as np
import torch

from ... import _check, io
from ...io import FileError
from ...runs import SavedRun
from ...runs import folder as files
from . import landmarks
from .landmarks import ITERATIONS, NEAREST, PERPLEXITY, SEED

WAYS = ("pca", "tsne")
FORMAT = 1
"""Of the file that keeps a map."""
LANDMARKS = 20_000
"""Nodes of which t-SNE is computed: a minute or two on two cores."""
COMPONENTS = 50
"""Of the logits, in which nodes are compared: there may be thousands of classes."""
FEWEST = 4
"""Nodes of which t-SNE can be made."""


class Map:
    """Where the nodes of a run lie.

    Args:
        run: of classes of nodes.
    """

    def __init__(self, run: SavedRun) -> None:
        self._run = run
        self._lock = Lock()
        self._thread: Thread | None = None
        self._tsne: np.ndarray | None = None
        self._progress, self._failed = 0.0, ""

    def status(self) -> dict[str, Any]:
        """Whether there is t-SNE, how far it has got, and of how many nodes it is; the first who
        asks sets it going."""
        self._begin()
        count = len(self._run.logits)
        state = "ready" if self._tsne is not None else "failed" if self._failed else "made"
        told = {"tsne": state, "progress": round(self._progress, 3), "why": self._failed}
        return {**told, "nodes": count, "landmarks": min(count, LANDMARKS)}

    def positions(self, by: str) -> np.ndarray:
        """Where each node lies, float32 [N, 2], all within -1 and 1."""
        _check.known("map", by, WAYS)
        if by == "pca":
            return self._pca
        if self._tsne is None:
            raise ValueError("the map by t-SNE is not ready yet: look at the one by PCA meanwhile")
        return self._tsne

    @cached_property
    def _rows(self) -> np.ndarray:
        return components(self._run.logits)

    @cached_property
    def _pca(self) -> np.ndarray:
        plane = np.zeros((len(self._rows), 2))
        plane[:, : self._rows.shape[1]] = self._rows[:, :2]
        return framed(plane)

    # ---------------------------------------------------------------------------------- t-SNE

    def _begin(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._make, daemon=True)
                self._thread.start()

    def _make(self) -> None:
        found = self._read()
        if found is None:
            try:
                found = framed(self._computed())
            except (OSError, ValueError) as error:  # also if the process was ended
                self._failed = str(error)
                return
            self._write(found)
        self._tsne = found

    def _computed(self) -> np.ndarray:
        """t-SNE in a process of its own."""
        if len(self._rows) < FEWEST:
            raise ValueError(f"t-SNE needs {FEWEST} nodes at least")
        given = BytesIO()
        np.save(given, self._rows, allow_pickle=False)
        # Without the folder of the program in its path, whose modules are not the library's.
        command = [sys.executable, "-P", str(Path(landmarks.__file__)), str(LANDMARKS)]
        pipe = subprocess.PIPE
        with (
            TemporaryFile() as places,
            subprocess.Popen(command, stdin=pipe, stdout=places, stderr=pipe) as process,
        ):
            atexit.register(process.kill)
            try:
                assert process.stdin is not None
                assert process.stderr is not None
                with process.stdin as rows:
                    rows.write(given.getbuffer())
                said = self._watch(process.stderr)
            finally:
                code = process.wait()
                atexit.unregister(process.kill)
            if code:
                raise ValueError(f"t-SNE came to no end: {said or f'exit status {code}'}")
            places.seek(0)
            found = np.load(BytesIO(places.read()), allow_pickle=False)
        if not np.isfinite(found).all():
            raise ValueError("t-SNE came to no end: its places are not finite")
        return found

    def _watch(self, said: IO[bytes]) -> str:
        """Follow the iterations that a process tells of, and return the last line it wrote."""
        last = ""
        for line in said:
            last = line.decode(errors="replace").strip() or last
            if found := re.search(r"Iteration (\d+)", last):
                self._progress = min(1.0, int(found[1]) / ITERATIONS)
        return last

    # ------------------------------------------------------------------------------- the file

    @property
    def _path(self) -> Path:
        return self._run.folder / files.MAP

    @cached_property
    def _made_of(self) -> dict[str, Any] | None:
        """What decides the map: all that the run has saved, and how it is made; None where the run
        lies in no folder."""
        try:
            saved = files.digest(self._run.folder / files.LIST)
        except FileError:
            return None
        settings = [LANDMARKS, COMPONENTS, ITERATIONS, PERPLEXITY, NEAREST, SEED]
        return {"format": FORMAT, "run": saved, "nodes": len(self._rows), "settings": settings}

    def _read(self) -> np.ndarray | None:
        """The map that was kept; None where there is none, or it is damaged or of another run."""
        try:
            tensors, header = io.read_tensors(self._path)
        except FileError:
            return None
        places = tensors.get("tsne")
        if self._made_of is None or header != self._made_of or places is None:
            return None
        right = places.dtype == torch.float32 and places.shape == (len(self._rows), 2)
        return places.numpy() if right and bool(places.isfinite().all()) else None

    def _write(self, places: np.ndarray) -> None:
        if self._made_of is not None:
            with suppress(FileError):  # of a folder that is only to be read
                io.write_tensors(self._path, {"tsne": torch.from_numpy(places)}, self._made_of)


def components(logits: np.ndarray) -> np.ndarray:
    """Principal components of logits [N, C], float32 [N, D], those that tell most first.

    The largest weight of each is positive, so that a map is not turned over by chance.
    """
    centred = logits - logits.mean(0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, ::-1][:, :COMPONENTS]
    largest = axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])]
    return (centred @ (axes * np.sign(largest))).astype(np.float32)


def framed(places: np.ndarray) -> np.ndarray:
    """Places [N, 2] moved and scaled, alike in both directions, to lie within -1 and 1."""
    low, high = places.min(0), places.max(0)
    half = (high - low).max() / 2 or 1.0
    return ((places - (low + high) / 2) / half).astype(np.float32)
