"""The target of a task as numbers in columns, whatever is learnt: one home for all references.

class    one column a class, 1 for that of the unit
labels   one column a label, 1 for each that the unit has
number   one column: the number, less the mean and over the deviation of the training units
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..tasks import Problem, Task


@dataclass(frozen=True, eq=False)
class Shown:
    """What is known of units: their target where it may be seen, and nothing elsewhere.

    Attributes:
        values: [U, C], float32; 0 where nothing is shown.
        weight: [U, 1], or of labels [U, C]; 1 where the value is shown, else 0.
    """

    values: np.ndarray
    weight: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        """Units of which something is shown, by number."""
        return np.flatnonzero(self.weight.any(1))

    @property
    def prior(self) -> np.ndarray:
        """Mean of what is shown, [C]; 0 where that is nothing."""
        return self.values.sum(0) / np.maximum(self.weight.sum(0), 1)

    def only(self, mask: np.ndarray) -> Shown:
        """What is shown of the units in a mask [U], and of no other."""
        kept = mask[:, None].astype(np.float32)
        return Shown(self.values * kept, self.weight * kept)


@dataclass(frozen=True, eq=False)
class Aim:
    """What is to be predicted.

    Attributes:
        kind: "class", "labels" or "number".
        values, known: of all units, [U, C] and [U, 1] or [U, C], as in `Shown`.
        train, val: masks [U].
        center, scale: of numbers, where 0 and 1 of the values lie.
    """

    kind: str
    values: np.ndarray
    known: np.ndarray
    train: np.ndarray
    val: np.ndarray
    center: float = 0.0
    scale: float = 1.0

    @classmethod
    def of(cls, task: Task, problem: Problem) -> Aim:
        """That of a run."""
        target = problem.target.cpu().numpy()
        train, val = (mask.cpu().numpy() for mask in (problem.split.train, problem.split.val))
        center, scale = 0.0, 1.0
        if task.kind == "number":
            seen = target[train].astype(np.float64)
            center, scale = float(seen.mean()), float(seen.std()) or 1.0
        columns = task.outputs(problem.dataset)
        values, known = as_columns(task.kind, target, columns, center, scale)
        return cls(task.kind, values, known, train, val, center, scale)

    @property
    def shown(self) -> Shown:
        """The training units: no reference sees another."""
        return Shown(self.values, self.known).only(self.train)


def as_columns(
    kind: str, target: np.ndarray, columns: int, center: float = 0.0, scale: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """A target [U, ...] as values [U, C] and where they are known, [U, 1] or [U, C]."""
    if kind == "class":
        known = target >= 0
        values = np.zeros((len(target), columns), dtype=np.float32)
        values[np.flatnonzero(known), target[known]] = 1
        return values, known[:, None].astype(np.float32)
    known = ~np.isnan(target)
    values = np.where(known, (target - center) / scale, 0).astype(np.float32)
    if kind == "number":
        values, known = values[:, None], known[:, None]
    return values, known.astype(np.float32)
