"""Files: written whole or not at all, read with words for what is wrong, locked between processes.

Files are written under a temporary name, synced and renamed: a half-written one never stands
where a good one stood, and what a killed process leaves is written over by the next. Only regular
files are read, never what a link, a pipe or a device leads to. There is no pickle anywhere. A lock
is on an open file, so the system drops it however a process ends.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
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

MOST_BYTES = 64 * 2**20
"""Of a file of JSON or text: what is larger is none of ours, and could fill the memory."""
CHECKED_FORMAT = 3
"""From this format on, tensors have a checksum beside them."""
CHECKSUM = "crc32"
"""Where a file of JSON has its own checksum."""
TEMPORARY = ".tmp"
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class FileError(ValueError):
    """A file or folder that cannot be used as asked: the message says why and what to do."""


class CannotWrite(FileError, OSError):
    """A file that the system does not let be written: the message names its folder."""


# ------------------------------------------------------------------------------------- writing


def write_bytes(path: Path, *parts: bytes | memoryview) -> None:
    """Write a file, part after part, so that either the old or the new content is there, whatever
    happens."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary, file = _temporary(path)
        try:
            _put(file, *parts)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)
        _sync(path.parent)
    except OSError as error:
        raise _refusal(path, error) from None


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write files into, which stands at `path` when all of them are there.

    Until then it is called `.NAME.tmp`; what a killed process left of it is removed.
    """
    check_new_folder(path)
    temporary = path.with_name(f".{path.name}{TEMPORARY}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_name(f".{path.name}.lock")):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            try:
                yield temporary
                for file in sorted(temporary.rglob("*")):
                    _sync(file)
                _sync(temporary)
                os.rename(temporary, path)  # not over a folder that has files
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
            finally:
                path.with_name(f".{path.name}.lock").unlink(missing_ok=True)
        _sync(path.parent)
    except OSError as error:
        raise _refusal(path, error) from None


def append_line(path: Path, line: bytes) -> None:
    """Add a line to a file, under its lock."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path) as file:
            drop_torn_line(file)
            _put(file, line + b"\n")
    except OSError as error:
        raise _refusal(path, error) from None


def drop_torn_line(file: int) -> None:
    """Cut off what a killed writer left of a line, and go to the end of the file."""
    end = os.lseek(file, 0, os.SEEK_END)
    if end and os.pread(file, 1, end - 1) != b"\n":
        os.ftruncate(file, os.pread(file, end, 0).rfind(b"\n") + 1)
        os.lseek(file, 0, os.SEEK_END)


def write_json(path: Path, content: Any) -> None:
    """Write JSON, readable by people too."""
    write_bytes(path, json_bytes(content))


def json_bytes(content: Any) -> bytes:
    """What `write_json` writes."""
    return (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()


def with_checksum(content: dict[str, Any]) -> dict[str, Any]:
    """Content of JSON with its own checksum: for what changes too often to stand in a list."""
    return {**content, CHECKSUM: _checksum(content)}


def parse_checked(written: bytes, path: Path, remedy: str) -> dict[str, Any]:
    """JSON that was written `with_checksum`; an error ends with the remedy, what to do about it."""
    with _said_in_words(path, remedy):
        content = parse_json(written, path)
        given = content.pop(CHECKSUM, None) if isinstance(content, dict) else None
        if given != _checksum(content):
            raise FileError(f"{path} is damaged or was changed: its checksum is another one")
        return content


def _checksum(content: Any) -> str:
    return f"{zlib.crc32(json_bytes(content)):08x}"


def write_tensors(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write tensors with a JSON header and checksums beside them, in safetensors' format."""
    from safetensors.torch import save  # here: it imports torch

    whole = memoryview(save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}))
    start = 8 + int.from_bytes(whole[:8], "little")
    places, words = json.loads(bytes(whole[8:start])), json.dumps(header)
    crc = [_crc(words), zlib.crc32(whole[start:], _crc(words, places))]
    about = {"json": words, "crc32": " ".join(f"{number:08x}" for number in crc)}
    # Not by the library, which writes what stands beside tensors in another order every time.
    head = json.dumps({"__metadata__": about, **places}).encode()
    head += b" " * (-len(head) % 8)
    write_bytes(path, len(head).to_bytes(8, "little"), head, whole[start:])


