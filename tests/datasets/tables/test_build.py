"""From tables and other sources to one kind of graph."""

import re
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

import subtree_attention as sta
from subtree_attention.datasets import Dataset, TableError, apply_schema, join_tables
from tests.samples import csv_text, friends, people


def same(a: Dataset, b: Dataset) -> bool:
    x = torch.allclose(a.x.to_dense(), b.x.to_dense(), atol=1e-6)  # float32 of the same numbers
    tensors = ("edge_index", "edge_weight", "y")
    equal = (torch.equal(getattr(a, name), getattr(b, name)) for name in tensors)
    return x and a.ids == b.ids and all(equal)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return sta.from_tables(people(), friends(), target="label", weight="strength")


def test_paths_and_frames_give_the_same_graph(data: Dataset, tmp_path: Path) -> None:
    nodes, edges = people(), friends()
    frames = [pl.DataFrame(nodes), pl.DataFrame(edges)]
    sources: list[list] = [frames, [pd.DataFrame(nodes), pd.DataFrame(edges)]]
    paths = [[tmp_path / f"{name}.{end}" for name in "ne"] for end in ("csv", "parquet", "tsv")]
    for frame, columns, csv, parquet, tsv in zip(frames, (nodes, edges), *paths, strict=True):
        csv.write_text(csv_text(columns))
        frame.write_parquet(parquet)
        frame.write_csv(tsv, separator="\t")
    for source in [*sources, *paths]:
        again = sta.from_tables(*source, target="label", weight="strength")
        assert same(again, data), source
        assert again.classes == data.classes == ("k", "o", "r")


def test_what_the_graph_holds(data: Dataset) -> None:
    nodes = people()
    assert data.ids == nodes["id"]
    named = [data.classes[y] if y >= 0 else None for y in data.y.tolist()]
    assert named == nodes["label"]
    assert [column.kind for column in data.schema.columns] == ["number", "category", "text", "tags"]
    assert data.x.shape == (60, data.schema.width)
    assert data.splits == {}
    assert any("10 to be predicted" in note for note in data.notes.words)


def test_ids_of_any_type_are_the_same_as_text() -> None:
    nodes = {"id": [1, "b", 2], "v": [1, 2, 3], "label": ["x", "y", "x"]}
    data = sta.from_tables(nodes, {"source": ["1", "b"], "target": ["b", "2"]}, target="label")
    assert data.ids == ["1", "b", "2"]
    floats = pd.DataFrame({"id": [1.0, 2.0, 3.0], "v": [1, 2, 3], "label": ["x", "y", "x"]})
    data = sta.from_tables(floats, {"s": [1, 2], "t": ["2", "3"]}, target="label")
    assert data.ids == ["1", "2", "3"]
    assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 2, 0, 1]]


EDGES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 9)), min_size=1)


@given(EDGES, st.booleans(), st.booleans())
def test_edges_equal_a_dense_adjacency(edges: list, directed: bool, weighted: bool) -> None:
    nodes = {"id": range(6), "v": range(6), "label": list("xyxyxy")}
    table = dict(zip(("source", "target", "w"), zip(*edges, strict=True), strict=True))
    options = {"weight": "w" if weighted else None, "directed": directed}
    data = sta.from_tables(nodes, table, target="label", **options)
    dense = np.zeros((6, 6))
    for source, target, weight in edges:
        dense[source, target] += weight
        if not directed and source != target:
            dense[target, source] += weight
    values = data.edge_weight if weighted else torch.ones(data.num_edges)
    got = scipy.sparse.coo_matrix((values, data.edge_index.numpy()), shape=(6, 6)).toarray()
    assert (got == (dense if weighted else dense > 0)).all()


def test_everything_that_is_done_to_edges_is_counted() -> None:
    nodes = {"id": ["a", "b", "c"], "v": [1, 2, 3], "label": ["x", "y", "x"]}
    edges = {"from": ["a", "b", "a", "c", "z"], "to": ["b", "a", "c", "c", "a"], "since": [1] * 5}
    data = sta.from_tables(nodes, edges, target="label", unknown_ends="drop")
    notes = "\n".join(data.notes.words)
    for words in (
        "5 rows, 5 edges (both directions)",
        "1 edge to unknown nodes, dropped (the first: z -> a)",
        "1 duplicate edge, merged into one",
        "1 self-loop, kept",
        "columns of the edges that are not used: since; --weight takes weights",
        "1 class with one node ('y'): too few to split, for training only",
    ):
        assert words in notes


