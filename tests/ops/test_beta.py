"""Powers of the denominators: between a mean (1) and a sum (0), in every way of computing STA."""

import pytest
import torch

from subtree_attention import Graph, attention, ops, subtree_attention
from subtree_attention.ops import backends, definition, exported, library, recurrence, walk
from subtree_attention.ops.definition import kernel_similarity
from subtree_attention.ops.kernels import cpu, cuda
from subtree_attention.ops.kernels.cuda import tape
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

ELU = make_map("elu", 1)
SIGNED = random_edges(12, 60, seed=5)
SIGNED.weight = torch.randn(60, generator=torch.Generator().manual_seed(3))
"""Edges of negative weight, so that some denominators are negative."""

COMBINATIONS = pairwise(
    edges=list(EDGES),
    hops=[3, 0, 1, 2, 7],
    transition=["rw", "sym", "mean", None],
    heads=[2, 1, 3, None],
    weighted=[True, False],
    per_head=[True, False],
    eps=[0.0, 1e-6],
)


@pytest.fixture(params=[*backends.BACKENDS, "emulated"])
def way(request, device, monkeypatch) -> str:
    """Every backend that runs on the device, and that of CUDA with emulated kernels."""
    if request.param == "emulated":
        if device != "cpu":
            pytest.skip("the real kernels run here")
        emulate(monkeypatch)
        monkeypatch.setattr(backends, "choose", lambda *ignored: "cuda")
        return "cuda"
    reason = backends.BACKENDS[request.param].refusal(torch.device(device), torch.float32)
    if reason:
        pytest.skip(f"{request.param}: {reason}")
    return request.param


def run(inputs: Inputs, graph: Graph, hops: int, **options) -> list[torch.Tensor]:
    """Output and every gradient of the operator."""
    given = inputs.query, inputs.key, inputs.value, graph, hops, inputs.hop_weights
    out = subtree_attention(*given, beta=inputs.beta, **options)
    return output_and_gradients(out, inputs.all())


def expect(inputs: Inputs, graph: Graph, hops: int, similarity=None, eps: float = 1e-6):
    """Output and every gradient of the definition."""
    out = reference(inputs, graph, hops, similarity or kernel_similarity(ELU), eps)
    return output_and_gradients(out, inputs.all())


