"""Labels as features: what is shown and what is asked, and that no way leads between them."""

import copy

import pytest
import torch

from subtree_attention import STAGNN, STAFormer
from subtree_attention.nn import KnownLabels, Labelled, NodeNetwork, as_features
from tests.ops.cases import EDGES, FLOAT64_ERROR, assert_all_close, output_and_gradients

CLASSES = 3
MODELS = {
    "stagnn": lambda: STAGNN(5 + CLASSES + 1, 8, CLASSES, hops=2, heads=2),
    "smoothed": lambda: STAGNN(5 + CLASSES + 1, 8, CLASSES, hops=2, heads=2, smoothing=2),
    "everywhere": lambda: STAGNN(5 + CLASSES + 1, 8, CLASSES, hops=1, global_attention=True),
    "staformer": lambda: STAFormer(5 + CLASSES + 1, 8, CLASSES, layers=2),
    "projected": lambda: STAFormer(5 + CLASSES + 1, 8, CLASSES, input_projection=True),
    "identity": lambda: STAFormer(5 + CLASSES + 1, 9, CLASSES, heads=3, residual="identity"),
}


@pytest.fixture(params=["dense", "sparse"])
def x(request):
    """Features [11, 5] with zeros among them."""
    dense = torch.randn(11, 5, dtype=torch.float64).relu()
    return dense if request.param == "dense" else as_features(dense.to_sparse_csr())


def labels(share: float = 0.5) -> KnownLabels:
    known = torch.tensor([0, 1, 2, 0, -1, -1, 1, 2, -1, 0, 1])
    return KnownLabels(known, share)


def columns(x, shown: torch.Tensor) -> torch.Tensor:
    """The features with labels beside them, made by hand."""
    dense = x if isinstance(x, torch.Tensor) else x.tensor.to_dense()
    one_hot = (shown[:, None] == torch.arange(CLASSES)).double()
    return torch.cat([dense, one_hot, (shown[:, None] >= 0).double()], 1)


@pytest.mark.parametrize("model", MODELS)
def test_shown_labels_are_columns_beside_the_features(x, model):
    graph = EDGES["directed"].graph("sym", self_loops=True)
    net, shown = MODELS[model]().double(), labels().classes
    parameters = list(net.parameters())
    expected = output_and_gradients(net(columns(x, shown), graph), parameters)
    actual = output_and_gradients(net(Labelled(x, shown, CLASSES), graph), parameters)
    assert_all_close(actual, expected, FLOAT64_ERROR)
    assert torch.equal(Labelled(x, shown, CLASSES).tensor, columns(x, shown))


def test_dropout_is_on_the_features_alone(x):
    shown, eye = labels().classes, torch.eye(5 + CLASSES + 1, dtype=torch.float64)
    marked, whole = Labelled(x, shown, CLASSES), columns(x, shown)
    for given in (marked.times(eye, 0.5), marked.dropped(0.5).times(eye)):
        assert torch.equal(given[:, 5:], whole[:, 5:])
        assert not torch.equal(given[:, :5], whole[:, :5])


@pytest.mark.parametrize("share", [0.001, 0.3, 0.5, 0.99])
def test_a_step_shows_a_share_and_asks_the_rest(share):
    known = labels(share)
    seen = set()
    for _ in range(20):
        shown, asked = known.draw()
        there = known.classes >= 0
        assert torch.equal(there, asked | (shown >= 0))
        assert not (asked & (shown >= 0)).any()
        assert torch.equal(shown[shown >= 0], known.classes[shown >= 0])
        assert int((shown >= 0).sum()) == min(max(1, round(8 * share)), 7)
        seen.add(tuple(shown.tolist()))
    assert len(seen) > 3


@pytest.mark.parametrize("model", MODELS)
def test_a_label_changes_nothing_in_its_own_logits_while_they_are_asked(x, model):
    """The issue's own test, for every node that any of some steps asks."""
    graph = EDGES["directed"].graph("sym", self_loops=True)
    net, known, asked_once = NodeNetwork(MODELS[model]().double(), CLASSES), labels(), set()
    assert net.training
    for seed in range(6):
        torch.manual_seed(seed)
        logits = net(x, graph, known)
        asked = net.asked.clone()
        for node in asked.nonzero().flatten().tolist():
            other = copy.deepcopy(known)
            other.classes[node] = (other.classes[node] + 1) % CLASSES
            torch.manual_seed(seed)  # the same dropout and the same draw
            assert torch.equal(net(x, graph, other)[node], logits[node])
            assert torch.equal(net.asked, asked)
            asked_once.add(node)
        other = copy.deepcopy(known)
        other.classes[known.known] = (other.classes[known.known] + 1) % CLASSES
        torch.manual_seed(seed)
        assert not torch.equal(net(x, graph, other), logits)  # those of others do change them
    assert asked_once == set(known.known.tolist())


def test_evaluation_shows_all_that_are_known(x):
    graph = EDGES["directed"].graph()
    net = NodeNetwork(MODELS["stagnn"]().double(), CLASSES).eval()
    expected = net.model(columns(x, labels().classes), graph)
    assert_all_close([net(x, graph, labels())], [expected], FLOAT64_ERROR)
    assert not hasattr(net, "asked")
