"""References of every task, by what is known of small graphs."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from subtree_attention import references
from subtree_attention.config import (
    GraphClassification,
    LinkPrediction,
    NodeClassification,
    NodeMultiLabel,
    NodeRegression,
)
from subtree_attention.datasets import Dataset, Split
from subtree_attention.references import Comparison, Reference, models, trees
from subtree_attention.references.aims import Aim
from subtree_attention.tasks import Problem, of

from .graphs import circles, problem


def by_name(comparison: Comparison) -> dict[str, Reference]:
    return {one.name: one for one in comparison.references}


def test_classes():
    pytest.importorskip("lightgbm")
    data = circles(600, classes=2)
    told: list[Reference] = []
    found = references.compare(data, *problem(data), watch=told.append)
    names = by_name(found)
    assert list(names) == [
        "constant",
        "propagation",
        "logistic",
        "logistic_neighbours",
        "trees",
        "trees_neighbours",
    ]
    assert told == found.references
    assert found.left_out == {}
    assert names["constant"].words == "largest class"
    assert names["constant"].test < 0.6 < names["logistic"].test < 0.8
    for better in ("propagation", "logistic_neighbours", "trees_neighbours"):
        assert names[better].test > 0.85
    metric = of(NodeClassification()).metric
    assert found.best(metric).val == max(one.val for one in found.references)


def test_neighbours_of_sparse_columns_are_reduced_and_it_is_said():
    data = circles(400, classes=3, columns=500, sparse=True)
    names = by_name(references.compare(data, *problem(data)))
    assert "components of 500 columns" in names["logistic_neighbours"].note
    assert names["logistic_neighbours"].test > 0.8 > names["logistic"].test


def test_the_rarer_class_is_that_of_our_model():
    """Class 1 is rarer over all, class 0 among validation and test nodes."""
    data = circles(300)
    part = torch.arange(300) % 3
    y = torch.where(part == 0, 0, (torch.arange(300) % 5 > 1).long())
    data = data._with(y=y)
    task = of(NodeClassification(metric="average_precision"))
    split = Split(part == 0, part == 1, part == 2)
    split.train[:30] = True  # of both classes
    split.val[:30] = split.test[:30] = False
    assert (y == 1).sum() < (y == 0).sum()
    assert (y[split.val] == 1).sum() > (y[split.val] == 0).sum()
    found = by_name(references.compare(data, task, Problem(data, y, split, {})))["constant"]
    constant = torch.zeros(300, 2, dtype=torch.float64)
    own = task.score(torch.nn.Identity(), constant, y, split)
    assert (found.val, found.test) == pytest.approx(own[1:])
    assert found.val == pytest.approx(float((y[split.val] == 1).float().mean()))


@pytest.mark.parametrize("metric", ["r2", "mae"])
def test_numbers(metric):
    data = circles(400)
    y = data.y.double() * 10 + 5 + data.x[:, 1]
    data = data._with(y=y, classes=())
    names = by_name(references.compare(data, *problem(data, NodeRegression(metric=metric))))
    assert names["constant"].words == "mean"
    sign = 1 if metric == "r2" else -1
    if metric == "r2":
        assert names["constant"].test == pytest.approx(0, abs=0.05)
    for name in ("propagation", "logistic", "logistic_neighbours"):
        assert sign * names[name].test > sign * names["constant"].test
    assert names["logistic_neighbours"].words == "ridge regression with neighbours"
    assert sign * names["logistic_neighbours"].val > sign * names["logistic"].val


def test_labels():
    data = circles(300)
    y = torch.stack([data.y.float(), (data.x[:, 1] > 0).float()], 1)
    y[::7, 0] = torch.nan
    data = data._with(y=y, classes=("one", "two"))
    names = by_name(references.compare(data, *problem(data, NodeMultiLabel())))
    assert names["constant"].words == "share of each label"
    assert names["logistic_neighbours"].test > names["logistic"].test > names["constant"].test


def test_a_label_that_no_validation_node_has_is_no_end():
    """Nothing tells when its trees are enough: they say how frequent it is."""
    pytest.importorskip("lightgbm")
    data = circles(300)
    y = torch.stack([data.y.float(), (data.x[:, 1] > 0).float()], 1)
    task, given = problem(data._with(y=y, classes=("one", "two")), NodeMultiLabel())
    y[given.split.val | given.split.test, 1] = torch.nan
    data = data._with(y=y, classes=("one", "two"))
    found = references.compare(data, task, Problem(data, y, given.split, {}))
    assert found.left_out == {}
    assert by_name(found)["trees_neighbours"].test > 0.8
    aim = Aim.of(task, Problem(data, y, given.split, {}))
    said = trees.fit([data.x.numpy()], aim.shown, aim)([data.x.numpy()])
    assert said.shape == (300, 2)
    share = float(torch.from_numpy(said[0, 1:]).sigmoid())
    assert (said[:, 1] == said[0, 1]).all()
    assert share == pytest.approx(float(y[given.split.train, 1].mean()), abs=1e-6)
    assert np.unique(said[:, 0]).size > 10


@pytest.mark.parametrize("kind", ["class", "number"])
def test_trees_without_anything_to_grow_by(kind):
    pytest.importorskip("lightgbm")
    data = circles(60, classes=3)
    settings = NodeClassification()
    if kind == "number":
        data, settings = data._with(y=data.y.double(), classes=()), NodeRegression()
    aim = Aim.of(*problem(data, settings))
    nobody = replace(aim, val=np.zeros(60, dtype=bool))
    said = trees.fit([data.x.numpy()], aim.shown, nobody)([data.x.numpy()])
    assert said.shape == aim.values.shape
    assert (said == said[0]).all()


def test_one_that_cannot_be_fitted_is_left_out_with_the_reason(monkeypatch):
    data = circles(100)

    def fails(*given):
        raise np.linalg.LinAlgError("SVD did not converge\nsomewhere")

    monkeypatch.setattr(models, "fit", fails)
    found = references.compare(data, *problem(data))
    assert found.left_out["logistic regression"] == "it cannot be fitted: SVD did not converge"
    assert "propagation" in by_name(found)
    monkeypatch.setattr(models, "fit", None)  # what is wrong in our own code is not hidden
    with pytest.raises(TypeError):
        references.compare(data, *problem(data))


def test_links():
    node = torch.arange(200)
    ends = torch.cat([torch.stack([node, (node + step) % 200]) for step in (1, 2, 3)], 1)
    data = Dataset(torch.zeros(200, 1), torch.cat([ends, ends.flip(0)], 1), node % 2)
    task = of(LinkPrediction(metric="roc_auc"))
    found = references.compare(data, task, task.problem(data, "B", 0))
    names = by_name(found)
    assert list(names) == ["common_neighbours", "adamic_adar", "resource_allocation", "degrees"]
    assert names["adamic_adar"].test > 0.9
    assert names["adamic_adar"].words == "Adamic-Adar"


def test_common_neighbours_are_counted():
    edges = torch.tensor([[0, 1, 0, 2, 0, 3, 4, 1, 4, 2], [1, 0, 2, 0, 3, 0, 1, 4, 2, 4]])
    data = Dataset(torch.zeros(5, 1), edges, torch.tensor([0, 1, 0, 1, 0]))
    from subtree_attention.references.links import scored

    pairs = torch.tensor([[0, 1, 3], [4, 2, 4]])
    given = Problem(data, torch.zeros(3, dtype=torch.long), None, {"pairs": pairs})
    logits = {name: outputs()[:, 1].tolist() for name, _, outputs in scored(given)}
    assert logits["common_neighbours"] == [2, 2, 0]
    two = 1 / np.log(2)
    assert logits["adamic_adar"] == pytest.approx([2 * two, two + 1 / np.log(3), 0])


def test_graphs():
    random = np.random.default_rng(0)
    sizes = random.integers(4, 30, size=150)
    batch = np.repeat(np.arange(150), sizes)
    starts = np.cumsum(sizes) - sizes
    ends = np.concatenate(
        [
            np.stack([start + np.arange(size - 1), start + 1 + np.arange(size - 1)])
            for start, size in zip(starts, sizes, strict=True)
        ],
        1,
    )
    edges = torch.from_numpy(np.concatenate([ends, ends[::-1]], 1))
    y = torch.from_numpy((sizes > 16).astype(np.int64))
    x = torch.from_numpy(random.normal(size=(len(batch), 3)).astype(np.float32))
    data = Dataset(x, edges, y, batch=torch.from_numpy(batch))
    names = by_name(references.compare(data, *problem(data, GraphClassification())))
    assert names["sizes"].test > 0.9 > names["constant"].test
    assert names["logistic"].words == "logistic regression of sums and means of columns"


def test_labels_of_the_test_enter_nothing_but_scores():
    data = circles(200)
    task, given = problem(data)
    before = by_name(references.compare(data, task, given))
    y = torch.where(given.split.test, 1 - data.y, data.y)
    _, again = problem(data._with(y=y))
    after = by_name(references.compare(data._with(y=y), task, again))
    for name, one in before.items():
        assert after[name].val == one.val
        assert after[name].test == pytest.approx(1 - one.test)


def test_what_time_does_not_allow_is_named():
    data = circles(100)
    found = references.compare(data, *problem(data), most_seconds=0.0)
    assert [one.name for one in found.references] == ["constant"]
    assert found.left_out["boosted trees"] == "0 s are over"


def test_what_time_stopped_has_not_ended(monkeypatch):
    data = circles(200)
    plain = models.fit
    assert all(one.ended for one in references.compare(data, *problem(data)).references)
    monkeypatch.setattr(models, "fit", lambda *given: plain(*given[:5], -np.inf))
    names = by_name(references.compare(data, *problem(data)))
    assert names["propagation"].ended
    for name, one in names.items():
        if name in models.KINDS:
            assert not one.ended
            assert "stopped by the time limit" in one.note


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(trees, "find_spec", lambda name: None)
    data = circles(100)
    found = references.compare(data, *problem(data))
    assert "trees" not in by_name(found)
    assert "pip install" in found.left_out["boosted trees with neighbours"]
    with pytest.raises(ValueError, match="LightGBM is not installed"):
        references.fitted("trees", data, *problem(data))


def test_a_graph_without_columns_or_edges():
    data = circles(120)
    bare = data._with(x=torch.zeros(120, 0))
    found = references.compare(bare, *problem(bare))
    assert found.left_out["logistic regression"] == "there are no columns"
    assert by_name(found)["logistic_neighbours"].test > 0.7
    alone = data._with(edge_index=torch.zeros(2, 0, dtype=torch.long))
    found = references.compare(alone, *problem(alone))
    assert found.left_out["label propagation"] == "there are no edges"
    assert "logistic" in by_name(found)


def test_many_classes_are_no_task_for_trees():
    data = circles(150, classes=61)
    found = references.compare(data, *problem(data), most_seconds=0.5)
    if not trees.missing():
        assert found.left_out["boosted trees"] == "61 classes take too long"


def test_json_there_and_back():
    found = Comparison([Reference("a", "b", 0.5, -0.25, 1.5, "c", ended=False)], {"d": "e"})
    content = found.to_dict()
    assert Comparison.from_dict(content) == found
    del content["references"][0]["ended"]  # as older files are
    assert Comparison.from_dict(content).references[0].ended
    for wrong in (
        [],
        {"references": 1},
        {"references": [1]},
        {"references": [], "left_out": {"a": 1}},
        {"references": [{**found.to_dict()["references"][0], "val": "much"}]},
        {"references": [{**found.to_dict()["references"][0], "ended": "no"}]},
    ):
        with pytest.raises((TypeError, ValueError)):
            Comparison.from_dict(wrong)