class TestAgainstTheDefinition:
    @pytest.mark.parametrize("case", COMBINATIONS, ids=lambda c: "-".join(map(str, c.values())))
    def test_output_and_every_gradient(self, case, device, way):
        graph, hops = EDGES[case["edges"]].graph(case["transition"], device), case["hops"]
        inputs = random_inputs(
            graph.num_nodes,
            case["heads"],
            hops if case["weighted"] else None,
            per_head=case["per_head"],
            powers=hops,
        ).to(device)
        actual = run(inputs, graph, hops, eps=case["eps"], backend=way)
        assert_all_close(actual, expect(inputs, graph, hops, eps=case["eps"]), FLOAT64_ERROR)

    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize(("hops", "columns"), [(3, 9), (3, 60), (20, 30)])  # of 26 a head
    def test_parts(self, weighted, hops, columns, device, way):
        graph = random_edges(30, 200, weighted=True).graph(device=device)
        inputs = random_inputs(30, 3, hops if weighted else None, (8, 25), powers=hops).to(device)
        actual = run(inputs, graph, hops, backend=way, state_bytes=2 * columns * 30 * 8 * 8)
        assert_all_close(actual, expect(inputs, graph, hops), FLOAT64_ERROR)

    @pytest.mark.parametrize("state_bytes", [None, 10_000])
    @pytest.mark.parametrize("hops", [1, 3, 20])
    def test_beside_a_gate(self, state_bytes, hops, device, way):
        graph = EDGES["directed-weighted"].graph(device=device)
        inputs = random_inputs(graph.num_nodes, 3, powers=hops).to(device)
        weights, logits = (
            torch.randn(shape, dtype=torch.float64, device=device, requires_grad=True)
            for shape in ((hops + 1,), (hops, 3))
        )
        asked = [*inputs.all(), weights, logits]
        how = "elu", 1e-6, way, "full", state_bytes, logits, inputs.beta
        out = ops.attend(*inputs.all()[:3], graph, hops, weights, *how)
        inputs.hop_weights = ops.gated(weights, logits)
        wanted = reference(inputs, graph, hops, kernel_similarity(ELU), 1e-6)
        assert_all_close(
            output_and_gradients(out, asked), output_and_gradients(wanted, asked), FLOAT64_ERROR
        )

    @pytest.mark.parametrize("weighted", [False, True])
    def test_states_that_are_walked_again(self, weighted, monkeypatch, device, way):
        monkeypatch.setattr(cpu, "KEPT_BYTES", 0)
        monkeypatch.setattr(cuda, "KEPT_BYTES", 0)
        monkeypatch.setattr(cuda, "BLOCK_BYTES", 1)
        graph = random_edges(30, 200).graph(device=device)
        inputs = random_inputs(30, 3, 4 if weighted else None, (8, 25), powers=4).to(device)
        assert_all_close(
            run(inputs, graph, 4, backend=way), expect(inputs, graph, 4), FLOAT64_ERROR
        )

    @pytest.mark.parametrize("hops", [3, 20])
    def test_inference(self, hops, device, way):
        graph = random_edges(30, 200).graph(device=device)
        inputs = random_inputs(30, 3, hops, (8, 25), powers=hops).to(device)
        with torch.no_grad():
            out = subtree_attention(
                *inputs.all()[:3], graph, hops, inputs.hop_weights, beta=inputs.beta, backend=way
            )
        wanted = reference(inputs, graph, hops, kernel_similarity(ELU), 1e-6)
        assert_all_close([out], [wanted], FLOAT64_ERROR)

    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("hops", [1, 3, 7])
    def test_float32_errs_at_most_twice_as_much_as_plain_pytorch(self, weighted, hops, device, way):
        graph = random_edges(100, 450, weighted=True).graph(device=device)
        weights = hops if weighted else None
        exact = random_inputs(100, hops=weights, channels=(8, 5), powers=hops).to(device)
        exact = exact.to(torch.float32).to(torch.float64)  # the same numbers in both precisions
        single = exact.to(torch.float32)
        truth = expect(exact, graph, hops)
        ours, plain = run(single, graph, hops, backend=way), expect(single, graph, hops)
        floor = 4 * torch.finfo(torch.float32).eps  # where plain PyTorch happens to be exact
        for actual, naive, expected in zip(ours, plain, truth, strict=True):
            assert error(actual, expected) <= max(2 * error(naive, expected), floor)

    @pytest.mark.parametrize("weighted", [False, True])
    def test_gradcheck(self, weighted, device, way):
        graph, hops = EDGES["directed-weighted"].graph(device=device), 2
        inputs = random_inputs(graph.num_nodes, 2, hops if weighted else None, (3, 2), powers=2)
        inputs = inputs.to(device)

        def operator(query, key, value, *others):
            weights, beta = others if weighted else (None, *others)
            how = {"feature_map": "softplus", "eps": 1e-6, "backend": way, "beta": beta}
            return subtree_attention(query, key, value, graph, hops, weights, **how)

        assert torch.autograd.gradcheck(operator, inputs.all())

    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("eps", [0.0, 0.1])
    def test_softmax_similarity(self, weighted, eps, device):
        graph = EDGES["isolated-nodes"].graph(device=device)
        inputs = random_inputs(graph.num_nodes, 2, 3 if weighted else None, powers=3).to(device)
        actual = run(inputs, graph, 3, feature_map="softmax", eps=eps)
        wanted = expect(inputs, graph, 3, definition.softmax_similarity, eps)
        assert_all_close(actual, wanted, FLOAT64_ERROR)

    @pytest.mark.parametrize("weighted", [False, True])
    def test_what_is_exported(self, weighted, device):
        graph = EDGES["isolated-nodes"].graph(device=device)
        inputs = random_inputs(graph.num_nodes, 2, 3 if weighted else None, powers=3).to(device)
        given = ELU(inputs.query), ELU(inputs.key), inputs.value, inputs.hop_weights
        out = exported.walk(*given, graph, 3, 0.0, inputs.beta)
        actual = output_and_gradients(out, inputs.all())
        assert_all_close(actual, expect(inputs, graph, 3, eps=0.0), FLOAT64_ERROR)

    def test_second_derivatives_of_a_power(self):
        graph = EDGES["directed"].graph()
        inputs = random_inputs(graph.num_nodes, powers=2)
        query, key, value, beta = (t.detach() for t in inputs.all())

        def total(power):
            return subtree_attention(query, key, value, graph, 2, beta=power).sum()

        def wanted(power):
            given = Inputs(query, key, value, None, power)
            return reference(given, graph, 2, kernel_similarity(ELU), 1e-6).sum()

        got, truth = (torch.func.hessian(f)(beta) for f in (total, wanted))
        assert_all_close([got], [truth], FLOAT64_ERROR)


