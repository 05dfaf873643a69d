"""STAConv with edge features and with edge weights that learn."""

import copy
import pickle
import runpy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import ToSparseTensor

from subtree_attention import STAGNN, Graph, STAConv, STAFormer
from subtree_attention.nn.edges import EDGE_GATES, EdgeGate, MLPEdgeGate
from subtree_attention.ops import definition
from subtree_attention.ops.definition import kernel_similarity
from tests.ops.cases import EDGES, FLOAT64_ERROR, assert_all_close, output_and_gradients

# PyTorch says this once per process, whoever makes the first CSR matrix.

INDEX, NODES = EDGES["directed"].index, EDGES["directed"].num_nodes
COUNT = INDEX.size(1)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(NODES, 6, dtype=torch.float64)


@pytest.fixture
def attr() -> Tensor:
    return torch.randn(COUNT, 3, dtype=torch.float64)


@pytest.fixture
def weight() -> Tensor:
    return (torch.rand(COUNT, dtype=torch.float64) + 0.1).requires_grad_()


def layer(**options) -> STAConv:
    """With every parameter away from its initial value."""
    conv = STAConv(6, 8, **{"hops": 2, "heads": 2, "edge_dim": 3, **options}).double()
    for parameter in conv.parameters():
        nn.init.normal_(parameter)
    return conv


def dense(weight: Tensor, gates: Tensor, loop: Tensor | None, transition: str | None) -> Tensor:
    """The transition of weights [E'] times gates [E', H], edge by edge: [H, N, N]."""
    adjacency, gated = (torch.zeros(NODES, NODES, dtype=torch.float64) for _ in range(2))
    heads = []
    edges = [*INDEX.t().tolist()]
    weights = [*weight]
    if loop is not None:
        missing = [i for i in range(NODES) if [i, i] not in edges]
        edges += [[i, i] for i in missing]
        weights += [weight.new_ones(())] * len(missing)
        gates = torch.cat([gates, loop.expand(len(missing), -1)])
    source, target = torch.tensor(edges).t()
    weights = torch.stack(weights)
    adjacency = adjacency.index_put((target, source), weights, accumulate=True)
    sent, received = adjacency.sum(0), adjacency.sum(1)
    scale = {
        "rw": 1 / sent[source],
        "mean": 1 / received[target],
        "sym": 1 / (sent[source] * received[target]).sqrt(),
        None: 1.0,
    }[transition]
    for h in range(gates.size(1)):
        heads.append(gated.index_put((target, source), weights * scale * gates[:, h], True))
    return torch.stack(heads)


def expect(conv: STAConv, x: Tensor, transition: Tensor) -> Tensor:
    query, key, value = conv.project(x)
    phi = kernel_similarity(conv.feature_map)
    ends = query, key, value, transition, conv.hops, phi, conv.eps
    levels = definition.subtree_attention(*ends)
    return conv.head_mix(torch.einsum("knhc,kh->nhc", levels, conv.hop_weights()))


@pytest.mark.parametrize("gate", EDGE_GATES)
@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("transition", ["rw", "sym", "mean", None])
def test_gates_multiply_the_normalised_entries(x, attr, weight, transition, self_loops, gate):
    conv = layer(transition=transition, self_loops=self_loops, edge_gate=gate)
    learned = [x.requires_grad_(), attr.requires_grad_(), weight, *conv.parameters()]
    actual = output_and_gradients(conv(x, INDEX, weight, edge_attr=attr), learned)
    gates = 2 * torch.sigmoid(conv.edge_gate.logits(attr))
    loop = 2 * torch.sigmoid(conv.edge_gate.loop) if self_loops else None
    expected = expect(conv, x, dense(weight, gates, loop, transition))
    assert_all_close(actual, output_and_gradients(expected, learned), FLOAT64_ERROR)


