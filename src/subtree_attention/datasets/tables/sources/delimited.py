"""Tables as text: CSV with any usual delimiter, encoding and line end, packed or not.

All columns are read as text: what they mean is decided elsewhere. Line numbers are looked up only
when something is wrong.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import IO

from ..cells import unescaped
from ..lazy import pl
from ..table import Table, TableError, check_names, one_line, text_of, without_blanks
from .packed import content, is_packed

DELIMITERS = ",;\t|"
HEAD = 2**16
"""So many bytes tell how a file is written."""
MARKS = {  # the longer ones first: that of UTF-32 begins like that of UTF-16
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def read(path: Path) -> Table:
    """A CSV file as a table of text; blank lines are left out."""
    file = _File.of(path)
    header = _header(file)
    end = "\r" if file.old_ends else "\n"
    try:
        # All columns, also those that are not used: a part would hide lines that are too long.
        frame = pl.read_csv(
            file.utf8(), infer_schema=False, separator=file.delimiter, eol_char=end, glob=False
        )
    except pl.exceptions.PolarsError as error:
        _explain(file, len(header))
        raise TableError(f"{path} cannot be read: {one_line(error)}") from None
    frame.columns = header
    frame = frame.with_columns(unescaped(text_of(column)) for column in frame)
    if frame[header[-1]].null_count():  # a line that is too short looks like this
        _explain(file, len(header))
    frame, rows = without_blanks(frame)
    return Table(str(path), frame, rows, where=replace(file, data=None).place)


@dataclass(frozen=True)
class _File:
    """A text file, and how it is written.

    Attributes:
        path: where it is.
        encoding: as Python calls it; 'utf-8-sig' is UTF-8 with a mark at the start or without.
        old_ends: lines end in a carriage return alone, as they did on old Macs.
        delimiter: what stands between two values.
        data: what is in it, where it was packed.
    """

    path: Path
    encoding: str
    old_ends: bool
    delimiter: str
    data: bytes | None = field(default=None, repr=False)

    @classmethod
    def of(cls, path: Path) -> _File:
        data = content(path) if is_packed(path) else None
        with _opened(path, data) as file:
            head = file.read(HEAD)
        encoding = _encoding(head)
        text = head.decode(encoding, errors="replace").rstrip("\r")  # "\n" may come behind it
        lines = (line for line in re.split(r"[\r\n]+", text) if line.strip())
        first = re.sub(r'"[^"]*"', "", next(lines, ""))  # a name in quotes may hold a delimiter
        delimiter = max(DELIMITERS, key=first.count)
        made = cls(path, encoding, "\r" in text and "\n" not in text, delimiter, data)
        if "\0" in text:  # a picture, say: zeros made it look like UTF-16
            raise made.no_text()
        return made

    def utf8(self) -> Path | bytes:
        """What polars reads: the file itself if it can be, else its text in memory."""
        if self.encoding == "utf-8-sig":
            return self.path if self.data is None else self.data
        data = self.path.read_bytes() if self.data is None else self.data
        try:
            return data.decode(self.encoding).encode()
        except UnicodeDecodeError:
            raise self.no_text() from None

    def records(self, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """The line on which each record starts, and its fields; [] for a blank line.

        Counts as polars does: blank lines before the header are no records.
        """
        csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # abstracts may be long
        with (
            _opened(self.path, self.data) as file,
            io.TextIOWrapper(file, encoding=self.encoding, newline="") as text,
        ):
            reader = csv.reader(text, delimiter=self.delimiter, strict=strict)
            started, before = False, 0
            for record in reader:
                started = started or bool(record)
                if started:
                    yield before + 1, record
                before = reader.line_num

    def place(self, row: int) -> str:
        """Where a row is; the record before the first one is the header."""
        found = next(islice(self.records(), row + 1, None), None)
        return f"{self.path}, line {found[0]}" if found else ""

    def no_text(self, line: int | None = None) -> TableError:
        """What to say where the bytes are not those of the encoding."""
        if self.encoding != "utf-8-sig":
            return TableError(f"{self.path} is neither UTF-8 nor {self.encoding.upper()}: no text")
        source = f"zcat {self.path} |" if is_packed(self.path) else ""
        if self.path.suffix.lower() == ".zst":
            source = f"zstd -dc {self.path} |"
        convert = f"{source} iconv -f latin1 -t utf8".strip()
        behind = "" if source else f" {self.path}"
        return TableError(
            f"{self.path}, line {line}: not UTF-8; convert it, if it is Latin-1 by: "
            f"{convert}{behind} > utf8.csv"
        )


def _opened(path: Path, data: bytes | None) -> IO[bytes]:
    if data is None and is_packed(path):
        data = content(path)
    return path.open("rb") if data is None else io.BytesIO(data)


def _encoding(head: bytes) -> str:
    """By the mark at the start; without one UTF-8, or UTF-16 where every other byte is 0."""
    for mark, encoding in MARKS.items():
        if head.startswith(mark):
            return encoding
    zeros = head[::2].count(0), head[1::2].count(0)
    if zeros == (0, 0):
        return "utf-8-sig"
    return "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"


def _header(file: _File) -> list[str]:
    """The names of the columns, each there once."""
    try:
        names = next((record for _, record in file.records() if record), [])
    except (UnicodeDecodeError, csv.Error):
        _explain(file, 0)
        raise
    names = unescaped(pl.Series([name.strip() for name in names], dtype=pl.String)).to_list()
    if not any(names):
        raise TableError(f"{file.path} is empty: the first line holds the names of the columns")
    check_names(f"{file.path}, line 1", names)
    return names


def _explain(file: _File, width: int) -> None:
    """Raise the error that names the first bad line, if there is one."""
    last = 1
    try:
        if file.encoding == "utf-8-sig":
            with _opened(file.path, file.data) as lines:
                for last, line in enumerate(lines, start=1):  # noqa: B007 - for the message
                    line.decode()
        last = 1
        for last, record in file.records(strict=True):
            if width and record and len(record) != width:
                raise TableError(
                    f"{file.path}, line {last}: {len(record)} values, but the first line names "
                    f"{width} columns; put a value that holds the delimiter into double quotes"
                )
    except UnicodeDecodeError:
        raise file.no_text(last) from None
    except csv.Error as error:
        raise TableError(
            f"{file.path}, after line {last}: {error} (check the double quotes)"
        ) from None
