"""Classes of very different sizes: what models are chosen by then, and why, in words.

Where one class has nearly all units, whoever always answers it is nearly always right: accuracy
says little, and a model that is chosen by it may never name another class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from .metrics import CLASS_METRICS

if TYPE_CHECKING:
    from ..config import TaskSettings
    from ..datasets import Dataset

MOST = 0.8
"""Of the units with a class, the share of the largest above which accuracy is not taken."""
FEW = 15
"""Units of the rarer of two classes below which its average precision is not taken: validation
would have two of them or so, and the score would jump."""


class Balance(NamedTuple):
    """The largest class and its share of the units with a class; and the smallest."""

    largest: str
    share: float
    smallest: str

    @property
    def uneven(self) -> bool:
        return self.share > MOST


def balance(dataset: Dataset) -> Balance | None:
    """How even the classes of a dataset are; None where its target is none, or nothing is known."""
    if dataset.target != "class" or not bool(dataset.known.any()):
        return None
    sizes = torch.bincount(dataset.y[dataset.known], minlength=dataset.num_classes)
    largest, names = int(sizes.argmax()), dataset.classes
    smallest = int(torch.where(sizes > 0, sizes, sizes.max() + 1).argmin())
    return Balance(names[largest], int(sizes[largest]) / int(sizes.sum()), names[smallest])


def by_balance(dataset: Dataset) -> str | None:
    """What models of one's own classes are chosen by, if not by accuracy: of two classes the
    average precision of the rarer one, of more macro F1."""
    found = balance(dataset)
    if found is None or not found.uneven or not dataset.own:
        return None
    split = dataset.split("own") if "own" in dataset.splits else ()
    told_apart = all(len(dataset.y[mask].unique()) == 2 for mask in split)
    enough = int((dataset.y == dataset.classes.index(found.smallest)).sum()) >= FEW
    if dataset.num_classes == 2 and told_apart and enough:
        return "average_precision"
    return "macro_f1"


def metric_in_words(dataset: Dataset, task: TaskSettings) -> str | None:
    """What models are chosen by, where classes are so uneven that it matters; else None."""
    found, instead = balance(dataset), by_balance(dataset)
    if found is None or instead is None or task.target != "class":
        return None
    share = f"{100 * found.share:.1f} %"
    much = f"class '{found.largest}' has {share} of the {dataset.unit}s"
    if task.metric == "accuracy":
        return (
            f"{much}: who always answers it has that accuracy. --metric {instead} chooses models "
            f"by {CLASS_METRICS[instead].title}"
        )
    title = CLASS_METRICS[task.metric].title
    if task.metric == "average_precision" and dataset.num_classes == 2:
        title = f"the average precision of class '{found.smallest}'"
    return f"{much}: models are chosen by {title}, not by accuracy (--metric accuracy does that)"
