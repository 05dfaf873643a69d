"""What is said of a unit whose probabilities are known: by a threshold, not at all, or as a set.

    threshold   of two classes, the one that is looked for is the answer where its probability is
                above; a label is given where its probability is above
    reject      units that the model is least sure of get no answer, about this share of them
    coverage    a set of classes that holds the true one at least so often; of a number, an interval

What of this is a number to be found, such as how sure is sure enough, is found on the validation
units, so that it holds for a single new unit too; test units only show how well. Sets are split
conformal prediction: a class is possible if its probability is at least as large as it is for most
validation units that are of it. Each class that has enough of them is by itself, so that rare
classes are held as often as others; the smaller ones are together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import _check
from .answers import OfClasses, OfLabels, OfNames
from .calibration import conformal_rank

if TYPE_CHECKING:
    from ..datasets import Split

ENOUGH = 50
"""Validation units of a class from which on it is by itself in sets."""
SHARES = tuple(step / 20 for step in range(20))
"""Of rejected units, at which accuracy is drawn."""
LEVELS = (0.8, 0.9, 0.95)
"""Of sets, that are shown unasked."""
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class Asked:
    """What somebody wants instead of the most probable: at most one of three.

    Attributes:
        threshold: the probability above which a class or label is given.
        cls: of two classes, the one that it is about; by default the rarer.
        reject: the share of units that shall get no answer.
        coverage: how often sets shall hold the true class, or intervals the true number.
    """

    threshold: float | None = None
    cls: str | None = None
    reject: float | None = None
    coverage: float | None = None

    def __post_init__(self) -> None:
        values = {name: getattr(self, name) for name in ("threshold", "reject", "coverage")}
        given = [name for name, value in values.items() if value is not None]
        for name in given:
            if not 0 < _check.number(name, values[name]) < 1:
                got = _check.said(values[name])
                raise ValueError(f"{name} must be above 0 and below 1, got {got}")
        if len(given) > 1:
            raise ValueError(
                f"{' and '.join(given)} are different answers to one question: choose one of them"
            )
        if self.cls is not None:
            _check.kind("cls", self.cls, str, "the name of a class")
            if self.threshold is None:
                raise ValueError("a class is named for a threshold: give --threshold as well")

    def __bool__(self) -> bool:
        return any(x is not None for x in (self.threshold, self.reject, self.coverage))


class Flagged(NamedTuple):
    """What a threshold does on some units: how many have the class (or labels in all), how many are
    given it, and how often that is right."""

    units: int
    have: int
    given: int
    precision: float
    recall: float


class Answered(NamedTuple):
    """What a rejection does on some units: the share that is answered, and the share of these, and
    of all, that is right."""

    units: int
    share: float
    right: float
    all_right: float


class Held(NamedTuple):
    """What sets do on some units: how often they hold the true class, their mean size, the share
    of those that have one class only; and the class that is held least, and how often."""

    units: int
    coverage: float
    size: float
    single: float
    worst: str
    worst_coverage: float


@dataclass(frozen=True)
class Decided:
    """What was asked, what was found on the validation units, and what it does there and on test.

    Attributes:
        asked: what was asked.
        cls: the class that a threshold is about; empty of labels.
        least: how sure an answer must be, of a rejection.
        small: classes that share what they must have to be in a set.
        together: whether these are all classes, so that nothing is promised of a single one.
        promises: whether there were validation units enough for the coverage.
        val, test: what it does.
    """

    asked: Asked
    val: Flagged | Answered | Held
    test: Flagged | Answered | Held
    cls: str = ""
    least: float = 0.0
    small: tuple[str, ...] = ()
    together: bool = False
    promises: bool = True


# ---------------------------------------------------------------------------------- what is found


def least_sure(answers: OfNames, share: float, val: np.ndarray) -> float:
    """How sure an answer must be, so that at most this share of the units in a mask is rejected."""
    ordered = np.sort(answers.sureness[val])
    rejected = int(share * len(ordered))
    return float(ordered[rejected]) if rejected else 0.0


class Sets(NamedTuple):
    """Where sets begin: what probability each class must have, [C]; the classes that share it; and
    whether there are validation units enough for the level."""

    least: np.ndarray
    small: np.ndarray
    promises: bool


def find_sets(answers: OfClasses, level: float, val: np.ndarray) -> Sets:
    """Split conformal prediction on the units in a mask [U], class by class where it has enough."""
    truth = answers.target[val]
    own = answers.probabilities[val, truth]  # of the true class
    sizes = np.bincount(truth, minlength=len(answers.names))
    small = np.array([count < ENOUGH or not _enough(count, level) for count in sizes.tolist()])
    if small.any() and not _enough(int(sizes[small].sum()), level):
        small[:] = True  # a few units of a few small classes say nothing: all are one group
    least, promises = np.zeros(len(sizes)), True
    groups = [small] if small.any() else []
    groups += [np.arange(len(sizes)) == number for number in np.flatnonzero(~small)]
    for group in groups:
        ordered = np.sort(own[group[truth]])[::-1]
        rank = conformal_rank(len(ordered), level)
        promises &= rank <= len(ordered)
        least[group] = ordered[min(rank, len(ordered)) - 1]
    return Sets(least, small, promises)


def _enough(count: int, level: float) -> bool:
    return conformal_rank(count, level) <= count


def sets_of(answers: OfClasses, least: np.ndarray) -> np.ndarray:
    """Which classes are possible, bool [U, C]; the predicted one is always among them."""
    sets = answers.probabilities >= least
    sets[np.arange(len(sets)), answers.given] = True
    return sets


def apply(answers: Any, found: Mapping[str, Any]) -> Any:
    """Answers by names as `decide` has found that they shall be."""
    if "threshold" in found and isinstance(answers, OfLabels):
        answers = replace(answers, threshold=found["threshold"])
    elif "threshold" in found:
        given = above(answers.probabilities, found["threshold"], found["positive"])
        answers = replace(answers, given=given)
    if "least_sure" in found:
        answers = replace(answers, answered=answers.sureness >= found["least_sure"])
    if "sets" in found:
        answers = replace(answers, sets=sets_of(answers, found["sets"]))
    return answers


def check_validation(split: Split) -> None:
    """Refuse to find on validation units what has none."""
    if not bool(split.val.any()):
        raise ValueError(
            "there is no validation unit to find it on: ask the run itself, then other graphs"
        )


def decide(
    asked: Asked, answers: Any, found: Mapping[str, Any], split: Split
) -> tuple[dict[str, Any], Decided]:
    """What makes the answers that were asked for, in `found`, and what that does: of answers by
    names as they are unasked."""
    val, test = (mask.cpu().numpy() for mask in (split.val, split.test))
    check_validation(split)
    if asked.threshold:
        classes = isinstance(answers, OfClasses)
        chosen = found.get("positive", 1)
        positive = chosen if asked.cls is None else answers.names.index(asked.cls)
        more: dict[str, Any] = {"threshold": asked.threshold, "positive": positive}
        other = apply(answers, more)
        does: Any = (flagged(other, positive, mask) for mask in (val, test))
        about: dict[str, Any] = {"cls": answers.names[positive] if classes else ""}
    elif asked.reject:
        least = least_sure(answers, asked.reject, val)
        more, about = {"least_sure": least}, {"least": least}
        does = (answered(answers, least, mask) for mask in (val, test))
    else:
        assert asked.coverage is not None
        sets = find_sets(answers, asked.coverage, val)
        more, possible = {"sets": sets.least}, sets_of(answers, sets.least)
        does = (held(answers, possible, mask) for mask in (val, test))
        small = tuple(answers.names[number] for number in np.flatnonzero(sets.small))
        together = len(small) == len(answers.names)
        about = {"small": small, "together": together, "promises": sets.promises}
    return {**found, **more}, Decided(asked, *does, **about)


# ------------------------------------------------------------------------------------ what it does


def flagged(answers: OfNames, positive: int, mask: np.ndarray) -> Flagged:
    """Given and true units of a class; of labels all of them, whatever `positive` is."""
    if isinstance(answers, OfLabels):
        known = ~np.isnan(answers.target[mask])
        given, have = answers.given[mask] & known, answers.target[mask] == 1
    else:
        assert isinstance(answers, OfClasses)
        given, have = (some[mask] == positive for some in (answers.given, answers.target))
    both = int((given & have).sum())
    return Flagged(
        units=int(mask.sum()),
        have=int(have.sum()),
        given=int(given.sum()),
        precision=both / int(given.sum()) if given.any() else np.nan,
        recall=both / int(have.sum()) if have.any() else np.nan,
    )


def answered(answers: OfNames, least: float, mask: np.ndarray) -> Answered:
    """How many are sure enough, and how many of these are right."""
    said, right = answers.sureness[mask] >= least, answers.right[mask]
    count = int(mask.sum())
    return Answered(
        units=count,
        share=float(said.mean()) if count else np.nan,
        right=float(right[said].mean()) if said.any() else np.nan,
        all_right=float(right.mean()) if count else np.nan,
    )


def held(answers: OfClasses, sets: np.ndarray, mask: np.ndarray) -> Held:
    """How often sets [U, C] hold the true class."""
    truth, some = answers.target[mask], sets[mask]
    if not len(truth):
        return Held(0, np.nan, np.nan, np.nan, "", np.nan)
    inside, sizes = some[np.arange(len(truth)), truth], some.sum(1)
    by_class = [(float(inside[truth == number].mean()), int(number)) for number in np.unique(truth)]
    share, worst = min(by_class)
    return Held(
        len(truth),
        float(inside.mean()),
        float(sizes.mean()),
        float((sizes == 1).mean()),
        answers.names[worst],
        share,
    )


def rejections(
    answers: OfNames, split: Split, shares: Sequence[float] = SHARES
) -> list[tuple[float, Answered]]:
    """What rejections of each share do on the test units."""
    val, test = (mask.cpu().numpy() for mask in (split.val, split.test))
    return [(share, answered(answers, least_sure(answers, share, val), test)) for share in shares]


def coverages(
    answers: OfClasses, split: Split, levels: Sequence[float] = LEVELS
) -> list[tuple[float, Held]]:
    """What sets of each coverage do on the test units."""
    val, test = (mask.cpu().numpy() for mask in (split.val, split.test))
    found = ((level, find_sets(answers, level, val)) for level in levels)
    return [(level, held(answers, sets_of(answers, sets.least), test)) for level, sets in found]


def thresholds(
    answers: OfClasses, positive: int, split: Split, values: Sequence[float] = THRESHOLDS
) -> list[tuple[float, Flagged, Flagged]]:
    """What thresholds of one of two classes do on the validation and on the test units."""
    parts = [mask.cpu().numpy() for mask in (split.val, split.test)]
    found = []
    for value in values:
        given = above(answers.probabilities, value, positive)
        val, test = (flagged(replace(answers, given=given), positive, part) for part in parts)
        found.append((value, val, test))
    return found


def above(probabilities: np.ndarray, threshold: float, positive: int) -> np.ndarray:
    """The class of each unit, [U]: one of two where its probability is above, else the other."""
    return np.where(probabilities[:, positive] > threshold, positive, 1 - positive)


def refuse(asked: Asked, kind: str, names: Sequence[str]) -> None:
    """Refuse what cannot be answered of a class, labels or a number of each unit, in words."""
    if kind == "number" and (asked.threshold or asked.reject):
        name = "threshold" if asked.threshold else "reject"
        raise ValueError(
            f"{name} is for classes and labels, which have probabilities: a number has an "
            "interval, and coverage sets how often it holds"
        )
    if kind == "labels" and asked.coverage:
        raise ValueError(
            "coverage is for one class or a number of each unit: labels are a set already, and "
            "threshold sets how probable each of them must be"
        )
    if kind == "labels" and asked.cls is not None:
        raise ValueError("a class is named where there are two: a threshold is for all labels")
    if kind == "class" and asked.threshold and len(names) != 2:
        raise ValueError(
            f"threshold is for two classes or for labels, and there are {len(names)} classes: use "
            "reject, or coverage"
        )
    if asked.cls is not None:
        _check.known("class", asked.cls, names)
