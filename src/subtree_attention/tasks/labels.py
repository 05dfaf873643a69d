"""Multi-label classification: any number of labels of every unit, each by its own logit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit
from torch import Tensor, nn

from . import calibration as calibrating
from .answers import OfLabels
from .calibration import Bin, Calibration
from .metrics import LABEL_METRICS, Loss, label_binary
from .quality import LabelQuality, label_quality
from .task import Task, parts

if TYPE_CHECKING:
    from ..datasets import Dataset, Split


class MultiLabel(Task):
    """Of units of any kind: targets are float [U, C], NaN where it is not known.

    A label of a unit is a decision between two classes, yes and no: one temperature is for all.
    """

    kind = "labels"
    calibrates = True
    finds = ("temperature",)
    metrics = LABEL_METRICS

    def outputs(self, dataset: Dataset) -> int:
        """A logit for each label."""
        return dataset.num_classes

    def check(self, target: Tensor, split: Split, names: Sequence[str] = ()) -> None:
        super().check(target, split, names)
        for part, mask in parts(split):
            has, lacks = (target[mask] == 1).any(0), (target[mask] == 0).any(0)
            if not bool((has & lacks).any() if self.metric.contrasts else has.any()):
                words = "that some of them have and others not" if self.metric.contrasts else ""
                raise ValueError(
                    f"{self.metric.name} says nothing of the {part} {self.unit}s: there is no "
                    f"label {words or 'that any of them has'}"
                )

    def loss(self, model: nn.Module, target: Tensor, mask: Tensor, outputs: int) -> Loss:
        """Of the logits [U, C] of all units, on those in the mask: target [U, C], mask [U]."""
        return label_binary(target, mask)

    def settle(self, outputs: np.ndarray, target: np.ndarray, split: Split) -> dict[str, float]:
        return {"temperature": self.temperature(outputs, target, split)}

    def temperature(self, logits: np.ndarray, target: np.ndarray, split: Split) -> float:
        val = split.val.cpu().numpy()
        return calibrating.best_temperature(*calibrating.decisions(logits[val], target[val]))

    def calibration(
        self, found: Mapping[str, float], outputs: np.ndarray, target: np.ndarray, split: Split
    ) -> Calibration:
        """Each label of a unit is counted, where it is known."""
        trusts = []
        for mask in (split.val, split.test):
            some = mask.cpu().numpy()
            pair = calibrating.decisions(outputs[some], target[some])
            trusts.append(calibrating.trust(found["temperature"], *pair))
        return Calibration(found["temperature"], *trusts)

    def probabilities(self, logits: np.ndarray, temperature: float) -> np.ndarray:
        return expit(logits / temperature)

    def reliability(self, logits: np.ndarray, target: np.ndarray, temperature: float) -> list[Bin]:
        """Of the yes or no to each label that is known."""
        pairs, right = calibrating.decisions(logits / temperature, target)
        return calibrating.reliability(calibrating.softmax(pairs), right)

    def answers(
        self,
        outputs: np.ndarray,
        target: np.ndarray,
        found: Mapping[str, float],
        names: Sequence[str],
    ) -> OfLabels:
        return OfLabels(names, self.probabilities(outputs, found["temperature"]), target)

    def quality(
        self, outputs: np.ndarray, target: np.ndarray, found: Mapping[str, float]
    ) -> LabelQuality:
        """More scores of some units: logits [n, C], labels [n, C]."""
        return label_quality(outputs / found["temperature"], target)


class NodeMultiLabel(MultiLabel):
    """The labels of every node."""
