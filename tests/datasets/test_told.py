"""What a table says of nodes: kept as it was written, with names, searched, and on disk."""

import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import subtree_attention as sta
from subtree_attention.datasets import apply_schema, join_tables, store_tables
from subtree_attention.datasets.tables import telling
from subtree_attention.datasets.told import PICTURES, TOLD, Pictures, Texts, Told, excerpt
from subtree_attention.io import FileError
from tests.samples import csv_text

BIDI = "a\u202egnp.exe\u202c\x1b[31m"
EMOJI = "👩‍👩‍👧 família ÉTÉ"
FILMS: dict[str, list[Any]] = {
    "id": ["tt1", "tt2", "alien", "tt4", "TT1"],
    "title": ["Alien", "Alien", None, BIDI, EMOJI],
    "about": ["in space", "again an ALIEN", "x" * 5000, "tt1 is better", "STRASSE straße"],
    "year": [1979, None, 1986, 2001, 2020],
    "label": ["a", "b", "a", None, "b"],
}
LINKS = {"source": ["tt1", "tt2", "alien", "tt4"], "target": ["tt2", "alien", "tt4", "TT1"]}


@pytest.fixture(scope="module")
def films() -> sta.Dataset:
    return sta.from_tables(FILMS, LINKS, "label", id="id", name="title")


def test_columns_are_kept_as_they_were_written(films: sta.Dataset) -> None:
    told = films.told
    assert told is not None
    assert list(told.columns) == ["title", "about", "year", "label"]
    assert [told.columns["year"][node] for node in range(5)] == ["1979", "", "1986", "2001", "2020"]
    assert told.columns["title"][3] == BIDI
    assert told.columns["title"][4] == EMOJI
    assert told.columns["label"][3] == ""
    long = told.columns["about"][2]
    assert len(long) == telling.CELL
    assert long.endswith("x…")


def test_nodes_are_called_by_name_or_else_by_id(films: sta.Dataset) -> None:
    assert [films.title(node) for node in range(5)] == ["Alien", "Alien", "alien", BIDI, EMOJI]
    bare = sta.from_tables(FILMS, LINKS, "label", name="none")
    assert [bare.title(node) for node in range(5)] == FILMS["id"]


def test_a_node_is_found_by_a_name_that_is_its_alone(films: sta.Dataset) -> None:
    assert [films.find(text) for text in ("tt1", "alien", EMOJI)] == [0, 2, 4]
    with pytest.raises(ValueError, match=r"^'tt1' and 'tt2' are called 'Alien': say which by its"):
        films.find("Alien")
    for text in ("", "Alie", "a\0b"):
        with pytest.raises(ValueError, match="there is no node"):
            films.find(text)
    nodes = {"id": ["a", "b", "c", "d", "e"], "title": ["b", "x", "x", "x", "x"]}
    data = sta.from_tables(nodes, {"source": ["a"], "target": ["b"]}, name="title")
    assert data.find("b") == 1  # the id, although the first one is called so
    with pytest.raises(ValueError, match="'b', 'c', 'd' and 1 more are called 'x'"):
        data.find("x")


def test_the_exact_id_comes_first_then_names_then_other_columns(films: sta.Dataset) -> None:
    assert films.found("TT1") == [4, 0, 3]  # the id, the id in another case, a column
    assert films.found("tt1") == [0, 4, 3]
    assert films.found("alien") == [2, 0, 1]  # the second also says so elsewhere: it is there once
    assert films.found("tt")[:4] == [0, 1, 3, 4]
    assert films.found("lie") == [2, 0, 1]
    assert films.found("nothing") == films.found("a\0b") == []
    assert films.found("", 2) == [0, 1]
    assert films.found("alien", 1) == [2]
    assert films.found("alien", 0) == []


def test_upper_and_lower_case_are_one_in_every_script(films: sta.Dataset) -> None:
    assert films.found("FAMÍLIA été") == [4]
    assert [match.excerpt for match in films.matches("STRASSE")] == ["STRASSE straße"]
    assert films.found("strasse STRASSE") == [4]
    assert films.found(BIDI[:5]) == [3]
    assert films.found("👩") == [4]


