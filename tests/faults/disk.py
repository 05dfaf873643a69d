"""A disk that fails at one step of a write: it stands in for `os` in `subtree_attention.io`.

That is the one place that writes."""

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from subtree_attention.io import TEMPORARY

DIED = 77
"""The exit code of a process that a fault ended."""


class Fault(NamedTuple):
    """What goes wrong, and at which step.

    Kinds: "death" ends the process before the step, "torn" in the middle of a write, "full" is a
    disk without space from then on, "flip" changes a bit of the file that was written, and ends
    the process.
    """

    kind: str
    step: int
    bit: float = 0.0
    """Where it is in the file, as a share of its length."""


class Step(NamedTuple):
    """One thing that was asked of the disk, and of which file: "write", "sync" and "rename" of a
    whole file, or the "append" of a line, once that is written."""

    what: str
    file: str

    @property
    def kinds(self) -> list[str]:
        """What can go wrong here: a bit flips once the file stands where it belongs."""
        return ["death", *_KINDS[self.what]]


_KINDS = {"write": ["full", "torn"], "sync": ["full"], "rename": ["flip"], "append": ["flip"]}


@dataclass
class Disk:
    """`os` as `io` sees it; it counts the steps and fails at one of them."""

    fault: Fault | None = None
    steps: list[Step] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, file: int, content: bytes) -> int:
        path, _ = _path(file)
        if self.steps and self.steps[-1] == Step("write", str(path)):  # it is written in parts
            return os.write(file, content)
        kind = self._step("write", path)
        if kind in ("torn", "full"):
            os.write(file, content[: len(content) // 2])
            self._end(kind)
        return os.write(file, content)

    def fsync(self, file: int) -> None:
        path, temporary = _path(file)
        if not path.is_dir():
            kind = self._step("sync" if temporary else "append", path)
            os.fsync(file)
            self._end(kind, path)

    def replace(self, source: Path, target: Path) -> None:
        kind = self._step("rename", target)
        os.replace(source, target)
        self._end(kind, target)

    def _step(self, what: str, path: Path) -> str | None:
        """What goes wrong now; death comes at once."""
        self.steps.append(Step(what, os.path.abspath(path)))
        full = self.fault is not None and self.fault.kind == "full"
        if self.fault is None or len(self.steps) - 1 < self.fault.step:
            return None
        if len(self.steps) - 1 > self.fault.step and not full:
            return None
        if self.fault.kind == "death":
            os._exit(DIED)
        return self.fault.kind

    def _end(self, kind: str | None, path: Path | None = None) -> None:
        if kind == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if kind == "flip" and path is not None:
            flip(path, self.fault.bit if self.fault else 0.0)
        if kind in ("torn", "flip"):
            os._exit(DIED)


def flip(path: Path, where: float) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    bit = int(where * 8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def _path(file: int) -> tuple[Path, bool]:
    """The file that is open under a number, by the name that it shall have, and whether it has
    another one as yet."""
    path = Path(os.readlink(f"/proc/self/fd/{file}"))
    name = path.name.removeprefix(".").removesuffix(TEMPORARY)
    return path.with_name(name), path.name == f".{name}{TEMPORARY}"
