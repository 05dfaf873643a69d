"""From nodes to graphs: pooling, and a network with one output for each graph.

Sums over the nodes of a graph are made segment by segment, in one order: the same bits every time,
also on a GPU, where nothing waits for the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import _check
from ..graph import Graph
from ..ops.dropout import drop
from .everywhere import check_batch, count_graphs
from .features import Features
from .linear import Linear
from .parts import reset_children, takes

POOLINGS = {"mean": ("mean",), "sum": ("sum",), "max": ("max",), "all": ("mean", "sum", "max")}
"""By name: what is put side by side."""


def pool(
    x: Tensor,
    batch: Tensor,
    how: str = "mean",
    batch_size: int | None = None,
    is_sorted: bool = False,
) -> Tensor:
    """Mean, sum or maximum over the nodes of each graph; of a graph without nodes 0.

    Args:
        x: `[N, c]`
        batch: `[N]`, the graph of each node.
        how: "mean", "sum", "max", or "all", those three side by side.
        batch_size: number of graphs, G; saves looking for the maximum of `batch`.
        is_sorted: whether `batch` ascends; saves sorting it.

    Returns:
        `[G, c]`, or `[G, 3 c]` for "all".
    """
    kinds = POOLINGS[_check.known("pooling", how, POOLINGS)]
    batch = check_batch(batch, x.size(0))
    graphs = count_graphs(batch, batch_size)
    if not is_sorted:
        batch, order = batch.sort(stable=True)
        x = x[order]
    ends = torch.searchsorted(batch, torch.arange(graphs + 1, device=batch.device))
    there = ends.diff()[:, None] > 0
    wide = x.to(torch.promote_types(x.dtype, torch.float32))  # bfloat16 counts up to 256
    # `unsafe` leaves out checks for which the host would wait.
    parts = [torch.segment_reduce(wide, kind, offsets=ends, axis=0, unsafe=True) for kind in kinds]
    return torch.cat([torch.where(there, part, 0) for part in parts], 1).to(x.dtype)


class GraphNetwork(nn.Module):
    """A model of nodes, pooled, and a small MLP: outputs for each graph.

    The sum over the nodes of a graph is divided by the number of nodes that graphs have on average
    in the first batch of training, so that it is about as large as the mean; later batches do not
    change that number, which is saved with the weights.

    Args:
        encoder: gives `[N, width]` as `encoder(x, graph)`; if it takes `batch` and `batch_size`,
            it gets them, and whatever else a call gives by name, such as `edge_attr`.
        width: columns of what it gives.
        out_channels: outputs for each graph.
        pooling: "mean", "sum", "max" or "all", see :func:`pool`.
        dropout: share dropped before the last map.

    Shapes:
        - x: `[N, in_channels]`; `batch`: `[N]`
        - result: `[G, out_channels]`
    """

    nodes_per_graph: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        width: int,
        out_channels: int,
        pooling: str = "all",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        kinds = POOLINGS[_check.known("pooling", pooling, POOLINGS)]
        self.takes_batch = takes(encoder.forward, "batch")
        self.encoder, self.pooling = encoder, pooling
        self.lin = Linear(len(kinds) * width, width)
        self.out = Linear(width, out_channels)
        self.dropout = _check.number("dropout", dropout, below=1)
        self.register_buffer("nodes_per_graph", torch.zeros(()))  # 0: not known yet

    def reset_parameters(self) -> None:
        """Back to fresh initial values."""
        reset_children(self)
        self.nodes_per_graph.zero_()

    def no_weight_decay(self) -> Iterator[nn.Parameter]:
        """Those of the encoder."""
        yield from getattr(self.encoder, "no_weight_decay", list)()

    def fills_gpu(self, graph: Graph) -> bool:
        """Whether the encoder fills a GPU: then nothing gains by running beside it."""
        return getattr(self.encoder, "fills_gpu", lambda _: False)(graph)

    def encoded(
        self,
        x: Features,
        edge_index: Any,
        batch: Tensor,
        batch_size: int | None = None,
        **along: Any,
    ) -> Tensor:
        """What is pooled: [N, width], at least 0."""
        known = {"batch": batch, "batch_size": batch_size} if self.takes_batch else {}
        return F.relu(self.encoder(x, edge_index, **known, **along))

    def decided(
        self, nodes: Tensor, batch: Tensor, batch_size: int, is_sorted: bool = True
    ) -> Tensor:
        """Outputs [G, out_channels] of nodes [N, width] of graphs `batch` [N]."""
        graphs = pool(nodes, batch, self.pooling, batch_size, is_sorted)
        kinds = POOLINGS[self.pooling]
        if "sum" in kinds:
            parts = list(graphs.split(nodes.size(1), 1))
            parts[kinds.index("sum")] = parts[kinds.index("sum")] / self._usual_nodes(1.0)
            graphs = torch.cat(parts, 1)
        return self.out(drop(F.relu(self.lin(graphs)), self.dropout, self.training))

    def _usual_nodes(self, otherwise: float) -> Tensor:
        """`nodes_per_graph`, or something else if it is not known; without asking the host."""
        return torch.where(self.nodes_per_graph > 0, self.nodes_per_graph, otherwise)

    def forward(
        self,
        x: Features,
        edge_index: Any,
        batch: Tensor,
        batch_size: int | None = None,
        is_sorted: bool = False,
        **along: Any,
    ) -> Tensor:
        """`[G, out_channels]`; `is_sorted` says that `batch` ascends. What the encoder is given
        along with x and edges goes by name: `edge_attr=`, `edge_weight=`."""
        batch_size = count_graphs(batch, batch_size)
        nodes = self.encoded(x, edge_index, batch, batch_size, **along)
        if self.training:
            self.nodes_per_graph.copy_(self._usual_nodes(nodes.size(0) / max(1, batch_size)))
        return self.decided(nodes, batch, batch_size, is_sorted)
