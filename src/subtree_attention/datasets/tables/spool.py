"""A table that is larger than memory: its rows in files beside each other, its columns read when
they are asked for.

What is done with a table is done with a column at a time, or with some rows at a time
(`Table.blocks`); a frame of all rows and columns is never made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import accumulate
from pathlib import Path
from typing import Any
from uuid import uuid4

from ... import _check
from .errors import TableError
from .lazy import pl

ROWS = 2**17
"""Of a file."""
MOST = 2 * 2**30
"""Bytes of a column that are read at once."""

_folder: ContextVar[Path | None] = ContextVar("spool", default=None)


@contextmanager
def into(folder: Path) -> Iterator[None]:
    """Within it, tables that are read from files are kept in such a folder instead of memory."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


def folder() -> Path | None:
    """Where tables are kept; None: in memory."""
    return _folder.get()


def is_spool(frame: object) -> bool:
    """Whether the rows of a table are in files."""
    return isinstance(frame, Spool)


class Spool:
    """The rows of a table in files: what is used of a frame of polars, read from there.

    Attributes:
        schema: the columns and their types.
        height: how many rows there are.
    """

    def __init__(self) -> None:
        self._paths, self._heights = list[Path](), list[int]()
        self._bytes: dict[str, int] = {}
        self._last: tuple[str, pl.Series] | None = None
        self._name = uuid4().hex
        self.schema: dict[str, pl.DataType] = {}

    def add(self, frame: pl.DataFrame) -> None:
        """More rows."""
        inside = folder()
        assert inside is not None
        for start in range(0, frame.height, ROWS):
            some = frame.slice(start, ROWS)
            path = inside / f"{self._name}-{len(self._paths)}.arrow"
            some.write_ipc(path, compression="uncompressed")
            self._paths.append(path)
            self._heights.append(some.height)
            for column in some:
                size = self._bytes.get(column.name, 0) + int(column.estimated_size())
                self._bytes[column.name] = size

    @property
    def columns(self) -> list[str]:
        return list(self.schema)

    @property
    def height(self) -> int:
        return sum(self._heights)

    def __getitem__(self, name: str) -> pl.Series:
        """All of a column; the last one that was read is at hand."""
        if self._last is None or self._last[0] != name:
            self._last = None
            if (size := self.size_of(name)) > MOST:
                raise TableError(
                    f"column '{name}' holds {size / 2**30:.1f} GiB, which are not read at once: "
                    "leave it out (--leave-out), or write numbers as a Parquet column of lists"
                )
            none = pl.Series(name, [], dtype=self.schema[name])
            self._last = name, pl.concat([none, *self.parts(name)])
        return self._last[1]

    def size_of(self, name: str) -> int:
        """Bytes of a column."""
        return self._bytes.get(name, 0)

    def parts(self, name: str) -> Iterator[pl.Series]:
        """A column, some rows at a time."""
        for path in self._paths:
            yield self._read(path, [name])[name]

    def slice(self, start: int, rows: int) -> pl.DataFrame:
        """Some rows, with all columns."""
        found, ends = [pl.DataFrame(schema=self.schema)], accumulate(self._heights)
        for path, height, end in zip(self._paths, self._heights, ends, strict=True):
            first, last = max(start - (end - height), 0), min(start + rows - (end - height), height)
            if first < last:
                found.append(self._read(path, self.columns).slice(first, last - first))
        return pl.concat(found)

    def filter(self, mask: pl.Series) -> pl.DataFrame:
        """The rows that are true in a mask."""
        found, start = [pl.DataFrame(schema=self.schema)], 0
        for path, height in zip(self._paths, self._heights, strict=True):
            some = mask.slice(start, height)
            start += height
            if some.any():
                found.append(self._read(path, self.columns).filter(some))
        return pl.concat(found)

    def _read(self, path: Path, columns: list[str]) -> pl.DataFrame:
        kinds: Any = {name: self.schema[name] for name in columns}
        return pl.read_ipc(path, columns=columns).select(columns).cast(kinds)

    def __repr__(self) -> str:
        return f"Spool({self.height:,} rows, {_check.said(self.columns)})"
