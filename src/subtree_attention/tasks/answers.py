"""What a model says of units, as people and files have it: classes, labels or numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
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

    def told(self, unit: int) -> str:
        """What is predicted for a unit, as a text."""
        return in_words(self.predicted[unit])

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
    """

    names: Sequence[str]
    probabilities: np.ndarray
    target: np.ndarray

    @property
    def columns(self) -> dict[str, np.ndarray]:
        return dict(zip(self.names, self.probabilities.T, strict=True))

    def part(self, start: int) -> OfNames:
        return type(self)(self.names, self.probabilities[start:], self.target[start:])


class OfClasses(OfNames):
    """One class of each unit: the most probable."""

    @cached_property
    def predicted(self) -> list[str]:
        return [self.names[number] for number in self.probabilities.argmax(1)]

    @cached_property
    def known(self) -> list[str | None]:
        return [self.names[number] if number >= 0 else None for number in self.target]

    def sure(self, unit: int) -> float:
        return float(self.probabilities[unit].max())

    def mistakes(self, among: np.ndarray) -> list[int]:
        """The surest predictions first."""
        given, known = self.probabilities.argmax(1), self.target >= 0
        wrong = np.flatnonzero(among & known & (given != self.target))
        order = np.argsort(-self.probabilities[wrong].max(1), kind="stable")
        return [int(unit) for unit in wrong[order]]


class OfLabels(OfNames):
    """Any labels of each unit: those that are more probable than not."""

    cell = list

    @cached_property
    def predicted(self) -> list[list[str]]:
        return [self._named(row > THRESHOLD) for row in self.probabilities]

    @cached_property
    def known(self) -> list[list[str] | None]:
        return [None if np.isnan(row).all() else self._named(row == 1) for row in self.target]

    def _named(self, row: np.ndarray) -> list[str]:
        return [self.names[int(number)] for number in np.flatnonzero(row)]

    def mistakes(self, among: np.ndarray) -> list[int]:
        """Units with the surest wrong label, given or missed, first."""
        sure = np.where(among, self._wrong.max(1, initial=-1.0), -1.0)
        order = np.argsort(-sure, kind="stable")
        return [int(unit) for unit in order if sure[unit] >= 0]

    def worst(self, unit: int) -> int:
        """The label of a unit of which a wrong answer is surest; without one, the most probable."""
        wrong = self._wrong[unit]
        return int((self.probabilities[unit] if wrong.max() < 0 else wrong).argmax())

    @cached_property
    def _wrong(self) -> np.ndarray:
        """How sure each wrong label is, from 0 to a half, [U, C]; -1 where it is not wrong."""
        wrong = (self.probabilities > THRESHOLD) != (self.target == 1)
        sure = np.abs(self.probabilities - THRESHOLD)
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
