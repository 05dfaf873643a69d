"""`subtree_attention` against the paper's equation, and what it promises beyond that."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from subtree_attention import Graph, subtree_attention
from subtree_attention.ops import backends, definition, library, walk
from subtree_attention.ops.definition import kernel_similarity
from tests.ops.cases import (
    EDGES,
    FLOAT64_ERROR,
    MAPS,
    Edges,
    Inputs,
    assert_all_close,
    error,
    make_map,
    output_and_gradients,
    pairwise,
    random_edges,
    random_inputs,
    reference,
)

COMBINATIONS = pairwise(
    edges=list(EDGES),
    feature_map=MAPS,
    hops=[3, 0, 1, 2, 7],
    transition=["rw", "sym", "mean", None],
    heads=[2, 1, 3, None],
    weights=[None, "per-hop", "per-hop-and-head"],
    eps=[0.0, 1e-6, 1e-5],
)


def run(inputs: Inputs, graph: Graph, hops: int, **options) -> list[torch.Tensor]:
    """Output and every gradient of the operator."""
    query, key, value, weights = inputs.query, inputs.key, inputs.value, inputs.hop_weights
    out = subtree_attention(query, key, value, graph, hops, weights, **options)
    return output_and_gradients(out, inputs.all())


def expect(inputs: Inputs, graph: Graph, hops: int, feature_map, eps: float = 1e-6):
    """Output and every gradient of the definition."""
    out = reference(inputs, graph, hops, kernel_similarity(feature_map), eps)
    return output_and_gradients(out, inputs.all())


@pytest.mark.parametrize("case", COMBINATIONS, ids=lambda c: "-".join(map(str, c.values())))
def test_equals_the_definition_in_output_and_every_gradient(case, device, backend):
    graph = EDGES[case["edges"]].graph(case["transition"], device)
    hops, weights = case["hops"], case["weights"]
    inputs = random_inputs(
        graph.num_nodes,
        case["heads"],
        hops if weights else None,
        per_head=weights == "per-hop-and-head",
    ).to(device)
    phi = make_map(case["feature_map"], 5)
    if isinstance(phi, torch.nn.Module):
        phi = phi.to(device)
    actual = run(inputs, graph, hops, feature_map=phi, eps=case["eps"], backend=backend)
    assert_all_close(actual, expect(inputs, graph, hops, phi, case["eps"]), FLOAT64_ERROR)


@st.composite
def graphs(draw: st.DrawFn) -> Edges:
    num_nodes = draw(st.integers(1, 8))
    node = st.integers(0, num_nodes - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=20))
    weight = draw(st.lists(st.floats(0.125, 4), min_size=len(pairs), max_size=len(pairs)))
    index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    return Edges(index, num_nodes, torch.tensor(weight, dtype=torch.float64))


@settings(max_examples=25, derandomize=True, deadline=None)
@given(edges=graphs(), transition=st.sampled_from(["rw", "sym", "mean", None]))
def test_equals_the_definition_on_any_small_graph(edges, transition):
    graph = edges.graph(transition)
    inputs = random_inputs(graph.num_nodes, hops=3)
    actual = run(inputs, graph, 3, eps=0.0)
    assert_all_close(actual, expect(inputs, graph, 3, make_map("elu", 5), 0.0), FLOAT64_ERROR)


@pytest.mark.parametrize("hops", [1, 3, 7])
@pytest.mark.parametrize("weighted", [False, True])
def test_float32_errs_at_most_twice_as_much_as_plain_pytorch(hops, weighted, device, backend):
    graph = random_edges(100, 450, weighted=True).graph(device=device)
    exact = random_inputs(100, hops=hops if weighted else None, channels=(8, 5)).to(device)
    exact = exact.to(torch.float32).to(torch.float64)  # the same numbers in both precisions
    single = exact.to(torch.float32)
    elu = make_map("elu", 8)
    truth = expect(exact, graph, hops, elu)
    ours, plain = run(single, graph, hops, backend=backend), expect(single, graph, hops, elu)
    floor = 4 * torch.finfo(torch.float32).eps  # where plain PyTorch happens to be exact
    for actual, naive, expected in zip(ours, plain, truth, strict=True):
        assert error(actual, expected) <= max(2 * error(naive, expected), floor)


@pytest.mark.parametrize("weighted", [False, True])
def test_gradcheck(weighted, device):
    graph = EDGES["directed-weighted"].graph(device=device)
    hops = 2
    inputs = random_inputs(graph.num_nodes, 2, hops if weighted else None, (3, 2)).to(device)

    def operator(query, key, value, weights=None):
        return subtree_attention(
            query, key, value, graph, hops, weights, feature_map="softplus", eps=1e-6
        )

    # Forward differences of float64 at step 1e-6 are good to about 1e-6: gradcheck's defaults.
    assert torch.autograd.gradcheck(operator, inputs.all())


def test_custom_ops_fulfil_their_contract_with_torch(device):
    graph = EDGES["directed"].graph(device=device)
    inputs = random_inputs(graph.num_nodes, hops=2).to(device)
    positive = [t.detach().exp().requires_grad_() for t in inputs.all()]
    name = backends.choose("auto", graph.device, torch.float64)
    kernel = backends.BACKENDS[name]
    matrices = kernel.matrices(graph, torch.float64, both=True)
    for keep, phi in product((walk.READOUTS, walk.STATES_TOO), ("", *kernel.maps)):
        options = 2, 1e-6, name, "full", None, phi, "hop_weights", keep
        torch.library.opcheck(library.forward, (positive, *matrices, *options))


class Seen(TorchDispatchMode):
    """Notes the operators of this library that pass."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "subtree_attention":
            self.names.append(func._opname)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("weighted", [False, True])
