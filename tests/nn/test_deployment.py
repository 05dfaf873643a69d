"""Layers in other people's models and loops: what they may do, and what is refused in words."""

import copy
import io
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jvp, stack_module_state, vmap
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import GPSConv, Sequential, to_hetero

from subtree_attention import STAGNN, Graph, STAConv
from tests.ops.cases import EDGES, FLOAT64_ERROR, assert_all_close, output_and_gradients

EDGE, NODES = EDGES["directed"].index, EDGES["directed"].num_nodes


@pytest.fixture
def x():
    return torch.randn(NODES, 6, dtype=torch.float64)


@pytest.fixture
def graph():
    return Graph(EDGE, NODES)


class Theirs(nn.Module):
    """A model in which ours is a part: two layers, one of them twice, beside a residual."""

    def __init__(self, in_channels=6):
        super().__init__()
        self.first = STAConv(in_channels, 8, heads=2, dropout=0.5)
        self.norm, self.second = nn.LayerNorm(8), STAConv(8, 8, heads=2, aggregation="concat")

    def forward(self, x, edge_index):
        x = self.first(x, edge_index).relu()
        x = x + self.second(self.norm(x), edge_index)
        return self.second(x, edge_index)


# ------------------------------------------------------------------------------------- training


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("with_graph", [False, True])
def test_a_checkpoint_gives_the_same_gradients(x, graph, reentrant, with_graph):
    model, given = Theirs().double(), graph if with_graph else EDGE
    inputs = [x.requires_grad_(), *model.parameters()]

    def gradients(call):
        torch.manual_seed(0)  # the same dropout
        model.zero_grad()
        x.grad = None
        call(x, given).square().sum().backward()
        return [tensor.grad for tensor in inputs]

    kept = gradients(lambda *given: checkpoint(model, *given, use_reentrant=reentrant))
    assert_all_close(kept, gradients(model), 0.0)


PROCESS = """
import sys, torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from subtree_attention import Graph, STAConv

class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([STAConv(8, 8, heads=heads) for heads in (1, 2, 4)])

    def forward(self, x, edge_index):
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return x

torch.set_num_threads(1)
rank, store = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
torch.manual_seed(0)
model, xs = Deep().double(), torch.randn(2, 9, 8, dtype=torch.float64)
edges = torch.randint(0, 9, (2, 30))
parallel = DistributedDataParallel(model)
for given in (edges, Graph(edges, 9)):  # a parameter without a gradient would stop the second
    model.zero_grad()
    parallel(xs[rank], given).square().sum().backward()
shared = [p.grad.clone() for p in model.parameters()]
model.zero_grad()
sum(model(x, edges).square().sum() / 2 for x in xs).backward()
for mean, p in zip(shared, model.parameters(), strict=True):
    torch.testing.assert_close(mean, p.grad)
distributed.destroy_process_group()
print("equal")
"""


@pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="needs torch.distributed with gloo",
)
def test_two_processes_share_gradients(tmp_path):
    store = tmp_path / "store"
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROCESS, str(rank), str(store)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for rank in range(2)
    ]
    try:
        outs = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for out, err in outs:
        assert out == "equal\n", err


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_autocast_computes_attention_in_float32_and_returns_its_type(device, heads):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    conv = STAConv(6, 8, heads=heads).to(device)
    x, edges = torch.randn(NODES, 6, device=device), EDGE.to(device)
    walked = []
    conv.head_mix.register_forward_pre_hook(lambda _, given: walked.append(given[0].dtype))
    with torch.amp.autocast(device, dtype=torch.bfloat16):
        out = conv(x, edges)
        loss = F.mse_loss(out, torch.zeros_like(out))
    loss.backward()
    assert (walked, out.dtype) == ([torch.float32], torch.bfloat16)
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in conv.parameters())
    # bfloat16 holds 8 bits; two products in a row, sums of a few terms.
    torch.testing.assert_close(out.float(), conv(x, edges), rtol=0, atol=0.1)


# -------------------------------------------------------------------------------- copies and files


