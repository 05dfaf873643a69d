"""Correct and smooth (Huang et al., 2021): after training, known classes speak once more.

First the errors of training nodes spread over the graph and correct their neighbours; then the
probabilities are smoothed, in which training nodes say what they are. Both follow the mean of a
node's neighbours:

    errors          e = truth - p where the class is known, else a M e;  q = p + s e
    probabilities   g = (1 - a) g' + a M g, where g' is the truth if it is known, else q

Either may be left out. What is added to logits by it is log q - log p, which is 0 where nothing is
known nearby. How far each reaches (a) and how much it counts (s) is found on validation nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..datasets import Split
from ..graph import Graph
from ..nn.smoothing import walked
from .metrics import Metric

STEPS = 10
"""Of the walk; with the largest reach a third of what comes from farther away is missed."""
REACHES = (0.3, 0.6, 0.9)
SCALES = (0.5, 1.0, 1.5)
LEAST = 1e-3
"""No probability becomes smaller than so many times what it was."""
LOWEST = -690.0
"""No logarithm of a probability counts as smaller: beyond it float64 has no probabilities."""
HALVES = 40
"""Random halves of the validation nodes, on which it is seen how much chance is in a gain."""


class Correction(NamedTuple):
    """How far errors reach and how much they count, and how far probabilities are smoothed; a reach
    of 0 leaves that part out. By the names that `runs.folder.RunResult` has."""

    correct_reach: float = 0.0
    correct_scale: float = 0.0
    smooth_reach: float = 0.0


class Spreading:
    """A graph, what a model says of it, and what is known of it.

    Args:
        logits: [N, C]
        known: [N], the class of each training node; -1 of all others.
        graph: with the transition "mean".
    """

    def __init__(self, logits: Tensor, known: Tensor, graph: Graph) -> None:
        self.graph = graph
        self.logs = F.log_softmax(logits.double(), -1).clamp(min=LOWEST)
        self.known = (known >= 0)[:, None]
        self.truth = F.one_hot(known.clamp(min=0), logits.size(-1)).double()

    def added(self, how: Correction) -> Tensor:
        """What is added to the logits, [N, C]."""
        shares = self.logs.exp()
        if how.correct_reach:
            shares = self._corrected(how.correct_scale, self.errors(how.correct_reach))
        if how.smooth_reach:
            shares = self._smoothed(how.smooth_reach, shares)
        return shares.log() - self.logs

    def errors(self, reach: float) -> Tensor:
        """Those of training nodes, as they arrive everywhere: [N, C]."""
        own = self.truth - self.logs.exp()
        spread = torch.where(self.known, own, 0.0)
        for _ in range(STEPS):
            spread = torch.where(self.known, own, reach * walked(spread, self.graph))
        return spread

    def _corrected(self, scale: float, errors: Tensor) -> Tensor:
        return self._shares(self.logs.exp() + scale * errors)

    def _smoothed(self, reach: float, shares: Tensor) -> Tensor:
        start = torch.where(self.known, self.truth, shares)
        spread = start
        for _ in range(STEPS):
            spread = (1 - reach) * start + reach * walked(spread, self.graph)
        return self._shares(spread)

    def _shares(self, given: Tensor) -> Tensor:
        """Probabilities again: above 0, and 1 together."""
        given = torch.maximum(given, LEAST * self.logs.exp())
        return given / given.sum(-1, keepdim=True)

    def candidates(self, better: Callable[[Tensor], bool]) -> Iterator[Correction]:
        """All that is tried; `better` is told logits and says whether they are the best so far.

        Corrections first; then plain and best corrected probabilities are smoothed.
        """
        best = Correction()
        for reach in REACHES:
            errors = self.errors(reach)
            for scale in SCALES:
                if better(self._corrected(scale, errors).log()):
                    best = Correction(reach, scale)
                    yield best
        for start in dict.fromkeys([Correction(), best]):
            shares = (self.logs + self.added(start)).exp()
            for reach in REACHES:
                if better(self._smoothed(reach, shares).log()):
                    yield start._replace(smooth_reach=reach)


def search(
    logits: Tensor, known: Tensor, graph: Graph, metric: Metric, target: Tensor, split: Split
) -> Correction | None:
    """What helps on the validation nodes by more than chance: None if nothing does.

    More than chance is a gain above the deviation that it has over random halves of them.
    """
    spreading, found = Spreading(logits, known, graph), None
    one = metric.on(target, split)
    best = start = metric.sign * float(one(logits)[1])

    def better(given: Tensor) -> bool:
        nonlocal best
        score = metric.sign * float(one(given)[1])
        improved, best = score > best, max(score, best)
        return improved

    for candidate in spreading.candidates(better):
        found = candidate
    if found is None:
        return None
    random = torch.Generator().manual_seed(0)
    halves = split.val & (torch.rand(HALVES, len(split.val), generator=random) < 0.5)
    parts = metric.on(target, split, halves)
    gains = (parts(logits + spreading.added(found)) - parts(logits))[len(split) :]
    chance = gains[~gains.isnan()].std()
    return found if best - start > float(chance) else None
