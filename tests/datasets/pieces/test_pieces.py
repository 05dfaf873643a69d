"""The pieces of all ranks, put together, are what one process reads from the whole tables."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from subtree_attention.datasets import TableError, from_tables, planted, tabular, write_tables
from subtree_attention.datasets.features import is_csr
from subtree_attention.datasets.pieces import Piece, read_piece
from subtree_attention.datasets.tables.ranks import Lost
from subtree_attention.partition import Partition

from .processes import Case, found, growth, run

WORDS = (
    "red",
    "green",
    "blue",
    "quick",
    "slow",
    "old",
    "new",
    "house",
    "tree",
    "river",
    "cloud",
    "stone",
    "paper",
    "glass",
    "iron",
)


def people(count: int, seed: int = 0) -> pl.DataFrame:
    """A table with a column of every kind."""
    draw = np.random.default_rng(seed)

    def some(column: list[Any], share: float = 0.1) -> list[Any]:
        gone = draw.random(len(column)) < share
        return [None if lacks else value for value, lacks in zip(column, gone, strict=True)]

    wild = draw.standard_normal(count)
    wild[draw.integers(0, count, 3)] = [1e9, -1e8, 1e7]
    return pl.DataFrame(
        {
            "id": [f"n{i * 7 % count}" for i in range(count)],
            "age": some(draw.normal(40, 12, count).tolist()),
            "wild": wild,
            "tiny": draw.normal(0, 1e-200, count),
            "whole": draw.integers(0, 50, count),
            "colour": some(draw.choice(WORDS[:3], count).tolist()),
            "tags": some([draw.choice(WORDS, n).tolist() for n in draw.integers(0, 4, count)]),
            "vector": some([row.tolist() for row in draw.normal(3, 2, (count, 5))], 0.05),
            "day": [f"2024-0{m}-1{d}" for m, d in draw.integers(1, 9, (count, 2))],
            "story": some([" ".join(draw.choice(WORDS, 6)) for _ in range(count)]),
            "account_no": [10_000 + i for i in range(count)],
            "same": ["x"] * count,
            "flag": draw.random(count) < 0.3,
            "label": some(draw.choice(["a", "b", "c"], count).tolist(), 0.2),
            "score": some(draw.lognormal(0, 2, count).tolist()),
            "topics": some(
                [draw.choice(WORDS[:4], n).tolist() for n in draw.integers(0, 3, count)]
            ),
            "part": some(draw.choice(["train", "val", "test"], count).tolist()),
        }
    )


def links(nodes: pl.DataFrame, count: int, seed: int = 1) -> pl.DataFrame:
    """Edges, some of them twice or loops."""
    ends = np.random.default_rng(seed).integers(0, len(nodes), (count, 2))
    ends = np.concatenate([ends, ends[:20], ends[20:40, ::-1]])
    weight = np.random.default_rng(seed).random(len(ends))
    return pl.DataFrame(
        {
            "source": nodes["id"][ends[:, 0]],
            "target": nodes["id"][ends[:, 1]],
            "weight": weight,
        }
    )


def texts(frame: pl.DataFrame) -> pl.DataFrame:
    """Columns as people write them."""
    return frame.with_columns(
        age=pl.col("age").round(2).cast(pl.String).str.replace(".", ",", literal=True),
        whole=pl.when(pl.col("whole") == 7).then(pl.lit("?")).otherwise(pl.col("whole")),
        tags=pl.col("tags").list.join(";"),
        vector="[" + pl.col("vector").list.eval(pl.element().cast(pl.String)).list.join(" ") + "]",
        topics=pl.col("topics").list.join(";"),
        day=pl.col("day").str.to_date().dt.strftime("%d.%m.%Y"),
        label=pl.col("label").fill_null("n/a"),
    )


def write(frame: pl.DataFrame, folder: Path, cuts: list[int], kind: str = "parquet") -> str:
    """A folder of parts that end at rows; what Spark puts beside them is there too."""
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    bounds = [0, *cuts, len(frame)]
    for number, (start, end) in enumerate(pairwise(bounds)):
        part, path = frame[start:end], folder / f"part-{number:05}.{kind}"
        part.write_parquet(path) if kind == "parquet" else part.write_csv(path)
    return str(folder)


def make(root: Path) -> list[Case]:
    """Tables that are read, and tables that are refused."""
    nodes, numbered = people(300), people(240, 5).with_columns(id=pl.int_range(240))
    edges = links(nodes, 900)
    sides = write(nodes, root / "nodes", [100, 100, 110, 250]), write(edges, root / "edges", [300])
    flat = (
        write(texts(nodes), root / "texts", [20, 200], "csv"),
        write(edges, root / "ends", [], "csv"),
    )
    rows = write(numbered, root / "numbered", []), write(links(numbered, 600), root / "few", [1])
    wide = pl.DataFrame(
        {
            "id": [f"p{i}" for i in range(120)],
            "abstract": [" ".join(f"w{(i * k) % 97}" for k in range(1, 7)) for i in range(120)],
            "kind": [f"k{i % 3}" for i in range(120)],
        }
    )
    papers = write(wide, root / "wide", [5, 60, 90]), write(links(wide, 300), root / "cited", [9])
    lost = links(nodes, 500).with_columns(
        target=pl.when(pl.int_range(pl.len()) % 9 == 4).then(pl.lit("N5")).otherwise("target")
    )
    off = write(lost, root / "lost", [50, 60, 70])
    rest = {"leave_out": ["score", "topics"]}
    named = {"target": "label", "split_column": "part", **rest}
    fine = [
        Case("classes", *sides, named, (1, 2, 4)),
        Case("texts", *flat, named, (4,)),
        Case("number", *flat, {"target": "score", "task": "regression", "leave_out": ["label"]}),
        Case("labels", *sides, {"target": "topics", "task": "multilabel", "weight": "weight"}),
        Case("label-texts", *flat, {"target": "topics", "task": "multilabel"}),
        Case("rows", *rows, {**named, "weight": "weight", "directed": True}, (4,)),
        Case("sparse", *papers, {"target": "kind"}, (1, 4)),
        Case("links", *papers, {"task": "link"}),
        Case("dropped", sides[0], off, {"target": "label", "unknown_ends": "drop"}, (4,)),
        Case("asked", *flat, {"target": "label", "features": ["whole:category", "day", "age"]}),
    ]
    assert [case.name for case in fine] == list(FINE)
    made = planted(16_000, 40_000, 3, 400)
    large = str(write_tables(made, root / "made", parts=8))
    parts = f"{large}/nodes", f"{large}/edges", {"target": "class", "split_column": "split"}
    grouped = write_tables(planted(4_000, 12_000, 4, 1, homophily=0.95), root / "grouped", parts=4)
    sides = f"{grouped}/nodes", f"{grouped}/edges", {"target": "class"}
    return [
        *fine,
        *refused(root, nodes, edges, lost),
        Case("large", *parts, (4,), measured=True),
        Case("grouped", *sides, (4,), drawn=True, passes=20),
    ]


FINE = (
    "classes",
    "texts",
    "number",
    "labels",
    "label-texts",
    "rows",
    "sparse",
    "links",
    "dropped",
    "asked",
)


def refused(root: Path, nodes: pl.DataFrame, edges: pl.DataFrame, lost: pl.DataFrame) -> list[Case]:
    """What is wrong is in the parts of some ranks only."""
    nodes = nodes.select("id", "age", "label", "part", "colour")
    last = pl.int_range(pl.len()) == 299
    cuts, good = [100, 200, 280], write(edges, root / "good-edges", [400])

    def spoilt(name: str, kind: str = "parquet", **columns: pl.Expr) -> str:
        return write(nodes.with_columns(**columns), root / name, cuts, kind)

    def but(column: str, value: Any) -> pl.Expr:
        return pl.when(last).then(pl.lit(value)).otherwise(pl.col(column))

    plain = spoilt("plain")
    broken = Path(spoilt("broken"))
    (broken / "part-00003.parquet").write_bytes(b"no table")
    other = Path(spoilt("other"))
    nodes[280:].rename({"age": "years"}).write_parquet(other / "part-00003.parquet")
    types = Path(spoilt("types"))
    nodes[280:].cast({"age": pl.String}).write_parquet(types / "part-00003.parquet")
    heavy = edges.with_columns(
        weight=pl.when(pl.int_range(pl.len()) > 930).then(-1.0).otherwise(1.0)
    )
    asked = {"target": "label"}
    tables = {
        "twice": (spoilt("same-ids", id=but("id", "n0")), good, asked),
        "unnamed": (spoilt("no-id", id=but("id", None)), good, asked),
        "unknown": (plain, write(lost, root / "unknown-ends", [50, 60, 70]), asked),
        "nowhere": (
            plain,
            write(edges.select(source=pl.lit("x"), target=pl.lit("y")), root / "no", [5]),
            asked,
        ),
        "negative": (plain, write(heavy, root / "heavy", [400]), {**asked, "weight": "weight"}),
        "parts": (
            spoilt("words", part=but("part", "dev?")),
            good,
            {**asked, "split_column": "part"},
        ),
        "column": (plain, good, {"target": "lable"}),
        "empty": (spoilt("gone", label=pl.lit(None, pl.String)), good, asked),
        "number": (
            spoilt("numbers", "csv", age=but("age", None).cast(pl.String).fill_null("old")),
            good,
            {**asked, "features": ["age:number"]},
        ),
        "broken": (str(broken), good, asked),
        "other": (str(other), good, asked),
        "types": (str(types), good, asked),
        "missing": (str(root / "nowhere"), good, asked),
        "task": (plain, good, {**asked, "task": "ranking"}),
    }
    assert list(tables) == list(REFUSED)
    sizes = {"twice": (4,), "unknown": (4,), "broken": (4,)}
    return [Case(f"no-{name}", *case, sizes=sizes.get(name, (2,))) for name, case in tables.items()]


REFUSED = (
    "twice",
    "unnamed",
    "unknown",
    "nowhere",
    "negative",
    "parts",
    "column",
    "empty",
    "number",
    "broken",
    "other",
    "types",
    "missing",
    "task",
)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("tables")
    out = root / "out"
    out.mkdir()
    some = make(root)
    run(some, out)
    return {"out": out, **{case.name: case for case in some}}


@pytest.mark.parametrize("name", FINE)
def test_together_they_are_the_whole(cases: dict[str, Any], name: str) -> None:
    case = cases[name]
    whole = from_tables(case.nodes, case.edges, **case.asked)
    for size in case.sizes:
        pieces = found(cases["out"], case, size)
        for rank, piece in enumerate(pieces):
            assert isinstance(piece, Piece), piece
            assert piece.classes == whole.classes
            assert piece.schema == whole.schema
            assert piece.notes.to_dict() == whole.notes.to_dict()
            assert (piece.num_nodes, piece.num_edges) == (whole.num_nodes, whole.num_edges)
            assert torch.equal(piece.partition, pieces[0].partition)
            assert torch.equal(piece.nodes, (piece.partition == rank).nonzero().flatten())
            assert is_csr(piece.x) == is_csr(whole.x)
            assert torch.equal(piece.x.to_dense(), whole.x.to_dense()[piece.nodes])
            assert torch.equal(piece.y.nan_to_num(-7), whole.y[piece.nodes].nan_to_num(-7))
            assert piece.ids == [whole.node_ids[node] for node in piece.nodes.tolist()]
            assert (piece.partition[piece.edge_index[1]] == rank).all()
            assert (piece.split is None) == ("split_column" not in case.asked)
            for mask, all in zip(
                piece.split or (), whole.splits and whole.split("own"), strict=True
            ):
                assert torch.equal(mask, all[piece.nodes])
        assert edges_of(*pieces) == edges_of(whole)


@pytest.mark.parametrize("name", [name for name in FINE if name != "rows"])  # of one file
def test_no_rank_reads_all(cases: dict[str, Any], name: str) -> None:
    for size in cases[name].sizes:
        pieces = found(cases["out"], cases[name], size)
        files = [set(piece.read) for piece in pieces]
        there = set().union(*files)
        assert size == 1 or all(some < there for some in files)
        mean = pieces[0].num_nodes / size
        assert max(len(piece.nodes) for piece in pieces) <= max(1.05 * mean, mean + 1)


@pytest.mark.parametrize("name", REFUSED)
def test_all_ranks_say_the_same(cases: dict[str, Any], name: str) -> None:
    case = cases[f"no-{name}"]
    with pytest.raises(ValueError, match=r".") as refusal:
        from_tables(case.nodes, case.edges, **case.asked)
    kind, words = type(refusal.value).__name__, str(refusal.value)
    (size,) = case.sizes
    assert found(cases["out"], case, size) == [(kind, words)] * size


def test_few_edges_lead_to_nodes_of_others(cases: dict[str, Any]) -> None:
    pieces = found(cases["out"], cases["grouped"], 4)
    whole = Partition(pieces[0].partition, 4)
    cut = sum(whole.cut(piece.edge_index) for piece in pieces) / pieces[0].num_edges
    assert cut < 0.3  # by chance 0.75
    assert int(whole.sizes.max()) <= 1.05 * 1_000


def test_a_random_split_is_that_of_the_whole(cases: dict[str, Any]) -> None:
    case = cases["grouped"]
    whole = from_tables(case.nodes, case.edges, **case.asked).split("A", 3)
    for rank, piece in enumerate(found(cases["out"], case, 4)):
        drawn = torch.load(cases["out"] / f"grouped-drawn-{rank}.pt", weights_only=False)
        for mask, all in zip(drawn, whole, strict=True):
            assert torch.equal(mask, all[piece.nodes])


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux counts memory so")
def test_a_rank_needs_less_memory_than_one_process(cases: dict[str, Any]) -> None:
    whole, *ranks = (growth(cases["out"], cases["large"], who) for who in ("whole", 1, 2, 3))
    assert 0 < max(ranks) < 0.6 * whole


def test_without_processes_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"init_process_group\('gloo'\)"):
        read_piece(tmp_path, tmp_path, "label")


class TestAlone:
    """One process that is a group by itself."""

    @pytest.fixture(autouse=True)
    def group(self) -> Iterator[None]:
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        yield
        torch.distributed.destroy_process_group()

    @pytest.fixture
    def sides(self, tmp_path: Path) -> tuple[str, str]:
        folder = write_tables(planted(40, 90, 2, 3), tmp_path / "made", parts=2)
        return f"{folder}/nodes", f"{folder}/edges"

    def test_a_rank_that_is_gone_is_named(
        self, sides: tuple[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def gone(*_: object, **__: object) -> None:
            raise RuntimeError("[gloo/pair.cc:553] Connection closed by peer")

        monkeypatch.setattr(torch.distributed, "all_gather", gone)
        with pytest.raises(Lost, match=r"rank 0 .* any more \(Connection closed by peer\)"):
            read_piece(*sides, "class")

    def test_an_error_of_any_kind_is_raised(
        self, sides: tuple[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError("no such device")

        monkeypatch.setattr(tabular, "fit_columns", full)
        with pytest.raises(OSError, match="no such device"):
            read_piece(*sides, "class")

    def test_what_only_one_process_can_read_is_refused(
        self, sides: tuple[str, str], tmp_path: Path
    ) -> None:
        (tmp_path / "people.xlsx").write_bytes(b"a book")
        with pytest.raises(TableError, match="save it as Parquet, best as a folder"):
            read_piece(tmp_path / "people.xlsx", sides[1])
        with pytest.raises(TypeError, match="nodes must be a path"):
            read_piece({"id": [1]}, sides[1])  # type: ignore[arg-type]


def edges_of(*graphs: Any) -> list[tuple[float, ...]]:
    """All edges, with their weights, in order."""
    rows = []
    for graph in graphs:
        weight = graph.edge_weight
        weight = torch.ones(graph.edge_index.size(1)) if weight is None else weight
        rows += [
            (*ends, w) for ends, w in zip(graph.edge_index.T.tolist(), weight.tolist(), strict=True)
        ]
    return sorted(rows)
