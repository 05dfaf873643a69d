"""What is learnt: units, target, loss, metric and calibration."""

from __future__ import annotations

from .. import _check
from ..config import Settings
from .classification import NodeClassification
from .graphs import GraphClassification, GraphRegression
from .labels import NodeMultiLabel
from .link import LinkPrediction
from .regression import NodeRegression
from .task import Problem, Task

TASKS: dict[str, type[Task]] = {
    "node-classification": NodeClassification,
    "node-multilabel": NodeMultiLabel,
    "node-regression": NodeRegression,
    "link-prediction": LinkPrediction,
    "graph-classification": GraphClassification,
    "graph-regression": GraphRegression,
}
"""The names of `config.TASKS`, and what stands behind them."""


def of(settings: Settings) -> Task:
    """The task that settings describe."""
    return TASKS[_check.known("task", getattr(settings, "name", settings), TASKS)](settings)


__all__ = [
    "TASKS",
    "GraphClassification",
    "GraphRegression",
    "LinkPrediction",
    "NodeClassification",
    "NodeMultiLabel",
    "NodeRegression",
    "Problem",
    "Task",
    "of",
]
