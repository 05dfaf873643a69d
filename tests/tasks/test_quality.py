"""Scores of a finished model against scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score

from subtree_attention.tasks.calibration import softmax
from subtree_attention.tasks.quality import most_confused, quality


def test_scores_are_those_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    for classes in (2, 4):
        logits, labels = random.normal(size=(90, classes)), random.integers(0, classes, 90)
        found, predicted = quality(logits, labels), logits.argmax(1)
        p = softmax(logits)
        area = roc_auc_score(labels, p[:, 1] if classes == 2 else p, multi_class="ovr")
        assert found.roc_auc == pytest.approx(area)
        assert found.macro_f1 == pytest.approx(f1_score(labels, predicted, average="macro"))
        assert found.accuracy == (predicted == labels).mean()
        assert found.confusion.trace() == (predicted == labels).sum()
        assert found.confusion.sum() == 90


def test_a_class_that_does_not_occur_is_left_out_of_the_area() -> None:
    logits, labels = np.eye(3)[[0, 1, 0]], np.array([0, 1, 0])
    assert quality(logits, labels).roc_auc == 1
    assert np.isnan(quality(logits, np.zeros(3, int)).roc_auc)


def test_the_most_frequent_mistakes_come_first() -> None:
    confusion = np.array([[9, 1, 0], [0, 9, 5], [2, 0, 9]])
    assert most_confused(confusion, 2) == [(1, 2, 5), (2, 0, 2)]
    assert len(most_confused(confusion, 9)) == 3
