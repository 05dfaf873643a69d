"""The published formulation, edge by edge: what STA costs without the fast algorithm.

Every hop sends the outer products k^T v and the keys along each edge with PyG's MessagePassing,
so tensors of E x H x d x c numbers are formed. It computes the same function as
`subtree_attention`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from subtree_attention.graph import Graph


class Propagate(MessagePassing):
    """One step of the walk of a state [N, ...], edge by edge."""

    def __init__(self) -> None:
        super().__init__(aggr="add", node_dim=0)

    def forward(self, state: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
        return self.propagate(edge_index, state=state, weight=weight)

    def message(self, state_j: Tensor, weight: Tensor) -> Tensor:
        return weight.view(-1, *[1] * (state_j.dim() - 1)) * state_j


class EdgewiseAttention:
    """Subtree attention on one graph, whose edges are kept as PyG takes them."""

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
        """phi(q), phi(k) [N, H, d], value [N, H, c], hop_weights [K + 1, H] -> [N, H, c]."""
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