def test_letters_are_found_with_accents_and_without() -> None:
    nodes = {"id": ["a", "b", "c"], "title": ["Amélie", "Amelie\u0301", "ΆΛΦΑ"]}
    data = sta.from_tables(nodes, {"source": ["a"], "target": ["b"]}, name="title")
    assert data.found("amelie") == data.found("AMÉLIE") == data.found("Amélie") == [0, 1]
    assert data.found("αλφα") == [2]
    assert "Amélie" in excerpt("x" * 500 + " Amélie " + "y" * 500, "amelie")


def test_a_match_says_where_the_text_stands(films: sta.Dataset) -> None:
    node, column, words = films.matches("space")[0]
    assert (node, column, words) == (0, "about", "in space")
    assert films.matches("tt4")[0].column is None
    text = "a" * 500 + " needle " + "b" * 500
    assert "needle" in excerpt(text, "NEEDLE")
    assert len(excerpt(text, "NEEDLE")) < 70


def test_texts_that_share_borders_are_not_found_across_them() -> None:
    texts = Texts.of(["ab", "", "cd", "a\0b"])
    assert [texts[i] for i in range(4)] == ["ab", "", "cd", "a\N{REPLACEMENT CHARACTER}b"]
    assert list(texts.find(b"bc")) == []
    assert list(texts.find(b"", start=True, end=True)) == [1]
    assert list((texts + Texts.of(["ab"])).find(b"ab", start=True)) == [0, 4]
    assert len(Texts.of([])) == 0
    assert Texts.of(["\ud800"])[0] == "\ud800"


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"name": ["x", "y", "z"]}, "name"),
        ({"Title": ["x", "y", None]}, "Title"),
        ({"title": ["x", "y", "z"], "Name": ["x", "y", "z"]}, "Name"),
        ({"name": ["x", "x", "x"]}, None),  # of kinds of nodes
        ({"name": ["x", "y", "z" * 201]}, None),  # texts
        ({"name": [1, 2, 3]}, None),
        ({"named": ["x", "y", "z"]}, None),
        ({"label": ["x", "y", "z"]}, "label"),
    ],
)
def test_the_column_of_names_is_found(columns: dict[str, Any], found: str | None) -> None:
    edges = {"source": ["a"], "target": ["b"]}
    data = sta.from_tables({"id": list("abc"), **columns}, edges)
    assert data.told is not None
    assert data.told.name == found
    assert any("are shown by" in words for words in data.notes.words) == (found is not None)
    target = sta.from_tables({"id": list("abc"), "label": list("xyx")}, edges, "label")
    assert target.told.name is None


def test_a_name_that_is_no_column_is_refused() -> None:
    with pytest.raises(sta.datasets.TableError, match=r"no column 'titel' \(--name\).*Near: title"):
        sta.from_tables(FILMS, LINKS, "label", name="titel")


@pytest.mark.parametrize("kind", ["csv", "parquet", "ndjson", "polars", "pandas"])
def test_every_kind_of_table_is_told(kind: str, tmp_path: Path) -> None:
    frame = pl.DataFrame(FILMS)
    path = tmp_path / f"nodes.{kind}"
    given: Any = {"polars": frame, "pandas": pd.DataFrame(FILMS)}.get(kind, path)
    if kind == "csv":
        path.write_text(csv_text(FILMS), encoding="utf-8")
    elif kind in ("parquet", "ndjson"):
        getattr(frame, f"write_{kind}")(path)
    data = sta.from_tables(given, LINKS, "label", id="id", name="title")
    assert data.title(4) == EMOJI
    assert data.told.columns["year"][0] == "1979"
    assert data.told.columns["year"][1] == ""


def test_lists_records_and_dates_are_told_as_they_stand() -> None:
    day = datetime.date(2026, 11, 18)
    nodes = pl.DataFrame(
        {
            "id": ["a", "b"],
            "tags": [["x", "y"], None],
            "vector": [[float(i) for i in range(40)], [1.5]],
            "record": [{"k": 1}, None],
            "day": [day, None],
            "time": [datetime.datetime(2026, 11, 18, 9, 30), None],
            "yes": [True, None],
            "whole": [7.0, None],
            "large": [3e20, 1.0],
            "bytes": [b"\x00", None],
        }
    )
    told = sta.from_tables(nodes, {"source": ["a"], "target": ["b"]}).told
    assert {name: texts[0] for name, texts in told.columns.items()} == {
        "tags": '["x","y"]',
        "vector": "[" + ",".join(f"{i}.0" for i in range(16)) + "]…",
        "record": '{"k":1}',
        "day": "2026-11-18",
        "time": "2026-11-18 09:30:00",
        "yes": "true",
        "whole": "7",
        "large": "3e+20",
    }
    assert [told.columns[name][1] for name in ("tags", "record", "day", "yes")] == [""] * 4


