"""Classification: the class of every unit, by the largest of its logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ..graph import Graph
from ..nn import KnownLabels, NodeNetwork
from . import calibration as calibrating
from . import deciding, smooth
from .answers import OfClasses
from .calibration import Bin, Calibration
from .deciding import Asked, Decided
from .metrics import (
    CLASS_METRICS,
    LOSSES,
    Loss,
    LossOfSome,
    balanced,
    cross_entropy,
    of_some,
    rarer,
)
from .quality import AnyQuality, quality
from .task import Problem, Task, parts

if TYPE_CHECKING:
    from ..datasets import Dataset, Split


class Tempered(Task):
    """Whatever is decided between classes by logits: one temperature makes all of them as sure as
    they are right. As it stands a unit is one decision."""

    calibrates = True
    finds: tuple[str, ...] = ("temperature",)

    def outputs(self, dataset: Dataset) -> int:
        """A logit for each class, or for each label."""
        return dataset.num_classes

    def decisions(self, logits: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is decided, by logits [n, C], and what is right, [n]."""
        return logits, target

    def settle(self, outputs: np.ndarray, target: np.ndarray, split: Split) -> dict[str, Any]:
        val = split.val.cpu().numpy()
        decided = self.decisions(outputs[val], target[val])
        return {"temperature": calibrating.best_temperature(*decided)}

    def calibrated(self, logits: np.ndarray, found: Mapping[str, Any]) -> np.ndarray:
        """Logits [n, C] of probabilities that can be trusted."""
        return logits / found["temperature"] + np.array(found.get("offsets", 0.0))

    def calibration(
        self, found: Mapping[str, Any], outputs: np.ndarray, target: np.ndarray, split: Split
    ) -> Calibration:
        def trust(mask: np.ndarray) -> calibrating.Trust:
            some, truth = outputs[mask], target[mask]
            after, right = self.decisions(self.calibrated(some, found), truth)
            return calibrating.trust(self.decisions(some, truth)[0], after, right)

        val, test = (trust(mask.cpu().numpy()) for mask in (split.val, split.test))
        return Calibration(found["temperature"], val, test, "offsets" in found)

    def decide(
        self,
        asked: Asked,
        found: Mapping[str, Any],
        outputs: np.ndarray,
        target: np.ndarray,
        split: Split,
        names: Sequence[str],
    ) -> tuple[dict[str, Any], Decided]:
        deciding.refuse(asked, self.kind, names)
        answers = self.answers(outputs, target, found, names)
        return deciding.decide(asked, answers, found, split)

    def reliability(
        self, logits: np.ndarray, target: np.ndarray, found: Mapping[str, Any]
    ) -> list[Bin]:
        decided, right = self.decisions(self.calibrated(logits, found), target)
        return calibrating.reliability(calibrating.softmax(decided), right)


