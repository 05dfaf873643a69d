"""Files: written whole or not at all, read with words for what is wrong, locked between processes.

Files are written under a temporary name, synced and renamed: a half-written one never stands
where a good one stood. There is no pickle anywhere. A lock is on an open file, so the system drops
it however a process ends.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import uuid4

if TYPE_CHECKING:
    from torch import Tensor

try:
    import fcntl
except ImportError:  # no such lock on this platform: every lock is free
    LOCKS = False
else:
    LOCKS = True


class FileError(ValueError):
    """A file or folder that cannot be used as asked: the message says why and what to do."""


# ------------------------------------------------------------------------------------- writing


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that either the old or the new content is there, whatever happens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")  # others may write it too
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Any) -> None:
    """Write JSON, readable by people too."""
    write_bytes(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def write_tensors(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write tensors with a JSON header beside them, in safetensors' format."""
    from safetensors.torch import save  # here: it imports torch

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_bytes(path, save(tensors, metadata={"json": json.dumps(header)}))


def check_target(path: Path, suffixes: tuple[str, ...], what: str, force: bool) -> None:
    """Refuse a file that cannot or must not be written, before any work is done."""
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{path}: {what} written as {' or '.join(suffixes)}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file")
    if path.exists() and not force:
        raise ValueError(f"{path} is there already: --force writes over it")
    check_writable(path.parent)


def check_writable(folder: Path) -> None:
    """Refuse a folder that no file can be put into, before any work is done.

    Rights say little (an administrator has them all, a disk may be read-only), so it is tried: with
    a file without a name, in the folder or in the nearest one above it that exists.
    """
    there = next(above for above in (folder, *folder.absolute().parents) if os.path.exists(above))
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        what = f"{there} is a file" if there.is_file() else error.strerror or error
        raise FileError(f"cannot write to {folder} ({what}): choose another folder") from None


# ------------------------------------------------------------------------------------- reading


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read; what is no file with an end, as a device or a FIFO, is refused."""
    file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileError(f"{path} is not a regular file")
    return os.fdopen(file, "rb")


def read_json(path: Path) -> Any:
    """Read JSON; a file that is missing or broken is named."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise FileError(f"{path} is missing: {path.parent} is not the folder of a run") from None
    except ValueError as error:
        raise FileError(f"{path} is not valid JSON: {error}") from None


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The inverse of `write_tensors`."""
    with _opened(path) as (file, header):
        return {name: file.get_tensor(name) for name in file.keys()}, header  # noqa: SIM118


def read_header(path: Path) -> dict[str, Any]:
    """The JSON header beside the tensors of a file, which are not read."""
    with _opened(path) as (_, header):
        return header


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    """A file of safetensors and its header; whatever is wrong with them is said in words."""
    from safetensors import safe_open

    try:
        with safe_open(path, framework="pt") as file:
            yield file, json.loads((file.metadata() or {})["json"])
    except FileNotFoundError:
        raise FileError(f"{path} is missing") from None
    except Exception as error:  # safetensors and json each have their own errors
        hint = ": delete it to start that run again" if path.name.startswith("checkpoint") else ""
        raise FileError(f"{path} cannot be read ({error}){hint}") from None


# --------------------------------------------------------------------------------------- locks


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
    if not LOCKS:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
