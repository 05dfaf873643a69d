"""Whether ours is ahead of a rival or behind it: paired differences, and Holm's correction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtr

from experiments.reproduce.records import Paired

LEVEL = 0.05
"""Of the tests of a table together."""
POINTS = 0.003
"""A smaller mean difference counts for nothing, however sure it is."""


@dataclass(frozen=True)
class Verdict:
    """Of one pair of models on one graph.

    Attributes:
        word: "ahead", "behind" or "level"; "too few pairs" where nothing can be said.
        p: of a paired t-test, two-sided, Holm's correction in it; None with too few pairs.
    """

    word: str
    p: float | None


def verdicts(pairs: Sequence[Paired | None]) -> list[Verdict]:
    """What the pairs of a table say, each in the light of all.

    Behind: the mean difference is below both -2 standard errors and -0.3 points, and the test says
    so too after the correction. Ahead: the same with the other sign.
    """
    raw = [_p_value(pair) for pair in pairs]
    corrected = iter(holm([p for p in raw if p is not None]))
    found = []
    for pair, p in zip(pairs, raw, strict=True):
        if pair is None or pair.error is None or p is None:
            found.append(Verdict("too few pairs", None))
            continue
        p = next(corrected)
        beyond = abs(pair.mean) > 2 * pair.error and abs(pair.mean) > POINTS
        differs = beyond and p < LEVEL
        side = "ahead" if pair.mean > 0 else "behind"
        found.append(Verdict(side if differs else "level", p))
    return found


def holm(ps: Sequence[float]) -> list[float]:
    """p-values as Holm corrects them: comparable with the level of all tests together."""
    order, count, largest = sorted(range(len(ps)), key=ps.__getitem__), len(ps), 0.0
    corrected = [0.0] * count
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (count - rank) * ps[place]))
        corrected[place] = largest
    return corrected


def _p_value(pair: Paired | None) -> float | None:
    """Of a mean difference that far from 0 by chance, both sides, by Student's t."""
    if pair is None or pair.error is None:
        return None
    if pair.error == 0:
        return 1.0 if pair.mean == 0 else 0.0
    return 2 * float(stdtr(pair.pairs - 1, -abs(pair.mean) / pair.error))
