"""Contributions of feature columns: they add up, and are what the definition says."""

import pytest
import torch
from torch import Tensor

from subtree_attention import STAGNN, Changes, STAConv, STAFormer, explain
from subtree_attention.explanations import Explanation, explainer_of
from subtree_attention.nn import KnownLabels, NodeNetwork
from tests.explanations.test_explanation import randomised
from tests.ops.cases import EDGES, FLOAT64_ERROR, assert_all_close

LINEAR = {"layers": 1, "norm": "none", "activation": "none", "self_loops": False}
MODELS = {
    "stagnn": lambda: STAGNN(5, 8, 3, hops=2, heads=2, global_attention=True),
    "concat": lambda: STAGNN(5, 8, 3, hops=2, heads=2, aggregation="concat", readout="power"),
    "smoothed": lambda: STAGNN(5, 8, 3, hops=2, heads=2, smoothing=2),
    "layer": lambda: STAConv(5, 6, hops=2, heads=3, value_channels=4),
    "former": lambda: STAFormer(5, 8, 3, hops=2, transition="rw", **LINEAR),
    "same": lambda: STAFormer(
        5, 5, 3, hops=2, heads=1, residual="identity", transition="rw", **LINEAR
    ),
    "projected": lambda: STAFormer(5, 8, 3, transition="rw", input_projection=True, **LINEAR),
}
GRAPH = EDGES["directed-weighted"].graph()


def features() -> Tensor:
    return torch.randn(13, 5, generator=torch.Generator().manual_seed(1)).relu().double()


def by_gradient(model, x: Tensor, told: Explanation, cls: int) -> Tensor:
    """[N, F]: x times the gradient of the logit, all attention and active units as they are.

    Values are told apart by the parts of an explanation: what each node adds is a map of its value.
    """
    conv = getattr(model, "conv", None) or (
        model if isinstance(model, STAConv) else model.blocks[0].conv
    )
    x = x.clone().requires_grad_()
    if isinstance(model, STAGNN):
        hidden = model.hidden(x, GRAPH)
    else:
        hidden = model.inputs(x) if isinstance(model, STAFormer) else x
    value, logit = conv.project(hidden)[2], 0.0
    for level in told.levels:
        if level.hop == "residual":
            logit = logit + (
                model.lin_out.weight[cls] @ model.blocks[0].residual(hidden)[told.root]
            )
        else:
            slopes = level.attention[..., None] * level.output_map[:, cls]
            logit = logit + (value[level.nodes] * slopes).sum()
    (grad,) = torch.autograd.grad(logit, x)
    return (grad * x).detach()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sparse", [False, True])
def test_columns_are_the_slope_times_the_feature(name, sparse):
    torch.manual_seed(2)
    model, x = randomised(MODELS[name]()).double(), features()
    told = explain(model, x.to_sparse_csr() if sparse else x, GRAPH, 4)
    for cls in range(3):
        expected, columns = by_gradient(model, x, told, cls), told.columns(cls)
        assert_all_close([columns.total], [expected.sum(0)], FLOAT64_ERROR)
        for node in range(13):
            assert_all_close([columns.of(node)], [expected[node]], FLOAT64_ERROR)
        assert columns.linear == (name in ("layer", "former", "same"))
        assert columns.bias + float(columns.total.sum()) == pytest.approx(float(told.logits[cls]))


def test_without_biases_columns_are_the_whole_logit():
    torch.manual_seed(3)
    model = randomised(STAGNN(5, 8, 3, hops=2, heads=2, bias=False)).double()
    torch.nn.init.zeros_(model.lin.bias)
    told = explain(model, features(), GRAPH, 4)
    assert told.columns(1).bias == pytest.approx(0, abs=1e-12)
    assert told.columns(1).of(4).abs().sum() > 0


def test_a_class_rather_than_another():
    told = explain(randomised(STAGNN(5, 8, 3)).double(), features(), GRAPH, 4)
    both, one, other = told.columns(2, rather=0), told.columns(2), told.columns(0)
    assert_all_close([both.total], [one.total - other.total], FLOAT64_ERROR)
    assert both.bias == pytest.approx(one.bias - other.bias)


