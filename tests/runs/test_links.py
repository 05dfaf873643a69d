"""Pairs of nodes: given ones and missing links, with probabilities of all known links."""

from pathlib import Path

import numpy as np
import pytest
import torch

import subtree_attention as sta
from subtree_attention import Graph
from subtree_attention.datasets import TableError
from subtree_attention.runs import links as module
from subtree_attention.runs import predict_links
from subtree_attention.runs.links import ScoredPairs
from subtree_attention.tasks.link import Links

NAMES = [f"n{i}" for i in range(30)]


def nodes_and_edges() -> tuple[dict, dict]:
    """Two groups of which nearly all nodes are linked within."""
    chance = np.random.default_rng(0)
    within = [
        (i, j) for i in range(30) for j in range(i) if i % 2 == j % 2 and chance.random() < 0.6
    ]
    nodes = {"id": NAMES, "group": [f"g{i % 2}" for i in range(30)], "noise": chance.random(30)}
    ends = {end: [NAMES[pair[k]] for pair in within] for k, end in enumerate(("source", "target"))}
    return nodes, ends


@pytest.fixture(scope="module", params=["mlp", "dot", "directed"])
def folder(request, tmp_path_factory) -> Path:
    nodes, edges = nodes_and_edges()
    data = sta.from_tables(nodes, edges, directed=request.param == "directed")
    out = tmp_path_factory.mktemp("links") / request.param
    small = {
        "hops": 1,
        "heads": 2,
        "hidden_channels": 8,
        "epochs": 30,
        "runs": 1,
        "lr": 0.01,
        "dropout": 0.1,
    }
    config = sta.recipe(data, task="link", decoder=request.param, metric="roc_auc", **small)
    sta.fit(config, out, data=data, device="cpu")
    return out


def all_probabilities(folder: Path) -> tuple[np.ndarray, sta.SavedRun]:
    """[N, N], by the network as it was trained, on all links."""
    run = sta.open(folder, device="cpu")
    n = run.dataset.num_nodes
    pairs = torch.cartesian_prod(torch.arange(n), torch.arange(n)).T
    graph = Graph.from_data(run.dataset, **run.config.walk)
    with torch.no_grad():
        logits = run.model(run.dataset.features, graph, pairs).double() / run.temperature
    return logits.softmax(1)[:, 1].reshape(n, n).numpy(), run


def test_given_pairs(folder: Path, tmp_path: Path) -> None:
    expected, run = all_probabilities(folder)
    (tmp_path / "pairs.csv").write_text("a,b\nn3,n4\nn1,n3\n")
    found = predict_links(folder, tmp_path / "pairs.csv", device="cpu")
    assert found.ids == [("n3", "n4"), ("n1", "n3")]
    assert found.probabilities == pytest.approx(expected[[3, 1], [4, 3]])
    edges = set(map(tuple, run.dataset.edge_index.T.tolist()))
    assert found.known.tolist() == [pair in edges for pair in [(3, 4), (1, 3)]]
    same = predict_links(folder, torch.tensor([[3, 1], [4, 3]]), device="cpu")
    assert same.probabilities.tolist() == found.probabilities.tolist()


@pytest.mark.parametrize("block", [2**24, 500])
def test_missing_links_are_the_best_of_all(
    folder: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK", block)  # several nodes at a time, or one
    expected, run = all_probabilities(folder)
    links, n = Links.of(run.dataset), run.dataset.num_nodes
    pairs = np.array([(i, j) for i in range(n) for j in range(n) if i != j])
    pairs = pairs if links.directed else pairs[pairs[:, 0] < pairs[:, 1]]
    free = pairs[~links.known(links.key(*pairs.T))]
    best = np.sort(expected[free[:, 0], free[:, 1]])[::-1]
    found = predict_links(folder, top=12, device="cpu")
    assert found.probabilities == pytest.approx(best[:12])
    assert not found.known.any()
    everything = predict_links(folder, top=10_000, device="cpu")
    assert len(everything.ids) == len(free)


def test_new_nodes_join(folder: Path) -> None:
    nodes = {"id": ["x", "y"], "group": ["g0", "g1"], "noise": [0.5, 0.5]}
    edges = {"source": ["x", "y"], "target": ["n0", "n1"]}
    pairs = {"source": ["x", "x"], "target": ["n2", "n3"]}
    found = predict_links(folder, pairs, nodes=nodes, edges=edges, join=True, device="cpu")
    assert found.ids == [("x", "n2"), ("x", "n3")]
    assert found.notes is not None
    missing = predict_links(folder, top=10_000, nodes=nodes, edges=edges, join=True, device="cpu")
    both = 2 if folder.name == "directed" else 1
    free = both * (2 * 30 + 1) - 2  # each of two with all others, but for the two links
    assert len(set(missing.ids)) == len(missing.ids) == free
    assert all({"x", "y"} & set(pair) for pair in missing.ids)
    if folder.name != "directed":  # which learns more slowly
        assert found.probabilities[0] > found.probabilities[1]  # of the same group


def test_what_cannot_be_is_refused_in_words(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TableError, match=r"row 2: there is no node 'n33' among 30 ids.*Near"):
        predict_links(folder, {"source": ["n1", "n33"], "target": ["n2", "n3"]}, device="cpu")
    with pytest.raises(TableError, match="row 1: column 'target' is empty: a pair has two nodes"):
        predict_links(folder, {"source": ["n1", "n2"], "target": [None, "n3"]}, device="cpu")
    with pytest.raises(ValueError, match=r"pairs must be whole numbers \[2, P\], got \[3\]"):
        predict_links(folder, np.arange(3), device="cpu")
    with pytest.raises(ValueError, match=r"pairs names a node outside 0\.\.29"):
        predict_links(folder, np.array([[0], [30]]), device="cpu")
    twice = r"both nodes are 'n5': a link is between two nodes \(1 such pair\)"
    with pytest.raises(TableError, match=f"row 2: {twice}"):
        predict_links(folder, {"source": ["n1", "n5"], "target": ["n2", "n5"]}, device="cpu")
    with pytest.raises(ValueError, match=r"pair 1: both nodes are '5'.*\(2 such pairs\)"):
        predict_links(folder, np.array([[0, 5, 6], [1, 5, 6]]), device="cpu")
    with pytest.raises(ValueError, match="choose one of them"):
        predict_links(folder, np.array([[0], [1]]), top=3, device="cpu")
    with pytest.raises(ValueError, match="top must be at least 1"):
        predict_links(folder, top=0, device="cpu")
    monkeypatch.setattr(module, "MOST_PAIRS", 100)
    with pytest.raises(ValueError, match=r"30 nodes have too many pairs to look through.*--pairs"):
        predict_links(folder, device="cpu")


def test_a_model_of_nodes_says_nothing_of_pairs(tmp_path: Path) -> None:
    nodes, edges = nodes_and_edges()
    data = sta.from_tables(nodes, edges, target="group")
    config = sta.recipe(data, hops=1, hidden_channels=8, epochs=1, runs=1)
    sta.fit(config, tmp_path / "run", data=data, device="cpu")
    with pytest.raises(ValueError, match="is for nodes, not for pairs of nodes: train one with"):
        predict_links(tmp_path / "run", device="cpu")
    run = sta.open(tmp_path / "run", device="cpu")
    with pytest.raises(TypeError, match="the model must be a LinkNetwork"):
        ScoredPairs(run, run.dataset)
