"""Which process makes which run: several may work off the same folder, one on each GPU, say."""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path

from experiments.reproduce.jobs import Job
from experiments.reproduce.store import Store
from subtree_attention.io import lock_if_free

FOLDER = ".running"
LONGEST = 200


class Claims:
    """The runs that this process has taken: a lock for each, which its end drops in any case.

    Args:
        store: where the records go; the locks lie beside them.
    """

    def __init__(self, store: Store) -> None:
        self.folder = store.folder / FOLDER
        self.held: dict[Path, int] = {}

    def take(self, job: Job) -> bool:
        """Whether no other process is at it: then it is ours until `drop`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(job)
        held = lock_if_free(path)
        if held is not None:
            self.held[path] = held
        return held is not None

    def drop(self, job: Job) -> None:
        """Let go of a run that has ended."""
        self._drop(self._path(job))

    def close(self) -> None:
        """Let go of all."""
        for path in [*self.held]:
            self._drop(path)

    def _path(self, job: Job) -> Path:
        name = f"{job.experiment} {job.graph} {' '.join(map(str, job.key))}"
        plain = re.sub(r"[^\w.=+-]+", "-", name)
        if len(plain) > LONGEST:  # file systems have an end
            plain = f"{plain[:LONGEST]}-{zlib.crc32(name.encode()):08x}"
        return self.folder / f"{plain}.lock"

    def _drop(self, path: Path) -> None:
        path.unlink(missing_ok=True)  # before the lock goes: nobody may get the file that is gone
        os.close(self.held.pop(path))