class TestWhatAPowerMeans:
    def outputs(self, graph, power, way, feature_map="elu", eps=1e-6):
        inputs = random_inputs(graph.num_nodes).to(graph.device)
        shape = {"dtype": torch.float64, "device": graph.device}
        beta = None if power is None else torch.full((3, 2), power, **shape)
        how = {"feature_map": feature_map, "eps": eps, "beta": beta, "backend": way}
        return inputs, subtree_attention(*inputs.all(), graph, 3, **how)

    @pytest.mark.parametrize("edges", [EDGES["isolated-nodes"], SIGNED], ids=["rw", "signed"])
    def test_a_power_of_one_is_the_mean(self, edges, way, device):
        graph = edges.graph(None, device=device)
        (_, ones), (_, none) = (self.outputs(graph, power, way) for power in (1.0, None))
        assert_all_close([ones], [none], 1e-13)

    @pytest.mark.parametrize("edges", [EDGES["isolated-nodes"], SIGNED], ids=["rw", "signed"])
    def test_a_power_of_zero_is_the_numerator(self, edges, way, device):
        graph = edges.graph(None, device=device)
        inputs, out = self.outputs(graph, 0.0, way)
        query, key, power = ELU(inputs.query), ELU(inputs.key), graph.dense()
        for hop in range(1, 4):
            similarity = torch.einsum("ihd,jhd->hij", query, key) * power
            wanted = torch.einsum("hij,jhc->ihc", similarity, inputs.value)
            assert_all_close([out[hop]], [wanted], FLOAT64_ERROR)
            power = graph.dense() @ power

    @pytest.mark.parametrize("power", [-1.0, 0.4, 1.0, 2.5])
    def test_negative_denominators_keep_their_sign(self, power, way, device):
        graph, hops = SIGNED.graph(None, device=device), 3
        inputs = random_inputs(graph.num_nodes, hops=hops)
        inputs.beta = torch.full((hops, 2), power, dtype=torch.float64, requires_grad=True)
        inputs = inputs.to(device)
        actual = run(inputs, graph, hops, backend=way)
        weights = torch.stack([torch.linalg.matrix_power(graph.dense(), m) for m in (1, 2, 3)])
        similarity = torch.einsum("ihd,jhd->hij", ELU(inputs.query), ELU(inputs.key))
        assert ((weights[:, None] * similarity).sum(-1) < 0).any()
        assert all(t.isfinite().all() for t in actual)
        assert_all_close(actual, expect(inputs, graph, hops), 1e-8)  # denominators near 0

    @pytest.mark.parametrize("power", [-0.5, 0.0, 0.4, 1.0, 2.0])
    @pytest.mark.parametrize("name", ["isolated-nodes", "no-edges", "one-node"])
    @pytest.mark.parametrize("feature_map", ["elu", "relu"])
    def test_where_no_walk_arrives_all_is_zero(self, name, power, feature_map, way, device):
        graph = EDGES[name].graph(device=device)
        inputs = random_inputs(graph.num_nodes, powers=4).to(torch.float32)
        inputs.beta = torch.full((4, 2), power).requires_grad_()
        inputs = inputs.to(device)
        out, *grads = run(inputs, graph, 4, feature_map=feature_map, eps=0.0, backend=way)
        reach = graph.dense()
        for hop in range(1, 5):
            assert (out[hop][reach.sum(1) == 0] == 0).all()
            reach = graph.dense() @ reach
        assert all(t.isfinite().all() for t in (out, *grads))

    @pytest.mark.parametrize("size", [1e-15, 1e-8, 1e8, 1e15])
    @pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
    def test_small_and_large_denominators_in_float32(self, size, power, way, device):
        """Of about size^2, as far as float32 holds the numerators."""
        graph, hops = random_edges(40, 200).graph(device=device), 2

        def scaled(x):
            return size * ELU(x)

        exact = random_inputs(40, hops=hops).to(torch.float32).to(torch.float64)
        exact.beta = torch.full((hops, 2), power, dtype=torch.float64, requires_grad=True)
        exact = exact.to(device)
        how = {"feature_map": scaled, "eps": 0.0, "backend": way}
        actual = run(exact.to(torch.float32), graph, hops, **how)
        wanted = expect(exact, graph, hops, kernel_similarity(scaled), 0.0)
        for got, right in zip(actual, wanted, strict=True):
            assert got.isfinite().all()
            largest = right.abs().max()
            assert (got - right).abs().max() <= 1e-4 * largest  # not of 1: levels may be tiny

    def test_a_sum_of_large_exponentials_overflows_and_their_mean_does_not(self):
        graph = EDGES["undirected"].graph()
        query, key, value = (t.detach().float() for t in random_inputs(graph.num_nodes).all())
        how = {"feature_map": "softmax", "eps": 0.0}
        mean, total = (
            subtree_attention(100 * query, key, value, graph, 2, beta=torch.full((2,), p), **how)
            for p in (1.0, 0.0)
        )
        assert mean.isfinite().all()
        assert not total.isfinite().all()


