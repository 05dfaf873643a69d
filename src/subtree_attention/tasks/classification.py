"""Node classification: the class of every node, by the largest of its logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from . import calibration as calibrating
from .calibration import Calibration
from .metrics import LOSSES, METRICS, Loss, Score
from .quality import Quality, quality

if TYPE_CHECKING:
    from ..datasets import Dataset, Split


class NodeClassification:
    """What training, evaluation and display need to know of the task.

    Args:
        settings: `config.NodeClassification`, its loss and its metric.
    """

    def __init__(self, settings: Any) -> None:
        self.settings, self.metric = settings, METRICS[settings.metric]

    def outputs(self, dataset: Dataset) -> int:
        """Numbers that a model gives for each node: a logit for each class."""
        return dataset.num_classes

    def check(self, dataset: Dataset, split: Split) -> None:
        """Refuse parts on which the metric says nothing, before anything is trained."""
        for part, mask in zip(("training", "validation", "test"), split, strict=True):
            found = dataset.y[mask].unique().tolist()
            if not found:
                raise ValueError(f"there is no {part} node: label more, or split otherwise")
            if self.metric.two_classes and found != [0, 1]:
                raise ValueError(
                    f"{self.metric.name} needs two classes, 0 and 1, and nodes of both in every "
                    f"part; those of the {part} nodes are {', '.join(map(str, found))}"
                )

    def loss(self, y: Tensor, mask: Tensor, outputs: int) -> Loss:
        """Of the logits [N, C] of all nodes, on those in the mask: y, mask [N]."""
        return LOSSES[self.settings.loss](y, mask, outputs)

    def scores(self, y: Tensor, split: Split) -> Score:
        """Of the logits [N, C]: the metric on training, validation and test nodes, [3]."""
        return self.metric.scores(y, torch.stack(tuple(split)))

    def score(self, logits: Tensor, y: Tensor, split: Split) -> tuple[float, float, float]:
        """The scores as numbers; NaN if any logit is not finite: such a model has no score."""
        scores = self.scores(y, split)(logits)
        train, val, test = torch.where(logits.isfinite().all(), scores, torch.nan).tolist()
        return train, val, test

    def temperature(self, logits: np.ndarray, y: np.ndarray, split: Split) -> float:
        """What logits [N, C] are divided by, so that probabilities can be trusted."""
        val = split.val.cpu().numpy()
        return calibrating.best_temperature(logits[val], y[val])

    def calibration(
        self, temperature: float, logits: np.ndarray, y: np.ndarray, split: Split
    ) -> Calibration:
        """What that temperature does on validation and test nodes."""
        val, test = (mask.cpu().numpy() for mask in (split.val, split.test))
        return calibrating.calibration(temperature, logits, y, val, test)

    def probabilities(self, logits: np.ndarray, temperature: float) -> np.ndarray:
        """[N, C] -> [N, C]."""
        return calibrating.softmax(logits / temperature)

    def quality(self, logits: np.ndarray, labels: np.ndarray) -> Quality:
        """More scores of some nodes: logits [n, C], labels [n]."""
        return quality(logits, labels)