def test_whoever_watches_sees_one_operator_each_way_and_the_same_bits(weighted, device, backend):
    graph = EDGES["directed"].graph(device=device)
    inputs = random_inputs(graph.num_nodes, hops=3 if weighted else None).to(device)
    expected = run(inputs, graph, 3, backend=backend)
    with Seen() as seen:
        actual = run(inputs, graph, 3, backend=backend)
    assert seen.names == ["forward", "backward"]
    assert all(map(torch.equal, actual, expected))


def test_fake_tensors_have_the_right_shapes():
    graph, inputs = EDGES["directed"].graph(), random_inputs(EDGES["directed"].num_nodes)
    graph.matrix(torch.float64), graph.transpose(torch.float64)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        query, key, value = (mode.from_tensor(t) for t in inputs.all())
        out = subtree_attention(query, key, value, graph, 2)
        assert out.shape == (3, *value.shape)
        assert torch.autograd.grad(out.sum(), query)[0].shape == query.shape


def test_double_backward_is_refused_in_words():
    graph = EDGES["directed"].graph()
    inputs = random_inputs(graph.num_nodes)
    out = subtree_attention(*inputs.all(), graph, 2)
    (grad,) = torch.autograd.grad(out.square().sum(), inputs.value, create_graph=True)
    with pytest.raises(RuntimeError, match="no double backward"):
        grad.sum().backward()


def test_only_the_inputs_that_ask_for_a_gradient_get_one():
    graph = EDGES["directed"].graph()
    inputs = random_inputs(graph.num_nodes, hops=2)
    query, key, value, weights = (t.detach() for t in inputs.all())
    subtree_attention(query, key, value.requires_grad_(), graph, 2, weights).sum().backward()
    assert value.grad is not None
    assert query.grad is None


@pytest.mark.parametrize("eps", [0.0, 1e-5])
@pytest.mark.parametrize("feature_map", ["elu", "relu"])
@pytest.mark.parametrize("name", ["isolated-nodes", "no-edges", "one-node", "self-loops"])
def test_where_no_walk_arrives_the_output_is_zero_and_gradients_are_finite(
    name, feature_map, eps, device, backend
):
    graph = EDGES[name].graph(device=device)
    inputs = random_inputs(graph.num_nodes).to(torch.float32).to(device)
    out, *gradients = run(inputs, graph, 4, feature_map=feature_map, eps=eps, backend=backend)
    power = graph.dense()
    for hop in range(1, 5):
        assert (out[hop][power.sum(1) == 0] == 0).all()
        power = graph.dense() @ power
    assert all(t.isfinite().all() for t in (out, *gradients))


