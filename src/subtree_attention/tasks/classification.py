"""Classification: the class of every unit, by the largest of its logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor, nn

from . import calibration as calibrating
from .answers import OfClasses
from .calibration import Bin, Calibration
from .metrics import CLASS_METRICS, LOSSES, Loss
from .quality import AnyQuality, quality
from .task import Task, parts

if TYPE_CHECKING:
    from ..datasets import Dataset, Split


class Classification(Task):
    """Of units of any kind: targets are int64 [U], -1 where the class is not known."""

    kind = "class"
    calibrates = True
    finds = ("temperature",)
    metrics = CLASS_METRICS

    def outputs(self, dataset: Dataset) -> int:
        """A logit for each class."""
        return dataset.num_classes

    def check(self, target: Tensor, split: Split, names: Sequence[str] = ()) -> None:
        super().check(target, split, names)
        for part, mask in parts(split):
            found = target[mask].unique().tolist()
            if self.metric.contrasts and len(found) < 2:
                only = names[found[0]] if names else found[0]
                raise ValueError(
                    f"{self.metric.name} tells classes apart and needs two of them in every part; "
                    f"the {part} {self.unit}s are all of class {only}"
                )

    def loss(self, model: nn.Module, target: Tensor, mask: Tensor, outputs: int) -> Loss:
        """Of the logits [U, C] of all units, on those in the mask: target, mask [U]."""
        return LOSSES[self.settings.loss](target, mask, outputs)

    def settle(self, outputs: np.ndarray, target: np.ndarray, split: Split) -> dict[str, float]:
        return {"temperature": self.temperature(outputs, target, split)}

    def temperature(self, logits: np.ndarray, target: np.ndarray, split: Split) -> float:
        val = split.val.cpu().numpy()
        return calibrating.best_temperature(logits[val], target[val])

    def calibration(
        self, found: Mapping[str, float], outputs: np.ndarray, target: np.ndarray, split: Split
    ) -> Calibration:
        masks = (mask.cpu().numpy() for mask in (split.val, split.test))
        heat = found["temperature"]
        trusts = (calibrating.trust(heat, outputs[mask], target[mask]) for mask in masks)
        return Calibration(heat, *trusts)

    def probabilities(self, logits: np.ndarray, temperature: float) -> np.ndarray:
        return calibrating.softmax(logits / temperature)

    def reliability(self, logits: np.ndarray, target: np.ndarray, temperature: float) -> list[Bin]:
        return calibrating.reliability(self.probabilities(logits, temperature), target)

    def answers(
        self,
        outputs: np.ndarray,
        target: np.ndarray,
        found: Mapping[str, float],
        names: Sequence[str],
    ) -> OfClasses:
        return OfClasses(names, self.probabilities(outputs, found["temperature"]), target)

    def quality(
        self, outputs: np.ndarray, target: np.ndarray, found: Mapping[str, float]
    ) -> AnyQuality:
        """More scores of some units: logits [n, C], labels [n]."""
        return quality(outputs / found["temperature"], target)


class NodeClassification(Classification):
    """The class of every node."""
