"""One sparse product per hop by the library (cuSPARSE, MKL), with A and its transpose at hand.

The honest baseline: the same recurrence as ours, no tensor of edges, left to autograd.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from subtree_attention.datasets.features import csr_tensor
from subtree_attention.graph import Graph
from subtree_attention.ops import recurrence


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
    """Subtree attention on one graph, whose matrices are kept as the library takes them."""

    def __init__(self, graph: Graph) -> None:
        size = (graph.num_nodes, graph.num_nodes)
        self.matrix, self.transpose = (
            csr_tensor(*csr[:3], size) for csr in (graph.matrix(), graph.transpose())
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
        """phi(q), phi(k) [N, H, d], value [N, H, c], hop_weights [K + 1, H] -> [N, H, c]."""
        state, out = recurrence.first_state(key, value), value * hop_weights[0, :, None]
        for hop in range(1, hops + 1):
            walked = LibraryProduct.apply(state.flatten(1), self.matrix, self.transpose)
            state = walked.view_as(state)
            level = recurrence.quotient(recurrence.read(query, state), eps)
            out = out + level * hop_weights[hop, :, None]
        return out
