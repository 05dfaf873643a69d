"""Rows of SQLite and DuckDB, and addresses of databases."""

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote

import duckdb
import pytest

from subtree_attention import Query, from_tables
from subtree_attention._check import without_passwords
from subtree_attention.datasets import TableError
from subtree_attention.datasets.tables.read import read_table
from subtree_attention.datasets.tables.sources import databases, graph_name
from subtree_attention.datasets.tables.sources.query import Address

PEOPLE = "create table people (id text, age int, label text)"
ROWS = [("a", 30, "x"), ("b", None, "y"), ("c", 41, "x")]


@pytest.fixture
def sqlite(tmp_path: Path) -> Path:
    path = tmp_path / "my data%20?.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(PEOPLE)
        connection.executemany("insert into people values (?, ?, ?)", ROWS)
        connection.execute("create table links (source text, target text)")
        connection.executemany("insert into links values (?, ?)", [("a", "b"), ("b", "c")])
        connection.execute('create table "odd; drop table people" (id int)')
    return path


@pytest.fixture
def duck(tmp_path: Path) -> Path:
    path = tmp_path / "my.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(PEOPLE)
        connection.executemany("insert into people values (?, ?, ?)", ROWS)
        connection.execute("create table links as select 'a' as source, 'b' as target")
    return path


def test_a_graph_from_sqlite(sqlite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(f"sqlite:///{sqlite}", "select id, age, label from people order by id desc;")
    data = from_tables(query, Query(sqlite, "links"), target="label")
    assert data.ids == ["c", "b", "a"]
    assert data.source == f"the query of nodes at sqlite:///{sqlite}"
    monkeypatch.chdir(sqlite.parent)
    assert len(read_table(Query(f"sqlite:///{sqlite.name}", "people"), "nodes")) == 3


def test_a_graph_from_duckdb(duck: Path, tmp_path: Path) -> None:
    other = duck.rename(tmp_path / "my.db")  # what it is, its first bytes say
    for database in (other, f"duckdb:///{other}"):
        data = from_tables(Query(database, "people"), Query(database, "links"), target="label")
        assert data.ids == ["a", "b", "c"]


def test_columns_of_duckdb_that_polars_has_not(duck: Path) -> None:
    sql = """select interval '1 day' as since, 3::hugeint as wide, ['a'] as tags, id,
        {'a': 1} as record, 'x'::enum ('x', 'y') as kind, [interval '1 day'] as days,
        '00000000-0000-0000-0000-000000000007'::uuid as key, [1, 2.5]::float[2] as vector
        from people order by id"""
    frame = read_table(Query(duck, sql), "nodes").frame
    assert frame["vector"].to_list()[0] == [1.0, 2.5]
    assert frame.drop("vector").row(0) == (
        *("1 day", 3, ["a"], "a", "{'a': 1}", "x", ["1 day"]),
        "00000000-0000-0000-0000-000000000007",
    )


def test_columns_of_sqlite_hold_any_type(sqlite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "BATCH", 2)
    values = "values (1, 1, null, 1), (2, 2, null, 2), (3, 2.5, null, 'x'), (4, 3, null, 4)"
    frame = read_table(Query(sqlite, values), "nodes").frame
    assert frame.to_dict(as_series=False) == {
        "column1": [1, 2, 3, 4],
        "column2": [1.0, 2.0, 2.5, 3.0],
        "column3": [None] * 4,
        "column4": ["1", "2", "x", "4"],
    }


@pytest.mark.parametrize("which", ["sqlite", "duck"])
@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("nobody", "the table nobody at .*nobody.*There are: links, .*people"),
        ("selec * from people", "the query of nodes at .*syntax error"),
        ("select * from people where 1 = 0", "the query of nodes at .* has no rows"),
        ("select id, age as id from people", "there are two columns 'id': rename one"),
        ("delete from people", "the query of nodes at .*read-?only"),
        ("select nothing from people", "the query of nodes at .*nothing"),
    ],
)
def test_problems_are_said(
    which: str, query: str, message: str, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(which)
    with pytest.raises(TableError, match=message):
        read_table(Query(path, query), "nodes")
    assert len(read_table(Query(path, "people"), "nodes")) == 3  # nothing was changed


@pytest.mark.parametrize("which", ["sqlite", "duck"])
def test_without_a_query_the_tables_are_listed(which: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(which)
    with pytest.raises(
        TableError,
        match=r'is a database: .*--edges-query "select .* The tables are: links, .*people',
    ):
        read_table(path, "edges")


def test_the_name_of_a_table_is_nothing_but_a_name(sqlite: Path) -> None:
    assert Query(sqlite, "people").sql == 'select * from "people"'
    assert Query(sqlite, " shop.people ").sql == 'select * from "shop"."people"'
    odd = 'select * from "odd; drop table people"'
    assert Query(sqlite, odd).table is None
    with pytest.raises(TableError, match="has no rows"):
        read_table(Query(sqlite, odd), "nodes")


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    for kind in ("sqlite", "duckdb"):
        with pytest.raises(TableError, match=r"new\.db does not exist"):
            read_table(Query(f"{kind}:///{tmp_path}/new.db", "people"), "nodes")
    assert not list(tmp_path.iterdir())


def test_three_slashes_are_no_path_from_the_root(
    sqlite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sqlite.parent)
    with pytest.raises(TableError, match=r"does not exist: a path from the root has four slashes"):
        read_table(Query(f"sqlite:///{str(sqlite)[1:]}", "people"), "nodes")


def test_what_is_no_database_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("id\na\n" * 999)
    with pytest.raises(TableError, match="file is not a database"):
        read_table(Query(tmp_path / "x.db", "people"), "nodes")


def test_without_a_driver_the_reason_is_said(duck: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for query in (Query(duck, "people"), Query("postgresql://h/d", "people")):
        kind = Address.of(query.database).kind
        monkeypatch.setitem(sys.modules, f"adbc_driver_{kind}", None)
        reason = rf'{kind} needs adbc-driver-{kind}: pip install "subtree-attention\[databases\]"'
        with pytest.raises(ImportError, match=reason):
            read_table(query, "nodes")


# ------------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://ann:word@db.example:5432/shop", "postgresql://db.example:5432/shop"),
        ("postgres://ann:wo%40rd@[::1]/shop?sslmode=require", "postgresql://[::1]/shop"),
        ("postgresql:///shop?host=/run&password=word", "postgresql:///run/shop"),
        ("postgresql://a:word@h1:1,h2:2/shop", "postgresql://h1:1,h2:2/shop"),
        ("POSTGRESQL://ann:word@h/shop", "postgresql://h/shop"),
        ("postgresql://h/shop?oauth_client_secret=word&sslmode=require", "postgresql://h/shop"),
        ("postgresql://h/shop?pass%77ord=word", "postgresql://h/shop"),
    ],
)
def test_an_address_is_shown_without_its_password(address: str, shown: str) -> None:
    found = Address.of(address)
    assert found.shown == shown
    assert "word" not in found.scrubbed(f"from {address}: {unquote(address)}")
    assert "word" not in repr(Query(address, "people"))


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ann:word",
        "postgresql://ann:wo rd@host/shop",
        "postgresql://ann:wo/rd@host/shop",
        "postgresql://ann:wo@rd@host/shop",
        "postgresql://ann:word%zz@host/shop",
        "postgresql:/ann:word@host/shop",
        "postgresql:ann:word@host/shop",
        "postgres//ann:word@host/shop",
        "Postgres:ann:word@host/shop",
        "mysql://ann:word@host/shop",
    ],
)
def test_an_address_that_cannot_be_parsed_is_not_shown(address: str) -> None:
    with pytest.raises(TableError) as refused:
        read_table(address, "nodes")
    assert "rd" not in str(refused.value).replace("password", "")
    assert repr(Query(address, "people")) == "Query('...', 'people')"


