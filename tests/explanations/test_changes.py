"""What if: a root after changes is what the model says on the graph that is really changed."""

import pytest
import torch
from torch import Tensor

from subtree_attention import STAGNN, Changes, Explainer, Graph, STAConv, STAFormer, explain
from subtree_attention.explanations import Attributor, explainer_of
from subtree_attention.nn import KnownLabels, Labelled, NodeNetwork
from subtree_attention.nn.features import SparseFeatures, rows_of
from subtree_attention.nn.offloaded import OffloadedFeatures
from tests.explanations.test_explanation import OPTIONS, name, randomised, stagnn, wide_layer
from tests.ops.cases import EDGES, FLOAT64_ERROR, Edges, assert_all_close, make_map, random_edges


def kept(edges: Edges, changes: Changes) -> tuple[Tensor, Tensor]:
    """The edges that are left, a mask [E], and the nodes, [n]."""
    pairs = edges.index.t().tolist()
    gone = [bool({*pair} & {*changes.nodes}) or tuple(pair) in changes.edges for pair in pairs]
    left = [node for node in range(edges.num_nodes) if node not in changes.nodes]
    return ~torch.tensor(gone, dtype=torch.bool), torch.tensor(left)


def changed(edges: Edges, changes: Changes) -> Edges:
    """The graph itself: those left out are not in it, so that the others have new numbers."""
    there, left = kept(edges, changes)
    number = torch.full((edges.num_nodes,), -1)
    number[left] = torch.arange(len(left))
    weight = None if edges.weight is None else edges.weight[there]
    return Edges(number[edges.index[:, there]], len(left), weight)


def with_columns(x: Tensor, root: int, changes: Changes) -> Tensor:
    x = x.clone()
    for column, value in changes.columns.items():
        x[root, column] = value
    return x


def some_changes(edges: Edges, root: int) -> list[Changes]:
    """Of every kind, near a root: left out, cut and set, and all of them together."""
    into = [pair for pair in map(tuple, edges.index.t().tolist()) if pair[1] == root]
    near = [source for source, _ in into if source != root][:2]
    other, columns = (root + 1) % edges.num_nodes, {1: 2.5, 4: 0.0}
    return [
        Changes(nodes=(other,)),
        Changes(nodes=tuple(dict.fromkeys(near))),
        Changes(edges=tuple(dict.fromkeys(into))),  # nobody is heard any more
        Changes(columns=columns),
        Changes((other,), tuple(into[:1]), columns),
    ]


def assert_as_from_scratch(model, x, edges: Edges, roots, *how, **more: bool) -> None:
    """Of some roots, after changes of every kind."""
    explainer = explainer_of(model, x, edges.graph(*how, **more))
    for root in roots:
        for changes in some_changes(edges, root):
            _, left = kept(edges, changes)
            given, graph = with_columns(x, root, changes)[left], changed(edges, changes)
            with torch.no_grad():
                expected = model(given, graph.graph(*how, **more))[left == root][0]
            explanation = explainer(root, changes)
            assert_all_close([explanation.logits], [expected], FLOAT64_ERROR)
            for level in explanation.levels:
                assert not {*level.nodes.tolist()} & {*changes.nodes}


@pytest.mark.parametrize("build", [stagnn, wide_layer])
@pytest.mark.parametrize("options", OPTIONS, ids=name)
def test_every_model_says_what_it_says_from_scratch(options, build):
    options = dict(options)
    edges, transition = EDGES[options.pop("edges")], options.pop("transition")
    self_loops = options.pop("self_loops")
    if options["feature_map"] == "callable":
        options["feature_map"] = make_map("callable", 0)
    model = randomised(build(options.pop("hops"), options.pop("heads"), options)).double()
    x, roots = torch.randn(edges.num_nodes, 5).double(), range(0, edges.num_nodes, 4)
    assert_as_from_scratch(model, x, edges, roots, transition, self_loops=self_loops)


@pytest.mark.parametrize("edges", ["directed-weighted", "undirected", "self-loops"])
@pytest.mark.parametrize("transition", ["rw", "sym", "mean"])
def test_a_smoothed_hidden_layer_is_found_anew(edges, transition):
    model = randomised(STAGNN(5, 8, 3, hops=2, heads=2, smoothing=2)).double()
    x = torch.randn(EDGES[edges].num_nodes, 5).double()
    assert_as_from_scratch(model, x, EDGES[edges], range(3), transition)


