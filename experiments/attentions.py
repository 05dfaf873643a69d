"""Other ways to compute subtree attention: edge by edge, as published, and by library products.

Each is made for one graph, which it keeps as it takes it, and called as
`attend(phi(q), phi(k), value, hop_weights, graph, hops, eps)` with phi(q), phi(k) [N, H, d], value
[N, H, c] and hop_weights [K + 1, H] -> [N, H, c]. All compute the same function as ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from subtree_attention.datasets.features import csr_tensor
from subtree_attention.graph import Graph
from subtree_attention.nn import STAGNN
from subtree_attention.ops import recurrence

Attention = Callable[..., Tensor]


class Propagate(MessagePassing):
    """One step of the walk of a state [N, ...], edge by edge."""

    def __init__(self) -> None:
        super().__init__(aggr="add", node_dim=0)

    def forward(self, state: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
        return self.propagate(edge_index, state=state, weight=weight)

    def message(self, state_j: Tensor, weight: Tensor) -> Tensor:
        return weight.view(-1, *[1] * (state_j.dim() - 1)) * state_j


class EdgewiseAttention:
    """The published formulation: what STA costs without the fast algorithm.

    Every hop sends the outer products k^T v and the keys along each edge with PyG's MessagePassing,
    so tensors of E x H x d x c numbers are formed.
    """

    def __init__(self, graph: Graph) -> None:
        self.propagate = Propagate()
        self.edges = graph.edge_index, graph.matrix().weight

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        hop_weights: Tensor,
        graph: Graph,
        hops: int,
        eps: float,
    ) -> Tensor:
        products, keys = key.unsqueeze(-1) * value.unsqueeze(-2), key
        out = value * hop_weights[0, :, None]
        for hop in range(1, hops + 1):
            products, keys = (self.propagate(state, *self.edges) for state in (products, keys))
            numerator = torch.einsum("nhd,nhdc->nhc", query, products)
            denominator = torch.einsum("nhd,nhd->nh", query, keys) + eps
            out = out + hop_weights[hop, :, None] * numerator / denominator.unsqueeze(-1)
        return out


def edge_tensor_bytes(graph: Graph, heads: int, key_channels: int, value_channels: int) -> int:
    """What two tensors of the walk take in float32: the gathered states and the messages."""
    return 2 * 4 * graph.num_edges * heads * key_channels * value_channels


class LibraryProduct(torch.autograd.Function):
    """A X: [N, N], [N, w] -> [N, w], with a gradient for X."""

    @staticmethod
    def forward(ctx: Any, state: Tensor, matrix: Tensor, transpose: Tensor) -> Tensor:
        ctx.transpose = transpose
        return matrix @ state

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.transpose @ grad, None, None


class LibraryAttention:
    """One sparse product per hop by the library (cuSPARSE, MKL), with A and its transpose at hand.

    The honest baseline: the same recurrence as ours, no tensor of edges, left to autograd.
    """

    def __init__(self, graph: Graph) -> None:
        size = (graph.num_nodes, graph.num_nodes)
        self.matrix, self.transpose = (
            csr_tensor(*csr, size) for csr in (graph.matrix(), graph.transpose())
        )

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        hop_weights: Tensor,
        graph: Graph,
        hops: int,
        eps: float,
    ) -> Tensor:
        state, out = recurrence.first_state(key, value), value * hop_weights[0, :, None]
        for hop in range(1, hops + 1):
            walked = LibraryProduct.apply(state.flatten(1), self.matrix, self.transpose)
            state = walked.view_as(state)
            level = recurrence.quotient(recurrence.read(query, state), eps)
            out = out + level * hop_weights[hop, :, None]
        return out


class STAGNNBy(STAGNN):
    """STAGNN whose layer attends by a given function; the parameters are the same."""

    def __init__(self, attend: Attention, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.attend = attend
        self.conv.attend = self._attend_by  # type: ignore[method-assign, assignment]

    def _attend_by(self, query: Tensor, key: Tensor, value: Tensor, graph: Graph) -> Tensor:
        phi, weights = self.conv.feature_map, self.conv.hop_weights()
        if weights is None:
            raise ValueError("the benchmark needs an aggregation that is a weighted sum over hops")
        return self.attend(
            phi(query), phi(key), value, weights, graph, self.conv.hops, self.conv.eps
        )
