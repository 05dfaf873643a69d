"""Scores of pairs: how far links stand above the pairs that are none, on the device.

As in `metrics`, each is made once for the pairs that it is about: labels [P] (1 for a link, else 0)
and masks [S, P] -> a function of logits [P, 2] that gives [S]. A link is ranked among all pairs of
its own part that are none, as Open Graph Benchmark does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

Ranks = Callable[[Tensor], Tensor]


def _ranked(labels: Tensor, masks: Tensor, of: Callable[[Tensor, Tensor], Tensor]) -> Ranks:
    """Apply `of` to the scores of links [p] and of others [n] in each part: -> [S]."""
    parts = [(at[labels[at] == 1], at[labels[at] == 0]) for at in _places(masks)]

    def score(logits: Tensor) -> Tensor:
        link = (logits[:, 1] - logits[:, 0]).double()
        return torch.stack([of(link[these], link[others]) for these, others in parts])

    return score


def _places(masks: Tensor) -> Iterator[Tensor]:
    return (mask.nonzero().flatten() for mask in masks)


def too_few(others: int, k: int) -> bool:
    """Whether Hits@k says nothing among so many other pairs: nearly every link would be a hit."""
    return others <= k


def hits(labels: Tensor, masks: Tensor, k: int) -> Ranks:
    """Share of links that score above the k-th best of the others; NaN if those are too few."""

    def of(these: Tensor, others: Tensor) -> Tensor:
        if too_few(len(others), k):
            return these.new_full((), torch.nan)
        return (these > others.topk(k).values[-1]).double().mean()

    return _ranked(labels, masks, of)


def mrr(labels: Tensor, masks: Tensor) -> Ranks:
    """Mean of 1 / rank of each link; among equal scores it stands in the middle."""

    def of(these: Tensor, others: Tensor) -> Tensor:
        ordered, count = others.sort().values, len(others)
        best = count - torch.searchsorted(ordered, these, right=True)
        worst = count - torch.searchsorted(ordered, these)
        return (1 / (1 + (best + worst) / 2)).mean()

    return _ranked(labels, masks, of)


HITS = {f"hits@{k}": partial(hits, k=k) for k in (20, 50, 100)}
