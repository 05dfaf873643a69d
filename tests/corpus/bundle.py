"""A run folder that somebody changed, with checksums that are right again: damage is told by its
checksum, and a stranger can make one."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

import subtree_attention as sta
from subtree_attention import io
from subtree_attention.runs import evaluate
from subtree_attention.runs.folder import GRAPH, LIST, MODEL, read_config, run_folders
from tests.corpus import given


def trained(folder: Path) -> Path:
    return sta.fit(given.config(), folder, data=given.dataset(), device="cpu").folder


class Bundle:
    """A copy of a run folder, and the ways in which it is changed."""

    def __init__(self, run: Path, folder: Path) -> None:
        self.folder = Path(shutil.copytree(run, folder))

    def read(self) -> None:
        """All that can be asked of it."""
        read_config(self.folder)
        for scores in evaluate(self.folder, device="cpu"):
            run = scores.run
            for part in ("curves", "environment", "probabilities", "calibration"):
                getattr(run, part)
            sta.Explainer(run.model, run.dataset.features, run.graph)(0)

    def ways(self) -> dict[str, Callable[..., None]]:
        names = ("words", "header", "tensors", "raw", "remove", "link", "fifo", "flip", "cut")
        return {name: getattr(self, name) for name in names}

    def words(self, name: str, /, **changes: Any) -> None:
        """Entries of a JSON file, by their path: model__hops; ... leaves one out."""
        path = self.folder / name
        io.write_json(path, _changed(json.loads(path.read_text()), changes))
        self._sign()

    def header(self, name: str, /, **changes: Any) -> None:
        """Entries of the header of a file of tensors, likewise."""
        tensors, header = io.read_tensors(self._file(name))
        io.write_tensors(self._file(name), tensors, _changed(header, changes))
        self._sign()

    def tensors(self, name: str, /, **changes: Callable[[Tensor], Any] | Tensor | None) -> None:
        """Tensors of such a file: others, or what a function makes of them; None takes one out."""
        tensors, header = io.read_tensors(self._file(name))
        for key, change in changes.items():
            key = key.replace("__", ".")
            changed = change(tensors[key]) if callable(change) else change
            tensors[key] = changed
        tensors = {key: tensor for key, tensor in tensors.items() if tensor is not None}
        io.write_tensors(self._file(name), tensors, header)
        self._sign()

    def raw(self, name: str, content: bytes, signed: bool = True) -> None:
        """The bytes of a file."""
        (self.folder / name).write_bytes(content)
        if signed:
            self._sign()

    def flip(self, name: str, place: int) -> None:
        """One bit, and no checksum is put right."""
        content = bytearray(self._file(name).read_bytes())
        content[place] ^= 1
        self._file(name).write_bytes(content)

    def cut(self, name: str, size: int) -> None:
        """Only the first bytes."""
        self._file(name).write_bytes(self._file(name).read_bytes()[:size])

    def remove(self, name: str) -> None:
        self._file(name).unlink()

    def link(self, name: str, target: str) -> None:
        self.remove(name)
        self._file(name).symlink_to(target)

    def fifo(self, name: str) -> None:
        self.remove(name)
        os.mkfifo(self._file(name))

    def _file(self, name: str) -> Path:
        return self.folder / {"model": f"run-0/{MODEL}", "graph": GRAPH}.get(name, name)

    def _sign(self) -> None:
        """Lists that say what is there now, as whoever changed it can write them."""
        for folder in (self.folder, *run_folders(self.folder)):
            names = [line.split("  ")[1] for line in (folder / LIST).read_text().splitlines()]
            there = [name for name in names if (folder / name).is_file()]
            lines = [
                f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n"
                for name in there
            ]
            (folder / LIST).write_text("".join(lines))


def _changed(content: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    for place, value in changes.items():
        *outer, last = place.split("__")
        inside = content
        for name in outer:
            inside = inside[name]
        inside[last] = value
        if value is ...:
            del inside[last]
    return content
