"""Hop weights of gated heads, by torch and by kernels that do it themselves."""

import pytest
import torch

from subtree_attention import ops
from subtree_attention.ops import backends
from tests.ops.cases import EDGES, assert_all_close, output_and_gradients, random_inputs
from tests.ops.emulated_cuda import emulate


@pytest.mark.parametrize(("hops", "heads"), [(0, 3), (1, 1), (3, 4), (200, 5)])
def test_a_weight_times_a_share(hops, heads, device):
    random = torch.Generator().manual_seed(hops)
    weights = torch.randn(hops + 1, generator=random).double().to(device)
    logits = (5 * torch.randn(hops, heads, generator=random)).double().to(device)
    table = ops.gated(weights, logits)
    torch.testing.assert_close(table[1:], weights[1:, None] * torch.softmax(logits, dim=-1))
    torch.testing.assert_close(table[0], weights[0].expand(heads))


@pytest.mark.parametrize("each", [False, True], ids=["for all heads", "for each head"])
@pytest.mark.parametrize("bytes_of_states", [None, 10_000])
@pytest.mark.parametrize("hops", [0, 1, 3, 40])
def test_a_gate_of_the_operator(each, bytes_of_states, hops, backend, device):
    check(each, bytes_of_states, hops, backend, device)


@pytest.mark.parametrize("each", [False, True], ids=["for all heads", "for each head"])
@pytest.mark.parametrize("hops", [1, 3, 40])
def test_a_gate_of_the_emulated_kernel(each, hops, monkeypatch):
    emulate(monkeypatch)
    monkeypatch.setattr(backends, "choose", lambda *ignored: "cuda")
    check(each, None, hops, "cuda", "cpu")


def check(each, bytes_of_states, hops, backend, device):
    """Output and all gradients, with the gate given and with weights that are gated before."""
    graph = EDGES["directed-weighted"].graph(device=device)
    inputs = random_inputs(graph.num_nodes, 3).to(device)
    random = torch.Generator().manual_seed(5)
    shape = (hops + 1, 3) if each else (hops + 1,)
    weights = torch.randn(shape, generator=random).double().to(device)
    logits = (3 * torch.randn(hops, 3, generator=random)).double().to(device)
    given = [*inputs.all(), weights.requires_grad_(), logits.requires_grad_()]
    how = "elu", 1e-6, backend, "full", bytes_of_states

    def attend(weights, gate=None):
        return ops.attend(*given[:3], graph, hops, weights, *how, gate)

    assert_all_close(
        output_and_gradients(attend(weights, logits), given),
        output_and_gradients(attend(ops.gated(weights, logits)), given),
        1e-12,
    )
