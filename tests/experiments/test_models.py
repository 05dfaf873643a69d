"""Global attention alone: the numbers it had as an option of STAGNN, and what it should compute."""

import pytest
import torch
import torch.nn.functional as F

from experiments.models import GlobalAttentionGNN
from subtree_attention import Graph
from subtree_attention.feature_maps import elu
from subtree_attention.ops import definition

GRAPH = Graph(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), 4)

BEFORE = [
    ({}, [-0.04879477620124817, 0.15920647978782654, 0.15647022426128387]),
    ({"heads": 1}, [-0.14855992794036865, -0.18072479963302612, 0.24042898416519165]),
    ({"head_mix": "sum"}, [-0.006554845720529556, -0.9398661851882935, 0.11982153356075287]),
    ({"feature_map": "softmax"}, [-0.02178435027599334, 0.12761369347572327, 0.13621209561824799]),
    (
        {"feature_map": "softmax-features"},
        [0.905255138874054, 0.573979377746582, -0.06283898651599884],
    ),
]
"""The first node's logits, in training, of `STAGNN(5, 6, 3, global_attention="only", ...)` with
seed 4 and x drawn before it, when that was an option."""


def drawn(**options) -> tuple[GlobalAttentionGNN, torch.Tensor]:
    torch.manual_seed(4)
    x = torch.randn(4, 5)
    return GlobalAttentionGNN(5, 6, 3, **{"heads": 2, "dropout": 0.5, **options}), x


@pytest.mark.parametrize(("options", "expected"), BEFORE, ids=lambda value: str(value)[:40])
def test_numbers_are_those_it_had_before(options, expected, monkeypatch):
    monkeypatch.setenv("STA_BACKEND", "torch")  # with the random numbers that torch drops by
    model, x = drawn(**options)
    # The same bits on one machine; another CPU may add up in another order.
    torch.testing.assert_close(model(x, GRAPH)[0], torch.tensor(expected), rtol=1e-6, atol=1e-6)


def test_parameters_are_called_as_before():
    linear = ("lin", "conv.lin_query", "conv.lin_key", "conv.lin_value", "conv.head_mix.lin")
    names = [f"{name}.{part}" for name in linear for part in ("weight", "bias")]
    assert list(drawn()[0].state_dict()) == names
    assert list(drawn(head_mix="sum")[0].state_dict()) == names[:-2]


def test_it_is_the_definition_between_two_linear_maps():
    model, x = drawn()
    model, x = model.double().eval(), x.double()
    conv, hidden = model.conv, F.relu(model.lin(x))
    query, key, value = (
        lin(hidden).unflatten(-1, (2, -1)) for lin in (conv.lin_query, conv.lin_key, conv.lin_value)
    )
    similarity = definition.kernel_similarity(elu)
    everywhere = definition.global_attention(query, key, value, similarity=similarity, eps=conv.eps)
    torch.testing.assert_close(model(x, GRAPH), conv.head_mix.lin(everywhere.flatten(1)))
