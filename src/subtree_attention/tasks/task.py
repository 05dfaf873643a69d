"""What training, evaluation and display know of a task, whatever is learnt.

A task has units: nodes, pairs of nodes, or graphs. Its target, its split and its scores are over
units; the network is called as `network(x, graph, **inputs)` and gives outputs, of which the task
knows the loss and the scores. What follows from `Task` as it stands are nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ..config import tasks_for
from ..datasets import Split, targets
from ..nn import build
from .metrics import Loss, LossOfSome, Metric, Score

if TYPE_CHECKING:
    from ..datasets import Dataset
    from .answers import Answers
    from .calibration import Bin, Calibration, Intervals
    from .deciding import Asked, Decided
    from .quality import AnyQuality


@dataclass(frozen=True, eq=False)
class Problem:
    """What one run learns from.

    Attributes:
        dataset: what the network sees, its features and edges: of all runs the same, or with the
            edges of this run's split only.
        target: of every unit, [U, ...].
        split: training, validation and test units, masks [U].
        inputs: what the network takes besides x and the graph, by name.
        walked: what is walked on in training instead of the dataset, if it is not the same.
        known: the target of training units, and of no other, where a network may see it.
    """

    dataset: Dataset
    target: Tensor
    split: Split
    inputs: Mapping[str, Any]
    walked: Dataset | None = None
    known: Tensor | None = None

    def with_inputs(self, **more: Any) -> Problem:
        """With more that the network takes, by name."""
        return replace(self, inputs={**self.inputs, **more})

    def to(self, device: torch.device) -> Problem:
        """Target, split and inputs on a device; the dataset stays where it is."""
        inputs = {
            name: value.to(device) if hasattr(value, "to") else value
            for name, value in self.inputs.items()
        }
        target, split = self.target.to(device), self.split.to(device)
        return replace(self, target=target, split=split, inputs=inputs)


class Task:
    """What is learnt: the base of every task.

    Whatever stands here is that of nodes; a task of other units says otherwise. Nothing in a loss
    or in scores waits for the host, and shapes do not change between epochs: a GPU replays them.

    Args:
        settings: those of `config.TASKS`, the metric among them.
    """

    unit: ClassVar[str] = "node"
    """What is predicted: "node", "pair" or "graph"."""
    kind: ClassVar[str] = ""
    """What is predicted of a unit: a "class", "labels" or a "number"."""
    calibrates: ClassVar[bool] = False
    """Whether outputs are logits, which a temperature makes into probabilities to be trusted."""
    finds: tuple[str, ...] = ()
    """What `settle` finds, by name."""
    metrics: ClassVar[Mapping[str, Metric]] = {}
    """By the names that the settings have for them."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.metric = self.metrics[settings.metric]

    # --------------------------------------------------------------------- what is learnt from

    def accept(self, dataset: Dataset) -> None:
        """Refuse data from which this cannot be learnt, in words."""
        wanted, found = self.settings.target, dataset.target
        right = [kind.word for kind in tasks_for(dataset.unit, found)]
        if self.unit == "node" != dataset.unit:
            raise ValueError(
                "the target of this data is that of each graph, not of each node: use --task "
                + " or ".join(right)
            )
        if self.unit == "graph" != dataset.unit:
            raise ValueError(
                "the target of this data is that of each node, not of each graph: name the graph "
                "of each node with --graph-column, or use another --task"
            )
        if wanted and wanted != found:
            raise ValueError(
                f"the target is {targets.KINDS[found]} of each {dataset.unit}, and "
                f"{self.settings.word} learns {targets.KINDS[wanted]}: use --task "
                f"{' or '.join(right)}{', or make y floating' * (wanted == 'number')}"
            )
        if not self.known(self.target(dataset)).any():
            raise ValueError(
                f"no {self.unit} has a label, so there is nothing to learn: name the target"
            )

    def outputs(self, dataset: Dataset) -> int:
        """The `out_channels` of the network: the numbers that it gives for each unit."""
        raise NotImplementedError

    def network(self, settings: Any, in_channels: int, out_channels: int) -> nn.Module:
        """What is trained, with fresh weights: the model of the settings, or one around it."""
        return build(settings, in_channels, out_channels)

    def inputs(self, dataset: Dataset, known: Tensor | None = None) -> dict[str, Any]:
        """What the network takes besides x and the graph, by name.

        `known` [U, ...] is the target as far as a network may see it: that of training units.
        """
        return {}

    def target(self, dataset: Dataset) -> Tensor:
        """Of every unit, [U, ...]."""
        return dataset.y

    def known(self, target: Tensor) -> Tensor:
        """Units whose target [U, ...] is known: a mask [U]."""
        return targets.known(target)

    def split(self, dataset: Dataset, kind: str, seed: int) -> Split:
        """Training, validation and test units, masks [U]."""
        return dataset.split(kind, seed)

    def problem(self, dataset: Dataset, kind: str, seed: int) -> Problem:
        """What the run of a seed learns from."""
        split, target = self.split(dataset, kind, seed), self.target(dataset)
        known = targets.only(target, split.train)
        return Problem(dataset, target, split, self.inputs(dataset, known), known=known)

    def elsewhere(self, dataset: Dataset, known: Tensor | None = None) -> Problem:
        """A graph of which nothing is learnt: none of its units is in a part.

        `known` is the target that was learnt from, if its units are the first of this graph.
        """
        target = self.target(dataset)
        nobody = torch.zeros(len(target), dtype=torch.bool)
        seen = targets.only(target, nobody)
        if known is not None:
            seen[: len(known)] = known
        return Problem(
            dataset, target, Split(nobody, nobody, nobody), self.inputs(dataset, seen), known=seen
        )

    def check(self, target: Tensor, split: Split, names: Sequence[str] = ()) -> None:
        """Refuse parts on which the metric says nothing, before anything is trained.

        `names` are those of the classes or labels, C.
        """
        for part, mask in parts(split):
            if not mask.any():
                raise ValueError(f"there is no {part} {self.unit}: label more, or split otherwise")

    # --------------------------------------------------------------------- what outputs are worth

    def loss(self, model: nn.Module, target: Tensor, mask: Tensor, outputs: int) -> Loss:
        """A function of the network's outputs: what is minimised, on the units in the mask [U].

        It may draw random numbers, and may use parts of the model.
        """
        raise NotImplementedError

    def loss_of_some(self, target: Tensor, mask: Tensor, outputs: int) -> LossOfSome:
        """A function of the outputs [B, ...] of some units, and which they are [B]: the loss on
        them. `mask` [U] are all that training knows, for what does not go by the few of a batch.
        """
        raise NotImplementedError

    def counts(self, target: Tensor, mask: Tensor, outputs: int) -> Tensor:
        """How much each unit counts in the mean of the loss, [U]; arguments as in `loss_of_some`.

        The mean over some of a batch's units is a share of the batch's by this.
        """
        return torch.ones(len(target), device=target.device)

    def scores(self, model: nn.Module, target: Tensor, split: Split) -> Score:
        """A function of the network's outputs: the metric on train, val and test units, [3]."""
        return self.metric.on(target, split)

    def score(
        self, model: nn.Module, outputs: Tensor, target: Tensor, split: Split
    ) -> tuple[float, float, float]:
        """The scores as numbers; NaN if any output is not finite: such a model has no score."""
        scores = self.scores(model, target, split)(outputs)
        train, val, test = torch.where(outputs.isfinite().all(), scores, torch.nan).tolist()
        return train, val, test

    # --------------------------------------------- what is known in the end, in numpy

    def correction(self, outputs: np.ndarray, problem: Problem) -> dict[str, float]:
        """How outputs [U, ...] get better by what is known of training units, found once, when
        training ends: by names that `runs.folder.RunResult` has; nothing if they do not."""
        return {}

    def corrected(
        self, outputs: np.ndarray, found: Mapping[str, Any], problem: Problem
    ) -> np.ndarray:
        """Outputs [U, ...] as everybody is told them: with the correction that was found."""
        return outputs

    def settle(self, outputs: np.ndarray, target: np.ndarray, split: Split) -> dict[str, Any]:
        """What is found once, when training ends, so that outputs [U, ...] become answers: by
        names that `runs.folder.RunResult` has."""
        return {}

    def derived(self, target: np.ndarray, split: Split) -> dict[str, Any]:
        """What answers need besides and what the target [U, ...] says at any time: not stored."""
        return {}

    def names(self, dataset: Dataset) -> tuple[str, ...]:
        """Of the classes or labels, C; none of numbers."""
        return dataset.classes

    def unit_ids(self, problem: Problem) -> list[str]:
        """What the units are called, U."""
        return problem.dataset.unit_ids

    def answers(
        self,
        outputs: np.ndarray,
        target: np.ndarray,
        found: Mapping[str, Any],
        names: Sequence[str],
    ) -> Answers:
        """What is predicted, as people have it; `found` is what `settle` gave."""
        raise NotImplementedError

    def decide(
        self,
        asked: Asked,
        found: Mapping[str, Any],
        outputs: np.ndarray,
        target: np.ndarray,
        split: Split,
        names: Sequence[str],
    ) -> tuple[dict[str, Any], Decided | None]:
        """Other answers than the most probable, see `deciding`: `found` with what makes them, and
        what they are worth, unless `calibration` says that."""
        raise NotImplementedError

    def calibration(
        self, found: Mapping[str, Any], outputs: np.ndarray, target: np.ndarray, split: Split
    ) -> Calibration | Intervals:
        """How far answers can be trusted, on validation and test units."""
        raise NotImplementedError

    def quality(
        self, outputs: np.ndarray, target: np.ndarray, found: Mapping[str, Any]
    ) -> AnyQuality:
        """More scores of some units: outputs [n, ...], target [n, ...]."""
        raise NotImplementedError

    # -------------------------------------------------------------------- where `calibrates`

    def probabilities(self, logits: np.ndarray, found: Mapping[str, Any]) -> np.ndarray:
        """[U, C] -> [U, C], as they can be trusted."""
        raise NotImplementedError

    def reliability(
        self, logits: np.ndarray, target: np.ndarray, found: Mapping[str, Any]
    ) -> list[Bin]:
        """How often units of like confidence are right: logits [n, C], target [n, ...]."""
        raise NotImplementedError


def parts(split: Split) -> zip[tuple[str, Tensor]]:
    """The parts of a split by what people call them, with their masks [U]."""
    return zip(("training", "validation", "test"), split, strict=True)
