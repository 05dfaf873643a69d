"""Files that may be packed: gzip (.gz) and Zstandard (.zst)."""

from __future__ import annotations

import gzip
import zlib
from importlib import import_module
from pathlib import Path

from ..table import TableError, one_line

PACKED = {".gz": "gzip", ".zst": "Zstandard"}


def is_packed(path: Path) -> bool:
    return path.suffix.lower() in PACKED


def suffix_of(path: Path) -> str:
    """The suffix that says what a file is: '.csv' of nodes.csv and of nodes.csv.gz."""
    return Path(path.stem if is_packed(path) else path).suffix.lower()


def content(path: Path) -> bytes:
    """All bytes of a file, unpacked; one that is broken or cut off is named."""
    kind = PACKED.get(path.suffix.lower())
    if kind is None:
        return path.read_bytes()
    try:
        return gzip.decompress(path.read_bytes()) if kind == "gzip" else _zstandard(path)
    except (EOFError, ValueError, zlib.error, gzip.BadGzipFile) as error:
        raise TableError(f"{path} is no whole {kind} file: {one_line(error)}") from None


def _zstandard(path: Path) -> bytes:
    """All frames of a file: parallel packers write several."""
    try:
        library = import_module("zstandard")
    except ModuleNotFoundError:
        raise ImportError(f"unpacking {path} needs zstandard: pip install zstandard") from None
    rest, parts = path.read_bytes(), []
    while rest:
        frame = library.ZstdDecompressor().decompressobj()
        try:
            parts.append(frame.decompress(rest))
        except library.ZstdError as error:
            raise ValueError(error) from None
        if not frame.eof:
            raise ValueError("it is cut off")
        rest = frame.unused_data
    return b"".join(parts)
