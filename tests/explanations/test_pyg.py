"""`STAExplainer` in PyG's Explainer."""

import pytest
import torch
from torch_geometric.explain import Explainer as PyGExplainer
from torch_geometric.explain import fidelity

from subtree_attention import STAGNN, STAExplainer, explain
from tests.ops.cases import EDGES, assert_all_close

MODEL = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
EDGE = EDGES["directed-weighted"]


@pytest.fixture
def model():
    return STAGNN(5, 8, 3, hops=2, dropout=0.5)


def explainer(model, **changes) -> PyGExplainer:
    settings = {"explanation_type": "model", "node_mask_type": "object", "model_config": MODEL}
    return PyGExplainer(model, algorithm=STAExplainer(), **{**settings, **changes})


def test_a_mask_is_the_importance_of_each_node(model):
    x = torch.randn(EDGE.num_nodes, 5)
    found = explainer(model)(x, EDGE.index, index=3, edge_weight=EDGE.weight)
    expected = explain(model, x, EDGE.index, 3, EDGE.weight)
    assert found.node_mask.shape == (EDGE.num_nodes, 1)
    assert torch.equal(found.node_mask[:, 0], expected.importance(expected.predicted))
    logit = expected.bias[expected.predicted] + found.node_mask.sum()
    assert float(logit) == pytest.approx(float(found.prediction[3].max()), abs=1e-5)
    assert model.training


def test_an_edge_mask_is_what_comes_over_each_edge(model):
    x, edges = torch.randn(3, 5), EDGES["parallel-edges"].index
    weight = torch.tensor([1.0, 3, 0, 1, 1, 1])
    only = {"node_mask_type": None, "edge_mask_type": "object"}
    found = explainer(model, **only)(x, edges, index=1, edge_weight=weight).edge_mask
    why = explain(model, x, edges, 1, weight)
    (sources, targets), added = why.edges(why.predicted)
    over = dict(zip(zip(sources.tolist(), targets.tolist(), strict=True), added, strict=True))
    first, other = float(over[0, 1]), float(over[2, 1])
    expected = [first / 4, first * 3 / 4, 0, float(over[1, 0]), other / 2, other / 2]
    assert found.tolist() == pytest.approx(expected, rel=1e-5)


def test_several_nodes_are_summed_and_a_phenomenon_has_its_target(model):
    x, target = torch.randn(EDGE.num_nodes, 5), torch.arange(EDGE.num_nodes) % 3
    masks = explainer(model, explanation_type="phenomenon")
    one_by_one = [masks(x, EDGE.index, target=target, index=i).node_mask for i in range(13)]
    every = masks(x, EDGE.index, target=target).node_mask
    assert_all_close([every], [sum(one_by_one)], 1e-5)
    assert torch.equal(
        one_by_one[4][:, 0], explain(model, x, EDGE.index, 4).importance(int(target[4]))
    )


def test_fidelity_takes_a_thresholded_mask(model):
    x = torch.randn(EDGE.num_nodes, 5)
    config = {"threshold_type": "topk_hard", "value": 4}
    chosen = explainer(model, threshold_config=config)
    found = chosen(x, EDGE.index, index=3)
    assert found.node_mask.sum() == 4
    assert all(0 <= value <= 1 for value in fidelity(chosen, found))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"node_mask_type": "attributes"}, "use node_mask_type='object'"),
        ({"model_config": {**MODEL, "task_level": "graph"}}, "explains the logits of nodes"),
        ({"model_config": {**MODEL, "return_type": "probs"}}, "explains the logits of nodes"),
    ],
)
def test_what_it_does_not_explain_is_refused_in_words(model, changes, message):
    with pytest.raises(ValueError, match=message):
        explainer(model, **changes)


def test_another_model_is_refused():
    with pytest.raises(TypeError, match="only STAGNN, STAFormer and STAConv"):
        STAExplainer()(torch.nn.Linear(5, 3), torch.randn(2, 5), None, target=torch.zeros(2))
