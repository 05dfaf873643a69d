"""A table of any source, and the words in which a problem of it is put."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property

import numpy as np

from . import ranks
from .errors import TableError as TableError
from .lazy import pl
from .spool import is_spool

ROWS = 2**16
"""Rows of a table that is not in memory that are looked at together."""


@dataclass(frozen=True)
class Table:
    """A frame, and where its rows come from.

    Attributes:
        name: what to call it in a message: the path, or "the nodes".
        frame: the columns; blank lines of a file are left out. A `Spool` has of a frame what is
            asked of it.
        rows: number of each row where it lies [n] where that is not 0, 1, ...; else None.
        where: says of such a number where in its file that is, 'nodes.csv, line 7', or ''; looked
            up only when something is wrong.
        unit: what a row is of, such as "node".
        files: those that this rank has read rows of, where several ranks read.
    """

    name: str
    frame: pl.DataFrame
    rows: np.ndarray | None = None
    where: Callable[[int], str] | None = None
    unit: str = "node"
    files: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.frame.height

    def place(self, row: int) -> str:
        """Where a row is, for a message: 'nodes.csv, line 7'."""
        row = row if self.rows is None else int(self.rows[row])
        found = "" if self.where is None else self.where(row)
        return found or f"{self.name}, row {row + 1}"

    def column(self, name: str, option: str) -> pl.Series:
        """A column by its name; near names are offered for one that does not exist."""
        self.check(name, option)
        return self.frame[name]

    def check(self, name: str, option: str) -> None:
        """Refuse a column that does not exist."""
        if name not in self.frame.columns:
            near = get_close_matches(name, self.frame.columns, n=3, cutoff=0.5)
            hint = f" Near: {', '.join(near)}." if near else ""
            raise TableError(
                f"{self.name} has no column '{name}' ({option}).{hint} "
                f"It has: {', '.join(self.frame.columns)}"
            )

    def texts(self, name: str, option: str) -> pl.Series:
        """A column as text, null where it is empty: 7 and 7.0 are '7'."""
        return without_point(self.written(name, option))

    def written(self, name: str, option: str) -> pl.Series:
        """As `texts`, but 7.0 is '7.0': quicker for millions."""
        values = self.column(name, option)
        if values.dtype.is_nested():
            raise TableError(f"{self.name}: column '{name}' ({option}) holds lists, not values")
        return text_of(values)

    def first(self, wrong: pl.Series) -> int | None:
        """The first row of a mask that is true, if any is: it is to be named in an error.

        Where the rows lie on several ranks, only who has that row goes on.
        """
        return ranks.row_of(wrong)

    @property
    def is_large(self) -> bool:
        """Whether it is not in memory."""
        return is_spool(self.frame)

    def blocks(self, rows: int = 0) -> Iterator[Table]:
        """The table in parts of some rows, if it is not in memory; else the whole."""
        if not self.is_large:
            yield self
            return
        rows = rows or ROWS
        for start in range(0, len(self), rows):
            frame = self.frame.slice(start, rows)
            numbers = np.arange(start, start + frame.height)
            numbers = numbers if self.rows is None else self.rows[numbers]
            yield replace(self, frame=frame, rows=numbers)

    @cached_property
    def count(self) -> int:
        """Rows on all ranks."""
        return ranks.total(len(self))


def text_of(values: pl.Series) -> pl.Series:
    """Values as text, null where it is empty."""
    if values.dtype.is_float():
        values = values.fill_nan(None)
    text = values.cast(pl.String).str.strip_chars()
    return text.set(text == "", None)


def without_point(texts: pl.Series) -> pl.Series:
    """7.0 as 7: pandas makes floats of whole numbers where one is missing, and writes them so."""
    return texts.str.replace(r"^(-?\d+)\.0+$", "$1")


def counted(number: int, what: str) -> str:
    """'1 edge', '2,000 edges'."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def positions(values: pl.Series, known: pl.Series) -> np.ndarray:
    """Where each value stands among known ones, all different: [n], -1 where it does not."""
    table = pl.DataFrame({"value": known}).with_row_index("position")
    frame = pl.DataFrame({"value": values})
    found = frame.join(table, on="value", how="left", maintain_order="left")
    return found["position"].cast(pl.Int64).fill_null(-1).to_numpy(writable=True)


def without_blanks(frame: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray | None]:
    """A frame without rows in which nothing stands, and the numbers [n] of those that are left.

    Without such rows it is the same frame, and no numbers.
    """
    blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
    if not blank.any():
        return frame, None
    return frame.filter(~blank), (~blank).arg_true().to_numpy()


def check_names(place: str, names: list[str]) -> None:
    """Every column has a name, and one of its own; `place` is where the names stand."""
    for number, name in enumerate(names, start=1):
        if not name:
            raise TableError(
                f"{place}: column {number} has no name: give it one, or leave the column "
                "out (from pandas: to_csv(..., index=False))"
            )
        if names.count(name) > 1:
            raise TableError(f"{place}: there are two columns '{name}': rename one")


def one_line(error: BaseException) -> str:
    """The first line of what a library says."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
