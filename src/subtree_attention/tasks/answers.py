"""What a model says of units, as people and files have it: classes, labels or numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ..datasets.targets import in_words

THRESHOLD = 0.5
"""A label is given to a unit if its probability is above this."""


class Answers:
    """Of all units of a graph, or of some: what is predicted, and what is known."""

    cell: ClassVar[type] = str
    """What a prediction is: a text, a list of texts, or a number."""

    @property
    def predicted(self) -> list[Any]:
        """What is predicted for each unit: a text, a list of texts, or a number."""
        raise NotImplementedError

    @property
    def known(self) -> list[Any]:
        """The same as the data has it; None where it is not known."""
        raise NotImplementedError

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """More numbers of each unit, by name: probabilities, or the ends of an interval."""
        raise NotImplementedError

    def mistakes(self, among: np.ndarray) -> list[int]:
        """Units in a mask [U] that are known and predicted otherwise, the worst first."""
        raise NotImplementedError

    def part(self, start: int) -> Answers:
        """Those from a unit on."""
        raise NotImplementedError

    @property
    def more(self) -> dict[str, tuple[type, list[Any]]]:
        """More that is said of each unit, by name, with what its cells are: see `cell`."""
        return {}

    def told(self, unit: int) -> str:
        """What is predicted for a unit, as a text."""
        predicted = self.predicted[unit]
        return "no answer" if predicted is None else in_words(predicted)

    def sure(self, unit: int) -> float | None:
        """How probable that is; None where it has no probability."""
        return None


@dataclass(frozen=True)
class OfNames(Answers):
    """Answers by names that have probabilities.

    Attributes:
        names: of the classes or labels, C.
        probabilities: [U, C], calibrated.
        target: the class, int64 [U], -1 where it is not known; or the labels, float [U, C], NaN
            where it is not known.
        answered: bool [U], units that get an answer; None for all.
    """

    names: Sequence[str]
    probabilities: np.ndarray
    target: np.ndarray
    answered: np.ndarray | None = field(default=None, kw_only=True)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        return dict(zip(self.names, self.probabilities.T, strict=True))

    @property
    def sureness(self) -> np.ndarray:
        """How sure the model is that the whole of each answer is right, [U]."""
        raise NotImplementedError

    @property
    def right(self) -> np.ndarray:
        """Units whose answer would be right in all that is known, bool [U]."""
        raise NotImplementedError

    @property
    def said(self) -> np.ndarray:
        """Units that get an answer, bool [U]."""
        return np.ones(len(self.target), bool) if self.answered is None else self.answered

    @property
    def more(self) -> dict[str, tuple[type, list[Any]]]:
        """Whether the answer was withheld, where some are."""
        if self.answered is None:
            return {}
        return {"rejected": (str, ["no" if said else "yes" for said in self.answered])}

    def part(self, start: int) -> OfNames:
        cut: dict[str, Any] = {
            about.name: value[start:]
            for about in fields(self)
            if isinstance(value := getattr(self, about.name), np.ndarray)
        }
        return replace(self, **cut)


@dataclass(frozen=True)
class OfClasses(OfNames):
    """One class of each unit.

    Attributes:
        given: its number, int64 [U]: the class of the largest logit, or what a threshold decides.
        weighed: [U, C], probabilities as class weights count them, where those decide; None where
            there are no weights.
        sets: bool [U, C], classes that are possible, see `deciding`; None where nobody asked.
    """

    given: np.ndarray
    weighed: np.ndarray | None = field(default=None, kw_only=True)
    sets: np.ndarray | None = field(default=None, kw_only=True)

    @cached_property
    def predicted(self) -> list[str | None]:
        said = zip(self.given, self.said, strict=True)
        return [self.names[number] if there else None for number, there in said]

    @cached_property
    def known(self) -> list[str | None]:
        return [self.names[number] if number >= 0 else None for number in self.target]

    @cached_property
    def sureness(self) -> np.ndarray:
        """With class weights, by what these make of it: near a half the other class is as near."""
        return self._of_given(self.probabilities if self.weighed is None else self.weighed)

    def _of_given(self, shares: np.ndarray) -> np.ndarray:
        return shares[np.arange(len(self.given)), self.given]

    @property
    def right(self) -> np.ndarray:
        return self.given == self.target

    @property
    def more(self) -> dict[str, tuple[type, list[Any]]]:
        if self.sets is None:
            return super().more
        rows = [[self.names[int(at)] for at in np.flatnonzero(row)] for row in self.sets]
        return {**super().more, "set": (list, rows)}

    def sure(self, unit: int) -> float:
        return float(self.probabilities[unit, self.given[unit]])

    def mistakes(self, among: np.ndarray) -> list[int]:
        """The surest predictions first."""
        known = self.target >= 0
        wrong = np.flatnonzero(among & known & self.said & ~self.right)
        order = np.argsort(-self._of_given(self.probabilities)[wrong], kind="stable")
        return [int(unit) for unit in wrong[order]]


@dataclass(frozen=True)
class OfLabels(OfNames):
    """Any labels of each unit: those whose probability is above a threshold."""

    cell = list
    threshold: float = THRESHOLD

    @cached_property
    def predicted(self) -> list[list[str] | None]:
        rows = zip(self.given, self.said, strict=True)
        return [self._named(row) if there else None for row, there in rows]

    @property
    def given(self) -> np.ndarray:
        """Labels that are given, bool [U, C]."""
        return self.probabilities > self.threshold

    @cached_property
    def sureness(self) -> np.ndarray:
        """As if labels were independent."""
        each = np.where(self.given, self.probabilities, 1 - self.probabilities)
        return np.exp(np.log(each.clip(min=1e-300)).sum(1))

    @property
    def right(self) -> np.ndarray:
        return ((self.given == (self.target == 1)) | np.isnan(self.target)).all(1)

    @cached_property
    def known(self) -> list[list[str] | None]:
        return [None if np.isnan(row).all() else self._named(row == 1) for row in self.target]

    def _named(self, row: np.ndarray) -> list[str]:
        return [self.names[int(number)] for number in np.flatnonzero(row)]

    def mistakes(self, among: np.ndarray) -> list[int]:
        """Units with the surest wrong label, given or missed, first."""
        sure = np.where(among & self.said, self._wrong.max(1, initial=-1.0), -1.0)
        order = np.argsort(-sure, kind="stable")
        return [int(unit) for unit in order if sure[unit] >= 0]

    def worst(self, unit: int) -> int:
        """The label of a unit of which a wrong answer is surest; without one, the most probable."""
        wrong = self._wrong[unit]
        return int((self.probabilities[unit] if wrong.max() < 0 else wrong).argmax())

    @cached_property
    def _wrong(self) -> np.ndarray:
        """How sure each wrong label is, from 0 to 1, [U, C]; -1 where it is not wrong."""
        wrong = self.given != (self.target == 1)
        sure = np.abs(self.probabilities - self.threshold)
        return np.where(wrong & ~np.isnan(self.target), sure, -1.0)


@dataclass(frozen=True)
class OfNumbers(Answers):
    """A number of each unit, in its own unit.

    Attributes:
        values: [U].
        low, high: [U], between which the true number is expected.
        target: [U], NaN where it is not known.
        errors: [U], how far each is off on the scale that was learnt; NaN likewise.
    """

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    cell: ClassVar[type] = float
    target: np.ndarray
    errors: np.ndarray

    @cached_property
    def predicted(self) -> list[float]:
        return [float(value) for value in self.values]

    @cached_property
    def known(self) -> list[float | None]:
        return [None if np.isnan(value) else float(value) for value in self.target]

    @property
    def columns(self) -> dict[str, np.ndarray]:
        return {"low": self.low, "high": self.high}

    def mistakes(self, among: np.ndarray) -> list[int]:
        """The farthest off first."""
        off = np.flatnonzero(among & ~np.isnan(self.errors))
        return [int(unit) for unit in off[np.argsort(-np.abs(self.errors[off]), kind="stable")]]

    def part(self, start: int) -> OfNumbers:
        return OfNumbers(*(getattr(self, about.name)[start:] for about in fields(self)))
