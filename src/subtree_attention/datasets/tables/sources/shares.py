"""The rows of a table that one of several ranks reads: whole parts, or rows of few Parquet files.

Rank 0 has the first rows, rank 1 the next ones, and so on. Of all other parts a rank is told the
columns.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from .. import ranks
from ..lazy import pl
from ..table import Table, TableError, counted, one_line
from . import parts
from .packed import suffix_of

Readers = dict[str, Callable[[Path], Table]]
AT_A_TIME = 2**18
"""Rows of a Parquet file that are read together, where not all are to be in memory."""


@dataclass(frozen=True)
class _Share:
    """A file, or its rows from `start` to `end`."""

    path: Path
    start: int = 0
    end: int | None = None


def read(source: str, readers: Readers) -> Table:
    """The rows of this rank of a folder, a pattern or a file."""
    name, root, paths, kind = _found(source, readers)
    own = _dealt(_seen_by_all(source, paths), kind)
    if kind == ".parquet":
        columns = [
            (str(share.path), name, str(type))
            for share in own
            for name, type in parts.schema(share.path).items()
        ]
        parts.same_types(column for some in ranks.told(columns) for column in some)
    tables = [parts.with_folders(_rows(share, readers[kind]), share.path, root) for share in own]
    kinds = parts.agreed(source, _bare(tables))
    return replace(parts.below(name, tables, kinds), files=tuple(str(s.path) for s in own))


def read_in_turn(source: str, readers: Readers) -> Table:
    """A folder, a pattern or a file, of which a part at a time is in memory: a file, or some rows
    of a Parquet file."""
    name, root, paths, kind = _found(source, readers)
    if kind == ".parquet":
        schemas = ((str(path), parts.schema(path)) for path in paths)
        parts.same_types((path, name, type) for path, of in schemas for name, type in of.items())
    shares = [share for path in paths for share in _cut(path, kind)]
    some = (parts.with_folders(_rows(share, readers[kind]), share.path, root) for share in shares)
    return parts.spooled(source, name, some)


def _found(source: str, readers: Readers) -> tuple[str, Path, list[Path], str]:
    """What to call a folder, a pattern or a file; the folder of its parts, these and their kind."""
    if parts.is_pattern(source) or Path(source).is_dir():
        root, paths, kind = parts.listed(source, readers)
        return f"{source} ({counted(len(paths), 'file')})", root, paths, kind
    path = Path(source)
    return source, path.parent, [path], suffix_of(path)


def _cut(path: Path, kind: str) -> list[_Share]:
    """What is read of a file at a time."""
    if kind != ".parquet":
        return [_Share(path)]
    rows = _height(path)
    return [_Share(path, a, min(a + AT_A_TIME, rows)) for a in range(0, max(rows, 1), AT_A_TIME)]


def _seen_by_all(source: str, paths: list[Path]) -> list[Path]:
    """The parts, if all ranks see the same ones."""
    seen = ranks.told([len(paths), zlib.crc32("\n".join(map(str, paths)).encode())])
    if any(each != seen[0] for each in seen):
        counts = ", ".join(str(count) for count, _ in seen)
        raise TableError(
            f"the ranks do not see the same parts of {source} ({counts} files): it must be a "
            "folder that all of them share, and nothing may be written to it meanwhile"
        )
    return paths


def _dealt(paths: list[Path], kind: str) -> list[_Share]:
    """What this rank reads: parts next to each other of about as many bytes on each rank; of fewer
    Parquet files than ranks, as many rows on each."""
    rank, size = ranks.rank(), ranks.size()
    if kind == ".parquet" and len(paths) < size:
        ends = list(accumulate(_height(path) for path in paths))
        mine = ends[-1] * rank // size, ends[-1] * (rank + 1) // size
        shares = [
            _Share(path, max(mine[0] - start, 0), min(mine[1], end) - start)
            for path, start, end in zip(paths, [0, *ends], ends, strict=False)
        ]
        return [share for share in shares if share.end is not None and share.start < share.end]
    sizes = [path.stat().st_size for path in paths]
    ends = list(accumulate(sizes))
    middles = [end - bytes / 2 for bytes, end in zip(sizes, ends, strict=True)]
    return [
        _Share(path)
        for path, middle in zip(paths, middles, strict=True)
        if min(int(middle * size / max(ends[-1], 1)), size - 1) == rank
    ]


def _height(path: Path) -> int:
    """Rows of a Parquet file, of which its end says how many there are."""
    try:
        return int(_scan(path).select(pl.len()).collect().item())
    except pl.exceptions.PolarsError as error:
        raise TableError(f"{path} is not a Parquet file: {one_line(error)}") from None


def _scan(path: Path) -> pl.LazyFrame:
    return pl.scan_parquet(path, glob=False, hive_partitioning=False)


def _rows(share: _Share, reader: Callable[[Path], Table]) -> Table:
    """The rows of a share, with what to call them."""
    if share.end is None:
        return reader(share.path)
    frame = _scan(share.path).slice(share.start, share.end - share.start).collect()

    def where(row: int) -> str:
        return f"{share.path}, row {share.start + row + 1}"

    return Table(str(share.path), frame, where=where)


def _bare(tables: list[Table]) -> list[Table]:
    """The parts of all ranks, without rows."""
    names = ranks.told([(table.name, table.where is not None) for table in tables])
    frames = ranks.frames([table.frame.clear() for table in tables])
    return [
        Table(name, frame, where=(lambda _: "") if placed else None)
        for some, found in zip(names, frames, strict=True)
        for (name, placed), frame in zip(some, found, strict=True)
    ]
