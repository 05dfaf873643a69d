"""STAGNN: what it offers beyond its forward pass, which test_against_reference covers."""

import copy
import pickle
import shutil
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from subtree_attention import STAGNN, Graph
from subtree_attention.feature_maps import elu
from subtree_attention.nn import build
from subtree_attention.nn.heads import PlainGate
from subtree_attention.ops import definition
from tests.nn.reference import dense_model
from tests.ops.cases import EDGES, FLOAT64_ERROR, Edges, assert_all_close, output_and_gradients


@pytest.fixture
def graph():
    return EDGES["directed-weighted"].graph()


@pytest.fixture
def x(graph):
    return torch.randn(graph.num_nodes, 6, dtype=torch.float64)


def model(**options) -> STAGNN:
    return STAGNN(6, 8, 3, **options).double()


@pytest.mark.parametrize("hop", range(5))
@pytest.mark.parametrize(("heads", "feature_map"), [(1, "elu"), (4, "elu"), (2, "softmax")])
def test_attention_equals_the_dense_definition_and_sums_to_one(graph, x, hop, heads, feature_map):
    net = model(hops=4, heads=heads, feature_map=feature_map, dropout=0.5)
    net.conv.eps = 0.0
    query, key, _ = net.conv.project(copy.deepcopy(net).eval().hidden(x))
    sim = (
        definition.kernel_similarity(elu) if feature_map == "elu" else definition.softmax_similarity
    )
    power = torch.linalg.matrix_power(graph.dense(), hop)
    dense = definition.attention_matrix(power, sim(query, key))
    if hop == 0:
        dense = power.expand(heads, -1, -1)
    for root in range(graph.num_nodes):
        weights = net.attention(x, graph, root, hop)
        assert_all_close([weights], [dense[:, root].t()], FLOAT64_ERROR)
        arrives = float(power[root].sum() > 0)
        assert_all_close([weights.sum(0)], [torch.full((heads,), arrives).double()], FLOAT64_ERROR)
    assert net.training  # it looked without dropout, and left the model as it was


def test_attention_takes_an_edge_index_too(graph, x):
    edges, net = EDGES["directed-weighted"], model()
    expected = net.attention(x, graph, 3, 2)
    assert torch.equal(net.attention(x, edges.index, 3, 2, edges.weight), expected)


def test_the_logits_are_a_sum_over_hops_heads_and_sources(graph, x):
    net = model(hops=3, heads=2).eval()
    _, _, value = net.conv.project(net.hidden(x))
    root, total = 5, 0
    for hop, weights in enumerate(net.conv.hop_weights()):
        attention = net.attention(x, graph, root, hop)  # [N, H]
        total = total + (weights[None, :, None] * attention[..., None] * value).sum(0)
    expected = net(x, graph)[root]
    assert_all_close([net.conv.head_mix.lin(total.flatten())], [expected], FLOAT64_ERROR)


def test_parameter_groups_decay_all_but_alpha_gate_and_global_weight():
    net = model(global_attention=True)
    decayed, kept = net.parameter_groups(weight_decay=0.1)
    names = {id(p): name for name, p in net.named_parameters()}
    assert {names[id(p)] for p in kept["params"]} == {
        "conv.aggregation.alpha",
        "conv.gate.logits",
        "conv.beside.weight",
    }
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)
    assert len(decayed["params"]) + len(kept["params"]) == len(names)
    torch.optim.Adam(net.parameter_groups(0.1))


@pytest.mark.parametrize("heads", [1, 4])
def test_dropout_acts_in_training_only(graph, x, heads):
    net = model(heads=heads, dropout=0.5)
    assert not torch.equal(net(x, graph), net(x, graph))
    expected = dense_model(net.eval(), x, graph)
    assert_all_close([net(x, graph)], [expected], FLOAT64_ERROR)


def test_renumbering_the_nodes_renumbers_the_logits(graph, x):
    edges = EDGES["directed-weighted"]
    order = torch.randperm(edges.num_nodes)
    renumbered = Edges(order[edges.index], edges.num_nodes, edges.weight).graph()
    net = model()
    moved = torch.empty_like(x).index_copy(0, order, x)
    assert_all_close([net(moved, renumbered)[order]], [net(x, graph)], FLOAT64_ERROR)


def test_in_channels_may_come_from_the_first_x(graph, x):
    net = STAGNN(-1, 8, 3).double()
    assert net(x, graph).shape == (graph.num_nodes, 3)
    assert repr(net) == "STAGNN(6, 8, 3, hops=3, heads=4)"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_and_pickles_compute_the_same(x, copied):
    net = model(cached=True)
    edges = EDGES["directed-weighted"]
    out = net(x, edges.index, edges.weight)
    assert torch.equal(copied(net)(x, edges.index), out)  # the cached graph comes along


def test_state_dict_round_trip(graph, x):
    net, other = model(global_attention=True), model(global_attention=True)
    other.load_state_dict(net.state_dict())
    assert torch.equal(other(x, graph), net(x, graph))


def test_reset_starts_again(graph, x):
    net = model()
    before = net(x, graph)
    torch.nn.init.constant_(net.conv.aggregation.alpha, 3.0)
    net.reset_parameters()
    assert not torch.equal(net(x, graph), before)
    assert (net.conv.aggregation.alpha == 1).all()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler itself
