"""Tables of many graphs: sizes, names, features of graphs, new graphs, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch

import subtree_attention as sta
from subtree_attention import datasets
from subtree_attention.datasets import TableError
from subtree_attention.datasets.tabular import apply_schema, join_tables
from tests.samples import csv_text

NODES = {  # not in the order of their graphs
    "molecule": ["m2", "m1", "m1", "m2", "m3", "m1"],
    "id": ["a", "a", "b", "b", "a", "c"],
    "charge": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
}
EDGES = {"molecule": ["m1", "m1", "m2"], "source": ["a", "b", "a"], "target": ["b", "c", "b"]}
GRAPHS = {
    "molecule": ["m1", "m2", "m3"],
    "weight": [10.0, 20.0, 30.0],
    "toxic": ["yes", "no", "yes"],
    "part": ["train", "val", "test"],
}


def build(nodes: Any = NODES, edges: Any = EDGES, graphs: Any = GRAPHS, **more: Any) -> sta.Dataset:
    how = {"target": "toxic", "graph_column": "molecule", "split_column": "part", **more}
    return sta.from_tables(nodes, edges, graphs=graphs, **how)


def test_nodes_of_a_graph_stand_together() -> None:
    data = build()
    assert data.batch is not None
    assert data.batch.tolist() == [0, 0, 0, 1, 1, 2]
    assert data.node_ids == ["m1/a", "m1/b", "m1/c", "m2/a", "m2/b", "m3/a"]
    assert data.unit_ids == ["m1", "m2", "m3"]
    assert [data.label(graph) for graph in range(3)] == ["yes", "no", "yes"]
    assert data.edge_index.tolist() == [[0, 1, 3, 1, 2, 4], [1, 2, 4, 0, 1, 3]]
    assert [data.split("own").part(graph) for graph in range(3)] == ["train", "val", "test"]


def test_columns_of_graphs_are_features_of_their_nodes() -> None:
    data = build()
    charge = torch.tensor([2.0, 3, 6, 1, 4, 5])
    weight = torch.tensor([10.0, 10, 10, 20, 20, 30])
    both = torch.stack([(charge - 3.5) / charge.std(correction=0), (weight - 20) / 66.6667**0.5], 1)
    torch.testing.assert_close(data.x, both)
    assert data.notes is not None
    assert [line.name for line in data.notes.columns] == ["charge", "weight"]
    assert "6 nodes of 3 graphs" in " ".join(data.notes.words)
    assert "3 graphs, 3 with a label, 2 classes" in " ".join(data.notes.words)


def test_ids_that_differ_need_no_graph_of_the_edges() -> None:
    nodes = NODES | {"id": ["d", "a", "b", "e", "f", "c"]}
    edges = {"source": ["a", "b", "d"], "target": ["b", "c", "e"]}
    data = build(nodes, edges)
    assert data.node_ids == ["a", "b", "c", "d", "e", "f"]
    assert data.edge_index.tolist() == build().edge_index.tolist()


def test_without_a_table_graphs_come_in_the_order_of_their_nodes() -> None:
    data = build(graphs=None, target=None, split_column=None)
    assert data.unit_ids == ["m2", "m1", "m3"]
    assert data.y.tolist() == [-1, -1, -1]
    assert data.num_features == 1


def test_files_and_frames_are_the_same(tmp_path: Path) -> None:
    tables = {"nodes": NODES, "edges": EDGES, "graphs": GRAPHS}
    for name, table in tables.items():
        (tmp_path / f"{name}.csv").write_text(csv_text(table))
    paths = {name: tmp_path / f"{name}.csv" for name in tables}
    assert build(**paths).same_as(build())


def test_a_file_keeps_the_schema(tmp_path: Path) -> None:
    data = build()
    data.save(tmp_path / "graphs.safetensors")
    back = datasets.read(tmp_path / "graphs.safetensors")
    assert back.same_as(data)
    assert back.schema == data.schema


def test_new_graphs_by_what_was_learnt() -> None:
    nodes = {"molecule": ["n", "n"], "id": ["a", "b"], "charge": [3.5, 3.5]}
    edges = {"molecule": ["n"], "source": ["a"], "target": ["b"]}
    graphs = {"molecule": ["n"], "weight": [20.0]}
    data = apply_schema(build(), nodes, edges, graphs=graphs)
    assert (data.unit_ids, data.y.tolist(), data.x.tolist()) == (["n"], [-1], [[0, 0], [0, 0]])
    with pytest.raises(TableError, match="knows graphs by 'weight': name the table of the new"):
        apply_schema(build(), nodes, edges)
    with pytest.raises(TableError, match="do not join a collection of graphs"):
        join_tables(build(), nodes, edges)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"nodes": NODES | {"molecule": ["m2", "m1", "m1", "m9", "m3", "m1"]}},
            r"nodes, row 4: the graph 'm9' \(--graph-column molecule\) is not in the table of gr",
        ),
        (
            {"nodes": NODES | {"molecule": ["m2", None, "m1", "m2", "m3", "m1"]}},
            r"nodes, row 2: column 'molecule' \(--graph-column\) is empty: every node is in a gr",
        ),
        (
            {"graphs": {key: [*column, column[0]] for key, column in GRAPHS.items()}},
            r"graphs, row 4: the id 'm1' is that of the table of graphs, row 1 too",
        ),
        (
            {
                "graphs": {
                    key: [*v, "m4" if key == "molecule" else v[0]] for key, v in GRAPHS.items()
                }
            },
            "graphs, row 4: the graph 'm4' has no nodes in the table of nodes",
        ),
        (
            {"edges": {"source": ["a"], "target": ["b"]}},
            "the id 'a' is that of .* in another graph too, so the table of edges must say which",
        ),
        (
            {
                "nodes": NODES | {"id": ["d", "a", "b", "e", "f", "c"]},
                "edges": {"source": ["a", "b"], "target": ["b", "e"]},
            },
            r"edges, row 2: the edge b -> e is between the graphs 'm1' and 'm2' \(1 such edge\)",
        ),
        (
            {"edges": EDGES | {"molecule": ["m1", None, "m2"]}},
            "row 2: column 'molecule' is empty: an edge is in a graph",
        ),
        (
            {"edges": EDGES | {"target": ["b", "x", "b"]}},
            "the edge m1/b -> m1/x ends at a node that is not in the table",
        ),
        ({"graph_column": "mol"}, "nodes has no column 'mol' .--graph-column.. Near: molecule"),
        ({"target": "toxid"}, "graphs has no column 'toxid' .--target.. Near: toxic"),
        ({"graphs": None}, "the target 'toxic' is that of each graph: name the table of graphs"),
    ],
)
def test_what_cannot_be_is_refused_in_words(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TableError, match=message):
        build(**changes)
