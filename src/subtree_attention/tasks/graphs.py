"""Tasks of graphs: of a collection, each graph has a target.

All graphs lie side by side and are one batch, so that an epoch is one step over all of them, which
a GPU replays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ..nn import GraphNetwork, build
from .classification import Classification
from .regression import Regression
from .task import Task

if TYPE_CHECKING:
    from ..datasets import Dataset

WIDTH = 64
"""Of what a model gives for each node, where it has no hidden layer."""


class OfGraphs(Task):
    """What tasks of graphs have in common: nodes are encoded, pooled, and an MLP follows."""

    unit = "graph"

    def network(self, settings: Any, in_channels: int, out_channels: int) -> nn.Module:
        width, dropout = width_of(settings), getattr(settings, "dropout", 0.0)
        encoder = build(settings, in_channels, width)
        return GraphNetwork(encoder, width, out_channels, self.settings.pooling, dropout)

    def inputs(self, dataset: Dataset, known: Tensor | None = None) -> dict[str, Any]:
        return {"batch": dataset.batch, "batch_size": dataset.num_units, "is_sorted": True}


class GraphClassification(OfGraphs, Classification):
    """The class of every graph."""


class GraphRegression(OfGraphs, Regression):
    """A number of every graph."""


def width_of(settings: Any) -> int:
    """The columns of what a model of these settings gives for each node, as an encoder."""
    return getattr(settings, "hidden_channels", WIDTH)
