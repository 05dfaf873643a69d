"""`explain`: the parts are those of the definition, and they add up to the logit."""

import itertools

import pytest
import torch

from subtree_attention import STAGNN, Explainer, Graph, STAConv, explain
from subtree_attention.explanations.walks import Walks
from subtree_attention.nn.aggregation import AGGREGATIONS
from tests.nn.reference import LAYER_OPTIONS
from tests.ops.cases import EDGES, FLOAT64_ERROR, Edges, assert_all_close, make_map, pairwise

FLOAT32_ERROR = 1e-5
"""Float32 rounds at 6e-8; the walk and the parts add up a few hundred such numbers."""

MAPS = ["elu", "softmax", "relu", "softplus", "softmax-features", "rbf-features", "callable"]
OPTIONS = pairwise(
    **{**LAYER_OPTIONS, "feature_map": MAPS},
    transition=["rw", "sym", "mean", None],
    self_loops=[False, True],
    edges=["directed-weighted", "isolated-nodes", "self-loops", "parallel-edges", "undirected"],
)


def name(options: dict) -> str:
    return "-".join(map(str, options.values()))


def randomised(module: torch.nn.Module) -> torch.nn.Module:
    """Away from initial values that would hide a mistake (ones, zeros)."""
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module.eval()


def case(options: dict, build, dtype: torch.dtype):
    """A model with these options, and x and a graph for it."""
    options = dict(options)
    edges, transition = EDGES[options.pop("edges")], options.pop("transition")
    graph = edges.graph(transition, self_loops=options.pop("self_loops"))
    if options["feature_map"] == "callable":
        options["feature_map"] = make_map("callable", 0)
    model = randomised(build(options.pop("hops"), options.pop("heads"), options)).to(dtype)
    return model, torch.randn(graph.num_nodes, 5, dtype=dtype), graph


def stagnn(hops: int, heads: int, options: dict) -> STAGNN:
    return STAGNN(5, 8, 3, hops, heads, **options)


def wide_layer(hops: int, heads: int, options: dict) -> STAConv:
    return STAConv(5, 6, hops, heads, value_channels=4, **options)


def assert_complete(model, x, graph, tolerance: float) -> None:
    """Summed from single nodes as well as from totals, every root's parts are its logits."""
    explainer, expected = Explainer(model, x, graph), model(x, graph)
    for root in range(graph.num_nodes):
        explanation = explainer(root)
        assert_all_close([explanation.logits], [expected[root]], tolerance)
        classes = range(expected.size(1))
        single = torch.stack([explanation.importance(cls).sum() for cls in classes])
        assert_all_close([explanation.bias + single], [expected[root]], tolerance)


@pytest.mark.parametrize("build", [stagnn, wide_layer])
@pytest.mark.parametrize("options", OPTIONS, ids=name)
def test_the_parts_add_up_to_the_logits(options, build):
    assert_complete(*case(options, build, torch.float64), FLOAT64_ERROR)


@pytest.mark.parametrize("options", OPTIONS[::3], ids=name)
def test_the_parts_add_up_in_float32_too(options):
    assert_complete(*case(options, stagnn, torch.float32), FLOAT32_ERROR)


@pytest.mark.parametrize("edges", ["no-edges", "one-node", "hubs", "two-components"])
def test_the_parts_add_up_on_odd_graphs(edges):
    graph = EDGES[edges].graph()
    model = randomised(STAGNN(5, 8, 3, hops=4, global_attention=True)).double()
    x = torch.randn(graph.num_nodes, 5).double()
    assert_complete(model, x, graph, FLOAT64_ERROR)


@pytest.mark.parametrize("edges", ["directed-weighted", "isolated-nodes", "self-loops"])
def test_the_parts_add_up_where_the_hidden_layer_is_smoothed(edges):
    graph = EDGES[edges].graph()
    model = randomised(STAGNN(5, 8, 3, hops=3, heads=2, smoothing=2)).double()
    assert_complete(model, torch.randn(graph.num_nodes, 5).double(), graph, FLOAT64_ERROR)


def test_concatenated_levels_without_an_output_map():
    conv = STAConv(5, 6, hops=2, heads=3, value_channels=2, aggregation="concat", head_mix="sum")
    assert conv.head_mix.lin is None
    graph = EDGES["directed"].graph()
    x = torch.randn(graph.num_nodes, 5).double()
    assert_complete(randomised(conv).double(), x, graph, FLOAT64_ERROR)


