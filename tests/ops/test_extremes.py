"""The operator against the definition over extreme values and degrees, in float32."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from subtree_attention import Graph, subtree_attention
from subtree_attention.ops.definition import kernel_similarity
from tests.ops.cases import (
    EDGES,
    FLOAT64_ERROR,
    Edges,
    Inputs,
    assert_all_close,
    make_map,
    output_and_gradients,
    random_edges,
    random_inputs,
    reference,
)

HOPS, NODES = 3, 40
ELU = make_map("elu", 1)
ROUNDING = torch.finfo(torch.float32).eps

Change = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, ...]]
VALUES: dict[str, tuple[Change, float]] = {  # what normal inputs are made into, and eps
    "usual": (lambda q, k, v, w: (q, k, v, w), 1e-6),
    "q, k of 1e4": (lambda q, k, v, w: (1e4 * q, 1e4 * k, v, w), 1e-6),
    "q, k of 30": (lambda q, k, v, w: (30 * q, 30 * k, v, w), 1e-6),
    "q, k of 1e-3": (lambda q, k, v, w: (1e-3 * q, 1e-3 * k, v, w), 1e-6),
    "q, k of 1e-30": (lambda q, k, v, w: (1e-30 * q, 1e-30 * k, v, w), 1e-6),
    "q at 1e4, k at -30": (lambda q, k, v, w: (q + 1e4, k - 30, v, w), 1e-6),
    "k at -16": (lambda q, k, v, w: (q, k - 16, v, w), 0.0),
    "k at -60": (lambda q, k, v, w: (q, k - 60, v, w), 0.0),
    "q, k at -40": (lambda q, k, v, w: (q - 40, k - 40, v, w), 0.0),
    "v of 1e30": (lambda q, k, v, w: (q, k, 1e30 * v, w), 1e-6),
    "v of 1e-30": (lambda q, k, v, w: (q, k, 1e-30 * v, w), 1e-6),
    "w of 1e30": (lambda q, k, v, w: (q, k, v, 1e30 * w), 1e-6),
    "w of 1e-30": (lambda q, k, v, w: (q, k, v, 1e-30 * w), 1e-6),
    "eps of 1e-38": (lambda q, k, v, w: (q, k, v, w), 1e-38),
    "eps of 1e6": (lambda q, k, v, w: (q, k, v, w), 1e6),
}


def operator(inputs: Inputs, graph: Graph, eps: float, backend: str) -> Tensor:
    query, key, value, weights = inputs.query, inputs.key, inputs.value, inputs.hop_weights
    return subtree_attention(query, key, value, graph, HOPS, weights, eps=eps, backend=backend)


def definition(inputs: Inputs, graph: Graph, eps: float) -> Tensor:
    return reference(inputs, graph, HOPS, kernel_similarity(ELU), eps)


def terms(inputs: Inputs, graph: Graph, eps: float) -> Tensor:
    """As `definition`, with denominators that have no gradient.

    The gradients of queries and keys are then what the quotient rule subtracts from: their
    roundings stay where most of it cancels.
    """
    similarity, transition = kernel_similarity(ELU)(inputs.query, inputs.key), graph.dense()
    out, power = inputs.value * inputs.hop_weights[0, :, None], torch.eye(len(transition))
    for hop in range(1, HOPS + 1):
        power = transition @ power.to(transition)
        weights = power * similarity
        total = (weights.sum(-1, keepdim=True) + eps).detach()
        shares = torch.where(total != 0, weights / torch.where(total != 0, total, 1), 0)
        level = torch.einsum("hij,jhc->ihc", shares, inputs.value)
        out = out + level * inputs.hop_weights[hop, :, None]
    return out


def assert_as_exact_as_float32_can_be(
    single: Inputs,
    graph: Graph,
    eps: float,
    backend: str,
    outputs: slice = slice(None),
    roundings: int = 4,
) -> None:
    """Within so many roundings of what is added up, or twice what plain PyTorch errs."""
    exact = single.to(torch.float64)  # the same numbers
    ours, plain, truth, parts = (
        [tensor.detach().double() for tensor in output_and_gradients(out, inputs.all())[outputs]]
        for out, inputs in (
            (operator(single, graph, eps, backend), single),
            (definition(single, graph, eps), single),
            (definition(exact, graph, eps), exact),
            (terms(exact, graph, eps), exact),
        )
    )
    for actual, naive, expected, part in zip(ours, plain, truth, parts, strict=True):
        error, twice = (actual - expected).norm(), 2 * (naive - expected).norm()
        allowed = roundings * ROUNDING * max(expected.norm(), part.norm())
        assert error <= allowed or error <= twice, f"{error} above {allowed} and {twice}"


def changed(change: Change, num_nodes: int = NODES) -> Inputs:
    normal = random_inputs(num_nodes, 2, HOPS, (8, 5)).to(torch.float32)
    return Inputs(*change(*(tensor.detach() for tensor in normal.all())))


@pytest.mark.parametrize("case", VALUES)
@pytest.mark.parametrize("transition", ["rw", None])
def test_extreme_values(case, transition, device, backend):
    change, eps = VALUES[case]
    graph = random_edges(NODES, 200, seed=1, weighted=True).graph(transition, device)
    single = changed(change).to(device)
    assert_as_exact_as_float32_can_be(single, graph, eps, backend)


@pytest.mark.parametrize("scale", [1e-30, 1e-15, 1e15])
def test_extreme_weights_of_edges(scale, device, backend):
    """Three steps of a walk multiply three of them."""
    edges = random_edges(NODES, 200, seed=1, weighted=True)
    edges = Edges(edges.index, NODES, edges.weight * scale)
    transition = None if 1e-12 < scale**3 < 1e36 else "rw"
    single = changed(VALUES["usual"][0]).to(device)
    graph = edges.graph(transition, device)
    assert_as_exact_as_float32_can_be(single, graph, 0.0, backend)


@pytest.mark.parametrize(("place", "scale"), [(-88, 1), (-60, 1e30)])
def test_a_level_is_right_where_the_weight_over_its_denominator_overflows(
    place, scale, device, backend
):
    """The gradient of the read-out is beyond float32 there."""
    single = changed(lambda q, k, v, w: (q, k + place, v, scale * w)).to(device)
    graph = random_edges(NODES, 200, seed=1).graph(device=device)
    only_output = slice(1)
    assert_as_exact_as_float32_can_be(single, graph, 0.0, backend, only_output)


@pytest.mark.parametrize("eps", [0.0, 1e-6])
def test_features_that_vanish_make_levels_of_zero(eps, device, backend):
    """exp(-200) is 0 in float32, so all denominators are."""
    single = changed(lambda q, k, v, w: (q, k - 200, v, w)).to(device)
    graph = random_edges(NODES, 200, seed=1).graph(device=device)
    out, *gradients = output_and_gradients(operator(single, graph, eps, backend), single.all())
    assert torch.equal(out, single.value * single.hop_weights[0, :, None])
    assert all(gradient.isfinite().all() for gradient in gradients)


# ------------------------------------------------------------------------------------ degrees


def rows_of(lengths: list[int]) -> Edges:
    """A node for each length, which hears so often from nodes at random; many hear from it."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    sources = torch.randint(NODES, targets.shape, generator=generator)
    return Edges(torch.stack([sources, targets]), NODES)


