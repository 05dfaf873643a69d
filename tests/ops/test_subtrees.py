"""Read-outs and parts of single roots, against the dense matrix of the whole graph."""

import numpy as np
import pytest
import torch

from subtree_attention import Graph
from subtree_attention.ops.subtrees import NOTHING, Change, Shape, Subtrees

NODES, NEW, HOPS = 12, 3, 3
SHAPE = Shape(2, 4, 3)


def edges(chance: np.random.Generator, nodes: int, count: int) -> np.ndarray:
    """[2, count], each pair once."""
    keys = chance.choice(nodes * nodes, count, replace=False)
    return np.stack(np.divmod(keys, nodes))


class Case:
    """A graph, what is added to it, and the whole that comes of it."""

    def __init__(self, seed: int, transition: str | None, loops: bool, weighted: bool) -> None:
        chance = np.random.default_rng(seed)
        old, more = edges(chance, NODES, 40), edges(chance, NODES + NEW, 30)
        weights = [chance.random(count).astype("f4") for count in (40, 30)]
        self.subtrees = Subtrees(self._graph(old, weights[0], NODES, transition, loops, weighted))
        given = weights[1].astype("f8") if weighted else None
        self.change = self.subtrees.change(NEW, *more, given)
        together: dict[tuple[int, int], np.float32] = {}
        for pairs, some in zip((old, more), weights, strict=True):
            for source, target, weight in zip(*pairs.tolist(), some, strict=True):
                before = together.get((source, target), np.float32(0))
                together[source, target] = np.float32(before + weight)
        both, weight = np.array([*together]).T, np.array([*together.values()])
        size = NODES + NEW
        self.whole = self._graph(both, weight, size, transition, loops, weighted).dense().numpy()
        self.rows = chance.random((size, SHAPE.heads, SHAPE.keys + SHAPE.values)).astype("f4")
        self.query = chance.random((size, SHAPE.heads, SHAPE.keys)).astype("f4")

    @staticmethod
    def _graph(
        index: np.ndarray,
        weight: np.ndarray,
        nodes: int,
        transition: str | None,
        loops: bool,
        weighted: bool,
    ) -> Graph:
        given = torch.from_numpy(weight) if weighted else None
        return Graph(torch.from_numpy(index), nodes, given, transition, loops)

    def read(self, states: bool) -> np.ndarray:
        own, new = self.rows[:NODES], self.rows[NODES:]
        kept = self.subtrees.states(own, SHAPE) if states else None
        roots = np.arange(NODES + NEW)
        given = self.query, own, new, SHAPE, self.change, kept
        return self.subtrees.readouts(roots, HOPS, *given)

    def expected(self) -> np.ndarray:
        keys, values = self.rows[..., : SHAPE.keys], self.rows[..., SHAPE.keys :]
        values = np.concatenate([values, np.ones((*values.shape[:2], 1))], -1)
        scores = np.einsum("ihd,jhd->ijh", self.query.astype("f8"), keys)
        powers = [np.linalg.matrix_power(self.whole, hop) for hop in range(1, HOPS + 1)]
        return np.stack([np.einsum("ij,ijh,jhe->ihe", p, scores, values) for p in powers], 1)


CASES = [
    (seed, transition, loops, weighted)
    for seed, (transition, loops, weighted) in enumerate(
        (transition, loops, weighted)
        for transition in ("rw", "sym", "mean", None)
        for loops in (False, True)
        for weighted in (False, True)
    )
]


@pytest.mark.parametrize(("seed", "transition", "loops", "weighted"), CASES)
def test_read_outs_are_those_of_the_whole_graph(
    seed: int,
    transition: str | None,
    loops: bool,
    weighted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(seed, transition, loops, weighted)
    want = case.expected()
    for states in (False, True):
        np.testing.assert_allclose(case.read(states), want, rtol=1e-5, atol=1e-5)
    monkeypatch.setattr(case.subtrees, "_compiled", False)
    np.testing.assert_allclose(case.read(False), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("seed", "transition", "loops", "weighted"), CASES)
def test_a_part_has_the_rows_of_the_whole_graph(
    seed: int, transition: str | None, loops: bool, weighted: bool
) -> None:
    case = Case(seed, transition, loops, weighted)
    roots = np.array([3, NODES])
    part = case.subtrees.part(roots, 1, case.change)
    assert part.nodes[:NEW].tolist() == [*range(NODES, NODES + NEW)]
    rowptr, col, entries = case.subtrees.entries(part, case.change)
    found = np.zeros_like(case.whole)
    for row in range(part.rows):
        inside = slice(*rowptr[row : row + 2])
        found[part.nodes[row], part.nodes[col[inside]]] = entries[inside]
    complete = part.nodes[: part.rows]
    np.testing.assert_allclose(found[complete], case.whole[complete], atol=1e-12)
    assert rowptr[part.rows] == rowptr[-1]  # of the others nothing is said


def test_rooms_are_left_as_they_were_found() -> None:
    case = Case(0, "sym", True, True)
    case.read(True)
    case.subtrees.entries(case.subtrees.part(np.array([1]), 2, case.change), case.change)
    while not case.subtrees._rooms.empty():
        rooms = case.subtrees._rooms.get()
        assert (rooms.at == -1).all()
        assert (rooms.total == 0).all()


def test_many_new_nodes_get_larger_rooms() -> None:
    subtrees = Subtrees(Graph(torch.tensor([[0, 1], [1, 0]]), 2))
    new = 3000
    change = subtrees.change(new, np.arange(new) + 2, np.zeros(new, np.int64), None)
    rows = np.ones((2 + new, *(1, 2)), "f4")
    read = subtrees.readouts(
        np.array([0]), 1, np.ones((1, 1, 1), "f4"), rows[:2], rows[2:], Shape(1, 1, 1), change
    )
    np.testing.assert_allclose(read[0, 0, 0], new + 1)  # each sends all it has to the root


def test_nothing_changes_nothing() -> None:
    assert isinstance(NOTHING, Change)
    graph = Graph(torch.tensor([[0, 1], [1, 2]]), 3)
    empty = np.zeros(0, np.int64)
    change = Subtrees(graph).change(0, empty, empty, None)
    assert len(change.nodes) == 0
    with pytest.raises(ValueError, match="new edges have weights if"):
        Subtrees(graph).change(1, np.array([3]), np.array([0]), np.ones(1))