@pytest.mark.parametrize("smoothing", [0, 1])
@pytest.mark.parametrize("sparse", [False, True])
def test_after_changes_they_are_of_what_is_seen_then(smoothing, sparse):
    torch.manual_seed(4)
    model = randomised(STAGNN(5, 8, 3, smoothing=smoothing)).double()
    x = features()
    changes = Changes(nodes=(7,), columns={0: 3.0, 2: 0.0})
    given = x.to_sparse_csr() if sparse else x
    columns = explainer_of(model, given, GRAPH)(4, changes).columns(1)
    x[4, 0], x[4, 2] = 3.0, 0.0
    expected = explain(model, x, GRAPH.without([7]), 4).columns(1)
    assert_all_close([columns.total], [expected.total], FLOAT64_ERROR)
    assert_all_close([columns.of(4)], [expected.of(4)], FLOAT64_ERROR)
    assert columns.of(4)[0] != 0
    assert columns.of(4)[2] == 0


@pytest.mark.parametrize("sparse", [False, True])
def test_labels_that_are_shown_are_columns_too(sparse):
    torch.manual_seed(5)
    model = randomised(NodeNetwork(STAGNN(9, 8, 3), 3)).double()
    shown, x = torch.tensor([0, 1, 2, -1] * 3 + [1]), features()
    given = x.to_sparse_csr() if sparse else x
    told = explainer_of(model, given, GRAPH, labels=KnownLabels(shown, 0.5))(4)
    columns = told.columns(1)
    assert columns.total.shape == (9,)
    marks = torch.nn.functional.one_hot(shown.clamp(min=0), 3) * (shown >= 0)[:, None]
    seen = torch.cat([x, marks, (shown >= 0)[:, None]], 1)
    expected = explain(model.model, seen, GRAPH, 4).columns(1)
    assert_all_close([columns.total], [expected.total], FLOAT64_ERROR)
    assert (columns.of(3)[5:] == 0).all()  # whose label is not shown


def test_what_stands_beside_the_model_belongs_to_no_column():
    model, x = randomised(STAGNN(5, 8, 3)).double(), features()
    offset = torch.randn(13, 3).double()
    told = explainer_of(model, x, GRAPH, beside={"correction": offset})(4)
    alone = explain(model, x, GRAPH, 4)
    assert told.columns(1).bias == pytest.approx(alone.columns(1).bias)


class TestAttribution:
    """Of a network of several blocks."""

    @pytest.mark.parametrize("projected", [False, True])
    @pytest.mark.parametrize("sparse", [False, True])
    @pytest.mark.parametrize("residual", ["linear", "identity"])
    def test_what_is_attributed_to_a_node_falls_apart_into_its_columns(
        self, projected, sparse, residual
    ):
        torch.manual_seed(6)
        how = {"transition": "rw", "self_loops": False, "input_projection": projected}
        model = randomised(STAFormer(5, 5, 3, layers=2, heads=1, residual=residual, **how)).double()
        if projected:
            torch.nn.init.zeros_(model.lin_in.bias)  # which would have a part of its own
        x = features()
        told = explain(model, x.to_sparse_csr() if sparse else x, GRAPH, 4)
        columns, added = told.columns(1), told.importance(1)
        assert not columns.linear
        of_nodes = torch.stack([columns.of(node) for node in range(13)])
        assert_all_close([of_nodes.sum(1)], [added], FLOAT64_ERROR)
        assert_all_close([of_nodes.sum(0)], [columns.total], FLOAT64_ERROR)
        rest = float(told.bias[1]) + told.residual(1)
        assert columns.bias == pytest.approx(rest, abs=1e-9)
        both = told.columns(1, rather=0)
        assert_all_close([both.total], [columns.total - told.columns(0).total], FLOAT64_ERROR)

    def test_it_is_the_integral_of_the_definition(self):
        torch.manual_seed(7)
        model = STAFormer(5, 8, 3, layers=2, norm="none", transition="rw", self_loops=False)
        model, x, steps, total = randomised(model).double(), features(), 200, 0.0
        for step in range(steps):
            scaled = (x * (step + 0.5) / steps).requires_grad_()
            (grad,) = torch.autograd.grad(model(scaled, GRAPH)[4, 1], scaled)
            total = total + grad * x / steps
        columns = explain(model, x, GRAPH, 4).columns(1)
        assert_all_close([columns.total, columns.of(4)], [total.sum(0), total[4]], 1e-2)


def test_a_node_that_is_none_is_refused():
    told = explain(STAGNN(5, 8, 3), features().float(), GRAPH, 4)
    with pytest.raises(ValueError, match="node 13 is not there"):
        told.columns(0).of(13)
    with pytest.raises(ValueError, match="there is no class 3"):
        told.columns(3)