def check_target(path: Path, suffixes: tuple[str, ...], what: str, force: bool) -> None:
    """Refuse a file that cannot or must not be written, before any work is done."""
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{path}: {what} written as {' or '.join(suffixes)}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file")
    if path.exists() and not force:
        raise ValueError(f"{path} is there already: --force writes over it")
    check_writable(path.parent)


def check_new_folder(path: Path) -> None:
    """Refuse a folder that is there already or cannot be made, before any work is done."""
    if os.path.lexists(path):
        raise FileError(f"{path} is there already: choose another folder, or remove it")
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
        raise _refusal(folder / "file", error) from None


def sweep(folder: Path, names: Collection[str]) -> None:
    """Remove what killed processes left of files of these names, here and in the folders below."""
    for path in folder.rglob(f".*{TEMPORARY}"):
        with suppress(OSError):
            if not is_leftover(path, names):
                continue
            file = os.open(path, os.O_RDWR | _NOFOLLOW)
            if try_lock(file):  # else somebody is writing it now
                path.unlink()
            os.close(file)


def is_leftover(path: Path, names: Collection[str]) -> bool:
    """Whether this is what a killed process left of a file that has one of these names."""
    name = path.name.removeprefix(".").removesuffix(TEMPORARY)
    bare = re.sub(r"\.[0-9a-f]{32}$", "", name)  # as older versions called it
    return path.name == f".{name}{TEMPORARY}" and (name in names or bare in names)


def _temporary(path: Path) -> tuple[Path, int]:
    """The file `.NAME.tmp`, empty, open and locked: another writer is waited for, a dead one's
    is taken over, and what is no file of ours is not written through."""
    unique = "" if LOCKS else f".{uuid4().hex}"
    temporary = path.with_name(f".{path.name}{unique}{TEMPORARY}")
    while True:
        with suppress(OSError):
            if not stat.S_ISREG(os.lstat(temporary).st_mode):
                temporary.unlink()
        file = lock(temporary)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), os.lstat(temporary)):
                os.ftruncate(file, 0)
                return temporary, file
        os.close(file)  # it was renamed or removed while we waited


def _put(file: int, *parts: bytes | memoryview) -> None:
    """Write all of it, and wait until it is on the disk."""
    for part in parts:
        left = memoryview(part)
        while left:
            left = left[os.write(file, left) :]
    os.fsync(file)


def _sync(path: Path) -> None:
    """Make a file, or the names in a folder, last beyond a loss of power, where that can be."""
    with suppress(OSError):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def _refusal(path: Path, error: OSError) -> CannotWrite:
    """What the system says about a file that is to be written, in words."""
    folder, why = path.parent.absolute(), error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "free some space and give the same command again"
    else:
        remedy = "choose another folder"
        file = next((p for p in (folder, *folder.parents) if p.exists() and not p.is_dir()), None)
        why = why if file is None else f"{file} is a file"
    refusal = CannotWrite(f"cannot write to {folder} ({why}): {remedy}")
    refusal.errno = error.errno
    return refusal


# ------------------------------------------------------------------------------------- reading


def open_regular(path: Path, links: bool = False) -> BinaryIO:
    """Open a file to read if it is one: nothing that could wait or never end, as a pipe or a
    device, and no link unless `links` says so."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        file = os.open(path, flags if links else flags | _NOFOLLOW)
    except FileNotFoundError:
        raise FileError(f"{path} is missing") from None
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise FileError(f"{path} is not read: {why}") from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileError(f"{path} is not read: it is not a regular file")
    return os.fdopen(file, "rb")


def read_bytes(path: Path) -> bytes:
    """A regular file of at most `MOST_BYTES`."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_BYTES:
            raise FileError(f"{path} has {size:,} bytes: more than {MOST_BYTES:,} are not read")
        return file.read(MOST_BYTES)


