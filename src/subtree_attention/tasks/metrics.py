"""Losses and scores, on the device and without a wait for the host.

Each is made once for the units that it is about, and is then a function of all outputs: shapes do
not change from epoch to epoch, so a GPU can replay them. Targets are

    classes   int64 [U], outputs are logits [U, C]
    labels    float [U, C], 1 where a unit has a label, 0 where not, NaN where that is not known;
              outputs are logits [U, C], and a label is given where the logit is above 0
    numbers   float [U], NaN where it is not known; outputs are numbers [U]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ..datasets import Split
from .ranking import HITS, mrr

Loss = Callable[[Tensor], Tensor]
LossOfSome = Callable[[Tensor, Tensor], Tensor]
Score = Callable[[Tensor], Tensor]


def accuracy(labels: Tensor, masks: Tensor) -> Score:
    """Share of nodes whose largest logit is the right one: labels [N], masks [S, N] -> [S]."""
    weights, sizes = masks.double(), masks.sum(1)

    def score(logits: Tensor) -> Tensor:
        return weights @ (logits.argmax(-1) == labels).double() / sizes

    return score


def macro_f1(labels: Tensor, masks: Tensor) -> Score:
    """Mean over classes of the harmonic mean of precision and recall: labels [U], masks [S, U].

    Over the classes that occur in a mask, truly or by prediction.
    """
    weights, truth = masks.double(), labels.clamp(min=0)

    def score(logits: Tensor) -> Tensor:
        given = logits.argmax(-1)

        def count(some: Tensor, classes: Tensor) -> Tensor:
            """[S, U] units by their classes [U] -> [S, C], without a table of units and classes."""
            nothing = some.new_zeros(len(some), logits.size(-1))
            return nothing.index_add_(1, classes, some)  # whole numbers: exact in any order

        both = count(weights * (given == truth), truth)
        return (2 * both / (count(weights, given) + count(weights, truth))).nanmean(-1)

    return score


def roc_auc(labels: Tensor, masks: Tensor) -> Score:
    """Area under the ROC curve: labels [U], masks [S, U] -> [S].

    The share of pairs of a positive and a negative unit that are in the right order, ties counted
    half. Of two classes it is the same for either; of more, the mean of each against the rest, over
    those that occur. NaN if only one class is present.
    """
    return _one_against_the_rest(_areas, labels, masks)


def average_precision(labels: Tensor, masks: Tensor) -> Score:
    """Mean precision over the ranks of the positive units: labels [U], masks [S, U] -> [S].

    Of two classes, that of the rarer one over all masks, which is what one looks for; of more, see
    `roc_auc`.
    """
    return _one_against_the_rest(_precisions, labels, masks, rarer(labels, masks.any(0)))


def link_average_precision(labels: Tensor, masks: Tensor) -> Score:
    """The same of links, which are class 1, however many of them there are."""
    return _one_against_the_rest(_precisions, labels, masks)


def rarer(labels: Tensor, mask: Tensor) -> Tensor:
    """Which of classes 0 and 1 fewer units in a mask [U] have, [1]; the second of equals."""
    first, second = ((mask & (labels == number)).sum() for number in (0, 1))
    return (second <= first).long()[None]


def _one_against_the_rest(
    of: Callable[[Tensor, Tensor, Tensor], Tensor],
    labels: Tensor,
    masks: Tensor,
    positive: Tensor | None = None,
) -> Score:
    """A score of rankings, for classes; `positive` [1] is which of two counts, else the second."""

    def score(logits: Tensor) -> Tensor:
        chosen = torch.arange(logits.size(-1), device=logits.device)
        if len(chosen) == 2:
            chosen = chosen[1:] if positive is None else positive
        ranks = log_odds(logits)[:, chosen].t().contiguous()  # [C, U]
        truth = labels == chosen[:, None]
        return of(ranks, masks[:, None] & truth, masks[:, None] & ~truth).nanmean(-1)

    return score


def log_odds(logits: Tensor) -> Tensor:
    """The logarithm of p / (1 - p) of each class by itself, [U, C] -> [U, C], in float64.

    It ranks as probabilities do, but these are 1, and so tied, from a logit of 37 on.
    """
    logits = logits.double()
    best, at = logits.max(-1, keepdim=True)
    # In an order that does not hang on that of the classes: what is tied stays so, to the bit.
    behind = logits - best
    rest = behind.scatter(-1, at, -torch.inf)
    ranked = rest.sort(-1).values
    others = (ranked.exp().sum(-1, keepdim=True) - rest.exp()).log1p()
    return behind - others.scatter(-1, at, ranked.logsumexp(-1, keepdim=True))


def label_macro_f1(labels: Tensor, masks: Tensor) -> Score:
    """`macro_f1` of labels [U, C]: the mean over labels that occur, truly or by prediction."""
    known = masks[..., None] & ~labels.isnan()
    return lambda logits: _f1(logits > 0, labels == 1, known).nanmean(-1)


def label_micro_f1(labels: Tensor, masks: Tensor) -> Score:
    """Harmonic mean of precision and recall over all units and labels at once: labels [U, C]."""
    known = (masks[..., None] & ~labels.isnan()).flatten(1)[..., None]  # [S, U C, 1]

    def score(logits: Tensor) -> Tensor:
        return _f1((logits > 0).reshape(-1, 1), (labels == 1).reshape(-1, 1), known)[:, 0]

    return score


def label_roc_auc(labels: Tensor, masks: Tensor) -> Score:
    """Mean area under the ROC curve over the labels [U, C] that some units have and some not."""
    return _of_labels(_areas, labels, masks)


def label_average_precision(labels: Tensor, masks: Tensor) -> Score:
    """Mean average precision over the labels [U, C] that some unit has."""
    return _of_labels(_precisions, labels, masks)


def _of_labels(
    of: Callable[[Tensor, Tensor, Tensor], Tensor], labels: Tensor, masks: Tensor
) -> Score:
    """A score of rankings, for labels."""
    positive, negative = (masks[:, None] & (labels.t() == value) for value in (1, 0))
    return lambda logits: of(logits.double().t().contiguous(), positive, negative).nanmean(-1)


def _f1(given: Tensor, truth: Tensor, counted: Tensor) -> Tensor:
    """2 TP / (2 TP + FP + FN) of each label: [U, C], [U, C] and [S, U, C] -> [S, C]; NaN where
    nothing is given and nothing is true."""
    both = (counted & given & truth).sum(1)
    either = (counted & given).sum(1) + (counted & truth).sum(1)
    return 2 * both.double() / either


def _areas(scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """Areas under ROC curves: scores [C, U], positive and negative units [S, C, U] -> [S, C]."""
    ranked, order = scores.sort()
    pairs = positive.sum(-1) * negative.sum(-1)
    order = order.expand_as(positive)
    # Negatives below each rank; equal scores share the ranks from `first` to `last`.
    below = F.pad(negative.gather(-1, order).long().cumsum(-1), (1, 0))  # [S, C, U + 1]
    first = torch.searchsorted(ranked, ranked).expand_as(order)
    last = torch.searchsorted(ranked, ranked, right=True).expand_as(order)
    twice = below.gather(-1, first) + below.gather(-1, last)
    return (positive.gather(-1, order) * twice).sum(-1).double() / (2 * pairs)


def _precisions(scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """Average precisions, of the same; equal scores are one threshold."""
    ranked, order = scores.sort()
    order = order.expand_as(positive)
    hit = positive.gather(-1, order)
    # Units at or above each rank's score: all but those below the first that is equal.
    first = torch.searchsorted(ranked, ranked).expand_as(order)
    hits, all_of_them = (
        some.sum(-1, keepdim=True) - F.pad(some.cumsum(-1), (1, 0)).gather(-1, first)
        for some in (hit.long(), (positive | negative).gather(-1, order).long())
    )
    return (hit * hits.double() / all_of_them.clamp(min=1)).sum(-1) / hit.sum(-1)


def r2(target: Tensor, masks: Tensor) -> Score:
    """Share of the variance that is explained: target [U], masks [S, U] -> [S]; at most 1."""
    truth, weights = target.double().nan_to_num(), masks.double()
    means = (weights @ truth / masks.sum(1))[:, None]
    whole = (weights * (truth - means).square()).sum(1)
    return lambda given: 1 - weights @ (given.double() - truth).square() / whole


def mae(target: Tensor, masks: Tensor) -> Score:
    """Mean absolute error: target [U], masks [S, U] -> [S]."""
    truth, weights, sizes = target.double().nan_to_num(), masks.double(), masks.sum(1)
    return lambda given: weights @ (given.double() - truth).abs() / sizes


def rmse(target: Tensor, masks: Tensor) -> Score:
    """Square root of the mean squared error: target [U], masks [S, U] -> [S]."""
    truth, weights, sizes = target.double().nan_to_num(), masks.double(), masks.sum(1)
    return lambda given: (weights @ (given.double() - truth).square() / sizes).sqrt()


def _one_hot(labels: Tensor, classes: int) -> Tensor:
    """[N] -> [N, C]; a label that is not known (-1) counts in no mask."""
    return F.one_hot(labels.clamp(min=0), classes)


def cross_entropy(
    labels: Tensor, mask: Tensor, classes: int, weights: Tensor | None = None
) -> Loss:
    """Mean cross-entropy of the nodes in the mask: labels, mask [N].

    With weights [C], each node counts by that of its class.
    """
    counted = mask if weights is None else mask * weights[labels.clamp(min=0)]
    target = _one_hot(labels, classes) * counted[:, None] / counted.sum()

    def loss(logits: Tensor) -> Tensor:
        return -(F.log_softmax(logits, -1) * target.to(logits)).sum()

    return loss


def balanced(labels: Tensor, mask: Tensor, classes: int) -> Tensor:
    """Weights [C] with which each class that occurs in a mask [N] counts alike; their mean over the
    nodes is 1. A class that does not occur has weight 1."""
    sizes = torch.bincount(labels[mask], minlength=classes).double()
    return torch.where(sizes > 0, sizes.sum() / ((sizes > 0).sum() * sizes.clamp(min=1)), 1.0)


def binary(labels: Tensor, mask: Tensor, classes: int) -> Loss:
    """Mean binary cross-entropy over the one-hot columns, as released for Deezer."""
    target, weight = _one_hot(labels, classes).float(), mask[:, None] / (mask.sum() * classes)

    def loss(logits: Tensor) -> Tensor:
        known, share = target.to(logits), weight.to(logits)
        return F.binary_cross_entropy_with_logits(logits, known, share, reduction="sum")

    return loss


def label_binary(labels: Tensor, mask: Tensor) -> Loss:
    """Mean binary cross-entropy over the labels [U, C] of the mask [U] that are known."""
    known = mask[:, None] & ~labels.isnan()
    target, weight = labels.nan_to_num(), known / known.sum()

    def loss(logits: Tensor) -> Tensor:
        own, share = target.to(logits), weight.to(logits)
        return F.binary_cross_entropy_with_logits(logits, own, share, reduction="sum")

    return loss


def of_some(loss: Callable[[Tensor, Tensor], Loss], target: Tensor) -> LossOfSome:
    """A loss that is made of a target and a mask, for batches: of the outputs [B, ...] of some
    units, and which they are [B]."""

    def on(outputs: Tensor, rows: Tensor) -> Tensor:
        some = target[rows]
        return loss(some, torch.ones_like(rows, dtype=torch.bool))(outputs)

    return on


def distance(kind: str, target: Tensor, mask: Tensor) -> Loss:
    """Mean distance of numbers [U] from the target [U] on the mask [U]: see `DISTANCES`."""
    of, truth, weight = DISTANCES[kind], target.nan_to_num(), mask / mask.sum()
    return lambda given: (of(given, truth.to(given), reduction="none") * weight.to(given)).sum()


DISTANCES: dict[str, Callable[..., Tensor]] = {
    "mse": F.mse_loss,
    "huber": F.huber_loss,
    "l1": F.l1_loss,
}
"""Squared; squared up to 1 and absolute beyond; absolute."""


@dataclass(frozen=True)
class Metric:
    """A score: what it is called, which way is better, and how it is written.

    Attributes:
        name: in a configuration.
        title: for people.
        scores: `(target [U, ...], masks [S, U])` -> a function of the outputs that gives [S].
        sign: 1 where higher is better, -1 where lower is.
        unit, scale, form: in which it is written, how many of them one is, and with which digits.
        contrasts: whether it says nothing of a part in which all units are alike.
    """

    name: str
    title: str
    scores: Callable[[Tensor, Tensor], Score]
    sign: int = 1
    unit: str = "%"
    scale: float = 100
    form: str = ".2f"
    contrasts: bool = False

    def on(self, target: Tensor, split: Split, more: Tensor | None = None) -> Score:
        """A function of outputs: the scores of train, val and test units, [3]; and of further
        masks [S, U], [3 + S].

        All parts of a split go in together, also where one is looked at alone: they say which of
        two classes is the rarer one.
        """
        masks = torch.stack(tuple(split))
        return self.scores(target, masks if more is None else torch.cat([masks, more]))

    @property
    def label(self) -> str:
        """Title and unit, for the head of a table."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def show(self, value: float | None) -> str:
        """A score as it is printed, without its unit."""
        nothing = value is None or math.isnan(value)
        return "-" if nothing else format(self.scale * value, self.form)  # type: ignore[operator]

    def told(self, value: float | None) -> str:
        """The same, with its unit."""
        return f"{self.show(value)} {self.unit}".strip()