@pytest.mark.parametrize("weighted", [False, True])
def test_the_same_bits_twice(weighted, device, backend):
    graph = random_edges(300, 6000, weighted=True).graph(device=device)
    inputs = random_inputs(300, 3, 4 if weighted else None, (16, 7)).to(torch.float32).to(device)
    first, second = (run(inputs, graph, 4, backend=backend) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_inputs_are_computed_and_returned_in_float32(dtype, device):
    graph = EDGES["directed"].graph(device=device)
    half = random_inputs(graph.num_nodes, hops=3).to(dtype).to(device)
    single = half.to(torch.float32)
    out, *gradients = run(half, graph, 3)
    expected, *expected_gradients = run(single, graph, 3)
    assert out.dtype == torch.float32
    assert torch.equal(out, expected)
    for ours, wanted in zip(gradients, expected_gradients, strict=True):
        assert ours.dtype == dtype
        assert torch.equal(ours, wanted.to(dtype))


def test_autocast_changes_nothing_in_forward_or_backward(device):
    graph = EDGES["directed"].graph(device=device)
    inputs = random_inputs(graph.num_nodes, hops=3).to(torch.float32).to(device)
    expected = run(inputs, graph, 3)
    with torch.autocast(device, torch.bfloat16):
        actual = run(inputs, graph, 3)
    assert all(torch.equal(a, e) for a, e in zip(actual, expected, strict=True))
    assert actual[0].dtype == torch.float32


def test_mixed_dtypes_are_computed_in_the_widest():
    graph = EDGES["directed"].graph()
    inputs = random_inputs(graph.num_nodes)
    out = subtree_attention(inputs.query.float(), inputs.key, inputs.value.half(), graph, 1)
    assert out.dtype == torch.float64


def test_strided_inputs_equal_contiguous_ones(device):
    graph = EDGES["directed"].graph(device=device)
    inputs = random_inputs(graph.num_nodes, hops=2).to(device)
    strided = Inputs(
        *(t.detach().movedim(0, -1).contiguous().movedim(-1, 0).requires_grad_()
          for t in inputs.all())
    )  # fmt: skip
    assert not strided.value.is_contiguous()
    assert_all_close(run(strided, graph, 2), run(inputs, graph, 2), FLOAT64_ERROR)


def test_level_zero_is_the_value_and_hop_weights_sum_the_levels(device):
    graph = EDGES["directed"].graph(device=device)
    inputs = random_inputs(graph.num_nodes, hops=3).to(device)
    levels = subtree_attention(inputs.query, inputs.key, inputs.value, graph, 3)
    assert torch.equal(levels[0], inputs.value)
    out = subtree_attention(*inputs.all()[:3], graph, 3, inputs.hop_weights)
    summed = (levels * inputs.hop_weights[:, None, :, None]).sum(0)
    assert_all_close([out], [summed], FLOAT64_ERROR)


@pytest.mark.parametrize("transition", ["rw", "sym", "mean", None])
def test_renumbering_the_nodes_renumbers_the_output(transition):
    edges = EDGES["directed-weighted"]
    order = torch.randperm(edges.num_nodes)
    renumbered = Edges(order[edges.index], edges.num_nodes, edges.weight)
    inputs = random_inputs(edges.num_nodes)
    moved = [torch.empty_like(t).index_copy(0, order, t) for t in inputs.all()]
    out = subtree_attention(*inputs.all(), edges.graph(transition), 3)
    actual = subtree_attention(*moved, renumbered.graph(transition), 3)
    assert_all_close([actual[:, order]], [out], FLOAT64_ERROR)


def test_components_never_mix():
    edges = EDGES["two-components"]
    inputs = random_inputs(edges.num_nodes)
    out = subtree_attention(*inputs.all(), edges.graph(), 4)
    (grad,) = torch.autograd.grad(out[:, :3].sum(), inputs.value)
    assert (grad[3:] == 0).all()


class TestTheorem1:
    """On a connected graph that is not bipartite, STA_k tends to global attention."""

    edges = Edges(torch.tensor([[0, 1, 1, 2, 2, 0, 2, 3, 3, 4], [1, 0, 2, 1, 0, 2, 3, 2, 4, 3]]), 5)
    eta = 0.05

    def enough_hops(self) -> int:
        spectrum = torch.linalg.eigvalsh(self.edges.graph("sym").dense()).abs().sort().values
        gap = 1 - float(spectrum[-2])
        return int(2 * torch.tensor(self.edges.num_nodes / self.eta).log() / gap) + 1

    def test_powers_of_the_walk_tend_to_the_stationary_distribution(self):
        graph = self.edges.graph()
        degree = self.edges.dense().sum(1)
        stationary = (degree / degree.sum())[:, None].expand(-1, 5)
        power = torch.linalg.matrix_power(graph.dense(), self.enough_hops())
        assert ((power - stationary).abs() <= self.eta * stationary).all()

    def test_the_ratio_to_global_attention_keeps_the_bound(self):
        inputs = random_inputs(5)
        value = inputs.value.detach().abs()
        hops = self.enough_hops()
        level = subtree_attention(
            inputs.query, inputs.key, value, self.edges.graph(), hops, eps=0.0
        )[-1]
        similarity = kernel_similarity(make_map("elu", 5))
        everywhere = definition.global_attention(
            inputs.query, inputs.key, value, similarity=similarity
        )
        ratio, eta = level / everywhere, self.eta
        assert (ratio >= (1 - eta) / (1 + eta)).all()
        assert (ratio <= (1 + eta) / (1 - eta)).all()

    def test_it_is_global_attention_in_the_limit(self):
        inputs = random_inputs(5)
        weights = torch.zeros(201, dtype=torch.float64)
        weights[-1] = 1
        out = subtree_attention(*inputs.all(), self.edges.graph(), 200, weights, eps=0.0)
        similarity = kernel_similarity(make_map("elu", 5))
        everywhere = definition.global_attention(*inputs.all(), similarity=similarity)
        assert_all_close([out], [everywhere], FLOAT64_ERROR)  # lambda_2^200 is far below


@pytest.mark.parametrize("place", [0, 1])
def test_these_comparisons_fail_where_something_is_not_a_number(place):
    right = [torch.ones(2), torch.ones(2)]
    wrong = [*right]
    wrong[place] = torch.tensor([1.0, torch.nan])
    with pytest.raises(AssertionError, match="relative errors"):
        assert_all_close(wrong, right, 1.0)