@pytest.mark.parametrize(
    ("compiler", "options"),
    [
        ("aot_eager", {}),
        ("aot_eager", {"aggregation": "attention"}),
        pytest.param(
            "inductor",
            # torch's aot_eager gets the strides of an einsum's gradient wrong, inductor does not.
            {"global_attention": True},
            marks=pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler"),
        ),
    ],
)
def test_compiled_without_a_graph_break_it_computes_the_same(x, compiler, options):
    torch.compiler.reset()
    net, graph = model(**options), EDGES["directed-weighted"].graph()  # not used before
    compiled = torch.compile(net, fullgraph=True, backend=compiler)
    actual = output_and_gradients(compiled(x, graph), list(net.parameters()))
    expected = output_and_gradients(net(x, graph), list(net.parameters()))
    assert_all_close(actual, expected, FLOAT64_ERROR)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heads": 9}, "heads=9 is more than hidden_channels=8"),
        ({"heads": 0}, "heads must be at least 1, got 0"),
        ({"hidden_channels": 0}, "hidden_channels must be at least 1, got 0"),
        ({"out_channels": 0}, "out_channels must be at least 1, got 0"),
        ({"in_channels": (6, 6)}, "bipartite"),
        ({"in_channels": 0}, "in_channels must be at least 1, got 0"),
        ({"dropout": 1.5}, "dropout must be .* got 1.5"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments, message):
    with pytest.raises(ValueError, match=message):
        STAGNN(**{"in_channels": 6, "hidden_channels": 8, "out_channels": 3, **arguments})


def test_heads_may_outnumber_the_classes():
    net = STAGNN(6, 8, 3, heads=8)
    assert net(torch.randn(4, 6), Graph(torch.tensor([[0], [1]]), 4)).shape == (4, 3)


@dataclass(frozen=True)
class Settings:
    name: ClassVar[str] = "stagnn"
    hidden_channels: int = 8
    heads: int = 2
    gate: str = "plain"
    global_attention: bool = True


def test_a_model_is_built_by_the_name_and_the_settings_of_a_configuration(graph):
    net = build(Settings(), in_channels=6, out_channels=3)
    assert isinstance(net, STAGNN)
    assert isinstance(net.conv.gate, PlainGate)
    assert net.conv.beside is not None
    assert net(torch.randn(graph.num_nodes, 6), graph).shape == (graph.num_nodes, 3)


def test_a_model_that_does_not_exist_is_refused():
    class Unknown(Settings):
        name = "stagn"

    with pytest.raises(ValueError, match=r"unknown model 'stagn'\. Did you mean 'stagnn'"):
        build(Unknown(), 6, 3)


def test_an_option_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match="similarity"):
        STAGNN(6, 8, 3, similarity="softmax")


# ------------------------------------------------------------------------------------- smoothing


@pytest.mark.parametrize("transition", ["rw", "sym", "mean"])
@pytest.mark.parametrize("name", ["directed-weighted", "self-loops", "isolated-nodes"])
def test_smoothing_walks_with_loops_between_the_linear_map_and_relu(name, transition):
    edges = EDGES[name]
    graph = edges.graph(transition)
    x = torch.randn(edges.num_nodes, 6, dtype=torch.float64)
    net = model(smoothing=2, transition=transition).eval()
    adjacency = edges.dense()
    adjacency = adjacency + torch.diag((adjacency.diagonal() == 0).double())  # loops that miss
    out, into = adjacency.sum(0), adjacency.sum(1)
    scales = {
        "rw": (torch.ones_like(into), 1 / out),
        "sym": (into.rsqrt(), out.rsqrt()),
        "mean": (1 / into, torch.ones_like(out)),
    }
    left, right = scales[transition]
    step = left[:, None] * adjacency * right
    assert_all_close([net.hidden(x, graph)], [(step @ step @ net.lin(x)).relu()], FLOAT64_ERROR)
    assert_all_close([net(x, graph)], [net.conv(net.hidden(x, graph), graph)], FLOAT64_ERROR)


def test_smoothing_takes_weights_that_are_not_in_the_graph():
    edges, net = EDGES["directed-weighted"], model(smoothing=1)
    x = torch.randn(edges.num_nodes, 6, dtype=torch.float64)
    weight = edges.weight.double()
    parameters = list(net.parameters())
    expected = output_and_gradients(net(x, edges.index, weight), parameters)
    bare, learned = Graph(edges.index, edges.num_nodes), weight.clone().requires_grad_()
    for given in (weight, learned):
        actual = output_and_gradients(net(x, bare, given), parameters)
        assert_all_close(actual, expected, FLOAT64_ERROR)
    (learns,) = torch.autograd.grad(net.hidden(x, bare, learned).square().sum(), learned)
    assert (learns != 0).any()
    own = (edges.index[0] == edges.index[1]).double()  # without other edges a node is itself
    assert_all_close([net.hidden(x, bare, own)], [net.lin(x).relu()], FLOAT64_ERROR)


def test_smoothing_is_gone_with_no_steps_and_refused_below(graph, x):
    torch.manual_seed(0)
    plain = model()
    torch.manual_seed(0)
    assert torch.equal(model(smoothing=0)(x, graph), plain(x, graph))
    with pytest.raises(ValueError, match="smoothing must be at least 0"):
        model(smoothing=-1)
