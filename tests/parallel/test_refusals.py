"""What cannot be the same on many ranks is refused in words, and needs no ranks to be."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

import subtree_attention as sta
from subtree_attention import Graph, PartGraph, Partition
from subtree_attention.nn import Dropout, GraphNetwork, LinkNetwork
from subtree_attention.partition import Mesh, Ranks, running_on
from tests.ops.cases import random_edges

ALONE = Mesh(Ranks(), Ranks())


@pytest.fixture
def graph() -> Graph:
    return random_edges(9, 30).graph()


@pytest.fixture
def part(graph) -> PartGraph:
    return PartGraph.of(graph, Partition.blocks(9, 1), ALONE)


class Own(nn.Module):
    """A model of somebody's own."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: sta.STAGNN(3, 8, 2, memory="1GB"), "memory= plans by the sizes of one rank"),
        (lambda: sta.STAConv(3, 4, edge_dim=2), r"features of edges \(edge_dim\)"),
        (lambda: sta.STAConv(3, 4, feature_map="softmax"), "powers of the whole matrix"),
        (lambda: Own(nn.Dropout(0.5)), r"subtree_attention\.nn\.Dropout"),
        (lambda: Own(nn.BatchNorm1d(3)), r"subtree_attention\.nn\.BatchNorm"),
        (lambda: LinkNetwork(sta.STAConv(3, 4), 4), "pairs of nodes or many graphs"),
        (lambda: GraphNetwork(sta.STAConv(3, 4), 4, 2), "pairs of nodes or many graphs"),
    ],
)
def test_models(model, words, graph):
    with pytest.raises(NotImplementedError, match=words):
        sta.parallelize(model(), graph, ALONE)


def test_a_model_that_has_not_seen_x(graph):
    with pytest.raises(ValueError, match="has not seen x yet"):
        sta.parallelize(sta.STAGNN(-1, 8, 3), graph, ALONE)


def test_what_is_no_model_or_mesh(graph):
    with pytest.raises(TypeError, match="model must be a model"):
        sta.parallelize(3, graph, ALONE)
    with pytest.raises(TypeError, match="a mesh is a DeviceMesh"):
        sta.parallelize(sta.STAConv(3, 4), graph, 2)
    with pytest.raises(ValueError, match="unknown how 'metiss'"):
        sta.parallelize(sta.STAConv(3, 4), graph, ALONE, how="metiss")
    with pytest.raises(RuntimeError, match="there is no process group"):
        sta.mesh(nodes=2)


def test_a_layer_on_a_part_without_parallelize(part):
    with pytest.raises(RuntimeError, match="call it through subtree_attention"):
        sta.STAConv(3, 4)(torch.ones(9, 3), part)


def test_what_needs_the_whole_graph(part):
    parallel, x = sta.parallelize(sta.STAConv(3, 4), part, ALONE), torch.ones(9, 3)
    for more, words in (
        ({"batch": torch.zeros(9, dtype=torch.long)}, "a batch of many graphs"),
        ({"return_attention_weights": True}, "attention weights along edges"),
    ):
        with pytest.raises(NotImplementedError, match=words):
            parallel(x, **more)
    with pytest.raises(NotImplementedError, match="edge weights that come with a call"):
        parallel(x, edge_weight=torch.ones(30))
    query = torch.ones(9, 2)
    with pytest.raises(NotImplementedError, match="exact softmax"):
        sta.subtree_attention(query, query, query, part, 1, feature_map="softmax")
    with pytest.raises(NotImplementedError, match="entries of edges"):
        sta.subtree_attention(query, query, query, part, 1, entries=torch.ones(part.num_edges))
    with pytest.raises(NotImplementedError, match="single roots"):
        sta.attention(query, query, part, 0, 1)
    with running_on(part), pytest.raises(NotImplementedError, match="a batch of many graphs"):
        sta.global_attention(query, query, query, torch.zeros(9, dtype=torch.long))


def test_rows_that_are_not_those_of_the_part(part):
    parallel = sta.parallelize(sta.STAConv(3, 4), part, ALONE)
    with pytest.raises(ValueError, match="x has 8 rows, but this rank owns 9 nodes"):
        parallel(torch.ones(8, 3))
    with pytest.raises(TypeError, match="graph must be a PartGraph"):
        parallel(torch.ones(9, 3), random_edges(9, 30).graph())


def test_gradients_of_gradients(part):
    given = torch.rand(9, 2, dtype=torch.float64, requires_grad=True)
    out = sta.subtree_attention(given, given, given, part, 2)
    (grad,) = torch.autograd.grad(out.square().sum(), given)
    assert grad.abs().sum() > 0
    out = sta.subtree_attention(given, given, given, part, 2)
    with pytest.raises(RuntimeError, match="no double backward"):
        torch.autograd.grad(out.square().sum(), given, create_graph=True)


def test_one_rank_is_the_model_itself(graph):
    model = sta.STAGNN(3, 8, 2, dropout=0.5)
    x = torch.rand(9, 3)
    torch.manual_seed(1)
    wanted = model(x, graph)
    parallel = sta.parallelize(model, graph, ALONE)
    torch.manual_seed(1)
    assert torch.equal(parallel(x), wanted)
    assert parallel.nodes.tolist() == [*range(9)]
    assert [*parallel.state_dict()] == [*model.state_dict()]
    assert [*parallel.no_weight_decay()] == [*model.no_weight_decay()]
    parallel.reduce_gradients()
    assert all(each.grad is None for each in model.parameters())
    parallel.load_state_dict({name: each * 2 for name, each in model.state_dict().items()})
    assert "PartGraph" in repr(parallel)


def test_dropout_as_a_module():
    with pytest.raises(ValueError, match="share must be at least 0 and below 1"):
        Dropout(1.0)
    assert repr(Dropout(0.5)) == "Dropout(0.5)"
    x = torch.ones(3, 4)
    assert Dropout(0.5).eval()(x) is x
    assert not dist.is_initialized()


def test_a_part_is_not_asked_about_the_whole_graph(part):
    for ask in (
        lambda: part.without([0]),
        lambda: part.has_edge(0, 1),
        lambda: part.is_symmetric,
        lambda: part.subgraph(torch.arange(3)),
        lambda: part.dense(),
    ):
        with pytest.raises(NotImplementedError, match="needs the whole graph on one rank"):
            ask()


def test_edges_of_a_part_do_not_learn():
    edges, weight = torch.randint(9, (2, 30)), torch.ones(30, requires_grad=True)
    with pytest.raises(ValueError, match="weights"):
        PartGraph.from_edges(edges, Partition.blocks(9, 1), ALONE, weight)
