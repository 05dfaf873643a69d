"""Rows of a matrix spread over the graph: plain steps of the walk, without attention."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..feature_maps import transformed
from ..graph import Graph, transpose_order
from ..ops import backends, exported
from .features import SparseProduct


def smoothed(x: Tensor, graph: Graph, steps: int, edge_weight: Tensor | None = None) -> Tensor:
    """So many steps along the graph's transition with a loop at every node: [N, c] -> [N, c].

    Args:
        x: `[N, c]`
        graph: whose edges are walked on; nodes that have no loop get one of weight 1.
        steps: 0 or more.
        edge_weight: `[given_edges]`, in the place of the graph's own.
    """
    if graph.stands_for is not None and steps:
        raise ValueError(
            "smoothing walks with a loop at every node, and the entries of a sample are estimates "
            "of a walk without: use smoothing=0 on batches"
        )
    looped = graph.with_self_loops()
    for _ in range(steps):
        x = walked(x, looped, edge_weight)
    return x


def walked(x: Tensor, graph: Graph, edge_weight: Tensor | None = None) -> Tensor:
    """One step along the graph's transition: [N, c] -> [N, c].

    `edge_weight` of the edges that came to the graph takes the place of its own.
    """
    entries = None if edge_weight is None else graph.entries(x.dtype, edge_weight)
    if graph.shared is not None:
        return _SharedStep.apply(x, graph)
    learns = entries is not None and entries.requires_grad
    if learns or torch.compiler.is_compiling() or transformed():
        return exported.step(x, graph, entries)  # torch's own operators: all of them differentiate
    matrix, transpose = graph.cached(("prepared", x.dtype), partial(_prepared, dtype=x.dtype))
    if entries is not None:
        order = graph.cached("order of the transpose", transpose_order)
        matrix = matrix._replace(weight=entries)
        transpose = transpose._replace(weight=entries.index_select(0, order))
    return SparseProduct.apply(x, matrix, transpose)


class _SharedStep(torch.autograd.Function):
    """A step on a part of a graph: rows of others come before it, and on the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, graph: Graph) -> Tensor:
        ctx.graph = graph
        return _shared_step(x, graph, 0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _shared_step(grad.contiguous(), ctx.graph, 1), None


def _shared_step(x: Tensor, graph: Graph, way: int) -> Tensor:
    """There (0) or back (1)."""
    matrices = graph.cached(("prepared", x.dtype), partial(_prepared, dtype=x.dtype))
    exchange = (graph.shared.there, graph.shared.back)[way]
    return backends.product(matrices[way], x if exchange is None else exchange(x))


def _prepared(graph: Graph, dtype: torch.dtype) -> list[backends.Matrix]:
    """The matrix and its transpose, as fast products take them."""
    return [backends.prepared(matrix(dtype)) for matrix in (graph.matrix, graph.transpose)]
