"""Losses and scores of node classification, on whatever device the logits are."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Share of nodes whose largest logit is the right one: [N, C], [N] -> []."""
    return (logits.argmax(-1) == labels).double().mean()


def roc_auc(logits: Tensor, labels: Tensor) -> Tensor:
    """Area under the ROC curve of the second class: [N, 2], [N] -> [].

    By the rank-sum formula, ties counted half; NaN if only one class is present.
    """
    if logits.size(-1) != 2:
        raise ValueError(f"roc_auc is for two classes, got {logits.size(-1)} logits")
    scores = torch.softmax(logits.double(), -1)[:, 1]
    _, group, size = torch.unique(scores, return_inverse=True, return_counts=True)
    last = size.cumsum(0).double()
    rank = (last - (size - 1) / 2)[group]  # the mean rank of equal scores
    positive = labels == 1
    positives = positive.sum()
    negatives = labels.numel() - positives
    ranks = torch.where(positive, rank, 0).sum()
    return (ranks - positives * (positives + 1) / 2) / (positives * negatives)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """[N, C], [N] -> []."""
    return F.cross_entropy(logits, labels)


def binary(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy over the one-hot columns, as released for Deezer: [N, C], [N] -> []."""
    return F.binary_cross_entropy_with_logits(logits, F.one_hot(labels, logits.size(-1)).to(logits))


Score = Callable[[Tensor, Tensor], Tensor]
METRICS: dict[str, Score] = {"accuracy": accuracy, "roc_auc": roc_auc}
LOSSES: dict[str, Score] = {"cross_entropy": cross_entropy, "binary": binary}
