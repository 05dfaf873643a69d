"""Rows of a real PostgreSQL, whose password ends up nowhere."""

import io
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from subtree_attention import Query, from_tables
from subtree_attention.datasets import TableError
from subtree_attention.datasets.tables.read import read_table
from tests.postgresql import PASSWORD, QUOTED
from tests.samples import friends, people


@pytest.fixture(scope="module")
def database(postgresql: str) -> str:
    """With tables of nodes and of edges, and one with columns of many types."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(postgresql) as connection, connection.cursor() as cursor:
        cursor.execute("create table staff (id text, age float8, city text, label text)")
        columns = people()
        rows = zip(*(columns[name] for name in ("id", "age", "city", "label")), strict=True)
        cursor.executemany("insert into staff values ($1, $2, $3, $4)", [list(r) for r in rows])
        cursor.execute("create table links (source text, target text)")
        ends = friends()
        rows = zip(ends["source"], ends["target"], strict=True)
        cursor.executemany("insert into links values ($1, $2)", [list(r) for r in rows])
        cursor.execute("create type mood as enum ('sad', 'glad')")
        cursor.execute('create schema "Old"')
        cursor.execute('create table "Old"."Staff" (id int)')
        connection.commit()
    return postgresql


@pytest.fixture
def address(database: str) -> str:
    """Without its password, for messages."""
    return f"postgresql://{database.rpartition('@')[2]}"


def test_a_graph_from_postgresql(database: str, address: str) -> None:
    query = "select id, age, city, label from staff order by id; "
    data = from_tables(Query(database, query), Query(database, "links"), target="label")
    assert data.num_nodes == 60
    assert data.ids[:3] == ["p0", "p1", "p10"]
    assert data.source == f"the query of nodes at {address}"


def test_every_type_is_read(database: str) -> None:
    sql = """select 7::int as i, 1.50::numeric(20, 2) as n, 2.5::real as f, true as b,
        'ab'::char(3) as c,
        array['a', 'b'] as tags, array[1.5, 2] as vector, array[0.5::float8] as floats,
        date '2026-01-02' as d, timestamptz '2026-01-02 03:04:05+01' as t, '{"a": 1}'::jsonb as j,
        '00000000-0000-0000-0000-000000000007'::uuid as u, 'glad'::mood as m, interval '1 day' as v,
        12.34::money as cash, inet '127.0.0.1' as ip, int4range(1, 5) as r,
        null as nothing -- all"""
    row = read_table(Query(database, sql), "nodes").frame.row(0, named=True)
    day, moment = row.pop("d"), row.pop("t")
    assert (day.isoformat(), moment.isoformat()) == ("2026-01-02", "2026-01-02T02:04:05+00:00")
    assert row == {
        **{"i": 7, "n": "1.50", "f": 2.5, "b": True, "c": "ab "},
        **{"tags": ["a", "b"], "vector": [1.5, 2.0], "floats": [0.5], "j": '{"a": 1}'},
        **{"u": "00000000-0000-0000-0000-000000000007", "m": "glad", "v": "1 day"},
        **{"cash": "12.34", "ip": "127.0.0.1/32", "r": "[1,5)", "nothing": None},
    }


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("nobody", 'the table nobody at .*"nobody" does not exist. There are: .*links, staff'),
        ("select * from staff, nobody", 'the query of nodes .*"nobody" does not exist. There are'),
        ("selec id from staff", "the query of nodes at .*: syntax error at or near"),
        ("select nothing from staff", 'column "nothing" does not exist'),
        ("select id from staff where false", "the query of nodes at .* has no rows"),
        ("select id, age as id from staff", "there are two columns 'id': rename one"),
        ("delete from staff", "gives no rows: it must select something"),
        ("select 1; select 2", "cannot insert multiple commands"),
        ("select age / 0 from staff", "the query of nodes at .*: division by zero"),
    ],
)
def test_problems_are_said(database: str, query: str, message: str) -> None:
    with pytest.raises(TableError, match=message) as refused:
        read_table(Query(database, query), "nodes")
    assert_clean(_traceback(refused.value))


def test_what_a_query_writes_is_not_kept(database: str) -> None:
    with_deletion = "with gone as (delete from staff returning id) select id from gone"
    assert len(read_table(Query(database, with_deletion), "nodes")) == 60
    assert len(read_table(Query(database, "staff"), "nodes")) == 60


def test_without_a_query_the_tables_are_listed(database: str, address: str) -> None:
    with pytest.raises(TableError) as refused:
        read_table(database, "nodes")
    assert str(refused.value).startswith(f"{address} is a database: say what to read by --nodes-q")
    assert str(refused.value).endswith("The tables are: Old.Staff, links, staff")
    assert_clean(_traceback(refused.value))


def test_a_name_is_taken_as_it_is_written(database: str) -> None:
    with pytest.raises(TableError, match=r"the table Old\.Staff at .* has no rows"):
        read_table(Query(database, "Old.Staff"), "nodes")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((QUOTED, "wrong"), "no connection: password authentication failed for user .*PGPASSWORD"),
        ((f":{QUOTED}", ""), "no connection: .*no password supplied; .*PGPASSWORD"),
        (("ann:", "bob:"), 'no connection: password authentication failed for user "bob"'),
        (("/postgres", "/nobody"), 'no connection: database "nobody" does not exist'),
        (("127.0.0.1", "nowhere.invalid"), "no connection: could not translate host name"),
        (("127.0.0.1:", "127.0.0.1:1?x="), "postgresql://127.0.0.1:1/: no connection: "),
    ],
)
def test_no_connection_is_said(database: str, change: tuple[str, str], message: str) -> None:
    with pytest.raises(TableError, match=message) as refused:
        read_table(Query(database.replace(*change), "staff"), "nodes")
    assert_clean(_traceback(refused.value))


def test_nobody_answers(database: str) -> None:
    port = database.rpartition(":")[2].partition("/")[0]
    with pytest.raises(TableError, match=r"no connection: .*Connection refused") as refused:
        read_table(Query(database.replace(f":{port}/", ":1/"), "staff"), "nodes")
    assert_clean(_traceback(refused.value))


def test_the_password_may_be_in_the_environment(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    bare = database.replace(f":{QUOTED}@", "@")
    assert len(read_table(Query(bare, "staff"), "nodes")) == 60


def _traceback(error: BaseException) -> str:
    """All that Python would show, of what it came from too."""
    text = io.StringIO()
    while error is not None:
        traceback.print_exception(error, file=text)
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return text.getvalue()


def assert_clean(text: str) -> None:
    for secret in (PASSWORD, QUOTED, "s3cret"):
        assert secret not in text


def test_the_password_ends_up_nowhere(
    database: str,
    run_sta: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Train, predict and explain; then everything that was written and printed is searched."""
    said = []

    def sta(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["sta", *arguments])  # which the run's folder keeps
        code, *printed = run_sta(*arguments)
        said.extend(printed)
        return code

    nodes = ["--nodes", database, "--nodes-query", "select * from staff"]
    given = [*nodes, "--edges-query", "links"]
    few = ["--target", "label", "--epochs", "3", "--runs", "1"]
    assert sta("train", *given, *few, "--out", "runs/mine") == 0, said
    assert sta("predict", "runs/mine", *given, "--out", "p.csv") == 0, said
    assert sta("explain", "runs/mine", "p7", *given) == 0, said
    assert sta("report", "runs/mine", "--out", "report.html") == 0, said
    assert sta("train", database) == 2
    assert sta("train", *nodes, database, *few) == 2  # an argument too many is quoted
    assert sta("train", "--nodes", database, "--edges", database, *few) == 2
    assert sta("train", *nodes, "--edges-query", "nobody", *few) == 2
    monkeypatch.setenv("STA_TRACEBACK", "1")
    for wrong in (["train", *nodes, database], ["train", database]):
        with pytest.raises(Exception, match="postgresql") as raised:
            _raw(wrong)
        said.append(_traceback(raised.value))
    assert_clean("".join(said))
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 5
    for path in written:
        content = path.read_bytes()
        for secret in (PASSWORD, QUOTED, "s3cret"):
            assert secret.encode() not in content, path
    assert any(b"postgresql://***@" in path.read_bytes() for path in written)  # the command is kept


def _raw(arguments: list[str]) -> Any:
    """A command whose error comes out as it is."""
    from subtree_attention import cli

    assert os.environ["STA_TRACEBACK"]
    return cli.main(arguments)
