"""Boosted trees of columns, by LightGBM: scikit-learn's take no sparse columns."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.sparse

from .aims import Aim, Shown
from .linear import Block, intercept

MISSING = 'LightGBM is not installed: pip install "subtree-attention[references]"'
ROUNDS, PATIENCE = 200, 12
"""Trees at most (of each class), and without a better validation loss."""
RATE = 0.1
FEW_ROWS = 20_000
"""For each thread: two on busy cores took three times the processor time of one for 12,000 rows."""


def missing() -> str:
    """Why there are no trees; nothing if there are."""
    return "" if find_spec("lightgbm") else MISSING


@dataclass(frozen=True, eq=False)
class Trees:
    """One model, or one for each label, as LightGBM writes them; C columns of outputs.

    A model that says the same of all units is a list of outputs, as JSON.
    """

    models: tuple[str, ...]
    kind: str
    outputs: int
    ended: bool = True
    """Whether they stopped for want of gains, not of time."""

    def __call__(self, blocks: Sequence[Block]) -> np.ndarray:
        """Outputs of columns that stand in blocks side by side: [U, F] -> [U, C]."""
        columns = _beside(blocks)
        found = np.concatenate([_said_by(text, columns) for text in self.models], 1)
        if self.kind == "class" and self.outputs == 2:
            found = np.concatenate([np.zeros_like(found), found], 1)
        return found


def _said_by(text: str, columns: Block) -> np.ndarray:
    """Outputs of one model, [U, 1 or C]."""
    import lightgbm

    if text.startswith("["):
        return np.repeat(np.array([json.loads(text)]), columns.shape[0], 0)
    raw = np.asarray(lightgbm.Booster(model_str=text).predict(columns, raw_score=True))
    return raw.reshape(columns.shape[0], -1)


def failures() -> tuple[type[Exception], ...]:
    """What LightGBM raises."""
    if missing():
        return ()
    import lightgbm

    return (lightgbm.basic.LightGBMError,)


def fit(
    blocks: Sequence[Block],
    shown: Shown,
    aim: Aim,
    until: float = np.inf,
    seed: int = 0,
    rounds: int = ROUNDS,
) -> Trees:
    """Trees until the validation loss has got no better.

    Args:
        blocks: columns [U, F].
        shown: the training units.
        aim: which has the validation units.
        until: when to stop growing, as `time.monotonic` tells.
        seed: of the columns that each tree may use.
        rounds: trees at most, of each class; of few, each counts for more.
    """
    columns = _beside(blocks)
    if aim.kind != "labels":
        model, ended = _grow(columns, shown, aim, 0, until, seed, rounds)
        return Trees((model,), aim.kind, shown.values.shape[1], ended)
    grown = [
        _grow(columns, shown, aim, column, until, seed, rounds)
        for column in range(aim.values.shape[1])
    ]
    models = tuple(model for model, _ in grown)
    return Trees(models, aim.kind, len(models), all(ended for _, ended in grown))


def _grow(
    columns: Block, shown: Shown, aim: Aim, column: int, until: float, seed: int, rounds: int
) -> tuple[str, bool]:
    """One model: of classes and numbers, or of the label of a column.

    Where nothing is known to fit it to, or to tell by when to stop, it says what is usual.
    """
    import lightgbm

    classes = shown.values.shape[1]
    weight = aim.known[:, min(column, aim.known.shape[1] - 1)] > 0
    train = np.flatnonzero(shown.weight[:, min(column, shown.weight.shape[1] - 1)])
    val = np.flatnonzero(aim.val & weight)
    if not len(train) or not len(val):
        return json.dumps(_usual(shown, aim.kind, column).tolist()), True
    parameters: dict[str, Any] = {
        "objective": "binary",
        "learning_rate": max(RATE, 5 / rounds),
        "num_leaves": 31,
        "min_data_in_leaf": max(1, min(20, len(train) // 20)),
        "feature_fraction": 0.3 if columns.shape[1] > 1000 else 0.5,
        "max_bin": 63,
        "lambda_l2": 1.0,
        "deterministic": True,
        "force_col_wise": True,
        "num_threads": _threads(len(train)),
        "seed": seed,
        "verbosity": -1,
    }
    target = aim.values[:, column]
    if aim.kind == "number":
        parameters |= {"objective": "regression"}
    elif aim.kind == "class":
        target = aim.values.argmax(1)
        if classes > 2:
            parameters |= {"objective": "multiclass", "num_class": classes}
    own = lightgbm.Dataset(columns[train], target[train], params=parameters)
    other = lightgbm.Dataset(columns[val], target[val], reference=own, params=parameters)
    over: list[int] = []

    def watch(state: Any) -> None:
        if time.monotonic() > until and not over:
            over.append(state.iteration)
            raise lightgbm.callback.EarlyStopException(
                state.iteration, state.evaluation_result_list
            )

    booster = lightgbm.train(
        parameters,
        own,
        rounds,
        valid_sets=[other],
        callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False), watch],
    )
    best = booster.best_iteration or booster.current_iteration()
    return booster.model_to_string(num_iteration=best), not over


def _usual(shown: Shown, kind: str, column: int) -> np.ndarray:
    """Outputs of a model that knows no columns: [1], or [C] of more than two classes."""
    if kind == "labels":
        return intercept(shown.prior, kind)[column : column + 1]
    if kind == "class" and shown.values.shape[1] == 2:
        return intercept(shown.prior[1:], "labels")
    return intercept(shown.prior, kind)


def _threads(rows: int) -> int:
    """Of few rows one thread is done before others have begun, above all on busy cores."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(own, 1 + rows // FEW_ROWS)


def _beside(blocks: Sequence[Block]) -> Block:
    if any(map(scipy.sparse.issparse, blocks)):
        return scipy.sparse.hstack(blocks, format="csr", dtype=np.float32)
    return np.concatenate(blocks, 1, dtype=np.float32)
