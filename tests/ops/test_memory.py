"""How much memory the operator takes: a state, and per hop in training no more than read-outs."""

import pytest
import torch

from experiments.bench.memory import peak
from subtree_attention import subtree_attention
from tests.ops.cases import random_edges, random_inputs

NODES, HEADS, CHANNELS = 300, 2, (8, 5)  # d, c
READOUT = NODES * HEADS * (CHANNELS[1] + 1) * 4  # bytes of one hop's read-outs in float32


def peak_bytes(
    hops: int, training: bool, device: str, backend: str, nodes: int = NODES, degree: int = 5
) -> int:
    graph = random_edges(nodes, nodes * degree).graph(device=device)
    graph.matrix(), graph.transpose()  # built once per graph, so not counted
    inputs = random_inputs(nodes, HEADS, hops, CHANNELS).to(torch.float32).to(device)

    def call() -> None:
        query, key, value, weights = inputs.all()
        with torch.set_grad_enabled(training):
            out = subtree_attention(query, key, value, graph, hops, weights, backend=backend)
        if training:
            torch.autograd.grad(out.sum(), inputs.all())

    call()  # whatever is compiled or cached on first use does not belong to the operator
    _, most = peak(call, torch.device(device))
    assert most > 0, "the profiler recorded no memory events"
    return most


def test_training_grows_with_the_hops_by_the_read_outs_only(device, backend):
    growth = peak_bytes(100, True, device, backend) - peak_bytes(3, True, device, backend)
    # The read-outs are all that is kept; the CUDA backend forms their gradients all at once, with
    # 8 columns for 6.
    assert growth <= (2.4 if backend == "cuda" else 1.1) * 97 * READOUT


def test_inference_does_not_grow_with_the_hops(device, backend):
    few, many = (peak_bytes(hops, False, device, backend) for hops in (20, 100))
    assert many == few


@pytest.mark.parametrize("training", [False, True])
def test_no_tensor_holds_a_state_per_edge(training, device, backend):
    nodes, degree = 3000, 100
    state_per_edge = nodes * degree * HEADS * CHANNELS[0] * (CHANNELS[1] + 1) * 4
    # States per node are a hundredth of that each; index arrays of E numbers a 96th.
    peak = peak_bytes(3, training, device, backend, nodes, degree)
    assert peak < state_per_edge / 8