def _named(*metrics: Metric) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics}


CLASS_METRICS = _named(
    Metric("accuracy", "accuracy", accuracy),
    Metric("macro_f1", "macro F1", macro_f1),
    Metric("roc_auc", "ROC-AUC", roc_auc, contrasts=True),
    Metric("average_precision", "average precision", average_precision, contrasts=True),
)
LABEL_METRICS = _named(
    replace(CLASS_METRICS["average_precision"], scores=label_average_precision),
    replace(CLASS_METRICS["roc_auc"], scores=label_roc_auc),
    replace(CLASS_METRICS["macro_f1"], scores=label_macro_f1),
    Metric("micro_f1", "micro F1", label_micro_f1),
)
NUMBER_METRICS = _named(
    Metric("r2", "R2", r2, unit="", scale=1, form=".4f", contrasts=True),
    Metric("mae", "MAE", mae, sign=-1, unit="", scale=1, form=".4g"),
    Metric("rmse", "RMSE", rmse, sign=-1, unit="", scale=1, form=".4g"),
)
LINK_METRICS = _named(
    *(Metric(name, name.capitalize(), scores) for name, scores in HITS.items()),
    Metric("mrr", "MRR", mrr),
    CLASS_METRICS["roc_auc"],
    replace(CLASS_METRICS["average_precision"], scores=link_average_precision),
)
METRICS = {**LINK_METRICS, **LABEL_METRICS, **NUMBER_METRICS, **CLASS_METRICS}
"""By name, for whoever only shows scores."""
LOSSES = {"cross_entropy": cross_entropy, "binary": binary}
