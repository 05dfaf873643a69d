"""How far predictions can be trusted: temperatures of probabilities, and intervals of numbers.

A temperature T divides all logits: the order of the classes stays, their probabilities become as
sure as the model is right on the validation units (Guo et al., 2017). Of a model that was trained
with class weights an offset of each class is taken from the logits besides, which undoes the
weights: no temperature can. An interval reaches as far from a predicted number as most validation
units are off (split conformal prediction).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax

BINS = 15
TEMPERATURES = (0.05, 20.0)
"""Between them it is searched."""
PRIOR = 0.5
"""Deviation of the logarithm of a temperature, before any node is seen; also of how far class
weights are in the logits, from 1."""
LEVEL = 0.9
"""How often an interval shall hold the true number."""


class Bin(NamedTuple):
    """Nodes of like confidence: how sure the model is of them, and how often it is right."""

    nodes: int
    confidence: float
    accuracy: float


class Trust(NamedTuple):
    """Negative log-likelihood and expected calibration error, before and after calibration."""

    nodes: int
    nll: tuple[float, float]
    ece: tuple[float, float]


class Calibration(NamedTuple):
    """The temperature of a model, whether class weights were undone as well, and what that does on
    validation and on test nodes."""

    temperature: float
    val: Trust
    test: Trust
    weighted: bool = False


class Coverage(NamedTuple):
    """How often the interval holds the true number, on some units."""

    nodes: int
    share: float


class Intervals(NamedTuple):
    """How far a true number may be from a predicted one, and how often it is not farther.

    `half_width` is on the scale that was learnt: of a logarithm it is a factor, once exponentiated.
    """

    level: float
    half_width: float
    of_logarithm: bool
    val: Coverage
    test: Coverage

    @property
    def promises(self) -> bool:
        """Whether there are validation units enough for the level: else the farthest of them is
        the half width, and less often right."""
        return conformal_rank(self.val.nodes, self.level) <= self.val.nodes


def conformal_rank(count: int, level: float) -> int:
    """Which of so many errors, from the smallest on, a new one is within at a level."""
    return math.ceil(level * (count + 1))


def trust(logits: np.ndarray, calibrated: np.ndarray, labels: np.ndarray) -> Trust:
    """What calibration does to logits [n, C] of units with labels [n]."""
    both = [logits, calibrated]
    before, after = (negative_log_likelihood(some, labels) for some in both)
    rough, fine = (calibration_error(softmax(some), labels) for some in both)
    return Trust(len(labels), (before, after), (rough, fine))


def decisions(logits: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labels as decisions between no and yes, where they are known: [n, C] -> [m, 2] and [m]."""
    known = ~np.isnan(target)
    yes = logits[known]
    return np.stack([np.zeros_like(yes), yes], 1), target[known].astype(int)


def best_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The temperature at which logits [n, C] explain labels [n] best, and never worse than at 1.

    A temperature far from 1 has to be earned by many nodes: its logarithm is normal a priori. A few
    nodes, all of them right, would otherwise ask for probabilities of 1.
    """

    def loss(log: float) -> float:
        surprise = len(labels) * negative_log_likelihood(logits / np.exp(log), labels)
        return surprise + 0.5 * (log / PRIOR) ** 2

    found = minimize_scalar(loss, bounds=np.log(TEMPERATURES), method="bounded")
    return float(np.exp(found.x)) if found.fun < loss(0.0) else 1.0


def best_correction(
    logits: np.ndarray, labels: np.ndarray, weights: np.ndarray
) -> tuple[float, np.ndarray]:
    """A temperature, and offsets [C] that are added to the logits [n, C] that it has divided, which
    undo the class weights [C] of a loss: see `best_temperature`.

    A loss that counts class c with weight w learns the logarithm of w P(c). How much of log w is in
    the logits is found as well, near 1: a model that has not learnt to the end has less.
    """

    def loss(given: np.ndarray) -> float:
        heat, share = given
        moved = logits / np.exp(heat) - share * np.log(weights)
        surprise = len(labels) * negative_log_likelihood(moved, labels)
        return surprise + 0.5 * (heat / PRIOR) ** 2 + 0.5 * ((share - 1) / PRIOR) ** 2

    start = np.array([0.0, 1.0])
    found = minimize(loss, start, bounds=[np.log(TEMPERATURES), (0.0, 2.0)], method="L-BFGS-B")
    heat, share = found.x if found.fun < loss(start) else start
    return float(np.exp(heat)), -float(share) * np.log(weights)


def negative_log_likelihood(logits: np.ndarray, labels: np.ndarray) -> float:
    """Mean over nodes; NaN if there are none."""
    if not len(labels):
        return float("nan")
    return float(-log_softmax(logits, axis=1)[np.arange(len(labels)), labels].mean())


def calibration_error(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """How far confidence is from accuracy, over the bins of `reliability`; NaN without nodes."""
    if not len(labels):
        return float("nan")
    bins = reliability(probabilities, labels)
    return sum(bin.nodes * abs(bin.confidence - bin.accuracy) for bin in bins) / len(labels)


def reliability(probabilities: np.ndarray, labels: np.ndarray) -> list[Bin]:
    """The `BINS` equal bins of confidence that hold any node: probabilities [n, C], labels [n]."""
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    places = np.minimum((confidence * BINS).astype(int), BINS - 1)
    inside = (places == place for place in np.unique(places))
    return [
        Bin(int(some.sum()), float(confidence[some].mean()), float(right[some].mean()))
        for some in inside
    ]


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities [n, C]."""
    return np.exp(log_softmax(logits, axis=1))
