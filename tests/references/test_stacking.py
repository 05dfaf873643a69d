"""A reference as an input: what it says of a training node must not know that node's label."""

import numpy as np
import pytest
import torch

from subtree_attention import references
from subtree_attention.config import NodeRegression
from subtree_attention.references import linear, stacking, trees
from subtree_attention.tasks import Problem

from .graphs import circles, problem

LINEAR = ("logistic", "logistic_neighbours")
TREES = ("trees", "trees_neighbours")


def needs_trees(name: str) -> None:
    if name in TREES:
        pytest.importorskip("lightgbm")


def flipped(data, task, given: Problem, node: int) -> torch.Tensor:
    y = data.y.clone()
    y[node] = (y[node] + 1) % data.num_classes
    other = data._with(y=y)
    return other, Problem(other, y, given.split, {})


@pytest.mark.parametrize("name", references.STACKED)
def test_a_flipped_label_is_not_in_its_own_probabilities(name):
    needs_trees(name)
    data = circles(90, classes=3)
    task, given = problem(data)
    before = references.fitted(name, data, task, given, 3).out_of_fold
    train = given.split.train.nonzero().flatten()
    changed = False
    for node in train[:2].tolist():
        other, again = flipped(data, task, given, node)
        after = references.fitted(name, other, task, again, 3).out_of_fold
        torch.testing.assert_close(after[node], before[node], rtol=0, atol=0)
        changed |= bool((after - before).abs().max() > 1e-3)
    assert changed


@pytest.mark.parametrize("name", references.STACKED)
def test_labels_outside_training_enter_nothing_but_the_choice(name):
    """Those of the test enter nothing at all."""
    needs_trees(name)
    data = circles(120)
    task, given = problem(data)
    before = references.fitted(name, data, task, given).out_of_fold
    y = torch.where(given.split.test, 1 - data.y, data.y)
    other = data._with(y=y)
    again = Problem(other, y, given.split, {})
    after = references.fitted(name, other, task, again).out_of_fold
    torch.testing.assert_close(after, before, rtol=0, atol=0)


@pytest.mark.parametrize("name", references.STACKED)
@pytest.mark.parametrize("sparse", [False, True])
def test_what_is_written_is_what_was_fitted(name, sparse):
    needs_trees(name)
    data = circles(150, classes=3, columns=300 if sparse else 6, sparse=sparse)
    task, given = problem(data)
    found = references.fitted(name, data, task, given)
    assert found.out_of_fold.shape == (150, 3)
    torch.testing.assert_close(found.out_of_fold.exp().sum(1), torch.ones(150))
    again = references.Fitted.from_tensors(found.to_tensors())
    labels = torch.where(given.split.train, data.y, -1)
    here, there = found.apply(data, labels), again.apply(data, labels)
    torch.testing.assert_close(here, there, rtol=0, atol=0)
    torch.testing.assert_close(again.out_of_fold, found.out_of_fold, rtol=0, atol=0)
    # Of those that were not fitted to, the same graph has the same answers.
    others = ~given.split.train
    torch.testing.assert_close(here[others], found.out_of_fold[others], rtol=1e-4, atol=1e-4)


def test_a_node_of_a_new_graph_does_not_see_its_own_label():
    data, new = circles(200, seed=0), circles(90, seed=9)
    task, given = problem(data)
    found = references.fitted("logistic_neighbours", data, task, given)
    labels = torch.where(torch.arange(90) < 60, new.y, -1)
    before = found.apply(new, labels)
    for node in (0, 20, 40):
        other = labels.clone()
        other[node] = 1 - other[node]
        after = found.apply(new, other)
        torch.testing.assert_close(after[node], before[node], rtol=0, atol=1e-5)
        assert (after - before).abs().max() > 0.1
    nothing = found.apply(new, torch.full((90,), -1))
    assert (nothing.argmax(1) == new.y).float().mean() > 0.55


