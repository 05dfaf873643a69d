"""Walks that end in a root: rows of powers of A, and the most probable walk of a length."""

import itertools

import numpy as np
import pytest
import torch

from subtree_attention import STAGNN, explain
from subtree_attention.explanations.walks import Walks
from tests.ops.cases import EDGES, Edges

GRAPHS = ["directed-weighted", "self-loops", "parallel-edges", "isolated-nodes", "no-edges"]


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("transition", ["rw", "sym", None])
def test_reach_is_a_row_of_a_power(name, transition):
    graph = EDGES[name].graph(transition)
    walks, dense = Walks(graph), graph.dense()
    for root in range(graph.num_nodes):
        for hop, (nodes, mass) in enumerate(walks.reach(root, 4)):
            row = np.zeros(graph.num_nodes)
            row[nodes] = mass
            power = torch.linalg.matrix_power(dense, hop)[root].numpy()
            np.testing.assert_allclose(row, power, atol=1e-14)
            assert (mass != 0).all()
            assert (np.diff(nodes) > 0).all()


@pytest.mark.parametrize("name", GRAPHS)
def test_the_best_walk_is_the_best_of_all_walks(name):
    """Against every sequence of nodes, one by one."""
    graph, hops = EDGES[name].graph(), 3
    walks, dense = Walks(graph), graph.dense().numpy()
    for root in range(0, graph.num_nodes, 3):
        reached = walks.reach(root, hops)
        best = walks.best(reached)
        for hop, (nodes, _) in enumerate(reached):
            for place, source in enumerate(nodes.tolist()):
                products = (
                    [
                        np.prod([dense[b, a] for a, b in itertools.pairwise((source, *way, root))])
                        for way in itertools.product(range(graph.num_nodes), repeat=max(hop - 1, 0))
                    ]
                    if hop
                    else [1.0]
                )
                walk = walks.trace(reached, best, hop, source)
                assert (len(walk.nodes), walk.nodes[0], walk.nodes[-1]) == (hop + 1, source, root)
                steps = [dense[b, a] for a, b in itertools.pairwise(walk.nodes)]
                assert walk.probability == pytest.approx(np.prod(steps))
                assert walk.probability == pytest.approx(max(products))
                assert np.exp(best[hop][place]) == pytest.approx(max(products))


def test_of_equal_walks_the_lowest_nodes_are_taken():
    edges = torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]])  # a diamond: 0 -> 1, 2 -> 3
    walks = Walks(Edges(edges, 4).graph())
    reached = walks.reach(3, 2)
    assert walks.trace(reached, walks.best(reached), 2, 0).nodes == [0, 1, 3]


def test_edges_without_weight_carry_no_walk():
    edges = Edges(torch.tensor([[0, 1], [2, 2]]), 3, torch.tensor([0.0, 1.0]))
    assert [row.nodes.tolist() for row in Walks(edges.graph()).reach(2, 1)] == [[2], [1]]


def test_a_long_walk_does_not_vanish():
    """Each step among 20 nodes has probability 1/20, and 20^-300 is 0 in float64."""
    everyone = torch.cartesian_prod(torch.arange(20), torch.arange(20)).t()
    walks = Walks(Edges(everyone, 20).graph())
    reached = walks.reach(0, 300)
    best = walks.best(reached)
    np.testing.assert_allclose(best[300], 300 * np.log(1 / 20))
    assert walks.trace(reached, best, 300, 7).nodes == [7] + [0] * 300


def test_an_explanation_offers_it():
    graph = EDGES["directed"].graph()
    explanation = explain(STAGNN(5, 8, 3), torch.randn(11, 5), graph, 2)
    source = int(explanation.level(2).nodes[0])
    nodes, probability = explanation.walk(2, source)
    expected = graph.dense()[nodes[1], nodes[0]] * graph.dense()[nodes[2], nodes[1]]
    assert (nodes[0], nodes[2]) == (source, 2)
    assert probability == pytest.approx(float(expected))
