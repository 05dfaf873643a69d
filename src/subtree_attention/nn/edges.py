"""Edge features: a gate per edge and head, computed once per layer and walked over all its hops."""

from __future__ import annotations

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import _check
from ..graph import Graph
from .linear import Linear
from .parts import Part


class EdgeGate(Part):
    r"""What each edge lets through to each head, between 0 and 2: [E, edge_dim] -> [E, H].

    .. math::
        \hat A^h_{ij} = 2 \, \sigma(f(e_{ij})_h) \, \hat A_{ij}

    The entries of the transition are multiplied and not normalised again, so a gate can close an
    edge without opening the others. f starts at 0, where a gate is 1: a fresh layer does what it
    does without edge features. Loops that a Graph adds have no features, and a logit of their own
    for each head instead.

    A gate of one's own is a subclass with `logits`.
    """

    sizes = ("edge_dim", "heads")
    edge_dim: int
    heads: int

    def __init__(self, edge_dim: int, heads: int) -> None:
        super().__init__(edge_dim, heads)
        self.loop = nn.Parameter(torch.zeros(heads))

    @abstractmethod
    def logits(self, edge_attr: Tensor) -> Tensor:
        """f: [E, edge_dim] -> [E, H]."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.zeros_(self.loop)

    def forward(self, edge_attr: Tensor, graph: Graph) -> Tensor:
        """The gates of a graph's edges as they are walked on, [E, H].

        Args:
            edge_attr: `[E', edge_dim]` of the edges that the graph was made of, in their order.
            graph: which has loops besides, perhaps.
        """
        self.check(edge_attr, graph)
        logits = self.logits(edge_attr)
        logits = torch.cat([logits, self.loop[None].to(logits.dtype)])
        return 2 * torch.sigmoid(logits.index_select(0, graph.edge_order))

    def check(self, edge_attr: Tensor, graph: Graph) -> None:
        """Refuse features that do not fit."""
        _check.floating("edge_attr", edge_attr)
        if edge_attr.shape != (graph.given_edges, self.edge_dim):
            raise ValueError(
                f"edge_attr must have shape [{graph.given_edges}, {self.edge_dim}], a row for each "
                f"edge that the graph was made of, got {_check.shape(edge_attr)}"
            )
        if edge_attr.device != self.loop.device:
            raise ValueError(
                f"edge_attr is on {edge_attr.device}, but the layer is on {self.loop.device}"
            )
        mixed = torch.is_autocast_enabled(edge_attr.device.type)
        if edge_attr.dtype != self.loop.dtype and not mixed:
            raise ValueError(f"edge_attr is {edge_attr.dtype}, but the layer is {self.loop.dtype}")


class LinearEdgeGate(EdgeGate):
    """f is linear: enough for kinds of edges, one column each."""

    def __init__(self, edge_dim: int, heads: int) -> None:
        super().__init__(edge_dim, heads)
        self.lin = Linear(edge_dim, heads)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        _start_at_zero(self.lin)

    def logits(self, edge_attr: Tensor) -> Tensor:
        return self.lin(edge_attr)


class MLPEdgeGate(EdgeGate):
    """f has a hidden layer with ReLU: for distances and other measures.

    Args:
        edge_dim: columns of the edge features.
        heads: H.
        hidden_channels: of the layer between.
    """

    def __init__(self, edge_dim: int, heads: int, hidden_channels: int = 32) -> None:
        super().__init__(edge_dim, heads)
        self.hidden = Linear(edge_dim, _check.integer("hidden_channels", hidden_channels, 1))
        self.lin = Linear(hidden_channels, heads)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        _start_at_zero(self.lin)

    def logits(self, edge_attr: Tensor) -> Tensor:
        return self.lin(F.relu(self.hidden(edge_attr)))


EDGE_GATES: dict[str, type[EdgeGate]] = {"linear": LinearEdgeGate, "mlp": MLPEdgeGate}


def _start_at_zero(lin: Linear) -> None:
    nn.init.zeros_(lin.weight)
    if lin.bias is not None:
        nn.init.zeros_(lin.bias)