@pytest.mark.parametrize("hops", [0, 1, 3])
@pytest.mark.parametrize("transition", ["rw", "sym", "mean", None])
def test_weights_get_exact_gradients_through_the_normalisation(x, weight, transition, hops):
    conv = layer(transition=transition, hops=hops, edge_dim=None)
    learned = [x.requires_grad_(), weight, *conv.parameters()]
    actual = output_and_gradients(conv(x, INDEX, weight), learned)
    ones = torch.ones(COUNT, 2, dtype=torch.float64)
    expected = expect(conv, x, dense(weight, ones, None, transition))
    assert_all_close(actual, output_and_gradients(expected, learned), FLOAT64_ERROR)


@pytest.mark.parametrize("gate", EDGE_GATES)
def test_a_fresh_layer_does_what_it_does_without_edge_features(x, attr, gate):
    conv, plain = STAConv(6, 8, edge_dim=3, edge_gate=gate).double(), STAConv(6, 8).double()
    plain.load_state_dict(conv.state_dict(), strict=False)
    torch.testing.assert_close(conv(x, INDEX, edge_attr=attr), plain(x, INDEX))
    out = conv(x, INDEX, edge_attr=attr)
    out.square().sum().backward()
    assert conv.edge_gate.lin.weight.grad.abs().max() > 0


def test_features_belong_to_their_edges_in_any_order(x, attr, weight):
    conv, order = layer(self_loops=True), torch.randperm(COUNT)
    expected = conv(x, INDEX, weight, edge_attr=attr)
    actual = conv(x, INDEX[:, order], weight[order], edge_attr=attr[order])
    torch.testing.assert_close(actual, expected)
    graph = Graph(INDEX[:, order], NODES, self_loops=True)
    torch.testing.assert_close(conv(x, graph, weight[order], edge_attr=attr[order]), expected)


def test_parallel_edges_have_gates_of_their_own(x):
    conv = layer(edge_dim=2, hops=1, transition=None)
    nn.init.eye_(conv.edge_gate.lin.weight)
    once, twice = torch.tensor([[0, 2], [1, 1]]), torch.tensor([[0, 2, 0], [1, 1, 1]])
    attr = torch.tensor([[1.0, 2.0], [0.5, 0.3], [-1e4, -1e4]], dtype=torch.float64)
    expected = conv(x, once, edge_attr=attr[:2])
    torch.testing.assert_close(conv(x, twice, edge_attr=attr), expected)  # the third is closed
    assert not torch.allclose(conv(x, twice, edge_attr=attr.abs()), expected)


def test_adj_t_takes_features_in_the_order_of_its_entries(x, attr):
    index = INDEX.unique(dim=1)  # a matrix adds up parallel edges
    attr = attr[: index.size(1)]
    conv, data = layer(), Data(x=x, edge_index=index.clone(), edge_attr=attr.clone())
    expected = conv(x, index, edge_attr=attr)
    order = torch.randperm(index.size(1))
    data.edge_index, data.edge_attr = index[:, order], attr[order]
    sparse = ToSparseTensor(layout=torch.sparse_csr, attr=None)(data)
    torch.testing.assert_close(conv(x, sparse.adj_t, edge_attr=sparse.edge_attr), expected)


def test_the_example_learns_which_edges_count():
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "edges.py"))
    blind, gated = (example["train"](dim, 80)[1] for dim in (None, 3))
    assert gated > 0.85 > 0.75 > blind


@pytest.mark.parametrize("model", [STAGNN, STAFormer])
def test_models_hand_edge_features_on(x, attr, weight, model):
    net = model(6, 8, 3, hops=2, heads=2, edge_dim=3).double()
    for name, parameter in net.named_parameters():
        if "edge_gate" in name:
            nn.init.normal_(parameter)
    graph = Graph(INDEX, NODES, transition="sym", self_loops=True)
    given = INDEX if model is STAGNN else graph
    out = net(x, given, weight, edge_attr=attr)
    assert not torch.allclose(out, net(x, given, weight, edge_attr=attr.flip(0)))
    grads = torch.autograd.grad(out.square().sum(), [weight, *net.parameters()])
    assert all(grad.isfinite().all() for grad in grads)
    if model is STAGNN:
        assert net.attention(x, INDEX, 0, 2, weight, attr).shape == (NODES, 2)