class TestOneRoot:
    @pytest.mark.parametrize("hop", [0, 1, 3])
    @pytest.mark.parametrize("similarity", ["elu", "softmax"])
    def test_weights_times_values_are_the_level(self, similarity, hop, device):
        graph = EDGES["directed-weighted"].graph(device=device)
        inputs = random_inputs(graph.num_nodes, 2, powers=3).to(device)
        query, key, value, beta = inputs.all()
        how = {"feature_map": similarity}
        level = subtree_attention(query, key, value, graph, 3, beta=beta, **how)[hop]
        power = None if hop == 0 else beta[hop - 1]
        for root in range(graph.num_nodes):
            weights = attention(query, key, graph, root, hop, beta=power, **how)
            wanted = torch.einsum("nh,nhc->hc", weights, value)
            assert_all_close([wanted], [level[root]], FLOAT64_ERROR)

    def test_a_number_is_the_power_of_all_heads(self):
        graph = EDGES["directed"].graph()
        query, key, _ = random_inputs(graph.num_nodes).all()
        half = torch.full((2,), 0.5)
        one = attention(query, key, graph, 2, 2, beta=0.5)
        assert torch.equal(one, attention(query, key, graph, 2, 2, beta=half))

    @pytest.mark.parametrize(
        ("beta", "message"),
        [
            (torch.ones(3), r"beta of one hop is a number or has shape \[2\], got \[3\]"),
            (float("nan"), "beta must be"),
        ],
    )
    def test_other_powers_are_refused(self, beta, message):
        graph = EDGES["directed"].graph()
        query, key, _ = random_inputs(graph.num_nodes).all()
        with pytest.raises(ValueError, match=message):
            attention(query, key, graph, 2, 2, beta=beta)


