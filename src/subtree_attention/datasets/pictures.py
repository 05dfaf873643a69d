"""Small pictures of nodes: drawn from rows of pixels, or made of the user's picture files.

They are made when tables are read and go into the run folder: whoever shows a run opens no file
that a table names.
"""

from __future__ import annotations

import io
import re
import struct
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..io import FileError, open_regular
from .told import Pictures

SIDE = 64
"""Pixels of the longer side, at most."""
MOST = 2**28
"""Bytes of all pictures together."""
FILE_BYTES = 64 * 2**20
PIXELS = 64_000_000
"""Of a file: one that says more is not opened."""
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "ICO", "AVIF")
"""That are opened: no others, of which some start programs."""
ADDRESS = re.compile(r"(?i)\s*(?:[a-z][a-z0-9+.-]*://|data:)")


def from_pixels(pixels: np.ndarray, there: np.ndarray | None = None) -> tuple[Pictures, list[str]]:
    """Pictures of pixels [n, h, w], of which the least is black and the largest white, and notes.

    They are of those nodes that are `there` [N], by default of all.
    """
    lowest, highest = (np.nanmin(pixels), np.nanmax(pixels)) if pixels.size else (0.0, 1.0)
    scale = 255 / ((highest - lowest) or 1)
    drawn = (_png(_grey(each, lowest, scale)) for each in pixels)
    there = np.ones(len(pixels), bool) if there is None else there
    return _bounded(next(drawn) if has else None for has in there.tolist())


def from_files(paths: Sequence[str | None], folder: Path, what: str) -> tuple[Pictures, list[str]]:
    """Pictures of files, by paths from a folder on, and notes; `what` the paths are, in words.

    A file that is missing, or none that is read, is counted; an address is refused.
    """
    opened = _pillow()
    wrong, first = Counter[str](), dict[str, str]()

    def made() -> Iterator[bytes | None]:
        for path in paths:
            if path is None:
                yield None
                continue
            try:
                yield _thumbnail(opened, folder / path)
            except _Unread as error:
                wrong[str(error)] += 1
                first.setdefault(str(error), path)
                yield None

    for path in paths:
        if path is not None and ADDRESS.match(path):
            raise ValueError(
                f"{what} holds the address '{path[:200]}': pictures are read from files, so save "
                "them first and name the files"
            )
    pictures, notes = _bounded(made())
    if wrong and not pictures.sizes.any():
        why, path = next(iter(first.items()))
        raise ValueError(f"{what}: none of the pictures can be read; {folder / path} {why}")
    for why, count in wrong.items():
        nodes = "1 node" if count == 1 else f"{count:,} nodes"
        others = ", and others likewise" if count > 1 else ""
        notes.append(f"{what}: no picture of {nodes}: {folder / first[why]} {why}{others}")
    return pictures, notes


def _bounded(pictures: Iterator[bytes | None]) -> tuple[Pictures, list[str]]:
    """Pictures as long as there is room for them, and that there was none, if so."""
    kept, room, left = list[bytes | None](), MOST, 0
    for picture in pictures:
        if picture is not None and (room := room - len(picture)) < 0:
            picture, left, room = None, left + 1, 0
        kept.append(picture)
    words = f"{left:,} pictures are not kept: all together may have {MOST / 2**20:.0f} MiB"
    return Pictures.of(kept), [words] if left else []


# -------------------------------------------------------------------------------------- drawing


def _grey(pixels: np.ndarray, lowest: float, scale: float) -> np.ndarray:
    """Pixels [h, w] as greys of 8 bits, each a square as large as the picture has room for."""
    values = np.nan_to_num((pixels.astype(np.float64) - lowest) * scale, nan=0.0)
    step = -(-max(pixels.shape) // SIDE)
    greys = values[::step, ::step].round().astype(np.uint8)
    times = max(1, SIDE // max(greys.shape))
    return greys.repeat(times, axis=0).repeat(times, axis=1)


def _png(greys: np.ndarray) -> bytes:
    """The file of a grey picture [h, w] of 8 bits."""
    height, width = greys.shape
    rows = np.zeros((height, width + 1), np.uint8)  # each begins with 0: it is as it stands
    rows[:, 1:] = greys
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = (b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    sum_ = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + sum_


# ---------------------------------------------------------------------------------------- files


class _Unread(Exception):
    """Why a file gives no picture, in words that follow its name."""


def _pillow() -> Any:
    try:
        from PIL import Image, ImageOps
    except ModuleNotFoundError:
        raise ImportError(
            'pictures in files need Pillow: pip install "subtree-attention[pictures]"'
        ) from None
    return Image, ImageOps


def _thumbnail(pillow: Any, path: Path) -> bytes:
    """A small PNG of a picture file, without anything but its pixels."""
    image_of, operations = pillow
    try:
        with open_regular(path, links=True) as file:
            content = file.read(FILE_BYTES + 1)
    except FileError:
        raise _Unread("is not there" if not path.exists() else "is no file") from None
    if len(content) > FILE_BYTES:
        raise _Unread(f"is larger than {FILE_BYTES / 2**20:.0f} MiB")
    try:
        with warnings.catch_warnings(action="ignore"):  # Pillow warns of files, which are counted
            image = image_of.open(io.BytesIO(content), formats=FORMATS)
            if image.width * image.height > PIXELS:
                raise _Unread(f"has more than {PIXELS:,} pixels")
            image.draft("RGB", (2 * SIDE, 2 * SIDE))  # a JPEG is not unpacked whole
            image = operations.exif_transpose(image)
            image = image.convert("RGBA" if image.has_transparency_data else "RGB")
            image.thumbnail((SIDE, SIDE))
            bare = image_of.new(image.mode, image.size)
            bare.paste(image)
            bare.save(made := io.BytesIO(), "PNG")
    except _Unread:
        raise
    except Exception:  # the readers of pictures are other people's: anything can come from them
        raise _Unread("is no picture that can be read") from None
    return made.getvalue()
