"""Many graphs as one: what is refused, names, splits, its file, and those of the registry."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.io import read_tu_data

import subtree_attention as sta
from subtree_attention import datasets
from subtree_attention.datasets import Dataset, folders

CYCLE = torch.tensor([[0, 1, 2], [1, 2, 0]])


def graph(nodes: int = 3, y: int | None = 0, **more: Any) -> Data:
    """A cycle of three nodes, and others beside it."""
    return Data(x=torch.randn(nodes, 2), edge_index=CYCLE, y=None if y is None else y, **more)


def three(**changes: Any) -> Dataset:
    """Graphs of 3, 4 and 5 nodes, with everything that a collection can have."""
    data = sta.from_graphs(
        [graph(3, 0), graph(4, 1), graph(5, 1)],
        ids=["ann", "bob", "cem"],
        classes=["no", "yes"],
        split=["train", "val", "test"],
    )
    return replace(data, **changes)


# ---------------------------------------------------------------------------------- from graphs


def test_graphs_lie_side_by_side() -> None:
    given = [graph(3, 0), graph(4, 1), graph(5, None)]
    data = sta.from_graphs(given)
    assert repr(data) == "Dataset(graph: 3 graphs, 12 nodes, 9 edges, 2 features, 2 classes)"
    assert data.batch is not None
    assert data.batch.tolist() == [0] * 3 + [1] * 4 + [2] * 5
    assert data.y.tolist() == [0, 1, -1]
    assert torch.equal(data.x, torch.cat([one.x for one in given]))
    assert torch.equal(data.edge_index, torch.cat([CYCLE, CYCLE + 3, CYCLE + 7], 1))
    assert (data.unit, data.num_units, data.unit_ids) == ("graph", 3, ["0", "1", "2"])


def test_graphs_and_classes_are_found_by_their_names() -> None:
    data = three()
    assert (data.find_unit("bob"), data.label(2), data.find("11")) == (1, "yes", 11)
    assert [data.split("own").part(each) for each in range(3)] == ["train", "val", "test"]
    with pytest.raises(ValueError, match=r"no graph 'bobb' among 3 ids\. Near: 'bob'"):
        data.find_unit("bobb")
    with pytest.raises(ValueError, match="no graph '3': they are 0 to 2"):
        replace(data, graph_ids=None).find_unit("3")


@pytest.mark.parametrize(
    ("graphs", "message"),
    [
        ([], "there is no graph in the list"),
        ([graph(), Data(edge_index=CYCLE)], "graph 1 has no x: features can be made of degrees"),
        ([graph(), Data(x=torch.ones(3, 5), edge_index=CYCLE)], "graph 1 has 5 features, but"),
        ([graph(2)], r"graph 0: edge_index must be \[2, E\] within its 2 nodes"),
        ([Data(x=torch.ones(0, 2), edge_index=CYCLE[:, :0])], "graph 0 has no nodes"),
        ([graph(y=torch.zeros(3).long())], "graph 0: y must be one number, the class or the"),
        ([graph(), graph(edge_weight=torch.ones(3))], "graph 1: either all graphs have an edge_w"),
    ],
)
def test_graphs_that_cannot_be_learnt_from_are_refused(graphs: list[Data], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sta.from_graphs(graphs)


def test_a_list_of_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match="graph 0: must be a PyG Data, got int"):
        sta.from_graphs([1])
    with pytest.raises(TypeError, match="graphs must be a list of PyG Data"):
        sta.from_graphs(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (["train", "val"], "a word for each of 3 graphs, got 2"),
        (["train", "val", "tset"], "unknown part 'tset'. Did you mean 'test'"),
        (["train", "train", "val"], "no graph with a label for 'test'"),
    ],
)
def test_a_split_names_a_part_of_each_graph(split: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sta.from_graphs([graph(), graph(4, 1), graph(5, 1)], split=split)


# ---------------------------------------------------------------------------- validator and file


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": torch.zeros(11).long()}, r"batch must be int64 \[12\], the graph of each node"),
        ({"batch": torch.zeros(12)}, r"batch must be int64 \[12\]"),
        (
            {"batch": torch.tensor([0] * 6 + [1] * 3 + [3] * 3)},
            r"a graph outside 0\.\.2",
        ),
        ({"batch": torch.tensor([1] * 6 + [0] * 3 + [2] * 3)}, "batch must ascend"),
        ({"batch": torch.tensor([0] * 3 + [2] * 9)}, "graph 1 has no nodes"),
        ({"batch": torch.tensor([0] * 2 + [1] * 5 + [2] * 5)}, "an edge between two graphs"),
        ({"y": torch.zeros(3).int()}, "y must be a whole number for each of 3 graphs"),
        ({"graph_ids": ["a", "b"]}, "graph_ids must be different, one for each of 3 graphs"),
        (
            {"batch": None, "splits": {}, "y": torch.zeros(12).long()},
            "graph_ids are of many",
        ),
        ({"splits": {"own": torch.ones(12, 1).char()}}, r"split 'own' must be int8 \[3, S\]"),
        ({"y": torch.tensor([-1, 1, 0])}, "split 'own' names graphs without a label"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"the graphs: .*{message}"):
        three(**changes)


def test_a_file_brings_all_back(tmp_path: Path) -> None:
    data = three()
    data.save(tmp_path / "graphs.safetensors")
    back = datasets.read(tmp_path / "graphs.safetensors")
    assert back.same_as(data)
    assert (back.graph_ids, back.unit, back.fingerprint()) == (
        ["ann", "bob", "cem"],
        "graph",
        data.fingerprint(),
    )
    other = torch.tensor([0] * 3 + [1] * 3 + [2] * 6)
    assert not replace(data, batch=other).same_as(data)
    assert not replace(data, graph_ids=None).same_as(data)


def test_eigenvectors_are_of_one_graph() -> None:
    with pytest.raises(ValueError, match=r"eigenvectors are of one graph.*--encoding 0"):
        three().encoded(2)
    assert three().encoded(0).encoding is None


def test_pyg_gets_the_graph_of_each_node() -> None:
    data = three().to_pyg()
    assert (data.batch.max().item(), data.train_mask.tolist()) == (2, [True, False, False])


# ---------------------------------------------------------------------------------- the registry


@pytest.mark.parametrize("name", ["mutag", "enzymes", "proteins"])
def test_a_collection_of_the_registry_is_that_of_pyg(name, mirror, data_dir) -> None:
    data, title = datasets.load(name, data_dir=data_dir, mirror=mirror), name.upper()
    theirs, slices, sizes = read_tu_data(str(mirror / "TUDataset" / title / "raw"), title)
    shifts = slices["x"][:-1].repeat_interleave(slices["edge_index"].diff())
    assert torch.equal(data.edge_index, theirs.edge_index + shifts)
    assert torch.equal(data.y, theirs.y)
    attributes = sizes["num_node_attributes"]
    expected = theirs.x.double()
    if attributes:
        part = expected[:, :attributes]
        expected[:, :attributes] = (part - part.mean(0)) / part.std(0, correction=0)
    torch.testing.assert_close(data.x.to_dense().double(), expected, atol=1e-4, rtol=1e-5)
    assert torch.equal(data.batch.bincount(), slices["x"].diff())


@pytest.mark.parametrize(("name", "test"), [("enzymes", 60), ("proteins", 112)])
def test_folds_test_every_graph_once(name, test, mirror, data_dir) -> None:
    data = datasets.load(name, data_dir=data_dir, mirror=mirror)
    splits = [data.split(seed=fold) for fold in range(10)]
    together = torch.stack([split.test for split in splits])
    assert together.sum(0).eq(1).all()
    assert int(splits[0].test.sum()) == test
    for split in splits:
        assert torch.stack(tuple(split)).sum(0).eq(1).all()
    with pytest.raises(ValueError, match="10 splits, index 0 to 9"):
        data.split("own", 10)
    assert "own" not in datasets.load(name, split="B", data_dir=data_dir, mirror=mirror).splits


def test_folds_that_are_missing_or_broken_are_named(mirror, tmp_path) -> None:
    (tmp_path / "TUDataset").symlink_to(mirror / "TUDataset")
    with pytest.raises(folders.MissingData, match="the folds of 'enzymes' are missing"):
        datasets.load("enzymes", data_dir=tmp_path, mirror=tmp_path)
    file = tmp_path / "splits" / "folds" / "ENZYMES.json"
    file.parent.mkdir(parents=True)
    fold = '{"test": [0, 1], "model_selection": [{"train": [2, 900], "validation": [3]}]}'
    for content, message in [("{", "is damaged"), (f"[{fold}]", "split of another graph")]:
        file.write_text(content)
        with pytest.raises(ValueError, match=message):
            datasets.load("enzymes", data_dir=tmp_path, mirror=tmp_path)