def test_a_batch_of_graphs(attr):
    conv, graphs = layer(), []
    for size in (4, 1, 7):
        edges = 2 * size - 2
        index = torch.randint(0, size, (2, edges))
        parts = torch.randn(size, 6).double(), torch.randn(edges, 3).double()
        graphs.append(Data(x=parts[0], edge_index=index, edge_attr=parts[1]))
    batch = Batch.from_data_list(graphs)
    together = conv(batch.x, batch.edge_index, edge_attr=batch.edge_attr, batch=batch.batch)
    alone = [conv(data.x, data.edge_index, edge_attr=data.edge_attr) for data in graphs]
    torch.testing.assert_close(together, torch.cat(alone))


def test_attention_weights_are_those_of_the_gated_walk(x, attr):
    conv = layer(hops=1, aggregation="sum", gate="none", bias=False)
    out, (edges, shares) = conv(x, INDEX, edge_attr=attr, return_attention_weights=True)
    value = conv.project(x)[2]
    level = torch.zeros_like(value).index_add(0, edges[1], shares[..., None] * value[edges[0]])
    torch.testing.assert_close(out, conv.head_mix(value + level))
    for root in (0, 5):
        own = conv.attention(x, INDEX, root, 1, edge_attr=attr)
        found = torch.zeros_like(own).index_add(
            0, edges[0][edges[1] == root], shares[edges[1] == root].detach()
        )
        torch.testing.assert_close(own, found)


# ---------------------------------------------------------------------------------- weights change


@pytest.mark.parametrize("cached", [False, True])
def test_weights_that_change_are_never_those_of_before(x, weight, cached):
    conv, fresh = layer(edge_dim=None, cached=cached), layer(edge_dim=None)
    fresh.load_state_dict(conv.state_dict())
    conv(x, INDEX, weight)
    with torch.no_grad():
        weight *= torch.rand_like(weight)
        expected = fresh(x, INDEX, weight.detach().clone())
        torch.testing.assert_close(conv(x, INDEX, weight), expected)
    torch.testing.assert_close(conv(x, INDEX, weight), expected)
    # What a network made of them, outside of training, does not ask for gradients.
    torch.testing.assert_close(conv(x, INDEX, weight.detach().clone()), expected)


def test_weights_that_come_after_constant_ones(x, weight):
    conv, fresh = layer(edge_dim=None, cached=True), layer(edge_dim=None)
    fresh.load_state_dict(conv.state_dict())
    conv(x, INDEX, torch.ones(COUNT))
    torch.testing.assert_close(conv(x, INDEX, weight), fresh(x, INDEX, weight))


def test_a_graph_takes_weights_if_it_has_none(x, weight):
    conv = layer(edge_dim=None)
    constant = weight.detach()
    expected = conv(x, Graph(INDEX, NODES, constant))
    torch.testing.assert_close(conv(x, Graph(INDEX, NODES), weight), expected)
    torch.testing.assert_close(conv(x, Graph(INDEX, NODES), constant), expected)


def test_bad_weights_are_refused_in_words(x, weight):
    conv = layer(edge_dim=None)
    with pytest.raises(ValueError, match="non-negative edge weights"):
        conv(x, INDEX, -weight)
    with pytest.raises(ValueError, match="finite"):
        conv(x, INDEX, weight / 0)


def test_a_node_that_sends_nothing(x, weight):
    """All weights of a node are 0: nothing is divided, and nothing is NaN."""
    conv = layer(edge_dim=None, transition="sym")
    out = conv(x, INDEX, weight * (INDEX[0] != INDEX[0, 0]))
    (grad,) = torch.autograd.grad(out.square().sum(), weight)
    assert out.isfinite().all()
    assert grad.isfinite().all()


# ------------------------------------------------------------------------------------ life cycle


@pytest.mark.parametrize("gate", EDGE_GATES)
def test_reset_pickle_copy_and_repr(x, attr, gate):
    conv = layer(edge_gate=gate)
    for again in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        assert torch.equal(again(x, INDEX, edge_attr=attr), conv(x, INDEX, edge_attr=attr))
    assert f"edge_gate={type(conv.edge_gate).__name__}" in repr(conv)
    assert "edge_gate" not in repr(STAConv(6, 8))
    conv.reset_parameters()
    graph = Graph(INDEX, NODES, self_loops=True)
    assert torch.equal(conv.edge_gate(attr, graph), torch.ones(graph.num_edges, 2).double())


