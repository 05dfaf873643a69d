"""Where a table lies: a file of any usual kind, a folder of parts, a database.

Each kind of source has a file here, with a function `read` that gives a `Table`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from .. import ranks, spool
from ..lazy import pl
from ..table import Table, TableError, one_line
from . import databases, delimited, excel, parts, records, shares
from .packed import PACKED, is_packed, suffix_of
from .query import Address, Query, is_database

TEXT = (".csv", ".tsv", ".tab", ".psv", ".txt")
JSON = (".jsonl", ".ndjson", ".json")
WORKBOOKS = (".xlsx", ".xlsm")
READ = (
    "CSV (.csv, .tsv, .tab, .psv, .txt), JSON (.jsonl, .ndjson, .json), both also packed (.gz, "
    ".zst), Parquet (.parquet), Excel (.xlsx), a folder of such files, or a database"
)
INSTEAD = {
    ".xls": "save it as .xlsx",
    ".ods": "save it as .xlsx or .csv",
    ".zip": "unpack it first",
    ".npz": "from Python: from_npz",
    ".pkl": "a pickle may run code",
    ".pickle": "a pickle may run code",
}
"""What to do with some files that are not read."""


def read(source: str | Path | Query, what: str) -> Table:
    """A table from a path, a folder, a pattern such as 'people/part-*.parquet', or a `Query`."""
    if ranks.are_there():
        return _share(source, what)
    if isinstance(source, Query):
        return databases.read(source, what)
    text = str(source)
    if is_database(text):
        raise databases.without_query(source, what)
    if parts.is_pattern(text) or (text and Path(text).is_dir()):
        if spool.folder() is not None:
            return shares.read_in_turn(text, PART_READERS)
        return parts.read(text, PART_READERS)
    if spool.folder() is not None and suffix_of(_readable(Path(text))) in PART_READERS:
        _reader(Path(text))
        return shares.read_in_turn(text, PART_READERS)
    book, mark, sheet = text.rpartition("#")
    if mark and Path(book).suffix.lower() in WORKBOOKS and not Path(text).exists():
        return excel.read(_readable(Path(book)), sheet)
    return _reader(Path(text))(_readable(Path(text)))


def _share(source: str | Path | Query, what: str) -> Table:
    """The rows of this rank; what cannot be read so is refused."""
    whole = isinstance(source, Query) or is_database(str(source))
    if not whole and not parts.is_pattern(str(source)) and not Path(source).is_dir():  # type: ignore[arg-type]
        _reader(_readable(Path(source)))  # type: ignore[arg-type]
        whole = suffix_of(Path(source)) not in PART_READERS  # type: ignore[arg-type]
    if whole:
        raise TableError(
            f"the table of {what} cannot be read by {ranks.size()} processes, each its part: save "
            "it as Parquet, best as a folder of several files"
        )
    return shares.read(str(source), PART_READERS)


def graph_name(source: str | Path | Query) -> str:
    """What to call a graph whose nodes come from there; folders can be named after it."""
    if isinstance(source, Query):
        found = source.table or Path(Address.of(source.database).shown).stem
    else:
        text = re.sub(r"(\.xls[xm])#[^#/]*$", r"\1", str(source), flags=re.IGNORECASE)
        fixed = [part for part in Path(text).parts if not re.search(r"[*?\[]", part)]
        found = Path(fixed[-1]).name if fixed else ""
        while Path(found).suffix.lower() in (*READERS, *PACKED):
            found = Path(found).stem
    return re.sub(r"[^\w.\-]+", "-", found).strip("-.")[:100] or "nodes"


def _readable(path: Path) -> Path:
    if not path.is_file():
        raise TableError(f"{path} is not a file" if path.exists() else f"{path} does not exist")
    if path.stat().st_size == 0:
        raise TableError(f"{path} is empty")
    return path


def _reader(path: Path) -> Callable[[Path], Table]:
    """The function for a file, by its suffix."""
    suffix = suffix_of(path)
    if suffix not in READERS or (is_packed(path) and suffix not in TEXT + JSON):
        _readable(path)  # first: where nothing is, its suffix does not matter
        hint = INSTEAD.get(path.suffix.lower(), "if it is one of these, rename it")
        kind = f"'{''.join(path.suffixes[-2:])}'" if path.suffix else "without a suffix"
        raise TableError(f"{path}: files {kind} are not read ({hint}). Read are {READ}")
    return READERS[suffix]


def _parquet(path: Path) -> Table:
    try:
        return Table(str(path), pl.read_parquet(path, glob=False, hive_partitioning=False))
    except pl.exceptions.PolarsError as error:
        raise TableError(f"{path} is not a Parquet file: {one_line(error)}") from None


READERS: dict[str, Callable[[Path], Table]] = {
    ".parquet": _parquet,
    **dict.fromkeys(TEXT, delimited.read),
    **dict.fromkeys(JSON, records.read),
    **dict.fromkeys(WORKBOOKS, excel.read),
}
PART_READERS = {name: reader for name, reader in READERS.items() if name not in WORKBOOKS}
