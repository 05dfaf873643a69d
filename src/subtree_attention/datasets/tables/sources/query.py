"""What is asked of a database, and what of its address may be shown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from .... import _check
from ..table import TableError

FILES = {"sqlite": (".sqlite", ".sqlite3", ".db", ".db3"), "duckdb": (".duckdb", ".ddb")}
"""Files that are databases, by their suffix; what lies in a .db is looked at."""
READ = "postgresql://user@host/name, sqlite:///file.db and duckdb:///file.duckdb"
_ADDRESS = re.compile(r"^([A-Za-z][A-Za-z0-9+.\-]+):(//?)")  # C:/ is none
_MEANT = re.compile(r"(?i)^postgres(?:ql)?(?::|//)")
"""An address, if perhaps a wrong one: no file that could be named in a message."""
_SERVER = re.compile(
    r"^(?i:postgres(?:ql)?)://"
    r"(?:(?P<user>[^:@/?#\s]*)(?::(?P<password>[^@/?#\s]*))?@)?"
    r"(?P<host>(?:[\w.\-%]*|\[[\da-fA-F:.]+\])(?::\d*)?(?:,[\w.\-%]*(?::\d*)?)*)"
    r"(?:/(?P<name>[^@/?#\s]*))?"
    r"(?:\?(?P<settings>[^#\s]*))?$"
)
_TABLE = re.compile(r"^[^\W\d]\w*(\.[^\W\d]\w*)?$")


@dataclass(frozen=True)
class Query:
    """Rows of a database, in place of a file.

    >>> Query("postgresql://ann:secret@db.example/shop", "select id, age from people")
    Query('postgresql://db.example/shop', 'select id, age from people')

    Args:
        database: postgresql://user@host/name, sqlite:///file.db, duckdb:///file.duckdb, or the path
            of such a file. Leave the password to PGPASSWORD or ~/.pgpass where you can; of one in
            the address nothing is shown or kept.
        query: what to select, or the name of one table.
    """

    database: str | Path = field(repr=False)
    query: str

    def __post_init__(self) -> None:
        if not isinstance(self.database, str | Path):  # not `said`: it may hold a password
            raise TypeError(f"a database must be a text, got a {type(self.database).__name__}")
        if not isinstance(self.query, str):
            raise TypeError(f"a query must be a text, got {_check.said(self.query)}")
        if not self.query.strip(" \t\r\n;"):
            raise ValueError('a query must be a table, or such as "select id, age from people"')

    def __repr__(self) -> str:
        try:
            shown = Address.of(self.database).shown
        except TableError:
            shown = "..."
        return f"Query({shown!r}, {self.query!r})"

    @property
    def table(self) -> str | None:
        """The table, where the query is nothing but its name: people, or shop.people."""
        name = self.query.strip()
        return name if _TABLE.match(name) else None

    @property
    def sql(self) -> str:
        """What is sent. A name is quoted: it cannot be anything but a name."""
        if self.table is None:
            return self.query.strip(" \t\r\n;")
        return "select * from " + ".".join(map(quoted, self.table.split(".")))


class Address(NamedTuple):
    """Where a database is.

    Attributes:
        kind: postgresql, sqlite or duckdb.
        shown: the address without user, password and settings.
        target: what the driver gets.
        secrets: texts that must not be shown.
    """

    kind: str
    shown: str
    target: str
    secrets: tuple[str, ...] = ()

    @classmethod
    def of(cls, database: str | Path) -> Address:
        """Parsed; nothing of an address that cannot be parsed is shown."""
        text = str(database)
        found = _ADDRESS.match(text)
        if found is None and not _MEANT.match(text):
            return cls(_kind_of_file(Path(text)), text, text)
        if found is None:
            return _server(text)
        kind = {"postgres": "postgresql"}.get(found[1].lower(), found[1].lower())
        if kind not in ("postgresql", *FILES):
            raise TableError(
                f"{kind}:// is no address that is read. Databases are {READ}; of others, save the "
                "tables as Parquet or CSV, or pass frames from Python"
            )
        if found[2] == "/":  # also what pathlib makes of it
            raise TableError(
                f"{kind}:/ needs two slashes: {kind}://; from Python it is a text, since a Path "
                "loses one of them"
            )
        return _server(text) if kind == "postgresql" else _file(kind, text)

    def scrubbed(self, words: str) -> str:
        """Words of a driver without anything that is secret."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            words = words.replace(secret, "***")
        return _check.without_passwords(words)


def is_database(source: str | Path) -> bool:
    """Whether it is an address, or a file that is a database by its suffix."""
    known = {suffix for suffixes in FILES.values() for suffix in suffixes}
    address = _ADDRESS.match(str(source)) or _MEANT.match(str(source))
    return address is not None or Path(source).suffix.lower() in known


def quoted(name: str) -> str:
    """A name in SQL, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def _server(text: str) -> Address:
    found = _SERVER.match(text)
    if found is None or re.search(r"%(?![\da-fA-F]{2})", text):
        raise TableError(
            "the address of a PostgreSQL database must be as postgresql://user@host:5432/name; "
            "in user and password write @ as %40, : as %3A, / as %2F, ? as %3F, # as %23, % as %25 "
            "and a blank as %20"
        )
    settings = dict(
        pair.partition("=")[::2] for pair in (found["settings"] or "").split("&") if pair
    )
    hidden = [value for name, value in settings.items() if _check.is_secret(unquote(name))]
    hidden.append(found["password"] or "")
    secrets = {text, *hidden, *map(unquote, hidden)} - {""}
    text = "postgresql" + text[text.index(":") :]  # the driver knows no capitals
    # A server that does not answer is given up; text is UTF-8 whatever the server keeps.
    more = {"connect_timeout": "10", "client_encoding": "UTF8"}
    added = "&".join(f"{name}={value}" for name, value in more.items() if name not in settings)
    target = f"{text}{'&' if settings else '' if text.endswith('?') else '?'}{added}"
    name = found["name"] or settings.get("dbname", "")
    host = found["host"] or settings.get("host", "")
    shown = f"postgresql://{unquote(host)}/{unquote(name)}"
    return Address("postgresql", shown, target, (*secrets, target))


def _file(kind: str, text: str) -> Address:
    """sqlite:///in/this/folder.db, sqlite:////from/the/root.db."""
    path = re.sub(rf"^{kind}:///?", "", text, flags=re.IGNORECASE)
    return Address(kind, f"{kind}:///{path}", path)


def _kind_of_file(path: Path) -> str:
    """What a file is: by its first bytes, since .db may be both."""
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(16)
        if head[8:12] == b"DUCK":
            return "duckdb"
        if head.startswith(b"SQLite format 3"):
            return "sqlite"
    named = (kind for kind, suffixes in FILES.items() if path.suffix.lower() in suffixes)
    kind = next(named, None)
    if kind is None:
        shown = _check.without_passwords(str(path))
        raise TableError(f"{shown} is no database: a query is for {READ}")
    return kind
