"""Scores and losses against scikit-learn and by hand."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from subtree_attention.tasks.metrics import (
    CLASS_METRICS,
    LABEL_METRICS,
    LINK_METRICS,
    METRICS,
    NUMBER_METRICS,
    accuracy,
    balanced,
    binary,
    cross_entropy,
    distance,
    label_binary,
    roc_auc,
)
from subtree_attention.tasks.quality import quality

ALL = torch.ones(1, 4, dtype=torch.bool)


def test_accuracy_counts_the_right_ones_of_each_mask() -> None:
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 0.0], [1.0, 0.0]])
    labels, some = torch.tensor([0, 1, 1, 0]), torch.tensor([[False, True, True, False]])
    assert accuracy(labels, torch.cat([ALL, some]))(logits).tolist() == [0.75, 0.5]


@pytest.mark.parametrize("levels", [3, 10**6])
def test_roc_auc_equals_scikit_learn_with_and_without_ties(levels: int) -> None:
    logits = torch.zeros(500, 2, dtype=torch.float64)
    logits[:, 1] = torch.randint(levels, (500,)) / levels
    labels, masks = torch.randint(2, (500,)), torch.rand(3, 500) < 0.4
    probability = torch.softmax(logits, -1)[:, 1]
    expected = [roc_auc_score(labels[mask], probability[mask]) for mask in masks]
    assert roc_auc(labels, masks)(logits).tolist() == pytest.approx(expected, abs=1e-12)


def test_roc_auc_of_one_class_is_not_a_number() -> None:
    assert roc_auc(torch.ones(4, dtype=torch.long), ALL)(torch.randn(4, 2)).isnan().all()


@pytest.mark.parametrize("levels", [4, 2**20])
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("name", ["macro_f1", "roc_auc", "average_precision"])
def test_metrics_of_classes_are_those_of_scikit_learn(name: str, classes: int, levels: int) -> None:
    logits = torch.randint(levels, (300, classes), dtype=torch.float64) / levels
    labels, masks = torch.randint(classes, (300,)), torch.rand(3, 300) < 0.4
    if classes == 2:
        labels[torch.rand(300) < 0.5] = 0  # the second is rarer
    shares = torch.softmax(logits, -1).round(decimals=12)  # what is tied is tied

    def expected(mask: torch.Tensor) -> float:
        truth, given = labels[mask], shares[mask]
        if name == "macro_f1":
            return f1_score(truth, given.argmax(1), average="macro")
        of = {"roc_auc": roc_auc_score, "average_precision": average_precision_score}[name]
        columns = [1] if classes == 2 else range(classes)
        return np.mean([of(truth == column, given[:, column]) for column in columns])

    found = CLASS_METRICS[name].scores(labels, masks)(logits).tolist()
    assert found == pytest.approx([expected(mask) for mask in masks], abs=1e-12)


@pytest.mark.parametrize("rare", [0, 1])
def test_average_precision_of_two_classes_is_that_of_the_rarer_one(rare: int) -> None:
    labels = torch.where(torch.rand(400) < 0.1, rare, 1 - rare)
    logits, masks = torch.randn(400, 2, dtype=torch.float64), torch.rand(3, 400) < 0.6
    logits[labels == rare, rare] += 1
    shares = torch.softmax(logits, -1)[:, rare]
    expected = [average_precision_score(labels[mask] == rare, shares[mask]) for mask in masks]
    found = CLASS_METRICS["average_precision"].scores(labels, masks)(logits).tolist()
    assert found == pytest.approx(expected, abs=1e-12)
    links = LINK_METRICS["average_precision"].scores(labels, masks)(logits).tolist()
    second = torch.softmax(logits, -1)[:, 1]
    of_links = [average_precision_score(labels[mask] == 1, second[mask]) for mask in masks]
    assert links == pytest.approx(of_links, abs=1e-12)  # whose second class is what is looked for


@pytest.mark.parametrize("name", list(CLASS_METRICS))
def test_metrics_of_classes_are_captured_in_a_cuda_graph(name: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    labels, masks = torch.randint(3, (500,)), torch.rand(3, 500) < 0.4
    score = CLASS_METRICS[name].scores(labels.cuda(), masks.cuda())
    logits = torch.randn(500, 3, device="cuda")
    score(logits)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = score(logits)
    logits.copy_(torch.randn(500, 3))
    graph.replay()
    expected = CLASS_METRICS[name].scores(labels, masks)(logits.cpu())
    torch.testing.assert_close(captured.cpu(), expected)


@pytest.mark.parametrize("levels", [3, 10**6])
@pytest.mark.parametrize("name", list(LABEL_METRICS))
def test_metrics_of_labels_are_those_of_scikit_learn(name: str, levels: int) -> None:
    logits = torch.randint(levels, (300, 5), dtype=torch.float64) / levels - 0.4
    labels = (torch.rand(300, 5) < torch.tensor([0.5, 0.3, 0.1, 0.7, 0.0])).float()
    labels[:20] = torch.nan  # of these nothing is known
    labels[20:40, 0] = torch.nan
    masks = torch.rand(3, 300) < 0.5

    def expected(mask: torch.Tensor) -> float:
        each = []
        for column in range(5):
            rows = mask & ~labels[:, column].isnan()
            each.append((labels[rows, column].int(), logits[rows, column]))
        if name == "micro_f1":
            truth, given = (torch.cat(some) for some in zip(*each, strict=True))
            return f1_score(truth, given > 0)
        if name == "macro_f1":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = [f1_score(t, g > 0, zero_division=np.nan) for t, g in each]
                some = [bool(t.any() or (g > 0).any()) for t, g in each]
            return np.mean([f for f, there in zip(found, some, strict=True) if there])
        of = {"roc_auc": roc_auc_score, "average_precision": average_precision_score}[name]
        return np.mean([of(t, g) for t, g in each if t.any()])

    found = LABEL_METRICS[name].scores(labels, masks)(logits).tolist()
    assert found == pytest.approx([expected(mask) for mask in masks], abs=1e-12)


@pytest.mark.parametrize(
    ("name", "of"),
    [("r2", r2_score), ("mae", mean_absolute_error), ("rmse", root_mean_squared_error)],
)
def test_metrics_of_numbers_are_those_of_scikit_learn(name: str, of: object) -> None:
    target, given, masks = torch.randn(90).double(), torch.randn(90), torch.rand(3, 90) < 0.5
    target[:9] = torch.nan
    masks &= ~target.isnan()
    expected = [of(target[mask], given[mask]) for mask in masks]
    assert NUMBER_METRICS[name].scores(target, masks)(given).tolist() == pytest.approx(expected)


def test_metrics_say_which_way_is_better_and_how_they_are_written() -> None:
    assert [METRICS[name].sign for name in ("accuracy", "r2", "mae", "rmse")] == [1, 1, -1, -1]
    assert METRICS["accuracy"].told(0.5) == "50.00 %"
    assert METRICS["mae"].told(1234.5) == "1234"
    assert METRICS["r2"].label == "R2"
    assert METRICS["r2"].show(float("nan")) == "-"


def test_the_loss_of_labels_is_over_those_that_are_known() -> None:
    logits, labels = torch.randn(4, 3), (torch.rand(4, 3) < 0.5).float()
    labels[0, 1] = labels[3, 0] = torch.nan
    mask = torch.tensor([True, True, False, True])
    known = mask[:, None] & ~labels.isnan()
    each = torch.nn.functional.binary_cross_entropy_with_logits(
        logits, labels.nan_to_num(), reduction="none"
    )
    torch.testing.assert_close(label_binary(labels, mask)(logits), each[known].mean())
    given = logits.clone().requires_grad_()
    label_binary(labels, mask)(given).backward()
    assert bool((given.grad[~known] == 0).all())


@pytest.mark.parametrize(
    ("kind", "of"),
    [
        ("mse", torch.nn.functional.mse_loss),
        ("huber", torch.nn.functional.huber_loss),
        ("l1", torch.nn.functional.l1_loss),
    ],
)
def test_losses_of_numbers_are_means_over_the_mask(kind: str, of: object) -> None:
    given, target = 3 * torch.randn(6), torch.randn(6)
    target[1] = torch.nan
    mask = torch.tensor([True, False, True, True, False, True])
    torch.testing.assert_close(distance(kind, target, mask)(given), of(given[mask], target[mask]))


def test_cross_entropy_is_the_mean_over_the_mask() -> None:
    logits, labels = torch.randn(6, 3), torch.tensor([0, 1, 2, 2, 1, 0])
    mask = torch.tensor([True, False, True, True, False, False])
    expected = torch.nn.functional.cross_entropy(logits[mask], labels[mask])
    torch.testing.assert_close(cross_entropy(labels, mask, 3)(logits), expected)


def test_with_weights_it_is_the_weighted_mean_and_balanced_ones_make_classes_count_alike() -> None:
    labels = torch.tensor([0, 0, 0, 0, 1, -1, 1])
    mask = torch.tensor([True, True, True, True, True, False, False])
    weights = balanced(labels, mask, 3)
    torch.testing.assert_close(weights, torch.tensor([5 / 8, 5 / 2, 1.0]).double())
    logits = torch.randn(7, 3)
    each = torch.nn.functional.cross_entropy(logits[mask], labels[mask], reduction="none")
    alike = (each[:4].mean() + each[4:].mean()) / 2
    torch.testing.assert_close(cross_entropy(labels, mask, 3, weights)(logits), alike)


def test_binary_loss_is_over_the_one_hot_columns_of_the_mask() -> None:
    logits, labels = torch.randn(4, 2), torch.tensor([0, 1, 1, 0])
    mask = torch.tensor([True, True, False, True])
    own = torch.sigmoid(logits)
    each = -torch.where(torch.eye(2)[labels] == 1, own.log(), (1 - own).log())
    torch.testing.assert_close(binary(labels, mask, 2)(logits), each[mask].mean())


@pytest.mark.parametrize("name", ["roc_auc", "average_precision"])
@pytest.mark.parametrize("classes", [2, 3])
def test_confident_units_are_told_apart(name: str, classes: int) -> None:
    """Their probabilities are 1 in float64, from a logit of 37 on."""
    labels = torch.tensor([0, 0, 1, 1])
    logits = torch.tensor([[0.0, 40.0], [0.0, 41.0], [0.0, 50.0], [0.0, 60.0]])
    logits = torch.cat([logits, torch.zeros(4, classes - 2)], 1)
    everybody = torch.ones(1, 4, dtype=torch.bool)
    assert float(METRICS[name].scores(labels, everybody)(logits)) == 1
    assert quality(logits.double().numpy(), labels.numpy()).named()[METRICS[name].title] == 1