@pytest.mark.parametrize(
    "options",
    [
        {"layers": 1, "norm": "none", "activation": "none", "input_projection": True},
        {"layers": 1, "norm": "none", "activation": "none", "global_attention": True},
        {"layers": 2, "norm": "layer"},
        {"layers": 2, "norm": "batch", "input_projection": True, "global_attention": True},
    ],
    ids=str,
)
def test_an_staformer_too(options):
    edges = EDGES["directed-weighted"]
    model = STAFormer(5, 8, 3, hops=2, heads=2, transition="sym", self_loops=True, **options)
    model, x = randomised(model).double(), torch.randn(edges.num_nodes, 5).double()
    assert_as_from_scratch(model, x, edges, range(0, 13, 4), "sym", self_loops=True)


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("own", [{"edge_dim": 3}, {}], ids=["gates", "weights"])
def test_edges_with_features_or_weights_of_a_call(own, self_loops):
    edges = random_edges(12, 40, seed=5)
    conv = randomised(STAConv(5, 6, hops=3, heads=2, self_loops=self_loops, **own)).double()
    x, graph = torch.randn(12, 5).double(), Graph(edges.index, 12, self_loops=self_loops)
    of_edges = {"edge_weight": torch.rand(40).double() + 0.1}
    if own:
        of_edges = {"edge_attr": torch.randn(40, 3).double()}
    explainer = Explainer(conv, x, graph, **of_edges)
    for root in range(0, 12, 3):
        for changes in some_changes(edges, root):
            there, left = kept(edges, changes)
            index, given = changed(edges, changes).index, with_columns(x, root, changes)[left]
            of_kept = {name: tensor[there] for name, tensor in of_edges.items()}
            expected = conv(given, index, **of_kept)[left == root][0]
            assert_all_close([explainer(root, changes).logits], [expected], FLOAT64_ERROR)


@pytest.mark.parametrize("smoothing", [0, 1])
@pytest.mark.parametrize("former", [False, True])
def test_sparse_features_and_labels_that_are_shown(smoothing, former):
    edges, x = EDGES["undirected"], torch.randn(9, 5).relu()
    inner = STAFormer(9, 8, 3, layers=2, self_loops=False, transition="rw")
    inner = inner if former else STAGNN(9, 8, 3, smoothing=smoothing)
    model = randomised(NodeNetwork(inner, 3)).double()
    shown = torch.tensor([0, 1, 2, -1, 1, -1, 0, -1, 2])
    changes = Changes((5,), ((7, 0), (0, 7)), {2: 0.5, 0: 0.0})
    explainer = explainer_of(
        model, x.double().to_sparse_csr(), edges.graph(), labels=KnownLabels(shown, 0.5)
    )
    _, left = kept(edges, changes)
    given, labels = with_columns(x.double(), 0, changes)[left], KnownLabels(shown[left], 0.5)
    expected = model(given, changed(edges, changes).graph(), labels=labels)[0]
    assert_all_close([explainer(0, changes).logits], [expected.detach()], FLOAT64_ERROR)


def test_features_of_all_kinds_have_rows():
    x = torch.randn(6, 4).relu()
    nodes = torch.tensor([4, 0, 4])
    kinds = [
        x,
        SparseFeatures(x.to_sparse_csr()),
        OffloadedFeatures(x),
        OffloadedFeatures(x.numpy()),
    ]
    for given in kinds:
        assert torch.equal(rows_of(given, nodes), x[nodes])
    shown = torch.tensor([1, -1, 0, 1, -1, 0])
    for node, row in enumerate(rows_of(Labelled(x, shown, 2), torch.arange(6))):
        own = {-1: [0.0, 0, 0], 0: [1, 0, 1], 1: [0, 1, 1]}[int(shown[node])]
        assert torch.equal(row, torch.tensor([*x[node].tolist(), *own]))


@pytest.mark.parametrize("former", [False, True])
def test_global_attention_within_the_graphs_of_a_batch(former):
    edges, batch = EDGES["two-components"], torch.tensor([0, 0, 0, 1, 1])
    options = {"global_attention": True, "transition": "rw", "self_loops": False}
    model = STAFormer(5, 8, 3, layers=2, **options) if former else STAGNN(5, 8, 3, **options)
    model, x = randomised(model).double(), torch.randn(5, 5).double()
    explanation = explain(model, x, edges.graph(), 1, batch=batch, without=[2])
    left = torch.tensor([0, 1, 3, 4])
    graph = changed(edges, Changes((2,))).graph()
    expected = model(x[left], graph, batch=batch[left])[1].detach()
    assert_all_close([explanation.logits], [expected], FLOAT64_ERROR)
    beyond = [lv.nodes.tolist() for lv in explanation.levels if lv.hop == "global"]
    assert beyond == ([] if former else [[0, 1]])


def test_an_edge_of_an_undirected_graph_is_cut_in_both_directions():
    graph, model, x = EDGES["undirected"].graph(), STAGNN(5, 8, 3).eval(), torch.randn(9, 5)
    source, target = graph.edge_index[:, graph.edge_index[0] != graph.edge_index[1]][:, 0].tolist()
    both = explain(model, x, graph, 0, cut=[(source, target)]).logits
    explainer = Explainer(model, x, graph)
    assert torch.equal(
        both, explainer(0, Changes(edges=((source, target), (target, source)))).logits
    )
    one_way = Graph(torch.tensor([[0, 1], [1, 2]]), 3)
    assert not one_way.is_symmetric
    assert Changes.of(one_way, cut=[(0, 1)]).edges == ((0, 1),)


