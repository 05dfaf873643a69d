"""A table from a file or a frame, and the words in which a problem of it is put.

CSV files are read as text: what a column means is decided elsewhere. Line numbers are looked up
only when something is wrong.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..._check import plain, said
from .cells import unescaped
from .lazy import pl

DELIMITERS = ",;\t"


class TableError(ValueError):
    """A table that cannot be used as it is: the message says where, why, and what to do."""


@dataclass(frozen=True)
class Table:
    """A frame, and where its rows come from.

    Attributes:
        name: what to call it in a message: the path, or "the nodes".
        frame: the columns; blank lines of a file are left out.
        rows: number of each row in the file [n] where that is not 0, 1, ...; else None.
        csv: whether it is a CSV file, whose lines can be counted.
        unit: what a row is of, such as "node".
    """

    name: str
    frame: pl.DataFrame
    rows: np.ndarray | None = None
    csv: bool = False
    unit: str = "node"

    def __len__(self) -> int:
        return self.frame.height

    def place(self, row: int) -> str:
        """Where a row is, for a message: 'nodes.csv, line 7'."""
        row = row if self.rows is None else int(self.rows[row])
        records = _records(Path(self.name)) if self.csv else ()  # the first is the header
        found = next(islice(records, row + 1, None), None)
        return f"{self.name}, line {found[0]}" if found else f"{self.name}, row {row + 1}"

    def column(self, name: str, option: str) -> pl.Series:
        """A column by its name; near names are offered for one that does not exist."""
        if name not in self.frame.columns:
            near = get_close_matches(name, self.frame.columns, n=3, cutoff=0.5)
            hint = f" Near: {', '.join(near)}." if near else ""
            raise TableError(
                f"{self.name} has no column '{name}' ({option}).{hint} "
                f"It has: {', '.join(self.frame.columns)}"
            )
        return self.frame[name]

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
        """The first row of a mask that is true, if any is."""
        return next(iter(wrong.arg_true()), None)


def read_table(source: Any, what: str) -> Table:
    """A table from a path (.csv, .tsv, .parquet), a polars or a pandas frame, or columns.

    `what` it is of, "nodes", "edges" or "graphs", names it where it has no path.
    """
    name = f"the table of {what}"
    if isinstance(source, pl.DataFrame):
        objects = [column for column in source if column.dtype == pl.Object]
        table = Table(
            name, source.with_columns(_series(name, c.name, c.to_list()) for c in objects)
        )
    elif isinstance(source, str | Path):
        table = _read_file(Path(source))
    elif isinstance(source, dict) or hasattr(source, "iloc"):
        columns = [_series(name, str(key), values) for key, values in source.items()]
        table = Table(name, _frame(name, columns))
    else:
        kind = type(source).__name__
        raise TypeError(f"{name} must be a path, a polars or a pandas frame, got {kind}")
    if not len(table):
        raise TableError(f"{table.name} has no rows")
    return replace(table, unit=what.removesuffix("s"))


def _frame(table: str, columns: list[pl.Series]) -> pl.DataFrame:
    """Columns side by side, if they are equally long and have names of their own."""
    lengths = {column.name: len(column) for column in columns}
    if len(lengths) < len(columns):
        raise TableError(f"{table} has two columns of one name: rename one")
    if len(set(lengths.values())) > 1:
        words = ", ".join(f"'{name}' {length:,}" for name, length in lengths.items())
        raise TableError(f"{table}: columns must be equally long, but the values are: {words}")
    return pl.DataFrame(columns)


def _series(table: str, name: str, values: Any) -> pl.Series:
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
    try:
        return pl.Series(name, [None if value is None else str(value) for value in values])
    except (TypeError, ValueError) as error:
        raise TableError(f"{table}: column '{name}' cannot be read: {_one_line(error)}") from None


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


# ------------------------------------------------------------------------------------------ files


def _read_file(path: Path) -> Table:
    if not path.is_file():
        raise TableError(f"{path} is not a file" if path.exists() else f"{path} does not exist")
    if path.stat().st_size == 0:
        raise TableError(f"{path} is empty")
    if path.suffix.lower() == ".parquet":
        try:
            return Table(str(path), pl.read_parquet(path))
        except pl.exceptions.PolarsError as error:
            raise TableError(f"{path} is not a Parquet file: {_one_line(error)}") from None
    header = _header(path)
    try:
        # All columns, also those that are not used: a part would hide lines that are too long.
        frame = pl.read_csv(path, infer_schema=False, separator=_delimiter(path))
    except pl.exceptions.PolarsError as error:
        _explain(path, len(header))
        raise TableError(f"{path} cannot be read: {_one_line(error)}") from None
    frame.columns = header
    frame = frame.with_columns(unescaped(text_of(column)) for column in frame)
    if frame[header[-1]].null_count():  # a line that is too short looks like this
        _explain(path, len(header))
    blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
    rows = None
    if blank.any():
        rows, frame = (~blank).arg_true().to_numpy(), frame.filter(~blank)
    return Table(str(path), frame, rows, csv=True)


def _header(path: Path) -> list[str]:
    """The names of the columns, each there once."""
    try:
        names = next((record for _, record in _records(path) if record), [])
    except (UnicodeDecodeError, csv.Error):
        _explain(path, 0)
        raise
    names = unescaped(pl.Series([name.strip() for name in names], dtype=pl.String)).to_list()
    if not any(names):
        raise TableError(f"{path} is empty: the first line holds the names of the columns")
    for number, name in enumerate(names, start=1):
        if not name:
            raise TableError(
                f"{path}, line 1: column {number} has no name: give it one, or leave the column "
                "out (from pandas: to_csv(..., index=False))"
            )
        if names.count(name) > 1:
            raise TableError(f"{path}, line 1: there are two columns '{name}': rename one")
    return names


def _delimiter(path: Path) -> str:
    """Comma, semicolon or tab: what the first line has most of."""
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"")
    return max(DELIMITERS, key=lambda sign: first.count(sign.encode()))


def _records(path: Path, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """The line on which each record of a CSV file starts, and its fields; [] for a blank line.

    Counts as polars does: blank lines before the header are no records.
    """
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # abstracts may be long
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader, started = csv.reader(file, delimiter=_delimiter(path), strict=strict), False
        before = 0
        for record in reader:
            started = started or bool(record)
            if started:
                yield before + 1, record
            before = reader.line_num


def _explain(path: Path, width: int) -> None:
    """Raise the error that names the first bad line, if there is one."""
    last = 1
    try:
        with path.open("rb") as file:
            for last, line in enumerate(file, start=1):  # noqa: B007 - for the message
                line.decode()
        last = 1
        for last, record in _records(path, strict=True):
            if width and record and len(record) != width:
                raise TableError(
                    f"{path}, line {last}: {len(record)} values, but the first line names {width} "
                    "columns; put a value that holds the delimiter into double quotes"
                )
    except UnicodeDecodeError:
        raise TableError(
            f"{path}, line {last}: not UTF-8; convert it, if it is Latin-1 by: "
            f"iconv -f latin1 -t utf8 {path} > utf8.csv"
        ) from None
    except csv.Error as error:
        raise TableError(f"{path}, after line {last}: {error} (check the double quotes)") from None


def _one_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