@pytest.mark.parametrize("name", references.STACKED)
@pytest.mark.parametrize("columns", [6, 300])
def test_columns_may_be_laid_out_otherwise_in_another_graph(name, columns):
    """Tables are dense or sparse by what is in them; the answers are the same."""
    needs_trees(name)
    sparse = circles(150, classes=3, columns=columns, sparse=True)
    dense = sparse._with(x=sparse.x.to_dense())
    labels = torch.where(torch.arange(150) < 60, sparse.y, -1)
    for here, there in ((sparse, dense), (dense, sparse)):
        found = references.fitted(name, here, *problem(here))
        found = references.Fitted.from_tensors(found.to_tensors())
        torch.testing.assert_close(
            found.apply(there, labels), found.apply(here, labels), rtol=1e-4, atol=1e-4
        )


def test_out_of_fold_is_as_good_as_what_is_said_of_others():
    data = circles(400)
    task, given = problem(data)
    said = references.fitted("logistic_neighbours", data, task, given).out_of_fold.argmax(1)
    right = (said == data.y).float()
    train, test = right[given.split.train].mean(), right[given.split.test].mean()
    assert test > 0.75
    assert abs(train - test) < 0.1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", references.STACKED)
def test_the_only_training_node_gets_what_is_known_without_it(name):
    needs_trees(name)
    data = circles(60, classes=3)
    task, given = problem(data)
    only = torch.arange(60) == given.split.train.nonzero()[0]
    alone = Problem(data, data.y, given.split._replace(train=only), {})
    said = references.fitted(name, data, task, alone).out_of_fold[only]
    torch.testing.assert_close(said, torch.full((1, 3), 1 / 3).log())


def test_how_much_is_tried_goes_by_sizes(monkeypatch):
    data = circles(100, classes=40)
    task, given = problem(data)
    rounds = []
    plain = trees.fit
    if not trees.missing():
        monkeypatch.setattr(trees, "fit", lambda *a: rounds.append(a[-1]) or plain(*a[:-1], 2))
        references.fitted("trees", data, task, given)
        monkeypatch.setattr(stacking, "MOST_CELLS", 0)
        assert "40 classes, 100 nodes" in references.stackable("trees", data, task)
        references.fitted("trees", data, task, given)
        assert rounds == [trees.ROUNDS] * (1 + stacking.FOLDS) + [stacking.LEAST_ROUNDS] * (
            1 + stacking.FOLDS
        )
    assert references.stackable("logistic", data, task) == ""
    monkeypatch.setattr(stacking, "MOST_PRODUCTS", 0)
    assert "take too long" in references.stackable("logistic", data, task)
    bare = data._with(x=torch.zeros(100, 0))
    assert "there is none" in references.stackable("logistic", bare, task)


def test_of_many_products_every_other_penalty_is_tried(monkeypatch):
    data = circles(100)
    monkeypatch.setattr(stacking, "MANY_PRODUCTS", 0)
    seen = []
    plain = linear.fit
    monkeypatch.setattr(linear, "fit", lambda *a: seen.append(a[-1]) or plain(*a))
    references.fitted("logistic", data, *problem(data))
    assert seen == [linear.PENALTIES[::2]] * (1 + stacking.FOLDS)


def test_refusals():
    data = circles(60)
    task, given = problem(data)
    with pytest.raises(ValueError, match="unknown reference 'forest'"):
        references.fitted("forest", data, task, given)
    numbers = data._with(y=data.y.double(), classes=())
    with pytest.raises(ValueError, match="node classification only"):
        references.fitted("logistic", numbers, *problem(numbers, NodeRegression()))
    found = references.fitted("logistic", data, task, given)
    with pytest.raises(ValueError, match="takes 6 columns, got 7"):
        found.apply(circles(20, columns=7), torch.zeros(20, dtype=torch.long))
    with pytest.raises(ValueError, match=r"shape \[20\]"):
        found.apply(circles(20), torch.zeros(21, dtype=torch.long))
    tensors = found.to_tensors()
    del tensors["weights"]
    with pytest.raises(ValueError, match="'weights' is missing"):
        references.Fitted.from_tensors(tensors)
    bare = data._with(x=torch.zeros(60, 0))
    with pytest.raises(ValueError, match="logistic_neighbours"):
        references.fitted("logistic", bare, *problem(bare))


def test_the_same_call_gives_the_same_numbers():
    data = circles(100)
    task, given = problem(data)
    one, other = (references.fitted("logistic", data, task, given, 1) for _ in range(2))
    np.testing.assert_array_equal(one.out_of_fold, other.out_of_fold)
