"""A reference as an input of another model: probabilities that no node's own label has entered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.special import log_softmax
from torch import Tensor

from .. import _check
from ..datasets.features import is_csr
from . import trees
from .aims import Aim, Shown, as_columns
from .columns import FOR_TREES, RANK, WIDE, Columns, View
from .linear import PENALTIES, Linear
from .models import KINDS, Effort, Model, fit
from .neighbours import drawn_folds
from .trees import Trees

if TYPE_CHECKING:
    from ..datasets import Dataset
    from ..tasks import Problem, Task

FOLDS = 5
"""Into which training nodes are put: so often a model is fitted without some of them."""
MOST_CELLS = 600_000_000
"""That all trees of a fit look at, a few seconds; a fit may also have `ANYWAY` trees, which take
no longer than the model that stands on them."""
ANYWAY = 300
LEAST_ROUNDS = 20
"""Of trees; with fewer they say too little."""
SPARSE = 8
"""Times that a product with a sparse value takes longer than one with a dense value."""
MANY_PRODUCTS, MOST_PRODUCTS = 50_000_000, 1_000_000_000
"""Cells times classes: of more, every other penalty of a linear model is tried; of more than the
second, it takes longer than the model that stands on it."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """A reference of node classes, fitted on the training nodes of a run.

    Attributes:
        name: which of `STACKED`.
        out_of_fold: [N, C], float32: logarithms of probabilities. Those of a training node are of
            a model that saw neither its row nor its label, not as a neighbour's either; those of
            all others are of the model of all training nodes.
        model: the latter.
    """

    name: str
    out_of_fold: Tensor
    model: Model

    @property
    def looks_around(self) -> bool:
        """Whether it sees more of a node than its own columns."""
        return KINDS[self.name].columns != "own"

    def apply(self, dataset: Dataset, labels: Tensor) -> Tensor:
        """Logarithms of probabilities of the nodes of another graph with the same columns: [N, C].

        Args:
            dataset: of the same columns.
            labels: [N], int64: the classes that may be seen of neighbours, and -1 of all others.
                A node's own is not looked at.
        """
        takes = self.model.columns.width
        if dataset.x.size(1) != takes:
            raise ValueError(f"the reference takes {takes} columns, got {dataset.x.size(1)}")
        if labels.shape != (dataset.num_nodes,):
            words = f"[{dataset.num_nodes}]"
            raise ValueError(f"labels must have shape {words}, got {_check.shape(labels)}")
        classes = self.out_of_fold.size(1)
        shown = Shown(*as_columns("class", labels.cpu().numpy(), classes))
        return _logs(self.model(dataset, shown))

    def to_tensors(self) -> dict[str, Tensor]:
        """All of it, for a file; texts are bytes."""
        columns, predictor = self.model.columns, self.model.predictor
        found = {
            "name": _bytes(self.name),
            "out_of_fold": self.out_of_fold,
            "width": torch.tensor(columns.width),
            "stays_sparse": torch.tensor(columns.stays_sparse),
            "prior": torch.from_numpy(columns.prior),
        }
        if columns.basis is not None:
            found["basis"] = torch.from_numpy(columns.basis.copy())
        for name, scale in columns.scales.items():
            found[f"scale.{name}"] = torch.from_numpy(scale)
        if isinstance(predictor, Linear):
            found["weights"] = torch.from_numpy(predictor.weights)
        else:
            found["trees"] = _bytes(predictor.models[0])
        return found

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Fitted:
        """The inverse of `to_tensors`; what does not fit is a `ValueError`."""
        try:
            name = _check.known("reference", _text(tensors["name"]), STACKED)
            scales = {
                key.removeprefix("scale."): value.numpy()
                for key, value in tensors.items()
                if key.startswith("scale.")
            }
            basis = tensors.get("basis")
            columns = Columns(
                KINDS[name].columns,
                int(tensors["width"]),
                None if basis is None else basis.numpy(),
                bool(tensors["stays_sparse"]),
                tensors["prior"].numpy(),
                scales,
            )
            predictor: Linear | Trees
            if KINDS[name].trees:
                outputs = tensors["out_of_fold"].size(1)
                predictor = Trees((_text(tensors["trees"]),), "class", outputs)
            else:
                predictor = Linear(tensors["weights"].numpy())
            return cls(name, tensors["out_of_fold"], Model(columns, predictor))
        except KeyError as error:
            raise ValueError(f"it is no reference: {error} is missing") from None


STACKED = tuple(KINDS)
"""Names of references that can be an input."""


def check(name: str, dataset: Dataset, task: Task) -> None:
    """Refuse a reference that cannot be fitted here, before any work is done."""
    _check.known("reference", name, STACKED)
    if task.unit != "node" or task.kind != "class":
        raise ValueError("references are inputs of node classification only")
    if KINDS[name].trees and (why := trees.missing()):
        raise ValueError(why)
    if not dataset.x.size(1) and KINDS[name].columns == "own":
        raise ValueError(f"{name} is of own columns, and there is none: use {name}_neighbours")


def stackable(name: str, dataset: Dataset, task: Task) -> str:
    """Why a reference is no input here: it cannot be fitted, or takes longer than the model that
    would stand on it. Nothing if it is one. It goes by sizes, never by a clock."""
    try:
        check(name, dataset, task)
    except ValueError as error:
        return str(error)
    classes = task.outputs(dataset)
    if KINDS[name].trees:
        long = _rounds(name, dataset, classes) < LEAST_ROUNDS
    else:
        long = _cells(name, dataset, classes) * classes > MOST_PRODUCTS
    nodes, width = dataset.x.shape
    sizes = f"{classes:,} classes, {nodes:,} nodes and {width:,} columns"
    return f"{sizes} take too long" if long else ""


def _effort(name: str, dataset: Dataset, classes: int) -> Effort:
    many = _cells(name, dataset, classes) * classes > MANY_PRODUCTS
    rounds = max(_rounds(name, dataset, classes), LEAST_ROUNDS) if KINDS[name].trees else 0
    return Effort(rounds, PENALTIES[::2] if many else PENALTIES)


def _rounds(name: str, dataset: Dataset, classes: int) -> int:
    """Trees of each class that the sizes allow."""
    # Each tree also looks at the bins of every column, however few rows have something there.
    cells = _cells(name, dataset, classes) + 64 * dataset.x.size(1)
    most = max(MOST_CELLS // max(cells, 1), ANYWAY)
    return min(most // (classes if classes > 2 else 1), trees.ROUNDS)


def _cells(name: str, dataset: Dataset, classes: int) -> int:
    """Values other than 0 that a model sees, about; for a linear one, as if they were dense."""
    kind, x = KINDS[name], dataset.x
    own = x.values().numel() if is_csr(x) else int(x.count_nonzero())
    if not kind.trees:
        own = SPARSE * own if is_csr(x) else x.numel()
    if kind.columns == "own":
        return own
    means = x.size(1) if x.size(1) <= WIDE else FOR_TREES if kind.trees else RANK
    return own + dataset.num_nodes * (2 * means + 2 * classes + 4)


def fitted(name: str, dataset: Dataset, task: Task, problem: Problem, seed: int = 0) -> Fitted:
    """A reference of node classes, with out-of-fold probabilities of the training nodes.

    Nothing of it depends on time: the same call gives the same numbers. How much is tried goes by
    sizes. Penalties and the number of trees are chosen by the validation nodes, anew in every fold,
    and each fit begins at nothing: what is found with a label may not help where it is hidden.

    Args:
        name: one of `STACKED`.
        dataset: the graph.
        task: of node classes.
        problem: of a run, with its split.
        seed: of the folds.
    """
    check(name, dataset, task)
    effort = _effort(name, dataset, task.outputs(dataset))
    view, aim, seed = View(dataset), Aim.of(task, problem), _check.integer("seed", seed, 0)
    shown = aim.shown
    val = np.flatnonzero(aim.val)

    def score(outputs: np.ndarray) -> float:
        return float((log_softmax(outputs[val], 1) * aim.values[val]).sum())

    model, outputs = fit(name, view, shown, aim, score, seed=seed, effort=effort)
    found = outputs.astype(np.float64)
    # Another seed than that of the folds inside: else the two would be the same.
    folds = drawn_folds(shown.rows, len(found), min(FOLDS, len(shown.rows)), seed + 1)
    for fold in range(int(folds.max()) + 1):
        rows = folds == fold
        _, others = fit(name, view, shown.only(~rows), aim, score, seed=seed, effort=effort)
        found[rows] = others[rows]
    return Fitted(name, _logs(found), model)


def _logs(outputs: np.ndarray) -> Tensor:
    return torch.from_numpy(log_softmax(outputs.astype(np.float64), 1).astype(np.float32))


def _bytes(text: str) -> Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


def _text(content: Tensor) -> str:
    return bytes(content.tolist()).decode()
