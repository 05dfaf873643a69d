"""Boosted trees on a page's own columns and the mean of its neighbours': no network at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse

from experiments.reproduce.jobs import Direct
from subtree_attention import tasks
from subtree_attention.config import MODELS, Config, Settings, option
from subtree_attention.datasets import Dataset
from subtree_attention.graph import Graph

RARE = 20
"""A column with fewer entries tells trees nothing."""


@dataclass(frozen=True)
class TreesSettings(Settings):
    """The options of the trees, which learn at the learning rate."""

    name: ClassVar[str] = "trees"
    title: ClassVar[str] = "boosted trees"
    trees: int = option(200, "How many are grown.", least=1)
    leaves: int = option(31, "Leaves of a tree.", least=2)
    l2: float = option(0.0, "Penalty on leaves.")
    neighbours: bool = option(True, "Also the mean of the neighbours' columns.")
    columns: float = option(1.0, "Share of the columns that a split may look at.")


MODELS[TreesSettings.name] = TreesSettings


def grow(data: Dataset, config: Config, seed: int) -> Direct:
    """Grow trees; the best number of them by the validation part is what counts.

    Scores are R2 on the scale that the task learns on, as of the networks.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    problem = tasks.of(config.task).problem(data, config.data.split, seed)
    y, settings = problem.target.double().numpy(), config.model
    train, val, test = (mask.numpy() for mask in problem.split)
    x = columns_of(data, settings.neighbours)
    trees = HistGradientBoostingRegressor(
        learning_rate=config.fit.lr,
        max_iter=settings.trees,
        max_leaf_nodes=settings.leaves,
        l2_regularization=settings.l2,
        max_features=settings.columns,
        early_stopping=False,
        random_state=seed,
    ).fit(x[train], y[train])
    train_curve, curve, test_curve = (
        _r2(trees.staged_predict(x[part]), y[part]) for part in (train, val, test)
    )
    best = int(np.argmax(curve))
    return Direct(train_curve[best], curve[best], test_curve[best], best + 1, len(curve))


def columns_of(data: Dataset, neighbours: bool) -> np.ndarray:
    """Own columns, the number of neighbours, and the mean of the neighbours' columns: [N, F]."""
    dense = data.features.to_dense().numpy()
    own = dense[:, (dense != 0).sum(0) >= RARE]
    mean = Graph.from_data(data, transition="mean").to_scipy()
    degree = np.diff(scipy.sparse.csr_matrix(mean).indptr)[:, None]
    return np.hstack([own, degree, mean @ own] if neighbours else [own])


def _r2(staged: Iterable[np.ndarray], truth: np.ndarray) -> list[float]:
    """Of the predictions after every tree."""
    spread = float(np.square(truth - truth.mean()).sum())
    return [1 - float(np.square(truth - each).sum()) / spread for each in staged]