@pytest.mark.parametrize("readout", ["mean", "sum", "power"])
def test_every_part_is_the_effect_of_one_value(readout):
    """Without the value of one node at one hop and head, the logit falls by just that part."""
    torch.manual_seed(3)
    graph = EDGES["directed-weighted"].graph()
    model = randomised(STAGNN(5, 8, 3, hops=3, heads=2, readout=readout)).double()
    x, root, conv = torch.randn(graph.num_nodes, 5).double(), 4, model.conv
    explanation, (_, _, value) = explain(model, x, graph, root), conv.project(model.hidden(x))
    for level in explanation.levels:
        expected = torch.zeros(graph.num_nodes, 2, 3).double()
        attention = model.attention(x, graph, root, level.hop)  # [N, H], from its own tests
        for node, head in itertools.product(range(graph.num_nodes), range(2)):
            only = torch.zeros(2, 3).double()
            only[head] = value[node, head] * attention[node, head]
            only *= conv.hop_weights()[level.hop, :, None]
            expected[node, head] = conv.head_mix.lin(only.flatten()) - conv.head_mix.lin.bias
        actual = torch.zeros_like(expected)
        for cls in range(3):
            actual[level.nodes, :, cls] = level.contributions(cls)
        assert_all_close([actual], [expected.detach()], FLOAT64_ERROR)


@pytest.mark.parametrize("feature_map", ["elu", "softmax"])
def test_shares_are_the_attention_of_the_model(feature_map):
    graph = EDGES["isolated-nodes"].graph()
    model = randomised(STAGNN(5, 8, 3, hops=3, feature_map=feature_map)).double()
    x = torch.randn(graph.num_nodes, 5).double()
    for root in range(graph.num_nodes):
        for level in explain(model, x, graph, root).levels:
            dense = torch.zeros(graph.num_nodes, 4).double()
            dense[level.nodes] = level.attention
            expected = model.attention(x, graph, root, level.hop)
            assert_all_close([dense], [expected], FLOAT64_ERROR)


def test_softmax_scores_that_are_far_apart_stay_exact():
    """One level's largest score may be so far below another's that exp would be 0."""
    edges = Edges(torch.tensor([[1, 2], [0, 1]]), 3)  # 2 -> 1 -> 0
    conv = STAConv(1, 2, hops=2, heads=1, feature_map="softmax", bias=False, eps=0.0).double()
    for lin in (conv.lin_query, conv.lin_key):
        torch.nn.init.constant_(lin.weight, 1.0)
    x = torch.tensor([[1.0], [2000.0], [-2000.0]]).double()
    assert_complete(conv, x, edges.graph(), FLOAT64_ERROR)
    assert explain(conv, x, edges.graph(), 0).level(2).attention.item() == 1


@pytest.mark.parametrize("feature_map", ["elu", "softmax"])
def test_global_attention_stays_within_the_graph_of_a_batch(feature_map):
    graph, batch = EDGES["two-components"].graph(), torch.tensor([0, 0, 0, 1, 1])
    model = randomised(STAGNN(5, 8, 3, global_attention=True, feature_map=feature_map)).double()
    x = torch.randn(5, 5).double()
    explainer = Explainer(model, x, graph, batch=batch)
    expected = model(x, graph, batch=batch)
    assert_all_close([torch.stack([explainer(r).logits for r in range(5)])], [expected], 1e-10)
    assert explainer(4).level("global").nodes.tolist() == [3, 4]


