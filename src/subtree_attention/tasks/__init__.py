"""What is learnt: target, loss, metric and calibration. Node classification is the first task."""

from __future__ import annotations

from .. import _check
from ..config import Settings
from .classification import NodeClassification

TASKS = {"node-classification": NodeClassification}
"""The names of `config.TASKS`, and what stands behind them."""


def of(settings: Settings) -> NodeClassification:
    """The task that settings describe."""
    return TASKS[_check.known("task", getattr(settings, "name", settings), TASKS)](settings)


__all__ = ["TASKS", "NodeClassification", "of"]
