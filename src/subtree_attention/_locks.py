"""Locks between processes: on an open file, dropped by the system however a process ends."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # no such lock on this platform: every lock is free
    AVAILABLE = False
else:
    AVAILABLE = True


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock on a file, which is made if it is not there; others wait."""
    held = lock(path)
    try:
        yield
    finally:
        os.close(held)


def lock(path: Path) -> int:
    """Wait for a lock and hold it until the file is closed, which the end of the process does.

    It tries again and again instead of waiting in the system, so that Ctrl-C gets through.
    """
    while (held := lock_if_free(path)) is None:
        time.sleep(0.01)
    return held


def lock_if_free(path: Path) -> int | None:
    """As `lock`, but None if another holds it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    if try_lock(file):
        return file
    os.close(file)
    return None


def try_lock(file: int) -> bool:
    """Take the lock on an open file, if nobody holds it."""
    if not AVAILABLE:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
