"""STAConv as a PyG layer: its arguments, its graphs, its life cycle."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch_geometric.nn import GPSConv, Sequential

from subtree_attention import Graph, STAConv, feature_maps
from subtree_attention.ops import definition
from tests.ops.cases import (
    EDGES,
    FLOAT64_ERROR,
    Edges,
    assert_all_close,
    output_and_gradients,
    shifted_square,
)

EDGE = EDGES["directed"].index
NODES = EDGES["directed"].num_nodes
HEAVY = torch.ones(EDGE.size(1))


@pytest.fixture
def x():
    return torch.randn(NODES, 6)


def changed(conv: STAConv) -> STAConv:
    """With every parameter away from its initial value."""
    for parameter in conv.parameters():
        nn.init.normal_(parameter)
    return conv


def test_channels_default_to_out_channels_over_heads():
    conv = STAConv(6, 10, heads=3)
    assert (conv.key_channels, conv.value_channels) == (3, 3)
    assert conv.head_mix.lin.weight.shape == (10, 9)
    assert STAConv(6, 10, heads=3, head_mix="sum").value_channels == 10


def test_in_channels_may_come_from_the_first_x(x):
    conv = STAConv(-1, 8)
    assert conv(x, EDGE).shape == (NODES, 8)
    assert conv.lin_query.weight.shape == (8, 6)
    with pytest.raises(ValueError, match="x has 5 channels, this layer takes 6"):
        conv(x[:, :5], EDGE)


@pytest.mark.parametrize("transition", ["auto", "rw", "sym", "mean", None])
def test_a_graph_equals_the_edge_index_it_was_made_of(x, transition):
    edges = EDGES["directed-weighted"]
    x = torch.randn(edges.num_nodes, 6)
    conv = STAConv(6, 8, transition=transition, self_loops=True)
    graph = edges.graph("rw" if transition == "auto" else transition, self_loops=True)
    assert torch.equal(conv(x, graph), conv(x, edges.index, edges.weight))


def test_auto_takes_the_transition_of_the_graph(x):
    graph = Graph(EDGE, NODES, transition="mean")
    conv, same = STAConv(6, 8), STAConv(6, 8, transition="mean")
    same.load_state_dict(conv.state_dict())
    assert torch.equal(conv(x, graph), same(x, EDGE))


@pytest.mark.parametrize(
    ("options", "graph", "edge_weight", "message"),
    [
        (
            {"transition": "sym"},
            {},
            None,
            "transition='sym', but the Graph was made with transition='rw'",
        ),
        (
            {"transition": None},
            {},
            None,
            "transition=None, but the Graph was made with transition='rw'",
        ),
        (
            {"self_loops": True},
            {},
            None,
            "self_loops=True, but the Graph was made with",
        ),
        ({}, {"edge_weight": HEAVY}, HEAVY, "this Graph has its weights already"),
        ({}, {"num_nodes": 20}, None, "x has 11 rows, but the graph has 20 nodes"),
    ],
)
def test_a_graph_that_contradicts_the_call_is_refused(x, options, graph, edge_weight, message):
    graph = Graph(EDGE, **{"num_nodes": NODES, **graph})
    with pytest.raises(ValueError, match=message):
        STAConv(6, 8, **options)(x, graph, edge_weight)


class TestCached:
    def test_later_calls_use_the_first_graph(self, x):
        conv = STAConv(6, 8, cached=True)
        first = conv(x, EDGE)
        assert torch.equal(conv(x, EDGE.flip(0)), first)

    def test_reset_forgets_it(self, x):
        conv, fresh = STAConv(6, 8, cached=True), STAConv(6, 8)
        conv(x, EDGE)
        conv.reset_parameters()
        fresh.load_state_dict(conv.state_dict())
        assert torch.equal(conv(x, EDGE.flip(0)), fresh(x, EDGE.flip(0)))

    def test_another_number_of_nodes_is_refused(self, x):
        conv = STAConv(6, 8, cached=True)
        conv(x, EDGE)
        with pytest.raises(ValueError, match="x has 12 rows, but the graph has 11 nodes"):
            conv(torch.randn(12, 6), EDGE)

    @pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
    def test_copies_and_pickles_keep_it(self, x, copied):
        conv = STAConv(6, 8, cached=True, feature_map="softmax-features")
        first = conv(x, EDGE)
        assert torch.equal(copied(conv)(x, EDGE.flip(0)), first)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_and_pickles_compute_the_same(x, copied):
    conv = STAConv(6, 8, global_attention=True, gate="plain")
    assert torch.equal(copied(conv)(x, EDGE), conv(x, EDGE))


@pytest.mark.parametrize("feature_map", ["elu", "softmax-features"])
def test_state_dict_round_trip(x, feature_map):
    conv, other = (
        changed(STAConv(6, 8, feature_map=feature_map, global_attention=True)) for _ in range(2)
    )
    file = io.BytesIO()
    torch.save(conv.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    assert torch.equal(conv(x, EDGE), other(x, EDGE))
    assert ("feature_map.projection" in conv.state_dict()) == (feature_map == "softmax-features")


def test_reset_draws_weights_anew_and_restores_what_starts_fixed():
    conv = changed(STAConv(6, 8, global_attention=True))
    before = conv.lin_query.weight.detach().clone()
    conv.reset_parameters()
    assert not torch.equal(conv.lin_query.weight, before)
    assert (conv.aggregation.alpha == 1).all()
    assert (conv.gate.logits == 0).all()
    assert conv.beside.weight == 1


@pytest.mark.parametrize(
    "feature_map", [nn.Softplus(), nn.Sequential(nn.Linear(2, 5), nn.ReLU()), shifted_square]
)
def test_reset_reaches_a_users_feature_map(x, feature_map):
    conv = STAConv(6, 8, feature_map=feature_map)
    before = [p.detach().clone() for p in conv.parameters()]
    conv.reset_parameters()
    weights = [
        (p, b)
        for p, b in zip(conv.parameters(), before, strict=True)
        if p.dim() > 1 and (b != 0).any()
    ]
    assert all(not torch.equal(p, b) for p, b in weights)
    assert conv(x, EDGE).shape == (NODES, 8)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({}, "GPR, gate=SoftmaxGate, head_mix=LinearMix, readout=MeanReadout"),
        ({"gate": "plain"}, "Sum, gate=PlainGate, head_mix=LinearMix, readout=MeanReadout"),
        (
            {"heads": 1, "head_mix": "sum", "readout": "power"},
            "GPR, gate=NoGate, head_mix=SumMix, readout=PowerReadout",
        ),
    ],
)
def test_repr_says_what_names_became(options, parts):
    heads = options.get("heads", 4)
    expected = f"STAConv(6, 8, hops=2, heads={heads}, aggregation={parts})"
    assert repr(STAConv(6, 8, hops=2, **options)) == expected


def test_bias_may_be_left_out(x):
    conv = STAConv(6, 8, bias=False, aggregation="sum", gate="none")
    assert all(parameter.dim() == 2 for parameter in conv.parameters())
    assert conv(x, EDGE).shape == (NODES, 8)


def test_dropout_acts_on_the_heads_before_they_are_mixed(x, monkeypatch):
    conv = STAConv(6, 8, heads=4, dropout=0.25)
    calls = []

    def record(values, p, training):
        if p:
            calls.append((values.shape, p, training))
        return values

    monkeypatch.setattr("subtree_attention.nn.heads.drop", record)
    conv(x, EDGE)
    conv.eval()(x, EDGE)
    assert calls == [((NODES, 8), 0.25, True), ((NODES, 8), 0.25, False)]


@pytest.mark.parametrize("feature_map", ["elu", "softmax"])
@pytest.mark.parametrize("name", ["directed-weighted", "parallel-edges", "isolated-nodes"])
def test_attention_along_edges_equals_the_definition(name, feature_map):
    edges = EDGES[name]
    conv = STAConv(6, 8, heads=2, feature_map=feature_map).double()
    x = torch.randn(edges.num_nodes, 6, dtype=torch.float64)
    out, (index, weights) = conv(x, edges.index, edges.weight, return_attention_weights=True)
    assert torch.equal(out, conv(x, edges.index, edges.weight))
    assert weights.shape == (edges.index.size(1), 2)

    query, key, _ = conv.project(x)
    sim = definition.kernel_similarity(feature_maps.elu)
    if feature_map == "softmax":
        sim = definition.softmax_similarity
    expected = definition.attention_matrix(edges.graph().dense(), sim(query, key), conv.eps)
    source, target = index
    actual = torch.zeros_like(expected)  # [H, N, N]; parallel edges share an entry
    actual = actual.index_put((torch.arange(2)[:, None], target, source), weights.t(), True)
    assert_all_close([actual], [expected], FLOAT64_ERROR)


def test_a_layer_without_a_first_hop_has_no_attention_along_edges(x):
    with pytest.raises(ValueError, match="no first hop"):
        STAConv(6, 8, hops=0)(x, EDGE, return_attention_weights=True)


def test_hop_weights_are_alpha_times_gate():
    conv = changed(STAConv(6, 8, hops=2, heads=2))
    expected = conv.aggregation.alpha[:, None] * conv.gate()
    assert torch.equal(conv.hop_weights(), expected)
    assert STAConv(6, 8, aggregation="concat").hop_weights() is None


def test_no_weight_decay_names_alpha_gate_and_the_weight_of_global_attention():
    def names(**options):
        conv = STAConv(6, 8, heads=2, **options)
        kept = {id(p) for p in conv.no_weight_decay()}
        return {name for name, p in conv.named_parameters() if id(p) in kept}

    assert names() == {"aggregation.alpha", "gate.logits"}
    assert names(gate="plain") == {"gate.table"}
    assert names(aggregation="attention", gate="none") == set()
    beside = {"aggregation.alpha", "gate.logits", "beside.weight"}
    assert names(global_attention=True) == beside


def test_in_pyg_sequential(x):
    model = Sequential(
        "x, edge_index",
        [
            (STAConv(6, 8), "x, edge_index -> x"),
            nn.ReLU(),
            (STAConv(8, 3, heads=1), "x, edge_index -> x"),
        ],
    )
    assert model(x, EDGE).shape == (NODES, 3)


def test_as_the_conv_of_gps():
    layer = GPSConv(8, STAConv(8, 8, heads=2), heads=2)
    layer.reset_parameters()
    x, batch = torch.randn(NODES, 8), (torch.arange(NODES) > 5).long()
    out = layer(x, EDGE, batch)
    out.sum().backward()
    assert out.shape == (NODES, 8)
    assert all(p.grad is not None for p in layer.conv.parameters())


def test_a_batch_of_graphs_never_mixes():
    first, second = EDGES["directed"], EDGES["undirected"]
    index = torch.cat([first.index, second.index + first.num_nodes], dim=1)
    conv = STAConv(6, 8)
    x = torch.randn(first.num_nodes + second.num_nodes, 6)
    together = conv(x, index)
    apart = torch.cat(
        [conv(x[: first.num_nodes], first.index), conv(x[first.num_nodes :], second.index)]
    )
    torch.testing.assert_close(together, apart)  # float32 defaults: matmuls of another shape


def test_renumbering_the_nodes_renumbers_the_output():
    edges = EDGES["directed-weighted"]
    order = torch.randperm(edges.num_nodes)
    renumbered = Edges(order[edges.index], edges.num_nodes, edges.weight)
    conv = STAConv(6, 8, global_attention=True, aggregation="attention").double()
    x = torch.randn(edges.num_nodes, 6, dtype=torch.float64)
    moved = torch.empty_like(x).index_copy(0, order, x)
    out = conv(moved, renumbered.graph())[order]
    assert_all_close([out], [conv(x, edges.graph())], FLOAT64_ERROR)


def test_autocast_trains_with_float32_attention(x):
    conv = STAConv(6, 8, heads=2)
    with torch.autocast("cpu", torch.bfloat16):
        out, (_, weights) = conv(x, EDGE, return_attention_weights=True)
        gradients = output_and_gradients(out, list(conv.parameters()))[1:]
    assert weights.dtype == torch.float32
    assert all(g.isfinite().all() and g.dtype == torch.float32 for g in gradients)
    # bfloat16 holds 8 bits; three products in a row, sums of a few terms.
    torch.testing.assert_close(out.float(), conv(x, EDGE), rtol=0, atol=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"in_channels": (6, 6)}, r"in_channels=\(6, 6\): bipartite layers are not supported"),
        ({"in_channels": 0}, "in_channels must be at least 1, got 0"),
        ({"out_channels": 0}, "out_channels must be at least 1, got 0"),
        ({"heads": 0}, "heads must be at least 1, got 0"),
        ({"heads": 9}, "heads=9 is more than out_channels=8"),
        ({"hops": -1}, "hops must be at least 0, got -1"),
        ({"key_channels": 0}, "key_channels must be at least 1, got 0"),
        ({"value_channels": -2}, "value_channels must be at least 1, got -2"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"eps": -1.0}, "eps must be a finite number of at least 0, got -1.0"),
        ({"feature_map": "elo"}, "Did you mean 'elu'"),
        ({"feature_map": torch.sin}, "must not be negative"),
        ({"feature_map": "softmaxx"}, "Did you mean 'softmax'"),
        ({"transition": "symm"}, "unknown transition 'symm'. Did you mean 'sym'"),
        ({"aggregation": "gprr"}, "Did you mean 'gpr'"),
        ({"gate": "plane"}, "Did you mean 'plain'"),
        ({"head_mix": "liner"}, "unknown head_mix 'liner'. Did you mean 'linear'"),
        ({"backend": "troch"}, "Did you mean 'torch'"),
        ({"states": "bfloat"}, "Did you mean 'bfloat16'"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_wrong_arguments_are_refused_at_once(options, message):
    with pytest.raises(ValueError, match=message):
        STAConv(**{"in_channels": 6, "out_channels": 8, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hops": True}, "hops must be an integer, got True"),
        ({"heads": 2.0}, "heads must be an integer, got 2.0"),
        ({"dropout": "0.5"}, "dropout must be a number, got '0.5'"),
        ({"in_channels": None}, "in_channels must be an integer, got None"),
        ({"global_attention": "beside"}, "global_attention must be True or False, got 'beside'"),
        ({"gate": 3}, "gate must be one of softmax, plain, none, got 3"),
    ],
)
def test_wrong_types_are_refused_at_once(options, message):
    with pytest.raises(TypeError, match=message):
        STAConv(**{"in_channels": 6, "out_channels": 8, **options})


@pytest.mark.parametrize("options", [{}, {"aggregation": "concat"}, {"global_attention": True}])
def test_a_graph_without_nodes_gives_no_rows(options):
    conv, empty = STAConv(6, 8, **options), Graph(torch.empty(2, 0, dtype=torch.long), 0)
    assert conv(torch.randn(0, 6), empty).shape == (0, 8)


def test_an_edge_index_beyond_x_is_refused(x):
    with pytest.raises(ValueError, match="num_nodes=5, but the adjacency has index 10"):
        STAConv(6, 8)(x[:5], EDGE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("global_attention", [False, True])
def test_a_layer_in_half_precision_works(dtype, heads, global_attention):
    torch.manual_seed(1)
    conv = STAConv(6, 8, heads=heads, value_channels=5, global_attention=global_attention)
    x, edge_index = torch.randn(4, 6), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    expected = conv(x, edge_index)
    actual = conv.to(dtype)(x.to(dtype), edge_index)
    # bfloat16 has 8 bits: errors of some per cent through three linear maps are its own
    torch.testing.assert_close(actual.float(), expected, rtol=0.1, atol=0.05)


@pytest.mark.parametrize(
    "how", [{"heads": 4}, {"heads": 1}, {"heads": 4, "head_mix": "sum"}], ids=str
)
@pytest.mark.parametrize("global_attention", [False, True])
def test_the_output_has_the_precision_of_the_layer_with_and_without_a_last_map(
    how, global_attention
):
    conv = STAConv(6, 8, global_attention=global_attention, **how)
    x, edge_index = torch.randn(4, 6), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    assert conv(x, edge_index).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert conv(x, edge_index).dtype == torch.bfloat16
    assert conv.bfloat16()(x.bfloat16(), edge_index).dtype == torch.bfloat16


def test_autocast_does_not_reach_the_attention_along_edges():
    conv = STAConv(6, 8, hops=1, feature_map="softmax-features")
    x, edge_index = torch.randn(4, 6), torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])
    with torch.autocast("cpu", torch.bfloat16):
        _, (edges, weights) = conv(x, edge_index, return_attention_weights=True)
        rows = torch.stack([conv.attention(x, edge_index, root, 1) for root in range(4)])
    torch.testing.assert_close(weights, rows[edges[1], edges[0]])


def test_attention_that_the_layer_does_not_compute_is_refused():
    x, edge_index = torch.randn(3, 6), torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(TypeError, match="hop must be an integer, got '1'"):
        STAConv(6, 8).attention(x, edge_index, root=0, hop="1")
    with pytest.raises(ValueError, match="no hop 4 to explain: hops read: 3"):
        STAConv(6, 8).attention(x, edge_index, root=0, hop=4)


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        ([0, 0, 1], TypeError, "batch must be a torch.Tensor, got list"),
        (torch.zeros(3), TypeError, "batch must hold integers"),
        (torch.tensor([0, -1, 0]), ValueError, "negative graph -1"),
        (torch.zeros(2, dtype=torch.long), ValueError, r"shape \[3\]"),
    ],
)
def test_a_wrong_batch_is_refused(batch, error, message):
    conv = STAConv(6, 8, global_attention=True)
    with pytest.raises(error, match=message):
        conv(torch.randn(3, 6), torch.tensor([[0, 1], [1, 2]]), batch=batch)


def test_a_batch_of_more_graphs_than_said_is_refused():
    conv, batch = STAConv(6, 8, global_attention=True), torch.tensor([0, 1, 3])
    x, edge_index = torch.randn(3, 6), torch.tensor([[0], [0]])
    with pytest.raises(ValueError, match="batch holds graph 3, but batch_size=2"):
        conv(x, edge_index, batch=batch, batch_size=2)
    assert conv(x, edge_index, batch=batch, batch_size=4).shape == (3, 8)


def test_projections_are_one_product_and_still_three_modules():
    conv = STAConv(6, 8, hops=1, heads=2).double()
    x, edge_index = torch.randn(5, 6).double(), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    together = conv(x, edge_index)
    called = []
    conv.lin_key.register_forward_hook(lambda *_: called.append("key"))  # now one by one
    torch.testing.assert_close(conv(x, edge_index), together)
    assert called == ["key"]


def test_a_bound_for_the_memory_of_states_changes_nothing_else():
    graph, x = EDGES["directed"].graph(), torch.randn(11, 6, dtype=torch.float64)
    conv = STAConv(6, 8, heads=2).double()
    expected = conv(x, graph)
    conv.state_bytes = 1
    assert_all_close([conv(x, graph)], [expected], FLOAT64_ERROR)
    conv.states = "bfloat16"
    with pytest.raises(ValueError, match="on a CPU it would only cost precision"):
        conv(x, graph)
