"""Rows of PostgreSQL, SQLite and DuckDB.

PostgreSQL and DuckDB are read through ADBC, column by column. SQLite needs no driver: Python has
one, and a column there may hold values of any type.

What a driver says may hold the address with its password: no word of it passes unscrubbed, and its
exception is not kept as the cause of ours.
"""

from __future__ import annotations

import ctypes
import re
import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..lazy import pl
from ..memory import series
from ..table import Table, TableError, check_names, one_line
from .query import Address, Query, quoted

SHOWN = 20
"""Tables that a message lists."""
BATCH = 50_000
"""Rows of SQLite that are values of Python at a time."""


def read(query: Query, what: str) -> Table:
    """The rows that a query selects; `what` says what they are of."""
    address = Address.of(query.database)
    asked = f"the query of {what}" if query.table is None else f"the table {query.table}"
    name = f"{asked} at {address.shown}"
    open_, _, rows = DRIVERS[address.kind]
    with _connected(address, open_) as connection:
        frame, wrong = _tried(address, lambda: rows(connection, query.sql, name))
        if frame is None:
            lacks = re.search(r"not exist|no such table", wrong)
            tables = _tables(address, connection, ". There are: ") if lacks else ""
            raise TableError(f"{name}: {wrong}{tables}")
    if not frame.width:
        raise TableError(f"{name} gives no rows: it must select something")
    return Table(name, frame)


def without_query(database: str | Path, what: str) -> TableError:
    """What to say where a database is named, but not what to read of it."""
    address, option = Address.of(database), f"--{what}-query"
    open_ = DRIVERS[address.kind][0]
    with _connected(address, open_) as connection:
        tables = _tables(address, connection, " The tables are: ")
    return TableError(
        f'{address.shown} is a database: say what to read by {option} "select ...", or {option} '
        f"TABLE (from Python: Query(database, query)).{tables}"
    )


@contextmanager
def _connected(address: Address, open_: Callable[[Address], Any]) -> Iterator[Any]:
    connection, wrong = _tried(address, lambda: open_(address))
    if connection is None:
        raise TableError(f"{address.shown}: no connection: {wrong}")
    with closing(connection):
        yield connection


def _tried(address: Address, work: Callable[[], Any]) -> tuple[Any, str]:
    """What comes of it, or None and what went wrong, in words that hold no secret."""
    try:
        return work(), ""
    except (TableError, ImportError, MemoryError):
        raise
    except Exception as error:  # a driver's own kinds
        return None, in_words(address, error)


def in_words(address: Address, error: BaseException) -> str:
    """What a driver says, in a line that holds no secret."""
    words = str(error).partition("Query was:")[0]
    told = re.search(r"(?:ERROR|FATAL):\s+(.*)", words)
    line = told[1] if told else one_line(ValueError(words))
    if "Failed to connect:" in line:
        line = line.partition("Failed to connect:")[2].strip()
    if re.search(r"password (?:authentication|supplied)|no password", line):
        line += "; the password may be in PGPASSWORD, in ~/.pgpass, or in the address"
    return address.scrubbed(line)


def _tables(address: Address, connection: Any, before: str) -> str:
    """The tables that there are, for a message; nothing where they cannot be asked for."""
    _, listed, rows = DRIVERS[address.kind]
    _tried(address, connection.rollback)  # after an error PostgreSQL answers nothing else
    frame, _ = _tried(address, lambda: rows(connection, listed, ""))
    names = [] if frame is None or not frame.width else frame.to_series().to_list()
    if not names:
        return ""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{before}{', '.join(names[:SHOWN])}{more}"


def _driver(name: str, address: Address) -> Any:
    try:
        import_module("adbc_driver_manager.dbapi")
        return import_module(name)
    except ImportError as missing:
        package = (missing.name or name).partition(".")[0].replace("_", "-")
        raise ImportError(
            f"{address.shown}: {address.kind} needs {package}: pip install "
            '"subtree-attention[databases]"'
        ) from None


def _existing(address: Address) -> Path:
    """The file of a database: opening one that is not there would make it."""
    path = Path(address.target)
    if not path.is_file():
        more = ""
        if not path.is_absolute() and Path("/", path).is_file():
            more = f": a path from the root has four slashes, {address.kind}:////{path}"
        raise TableError(
            f"{address.target} {'is not a file' if path.exists() else 'does not exist'}{more}"
        )
    return path


# -------------------------------------------------------------------------- PostgreSQL and DuckDB

INSTEAD = {"money": "numeric::text", "_numeric": "float8[]"}
"""What some types are asked for as, where text would not do: money comes as a count of cents."""


def _open_postgresql(address: Address) -> Any:
    return _driver("adbc_driver_postgresql.dbapi", address).connect(address.target)


