"""Scores and losses against scikit-learn and by hand."""

import pytest
import torch
from sklearn.metrics import roc_auc_score

from subtree_attention.train.metrics import accuracy, binary, roc_auc


def test_accuracy_counts_the_right_ones() -> None:
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 0.0], [1.0, 0.0]])
    assert accuracy(logits, torch.tensor([0, 1, 1, 0])).item() == 0.75


@pytest.mark.parametrize("levels", [3, 10**6])
def test_roc_auc_equals_scikit_learn_with_and_without_ties(levels: int) -> None:
    logits = torch.zeros(500, 2, dtype=torch.float64)
    logits[:, 1] = torch.randint(levels, (500,)) / levels
    labels = torch.randint(2, (500,))
    expected = roc_auc_score(labels, torch.softmax(logits, -1)[:, 1])
    assert roc_auc(logits, labels).item() == pytest.approx(expected, abs=1e-12)


def test_roc_auc_of_one_class_is_not_a_number() -> None:
    assert roc_auc(torch.randn(5, 2), torch.ones(5, dtype=torch.long)).isnan()


def test_roc_auc_refuses_three_classes() -> None:
    with pytest.raises(ValueError, match="two classes, got 3"):
        roc_auc(torch.randn(5, 3), torch.ones(5, dtype=torch.long))


def test_binary_loss_is_over_the_one_hot_columns() -> None:
    logits, labels = torch.randn(4, 2), torch.tensor([0, 1, 1, 0])
    own = torch.sigmoid(logits)
    expected = -torch.where(torch.eye(2)[labels] == 1, own.log(), (1 - own).log()).mean()
    torch.testing.assert_close(binary(logits, labels), expected)
