"""The values of a column as numbers, as vectors, as tags, or as ones in a sparse matrix.

What does not fit is named with its place in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse

from ..._check import said
from . import lists, ranks
from .lazy import pl
from .readings import DATES, FORMS, PLAIN, Reading, find, parse, usual_dates
from .table import Table, TableError, positions, text_of

MISSING = ("na", "n/a", "nan", "null", "none")
"""Besides the empty string, what stands for a missing number or label, in any case."""
PLACEHOLDERS = ("?", "-", "--", "unknown")
"""What stands for a missing number too; a category or a class may be called so."""


class Encoded(NamedTuple):
    """The features of a column: [N, width], and how many values were missing or not known."""

    block: np.ndarray | scipy.sparse.csr_matrix
    missing: int = 0
    unseen: int = 0


def as_numbers(values: pl.Series, reading: Reading | None = None) -> tuple[pl.Series, pl.Series]:
    """Values as float64, null where missing; and a mask of those that are no finite numbers.

    Texts are numbers by their reading; without one, plain numbers or dates as 2026-11-15.
    """
    if values.dtype.is_nested() or values.dtype == pl.Binary:
        return values.clear(len(values)).cast(pl.Float64), values.is_not_null()
    if values.dtype.is_temporal():
        numbers = _microseconds(values).cast(pl.Float64)
    elif is_text(values):
        values = without_placeholders(cells_of(values))
        dates = usual_dates(values) if reading is None else None
        numbers = parse(values, reading or PLAIN) if dates is None else dates
        numbers = numbers.cast(pl.Float64)
    else:
        values = values.fill_nan(None) if values.dtype.is_float() else values
        numbers = values.cast(pl.Float64, strict=False)
    infinite = numbers.is_infinite().fill_null(False)
    return numbers, (numbers.is_null() & values.is_not_null()) | infinite


def find_reading(values: pl.Series, forms: Sequence[str] = tuple(FORMS)) -> Reading | None:
    """How the texts of a column are read as numbers; None if it holds no texts."""
    if not is_text(values):
        return None
    return find(without_placeholders(cells_of(values)).drop_nulls(), forms)[0]


def is_text(values: pl.Series) -> bool:
    """Whether values are texts, whatever these say."""
    return values.dtype in (pl.String, pl.Categorical, pl.Enum)


def cells_of(values: pl.Series) -> pl.Series:
    """Values as stripped texts, null where nothing is there, or a word says so."""
    return without_missing(text_of(values))


def without_missing(texts: pl.Series) -> pl.Series:
    """Texts, null where a word says that nothing is there."""
    return texts.set(texts.str.to_lowercase().is_in(MISSING), None)


def without_placeholders(texts: pl.Series) -> pl.Series:
    """Texts of a column of numbers, null where there is a placeholder."""
    return texts.set(texts.str.to_lowercase().is_in(PLACEHOLDERS), None)


def placeholders(values: pl.Series) -> list[str]:
    """Those that a column of texts holds."""
    texts = cells_of(values).drop_nulls() if is_text(values) else values.clear().cast(pl.String)
    return ranks.unique_of(texts.filter(texts.str.to_lowercase().is_in(PLACEHOLDERS)))


def _microseconds(values: pl.Series) -> pl.Series:
    """Dates, times and durations as whole numbers of one unit, whatever theirs is."""
    if values.dtype == pl.Time:
        return values.to_physical() // 1000  # a time of day has nanoseconds
    unit = pl.Duration("us") if values.dtype == pl.Duration else pl.Datetime("us")
    return values.cast(unit).to_physical()


def numbers_of(
    table: Table, name: str, option: str = "--features", reading: Reading | None = None
) -> pl.Series:
    """A column as float64, null where it is missing; what is no number is named."""
    values = table.column(name, option)
    numbers, wrong = as_numbers(values, reading)
    if reading is not None and _another_type(values, reading):
        wrong = values.is_not_null()
    if (row := table.first(wrong)) is not None:
        what = "number" if reading is None else reading.what
        raise TableError(
            f"{table.place(row)}: column '{name}' is a {what}, but holds {said(values[row])} "
            "there; correct it, or leave it empty"
        )
    return numbers


def _another_type(values: pl.Series, reading: Reading) -> bool:
    """Whether values are numbers where dates were read, or the other way."""
    dates = reading.form in DATES or reading.form == "time"
    return values.dtype.is_numeric() if dates else values.dtype.is_temporal()


def width_of(table: Table, name: str, between: str = "") -> int:
    """How many numbers most vectors of a column have; 0 if there is none."""
    lengths = [_lists_of(some, name, between).list.len() for some in table.blocks()]
    return _usual(pl.concat(some.filter(some.fill_null(0) > 0) for some in lengths))


def vectors_of(
    table: Table, name: str, between: str = "", width: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of a column that are there [n, d], NaN where a number is missing; and which rows
    have none [N]. All are as long as `width` says, or else as most are."""
    found = _lists_of(table, name, between)
    lengths = found.list.len().fill_null(0)
    missing = lengths == 0
    width = width or _usual(lengths.filter(~missing))
    if (row := table.first(~missing & (lengths != width))) is not None:
        raise TableError(
            f"{table.place(row)}: column '{name}' holds vectors of {width} numbers, but one of "
            f"{lengths[row]} there: all must be equally long"
        )
    there = found.filter(~missing).explode()
    flat = there.cast(pl.Float32 if there.dtype == pl.Float32 else pl.Float64).to_numpy()
    vectors = flat.reshape(len(flat) // max(width, 1), width)
    if ranks.any_of(np.isinf(flat)):
        infinite = np.zeros(len(missing), bool)
        infinite[~missing.to_numpy()] = np.isinf(vectors).any(1)
        if (row := table.first(pl.Series(infinite))) is not None:
            raise TableError(f"{table.place(row)}: column '{name}' holds a vector with infinity")
    return vectors, missing.to_numpy()


def _lists_of(table: Table, name: str, between: str) -> pl.Series:
    """Lists of numbers from a column, null where there is none."""
    values = table.column(name, "--features")
    if is_text(values):
        texts = cells_of(values)
        found = lists.numbers(texts, between)
        if (row := table.first(found.is_null() & texts.is_not_null())) is not None:
            raise TableError(
                f"{table.place(row)}: column '{name}' holds vectors, but {said(texts[row])} is no "
                "list of numbers such as [0.5, 2]"
            )
        return found
    if of_numbers(values):
        return values.cast(pl.List(values.dtype.inner))  # type: ignore[attr-defined]
    raise TableError(f"{table.name}: column '{name}' holds no lists of numbers")


def _usual(lengths: pl.Series) -> int:
    """The most frequent length, the larger of several; 0 if there is none."""
    counts = ranks.gathered(ranks.counts_of(lengths)).sort("count", "value")
    return int(counts["value"][-1]) if len(counts) else 0


def of_numbers(values: pl.Series) -> bool:
    """Whether values are lists of numbers, or of true and false."""
    if not isinstance(values.dtype, pl.List | pl.Array):
        return False
    if isinstance(values.dtype, pl.Array) and len(values.dtype.shape) > 1:
        return False
    inner = values.dtype.inner
    return inner.is_numeric() or inner == pl.Boolean


def find_between(values: pl.Series) -> str:
    """The sign between the tags of a column that was asked for; "" for lists in brackets."""
    if not is_text(values):
        return ""
    texts = cells_of(values).drop_nulls()
    if not ranks.size_of(texts) or ranks.share_of(lists.bracketed(texts)) >= 0.5:
        return ""
    signs = lists.SIGNS
    counts = {sign: ranks.count_of(texts.str.contains(sign, literal=True)) for sign in signs}
    most = max(counts, key=lambda sign: counts[sign])
    return most if counts[most] else ""


def between_of(table: Table, name: str) -> str:
    """As `find_between`, of a column of features; one of lists is not read for it."""
    table.check(name, "--features")
    if table.frame.schema[name].is_nested():
        return ""
    return find_between(table.column(name, "--features"))


def tags_of(
    table: Table, name: str, option: str = "--features", between: str = ""
) -> tuple[np.ndarray, pl.Series, np.ndarray]:
    """Row [T] and text [T] of each tag, a tag once per row; and which rows have no list, [N]."""
    values = table.column(name, option)
    if is_text(values):
        values = _decode(table, name, cells_of(values), between)
    if not isinstance(values.dtype, pl.List | pl.Array):
        raise TableError(f"{table.name}: column '{name}' holds no lists")
    try:
        tags = values.cast(pl.List(pl.String)).rename("tag").to_frame().with_row_index("row")
    except pl.exceptions.PolarsError:
        raise TableError(_nested(table, name)) from None
    flat = tags.explode("tag").with_columns(pl.col("tag").str.strip_chars())
    flat = flat.filter(pl.col("tag") != "").unique(maintain_order=True)  # null is not kept either
    return flat["row"].to_numpy(), flat["tag"], values.is_null().to_numpy()


def _decode(table: Table, name: str, texts: pl.Series, between: str) -> pl.Series:
    """Lists from texts; the first that is none is named."""
    found = lists.words(texts, between)
    if (row := table.first(found.is_null() & texts.is_not_null())) is None:
        return found
    if lists.is_nested(texts[row]):
        raise TableError(_nested(table, name))
    raise TableError(
        f"{table.place(row)}: column '{name}' holds lists of tags, but {said(texts[row])} is no "
        'JSON list such as ["red", "blue"]'
    )


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
