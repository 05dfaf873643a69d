"""The published formulation, edge by edge: what STA costs without the fast algorithm.

Every hop sends the outer products k^T v and the keys along each edge with PyG's MessagePassing,
so tensors of E x H x d x c numbers are formed, and autograd keeps them. It computes the same
function as `subtree_attention` and serves as the yardstick of the benchmarks.
"""

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from subtree_attention import STAGNN, Graph


class Propagate(MessagePassing):
    """One step of the walk of a state [N, ...], edge by edge."""

    def __init__(self) -> None:
        super().__init__(aggr="add", node_dim=0)

    def forward(self, state: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
        return self.propagate(edge_index, state=state, weight=weight)

    def message(self, state_j: Tensor, weight: Tensor) -> Tensor:
        return weight.view(-1, *[1] * (state_j.dim() - 1)) * state_j


def edgewise_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    graph: Graph,
    hops: int,
    hop_weights: Tensor,
    eps: float,
) -> Tensor:
    """As a backend: phi(q), phi(k) [N, H, d], value [N, H, c], hop_weights [K + 1, H]."""
    walk = Propagate()
    edge_index, weight = graph.edge_index, graph.matrix(value.dtype).weight
    products, keys = key.unsqueeze(-1) * value.unsqueeze(-2), key
    out = value * hop_weights[0, :, None]
    for hop in range(1, hops + 1):
        products, keys = walk(products, edge_index, weight), walk(keys, edge_index, weight)
        numerator = torch.einsum("nhd,nhdc->nhc", query, products)
        denominator = torch.einsum("nhd,nhd->nh", query, keys) + eps
        out = out + hop_weights[hop, :, None] * numerator / denominator.unsqueeze(-1)
    return out


class EdgewiseSTAGNN(STAGNN):
    """STAGNN whose layer attends edge by edge; the parameters are the same."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.conv._attend_subtree = self._attend_subtree  # type: ignore[method-assign]

    def _attend_subtree(self, query: Tensor, key: Tensor, value: Tensor, graph: Graph) -> Tensor:
        phi, weights = self.conv.feature_map, self.conv.hop_weights()
        assert weights is not None  # GPR or sum, as released
        return edgewise_attention(
            phi(query), phi(key), value, graph, self.conv.hops, weights, self.conv.eps
        )