def test_a_gate_of_ones_own(x, attr):
    class Constant(EdgeGate):
        def logits(self, edge_attr):
            return edge_attr[:, :2]

    conv = layer(edge_gate=Constant(3, 2))
    assert conv(x, INDEX, edge_attr=attr).shape == (NODES, 8)
    assert isinstance(layer(edge_gate=MLPEdgeGate(3, 2, 5)).edge_gate, MLPEdgeGate)


def test_half_precision(x, attr):
    conv = layer().to(torch.bfloat16)
    out = conv(x.bfloat16(), INDEX, edge_attr=attr.bfloat16())
    assert out.dtype == torch.bfloat16
    conv = layer().float()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = conv(x.float(), INDEX, edge_attr=attr.float())
    exact = conv(x.float(), INDEX, edge_attr=attr.float())
    torch.testing.assert_close(mixed.float(), exact, rtol=0.05, atol=0.1 * exact.abs().max().item())


@pytest.mark.parametrize("hops", [1, 2])
def test_compiled_with_a_graph(x, attr, weight, hops):
    conv, graph = layer(hops=hops, self_loops=True), Graph(INDEX, NODES, self_loops=True)
    learned = [x.requires_grad_(), attr.requires_grad_(), weight, *conv.parameters()]
    compiled = torch.compile(conv, fullgraph=True, backend="aot_eager")
    actual = output_and_gradients(compiled(x, graph, weight, edge_attr=attr), learned)
    expected = output_and_gradients(conv(x, graph, weight, edge_attr=attr), learned)
    assert_all_close(actual, expected, FLOAT64_ERROR)


def test_compiled_with_an_edge_index(x, attr):
    conv = layer()
    compiled = torch.compile(conv, backend="aot_eager")
    torch.testing.assert_close(compiled(x, INDEX, edge_attr=attr), conv(x, INDEX, edge_attr=attr))


@pytest.mark.parametrize(
    "given", [INDEX, Graph(INDEX, NODES, self_loops=True)], ids=["edges", "graph"]
)
def test_transforms_over_weights_and_features(x, attr, weight, given):
    conv, edge_weight = layer(self_loops=True), weight.detach()

    def total(weight, attr=attr):
        return conv(x, given, weight, edge_attr=attr).square().sum()

    expected = torch.autograd.grad(total(weight), weight)[0]
    torch.testing.assert_close(torch.func.grad(total)(edge_weight), expected)
    several = torch.stack([edge_weight, 2 * edge_weight.flip(0)])
    found = torch.func.vmap(total)(several)
    torch.testing.assert_close(found, torch.stack([total(each) for each in several]))
    _, slope = torch.func.jvp(total, (edge_weight,), (torch.ones_like(edge_weight),))
    torch.testing.assert_close(slope, expected.sum())
    of_attr = torch.func.grad(total, argnums=1)(edge_weight, attr)
    wanted = torch.autograd.grad(total(edge_weight, attr.requires_grad_()), attr)[0]
    torch.testing.assert_close(of_attr, wanted)


class Exported(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.conv = layer(**options)

    def forward(self, x, edge_index, edge_attr):
        return self.conv(x, edge_index, edge_attr=edge_attr)


@pytest.mark.parametrize("self_loops", [False, True])
def test_exported_for_any_graph(x, attr, self_loops):
    model, free = Exported(self_loops=self_loops), torch.export.Dim.AUTO
    shapes = {"x": {0: free}, "edge_index": {1: free}, "edge_attr": {0: free}}
    program = torch.export.export(model, (x, INDEX, attr), dynamic_shapes=shapes).module()
    torch.testing.assert_close(program(x, INDEX, attr), model(x, INDEX, attr))
    fewer = x[:9], INDEX[:, (INDEX < 9).all(0)]
    own = attr[: fewer[1].size(1)]
    torch.testing.assert_close(program(*fewer, own), model(*fewer, own))
