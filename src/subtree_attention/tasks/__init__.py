"""What is learnt: target, loss, metric and calibration. Node classification is the first task."""

from __future__ import annotations

from ..config import Settings
from .classification import NodeClassification

TASKS = {"node-classification": NodeClassification}
"""The names of `config.TASKS`, and what stands behind them."""


def of(settings: Settings) -> NodeClassification:
    """The task that settings describe."""
    return TASKS[settings.name](settings)


__all__ = ["TASKS", "NodeClassification", "of"]
