"""Rivals are what they are called: PyG's layers, on our products where these are the same."""

from collections.abc import Iterator

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.utils import add_self_loops, to_undirected

import subtree_attention as sta
from experiments.field import rivals
from experiments.field.rivals import RIVALS, model_of
from subtree_attention import Graph
from subtree_attention.nn import as_features, build

NODES, CHANNELS, WIDTH = 40, 12, 8


@pytest.fixture
def edges() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    some = torch.randint(NODES, (2, 90), generator=generator)
    return to_undirected(some[:, some[0] != some[1]], num_nodes=NODES)


@pytest.fixture
def x() -> Tensor:
    dense = torch.randn(NODES, CHANNELS, generator=torch.Generator().manual_seed(1))
    return dense * (dense > 0)


def _gin(lin: nn.Module, norm: nn.Module, leave: nn.Module) -> nn.Module:
    return pyg.GINConv(nn.Sequential(lin, norm, nn.ReLU(), leave))


def pairs() -> Iterator[tuple[str, nn.Module, nn.Module, bool]]:
    """Our layer, PyG's with the same weights, and whether that one wants the loops."""
    torch.manual_seed(2)
    gcn = rivals.GCNLayer(CHANNELS, WIDTH)
    theirs = pyg.GCNConv(CHANNELS, WIDTH)
    theirs.load_state_dict({"bias": gcn.bias, "lin.weight": gcn.lin.weight})
    yield "GCN", gcn, theirs, True
    sage = rivals.SAGELayer(CHANNELS, WIDTH)
    theirs = pyg.SAGEConv(CHANNELS, WIDTH)
    theirs.load_state_dict(sage.state_dict())
    yield "SAGE", sage, theirs, True
    gat = rivals.GATLayer(CHANNELS, WIDTH)
    theirs = pyg.GATConv(CHANNELS, WIDTH, add_self_loops=False, bias=False)
    theirs.load_state_dict(
        {
            "lin.weight": gat.conv.lin.weight,
            "att_src": gat.conv.conv.att_src,
            "att_dst": gat.conv.conv.att_dst,
        }
    )
    yield "GAT", gat, theirs, True
    mixhop = rivals.MixHopLayer(CHANNELS, WIDTH, [0, 1, 2], add_self_loops=False)
    theirs = pyg.MixHopConv(CHANNELS, WIDTH, [0, 1, 2], add_self_loops=False)
    theirs.load_state_dict(mixhop.state_dict())
    yield "MixHop", mixhop, theirs, True
    gin = rivals.GINLayer(CHANNELS, WIDTH)
    yield "GIN", gin, _gin(gin.enter, gin.norm, gin.leave), False


@pytest.mark.parametrize("pair", [*pairs()], ids=lambda pair: pair[0])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_layer_is_that_of_pyg(
    pair: tuple[str, nn.Module, nn.Module, bool], sparse: bool, edges: Tensor, x: Tensor
) -> None:
    name, ours, theirs, with_loops = pair
    sparse = sparse and name != "MixHop"  # there a linear map comes first
    given = edges if not with_loops else add_self_loops(edges, num_nodes=NODES)[0]
    expected = theirs(x, given)
    taken = as_features(x.to_sparse_csr()) if sparse else x
    found = ours(taken, Graph(edges, NODES))
    torch.testing.assert_close(found, expected)
    weight = torch.linspace(-1, 1, found.numel()).view_as(found)
    grads = [torch.autograd.grad((out * weight).sum(), [*module.parameters()])
             for out, module in ((found, ours), (expected, theirs))]  # fmt: skip
    for one, other in zip(
        sorted(grads[0], key=lambda g: (g.numel(), float(g.sum()))),
        sorted(grads[1], key=lambda g: (g.numel(), float(g.sum()))),
        strict=True,
    ):
        torch.testing.assert_close(one.flatten(), other.flatten(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attention", ["performer", "multihead"])
def test_gps_without_a_batch_is_pygs(attention: str, edges: Tensor, x: Tensor) -> None:
    torch.manual_seed(3)
    model = rivals.GPS(CHANNELS, 3, 1, WIDTH, 2, 0.0, attention)
    layer, graph = model.layers[0], Graph(edges, NODES)
    hidden = model.enter(x)
    local = layer.conv

    class Local(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return local(x, graph)

    layer.conv = Local()
    expected = pyg.GPSConv.forward(layer, hidden, edges)
    layer.conv = local
    torch.testing.assert_close(layer(hidden, graph), expected)


@pytest.mark.parametrize("settings", RIVALS, ids=lambda settings: settings.title)
def test_every_rival_is_named_by_a_configuration_and_learns(settings: type) -> None:
    config = sta.config.Config(sta.config.DataSettings("digits"), model=settings())
    assert sta.config.Config.from_dict(config.to_dict()) == config
    assert model_of(settings.title) is settings
    model = build(config.model, 5, 3)
    graph = Graph(torch.tensor([[0, 1, 2], [1, 2, 0]]))
    logits = model(torch.randn(3, 5), graph)
    assert logits.shape == (3, 3)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_stack_has_residuals_norms_and_an_entrance_where_asked(edges: Tensor, x: Tensor) -> None:
    sizes = {"layers": 3, "hidden_channels": WIDTH, "dropout": 0.0}
    plain = rivals.Stack(rivals.GCNLayer, CHANNELS, 2, norm="none", residual=False, **sizes)
    full = rivals.Stack(
        rivals.GCNLayer, CHANNELS, 2, norm="batch", residual=True, enter=True, jump=True, **sizes
    )
    assert not plain.residuals
    assert plain.enter is None
    assert [lin.in_channels for lin in full.residuals] == [WIDTH] * 3
    graph, hidden = Graph(edges, NODES), full.enter(x)
    seen = []
    for layer, norm, residual in zip(full.layers, full.norms, full.residuals, strict=True):
        hidden = norm(layer(hidden, graph) + residual(hidden)).relu()
        seen.append(hidden)
    torch.testing.assert_close(full(x, graph), full.leave(sum(seen)))


def test_gcn_weighs_edges_as_pyg_does(edges: Tensor, x: Tensor) -> None:
    ours, of_pairs = rivals.GCNLayer(CHANNELS, WIDTH), torch.rand(NODES, NODES)
    of_pairs = torch.where(of_pairs < 0.3, 0.0, of_pairs)  # some are masked
    weight = (of_pairs + of_pairs.t())[edges[0], edges[1]]  # the same both ways
    theirs = pyg.GCNConv(CHANNELS, WIDTH)
    theirs.load_state_dict({"bias": ours.bias, "lin.weight": ours.lin.weight})
    shuffled = torch.randperm(edges.size(1), generator=torch.Generator().manual_seed(3))
    graph = Graph(edges[:, shuffled], NODES)
    found = ours(x, graph, weight[shuffled])
    torch.testing.assert_close(found, theirs(x, edges, weight))
    grads = [torch.autograd.grad(out.square().sum(), net.lin.weight)[0] for out, net in (
        (found, ours), (theirs(x, edges, weight), theirs)
    )]  # fmt: skip
    torch.testing.assert_close(*grads)
