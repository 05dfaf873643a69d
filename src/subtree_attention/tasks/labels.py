"""Multi-label classification: any number of labels of every unit, each by its own logit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit
from torch import Tensor, nn

from . import calibration as calibrating
from . import deciding
from .answers import OfLabels
from .classification import Tempered
from .metrics import LABEL_METRICS, Loss, LossOfSome, label_binary, of_some
from .quality import LabelQuality, label_quality
from .task import parts

if TYPE_CHECKING:
    from ..datasets import Split


class MultiLabel(Tempered):
    """Of units of any kind: targets are float [U, C], NaN where it is not known.

    A label of a unit is a decision between two classes, yes and no: one temperature is for all.
    """

    kind = "labels"
    metrics = LABEL_METRICS

    def decisions(self, logits: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The yes or no to each label that is known."""
        return calibrating.decisions(logits, target)

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

    def loss_of_some(self, target: Tensor, mask: Tensor, outputs: int) -> LossOfSome:
        return of_some(label_binary, target)

    def counts(self, target: Tensor, mask: Tensor, outputs: int) -> Tensor:
        """As many as the labels of a unit that are known."""
        return (~target.isnan()).sum(1)

    def probabilities(self, logits: np.ndarray, found: Mapping[str, Any]) -> np.ndarray:
        return expit(self.calibrated(logits, found))

    def answers(
        self,
        outputs: np.ndarray,
        target: np.ndarray,
        found: Mapping[str, Any],
        names: Sequence[str],
    ) -> OfLabels:
        return deciding.apply(OfLabels(names, self.probabilities(outputs, found), target), found)

    def quality(
        self, outputs: np.ndarray, target: np.ndarray, found: Mapping[str, Any]
    ) -> LabelQuality:
        """More scores of some units: logits [n, C], labels [n, C]."""
        return label_quality(self.calibrated(outputs, found), target)


class NodeMultiLabel(MultiLabel):
    """The labels of every node."""
