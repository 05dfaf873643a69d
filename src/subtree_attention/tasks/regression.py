"""Regression: a number of every unit.

What is learnt is the number, or its logarithm, less the mean and over the deviation of the training
units: outputs are on that scale. Scores are on the scale of the number, or of its logarithm if that
is learnt; predictions are in the number's own unit always.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from .answers import OfNumbers
from .calibration import LEVEL, Coverage, Intervals, conformal_rank
from .deciding import Asked, check_validation, refuse
from .metrics import NUMBER_METRICS, Loss, LossOfSome, Score, distance, of_some
from .quality import NumberQuality, all_scores
from .task import Task, parts

if TYPE_CHECKING:
    from ..datasets import Dataset, Split


class Regression(Task):
    """Of units of any kind: targets are float [U], NaN where the number is not known."""

    kind = "number"
    finds = ("center", "scale", "half_width")
    metrics = NUMBER_METRICS

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        if settings.log_target:
            self.metric = replace(self.metric, title=f"{self.metric.title} of the logarithm")

    def outputs(self, dataset: Dataset) -> int:
        """A number for each unit."""
        return 1

    def target(self, dataset: Dataset) -> Tensor:
        """[U], or its logarithm."""
        y = super().target(dataset)
        if not self.settings.log_target:
            return y
        least = y.nan_to_num(1.0)
        if y.numel() and float(least.min()) <= 0:
            lowest = float(least.min())
            or_else = ", or add 1 to all of them" if lowest == 0 else ""
            raise ValueError(
                f"log_target is for numbers above 0, and the target of {self.unit} "
                f"{dataset.unit_ids[int(least.argmin())]} is {lowest:g}: leave log_target out"
                f"{or_else}"
            )
        return y.log()

    def check(self, target: Tensor, split: Split, names: Sequence[str] = ()) -> None:
        super().check(target, split, names)
        for part, mask in parts(split):
            found = target[mask].unique()
            if len(found) < 2 and (part == "training" or self.metric.contrasts):
                raise ValueError(
                    f"all {part} {self.unit}s have the number {self._back(float(found[0])):g}: "
                    "there is nothing to tell apart"
                )

        scale = float(standard(target, split.train)[1])
        if scale == 0:
            raise ValueError(
                "the numbers are so close together that their variance is 0: write them in a "
                "smaller unit, or without what they have in common"
            )
        if not math.isfinite(scale):
            raise ValueError(
                "the numbers are too large to be squared: write them in a larger unit, or use "
                "log_target (--log-target)"
            )

    def loss(self, model: nn.Module, target: Tensor, mask: Tensor, outputs: int) -> Loss:
        """Of the outputs [U, 1] of all units, on those in the mask: target, mask [U]."""
        center, scale = standard(target, mask)
        loss = distance(self.settings.loss, (target - center) / scale, mask)
        return lambda given: loss(given[:, 0])

    def loss_of_some(self, target: Tensor, mask: Tensor, outputs: int) -> LossOfSome:
        center, scale = standard(target, mask)
        kind, standardised = self.settings.loss, (target - center) / scale
        on = of_some(lambda some, which: distance(kind, some, which), standardised)
        return lambda given, rows: on(given[:, 0], rows)

    def scores(self, model: nn.Module, target: Tensor, split: Split) -> Score:
        """The metric is on the scale of the target, whatever the outputs [U, 1] are on."""
        center, scale = standard(target, split.train)
        score = super().scores(model, target, split)
        return lambda given: score(given[:, 0].double() * scale + center)

    def settle(self, outputs: np.ndarray, target: np.ndarray, split: Split) -> dict[str, Any]:
        """Where outputs 0 and 1 lie, and how far most of the validation units are off."""
        center, scale = map(float, standard(torch.from_numpy(target), split.train.cpu()))
        val = split.val.cpu().numpy()
        errors = outputs[val, 0] * scale + center - target[val]
        return {"center": center, "scale": scale, "half_width": half_width(errors)}

    def decide(
        self,
        asked: Asked,
        found: Mapping[str, Any],
        outputs: np.ndarray,
        target: np.ndarray,
        split: Split,
        names: Sequence[str],
    ) -> tuple[dict[str, Any], None]:
        """Intervals of another level, which `calibration` tells of."""
        refuse(asked, self.kind, names)
        assert asked.coverage is not None
        check_validation(split)
        errors = self._errors(outputs, target, found)[split.val.cpu().numpy()]
        width = half_width(errors, asked.coverage)
        return {**found, "half_width": width, "level": asked.coverage}, None

    def calibration(
        self, found: Mapping[str, Any], outputs: np.ndarray, target: np.ndarray, split: Split
    ) -> Intervals:
        errors = self._errors(outputs, target, found)
        parts = (errors[mask.cpu().numpy()] for mask in (split.val, split.test))
        width = found["half_width"]
        level, log = found.get("level", LEVEL), self.settings.log_target
        return Intervals(level, width, log, *(cover(e, width) for e in parts))

    def answers(
        self,
        outputs: np.ndarray,
        target: np.ndarray,
        found: Mapping[str, Any],
        names: Sequence[str],
    ) -> OfNumbers:
        values, errors = self._values(outputs, found), self._errors(outputs, target, found)
        back, width = self._back, found["half_width"]
        low, high = back(values - width), back(values + width)
        return OfNumbers(back(values), low, high, back(target), errors)

    def quality(
        self, outputs: np.ndarray, target: np.ndarray, found: Mapping[str, Any]
    ) -> NumberQuality:
        """More scores of some units: outputs [n, 1], numbers [n]."""
        values, errors = self._values(outputs, found), self._errors(outputs, target, found)
        own = None
        if self.settings.log_target:
            own = all_scores(self.metrics, self._back(values), self._back(target))
        inside = cover(errors, found["half_width"]).share
        return NumberQuality(all_scores(self.metrics, values, target), inside, own)

    def _values(self, outputs: np.ndarray, found: Mapping[str, Any]) -> np.ndarray:
        """[U, 1] -> [U], on the scale of the target."""
        return outputs[:, 0] * found["scale"] + found["center"]

    def _errors(
        self, outputs: np.ndarray, target: np.ndarray, found: Mapping[str, Any]
    ) -> np.ndarray:
        return self._values(outputs, found) - target

    def _back(self, values: Any) -> Any:
        """From the scale of the target to the number's own unit."""
        if not self.settings.log_target:
            return values
        with np.errstate(over="ignore"):  # beyond what float64 reaches it is infinite
            return np.exp(values)


class NodeRegression(Regression):
    """A number of every node."""


def standard(target: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of the target [U] in a mask [U], both in float64."""
    truth, weight = target.double().nan_to_num(), mask.double() / mask.sum()
    center = (weight * truth).sum()
    return center, (weight * (truth - center).square()).sum().sqrt()


def half_width(errors: np.ndarray, level: float = LEVEL) -> float:
    """As far as a new error is off at most with a probability, if it is like these [n].

    The split conformal quantile, see `conformal_rank`; at most the largest of them.
    """
    ranked = np.sort(np.abs(errors))
    return float(ranked[min(conformal_rank(len(ranked), level), len(ranked)) - 1])


def cover(errors: np.ndarray, width: float) -> Coverage:
    """How many errors [n] are within a width."""
    share = float((np.abs(errors) <= width).mean()) if len(errors) else math.nan
    return Coverage(len(errors), share)
