"""Shares of labels over one and two hops: no node's own label may be in its own row."""

import numpy as np
import pytest
import torch

from subtree_attention.datasets import Dataset
from subtree_attention.references.aims import Shown, as_columns
from subtree_attention.references.neighbours import Neighbours, drawn_folds, label_shares

from .graphs import circles


def shown(labels: np.ndarray, classes: int, mask: np.ndarray) -> Shown:
    return Shown(*as_columns("class", labels, classes)).only(mask)


def test_shares_are_those_of_a_loop_over_all_walks():
    data = circles(40, classes=3, seed=3)
    graph, y = Neighbours.of(data), data.y.numpy()
    mask = np.arange(40) % 3 > 0
    found = label_shares(graph, shown(y, 3, mask))
    links = graph.links.toarray()
    degrees = links.sum(1)
    prior = np.bincount(y[mask], minlength=3) / mask.sum()
    for node in range(40):
        one, two = np.zeros(3), np.zeros(3)
        for middle in np.flatnonzero(links[node]):
            one[y[middle]] += mask[middle]
            for end in np.flatnonzero(links[middle]):
                if end != node:
                    two[y[end]] += mask[end] / degrees[middle]
        wanted = [(sums + prior) / (sums.sum() + 1) for sums in (one, two)]
        np.testing.assert_allclose(found[node], np.concatenate(wanted), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("folded", [True, False])
def test_a_flipped_label_changes_other_rows_and_not_its_own(folded):
    data = circles(120, classes=3, seed=1)
    graph, y, mask = Neighbours.of(data), data.y.numpy(), np.arange(120) < 80
    folds = drawn_folds(np.flatnonzero(mask), 120, 10, 0) if folded else None
    usual = np.full(3, 1 / 3, dtype=np.float32)
    before = label_shares(graph, shown(y, 3, mask), folds, usual)
    for node in range(0, 80, 7):
        flipped = y.copy()
        flipped[node] = (y[node] + 1) % 3
        after = label_shares(graph, shown(flipped, 3, mask), folds, usual)
        np.testing.assert_allclose(after[node], before[node], rtol=0, atol=1e-6)
        assert np.abs(after - before).max() > 0.05


def test_labels_that_are_not_shown_are_in_no_row():
    data = circles(100, seed=2)
    graph, y, mask = Neighbours.of(data), data.y.numpy(), np.arange(100) < 50
    other = np.where(mask, y, 1 - y)
    ours, theirs = (label_shares(graph, shown(labels, 2, mask)) for labels in (y, other))
    np.testing.assert_array_equal(ours, theirs)


def test_rows_of_a_hubs_leaves_do_not_tell_their_labels():
    """Over two hops a leaf sees all the others: their sum less its own label would give it away."""
    leaves = 400
    y = np.random.default_rng(0).integers(2, size=leaves + 1)
    ends = torch.stack([torch.zeros(leaves, dtype=torch.long), torch.arange(1, leaves + 1)])
    edges = torch.cat([ends, ends.flip(0)], 1)
    data = Dataset(torch.zeros(leaves + 1, 1), edges, torch.from_numpy(y))
    graph, mask = Neighbours.of(data), np.arange(leaves + 1) > 0
    labels = shown(y, 2, mask)

    def told(rows: np.ndarray) -> float:
        """How often the most frequent label of equal rows is right."""
        _, groups = np.unique(rows[1:].round(6), axis=0, return_inverse=True)
        counts = np.zeros((groups.max() + 1, 2))
        np.add.at(counts, (groups.ravel(), y[1:]), 1)
        return counts.max(1).sum() / leaves

    folds = drawn_folds(labels.rows, leaves + 1, 10, 0)
    assert told(label_shares(graph, labels)) == 1
    assert told(label_shares(graph, labels, folds)) < 0.62


def test_rows_of_nodes_without_neighbours_are_all_equal():
    """What is usual without a fold would be a sign of what the labels in it are not."""
    data = circles(60, classes=3, seed=4)
    alone = torch.arange(60, 160)
    y = torch.cat([data.y, alone % 3])
    data = Dataset(torch.zeros(160, 1), data.edge_index, y)
    labels = shown(y.numpy(), 3, np.arange(160) % 4 > 0)
    folds = drawn_folds(labels.rows, 160, 10, 0)
    rows = label_shares(Neighbours.of(data), labels, folds)[60:]
    np.testing.assert_array_equal(rows, np.repeat(rows[:1], len(rows), 0))


def test_directions_and_loops():
    edges = torch.tensor([[0, 0, 1, 2], [1, 2, 1, 0]])
    data = Dataset(torch.zeros(4, 1), edges, torch.tensor([0, 1, 0, 1]))
    graph = Neighbours.of(data)
    assert graph.links.toarray().tolist() == [[0, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0], [0] * 4]
    assert graph.directed.tolist() == [[1, 2], [1, 0], [1, 1], [0, 0]]
    assert graph.degree_columns().shape == (4, 4)
    assert np.isfinite(label_shares(graph, shown(data.y.numpy(), 2, np.ones(4, bool)))).all()


def test_folds_go_by_the_seed_alone():
    rows = np.array([1, 4, 6, 7])
    folds = drawn_folds(rows, 9, 2, seed=5)
    assert sorted(folds[rows]) == [0, 0, 1, 1]
    assert (np.delete(folds, rows) == -1).all()
    np.testing.assert_array_equal(folds, drawn_folds(rows, 9, 2, seed=5))
