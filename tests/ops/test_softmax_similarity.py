"""Exact softmax similarity, evaluated on the powers of the transition matrix."""

import math

import pytest
import torch

from subtree_attention import feature_maps, subtree_attention
from subtree_attention.ops import softmax
from subtree_attention.ops.definition import softmax_similarity
from tests.ops.cases import (
    EDGES,
    FLOAT64_ERROR,
    Edges,
    assert_all_close,
    output_and_gradients,
    random_inputs,
    reference,
)


def run(inputs, graph, hops, eps=1e-6):
    out = subtree_attention(
        inputs.query,
        inputs.key,
        inputs.value,
        graph,
        hops,
        inputs.hop_weights,
        feature_map="softmax",
        eps=eps,
    )
    return output_and_gradients(out, inputs.all())


def expect(inputs, graph, hops, eps=1e-6, similarity=softmax_similarity):
    return output_and_gradients(reference(inputs, graph, hops, similarity, eps), inputs.all())


@pytest.mark.parametrize("name", list(EDGES))
@pytest.mark.parametrize(
    ("transition", "heads", "weighted", "hops", "eps"),
    # eps = 0.1 is large enough to be seen: it belongs to the sum of plain exponentials.
    [("rw", 2, True, 3, 0.0), ("sym", 1, False, 2, 0.1), (None, None, True, 4, 1e-6)],
)
def test_equals_the_definition(name, transition, heads, weighted, hops, eps, device):
    graph = EDGES[name].graph(transition, device)
    inputs = random_inputs(graph.num_nodes, heads, hops if weighted else None).to(device)
    expected = expect(inputs, graph, hops, eps)
    assert_all_close(run(inputs, graph, hops, eps), expected, FLOAT64_ERROR)


def test_blocks_of_rows_change_nothing(monkeypatch):
    graph = EDGES["directed"].graph()
    inputs = random_inputs(graph.num_nodes)
    monkeypatch.setattr(softmax, "BLOCK_ENTRIES", 1)
    assert_all_close(run(inputs, graph, 3), expect(inputs, graph, 3), FLOAT64_ERROR)


def shifted_similarity(query, key):
    """exp(q.k / sqrt(d)) over the largest of its row: the same attention, in range."""
    scores = torch.einsum("ihd,jhd->hij", query, key) / math.sqrt(query.size(-1))
    return torch.exp(scores - scores.amax(-1, keepdim=True).detach())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_logits_do_not_overflow(dtype):
    # Self-loops everywhere, so that every row's largest score lies on an arrived walk or the
    # shift of the reference costs no more than exp(-300), which float64 holds.
    graph = EDGES["undirected"].graph(self_loops=True)
    inputs = random_inputs(graph.num_nodes)
    inputs.query = (inputs.query.detach() * 70).requires_grad_()  # logits of about +-300
    assert softmax_similarity(inputs.query.float(), inputs.key.float()).isinf().any()
    truth = expect(inputs, graph, 2, 0.0, shifted_similarity)
    actual = run(inputs.to(dtype), graph, 2, 0.0)
    assert all(t.isfinite().all() for t in actual)
    # A logit of 300 is rounded to 300 ulp, and exp turns that into the relative error.
    assert_all_close(actual, truth, 300 * 30 * torch.finfo(dtype).eps)


def test_an_edge_of_weight_zero_is_no_edge():
    edges = Edges(torch.tensor([[0, 1], [2, 2]]), 3, torch.tensor([0.0, 1.0]))
    query = torch.tensor([[1000.0], [1.0], [1.0]])  # the absent edge has by far the largest score
    out = subtree_attention(query, query, query, edges.graph(), 1, feature_map="softmax", eps=0.0)
    assert out[1].flatten().tolist() == [0, 0, 1]


@pytest.mark.parametrize(("budget", "hop", "hops"), [(5, 1, 3), (40, 2, 3)])
def test_too_many_entries_are_refused_with_the_size(monkeypatch, budget, hop, hops):
    monkeypatch.setattr(softmax, "MAX_ENTRIES", budget)
    graph = EDGES["directed"].graph()
    inputs = random_inputs(graph.num_nodes)
    message = rf"A\^1\.\.A\^{hops}.*A\^{hop} that is about \d+ entries.*budget of {budget}"
    for _ in range(2):  # also when part of the powers is cached
        with pytest.raises(ValueError, match=message):
            run(inputs, graph, hops)


def test_random_features_approach_it_as_their_number_grows():
    graph = EDGES["undirected"].graph()
    inputs = random_inputs(graph.num_nodes)
    # Longer queries would give the estimate heavy tails.
    inputs.query = (inputs.query.detach() / 2).requires_grad_()
    exact = run(inputs, graph, 3, 0.0)[0]

    def mean_error(num_features: int) -> float:
        errors = []
        for seed in range(5):
            torch.manual_seed(seed)
            features = feature_maps.SoftmaxFeatures(5, num_features)
            out = subtree_attention(*inputs.all(), graph, 3, feature_map=features, eps=0.0)
            errors.append(float((out - exact).detach().abs().mean()))
        return sum(errors) / len(errors)

    # 64 times the features: an eighth of the error, half of which is asked for.
    assert mean_error(4096) < mean_error(64) / 4
