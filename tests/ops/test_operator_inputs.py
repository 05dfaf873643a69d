"""Wrong inputs of the operator are refused with the offending value."""

import math

import pytest
import torch

from subtree_attention import subtree_attention
from tests.ops.cases import EDGES, random_inputs

NODES = EDGES["directed"].num_nodes


def call(**changes):
    inputs = random_inputs(NODES)
    arguments = {
        "query": inputs.query,
        "key": inputs.key,
        "value": inputs.value,
        "graph": EDGES["directed"].graph(),
        "hops": 2,
    }
    return subtree_attention(**{**arguments, **changes})


def test_the_call_that_the_others_spoil_is_right():
    assert call().shape == (3, NODES, 2, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hops": -1}, "hops must be at least 0, got -1"),
        ({"value": torch.empty(NODES, 2, 0)}, r"a head needs channels, .* values \[11, 2, 0\]"),
        ({"eps": -1e-3}, "eps must be a finite number of at least 0, got -0.001"),
        ({"eps": math.nan}, "got nan"),
        ({"eps": math.inf}, "got inf"),
        ({"feature_map": "elo"}, "unknown feature map 'elo'. Did you mean 'elu'"),
        ({"feature_map": "softmax-features"}, "'softmax-features' draws random projections"),
        ({"feature_map": "rbf-features"}, "build the module once"),
        ({"feature_map": torch.sin}, "must not be negative .* gave -"),
        ({"feature_map": lambda x: x.sum()}, r"takes \[11, 2, 5\] to .* gave \[\]"),
        ({"feature_map": lambda x: None}, "this one gave NoneType"),
        ({"feature_map": "sotfmax"}, "unknown feature map 'sotfmax'. Did you mean 'softmax'"),
        ({"backend": "troch"}, "unknown backend 'troch'. Did you mean 'torch'"),
        ({"query": torch.randn(NODES, 2, 4)}, r"same shape, got \[11, 2, 4\] and \[11, 2, 5\]"),
        ({"key": torch.randn(NODES, 3, 5)}, r"same shape, got \[11, 2, 5\] and \[11, 3, 5\]"),
        ({"value": torch.randn(NODES, 3, 3)}, r"heads, got \[11, 2, 5\] and \[11, 3, 3\]"),
        ({"value": torch.randn(NODES, 3)}, r"heads, got \[11, 2, 5\] and \[11, 3\]"),
        ({"value": torch.randn(9, 2, 3)}, "value has 9 rows, but the graph has 11 nodes"),
        ({"value": torch.randn(NODES)}, r"value must have shape .* got \[11\]"),
        ({"query": torch.randn(1, NODES, 2, 5)}, r"query must have shape .* got \[1, 11, 2, 5\]"),
        ({"hop_weights": torch.ones(2)}, r"\[3\] or \[3, 2\] for 2 hops and 2 heads, got \[2\]"),
        ({"hop_weights": torch.ones(3, 3)}, r"got \[3, 3\]"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_wrong_values_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        call(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hops": True}, "hops must be an integer, got True"),
        ({"hops": 2.0}, "hops must be an integer, got 2.0"),
        ({"eps": "small"}, "eps must be a number, got 'small'"),
        ({"eps": True}, "eps must be a number, got True"),
        (
            {"query": torch.ones(NODES, 2, 5, dtype=torch.long)},
            "query must hold .* got torch.int64",
        ),
        ({"value": [[1.0]]}, "value must be a torch.Tensor, got list"),
        ({"hop_weights": [1.0, 1.0, 1.0]}, "hop_weights must be a torch.Tensor, got list"),
        ({"hop_weights": torch.ones(3, dtype=torch.int32)}, "hop_weights .* got torch.int32"),
        ({"graph": EDGES["directed"].index}, r"got Tensor: Graph\(edge_index, num_nodes\) makes"),
        ({"feature_map": 3}, "feature_map must be a name .* got 3"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_wrong_types_are_refused(changes, message):
    with pytest.raises(TypeError, match=message):
        call(**changes)


def test_inputs_on_another_device_than_the_graph_are_refused():
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    inputs = random_inputs(NODES).to("cuda")
    with pytest.raises(ValueError, match=r"query is on cuda:0, but the graph is on cpu"):
        subtree_attention(*inputs.all(), EDGES["directed"].graph(), 2)


def test_the_environment_names_a_backend(monkeypatch):
    monkeypatch.setenv("STA_BACKEND", "fast")
    with pytest.raises(ValueError, match="unknown backend 'fast'"):
        call()