def test_edges_sparse_features_and_half_precision():
    edges = EDGES["directed-weighted"]
    x = torch.randn(edges.num_nodes, 5).relu()
    model = randomised(STAGNN(5, 8, 3))
    logits = explain(model, x, edges.graph(), 3).logits
    given = explain(model, x.to_sparse_csr(), edges.index, 3, edges.weight).logits
    assert_all_close([given], [logits], FLOAT32_ERROR)
    half = model.bfloat16()
    expected = half(x.bfloat16(), edges.graph())[3]
    # bfloat16 rounds at 4e-3, and the model rounds before its last map where the parts do not
    assert_all_close([explain(half, x.bfloat16(), edges.graph(), 3).logits], [expected], 5e-2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("aggregation", list(AGGREGATIONS))
def test_a_model_on_a_gpu_is_explained_too(aggregation):
    graph = EDGES["directed-weighted"].graph(device="cuda")
    model = STAGNN(5, 8, 3, aggregation=aggregation, global_attention=True)
    model, x = randomised(model).double().cuda(), torch.randn(13, 5).double().cuda()
    explanation, expected = explain(model, x, graph, 3), model(x, graph)[3]
    assert_all_close([explanation.logits], [expected.cpu()], FLOAT64_ERROR)


def test_there_is_no_dropout_and_the_model_stays_as_it_was():
    graph = EDGES["undirected"].graph()
    model, x = randomised(STAGNN(5, 8, 3, dropout=0.5)).double(), torch.randn(9, 5).double()
    expected = model(x, graph)
    model.train()
    model.conv.eval()
    explainer = Explainer(model, x, graph)
    assert (model.training, model.conv.training) == (True, False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()  # an explainer keeps what it was built with
    assert_all_close([explainer(2).logits], [expected[2]], FLOAT64_ERROR)


class TestTop:
    @pytest.fixture
    def explanation(self):
        graph = EDGES["hubs"].graph()
        model = randomised(STAGNN(5, 8, 3, hops=2)).double()
        return explain(model, torch.randn(40, 5).double(), graph, 0)

    @pytest.mark.parametrize("by", ["share", "contribution"])
    @pytest.mark.parametrize("count", [0, 1, 5, 1000])
    def test_shown_and_rest_are_the_whole_level(self, explanation, count, by):
        for level in explanation.levels:
            sources, rest = level.top(count, by, cls=1)
            assert len(sources) == min(count, len(level.nodes))
            assert rest.nodes == len(level.nodes) - len(sources)
            shown = {source.node for source in sources}
            others = [i for i, node in enumerate(level.nodes.tolist()) if node not in shown]
            contributions = torch.stack([level.contributions(cls) for cls in range(3)], -1)
            expected = [level.attention[others].sum(0), contributions[others].sum(0)]
            assert_all_close([rest.attention, rest.contribution], expected, FLOAT64_ERROR)
            for source in sources:
                place = level.nodes.tolist().index(source.node)
                assert_all_close([source.attention], [level.attention[place]], FLOAT64_ERROR)
                assert_all_close([source.contribution], [contributions[place]], FLOAT64_ERROR)

    def test_order(self, explanation):
        level = explanation.level(1)
        shares = [float(source.attention.sum()) for source in level.top(9)[0]]
        assert shares == sorted(shares, reverse=True)
        assert shares[0] == float(level.attention.sum(1).max())
        parts = [
            abs(float(source.contribution[:, 2].sum()))
            for source in level.top(9, "contribution", 2)[0]
        ]
        assert parts == sorted(parts, reverse=True)

    def test_the_rival_is_the_best_of_the_others(self, explanation):
        order = explanation.logits.argsort(descending=True).tolist()
        assert explanation.predicted == order[0]
        assert [explanation.rival(cls) for cls in order] == [order[1], order[0], order[0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e(9), "root 9 is not a node: the graph has 9 nodes"),
        (lambda e: e(-1), "root must be at least 0, got -1"),
        (lambda e: e(0).level(4), "there is no hop 4 to explain: this model reads 0, 1, 2, 3"),
        (lambda e: e(0).level(1).top(3, "size"), "unknown order 'size'"),
        (lambda e: e(0).level(1).top(3, "contribution"), "contributions are to a class"),
        (lambda e: e(0).level(1).contributions(3), "there is no class 3: .* classes 0 to 2"),
        (lambda e: e(0).importance(-1), "class must be at least 0, got -1"),
        (lambda e: e(0).walk(0, 1), "no walk of 0 steps leads from node 1 to 0"),
    ],
)
def test_mistakes_are_refused_in_words(call, message):
    model = STAGNN(5, 8, 3)
    explainer = Explainer(model, torch.randn(9, 5), EDGES["undirected"].graph())
    with pytest.raises(ValueError, match=message):
        call(explainer)


def test_a_batch_that_does_not_fit_is_refused():
    model, graph = STAGNN(5, 8, 3, global_attention=True), EDGES["undirected"].graph()
    with pytest.raises(ValueError, match=r"batch must have shape \[9\]"):
        Explainer(model, torch.randn(9, 5), graph, batch=torch.zeros(4, dtype=torch.long))


def test_other_models_are_refused():
    with pytest.raises(
        TypeError, match="only STAGNN, STAFormer and STAConv are explained, got Linear"
    ):
        explain(torch.nn.Linear(5, 3), torch.randn(2, 5), Graph(torch.tensor([[0], [1]])), 0)


class TestShares:
    """What is shown of a level whose weights need not sum to 1."""

    def explained(self, readout):
        torch.manual_seed(5)
        graph = EDGES["directed-weighted"].graph(None)
        model = randomised(STAGNN(5, 8, 3, hops=3, heads=2, readout=readout)).double()
        return explain(model, torch.randn(graph.num_nodes, 5).double(), graph, 4)

    def test_of_a_mean_they_are_the_weights(self):
        for level in self.explained("mean").levels:
            assert level.is_mean
            assert torch.equal(level.shares, level.attention)

    @pytest.mark.parametrize("readout", ["sum", "power"])
    def test_of_another_readout_they_sum_to_one_and_the_weights_do_not(self, readout):
        explanation = self.explained(readout)
        own, *others = explanation.levels
        assert own.is_mean  # the root itself
        for level in others:
            assert not level.is_mean
            sums = level.attention.sum(0)
            assert (sums - 1).abs().min() > 1e-3
            torch.testing.assert_close(level.shares.sum(0), torch.ones_like(sums))
            torch.testing.assert_close(level.shares * sums, level.attention)

    @pytest.mark.parametrize("readout", ["mean", "sum", "power"])
    def test_those_that_are_named_and_the_rest_are_all(self, readout):
        for level in self.explained(readout).levels:
            sources, rest = level.top(2)
            named = sum(source.attention for source in sources)
            whole = torch.ones_like(named)  # less what eps takes
            torch.testing.assert_close(named + rest.attention, whole, rtol=0, atol=1e-4)
            first = sources[0].attention.sum()
            assert all(source.attention.sum() <= first for source in sources)
            added = sum(source.contribution for source in sources) + rest.contribution
            torch.testing.assert_close(added, level.total)


class TestEdgesOfTheirOwn:
    """Edges that let through what they learned, of each head or of all."""

    edges = EDGES["directed-weighted"]

    def layer(self, **options) -> STAConv:
        torch.manual_seed(7)
        conv = STAConv(5, 6, hops=3, heads=2, **options)
        return randomised(conv).double()

    @pytest.mark.parametrize("readout", ["mean", "power"])
    @pytest.mark.parametrize("self_loops", [False, True])
    def test_gates(self, readout, self_loops):
        conv = self.layer(edge_dim=3, readout=readout, self_loops=self_loops)
        x = torch.randn(self.edges.num_nodes, 5).double()
        attr = torch.randn(self.edges.index.size(1), 3).double()
        explainer = Explainer(conv, x, self.edges.index, edge_attr=attr)
        expected = conv(x, self.edges.index, edge_attr=attr)
        for root in range(self.edges.num_nodes):
            explanation = explainer(root)
            assert_all_close([explanation.logits], [expected[root]], FLOAT64_ERROR)
            for level in explanation.levels:
                weights = conv.attention(x, self.edges.index, root, level.hop, edge_attr=attr)
                assert_all_close([level.attention], [weights[level.nodes]], FLOAT64_ERROR)

    def test_weights_that_learn(self):
        conv, x = self.layer(), torch.randn(self.edges.num_nodes, 5).double()
        weight = (torch.rand(self.edges.index.size(1)).double() + 0.1).requires_grad_()
        expected = conv(x, self.edges.index, weight)
        explanation = explain(conv, x, self.edges.index, 4, weight)
        assert_all_close([explanation.logits], [expected[4]], FLOAT64_ERROR)

    def test_the_best_walk_is_that_of_the_mean_over_heads(self):
        graph = Graph(torch.tensor([[0, 1, 0, 2], [1, 3, 2, 3]]), 4, transition=None)
        entries = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.4, 0.5], [0.4, 0.7]])  # by target
        order = [graph.edge_index.t().tolist().index(e) for e in ([0, 1], [1, 3], [0, 2], [2, 3])]
        walks = Walks(graph, entries[torch.tensor(order).argsort()])
        reached = walks.reach(3, 2)
        walk = walks.trace(reached, walks.best(reached), 2, 0)
        means = {(0, 1, 3): 0.5 * 0.5, (0, 2, 3): 0.45 * 0.55}
        assert walk.nodes == [*max(means, key=means.get)]
        assert walk.probability == pytest.approx(max(means.values()))

    def test_features_of_edges_must_be_there(self):
        x = torch.randn(self.edges.num_nodes, 5).double()
        with pytest.raises(ValueError, match="it needs edge_attr"):
            explain(self.layer(edge_dim=3), x, self.edges.index, 0)


def test_a_model_that_does_something_else_is_not_explained():
    class Twice(STAGNN):
        def forward(self, *given, **more):
            return 2 * super().forward(*given, **more)

    with pytest.raises(TypeError, match="Twice has a forward of its own"):
        explain(Twice(4, 8, 3), torch.randn(5, 4), torch.randint(5, (2, 9)), 0)
