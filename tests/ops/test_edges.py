"""The walk with entries per edge and head against the definition, with a matrix for each head."""

import pickle
from functools import partial
from importlib.resources import files

import pytest
import torch
from torch import Tensor

from subtree_attention import Graph, attention, subtree_attention
from subtree_attention.feature_maps import SoftmaxFeatures
from subtree_attention.ops import edges
from subtree_attention.ops.definition import kernel_similarity
from subtree_attention.ops.kernels import edges as steps
from subtree_attention.ops.kernels.cuda import along, compiler
from subtree_attention.ops.kernels.cuda.schedule import share_out
from tests.ops.cases import (
    EDGES,
    FLOAT64_ERROR,
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
from tests.ops.emulated_cuda import emulate

COMBINATIONS = pairwise(
    edges=list(EDGES),
    hops=[1, 4, 0, 2, 9],
    heads=[3, 1],
    per_head=[True, False],
    weights=[True, False],
    eps=[0.0, 1e-6],
    beta=[False, True],
    way=["kept", "again", "parts"],
)


def drawn(graph: Graph, heads: int | None, dtype=torch.float64, seed: int = 3) -> Tensor:
    """Entries [E, H], or [E] without heads."""
    generator = torch.Generator().manual_seed(seed)
    shape = (graph.num_edges,) if heads is None else (graph.num_edges, heads)
    entries = torch.rand(shape, generator=generator, dtype=torch.float64).to(dtype) + 0.1
    return entries.to(graph.device).requires_grad_()


def dense(graph: Graph, entries: Tensor, heads: int) -> Tensor:
    """[H, N, N], parallel edges added up."""
    source, target = graph.edge_index
    each = entries[:, None].expand(-1, heads) if entries.dim() == 1 else entries
    nothing = each.new_zeros(graph.num_nodes, graph.num_nodes)
    return torch.stack(
        [nothing.index_put((target, source), each[:, h], accumulate=True) for h in range(heads)]
    )


def expect(inputs: Inputs, graph: Graph, entries: Tensor, hops: int, eps: float) -> list[Tensor]:
    matrices = dense(graph, entries, inputs.value.size(1))
    phi = kernel_similarity(make_map("elu", 5))
    out = reference(inputs, graph, hops, phi, eps, matrices)
    return output_and_gradients(out, [*inputs.all(), entries])


def run(inputs: Inputs, graph: Graph, entries: Tensor, hops: int, **options) -> list[Tensor]:
    ends, options = (inputs.query, inputs.key, inputs.value), {"beta": inputs.beta, **options}
    out = subtree_attention(*ends, graph, hops, inputs.hop_weights, entries=entries, **options)
    return output_and_gradients(out, [*inputs.all(), entries])


@pytest.mark.parametrize("case", COMBINATIONS, ids=lambda c: "-".join(map(str, c.values())))
def test_equals_the_definition_in_output_and_every_gradient(case, device, backend, monkeypatch):
    graph, hops, heads = EDGES[case["edges"]].graph(device=device), case["hops"], case["heads"]
    powers = hops if case["beta"] else None
    inputs = random_inputs(graph.num_nodes, heads, hops if case["weights"] else None, powers=powers)
    inputs = inputs.to(device)
    entries = drawn(graph, heads if case["per_head"] else None)
    monkeypatch.setattr(steps, "BLOCK_NUMBERS", 64)  # several blocks even here
    options = {"state_bytes": 1} if case["way"] == "parts" else {}
    if case["way"] == "again":
        monkeypatch.setattr(edges, "KEPT_BYTES", 0)
    actual = run(inputs, graph, entries, hops, eps=case["eps"], backend=backend, **options)
    expected = expect(inputs, graph, entries, hops, case["eps"])
    assert_all_close(actual, expected, FLOAT64_ERROR)


@pytest.mark.parametrize("hops", [1, 2])
def test_gradcheck(hops, device, backend):
    graph = EDGES["parallel-edges"].graph(device=device)
    inputs, entries = random_inputs(3, 2, hops, (3, 2)).to(device), drawn(graph, 2)

    def operator(query, key, value, weights, entries):
        how = {"feature_map": "softplus", "backend": backend, "entries": entries}
        return subtree_attention(query, key, value, graph, hops, weights, **how)

    assert torch.autograd.gradcheck(operator, [*inputs.all(), entries])


@pytest.mark.parametrize("hops", [1, 3])
def test_entries_of_the_transition_change_nothing(hops, device, backend):
    graph = random_edges(30, 120, weighted=True).graph("sym", device)
    inputs = random_inputs(30, hops=hops).to(device)
    ends = inputs.query, inputs.key, inputs.value, graph, hops, inputs.hop_weights
    plain = output_and_gradients(subtree_attention(*ends), inputs.all())
    entries = graph.entries(torch.float64)
    walked = subtree_attention(*ends, entries=entries, backend=backend)
    assert_all_close(output_and_gradients(walked, inputs.all()), plain, FLOAT64_ERROR)


@pytest.mark.parametrize("hops", [1, 3])
def test_float32_errs_at_most_twice_as_much_as_plain_pytorch(hops, device, backend):
    graph = random_edges(100, 450).graph(device=device)
    exact = random_inputs(100, hops=hops, channels=(8, 5)).to(device)
    exact, entries = exact.to(torch.float32).to(torch.float64), drawn(graph, 2, torch.float32)
    double = entries.detach().double().requires_grad_()
    single = exact.to(torch.float32)
    truth = expect(exact, graph, double, hops, 1e-6)
    ours = run(single, graph, entries, hops, backend=backend)
    plain = expect(single, graph, entries, hops, 1e-6)
    floor = 4 * torch.finfo(torch.float32).eps
    for actual, naive, expected in zip(ours, plain, truth, strict=True):
        assert error(actual, expected) <= max(2 * error(naive, expected), floor)


@pytest.mark.parametrize("hops", [1, 3])
def test_the_same_bits_every_time(hops, device, backend):
    graph = random_edges(60, 700).graph(device=device)
    inputs, entries = random_inputs(60, hops=hops, dtype=torch.float32).to(device), None
    entries = drawn(graph, 2, torch.float32)
    first, second = (run(inputs, graph, entries, hops, backend=backend) for _ in range(2))
    assert all(map(torch.equal, first, second))


def test_graphs_of_a_batch_know_nothing_of_each_other(device, backend):
    sizes, parts = (5, 1, 7), []
    for number, size in enumerate(sizes):
        parts.append(random_edges(size, 3 * size, seed=number).index)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    index = torch.cat([part + start for part, start in zip(parts, starts, strict=True)], 1)
    whole = Graph(index, sum(sizes)).to(device)
    inputs, gates = random_inputs(sum(sizes)).to(device), torch.rand(index.size(1), 2).double()
    gates = gates.to(device)

    def attend(graph: Graph, some: slice, own: Tensor) -> Tensor:
        ends = (each[some] for each in (inputs.query, inputs.key, inputs.value))
        entries = graph.entries(torch.float64)[:, None] * own[graph.edge_order]
        return subtree_attention(*ends, graph, 3, backend=backend, entries=entries)

    together, first = attend(whole, slice(None), gates), 0
    for part, start, size in zip(parts, starts, sizes, strict=True):
        own = gates[first : first + part.size(1)]
        alone = attend(Graph(part, size).to(device), slice(start, start + size), own)
        torch.testing.assert_close(alone, together[:, start : start + size])
        first += part.size(1)


@pytest.mark.parametrize("name", ["directed", "hubs", "no-edges", "no-nodes"])
@pytest.mark.parametrize("per_head", [True, False])
@pytest.mark.parametrize("hops", [1, 3])
def test_the_host_side_of_cuda(name, per_head, hops, monkeypatch):
    """Its kernels are emulated."""
    graph = EDGES[name].graph()
    inputs, entries = random_inputs(graph.num_nodes, 2, hops), drawn(graph, 2 if per_head else None)
    expected = expect(inputs, graph, entries, hops, 1e-6)
    launched = emulate(monkeypatch)
    monkeypatch.setattr(edges.backends, "choose", lambda *asked: "cuda")
    monkeypatch.setattr(edges, "_matrices", partial(scheduled, edges._matrices))
    assert_all_close(run(inputs, graph, entries, hops), expected, FLOAT64_ERROR)
    assert {*launched} == ({"walk", "along"} if name in ("directed", "hubs") else {*launched})


def scheduled(matrices, *graph_and_how):
    """Matrices with what a GPU knows of them besides."""
    return tuple(
        [*each, *share_out(each[0], each[1].numel())] if each else each
        for each in matrices(*graph_and_how)
    )


@pytest.mark.parametrize("dtype", along.REALS)
@pytest.mark.parametrize("width", [1, 4, 5, 17, 48, 1000])
def test_products_along_edges_compile(width, dtype):
    try:
        compiler.nvrtc()
    except OSError as reason:
        pytest.skip(str(reason))
    lanes = along.lanes_of(width)
    assert lanes in (1, 2, 4, 8, 16, 32)
    assert min(width, 128) / 4 <= lanes < max(width / 2, 2)
    source = files(along.__package__).joinpath("along.cu").read_text()
    macros = {"REAL": along.REALS[dtype], "LANES": lanes}
    assert b"along" in compiler.compile_source(source, macros, "90")[0]


@pytest.mark.parametrize("width", [1, 3, 16, 17, 130])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_along_edges_on_a_gpu(width, dtype):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    left, right = (torch.randn(50, width, dtype=dtype, device="cuda") for _ in range(2))
    row, col = torch.randint(0, 50, (2, 333), dtype=torch.int32, device="cuda")
    expected = (left[row].double() * right[col].double()).sum(1)
    found = along.products(left, right, row, col)
    assert error(found, expected) <= (1e-5 if dtype == torch.float32 else FLOAT64_ERROR)


def test_some_gradients_only():
    graph = EDGES["directed"].graph()
    inputs, entries = random_inputs(11, 2), drawn(graph, 2)
    expected = expect(inputs, graph, entries, 2, 1e-6)[-1]
    ends = (each.detach() for each in inputs.all())
    out = subtree_attention(*ends, graph, 2, entries=entries)
    assert_all_close(output_and_gradients(out, [entries])[1:], [expected], FLOAT64_ERROR)


@pytest.mark.parametrize("hops", [1, 3])
def test_compiled_as_one_graph(hops):
    graph = EDGES["directed"].graph()
    inputs, entries = random_inputs(11, 2, hops), drawn(graph, 2)

    def operator(query, key, value, weights, entries):
        return subtree_attention(query, key, value, graph, hops, weights, entries=entries)

    given = [*inputs.all(), entries]
    compiled = torch.compile(operator, fullgraph=True, backend="aot_eager")
    actual = output_and_gradients(compiled(*given), given)
    assert_all_close(actual, output_and_gradients(operator(*given), given), FLOAT64_ERROR)


@pytest.mark.parametrize("hops", [1, 3])
def test_custom_ops_are_what_torch_asks_of_them(hops):
    graph = EDGES["directed"].graph()
    inputs, entries = random_inputs(11, 2), drawn(graph, 2)
    options = edges.Options(hops, "torch", hops > 1)
    matrices = edges._matrices(graph, 2, True)
    ones = torch.nn.functional.pad(inputs.value, (0, 1), value=1.0).detach().requires_grad_()
    tensors = [inputs.query, inputs.key, ones, entries]
    torch.library.opcheck(edges.forward, (tensors, *matrices, *options))


def test_transforms_take_plain_torch():
    graph, inputs = EDGES["directed"].graph(), random_inputs(11, 2)
    entries = drawn(graph, 2)
    ends = [each.detach() for each in inputs.all()]

    def total(entries):
        return subtree_attention(*ends, graph, 2, entries=entries).square().sum()

    found = torch.func.grad(total)(entries.detach())
    (expected,) = torch.autograd.grad(total(entries), entries)
    torch.testing.assert_close(found, expected)
    torch.func.hessian(total)(entries.detach())


def test_gradients_of_gradients_are_refused_in_words():
    graph, inputs = EDGES["directed"].graph(), random_inputs(11, 2)
    entries = drawn(graph, 2)
    out = subtree_attention(*inputs.all(), graph, 2, entries=entries)
    (first,) = torch.autograd.grad(out.square().sum(), entries, create_graph=True)
    with pytest.raises(RuntimeError, match="no double backward"):
        first.sum().backward()


@pytest.mark.parametrize("hop", [0, 1, 3])
def test_attention_of_a_root_has_the_entries_of_its_head(hop):
    graph, inputs = random_edges(20, 70).graph(), random_inputs(20, 2)
    entries = drawn(graph, 2).detach()
    levels = subtree_attention(*inputs.all(), graph, 3, eps=0.0, entries=entries)
    for root in (0, 7):
        shares = attention(*inputs.all()[:2], graph, root, hop, eps=0.0, entries=entries)
        found = torch.einsum("nh,nhc->hc", shares, inputs.value)
        torch.testing.assert_close(found, levels[hop, root])


def test_half_precision_is_computed_in_float32():
    graph, inputs = EDGES["directed"].graph(), random_inputs(11, 2).to(torch.bfloat16)
    entries = drawn(graph, 2, torch.bfloat16)
    out = subtree_attention(*inputs.all(), graph, 2, entries=entries)
    assert out.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(out, subtree_attention(*inputs.all(), graph, 2, entries=entries))


def test_refusals():
    graph, inputs = EDGES["directed"].graph(), random_inputs(11, 2)
    ends = (*inputs.all(), graph, 2)
    with pytest.raises(ValueError, match=r"shape \[37\] or \[37, 2\].*got \[36, 2\]"):
        subtree_attention(*ends, entries=torch.ones(36, 2))
    with pytest.raises(TypeError, match="floating-point"):
        subtree_attention(*ends, entries=torch.ones(37, dtype=torch.long))
    with pytest.raises(ValueError, match="one transition matrix for all heads"):
        subtree_attention(*ends, entries=torch.ones(37), feature_map="softmax")
    subtree_attention(*ends, entries=torch.ones(37), feature_map=SoftmaxFeatures(5).double())
    with pytest.raises(ValueError, match="saves traffic to a GPU"):
        subtree_attention(*ends, entries=torch.ones(37), states="bfloat16")
    with pytest.raises(ValueError, match="states are not rounded"):
        edges.check_way("elu", "bfloat16")


def test_a_graph_that_was_walked_on_with_entries_is_copied_without_what_it_keeps():
    graph, inputs = EDGES["directed"].graph(), random_inputs(11, 2)
    before = len(pickle.dumps(graph))
    subtree_attention(*inputs.all(), graph, 2, entries=drawn(graph, 2))
    assert len(pickle.dumps(graph)) == before