SPANS = rows_of([0, 1, 2, 3, 4, 5, 127, 128, 129, 255, 256, 257, 259, 260, 511, 512, 513, 1027])
"""Rows around the lengths at which a backend cuts them; parallel edges among them."""

DEGREES = {
    "spans": SPANS,
    "spans of the transpose": Edges(SPANS.index.flip(0), NODES),
    "self-loops only": Edges(torch.arange(NODES).expand(2, -1), NODES),
    "a thousand parallel edges": Edges(torch.tensor([[0], [1]]).expand(2, 1000), 3),
    "hubs": EDGES["hubs"],
    "isolated nodes": EDGES["isolated-nodes"],
    "no edges": EDGES["no-edges"],
    "one node": EDGES["one-node"],
    "no nodes": EDGES["no-nodes"],
}


@pytest.mark.parametrize("name", DEGREES)
@pytest.mark.parametrize("transition", ["rw", "sym", None])
def test_degrees(name, transition, device, backend):
    edges = DEGREES[name]
    graph = edges.graph(transition, device)
    single = changed(VALUES["usual"][0], edges.num_nodes).to(device)
    # A thousand neighbours over three hops, in `torch` one by one, where plain PyTorch adds up 40.
    many = 256 if backend == "torch" else 64
    assert_as_exact_as_float32_can_be(single, graph, 1e-6, backend, roundings=many)
    exact = single.to(torch.float64)
    ours, truth = operator(exact, graph, 1e-6, backend), definition(exact, graph, 1e-6)
    everything = (output_and_gradients(out, exact.all()) for out in (ours, truth))
    assert_all_close(*everything, FLOAT64_ERROR)


def star(leaves: int) -> Edges:
    """Node 0 in the middle, edges both ways."""
    leaf = torch.arange(1, leaves + 1)
    inwards = torch.stack([leaf, torch.zeros_like(leaf)])
    return Edges(torch.cat([inwards, inwards.flip(0)], dim=1), leaves + 1)


def levels_of_star(inputs: Inputs, hops: int) -> Tensor:
    """The definition on a star. A walk of odd length joins the middle and any leaf, one of even
    length the middle and itself, or any two leaves: all leaves alike."""
    query, key, value = ELU(inputs.query), ELU(inputs.key), inputs.value
    ones = torch.cat([value[1:], torch.ones_like(value[1:, :, :1])], dim=-1)
    over_leaves = torch.einsum("nhd,nhc->hdc", key[1:], ones)
    read = torch.einsum("nhd,hdc->nhc", query, over_leaves)
    leaves = read[..., :-1] / read[..., -1:]
    middle = value[:1].expand_as(value)
    odd = torch.cat([leaves[:1], middle[1:]])
    even = torch.cat([middle[:1], leaves[1:]])
    return torch.stack([value, *(odd if hop % 2 else even for hop in range(1, hops + 1))])


@pytest.mark.parametrize("transition", ["rw", "sym"])
def test_a_hub_of_a_hundred_thousand(transition, device, backend):
    """`torch` adds up neighbours one after the other, as its library does, and loses digits."""
    inputs = random_inputs(100_001, 1, channels=(8, 4), dtype=torch.float32).to(device)
    graph = star(100_000).graph(transition, device)
    out = subtree_attention(*inputs.all(), graph, HOPS, eps=0.0, backend=backend)
    actual = output_and_gradients(out, inputs.all())
    exact = inputs.to(torch.float64)
    expected = output_and_gradients(levels_of_star(exact, HOPS), exact.all())
    for level, wanted in zip(actual[0].detach(), expected[0].detach(), strict=True):
        deviation = (level - wanted).abs().max() / wanted.abs().max()
        assert deviation <= (5e-3 if backend == "torch" else 5e-5)
    if transition == "rw" and backend != "torch":
        for gradient, wanted in zip(actual[1:], expected[1:], strict=True):
            # Those of the hub's key cancel out: what is left is a rounding of each leaf.
            assert (gradient - wanted).norm() / wanted.norm() <= 2e-3
