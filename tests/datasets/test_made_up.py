"""Graphs that are made up: counts, degrees, seeds, what can be learnt, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import subtree_attention as sta
from subtree_attention.datasets import made_up


def planted(**changes: float) -> sta.Dataset:
    given: dict = {"nodes": 4000, "edges": 30_000, "classes": 8, "features": 16}
    return sta.planted(**{**given, **changes})


def degrees(data: sta.Dataset) -> Tensor:
    return torch.bincount(data.edge_index[0], minlength=data.num_nodes)


def test_counts_are_those_asked_for() -> None:
    data = planted()
    assert (data.num_nodes, data.num_edges, data.num_classes) == (4000, 60_000, 8)
    assert (data.x.shape, data.x.dtype) == ((4000, 16), torch.float32)
    source, dest = data.edge_index
    keys = source * 4000 + dest
    assert (source != dest).all()
    assert len(keys.unique()) == len(keys)
    assert torch.equal(keys.sort().values, (dest * 4000 + source).sort().values)
    split = data.split("own")
    assert [int(part.sum()) for part in split] == [2400, 800, 800]


def test_shapes_have_names() -> None:
    data = sta.planted("arxiv", edges=10_000, features=4)
    assert repr(data) == "Dataset(arxiv: 169,343 nodes, 20,000 edges, 4 features, 40 classes)"
    assert made_up.SHAPES["products"] == (2_449_029, 61_859_140, 47, 100)


def test_the_same_for_the_same_seed_only() -> None:
    assert planted().same_as(planted())
    assert not planted().same_as(planted(seed=1))
    state = np.random.get_state()[1].copy()  # type: ignore[union-attr,index]
    planted()
    assert (np.random.get_state()[1] == state).all()  # type: ignore[index]


@pytest.mark.parametrize("exponent", [2.3, 3.0])
def test_degrees_follow_the_power_law(exponent: float) -> None:
    degree = degrees(planted(nodes=50_000, edges=500_000, exponent=exponent)).double()
    tail = degree[degree >= 40]
    hill = 1 + len(tail) / (tail / 39.5).log().sum()  # the estimate of Clauset et al. for counts
    assert abs(float(hill) - exponent) < 0.35
    assert degree.max() > 15 * degree.median()


def test_a_large_exponent_is_a_graph_without_hubs() -> None:
    degree = degrees(planted(exponent=1000.0))
    assert degree.max() < 3 * degree.float().mean()


def test_edges_stay_within_groups_as_often_as_asked() -> None:
    for homophily in (0.0, 0.3, 1.0):
        data = planted(homophily=homophily, strangers=0.0, nodes=20_000, edges=50_000)
        same = (data.y[data.edge_index[0]] == data.y[data.edge_index[1]]).double().mean()
        assert abs(float(same) - homophily) < 0.02


def accuracy(features: Tensor, data: sta.Dataset) -> float:
    """Of a logistic regression on the split."""
    from sklearn.linear_model import LogisticRegression

    train, _, test = (mask.numpy() for mask in data.split("own"))
    x, y = features.numpy(), data.y.numpy()
    return float(LogisticRegression(max_iter=300).fit(x[train], y[train]).score(x[test], y[test]))


def test_features_and_neighbours_tell_more_together() -> None:
    data = planted(nodes=6000, edges=40_000)
    shown = torch.nn.functional.one_hot(data.y, 8).float() * data.split("own").train[:, None]
    votes = torch.zeros(6000, 8).index_add_(0, data.edge_index[0], shown[data.edge_index[1]])
    votes = (votes / votes.sum(1, keepdim=True).clamp(min=1)) * 8
    alone = accuracy(data.x, data), accuracy(votes, data)
    together = accuracy(torch.cat([data.x, votes], 1), data)
    assert all(0.3 < each < 0.9 for each in alone)
    assert together > max(alone) + 0.03


def test_small_ones() -> None:
    assert planted(nodes=2, edges=0, classes=2).y.sort().values.tolist() == [0, 1]
    assert planted(nodes=2, edges=1, classes=2, homophily=0.0, strangers=0.0).num_edges == 2
    assert planted(nodes=5, edges=0, classes=5).y.sort().values.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"nodes": 1}, ValueError, "nodes must be at least 2, got 1"),
        ({"nodes": "arxive"}, ValueError, "unknown shape 'arxive'. Did you mean 'arxiv'?"),
        ({"edges": None}, TypeError, "planted needs edges beside the number of nodes"),
        ({"nodes": 10, "edges": 12}, ValueError, "at most a quarter of the 45 pairs of 10 nodes"),
        ({"edges": -1}, ValueError, "edges must be at least 0"),
        ({"classes": 1}, ValueError, "classes must be at least 2"),
        ({"classes": 4001}, ValueError, "classes must be at most 4,000"),
        ({"features": 0}, ValueError, "features must be at least 1"),
        ({"homophily": 1.5}, ValueError, "homophily must be at most 1, got 1.5"),
        ({"strangers": -0.5}, ValueError, "strangers must be a finite number of at least 0"),
        ({"signal": "2"}, TypeError, "signal must be a number, got '2'"),
        ({"exponent": 1.9}, ValueError, "exponent must be a finite number of at least 2"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
        ({"features": 2**31 - 1}, MemoryError, "does not fit into memory"),
        (
            {"nodes": 100, "classes": 100, "edges": 50, "homophily": 1.0, "strangers": 0.0},
            ValueError,
            "only 0 of 50 edges were found with homophily 1: take fewer edges",
        ),
    ],
)
def test_refusals(changes: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words.replace("?", r"\?")):
        planted(**changes)


def test_a_store_has_the_same_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_up, "AT_A_TIME", 1000)  # of many parts
    asked = 700, 3000, 4, 16
    data = sta.planted(*asked, seed=3)
    stored = sta.planted(*asked, seed=3, folder=tmp_path / "store")
    assert torch.equal(stored.x, data.x)
    assert torch.equal(stored.y, data.y)
    assert torch.equal(stored.splits["own"], data.splits["own"])
    assert (stored.notes, stored.schema, stored.name) == (data.notes, data.schema, data.name)
    order = (data.edge_index[1] * data.num_nodes + data.edge_index[0]).argsort()
    assert torch.equal(stored.edge_index, data.edge_index[:, order])