def _open_duckdb(address: Address) -> Any:
    path, driver = _existing(address), _driver("adbc_driver_duckdb", address)
    settings = {"path": str(path), "access_mode": "READ_ONLY"}
    return import_module("adbc_driver_manager.dbapi").connect(
        driver=driver.driver_path(), entrypoint="duckdb_adbc_init", db_kwargs=settings
    )


def _rows_adbc(connection: Any, sql: str, name: str) -> pl.DataFrame:
    with connection.cursor() as cursor:
        cursor.adbc_statement.set_sql_query(sql)
        found = _columns(cursor.adbc_statement.execute_schema())
    if not found:
        return pl.DataFrame()
    check_names(name, [column for column, _ in found])
    columns = dict(found)
    if any(columns.values()):
        parts = (
            f"({quoted(c)})::{kind} as {quoted(c)}" if kind else quoted(c)
            for c, kind in columns.items()
        )
        sql = f"select {', '.join(parts)} from (\n{sql}\n) as asked"
    return pl.read_database(sql, connection)


class _Schema(ctypes.Structure):
    """The beginning of ArrowSchema, as the Arrow C data interface lays it out."""


_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(_Schema))),
]


def _columns(handle: Any) -> list[tuple[str, str]]:
    """The names of what a query gives, and what each is to be cast to, '' if it stays.

    Asked before polars sees the rows: it does not survive intervals, and has no uuid.
    """
    capsule = handle.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    schema = _Schema.from_address(pointer(capsule, b"arrow_schema"))
    children = [schema.children[i].contents for i in range(schema.n_children)]
    return [(child.name.decode(), _cast(child)) for child in children]


def _cast(column: _Schema) -> str:
    """Types that polars has not become text, and lists of such lists of text."""
    about = _metadata(column.metadata)
    kind = about.get("POSTGRESQL:type", "")
    if kind in INSTEAD:
        return INSTEAD[kind]
    if column.format.startswith((b"+l", b"+L", b"+w")):
        inner = _cast(column.children[0].contents)
        return inner and f"{inner}[]"
    odd = column.format.startswith((b"w", b"ti", b"+")) or "ARROW:extension:name" in about
    return "text" if odd else ""


def _metadata(address: int | None) -> dict[str, str]:
    """Keys and values that belong to a column: a count, then each with its length before it."""
    if not address:
        return {}

    def number() -> int:
        nonlocal address
        (value,) = struct.unpack("=i", ctypes.string_at(address, 4))
        address += 4
        return value

    def text() -> str:
        nonlocal address
        length = number()
        value = ctypes.string_at(address, length)
        address += length
        return value.decode()

    return {text(): text() for _ in range(number())}


# ----------------------------------------------------------------------------------------- SQLite


def _open_sqlite(address: Address) -> sqlite3.Connection:
    path = _existing(address).resolve()
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)


def _rows_sqlite(connection: sqlite3.Connection, sql: str, name: str) -> pl.DataFrame:
    cursor = connection.execute(sql)
    if cursor.description is None:
        return pl.DataFrame()
    names = [column[0] for column in cursor.description]
    check_names(name, names)
    parts: list[list[pl.Series]] = [[] for _ in names]
    while rows := cursor.fetchmany(BATCH):
        for column, part, values in zip(names, parts, zip(*rows, strict=True), strict=True):
            part.append(series(name, column, values))
    return pl.DataFrame(map(_joined, names, parts))


def _joined(name: str, parts: Sequence[pl.Series]) -> pl.Series:
    """Parts of a column below each other: numbers of one type, others of several types as text."""
    kinds = {part.dtype for part in parts} - {pl.Null()}
    kind: pl.DataType = pl.String() if kinds else pl.Null()
    if len(kinds) == 1:
        (kind,) = kinds
    elif kinds and all(each.is_numeric() for each in kinds):
        kind = pl.Float64()
    empty = pl.Series(name, [], dtype=kind)
    return pl.concat([empty, *(part.cast(kind) for part in parts)], rechunk=False)


_STANDARD = """select case when table_schema in ('public', 'main') then table_name
else table_schema || '.' || table_name end from information_schema.tables
where table_schema not in ('pg_catalog', 'information_schema') order by 1"""
_SQLITE = """select name from sqlite_master where type in ('table', 'view')
and name not like 'sqlite_%' order by 1"""
DRIVERS: dict[str, tuple[Callable[[Address], Any], str, Callable[[Any, str, str], Any]]] = {
    "postgresql": (_open_postgresql, _STANDARD, _rows_adbc),
    "sqlite": (_open_sqlite, _SQLITE, _rows_sqlite),
    "duckdb": (_open_duckdb, _STANDARD, _rows_adbc),
}
"""How to connect, what lists the tables, and how rows are read."""