class TestUnderTorch:
    @pytest.mark.parametrize("weighted", [False, True])
    def test_the_custom_ops_fulfil_their_contract(self, weighted, device):
        graph = EDGES["directed"].graph(device=device)
        inputs = random_inputs(graph.num_nodes, hops=2 if weighted else None, powers=2).to(device)
        positive = [t.detach().exp().requires_grad_() for t in inputs.all()]
        name = backends.choose("auto", graph.device, torch.float64)
        matrices = backends.BACKENDS[name].matrices(graph, torch.float64, both=True)
        others = "hop_weights beta" if weighted else "beta"
        options = 2, 1e-6, name, "full", None, "", others, walk.READOUTS
        torch.library.opcheck(library.forward, (positive, *matrices, *options))

    @pytest.mark.parametrize("weighted", [False, True])
    def test_compiled_as_uncompiled(self, weighted, device):
        torch._dynamo.reset()
        graph = EDGES["directed"].graph(device=device)
        inputs = random_inputs(graph.num_nodes, hops=2 if weighted else None, powers=2).to(device)

        def operator(query, key, value, beta, weights):
            return subtree_attention(query, key, value, graph, 2, weights, beta=beta)

        given = inputs.query, inputs.key, inputs.value, inputs.beta, inputs.hop_weights
        compiled = torch.compile(operator, fullgraph=True, backend="aot_eager")
        assert_all_close(
            output_and_gradients(compiled(*given), inputs.all()),
            output_and_gradients(operator(*given), inputs.all()),
            FLOAT64_ERROR,
        )

    @pytest.mark.parametrize("weighted", [False, True])
    def test_the_same_bits_twice(self, weighted, device, way):
        graph = random_edges(100, 2000, weighted=True).graph(device=device)
        weights = 4 if weighted else None
        inputs = random_inputs(100, 3, weights, (16, 7), powers=4).to(torch.float32).to(device)
        first, second = (run(inputs, graph, 4, backend=way) for _ in range(2))
        assert all(map(torch.equal, first, second))

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    @pytest.mark.parametrize("weighted", [False, True])
    def test_passes_that_are_played_again(self, weighted, monkeypatch):
        monkeypatch.setattr(tape, "PATIENCE", 1)
        graph = random_edges(60, 900).graph(device="cuda")
        for seed in range(4):
            weights = 3 if weighted else None
            inputs = random_inputs(60, 4, weights, (16, 7), seed=seed, powers=3).to("cuda")
            actual = run(inputs, graph, 3, backend="cuda")
            assert_all_close(actual, expect(inputs, graph, 3), FLOAT64_ERROR)

    def test_a_power_of_another_precision_gets_its_own_gradient(self):
        graph = EDGES["directed"].graph()
        inputs = random_inputs(graph.num_nodes, powers=2).to(torch.float32)
        inputs.beta = inputs.beta.detach().double().requires_grad_()
        out, *grads = run(inputs, graph, 2)
        assert out.dtype == torch.float32
        assert grads[-1].dtype == torch.float64

    def test_without_powers_nothing_more_is_launched(self, monkeypatch):
        launched = emulate(monkeypatch)
        graph, inputs = EDGES["directed"].graph(), random_inputs(11, hops=2, powers=2)
        given = inputs.query, inputs.key, inputs.value, inputs.hop_weights, graph, 2, 1e-6, "cuda"
        launches = []
        for beta in (None, inputs.beta):
            launched.clear()
            library.run(*given, phi="elu", beta=beta).sum().backward()
            launches.append([*launched])
        without, with_powers = launches
        assert without.count("sum_products") == 1
        with_powers.remove("sum_products")  # one more, for the gradient of the powers
        assert with_powers == without


@pytest.mark.parametrize("shape", [(2,), (4,), (3, 1), (3, 3), (1, 3, 2)])
def test_other_shapes_are_refused(shape):
    graph = EDGES["directed"].graph()
    inputs = random_inputs(graph.num_nodes)
    with pytest.raises(ValueError, match=r"beta must have shape \[3\] or \[3, 2\] for 3 hops"):
        subtree_attention(*inputs.all(), graph, 3, beta=torch.ones(shape))


def test_what_is_no_tensor_of_floats_is_refused():
    graph = EDGES["directed"].graph()
    inputs = random_inputs(graph.num_nodes)
    with pytest.raises(TypeError, match="beta"):
        subtree_attention(*inputs.all(), graph, 3, beta=torch.ones(3, dtype=torch.long))


def test_the_quotient_is_written_once_for_torch():
    """`recurrence.raised` of numbers of every kind."""
    numbers = torch.tensor([-4.0, 0.0, 4.0])
    assert recurrence.raised(numbers, torch.tensor(0.5)).tolist() == [-2, 0, 2]
    assert recurrence.raised(numbers, torch.tensor(0.0)).tolist() == [1, 0, 1]
    assert recurrence.raised(numbers, torch.tensor(-1.0)).tolist() == [-0.25, 0, 0.25]
