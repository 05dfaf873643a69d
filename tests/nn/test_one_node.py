"""The plain layer in one node of autograd: the numbers of the layer one by one, and when it is."""

import pytest
import torch

from subtree_attention import Graph, STAConv
from subtree_attention.nn import one_node
from subtree_attention.nn.heads import PlainGate, SoftmaxGate
from subtree_attention.ops import backends
from subtree_attention.ops.kernels.cuda import tape
from tests.ops.cases import random_edges
from tests.ops.emulated_cuda import emulate

# torch's own, where a product is the first thing that a thread does on a GPU.
pytestmark = pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")

LAYERS = {
    "the default": {},
    "one head, as wide as the output": {"heads": 1},
    "no bias": {"bias": False},
    "a table of hop weights": {"gate": "plain"},
    "no gate": {"gate": "none"},
    "a plain sum": {"aggregation": "sum"},
    "no hops": {"hops": 0},
    "wide heads": {"value_channels": 7, "key_channels": 5},
    "a sum as read-out": {"readout": "sum"},
    "learned powers": {"readout": "power"},
    "learned powers beside a table": {"readout": "power", "gate": "plain"},
}


@pytest.fixture(params=["cpu", "cuda"])
def on_a_gpu(request, monkeypatch):
    """A GPU, or the CPU with the GPU's kernels written in torch."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    if request.param == "cpu":
        emulate(monkeypatch)
        monkeypatch.setattr(backends, "choose", lambda *ignored: "cuda")
        monkeypatch.setattr(one_node, "_is_eager", lambda x: True)
    monkeypatch.setattr(tape, "PATIENCE", 1)
    return request.param


def made(device, **options):
    torch.manual_seed(0)
    layer = STAConv(6, 8, **({"hops": 3, "heads": 4} | options)).double().to(device)
    for parameter in layer.parameters():  # also those that begin alike
        torch.nn.init.normal_(parameter)
    graph = Graph(random_edges(30, 150).index, 30).to(device)
    x = torch.randn(30, 6, dtype=torch.float64, device=device, requires_grad=True)
    return layer, x, graph


def one_by_one(layer, x, graph):
    """By the parts of the layer, as they are when something else takes part."""
    return layer.head_mix(layer.attend(*layer.project(x), graph))


def outcome(out, layer, x, seed=1):
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed)).to(out)
    return [out, *torch.autograd.grad(out, [x, *layer.parameters()], grad)]


@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
def test_the_same_numbers(options, on_a_gpu):
    layer, x, graph = made(on_a_gpu, **options)
    for seed in range(4):  # the third time from a tape
        out = layer(x, graph)
        assert type(out.grad_fn).__name__ == "_LayerBackward"
        wanted = outcome(one_by_one(layer, x, graph), layer, x, seed)
        for got, right in zip(outcome(out, layer, x, seed), wanted, strict=True):
            torch.testing.assert_close(got, right, rtol=1e-12, atol=1e-12)
        with torch.no_grad():
            torch.testing.assert_close(layer(x, graph), wanted[0], rtol=1e-12, atol=1e-12)


def test_only_what_is_asked_for_gets_a_gradient(on_a_gpu):
    layer, x, graph = made(on_a_gpu)
    layer.lin_key.requires_grad_(False)
    x = x.detach()
    layer(x, graph).sum().backward()
    assert x.grad is None
    assert layer.lin_key.weight.grad is None
    assert layer.lin_query.weight.grad is not None


def test_gradients_with_a_graph_of_their_own_are_the_same(on_a_gpu):
    layer, x, graph = made(on_a_gpu)
    plain = outcome(layer(x, graph), layer, x)
    out, inputs = layer(x, graph), [x, *layer.parameters()]
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    found = torch.autograd.grad(out, inputs, grad, create_graph=True)
    for got, right in zip(found, plain[1:], strict=True):
        torch.testing.assert_close(got, right, rtol=1e-12, atol=1e-12)
    with pytest.raises(RuntimeError, match="double backward"):
        torch.autograd.grad(found[0].sum(), inputs, allow_unused=True)


SOMETHING_MORE = {
    "dropout": lambda: STAConv(6, 8, dropout=0.5),
    "another feature map": lambda: STAConv(6, 8, feature_map="relu"),
    "another aggregation": lambda: STAConv(6, 8, aggregation="concat"),
    "a bound on states": lambda: STAConv(6, 8, state_bytes=1000),
    "another mix": lambda: STAConv(6, 8, head_mix="sum"),
    "global attention": lambda: STAConv(6, 8, global_attention=True),
}


@pytest.mark.parametrize("make", SOMETHING_MORE.values(), ids=SOMETHING_MORE)
def test_what_is_more_than_that_is_done_one_by_one(make, on_a_gpu):
    layer, x, graph = make().double().to(on_a_gpu), *made(on_a_gpu)[1:]
    assert type(layer(x, graph).grad_fn).__name__ != "_LayerBackward"


@pytest.mark.parametrize("part", ["lin_query", "lin_value", "head_mix", "head_mix.lin"])
def test_hooks_are_called(part, on_a_gpu):
    layer, x, graph = made(on_a_gpu)
    seen = []
    layer.get_submodule(part).register_forward_hook(lambda *ignored: seen.append(1))
    layer(x, graph)
    assert seen


@pytest.mark.parametrize("part", ["lin_key", "head_mix", "head_mix.lin"])
def test_a_forward_that_was_put_in_place_is_called(part, on_a_gpu):
    layer, x, graph = made(on_a_gpu)
    module, seen = layer.get_submodule(part), []
    before = module.forward
    module.forward = lambda *given: (seen.append(1), before(*given))[1]
    layer(x, graph)
    assert seen


@pytest.mark.parametrize("name", ["project", "attend", "hop_weights"])
def test_a_method_that_was_put_in_place_is_called(name, on_a_gpu):
    layer, x, graph = made(on_a_gpu)
    before, seen = getattr(layer, name), []
    setattr(layer, name, lambda *given: (seen.append(1), before(*given))[1])
    layer(x, graph)
    assert seen
    assert type(layer(x, graph).grad_fn).__name__ != "_LayerBackward"


def test_a_layer_of_somebodys_own_is_asked_for_its_parts(on_a_gpu):
    class Doubled(STAConv):
        def attend(self, *given):
            return 2 * super().attend(*given)

    layer, x, graph = made(on_a_gpu)
    other = Doubled(6, 8, hops=3, heads=4).double().to(on_a_gpu)
    other.load_state_dict(layer.state_dict())
    bias = layer.head_mix.lin.bias
    torch.testing.assert_close(other(x, graph) - bias, 2 * (layer(x, graph) - bias))


class Tempered(SoftmaxGate):
    def forward(self):
        return 0.5 * super().forward()


def test_a_gate_of_somebodys_own_counts(on_a_gpu):
    layer, x, graph = made(on_a_gpu)
    plain = layer(x, graph)
    layer.gate.forward = lambda before=layer.gate.forward: 0.5 * before()
    changed = layer(x, graph)
    tempered = STAConv(6, 8, hops=3, heads=4, gate=Tempered(3, 4)).double().to(on_a_gpu)
    tempered.load_state_dict(layer.state_dict())
    torch.testing.assert_close(tempered(x, graph), changed)
    assert not torch.allclose(changed, plain)


def test_weights_of_another_type_are_brought_to_one(on_a_gpu):
    layer, x, graph = made(on_a_gpu)
    single = made(on_a_gpu)[0].float()
    for module in (single.gate, single.aggregation):
        module.double()
    out = single(x.float(), graph)
    assert type(out.grad_fn).__name__ != "_LayerBackward"
    torch.testing.assert_close(out.double(), layer(x, graph), rtol=1e-3, atol=1e-3)


def test_a_gate_that_does_not_fit_any_more_is_refused(on_a_gpu):
    layer, x, graph = made(on_a_gpu, gate="plain")
    layer.gate = PlainGate(3, 1).double().to(on_a_gpu)
    with pytest.raises(ValueError, match="hop weights of 3 hops and 4 heads"):
        layer(x, graph)


def test_layers_of_many_kinds_share_a_graph(on_a_gpu):
    """With hop weights, with a gate and with neither: each has its tape."""
    kinds = [{}, {"aggregation": "concat"}, {"gate": "plain"}]
    layers = [made(on_a_gpu, **kind)[0] for kind in kinds]
    _, x, graph = made(on_a_gpu)
    wanted = [layer(x, Graph(random_edges(30, 150).index, 30).to(on_a_gpu)) for layer in layers]
    for _ in range(4):
        for layer, right in zip(layers, wanted, strict=True):
            torch.testing.assert_close(layer(x, graph), right, rtol=1e-12, atol=1e-12)