def read_json(path: Path) -> Any:
    """Read JSON; a file that is missing or broken is named."""
    return parse_json(read_bytes(path), path)


def parse_json(content: bytes | str, path: Path | str) -> Any:
    """The JSON that was read from a file, or what else the words are of."""
    try:
        return json.loads(content)
    except ValueError as error:
        raise FileError(f"{path} is not valid JSON: {error}") from None
    except RecursionError:
        raise FileError(f"{path} is not valid JSON of ours: it is nested too deeply") from None


def read_tensors(path: Path, remedy: str = "") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The inverse of `write_tensors`; an error ends with the remedy, what to do about it."""
    from safetensors import safe_open

    with _said_in_words(path, remedy):
        header = _header(path, whole=True)
        # Copies: where a file puts them, tensors may begin anywhere in memory, and sums over them
        # are rounded otherwise than over those of torch.
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name).clone() for name in file.keys()}, header  # noqa: SIM118


def read_header(path: Path, remedy: str = "", whole: bool = False) -> dict[str, Any]:
    """The JSON header beside the tensors of a file; `whole` also looks at their checksum."""
    with _said_in_words(path, remedy):
        return _header(path, whole)


@contextmanager
def _said_in_words(path: Path, remedy: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # safetensors and json each have their own errors
        why = " ".join(str(error).split())[:200]  # they quote what they do not like, however long
        words = str(error) if isinstance(error, FileError) else f"{path} cannot be read ({why})"
        raise FileError(f"{words}: {remedy}" if remedy else words) from None


def _header(path: Path, whole: bool) -> dict[str, Any]:
    """The header of a file of safetensors if its checksums are right: its own, and that of the
    tensors if it is asked for."""
    with open_regular(path) as file:
        size = int.from_bytes(file.read(8), "little")
        places = json.loads(file.read(size)) if size <= MOST_BYTES else None
        about = places.pop("__metadata__", {}) if isinstance(places, dict) else {}
        if "json" not in about:
            raise ValueError("it has no header of ours")
        words, given = about["json"], about.get("crc32")
        header = json.loads(words)
        if not isinstance(header, dict):
            raise ValueError("its header is no table")
        if given is None:
            right = is_unchecked(header)
        elif right := given[:8] == f"{_crc(words):08x}":
            crc = _crc(words, places)
            while whole and (part := file.read(2**20)):
                crc = zlib.crc32(part, crc)
            right = not whole or given[9:] == f"{crc:08x}"
        if not right:
            raise ValueError("its checksum is another one: the file is damaged or was changed")
    return header


def is_unchecked(content: Any) -> bool:
    """Whether content of ours was written before there were checksums."""
    written = content.get("format", 1) if isinstance(content, dict) else 1
    return isinstance(written, int) and written < CHECKED_FORMAT


def _crc(words: str, places: dict[str, Any] | None = None) -> int:
    """The CRC-32 of a header, and of where the tensors beside it are."""
    crc = zlib.crc32(words.encode())
    return crc if places is None else zlib.crc32(json.dumps(places, sort_keys=True).encode(), crc)


# --------------------------------------------------------------------------------------- locks


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold the lock on a file, which is made if it is not there and open meanwhile; others wait."""
    held = lock(path)
    try:
        yield held
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
    file = os.open(path, os.O_RDWR | os.O_CREAT | _NOFOLLOW, 0o666)
    if try_lock(file):
        return file
    os.close(file)
    return None


def has_locks(folder: Path) -> bool:
    """Whether files of a folder can be locked, as far as this machine can tell."""
    if not LOCKS:
        return False
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


def try_lock(file: int) -> bool:
    """Take the lock on an open file, if nobody holds it."""
    if not LOCKS:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without such locks
        return True
    return True