def test_a_loop_that_is_cut_makes_room_for_an_added_one():
    index, weight = torch.tensor([[0, 0, 0, 1], [0, 0, 1, 0]]), torch.tensor([3.0, 2.0, 1.0, 4.0])
    graph = Graph(index, 2, weight, self_loops=True)
    expected = Graph(index[:, 2:], 2, weight[2:], self_loops=True)
    assert torch.equal(graph.without([], [(0, 0)]).dense(), expected.dense())
    with pytest.raises(ValueError, match="there is no edge from 1 to 1"):  # it was added
        graph.without([], [(1, 1)])


def test_an_explainer_answers_the_same_before_and_after_changes():
    edges, x = EDGES["directed"], torch.randn(11, 5)
    explainer = Explainer(STAGNN(5, 8, 3, global_attention=True), x, edges.graph())
    before = explainer(3).logits
    for changes in some_changes(edges, 3):
        explainer(3, changes)
    assert torch.equal(explainer(3).logits, before)
    assert torch.equal(explainer(3, Changes()).logits, before)


def test_walks_are_those_of_the_changed_graph():
    index = torch.tensor([[0, 1, 0, 2], [1, 3, 2, 3]])  # two ways from 0 to 3
    told = explain(STAGNN(5, 8, 3, hops=2), torch.randn(4, 5), Graph(index, 4), 3, without=[1])
    assert told.walk(2, 0).nodes == [0, 2, 3]
    assert told.walk(2, 0).probability == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (Changes(nodes=(3,)), "node 3 is asked about: it cannot be left out itself"),
        (Changes(nodes=(11,)), "node 11 is not there: they are 0 to 10"),
        (Changes(edges=((3, 3),)), "there is no edge from 3 to 3"),
        (Changes(edges=((3, 20),)), "node 20 is not there"),
        (Changes(columns={5: 1.0}), "column 5 is not there: they are 0 to 4"),
        (Changes(columns={1: float("nan")}), "the value of column 1 must be"),
    ],
)
def test_what_is_not_there_is_refused(changes, message):
    explainer = Explainer(STAGNN(5, 8, 3), torch.randn(11, 5), EDGES["directed"].graph())
    with pytest.raises(ValueError, match=message):
        explainer(3, changes)


def test_a_batch_norm_over_all_nodes_leaves_none_out():
    model = STAFormer(5, 8, 3, layers=2, norm="batch", transition="rw", self_loops=False).eval()
    for norm in (block.norm for block in model.blocks):
        norm.running_mean = norm.running_var = None
    attributor = Attributor(model, torch.randn(11, 5), EDGES["directed"].graph())
    with pytest.raises(ValueError, match="batch norm looks at all nodes"):
        attributor(3, Changes(nodes=(4,)))


class TestRather:
    """Why this class rather than that one."""

    @pytest.fixture(params=["exact", "attributed"])
    def explanation(self, request):
        graph, x = EDGES["directed-weighted"].graph(), torch.randn(13, 5).double()
        options = {"global_attention": True, "transition": "rw", "self_loops": False}
        model = STAGNN(5, 8, 3, **options)
        if request.param == "attributed":
            model = STAFormer(5, 8, 3, layers=2, **options)
        return explain(randomised(model).double(), x, graph, 4)

    def test_it_is_the_difference_of_two_sums(self, explanation):
        difference = explanation.importance(2) - explanation.importance(0)
        assert_all_close([explanation.importance(2, rather=0)], [difference], FLOAT64_ERROR)
        for level in explanation.levels:
            parts = level.contributions(2, rather=0)
            expected = level.contributions(2) - level.contributions(0)
            assert_all_close([parts], [expected], FLOAT64_ERROR)
            total = level.totals()[:, 2] - level.totals()[:, 0]
            assert_all_close([parts.sum(0)], [total], FLOAT64_ERROR)

    def test_the_strongest_nodes_are_those_of_the_difference(self, explanation):
        for level in explanation.levels:
            sources, _ = level.top(3, "contribution", 2, [2, 0], rather=0)
            sizes = [float((s.contribution[:, 0] - s.contribution[:, 1]).sum()) for s in sources]
            assert [*map(abs, sizes)] == sorted(map(abs, sizes), reverse=True)
            wanted = level.contributions(2, 0).sum(1).abs().max()
            assert abs(sizes[0]) == pytest.approx(float(wanted))

    def test_a_class_that_is_none_is_refused(self, explanation):
        with pytest.raises(ValueError, match="there is no class 3"):
            explanation.importance(0, rather=3)