class Classification(Tempered):
    """Of units of any kind: targets are int64 [U], -1 where the class is not known."""

    kind = "class"
    metrics = CLASS_METRICS

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self.weighs = getattr(settings, "class_weights", "none") == "balanced"
        if self.weighs:
            self.finds = ("temperature", "offsets")

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
        return self._loss(target, mask, outputs)(mask)

    def loss_of_some(self, target: Tensor, mask: Tensor, outputs: int) -> LossOfSome:
        return of_some(self._made(target, mask, outputs), target)

    def counts(self, target: Tensor, mask: Tensor, outputs: int) -> Tensor:
        if not self.weighs:
            return super().counts(target, mask, outputs)
        return balanced(target, mask, outputs)[target.clamp(min=0)]

    def _loss(self, target: Tensor, mask: Tensor, outputs: int) -> Callable[[Tensor], Loss]:
        """The loss on the units of any mask [U], which is a part of the training units in `mask`;
        classes have the weights that these give them."""
        made = self._made(target, mask, outputs)
        return lambda some: made(target, some)

    def _made(self, target: Tensor, mask: Tensor, outputs: int) -> Callable[[Tensor, Tensor], Loss]:
        """The loss of any target and mask, with the weights of classes that these give them."""
        if self.weighs:
            weights = balanced(target, mask, outputs)
            return lambda some, which: cross_entropy(some, which, outputs, weights)
        return lambda some, which: LOSSES[self.settings.loss](some, which, outputs)

    def settle(self, outputs: np.ndarray, target: np.ndarray, split: Split) -> dict[str, Any]:
        """The temperature; where classes have weights, also what undoes these in probabilities."""
        if not self.weighs:
            return super().settle(outputs, target, split)
        val, truth = split.val.cpu().numpy(), torch.from_numpy(target)
        weights = balanced(truth, split.train.cpu(), outputs.shape[1]).numpy()
        heat, offsets = calibrating.best_correction(outputs[val], target[val], weights)
        return {"temperature": heat, "offsets": offsets.tolist()}

    def derived(self, target: np.ndarray, split: Split) -> dict[str, Any]:
        """Which of two classes is looked for: the rarer one, as the metric has it."""
        anywhere = torch.stack([mask.cpu() for mask in split]).any(0)
        return {"positive": int(rarer(torch.from_numpy(target), anywhere))}

    def probabilities(self, logits: np.ndarray, found: Mapping[str, Any]) -> np.ndarray:
        return calibrating.softmax(self.calibrated(logits, found))

    def answers(
        self,
        outputs: np.ndarray,
        target: np.ndarray,
        found: Mapping[str, Any],
        names: Sequence[str],
    ) -> OfClasses:
        shares, given = self.probabilities(outputs, found), outputs.argmax(1)
        weighed = calibrating.softmax(outputs / found["temperature"]) if self.weighs else None
        return deciding.apply(OfClasses(names, shares, target, given, weighed=weighed), found)

    def quality(
        self, outputs: np.ndarray, target: np.ndarray, found: Mapping[str, Any]
    ) -> AnyQuality:
        """More scores of some units: logits [n, C], labels [n]."""
        given, logits = outputs.argmax(1), self.calibrated(outputs, found)
        return quality(logits, target, given, found.get("positive", 1))


class NodeClassification(Classification):
    """The class of every node; the network may be shown classes of training nodes, and may stand on
    a reference, whose logarithms are the input "offset" [N, C]."""

    def network(self, settings: Any, in_channels: int, out_channels: int) -> nn.Module:
        shows, leans = self.settings.show_labels > 0, self.settings.reference != ""
        labels = out_channels + 1 if shows else 0
        model = super().network(settings, in_channels + labels, out_channels)
        return NodeNetwork(model, out_channels, shows, leans) if shows or leans else model

    def inputs(self, dataset: Dataset, known: Tensor | None = None) -> dict[str, Any]:
        share = self.settings.show_labels
        if not share:
            return {}
        nothing = torch.full((dataset.num_nodes,), -1)
        return {"labels": KnownLabels(nothing if known is None else known, share)}

    def correction(self, outputs: np.ndarray, problem: Problem) -> dict[str, float]:
        if not self.settings.correct or problem.known is None:
            return {}
        target, split = problem.target.cpu(), problem.split.to(torch.device("cpu"))
        given = torch.from_numpy(outputs), problem.known.cpu(), _averaging(problem)
        found = smooth.search(*given, self.metric, target, split)
        return {} if found is None else found._asdict()

    def corrected(
        self, outputs: np.ndarray, found: Mapping[str, Any], problem: Problem
    ) -> np.ndarray:
        """Logits [N, C]; on a graph of which no class is known they are the model's own."""
        how = {name: found[name] for name in smooth.Correction._fields if name in found}
        if not how or problem.known is None or not bool((problem.known >= 0).any()):
            return outputs
        given = torch.from_numpy(outputs), problem.known.cpu(), _averaging(problem)
        return outputs + smooth.Spreading(*given).added(smooth.Correction(**how)).numpy()

    def check(self, target: Tensor, split: Split, names: Sequence[str] = ()) -> None:
        super().check(target, split, names)
        if self.settings.show_labels and int(split.train.sum()) < 2:
            raise ValueError(
                "show_labels shows some training labels and learns from the others: one training "
                "node is not enough"
            )

    def loss(self, model: nn.Module, target: Tensor, mask: Tensor, outputs: int) -> Loss:
        """Where labels are shown, on the nodes whose labels the step did not see."""
        if not isinstance(model, NodeNetwork) or not model.shows:
            return super().loss(model, target, mask, outputs)
        on = self._loss(target, mask, outputs)
        return lambda logits: on(model.asked)(logits)


def _averaging(problem: Problem) -> Graph:
    """The graph of a problem on which a node hears the mean of its neighbours."""
    return Graph.from_data(problem.dataset, "mean")
