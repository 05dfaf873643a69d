"""Classification: the class of every unit, by the largest of its logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor, nn

from . import calibration as calibrating
from .calibration import Calibration
from .metrics import LOSSES, Loss
from .quality import Quality, quality
from .task import Task, parts

if TYPE_CHECKING:
    from ..datasets import Dataset, Split


class Classification(Task):
    """Of units of any kind: targets are int64 [U], -1 where the class is not known."""

    calibrates = True

    def outputs(self, dataset: Dataset) -> int:
        """A logit for each class."""
        return dataset.num_classes

    def known(self, target: Tensor) -> Tensor:
        return target >= 0

    def check(self, target: Tensor, split: Split) -> None:
        super().check(target, split)
        for part, mask in parts(split):
            found = target[mask].unique().tolist()
            if self.metric.two_classes and found != [0, 1]:
                raise ValueError(
                    f"{self.metric.name} needs two classes, 0 and 1, and {self.unit}s of both in "
                    f"every part; those of the {part} {self.unit}s are "
                    f"{', '.join(map(str, found))}"
                )

    def loss(self, model: nn.Module, target: Tensor, mask: Tensor, outputs: int) -> Loss:
        """Of the logits [U, C] of all units, on those in the mask: target, mask [U]."""
        return LOSSES[self.settings.loss](target, mask, outputs)

    def temperature(self, logits: np.ndarray, target: np.ndarray, split: Split) -> float:
        val = split.val.cpu().numpy()
        return calibrating.best_temperature(logits[val], target[val])

    def calibration(
        self, temperature: float, logits: np.ndarray, target: np.ndarray, split: Split
    ) -> Calibration:
        val, test = (mask.cpu().numpy() for mask in (split.val, split.test))
        return calibrating.calibration(temperature, logits, target, val, test)

    def probabilities(self, logits: np.ndarray, temperature: float) -> np.ndarray:
        return calibrating.softmax(logits / temperature)

    def quality(self, outputs: np.ndarray, target: np.ndarray) -> Quality:
        """More scores of some units: logits [n, C], labels [n]."""
        return quality(outputs, target)


class NodeClassification(Classification):
    """The class of every node."""
