"""`attention`: the weights of a single root over one level of its subtree."""

import pytest
import torch

from subtree_attention import attention, subtree_attention
from subtree_attention.ops import arrivals, definition
from tests.ops.cases import EDGES, FLOAT64_ERROR, assert_all_close, make_map, random_inputs

SIMILARITIES = {
    None: definition.kernel_similarity(make_map("elu", 5)),
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
        weights = attention(query, key, graph, root, hop, similarity=similarity)
        assert_all_close([weights], [dense[:, root].t()], FLOAT64_ERROR)


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_weights_times_values_are_the_operator(similarity):
    graph = EDGES["directed"].graph()
    query, key, value = random_inputs(graph.num_nodes, heads=None).all()
    levels = subtree_attention(query, key, value, graph, 3, similarity=similarity)
    weights = attention(query, key, graph, 2, 3, similarity=similarity)
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