@pytest.mark.parametrize("cached", [False, True])
def test_a_copy_of_a_used_layer_is_its_own(x, cached):
    conv = STAConv(6, 8, cached=cached).double()
    before = copy.deepcopy(conv)
    conv(x, EDGE).sum().backward()
    after = copy.deepcopy(conv)
    assert torch.equal(after(x, EDGE), conv(x, EDGE))
    assert torch.equal(before(x, EDGE), conv(x, EDGE))
    gradients = output_and_gradients(after(x, EDGE), list(after.parameters()))
    assert_all_close(gradients, output_and_gradients(conv(x, EDGE), list(conv.parameters())), 0.0)
    with torch.no_grad():
        after.lin_value.weight.zero_()
    assert conv.lin_value.weight.any()
    assert torch.equal(before(x, EDGE), conv(x, EDGE))


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("in_channels", [6, -1])
def test_weights_of_a_model_around_it_come_back_from_a_file(x, graph, assign, in_channels):
    model, other = Theirs().double().eval(), Theirs(in_channels).double().eval()
    file = io.BytesIO()
    torch.save({"epoch": 3, "model": model.state_dict()}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)["model"]
    assert {"first.lin_query.weight", "second.gate.logits"} <= set(state)
    other.load_state_dict(state, strict=True, assign=assign)
    assert torch.equal(other(x, graph), model(x, graph))
    output_and_gradients(other(x, graph), list(other.parameters()))  # and they learn


def test_a_part_of_a_state_dict_is_that_of_the_layer(x, graph):
    model, conv = Theirs().double(), STAConv(6, 8, heads=2).double()
    prefix = "first."
    part = {
        k.removeprefix(prefix): v for k, v in model.state_dict().items() if k.startswith(prefix)
    }
    conv.load_state_dict(part, strict=True)
    assert torch.equal(conv(x, graph), model.first.eval()(x, graph))
    with pytest.raises(RuntimeError, match=r"Missing key.*gate\.logits"):
        conv.load_state_dict({k: v for k, v in part.items() if "gate" not in k}, strict=True)


# --------------------------------------------------------------------------------------- torch.func


def test_weights_may_be_arguments(x, graph):
    conv = STAConv(6, 8).double()
    weights = {name: torch.randn_like(p) for name, p in conv.named_parameters()}

    def loss(weights):
        return functional_call(conv, weights, (x, graph)).square().sum()

    actual = grad(loss)(weights)
    conv.load_state_dict(weights)
    conv(x, graph).square().sum().backward()
    expected = {name: p.grad for name, p in conv.named_parameters()}
    assert_all_close(list(actual.values()), [expected[n] for n in actual], FLOAT64_ERROR)


@pytest.mark.parametrize("feature_map", ["elu", "softplus", "softmax-features"])
def test_vmap_over_features_and_over_models(graph, feature_map):
    convs = [STAConv(6, 8, feature_map=feature_map).double() for _ in range(3)]
    xs = torch.randn(3, NODES, 6, dtype=torch.float64)
    over_x = vmap(lambda x: convs[0](x, graph))(xs)
    assert_all_close([*over_x], [convs[0](x, graph) for x in xs], FLOAT64_ERROR)
    state = stack_module_state(convs)
    over_models = vmap(lambda *state: functional_call(convs[0], state, (xs[0], graph)))(*state)
    assert_all_close([*over_models], [conv(xs[0], graph) for conv in convs], FLOAT64_ERROR)


def test_derivatives_forwards_and_second_ones(x, graph):
    conv, direction = STAConv(6, 8, hops=2).double(), torch.randn_like(x)
    _, slope = jvp(lambda x: conv(x, graph), (x,), (direction,))
    step = 1e-5  # second order: errors of about step^2, and of 1e-16 / step
    difference = conv(x + step * direction, graph) - conv(x - step * direction, graph)
    assert_all_close([slope], [difference / (2 * step)], 1e-8)
    curvature = hessian(lambda x: conv(x, graph).square().sum())(x)
    along = torch.einsum("abcd,cd->ab", curvature, direction)
    slopes = [
        grad(lambda x: conv(x, graph).square().sum())(x + sign * step * direction)
        for sign in (1, -1)
    ]
    assert_all_close([along], [(slopes[0] - slopes[1]) / (2 * step)], 1e-7)


