"""A table in parts: a folder of files, or all files that a pattern fits, as Spark writes them.

Files and folders whose names begin with _ or . are no parts (_SUCCESS, .part-0.crc). Folders such
as `year=2026` on the way to a part are a column of it.
"""

from __future__ import annotations

import glob
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ..lazy import pl
from ..spool import Spool
from ..table import Table, TableError, counted
from .packed import suffix_of

NULL = "__HIVE_DEFAULT_PARTITION__"
"""What a folder is called for rows without a value."""
FOREIGN = {
    "_delta_log": "a Delta table, of which some files may be deleted rows: save it as plain "
    "Parquet, or pass a frame from Python (polars: read_delta)",
    ".hoodie": "a Hudi table, of which some files may be old: save it as plain Parquet",
    "_temporary": "not written to its end: there is a folder _temporary in it",
}


def is_pattern(path: str) -> bool:
    """Whether it stands for several files, and not for one of that very name."""
    return glob.has_magic(path) and not os.path.lexists(path)


def read(source: str, readers: dict[str, Callable[[Path], Table]]) -> Table:
    """All parts below each other, in the order of their names; `readers` by suffix."""
    root, paths, kind = listed(source, readers)
    if kind == ".parquet":
        same_types((str(path), name, type) for path in paths for name, type in schema(path).items())
    tables = [with_folders(readers[kind](path), path, root) for path in paths]
    kinds = agreed(source, tables)
    return below(f"{source} ({counted(len(tables), 'file')})", tables, kinds)


def listed(
    source: str, readers: dict[str, Callable[[Path], Table]]
) -> tuple[Path, list[Path], str]:
    """The folder that all parts lie in, the parts in the order of their names, and their kind."""
    root, paths = _found(source)
    if not paths:
        raise TableError(
            f"no file fits {source}" if is_pattern(source) else f"the folder {source} holds no file"
        )
    unknown = [path for path in paths if suffix_of(path) not in readers]
    if unknown:
        raise TableError(f"{source}: {unknown[0]} is no part of a table ({', '.join(readers)})")
    kinds = {suffix_of(path): path for path in reversed(paths)}
    if len(kinds) > 1:
        words = " and ".join(str(path) for path in sorted(kinds.values()))
        raise TableError(f"the parts of {source} must be of one kind, but there are {words}")
    (kind,) = kinds
    paths = [path for path in paths if path.stat().st_size] or paths[:1]  # Spark writes empty ones
    return root, paths, kind


def _found(source: str) -> tuple[Path, list[Path]]:
    """The folder that all parts lie in, and the parts in the order of their names."""
    if not is_pattern(source):
        return Path(source), sorted(_files(Path(source)))
    fixed = Path(*_until(Path(source).parts, glob.has_magic))
    found: set[Path] = set()
    for path in map(Path, glob.glob(source, recursive=True)):
        if path.is_dir():
            found.update(_files(path))
        elif not path.name.startswith("_"):
            found.add(path)
    return fixed, sorted(found)


def _until(parts: Iterable[str], end: Callable[[str], bool]) -> Iterator[str]:
    for part in parts:
        if end(part):
            return
        yield part


def _files(folder: Path) -> Iterator[Path]:
    for name, what in FOREIGN.items():
        if (folder / name).exists():
            raise TableError(f"{folder} is {what}")
    if list(folder.glob("metadata/*.metadata.json")):
        raise TableError(
            f"{folder} is an Iceberg table, of which some files may be old: save it as Parquet"
        )
    for path in folder.iterdir():
        if path.name.startswith(("_", ".")):
            continue
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


def schema(path: Path) -> dict[str, pl.DataType]:
    """The types of the columns of a Parquet file, before it is read."""
    try:
        return dict(pl.read_parquet_schema(path))
    except pl.exceptions.PolarsError:
        return {}  # reading it says what is wrong


def same_types(columns: Iterable[tuple[str, str, object]]) -> None:
    """Refuse parts of which a column has different types, given as part, column and type; one
    without any value has none."""
    seen: dict[str, tuple[str, str]] = {}
    for path, name, given in columns:
        if (kind := str(given)) == str(pl.Null()):
            continue
        first, its = seen.setdefault(name, (path, kind))
        if its != kind:
            raise TableError(
                f"the parts differ: column '{name}' is {its} in {first} and {kind} in {path}; "
                "write them alike"
            )


def with_folders(table: Table, path: Path, root: Path) -> Table:
    """A part with a column for each folder key=value above it."""
    added = {}
    for folder in path.relative_to(root).parts[:-1]:
        key, sign, value = folder.partition("=")
        if sign and key:
            added[unquote(key)] = None if value == NULL else unquote(value)
    for key in added:
        if key in table.frame.columns:
            raise TableError(
                f"{path}: column '{key}' is in the file, and a folder is called so too: rename one"
            )
    columns = (pl.lit(value, dtype=pl.String).alias(key) for key, value in added.items())
    return replace(table, frame=table.frame.with_columns(*columns)) if added else table


def agreed(source: str, tables: Sequence[Table]) -> dict[str, pl.DataType]:
    """The columns of all parts and their types; parts with other columns are refused."""
    first = tables[0]
    names = set(first.frame.columns)
    for table in tables[1:]:
        for one, other, column in (
            *((first, table, name) for name in sorted(names - set(table.frame.columns))),
            *((table, first, name) for name in table.frame.columns if name not in names),
        ):
            hint = ": does every part have a line with the names?" if table.where else ""
            raise TableError(
                f"the parts of {source} differ: {one.name} has a column '{column}', {other.name} "
                f"has none{hint}"
            )
    order = first.frame.columns
    return {name: _kind(table.frame[name].dtype for table in tables) for name in order}


def below(name: str, tables: list[Table], kinds: dict[str, pl.DataType]) -> Table:
    """Tables with columns of some types as one; nothing is copied."""
    frames = [table.frame.select(*kinds).cast(kinds) for table in tables]  # type: ignore[arg-type]
    frame = pl.concat([pl.DataFrame(schema=kinds), *frames], rechunk=False)
    bare = [replace(table, frame=table.frame.clear()) for table in tables]
    return Table(name, frame, where=_places(bare, [len(table) for table in tables]))


def spooled(source: str, name: str, tables: Iterable[Table]) -> Table:
    """Tables as one that is not in memory, as each of them is only for a moment."""
    spool, bare, heights = Spool(), list[Table](), list[int]()
    for table in tables:
        spool.add(table.frame)
        bare.append(replace(table, frame=table.frame.clear()))
        heights.append(len(table))
    spool.schema = agreed(source, bare)
    frame: Any = spool  # it has of a frame what is asked of one
    return Table(name, frame, where=_places(bare, heights))


def _places(bare: list[Table], heights: list[int]) -> Callable[[int], str]:
    """Says of a row of tables below each other where it is."""
    ends = list(accumulate(heights))

    def where(row: int) -> str:
        part = bisect_right(ends, row)
        return bare[part].place(row - (ends[part - 1] if part else 0))

    return where


def _kind(kinds: Iterable[pl.DataType]) -> pl.DataType:
    """The type of a column in all parts: they are one, but for parts without any value."""
    different = [kind for kind in dict.fromkeys(kinds) if kind != pl.Null] or [pl.Null()]
    return different[0] if len(different) == 1 else pl.String()