def test_passwords_are_taken_out_of_any_text() -> None:
    text = "sta train --nodes=postgresql://ann:wo'r@d@h/x?a=b@c --y 'sslpassword=word&z' ann@h"
    wanted = "sta train --nodes=postgresql://***@c --y 'sslpassword=***&z' ann@h"
    assert without_passwords(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x?oauth_client_secret=XYZ&a=b", "x?oauth_client_secret=***&a=b"),
        ("x?password=ab'cd&a=b", "x?password=***&a=b"),
        ("host=h PASSWORD = 'ab cd' user=ann", "host=h PASSWORD = *** user=ann"),
        ("postgresql:ann:secret@h/db", "postgresql:***@h/db"),
        ("postgres//ann:secret@h/db", "postgres//***@h/db"),
        ("postgres/ann:secret@h/db", "postgres/ann:***@h/db"),
        ("write to ann@h: tokens=5", "write to ann@h: tokens=5"),
    ],
)
def test_secrets_of_every_spelling(text: str, wanted: str) -> None:
    assert without_passwords(text) == wanted


def test_the_driver_gets_an_address_without_capitals() -> None:
    assert Address.of("POSTGRES://h/shop").target.startswith("postgresql://h/shop?")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("in/nodes.csv.gz", "nodes"),
        (Path("in/nodes.v2.parquet"), "nodes.v2"),
        ("in/book.xlsx#my sheet", "book"),
        ("in/people/", "people"),
        ("in/people/year=*/part-*.parquet", "people"),
        ("*.csv", "nodes"),
        (Query("postgresql://ann:word@h/shop", "select 1"), "shop"),
        (Query("postgresql://ann:word@h/", "select 1"), "h"),
        (Query("postgresql://ann:word@h/shop", "old.people"), "old.people"),
        (Query("sqlite:///in/my.db", "select 1"), "my"),
    ],
)
def test_a_graph_is_called_after_its_nodes(source: str | Path | Query, name: str) -> None:
    assert graph_name(source) == name


def test_the_command_line_reads_queries(sqlite: Path, run_sta: Callable[..., tuple]) -> None:
    address = f"sqlite:///{sqlite}"
    given = ["--nodes", address, "--nodes-query", "people", "--edges-query", "links"]
    with closing(sqlite3.connect(sqlite)) as connection, connection:
        rows = [(f"p{i}", i % 5, "xy"[i % 2]) for i in range(40)]
        connection.executemany("insert into people values (?, ?, ?)", rows)
    code, printed, errors = run_sta(
        "train", *given, "--target", "label", "--out", "mine", "--epochs", "3", "--runs", "1"
    )
    assert code == 0, errors
    assert f"the table people at {address}: 43 nodes" in printed
    code, printed, errors = run_sta("predict", "mine", *given, "--out", "p.csv")
    assert (code, "43 predictions" in printed) == (0, True), errors
    code, printed, errors = run_sta("explain", "mine", "p7", *given)
    assert code == 0, errors
    code, _, errors = run_sta("predict", "mine", "--edges-query", "links")
    assert (code, "--edges-query needs a database: --edges" in errors) == (2, True)
