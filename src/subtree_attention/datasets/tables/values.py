"""The values of a column as numbers, as tags, or as ones in a sparse matrix.

What does not fit is named with its place in the table.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
import scipy.sparse

from .lazy import pl
from .read import Table, TableError, positions, text_of

MISSING = ("na", "n/a", "nan", "null", "none")
"""Besides the empty string, what stands for a missing number or label, in any case."""
DATES = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f")
"""How dates are written in CSV files that they are read from as numbers."""


class Encoded(NamedTuple):
    """The features of a column: [N, width], and how many values were missing or not known."""

    block: np.ndarray | scipy.sparse.csr_matrix
    missing: int = 0
    unseen: int = 0


def as_numbers(values: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Values as float64, null where missing; and a mask of those that are no finite numbers."""
    if values.dtype.is_nested() or values.dtype == pl.Binary:
        return values.clear(len(values)).cast(pl.Float64), values.is_not_null()
    if values.dtype.is_temporal():
        values = _microseconds(values)
    elif values.dtype == pl.String:
        values = _dates(without_missing(values))
    elif values.dtype.is_float():
        values = values.fill_nan(None)
    numbers = values.cast(pl.Float64, strict=False)
    infinite = numbers.is_infinite().fill_null(False)
    return numbers, (numbers.is_null() & values.is_not_null()) | infinite


def without_missing(texts: pl.Series) -> pl.Series:
    """Texts, null where a word says that nothing is there."""
    return texts.set(texts.str.to_lowercase().is_in(MISSING), None)


def _dates(texts: pl.Series) -> pl.Series:
    """The microseconds of dates, if all texts are dates of one form; else the texts."""
    first = texts.drop_nulls().head(1)
    for form in DATES:
        if len(first) and first.str.to_datetime(form, strict=False).null_count() == 0:
            dates = texts.str.to_datetime(form, strict=False, time_unit="us")
            if dates.null_count() == texts.null_count():
                return _microseconds(dates)
    return texts


def _microseconds(values: pl.Series) -> pl.Series:
    """Dates, times and durations as whole numbers of one unit, whatever theirs is."""
    if values.dtype == pl.Time:
        return values.to_physical() // 1000  # a time of day has nanoseconds
    unit = pl.Duration("us") if values.dtype == pl.Duration else pl.Datetime("us")
    return values.cast(unit).to_physical()


def numbers_of(table: Table, name: str, option: str = "--features") -> pl.Series:
    """A column as float64, null where it is missing; what is no number is named."""
    values = table.column(name, option)
    numbers, wrong = as_numbers(values)
    if (row := table.first(wrong)) is not None:
        raise TableError(
            f"{table.place(row)}: column '{name}' is a number, but holds {values[row]!r} there; "
            "correct it, or leave it empty"
        )
    return numbers


def tags_of(
    table: Table, name: str, option: str = "--features"
) -> tuple[np.ndarray, pl.Series, np.ndarray]:
    """Row [T] and text [T] of each tag, a tag once per row; and which rows have no list, [N]."""
    values = table.column(name, option)
    if values.dtype == pl.String:
        values = _decode(table, name, without_missing(text_of(values)))
    if not isinstance(values.dtype, pl.List | pl.Array):
        raise TableError(f"{table.name}: column '{name}' holds no lists")
    try:
        lists = values.cast(pl.List(pl.String)).rename("tag").to_frame().with_row_index("row")
    except pl.exceptions.PolarsError:
        raise TableError(_nested(table, name)) from None
    flat = lists.explode("tag").with_columns(pl.col("tag").str.strip_chars())
    flat = flat.filter(pl.col("tag") != "").unique(maintain_order=True)  # null is not kept either
    return flat["row"].to_numpy(), flat["tag"], values.is_null().to_numpy()


def _decode(table: Table, name: str, values: pl.Series) -> pl.Series:
    """JSON lists; the first that is none is named."""
    try:
        return values.str.json_decode(pl.List(pl.String))
    except pl.exceptions.PolarsError:
        for row, text in enumerate(values):
            try:
                good = text is None or isinstance(json.loads(text), list)
            except ValueError:
                good = False
            if not good:
                raise TableError(
                    f"{table.place(row)}: column '{name}' holds lists of tags, but {text!r} is no "
                    'JSON list such as ["red", "blue"]'
                ) from None
        raise TableError(_nested(table, name)) from None


def _nested(table: Table, name: str) -> str:
    return f"{table.name}: column '{name}' holds lists of lists: tags are words or numbers"


def one_hot(
    rows: np.ndarray, values: pl.Series, known: list[str], num_rows: int, missing: int
) -> Encoded:
    """A one at (row, place of the value among the known ones); what is unknown is counted."""
    column = positions(values, pl.Series(known, dtype=pl.String))
    there = column >= 0
    unseen = int((~there).sum()) - values.null_count()
    entries = (np.ones(int(there.sum()), np.float32), (rows[there], column[there]))
    block = scipy.sparse.csr_matrix(entries, shape=(num_rows, len(known)))
    return Encoded(block, missing, unseen)
