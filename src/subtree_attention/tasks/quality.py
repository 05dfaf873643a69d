"""How good a finished model is on some units, as a person asks: more scores, and what they hide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch

from .calibration import calibration_error, decisions, softmax
from .metrics import LABEL_METRICS, METRICS, Metric, log_odds


@dataclass(frozen=True)
class Quality:
    """Scores on some units that have one class each, between 0 and 1.

    Attributes:
        accuracy: share of units whose class is right.
        macro_f1: mean over classes of the harmonic mean of precision and recall.
        roc_auc: of two classes; of more, the mean of each against the rest, over classes that
            occur. NaN where no class can be told from another.
        average_precision: of the rarer of two classes; of more, as above.
        calibration_error: how far confidence is from accuracy, see `calibration`.
        confusion: [C, C], units by true class (rows) and predicted class.
    """

    unit: ClassVar[str] = "%"
    accuracy: float
    macro_f1: float
    roc_auc: float
    average_precision: float
    calibration_error: float
    confusion: np.ndarray

    def named(self) -> dict[str, float]:
        """The scores by what people call them."""
        return {
            METRICS["accuracy"].title: self.accuracy,
            METRICS["macro_f1"].title: self.macro_f1,
            METRICS["roc_auc"].title: self.roc_auc,
            METRICS["average_precision"].title: self.average_precision,
            "calibration error": self.calibration_error,
        }

    def told(self) -> dict[str, str]:
        """The scores as they are printed, without the unit."""
        return {name: METRICS["accuracy"].show(value) for name, value in self.named().items()}


class OfLabel(NamedTuple):
    """One label: how many units have it and are given it, and how well it is told."""

    units: int
    given: int
    precision: float
    recall: float
    f1: float
    roc_auc: float

    @property
    def shares(self) -> tuple[float, ...]:
        """The scores, without the counts."""
        return self.precision, self.recall, self.f1, self.roc_auc


@dataclass(frozen=True)
class LinkQuality:
    """Scores on some pairs of nodes, links or not, between 0 and 1.

    Attributes:
        scores: by the names of the metrics of links, see `metrics`.
        calibration_error: how far the confidence in each yes and no is from how often it is right.
    """

    unit: ClassVar[str] = "%"
    scores: Mapping[str, float]
    calibration_error: float

    def named(self) -> dict[str, float]:
        """The scores by what people call them."""
        scores = {METRICS[name].title: value for name, value in self.scores.items()}
        return {**scores, "calibration error": self.calibration_error}

    def told(self) -> dict[str, str]:
        """The scores as they are printed, without the unit."""
        return {name: METRICS["accuracy"].show(value) for name, value in self.named().items()}


@dataclass(frozen=True)
class LabelQuality(LinkQuality):
    """The same on some units that have any number of labels, by the metrics of labels.

    Attributes:
        labels: each of them; scores are NaN where nothing can be said.
    """

    labels: list[OfLabel]


@dataclass(frozen=True)
class NumberQuality:
    """Scores on some units that have a number each.

    Attributes:
        scores: by the names of the metrics of numbers, on the scale that was learnt.
        coverage: share of units whose number is within the interval of its prediction.
        own: the same scores in the numbers' own unit, where their logarithm was learnt.
    """

    unit: ClassVar[str] = ""
    scores: Mapping[str, float]
    coverage: float
    own: Mapping[str, float] | None = None

    def named(self) -> dict[str, float]:
        """The scores by what people call them."""
        of = "" if self.own is None else " of the logarithm"
        return {
            **{METRICS[name].title + of: value for name, value in self.scores.items()},
            **{METRICS[name].title: value for name, value in (self.own or {}).items()},
            "in the interval": self.coverage,
        }

    def told(self) -> dict[str, str]:
        """The scores as they are printed."""
        both = [*self.scores.items(), *(self.own or {}).items()]
        shown = [METRICS[name].told(value) for name, value in both]
        inside = METRICS["accuracy"].told(self.coverage)
        return dict(zip(self.named(), [*shown, inside], strict=True))


AnyQuality = Quality | LinkQuality | LabelQuality | NumberQuality


def quality(
    logits: np.ndarray, labels: np.ndarray, predicted: np.ndarray | None = None, positive: int = 1
) -> Quality:
    """The scores of logits [n, C] of units with labels [n].

    Args:
        logits: of calibrated probabilities.
        labels: the true classes.
        predicted: the given classes [n], if not those of the largest logits.
        positive: which of two classes is looked for.
    """
    # Here: slow to import.
    from sklearn.metrics import (
        average_precision_score,
        confusion_matrix,
        f1_score,
        roc_auc_score,
    )

    probabilities, ranks = softmax(logits), log_odds(torch.from_numpy(logits)).numpy()
    predicted = logits.argmax(1) if predicted is None else predicted
    classes = np.arange(logits.shape[1])
    asked = [
        (labels == column, ranks[:, column])
        for column in ([positive] if len(classes) == 2 else classes)
        if 0 < (labels == column).sum() < len(labels)
    ]
    areas, precisions = (
        [of(*pair) for pair in asked] for of in (roc_auc_score, average_precision_score)
    )
    return Quality(
        accuracy=float((predicted == labels).mean()),
        macro_f1=float(f1_score(labels, predicted, average="macro", zero_division=0)),
        roc_auc=float(np.mean(areas)) if areas else float("nan"),
        average_precision=float(np.mean(precisions)) if areas else float("nan"),
        calibration_error=calibration_error(probabilities, labels),
        confusion=confusion_matrix(labels, predicted, labels=classes),
    )


def label_quality(logits: np.ndarray, labels: np.ndarray) -> LabelQuality:
    """The scores of logits [n, C] of units with labels [n, C], NaN where that is not known."""
    each = [_of_label(*pair) for pair in zip(logits.T, labels.T, strict=True)]
    pairs, right = decisions(logits, labels)
    error = calibration_error(softmax(pairs), right)
    return LabelQuality(all_scores(LABEL_METRICS, logits, labels), error, each)


def _of_label(logits: np.ndarray, labels: np.ndarray) -> OfLabel:
    """One label: logits [n], labels [n]."""
    given, has = (logits > 0) & ~np.isnan(labels), labels == 1
    right, f1 = int((given & has).sum()), given.sum() + has.sum()
    return OfLabel(
        units=int(has.sum()),
        given=int(given.sum()),
        precision=right / given.sum() if given.any() else math.nan,
        recall=right / has.sum() if has.any() else math.nan,
        f1=2 * right / f1 if f1 else math.nan,
        roc_auc=all_scores(LABEL_METRICS, logits[:, None], labels[:, None])["roc_auc"],
    )


def all_scores(
    metrics: Mapping[str, Metric], outputs: np.ndarray, target: np.ndarray
) -> dict[str, float]:
    """Every metric on all of some units: outputs [n, ...], target [n, ...]."""
    everybody = torch.ones(1, len(target), dtype=torch.bool)
    given, truth = torch.from_numpy(outputs), torch.from_numpy(target)
    return {name: float(metric.scores(truth, everybody)(given)) for name, metric in metrics.items()}


def most_confused(confusion: np.ndarray, count: int) -> list[tuple[int, int, int]]:
    """(true class, predicted class, units) of the most frequent mistakes."""
    wrong = confusion.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:count]
    pairs = zip(*np.unravel_index(order, wrong.shape), strict=True)
    return [(int(i), int(j), int(wrong[i, j])) for i, j in pairs if wrong[i, j]]
