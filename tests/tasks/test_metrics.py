"""Scores and losses against scikit-learn and by hand."""

import pytest
import torch
from sklearn.metrics import roc_auc_score

from subtree_attention.tasks.metrics import accuracy, binary, cross_entropy, roc_auc

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


def test_roc_auc_refuses_three_classes() -> None:
    with pytest.raises(ValueError, match="two classes, got 3"):
        roc_auc(torch.ones(4, dtype=torch.long), ALL)(torch.randn(4, 3))


def test_cross_entropy_is_the_mean_over_the_mask() -> None:
    logits, labels = torch.randn(6, 3), torch.tensor([0, 1, 2, 2, 1, 0])
    mask = torch.tensor([True, False, True, True, False, False])
    expected = torch.nn.functional.cross_entropy(logits[mask], labels[mask])
    torch.testing.assert_close(cross_entropy(labels, mask, 3)(logits), expected)


def test_binary_loss_is_over_the_one_hot_columns_of_the_mask() -> None:
    logits, labels = torch.randn(4, 2), torch.tensor([0, 1, 1, 0])
    mask = torch.tensor([True, True, False, True])
    own = torch.sigmoid(logits)
    each = -torch.where(torch.eye(2)[labels] == 1, own.log(), (1 - own).log())
    torch.testing.assert_close(binary(labels, mask, 2)(logits), each[mask].mean())
