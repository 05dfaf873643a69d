"""Linear models of columns: logistic regression, of labels one each, and ridge regression.

Fitted by L-BFGS from strong to weak penalties, each from where the last one ended, until the loss
of the validation units has grown twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.optimize
import scipy.sparse
from scipy.special import expit, log_softmax
from threadpoolctl import threadpool_limits

from .aims import Aim, Shown

Block: TypeAlias = Any
"""Columns [U, w]: an array, or a CSR matrix of scipy."""
PENALTIES = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)
"""Of the mean loss, times half the squared weights: 1 / (C n) of scikit-learn's C."""
WORSE = 2
"""Penalties in a row without a smaller validation loss after which the rest is left out."""
ITERATIONS = 40


@dataclass(frozen=True, eq=False)
class Linear:
    """Weights [F + 1, C], the last row of which is the intercept."""

    weights: np.ndarray
    ended: bool = True
    """Whether more penalties would not have helped, or time was over before."""

    def __call__(self, blocks: Sequence[Block]) -> np.ndarray:
        """Outputs of columns that stand in blocks side by side: [U, F] -> [U, C]."""
        return _product(blocks, self.weights)


def fit(
    blocks: Sequence[Block],
    shown: Shown,
    aim: Aim,
    score: Callable[[np.ndarray], float],
    until: float = np.inf,
    penalties: Sequence[float] = PENALTIES,
) -> Linear:
    """The weights with the best validation score; of equal ones those with the smallest loss.

    Args:
        blocks: columns [U, F], of like scale.
        shown: the training units.
        aim: which has the validation units.
        score: of the outputs [U, C] of all units; larger is better.
        until: when to begin no further penalty, as `time.monotonic` tells.
        penalties: those that are tried, from strong to weak.
    """
    two = aim.kind == "class" and shown.values.shape[1] == 2
    kind, part = ("labels", slice(1, 2)) if two else (aim.kind, slice(None))

    def outputs(weights: np.ndarray) -> np.ndarray:
        given = _product(blocks, weights)
        return np.concatenate([np.zeros_like(given), given], 1) if two else given

    rows, val = shown.rows, np.flatnonzero(aim.val)
    own, values, weight = _rows(blocks, rows), shown.values[rows, part], shown.weight[rows]
    truth, counted = aim.values[val], aim.known[val]
    turned = [block.T.tocsr() if scipy.sparse.issparse(block) else block.T for block in own]
    weights = np.zeros((sum(block.shape[1] for block in own) + 1, values.shape[1]))
    weights[-1] = intercept(shown.prior[part], kind)
    best, found, least, worse = (-np.inf, -np.inf), weights, np.inf, 0
    for penalty in penalties:
        with threadpool_limits(1):  # products this small wait for one another longer than they work
            weights = _minimise(own, turned, values, weight, kind, penalty, weights)
        given = outputs(weights)
        loss, _ = _loss(given[val].astype(np.float64), truth, counted, aim.kind)
        reached = (score(given), -loss)
        if reached > best:
            best, found = reached, weights
        least, worse = (loss, 0) if loss < least else (least, worse + 1)
        if worse == WORSE or time.monotonic() > until:
            break
    if two:
        found = np.concatenate([np.zeros_like(found), found], 1)
    ended = worse == WORSE or penalty == penalties[-1]
    return Linear(found.astype(np.float32), ended)


def _minimise(
    blocks: Sequence[Block],
    turned: Sequence[Block],
    values: np.ndarray,
    weight: np.ndarray,
    kind: str,
    penalty: float,
    start: np.ndarray,
) -> np.ndarray:
    total = max(weight.sum(), 1)  # a fold may hide the only unit there is

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(start.shape)
        loss, slope = _loss(_product(blocks, weights).astype(np.float64), values, weight, kind)
        slope = (slope / total).astype(np.float32)
        own = [block @ slope for block in turned]
        gradient = np.concatenate([*own, slope.sum(0, keepdims=True)], dtype=np.float64)
        gradient[:-1] += penalty * weights[:-1]
        return loss / total + penalty / 2 * np.square(weights[:-1]).sum(), gradient.ravel()

    found = scipy.optimize.minimize(
        objective,
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": ITERATIONS, "ftol": 1e-6, "gtol": 1e-5},
    )
    return found.x.reshape(start.shape)


def _loss(
    outputs: np.ndarray, values: np.ndarray, weight: np.ndarray, kind: str
) -> tuple[float, np.ndarray]:
    """The sum of the loss over rows, and its slope in the outputs [n, C]."""
    if kind == "number":
        off = outputs - values
        return float((weight * off**2).sum()) / 2, weight * off
    if kind == "labels":
        losses = np.logaddexp(0, outputs) - values * outputs
        return float((weight * losses).sum()), weight * (expit(outputs) - values)
    logs = log_softmax(outputs, 1)
    return float(-(weight * values * logs).sum()), weight * (np.exp(logs) - values)


def intercept(prior: np.ndarray, kind: str) -> np.ndarray:
    """Outputs that say what is known without any column, [C]."""
    if kind == "number":
        return prior
    share = np.clip(prior, 1e-4, 1 - 1e-4)
    return np.log(share) if kind == "class" else np.log(share / (1 - share))


def _product(blocks: Sequence[Block], weights: np.ndarray) -> np.ndarray:
    """Columns [U, F] times weights [F + 1, C], and the intercept: [U, C]."""
    weights, start = weights.astype(np.float32), 0
    outputs = np.zeros((blocks[0].shape[0], weights.shape[1]), dtype=np.float32)
    for block in blocks:
        outputs += block @ weights[start : start + block.shape[1]]
        start += block.shape[1]
    return outputs + weights[-1]


def _rows(blocks: Sequence[Block], rows: np.ndarray) -> list[Block]:
    return [block[rows] for block in blocks]