def test_a_split_column_gives_masks_of_labelled_nodes() -> None:
    nodes = {
        "id": range(6),
        "v": range(6),
        "fold": ["train", "Training", "dev", "test", "test", None],
        "label": ["x", "y", "x", "y", None, "x"],
    }
    data = sta.from_tables(nodes, {"s": [0], "t": [1]}, target="label", split_column="fold")
    masks = [mask.nonzero().flatten().tolist() for mask in data.split("own")]
    assert masks == [[0, 1], [2], [3]]
    assert "1 node of the split without a label, in no part" in data.notes.words
    assert [column.name for column in data.schema.columns] == ["v"]


def test_new_tables_by_the_old_schema(data: Dataset) -> None:
    again = apply_schema(data, people(), friends())
    assert same(again, data)
    nodes = people(7, seed=1)
    nodes["city"][0] = "Paris"
    new = apply_schema(data, nodes, friends(7, 9))
    assert new.x.shape == (7, data.num_features)
    assert next(line for line in new.notes.columns if line.name == "city").unseen == 1
    del nodes["about"], nodes["label"]
    with pytest.raises(TableError, match=r"no column 'about' \(a feature of the model\)"):
        apply_schema(data, nodes, friends(7, 9))


def test_new_nodes_join_the_graph(data: Dataset) -> None:
    nodes = people(5, seed=2, prefix="n")
    edges = {"source": ["n0", "n1", "p3"], "target": ["p0", "n0", "p4"], "strength": [1, 2, 3]}
    joined = join_tables(data, nodes, edges)
    assert joined.ids == data.ids + nodes["id"]
    assert torch.equal(joined.x[:60], data.x)
    graphs = [sta.Graph.from_data(d, transition=None).dense() for d in (joined, data)]
    added = graphs[0]
    added[:60, :60] -= graphs[1]
    expected = torch.zeros(65, 65, dtype=torch.float64)
    for i, j, weight in ((60, 0, 1), (61, 60, 2), (3, 4, 3)):
        expected[i, j] = expected[j, i] = weight
    assert torch.equal(added, expected)
    with pytest.raises(TableError, match="the node 'p0' is in the graph of the run already"):
        join_tables(data, people(5), edges)


# --------------------------------------------------------------------------------- other sources


def test_networkx_gives_the_same_graph(data: Dataset) -> None:
    nodes, edges = people(), friends()
    graph = nx.MultiGraph()
    names = [name for name in nodes if name != "id"]
    for row in zip(nodes["id"], *(nodes[name] for name in names), strict=True):
        graph.add_node(row[0], **dict(zip(names, row[1:], strict=True)))
    for source, target, strength in zip(*edges.values(), strict=True):
        graph.add_edge(source, target, strength=strength)
    assert same(sta.from_networkx(graph, "label", weight="strength"), data)
    ways = nx.DiGraph([("a", "b"), ("b", "c")])
    nx.set_node_attributes(ways, {"a": "x", "b": "y", "c": "x"}, "label")
    assert sta.from_networkx(ways, "label").edge_index.tolist() == [[0, 1], [1, 2]]


