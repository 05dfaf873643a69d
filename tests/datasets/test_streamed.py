"""Tables that are read in parts into a store: it is what `from_tables` makes of the whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from subtree_attention import datasets
from subtree_attention.datasets import Dataset, TableError, disk, streamed
from subtree_attention.datasets.tables import columns, spool, table
from subtree_attention.datasets.tables.sources import shares

N, E = 240, 900
WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part is one of many."""
    for module, name, rows in (
        (spool, "ROWS", 37),
        (table, "ROWS", 23),
        (shares, "AT_A_TIME", 50),
        (streamed, "EDGES", 31),
        (columns, "TEXTS", 100),
        (disk, "EDGES", 29),
        (disk, "SORTED", 64),
    ):
        monkeypatch.setattr(module, name, rows)


def people(ids: list[Any]) -> dict[str, list[Any]]:
    """Columns of every kind, and some that are none."""
    draw = np.random.default_rng(0)
    days = [f"19{draw.integers(10, 99)}-0{draw.integers(1, 9)}-1{draw.integers(0, 9)}" for _ in ids]
    return {
        "id": ids,
        "age": draw.integers(0, 90, N).tolist(),
        "income": [None if draw.random() < 0.1 else float(v) for v in draw.normal(size=N) ** 5],
        "city": [None if draw.random() < 0.1 else str(draw.choice(["a", "b", "c"])) for _ in ids],
        "born": days,
        "bio": [" ".join(draw.choice(WORDS, 6)) + f" w{i}" for i in range(N)],
        "name": [f"somebody{i}" for i in range(N)],
        "same": ["x"] * N,
        "label": [None if draw.random() < 0.1 else str(draw.choice(["u", "v"])) for _ in ids],
        "part": draw.choice(["train", "val", "test"], N).tolist(),
    }


def lists() -> dict[str, list[Any]]:
    draw = np.random.default_rng(1)
    return {
        "vector": [[float(v) for v in draw.normal(size=5)] if i % 7 else None for i in range(N)],
        "tags": [draw.choice(WORDS, draw.integers(0, 3), replace=False).tolist() for _ in range(N)],
    }


def links(ids: list[Any]) -> dict[str, list[Any]]:
    draw = np.random.default_rng(2)
    ends = (draw.choice(np.array(ids), E).tolist() for _ in range(2))
    return dict(zip(("source", "target"), ends, strict=True)) | {"w": draw.random(E).tolist()}


NAMES: dict[str, list[Any]] = {
    "texts": [f"p{i}" for i in np.random.default_rng(3).permutation(N)],
    "numbers": list(range(N)),
    "near": [int(i) + 5 for i in np.random.default_rng(4).permutation(N)],
    "far": [int(i) * 10_000_019 - 7 for i in np.random.default_rng(5).permutation(N)],
}
ASKED: dict[str, dict[str, Any]] = {
    "plain": {},
    "weighted": {"weight": "w"},
    "directed": {"weight": "w", "directed": True, "split_column": "part"},
    "numbers only": {"features": ["age", "income", "vector"], "directed": True},
    "few columns": {"features": ["age", "city:category", "tags"]},
    "no features": {"features": []},
}


def same(nodes: Any, edges: Any, target: str | None, folder: Path, **asked: Any) -> Dataset:
    """The graph of a store, which is that of the whole tables."""
    wanted = datasets.from_tables(nodes, edges, target, **asked)
    store = datasets.store_tables(nodes, edges, target, folder, **asked)
    store.verify()
    found = store.dataset
    assert found.x.layout == wanted.x.layout
    assert torch.equal(found.x.to_dense(), wanted.x.to_dense())
    assert found.y.dtype == wanted.y.dtype
    assert np.array_equal(found.y.numpy(), wanted.y.numpy(), equal_nan=found.y.is_floating_point())
    for name in ("classes", "ids", "schema", "notes", "source", "name", "own"):
        assert getattr(found, name) == getattr(wanted, name), name
    assert found.splits.keys() == wanted.splits.keys()
    assert all(torch.equal(found.splits[kind], wanted.splits[kind]) for kind in wanted.splits)
    order = (wanted.edge_index[1] * wanted.num_nodes + wanted.edge_index[0]).argsort()
    assert torch.equal(found.edge_index, wanted.edge_index[:, order])
    assert (found.edge_weight is None) == (wanted.edge_weight is None)
    if found.edge_weight is not None and wanted.edge_weight is not None:
        assert torch.equal(found.edge_weight, wanted.edge_weight[order])
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    return found


@pytest.mark.parametrize("asked", ASKED)
def test_parquet_in_parts_is_the_whole(asked: str, tmp_path: Path) -> None:
    ids = NAMES["texts"]
    pl.DataFrame(people(ids) | lists()).write_parquet(tmp_path / "nodes.parquet")
    pl.DataFrame(links(ids)).write_parquet(tmp_path / "edges.parquet")
    given = tmp_path / "nodes.parquet", tmp_path / "edges.parquet", "label", tmp_path / "store"
    same(*given, **ASKED[asked])


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("csv", "texts"),
        ("csv", "numbers"),
        ("parquet", "near"),
        ("parquet", "far"),
        ("ndjson", "near"),
    ],
)
def test_a_folder_of_files_is_read_one_after_the_other(
    kind: str, names: str, tmp_path: Path
) -> None:
    ids = NAMES[names]
    tables = {"nodes": people(ids), "edges": links(ids)}
    if kind != "csv":
        tables["nodes"] |= lists()
    for what, content in tables.items():
        (tmp_path / what).mkdir()
        frame = pl.DataFrame(content)
        for part, start in enumerate(range(0, len(frame), 100)):
            path = tmp_path / what / f"part-{part}.{kind}"
            getattr(frame[start : start + 100], f"write_{kind}")(path)
    same(tmp_path / "nodes", tmp_path / "edges", "label", tmp_path / "store", weight="w")


