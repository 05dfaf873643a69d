"""Columns from values of Python, of pandas or of torch, as a frame of polars."""

from __future__ import annotations

from typing import Any

from ..._check import plain, said
from .lazy import pl
from .lists import from_cells
from .table import TableError, one_line


def frame_of(table: str, columns: list[pl.Series]) -> pl.DataFrame:
    """Columns side by side, if they are equally long and have names of their own."""
    lengths = {column.name: len(column) for column in columns}
    if len(lengths) < len(columns):
        raise TableError(f"{table} has two columns of one name: rename one")
    if len(set(lengths.values())) > 1:
        words = ", ".join(f"'{name}' {length:,}" for name, length in lengths.items())
        raise TableError(f"{table}: columns must be equally long, but the values are: {words}")
    return pl.DataFrame(columns)


def series(table: str, name: str, values: Any) -> pl.Series:
    """A column from Python values or of pandas, without pyarrow; of mixed types all become text."""
    if hasattr(values, "isna"):
        pairs = zip(values.tolist(), values.isna().tolist(), strict=True)
        values = [None if missing else value for value, missing in pairs]
    if hasattr(values, "layout"):  # a tensor
        values = plain(f"{table}: column '{name}'", values).tolist()
    if isinstance(values, str | bytes | dict) or not hasattr(values, "__len__"):
        raise TypeError(f"{table}: column '{name}' must be a list of values, got {said(values)}")
    try:
        column = pl.Series(name, values)
        if column.dtype != pl.Object:
            return column
    except UnicodeEncodeError:
        raise TableError(f"{table}: column '{name}' holds text that is not valid Unicode") from None
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        pass  # no type is wide enough for all of them
    if (cells := from_cells(values)) is not None:
        return pl.Series(name, cells, dtype=pl.List(pl.Float64))
    try:
        return pl.Series(name, [None if value is None else str(value) for value in values])
    except (TypeError, ValueError) as error:
        raise TableError(f"{table}: column '{name}' cannot be read: {one_line(error)}") from None
