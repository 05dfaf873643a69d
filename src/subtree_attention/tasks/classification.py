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


class Tempered(Task):
    """Whatever is decided between classes by logits: one temperature makes all of them as sure as
    they are right. As it stands a unit is one decision."""

    calibrates = True
    finds = ("temperature",)

    def outputs(self, dataset: Dataset) -> int:
        """A logit for each class, or for each label."""
        return dataset.num_classes

    def decisions(self, logits: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is decided, by logits [n, C], and what is right, [n]."""
        return logits, target

    def settle(self, outputs: np.ndarray, target: np.ndarray, split: Split) -> dict[str, float]:
        return {"temperature": self.temperature(outputs, target, split)}

    def temperature(self, logits: np.ndarray, target: np.ndarray, split: Split) -> float:
        val = split.val.cpu().numpy()
        return calibrating.best_temperature(*self.decisions(logits[val], target[val]))

    def calibration(
        self, found: Mapping[str, float], outputs: np.ndarray, target: np.ndarray, split: Split
    ) -> Calibration:
        masks = (mask.cpu().numpy() for mask in (split.val, split.test))
        decided = (self.decisions(outputs[mask], target[mask]) for mask in masks)
        heat = found["temperature"]
        return Calibration(heat, *(calibrating.trust(heat, *some) for some in decided))

    def reliability(self, logits: np.ndarray, target: np.ndarray, temperature: float) -> list[Bin]:
        decided, right = self.decisions(logits / temperature, target)
        return calibrating.reliability(calibrating.softmax(decided), right)


class Classification(Tempered):
    """Of units of any kind: targets are int64 [U], -1 where the class is not known."""

    kind = "class"
    metrics = CLASS_METRICS

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

    def probabilities(self, logits: np.ndarray, temperature: float) -> np.ndarray:
        return calibrating.softmax(logits / temperature)

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