def test_pyg_and_npz_give_the_same_graph(tmp_path: Path) -> None:
    x, y = torch.rand(6, 3), torch.tensor([0, 1, 2, -1, 1, 0])
    edge_index = to_undirected(torch.tensor([[0, 1, 2], [1, 2, 3]]))
    data = sta.from_pyg(Data(x=x, edge_index=edge_index, y=y))
    arrays = {"edge_index": edge_index.numpy(), "y": y.numpy()}
    np.savez(tmp_path / "dense.npz", x=x.numpy(), **arrays)
    csr = scipy.sparse.csr_matrix(x.numpy())
    parts = {"x_data": csr.data, "x_indices": csr.indices, "x_indptr": csr.indptr}
    np.savez(tmp_path / "sparse.npz", **parts, x_shape=np.array(csr.shape), **arrays)
    assert data.node_ids == ["0", "1", "2", "3", "4", "5"]
    named = sta.from_pyg(Data(x=x, edge_index=edge_index, y=y, ids=torch.arange(10, 16)))
    assert named.ids == ["10", "11", "12", "13", "14", "15"]
    assert data.classes == ("0", "1", "2")
    for name in ("dense.npz", "sparse.npz"):
        again = sta.from_npz(tmp_path / name)
        assert torch.equal(again.x.to_dense(), x)
        assert torch.equal(again.edge_index, edge_index)
        assert (again.ids, again.classes, again.y.tolist()) == (data.ids, data.classes, y.tolist())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edge_index": np.array([[0], [9]])}, "names a node outside 0..3"),
        ({"y": np.array([0, 1])}, "a whole number for each of 4 nodes"),
        ({"y": np.array([0.2, 1.7, 0, np.inf])}, "y must be finite, and NaN where it is not known"),
        ({"edge_index": np.array([[0.0], [1]])}, "edge_index must hold whole numbers"),
        (
            {"edge_weight": np.array([1.0, 2])},
            "edge_weight must be a number of at least 0 for each",
        ),
        ({"edge_weight": np.array([np.nan])}, "edge_weight must be a number of at least 0"),
        ({"edge_weight": np.array([-1.0])}, "edge_weight must be a number of at least 0"),
        ({"y": np.zeros(4, int)}, "y holds 1 class: two are needed"),
        ({"x": np.full((4, 2), np.nan)}, "must be finite"),
        ({"ids": np.array(["a", "a", "b", "c"])}, "ids must be different"),
        ({"classes": np.array(["a"])}, "1 names of classes for 2 classes"),
        ({"train_mask": np.ones(4, bool)}, "train_mask alone is no split"),
        ({"x": None}, "has no array x"),
        ({"ids": np.array([{}] * 4, dtype=object)}, "cannot be read as .npz"),
    ],
)
def test_a_wrong_npz_is_refused(change: dict, message: str, tmp_path: Path) -> None:
    good = {"x": np.ones((4, 2)), "y": np.array([0, 1, 0, 1]), "edge_index": np.array([[0], [1]])}
    arrays = {name: value for name, value in (good | change).items() if value is not None}
    np.savez(tmp_path / "graph.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        sta.from_npz(tmp_path / "graph.npz")


def test_other_delimiters_and_spaces_are_read(write: Callable[..., Path]) -> None:
    nodes = write("nodes.csv", "\ufeffid; v; label\n a; 1; x\nb; 2; y\nc; 3; x\n\n")
    data = sta.from_tables(nodes, write("edges.csv", "from;to\na;b\nb ; c\n"), target="label")
    assert (data.ids, data.classes) == (["a", "b", "c"], ("x", "y"))
    assert data.num_edges == 4


def test_words_for_nothing_are_no_labels() -> None:
    labels = ["x", "y", "NA", "nan", "x", "null", None, "None", "y", float("nan")]
    data = sta.from_tables({"id": range(10), "l": labels}, {"a": [0], "b": [1]}, target="l")
    assert data.classes == ("x", "y")
    assert int((data.y < 0).sum()) == 6
    notes = "\n".join(data.notes.words)
    assert "4 with a label, 2 classes (x 2, y 2); 6 to be predicted" in notes
    assert "5 labels 'NA', 'None', 'nan', 'null': taken as not known" in notes


def test_whole_numbers_in_files_are_the_same_with_a_point(write: Callable[..., Path]) -> None:
    nodes = write("nodes.csv", "id,label\n7,1\n8,2\n9,1.0\n10,2.0\n")
    data = sta.from_tables(
        nodes, write("edges.csv", "from,to\n7.0,8.0\n9.0,10.0\n"), target="label"
    )
    assert (data.ids, data.classes, data.num_edges) == (["7", "8", "9", "10"], ("1", "2"), 4)
    mixed = {"id": ["a", "7.0", "1.5"], "label": list("xyx")}
    assert sta.from_tables(mixed, {"a": ["a"], "b": [7]}, target="label").ids == ["a", "7", "1.5"]
    large = {"id": [1e20, 2e20, 3e20, 4e20], "label": list("abab")}
    assert len(sta.from_tables(large, {"a": [1e20], "b": [2e20]}, target="label").ids) == 4


@pytest.mark.parametrize("unknown_ends", ["error", "drop"])
def test_a_graph_without_any_edge_of_its_nodes_is_refused(unknown_ends: str) -> None:
    nodes = {"id": ["n0", "n1", "n2", "n3"], "label": list("abab")}
    edges = {"source": ["N0", "N1"], "target": ["N1", "N2"]}
    with pytest.raises(ValueError, match=r"no edge is between two nodes .* such as 'n0'"):
        sta.from_tables(nodes, edges, target="label", unknown_ends=unknown_ends)


def test_edges_with_an_empty_end_can_be_dropped() -> None:
    nodes = {"id": ["a", "b", "c", "d"], "label": list("xyxy")}
    edges = {"source": ["a", None, "b"], "target": ["b", "c", "c"]}
    with pytest.raises(ValueError, match="an edge has two ends"):
        sta.from_tables(nodes, edges, target="label")
    data = sta.from_tables(nodes, edges, target="label", unknown_ends="drop")
    assert data.num_edges == 4


def test_what_pyg_data_has_and_is_not_used_is_told() -> None:
    more = {"train_mask": torch.ones(4, dtype=torch.bool), "edge_attr": torch.ones(1)}
    graph = {"x": torch.rand(4, 2), "edge_index": torch.tensor([[0], [1]])}
    data = sta.from_pyg(Data(**graph, y=torch.tensor([[0], [1], [0], [1]]), **more))
    assert data.y.tolist() == [0, 1, 0, 1]
    assert "not used: train_mask, edge_attr" in data.notes.words[-1]


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(TypeError, match=re.escape("must be a path, a polars or a pandas frame")):
        sta.from_tables([1, 2], {"a": [1]})
