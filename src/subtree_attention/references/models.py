"""References that are fitted: linear models and trees, of own columns or also of neighbours'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import linear, trees
from .aims import Aim, Shown
from .columns import Columns, View
from .linear import Block, Linear
from .neighbours import SHARE_FOLDS, drawn_folds
from .trees import Trees

if TYPE_CHECKING:
    from ..datasets import Dataset


class Kind(NamedTuple):
    """Whether it is made of trees, and which columns it takes: see `Columns.kind`."""

    trees: bool
    columns: str


KINDS = {
    "logistic": Kind(False, "own"),
    "logistic_neighbours": Kind(False, "linear"),
    "trees": Kind(True, "own"),
    "trees_neighbours": Kind(True, "trees"),
}


class Effort(NamedTuple):
    """How much is tried at most: trees of each class, and penalties of linear models."""

    rounds: int = trees.ROUNDS
    penalties: Sequence[float] = linear.PENALTIES


ALL = Effort()


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted reference of nodes: how its columns are made, and what is made of them."""

    columns: Columns
    predictor: Linear | Trees

    def __call__(self, dataset: Dataset, shown: Shown) -> np.ndarray:
        """Outputs [N, C] for a graph of which some labels are shown."""
        return self.predictor(self.columns.blocks(dataset, shown))


def fit(
    name: str,
    view: View,
    shown: Shown,
    aim: Aim,
    score: Callable[[np.ndarray], float],
    until: float = np.inf,
    seed: int = 0,
    effort: Effort = ALL,
) -> tuple[Model, np.ndarray]:
    """A model of `KINDS`, and its outputs [N, C]; those of shown nodes know their labels.

    Args:
        name: which.
        view: the graph.
        shown: labels of training nodes: no other is looked at, but for the validation score.
        aim: which has the validation nodes.
        score: of the outputs, on these; larger is better.
        until: when to do with what is there, as `time.monotonic` tells.
        seed: of what is drawn.
        effort: how much is tried.
    """
    kind = KINDS[name]
    folds = drawn_folds(shown.rows, len(shown.values), SHARE_FOLDS, seed)
    columns, blocks = Columns.fit(kind.columns, view, shown, folds)
    predictor = fit_columns(kind.trees, blocks, shown, aim, score, until, seed, effort)
    return Model(columns, predictor), predictor(blocks)


def fit_columns(
    of_trees: bool,
    blocks: Sequence[Block],
    shown: Shown,
    aim: Aim,
    score: Callable[[np.ndarray], float],
    until: float = np.inf,
    seed: int = 0,
    effort: Effort = ALL,
) -> Linear | Trees:
    """The same of columns [U, F] that are there, of units of any kind."""
    if of_trees:
        return trees.fit(blocks, shown, aim, until, seed, effort.rounds)
    return linear.fit(blocks, shown, aim, score, until, effort.penalties)
