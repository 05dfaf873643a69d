"""Tables as JSON: a record a line, or one list of records."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ..lazy import pl
from ..table import Table, TableError, one_line
from .packed import content

LIST = """write [{"id": "a", ...}, ...], or a record a line (from pandas: orient="records")"""


def read(path: Path) -> Table:
    """Records one below the other; or between [ and ], where nothing counts as a line."""
    data = content(path)
    listed = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"["
    reader = pl.read_json if listed else pl.read_ndjson
    try:
        # Of all rows: a type that only the first ones tell would refuse what comes later.
        frame = reader(data.removeprefix(b"\xef\xbb\xbf"), infer_schema_length=None)
    except pl.exceptions.PolarsError as error:
        _explain(path, data, listed)
        raise TableError(f"{path} cannot be read: {one_line(error)}") from None
    return Table(str(path), frame, where=None if listed else lambda row: _place(path, row))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that hold something, with their numbers."""
    for number, line in enumerate(io.BytesIO(content(path)), start=1):
        if line.strip():
            yield number, line.removeprefix(b"\xef\xbb\xbf")


def _place(path: Path, row: int) -> str:
    found = next(islice(_lines(path), row, None), None)
    return f"{path}, line {found[0]}" if found else ""


def _explain(path: Path, data: bytes, listed: bool) -> None:
    """Raise the error that says what is no JSON, or no record, if anything is."""
    try:
        if listed:
            if not all(isinstance(record, dict) for record in json.loads(data.decode("utf-8-sig"))):
                raise TableError(f"{path} holds a list, but not of records: {LIST}")
            return
        for number, line in _lines(path):
            if not isinstance(_value(path, number, line), dict):
                raise TableError(f"{path}, line {number}: not a record: {LIST}")
    except UnicodeDecodeError:
        raise TableError(f"{path} is not UTF-8, as JSON is") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(f"{path} is no JSON: {one_line(error)}") from None


def _value(path: Path, number: int, line: bytes) -> object:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise TableError(f"{path}, line {number}: no JSON ({error.msg}); {LIST}") from None