def test_vectors_and_tags_as_texts(tmp_path: Path) -> None:
    ids = NAMES["texts"]
    written = {
        "vector": [json.dumps(v) if v else None for v in lists()["vector"]],
        "tags": [";".join(v) or None for v in lists()["tags"]],
    }
    pl.DataFrame(people(ids) | written).write_csv(tmp_path / "nodes.csv")
    pl.DataFrame(links(ids)).write_csv(tmp_path / "edges.csv")
    given = tmp_path / "nodes.csv", tmp_path / "edges.csv"
    data = same(*given, "label", tmp_path / "a")
    assert data.schema is not None
    kinds = {column.name: column.kind for column in data.schema.columns}
    assert (kinds["vector"], kinds["tags"]) == ("vector", "tags")
    same(*given, "age", tmp_path / "b", task="regression")
    same(*given, "tags", tmp_path / "c", task="multilabel")
    same(*given, None, tmp_path / "d", task="link-prediction")


def test_tables_that_are_in_memory_are_taken_too(tmp_path: Path) -> None:
    ids = NAMES["far"]
    nodes, edges = pl.DataFrame(people(ids) | lists()), links(ids)
    same(nodes, edges, "label", tmp_path / "store", weight="w")


def test_ends_that_are_no_nodes(tmp_path: Path) -> None:
    ids = NAMES["near"]
    edges = links(ids)
    edges["target"][70], edges["source"][700] = 10**9, 10**9
    pl.DataFrame(people(ids)).write_parquet(tmp_path / "nodes.parquet")
    pl.DataFrame(edges).write_parquet(tmp_path / "edges.parquet")
    given = tmp_path / "nodes.parquet", tmp_path / "edges.parquet", "label"
    same(*given, tmp_path / "store", unknown_ends="drop")
    with pytest.raises(TableError) as whole:
        datasets.from_tables(*given)
    with pytest.raises(TableError) as parts:
        datasets.store_tables(*given, tmp_path / "other")
    assert str(parts.value) == str(whole.value)
    assert "row 71: the edge" in str(parts.value)
    assert not (tmp_path / "other").exists()


def test_a_wrong_cell_is_named_with_its_place(tmp_path: Path) -> None:
    ids = NAMES["texts"]
    content = people(ids) | lists()
    content["vector"][123] = [1.0]
    pl.DataFrame(content).write_parquet(tmp_path / "nodes.parquet")
    pl.DataFrame(links(ids)).write_parquet(tmp_path / "edges.parquet")
    given = tmp_path / "nodes.parquet", tmp_path / "edges.parquet", "label"
    words = "row 124: column 'vector' holds vectors of 5 numbers, but one of 1 there"
    for call in (
        lambda: datasets.from_tables(*given, features=["vector:vector"]),
        lambda: datasets.store_tables(*given, tmp_path / "s", features=["vector:vector"]),
    ):
        with pytest.raises(TableError, match=words):
            call()


def test_a_column_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = NAMES["texts"]
    pl.DataFrame(people(ids)).write_parquet(tmp_path / "nodes.parquet")
    pl.DataFrame(links(ids)).write_parquet(tmp_path / "edges.parquet")
    given = tmp_path / "nodes.parquet", tmp_path / "edges.parquet", "label", tmp_path / "store"
    monkeypatch.setattr(spool, "MOST", 8000)
    with pytest.raises(TableError, match=r"column 'bio' holds .* not read at once: leave it out"):
        datasets.store_tables(*given)


@pytest.mark.parametrize("asked", [None, ["vector:vector", "tags:tags"]])
def test_lists_are_never_in_memory(
    asked: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = NAMES["texts"]
    fixed = pl.Series("fixed", np.random.default_rng(6).normal(size=(N, 9)))
    nodes = pl.DataFrame({"id": ids, "label": people(ids)["label"], **lists()})
    nodes.with_columns(fixed).write_parquet(tmp_path / "nodes.parquet")
    pl.DataFrame(links(ids)).write_parquet(tmp_path / "edges.parquet")
    given = tmp_path / "nodes.parquet", tmp_path / "edges.parquet", "label", tmp_path / "store"
    monkeypatch.setattr(spool, "MOST", 8000)  # ids and labels have less, vectors and tags more
    same(*given, features=asked)


def test_many_graphs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"many graphs .* are not read in parts: use from_tables"):
        datasets.store_tables({}, {}, "label", tmp_path / "store", graph_column="graph")


@pytest.mark.parametrize("name", ["twitch-es", "wiki-chameleon"])
def test_real_tables(
    name: str, mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "ROWS", 1000)
    monkeypatch.setattr(spool, "ROWS", 700)
    monkeypatch.setattr(streamed, "EDGES", 7000)
    monkeypatch.setattr(disk, "EDGES", 5000)
    monkeypatch.setattr(disk, "SORTED", 9000)
    folder = mirror / "tables" / name
    nodes = pl.read_csv(folder / "target.csv")
    id = "new_id" if "new_id" in nodes.columns else "id"
    tags = json.loads((folder / "features.json").read_text())
    nodes = nodes.with_columns(
        tags=pl.Series([[str(t) for t in tags.get(str(i), [])] for i in nodes[id]])
    )
    nodes.write_parquet(tmp_path / "nodes.parquet")
    target, task = (
        ("mature", "classification") if "new_id" in nodes.columns else ("target", "regression")
    )
    given = tmp_path / "nodes.parquet", folder / "edges.csv", target, tmp_path / "store"
    same(*given, id=id, task=task)
