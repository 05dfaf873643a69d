"""How good a finished model is on some nodes, as a person asks: scores and the confusion matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .calibration import calibration_error, softmax
from .metrics import METRICS


@dataclass(frozen=True)
class Quality:
    """Scores on some nodes, between 0 and 1.

    Attributes:
        accuracy: share of nodes whose class is right.
        macro_f1: mean over classes of the harmonic mean of precision and recall.
        roc_auc: of the second of two classes; of more, the mean of each against the rest, over
            classes that occur. NaN where no class can be told from another.
        calibration_error: how far confidence is from accuracy, see `calibration`.
        confusion: [C, C], nodes by true class (rows) and predicted class.
    """

    accuracy: float
    macro_f1: float
    roc_auc: float
    calibration_error: float
    confusion: np.ndarray

    def named(self) -> dict[str, float]:
        """The scores by what people call them."""
        return {
            METRICS["accuracy"].title: self.accuracy,
            "macro F1": self.macro_f1,
            METRICS["roc_auc"].title: self.roc_auc,
            "calibration error": self.calibration_error,
        }


def quality(logits: np.ndarray, labels: np.ndarray) -> Quality:
    """The scores of logits [n, C] of nodes with labels [n]."""
    from sklearn.metrics import confusion_matrix, f1_score, roc_auc_score  # here: slow to import

    probabilities, predicted = softmax(logits), logits.argmax(1)
    classes = np.arange(logits.shape[1])
    areas = [
        roc_auc_score(labels == column, probabilities[:, column])
        for column in ([1] if len(classes) == 2 else classes)
        if 0 < (labels == column).sum() < len(labels)
    ]
    return Quality(
        accuracy=float((predicted == labels).mean()),
        macro_f1=float(f1_score(labels, predicted, average="macro", zero_division=0)),
        roc_auc=float(np.mean(areas)) if areas else float("nan"),
        calibration_error=calibration_error(probabilities, labels),
        confusion=confusion_matrix(labels, predicted, labels=classes),
    )


def most_confused(confusion: np.ndarray, count: int) -> list[tuple[int, int, int]]:
    """(true class, predicted class, nodes) of the most frequent mistakes."""
    wrong = confusion.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:count]
    pairs = zip(*np.unravel_index(order, wrong.shape), strict=True)
    return [(int(i), int(j), int(wrong[i, j])) for i, j in pairs if wrong[i, j]]
