"""A table from whatever holds it: a file, a folder, a database, a frame, or columns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from . import sources
from .lazy import pl
from .memory import frame_of, series
from .sources.query import Query
from .table import Table, TableError


def read_table(source: Any, what: str) -> Table:
    """A table from a path, a folder, a `Query`, a polars or a pandas frame, or columns.

    `what` it is of, "nodes", "edges" or "graphs", names it where it has no path.
    """
    name = f"the table of {what}"
    if isinstance(source, pl.DataFrame):
        objects = [column for column in source if column.dtype == pl.Object]
        table = Table(name, source.with_columns(series(name, c.name, c.to_list()) for c in objects))
    elif isinstance(source, str | Path | Query):
        table = sources.read(source, what)
    elif isinstance(source, dict) or hasattr(source, "iloc"):
        columns = [series(name, str(key), values) for key, values in source.items()]
        table = Table(name, frame_of(name, columns))
    else:
        kind = type(source).__name__
        raise TypeError(f"{name} must be a path, a polars or a pandas frame, got {kind}")
    if not table.count:
        raise TableError(f"{table.name} has no rows")
    return replace(table, unit=what.removesuffix("s"))
