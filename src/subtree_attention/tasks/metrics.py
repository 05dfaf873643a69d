"""Losses and scores of node classification, on the device and without a wait for the host.

Each is made once for the nodes that it is about, and is then a function of all logits [N, C]:
shapes do not change from epoch to epoch, so a GPU can replay them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .ranking import HITS, mrr

Loss = Callable[[Tensor], Tensor]
Score = Callable[[Tensor], Tensor]


def accuracy(labels: Tensor, masks: Tensor) -> Score:
    """Share of nodes whose largest logit is the right one: labels [N], masks [S, N] -> [S]."""
    weights, sizes = masks.double(), masks.sum(1)

    def score(logits: Tensor) -> Tensor:
        return weights @ (logits.argmax(-1) == labels).double() / sizes

    return score


def roc_auc(labels: Tensor, masks: Tensor) -> Score:
    """Area under the ROC curve of the second of two classes: labels [N], masks [S, N] -> [S].

    The share of pairs of a positive and a negative node that are in the right order, ties counted
    half; NaN if only one class is present.
    """
    positive, negative = masks & (labels == 1), masks & (labels != 1)  # [S, N]
    pairs = positive.sum(1) * negative.sum(1)

    def score(logits: Tensor) -> Tensor:
        if logits.size(-1) != 2:
            raise ValueError(f"roc_auc is for two classes, got {logits.size(-1)} logits")
        scores = torch.softmax(logits.double(), -1)[:, 1].contiguous()
        ranked, order = scores.sort()
        # Negatives below each rank; equal scores share the ranks from `first` to `last`.
        below = F.pad(negative[:, order].long().cumsum(1), (1, 0))  # [S, N + 1]
        first = torch.searchsorted(ranked, ranked)
        last = torch.searchsorted(ranked, ranked, right=True)
        twice = below[:, first] + below[:, last]
        return (positive[:, order] * twice).sum(1).double() / (2 * pairs)

    return score


def _one_hot(labels: Tensor, classes: int) -> Tensor:
    """[N] -> [N, C]; a label that is not known (-1) counts in no mask."""
    return F.one_hot(labels.clamp(min=0), classes)


def cross_entropy(labels: Tensor, mask: Tensor, classes: int) -> Loss:
    """Mean cross-entropy of the nodes in the mask: labels, mask [N]."""
    target = _one_hot(labels, classes) * mask[:, None] / mask.sum()

    def loss(logits: Tensor) -> Tensor:
        return -(F.log_softmax(logits, -1) * target.to(logits)).sum()

    return loss


def binary(labels: Tensor, mask: Tensor, classes: int) -> Loss:
    """Mean binary cross-entropy over the one-hot columns, as released for Deezer."""
    target, weight = _one_hot(labels, classes).float(), mask[:, None] / (mask.sum() * classes)

    def loss(logits: Tensor) -> Tensor:
        known, share = target.to(logits), weight.to(logits)
        return F.binary_cross_entropy_with_logits(logits, known, share, reduction="sum")

    return loss


@dataclass(frozen=True)
class Metric:
    """A score: what it is called, which way is better, and how it is written.

    Attributes:
        name: in a configuration.
        title: for people.
        scores: `(labels [N], masks [S, N])` -> a function of logits [N, C] that gives [S].
        sign: 1 where higher is better, -1 where lower is.
        unit, scale: in which it is written, and how many of them one is.
        two_classes: whether it is for two classes only.
    """

    name: str
    title: str
    scores: Callable[[Tensor, Tensor], Score]
    sign: int = 1
    unit: str = "%"
    scale: float = 100
    two_classes: bool = False

    @property
    def label(self) -> str:
        """Title and unit, for the head of a table."""
        return f"{self.title} ({self.unit})"

    def show(self, value: float | None) -> str:
        """A score as it is printed, without its unit."""
        return "-" if value is None or math.isnan(value) else f"{self.scale * value:.2f}"


METRICS = {
    **{name: Metric(name, name.capitalize(), scores) for name, scores in HITS.items()},
    "mrr": Metric("mrr", "MRR", mrr),
    "accuracy": Metric("accuracy", "accuracy", accuracy),
    "roc_auc": Metric("roc_auc", "ROC-AUC", roc_auc, two_classes=True),
}
LOSSES = {"cross_entropy": cross_entropy, "binary": binary}
