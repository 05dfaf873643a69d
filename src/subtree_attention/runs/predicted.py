"""What a model says of some nodes or graphs, whoever was asked for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..tasks.answers import Answers, OfNames


@dataclass(frozen=True)
class Predicted:
    """What a model says of some units.

    Attributes:
        ids: of the nodes or graphs, N.
        answers: what is predicted and what is known of each, see `tasks.answers`.
    """

    ids: list[str]
    answers: Answers

    @property
    def predicted(self) -> list[Any]:
        """Of each node a class, a list of its labels, or a number; None where it was rejected."""
        return self.answers.predicted

    @property
    def known(self) -> list[Any]:
        """The same where the table has it; else None."""
        return self.answers.known

    @property
    def classes(self) -> Sequence[str]:
        """The names of the classes or labels, C."""
        return self._named.names

    @property
    def probabilities(self) -> np.ndarray:
        """[N, C], calibrated."""
        return self._named.probabilities

    @property
    def labels(self) -> np.ndarray:
        """Known classes by number, [N], else -1; or 1 and 0 of labels, [N, C], else NaN."""
        return self._named.target

    @property
    def sets(self) -> list[list[str]]:
        """The classes that are possible for each node, where a coverage was asked for."""
        if "set" not in self.answers.more:
            raise ValueError("there are no sets of classes: predict with coverage=0.9")
        return self.answers.more["set"][1]

    @property
    def _named(self) -> OfNames:
        if not isinstance(self.answers, OfNames):
            raise ValueError("numbers are predicted, which have no classes and no probabilities")
        return self.answers