def test_what_is_too_large_is_left_out_and_said(
    films: sta.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = sum(len(films.told.columns[name].packed) for name in ("title", "label"))
    monkeypatch.setattr(telling, "MOST", room)
    data = sta.from_tables(FILMS, LINKS, "label", id="id", name="title")
    assert list(data.told.columns) == ["title", "label"]  # the names first
    said = [words for words in data.notes.words if "not kept as they are written" in words]
    assert "'about', 'year'" in said[0]


def test_it_lies_beside_a_graph_and_is_read_when_asked_for(
    films: sta.Dataset, tmp_path: Path
) -> None:
    whole = Told(films.told.columns, films.told.name, Pictures.of([b"1", None, b"", b"22", b"3"]))
    whole.write(tmp_path)
    read = Told.read(tmp_path, 5)
    assert "_told" not in vars(read)
    assert (read.name, list(read.columns)) == ("title", list(whole.columns))
    assert read.columns["title"][4] == EMOJI
    assert [read.pictures[node] for node in range(5)] == [b"1", None, None, b"22", b"3"]
    other = Told.read(tmp_path, 4)
    with pytest.raises(FileError, match=r"told.safetensors is broken: .* must be of 4 nodes"):
        _ = other.columns
    with pytest.raises(FileError, match=r"pictures.safetensors is broken: pictures must be of 4"):
        _ = other.pictures
    (tmp_path / TOLD).unlink()
    assert Told.read(tmp_path, 5).columns == {}
    (tmp_path / PICTURES).unlink()
    assert Told.read(tmp_path, 5) is None


@pytest.mark.parametrize("name", [TOLD, PICTURES])
def test_damage_is_told_in_plain_words(name: str, films: sta.Dataset, tmp_path: Path) -> None:
    Told(films.told.columns, "title", Pictures.of([b"1"] * 5)).write(tmp_path)
    content = bytearray((tmp_path / name).read_bytes())
    content[-1] ^= 1
    (tmp_path / name).write_bytes(content)
    told = Told.read(tmp_path, 5)
    with pytest.raises(FileError, match=rf"{name}.*damaged.*: take it from a copy, or do without"):
        _ = told.columns if name == TOLD else told.pictures


def test_other_tables_are_told_too(films: sta.Dataset) -> None:
    new = {"id": ["n1", "n2"], "about": ["first", "second"], "title": ["One", None], "year": [1, 2]}
    edges = {"source": ["n1"], "target": ["n2"]}
    data = apply_schema(films, new | {"year": [None, 3]}, edges)
    assert (data.title(0), data.title(1)) == ("One", "n2")
    joined = join_tables(films, {**new, "more": ["x", "y"]}, {"source": ["n1"], "target": ["tt1"]})
    assert (joined.title(0), joined.title(5), joined.title(6)) == ("Alien", "One", "n2")
    assert joined.told.columns["more"][0] == ""
    assert joined.told.columns["more"][6] == "y"
    assert joined.found("second") == [6]


def test_a_store_keeps_it_too(tmp_path: Path) -> None:
    for name, table in {"nodes": FILMS, "edges": LINKS}.items():
        pl.DataFrame(table).write_parquet(tmp_path / f"{name}.parquet")
    given = tmp_path / "nodes.parquet", tmp_path / "edges.parquet", "label", tmp_path / "store"
    store = store_tables(*given, id="id", name="title")
    assert store.dataset.title(4) == EMOJI
    assert store.dataset.found("space") == [0]
    content = bytearray((tmp_path / "store" / TOLD).read_bytes())
    content[-1] ^= 1
    (tmp_path / "store" / TOLD).write_bytes(content)
    with pytest.raises(FileError, match="damaged"):
        sta.datasets.Store.open(tmp_path / "store", verify=True)


def test_it_must_be_of_the_nodes(films: sta.Dataset) -> None:
    with pytest.raises(ValueError, match="the column 'a' must be of 5 nodes, not of 1"):
        sta.Dataset(films.x, films.edge_index, films.y, told=Told({"a": Texts.of(["x"])}))
    with pytest.raises(ValueError, match="no column 'b' that could name nodes"):
        sta.Dataset(films.x, films.edge_index, films.y, told=Told(name="b"))
