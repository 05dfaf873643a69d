"""Global attention: every node attends to all nodes of its graph."""

import pytest
import torch

from subtree_attention import global_attention
from subtree_attention.ops import definition
from tests.ops.cases import (
    FLOAT64_ERROR,
    assert_all_close,
    make_map,
    output_and_gradients,
    random_inputs,
)

BATCHES = {
    "one-graph": None,
    "sorted": torch.tensor([0, 0, 0, 1, 2, 2, 2, 2, 2]),
    "shuffled": torch.tensor([2, 0, 1, 0, 2, 2, 0, 1, 2]),
    "an-empty-graph": torch.tensor([0, 0, 0, 0, 2, 2, 2, 2, 2]),
}


@pytest.mark.parametrize(("feature_map", "eps"), [("elu", 1e-2), ("elu", 0.0), ("softmax", 1e-6)])
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_equals_the_definition_in_output_and_every_gradient(batch, feature_map, eps):
    inputs = random_inputs(9).all()
    dense = definition.kernel_similarity(make_map("elu", 5))
    if feature_map == "softmax":
        dense, eps = definition.softmax_similarity, 0.0  # which has no eps
    actual = global_attention(*inputs, batch, feature_map=feature_map, eps=eps)
    expected = definition.global_attention(*inputs, batch, dense, eps)
    assert_all_close(
        output_and_gradients(actual, inputs),
        output_and_gradients(expected, inputs),
        FLOAT64_ERROR,
    )


@pytest.mark.parametrize("feature_map", ["elu", "softmax"])
def test_a_batch_of_graphs_equals_one_graph_at_a_time(feature_map):
    inputs, batch = random_inputs(9).all(), BATCHES["shuffled"]
    together = global_attention(*inputs, batch, feature_map=feature_map, batch_size=3)
    for graph in range(3):
        own = batch == graph
        alone = global_attention(*(t[own] for t in inputs), feature_map=feature_map)
        assert_all_close([together[own]], [alone], FLOAT64_ERROR)


def test_inputs_without_a_head_axis_are_one_head():
    inputs = random_inputs(9, heads=None).all()
    with_axis = global_attention(*(t.unsqueeze(1) for t in inputs))
    assert torch.equal(global_attention(*inputs), with_axis.squeeze(1))


def test_no_nodes_give_no_rows():
    assert global_attention(*random_inputs(0).all()).shape == (0, 2, 3)
    empty = torch.empty(0, dtype=torch.long)
    assert global_attention(*random_inputs(0).all(), empty).shape == (0, 2, 3)


def test_half_inputs_are_computed_in_float32():
    inputs = random_inputs(9, dtype=torch.bfloat16).all()
    with torch.autocast("cpu", torch.bfloat16):
        out = global_attention(*inputs)
    assert torch.equal(out, global_attention(*(t.float() for t in inputs)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eps": -1.0}, "eps must be .* got -1.0"),
        ({"batch": torch.zeros(8, dtype=torch.long)}, r"batch must have shape \[9\].* got \[8\]"),
        ({"key": torch.randn(9, 2, 4)}, r"same shape, got \[9, 2, 5\] and \[9, 2, 4\]"),
        ({"value": torch.randn(8, 2, 3)}, r"nodes and heads, got \[9, 2, 5\] and \[8, 2, 3\]"),
        ({"feature_map": "sotfmax"}, "Did you mean 'softmax'"),
        ({"feature_map": "elo"}, "Did you mean 'elu'"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_wrong_values_are_refused(changes, message):
    query, key, value = random_inputs(9).all()
    with pytest.raises(ValueError, match=message):
        global_attention(**{"query": query, "key": key, "value": value, **changes})
