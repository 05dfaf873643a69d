"""`attention`: the weights of a single root over one level of its subtree."""

import pytest
import torch

from subtree_attention import attention, subtree_attention
from subtree_attention.ops import arrivals, definition
from subtree_attention.ops.roots import shares
from tests.ops.cases import EDGES, FLOAT64_ERROR, assert_all_close, make_map, random_inputs

SIMILARITIES = {
    "elu": definition.kernel_similarity(make_map("elu", 5)),
    "softmax": definition.softmax_similarity,
}


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("hop", range(5))
@pytest.mark.parametrize("name", ["directed-weighted", "isolated-nodes", "no-edges"])
def test_equals_a_row_of_the_dense_attention(name, hop, similarity, device):
    graph = EDGES[name].graph(device=device)
    query, key, _ = random_inputs(graph.num_nodes).to(device).all()
    power = torch.linalg.matrix_power(graph.dense(), hop)
    dense = definition.attention_matrix(power, SIMILARITIES[similarity](query, key), 1e-6)
    if hop == 0:
        dense = power.expand(2, -1, -1)  # at level 0 a root attends to itself
    for root in range(graph.num_nodes):
        weights = attention(query, key, graph, root, hop, feature_map=similarity)
        assert_all_close([weights], [dense[:, root].t()], FLOAT64_ERROR)


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_weights_times_values_are_the_operator(similarity):
    graph = EDGES["directed"].graph()
    query, key, value = random_inputs(graph.num_nodes, heads=None).all()
    levels = subtree_attention(query, key, value, graph, 3, feature_map=similarity)
    weights = attention(query, key, graph, 2, 3, feature_map=similarity)
    assert weights.shape == (graph.num_nodes,)
    assert_all_close([weights @ value], [levels[3, 2]], FLOAT64_ERROR)


def test_weights_sum_to_one_where_a_walk_arrives():
    graph = EDGES["isolated-nodes"].graph()
    query, key, _ = random_inputs(graph.num_nodes).all()
    for root in range(graph.num_nodes):
        total = attention(query, key, graph, root, 2, eps=0.0).sum(0)
        arrives = float(arrivals(graph, root, 2).sum() > 0)
        torch.testing.assert_close(total, torch.full_like(total, arrives))


@pytest.mark.parametrize(
    ("root", "hop", "message"),
    [
        (11, 1, "root 11 is not a node: the graph has 11 nodes"),
        (-1, 1, "root must be at least 0, got -1"),
        (0, -2, "hop must be at least 0, got -2"),
    ],
)
def test_roots_and_hops_that_do_not_exist_are_refused(root, hop, message):
    graph = EDGES["directed"].graph()
    query, key, _ = random_inputs(graph.num_nodes).all()
    with pytest.raises(ValueError, match=message):
        attention(query, key, graph, root, hop)


@pytest.mark.parametrize("softmax", [False, True])
def test_shares_of_many_roots_at_once_are_those_of_each(softmax):
    mass, scores = torch.rand(20), torch.rand(20, 3)
    mass[4] = 0  # nothing arrives from there
    root = torch.arange(20) % 4
    together = shares(mass, scores, 1e-3, softmax, root, 5)  # and one that nothing reaches
    for one in range(4):
        own = root == one
        alone = shares(mass[own], scores[own], 1e-3, softmax)
        assert_all_close([together[own]], [alone], 1e-6)  # float32 sums of five terms
    assert (together[4] == 0).all()
    assert shares(mass[:0], scores[:0], 1e-3, softmax).shape == (0, 3)