def test_a_smoothed_model_has_derivatives_forwards(x, graph):
    net, direction = STAGNN(6, 8, 3, hops=2, smoothing=1).double(), torch.randn_like(x)
    _, slope = jvp(lambda x: net(x, graph), (x,), (direction,))
    step = 1e-6
    difference = net(x + step * direction, graph) - net(x - step * direction, graph)
    assert_all_close([slope], [difference / (2 * step)], 1e-7)


@pytest.mark.parametrize("transform", [hessian, grad])
def test_a_graph_that_a_transform_saw_first_is_as_good_as_new(transform, x, graph):
    """What is kept of it outlives the transform."""
    conv, seen = STAConv(6, 8, hops=2).double(), Graph(EDGE, NODES)
    first, second = (transform(lambda x: conv(x, seen).square().sum())(x) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(conv(x, seen), conv(x, graph))


@pytest.mark.parametrize("learning", [True, False])
def test_forward_mode_without_transforms(x, graph, learning):
    conv, direction = STAConv(6, 8).double().requires_grad_(learning), torch.randn_like(x)
    with forward_ad.dual_level():
        slope = forward_ad.unpack_dual(conv(forward_ad.make_dual(x, direction), graph)).tangent
    _, expected = jvp(lambda x: conv(x, graph), (x,), (direction,))
    assert_all_close([slope], [expected], FLOAT64_ERROR)


def test_vmap_over_graphs_is_refused():
    conv, x = STAConv(6, 8), torch.randn(2, NODES, 6)
    with pytest.raises(TypeError, match="vmap cannot map over edge_index: many graphs are one"):
        vmap(conv)(x, torch.stack([EDGE, EDGE]))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: nn.Sequential(model)])
def test_torchscript_is_refused(x, wrap):
    model = wrap(STAConv(6, 8).double())
    with pytest.raises(TypeError, match=r"torch.jit.script cannot read.*use torch.export"):
        torch.jit.script(model)
    inner = model if isinstance(model, STAConv) else model[0]
    with pytest.raises(TypeError, match=r"torch.jit.trace would write down the sizes of one graph"):
        torch.jit.trace(inner, (x, EDGE))


# ---------------------------------------------------------------------------------------------- PyG


def test_in_gps_and_sequential_it_trains(x):
    x = x.float()
    gps = GPSConv(8, STAConv(8, 8, heads=2), heads=2)
    model = Sequential(
        "x, edge_index, batch",
        [
            (STAConv(6, 8), "x, edge_index -> x"),
            (gps, "x, edge_index, batch -> x"),
            (STAGNN(8, 8, 3), "x, edge_index -> x"),
        ],
    )
    model(x, EDGE, torch.arange(NODES) // 6).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


TYPES = ["paper", "author"]


def hetero(*relations):
    model = to_hetero(Sequence(), (TYPES, list(relations)))
    x = {kind: torch.randn(NODES, 6) for kind in TYPES}
    return model, (x, dict.fromkeys(relations, EDGE))


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = STAConv(6, 8)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


def test_several_kinds_of_nodes_are_refused():
    model, given = hetero(("paper", "written_by", "author"), ("author", "wrote", "paper"))
    with pytest.raises(ValueError, match="subtree attention walks within one set of nodes"):
        model(*given)
    with pytest.raises(ValueError, match="subtree attention walks within one set of nodes"):
        STAConv((-1, -1), 8)


def test_relations_within_one_kind_of_nodes_are_walked_on_each_by_itself():
    cites, knows = ("paper", "cites", "paper"), ("author", "knows", "author")
    model, (x, edges) = hetero(cites, knows)
    out = model(x, edges)
    conv = model.conv["paper__cites__paper"]
    assert set(out) == {cites, knows}
    assert torch.equal(out[cites], conv(x["paper"], EDGE))
