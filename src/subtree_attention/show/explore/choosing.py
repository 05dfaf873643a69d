"""Which nodes of a run are looked at: those of a split, of some classes, or its mistakes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ... import _check
from ...datasets import Split
from ...tasks.quality import most_confused

SPLITS = ("test", "val", "train", "unlabelled", "other")
"""Every node is in one of them; "other" has a label and is in no part."""
ALL = "all"
NO_CLASS = 2**16 - 1
"""In place of a class that is not known."""
CLASSES_SHOWN = 15
"""Classes up to which the confusion matrix is a table; of more, the worst pairs are listed."""
PAIRS_SHOWN = 20


class Choosing:
    """What nodes can be chosen by.

    Args:
        classes: their names.
        target: the true class of each node, int [N], -1 where it is not known.
        given: the predicted class, int [N].
        split: which nodes are for what.
    """

    def __init__(
        self, classes: Sequence[str], target: np.ndarray, given: np.ndarray, split: Split
    ) -> None:
        self._classes = list(classes)
        self._place = {name: place for place, name in enumerate(classes)}
        self._target, self._given = target, given
        self._known, self._wrong = target >= 0, (target >= 0) & (target != given)
        in_no_part = np.where(self._known, SPLITS.index("other"), SPLITS.index("unlabelled"))
        self._split = in_no_part.astype(np.uint8)
        for name in ("test", "val", "train"):  # a node of two parts counts as of the first
            self._split[getattr(split, name).numpy()] = SPLITS.index(name)

    def nodes(
        self,
        split: str = ALL,
        true: Collection[str] = (),
        predicted: Collection[str] = (),
        mistakes: bool = False,
    ) -> np.ndarray:
        """A mask, bool [N].

        Args:
            split: one of `SPLITS`, or "all".
            true: names of classes that nodes may be of; any if there are none.
            predicted: the same of the class that is predicted.
            mistakes: only nodes that are predicted wrongly.
        """
        _check.known("split", split, (*SPLITS, ALL))
        mask = np.ones(len(self._split), bool)
        if split != ALL:
            mask &= self._split == SPLITS.index(split)
        for of, names in ((self._target, true), (self._given, predicted)):
            if names:
                mask &= np.isin(of, [self._class(name) for name in names])
        return mask & self._wrong if mistakes else mask

    def counts(self) -> list[dict[str, Any]]:
        """Nodes, known labels and right answers of each split that has nodes, and of all."""
        told = []
        for name in (*SPLITS, ALL):
            mask = self.nodes(name)
            known, wrong = int(self._known[mask].sum()), int(self._wrong[mask].sum())
            if mask.any():
                told.append({"name": name, "nodes": int(mask.sum()), "known": known})
                told[-1] |= {"right": known - wrong}
        return told

    def confusion(self, split: str) -> dict[str, Any]:
        """Nodes by true class (rows) and predicted class; of many classes the worst pairs."""
        mask, classes = self.nodes(split) & self._known, len(self._classes)
        pairs = self._target[mask] * classes + self._given[mask]
        counts = np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)
        if classes <= CLASSES_SHOWN:
            return {"counts": counts.tolist()}
        worst = most_confused(counts, PAIRS_SHOWN)
        return {"pairs": [(self._classes[i], self._classes[j], nodes) for i, j, nodes in worst]}

    def points(self) -> bytes:
        """True class and predicted class, uint16 [N] each, then the split, uint8 [N]."""
        true = np.where(self._known, self._target, NO_CLASS)
        each = (true.astype("<u2"), self._given.astype("<u2"), self._split)
        return b"".join(array.tobytes() for array in each)

    def _class(self, name: str) -> int:
        return self._place[_check.known("class", name, self._classes)]
