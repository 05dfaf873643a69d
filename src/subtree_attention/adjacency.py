"""Any adjacency that people have, read to sources, targets and weights; what is none is refused.

What becomes of them is in `compressed.py` and `graph.py`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from . import _check
from ._tracing import exporting

MOST_NODES = math.isqrt(2**63 - 1)
"""As many as have pairs that int64 can count."""
MOST_WEIGHT = torch.finfo(torch.float32).max
LEAST_WEIGHT = 1e-300
"""What all edge weights may add up to, and what one that is not 0 must be: else the transition
would overflow."""


def read_adjacency(
    adjacency: Any, edge_weight: Tensor | None
) -> tuple[Tensor, Tensor | None, int | None]:
    """Sources and targets [2, E], weights [E] or None, and the number of nodes it implies."""
    if hasattr(adjacency, "coo") and hasattr(adjacency, "sparse_sizes"):  # SparseTensor
        row, col, values = adjacency.coo()
        return _from_matrix(row, col, values, adjacency.sparse_sizes(), edge_weight)
    if isinstance(adjacency, Tensor):
        if adjacency.layout != torch.strided:
            _check_square(adjacency.shape)
            coo = adjacency.to_sparse_coo().coalesce()
            row, col = coo.indices()
            return _from_matrix(row, col, coo.values(), coo.shape, edge_weight)
        return from_edge_index(adjacency, edge_weight)
    if hasattr(adjacency, "tocoo"):  # scipy.sparse, whose rows are sources
        _check_square(adjacency.shape)
        if adjacency.dtype.kind not in "biuf":
            raise TypeError(f"the adjacency matrix must hold real numbers, got {adjacency.dtype}")
        rows = adjacency.astype("float64").tocsr()
        rows.sum_duplicates()  # and by rows, whatever kind of matrix it was
        coo = rows.tocoo()
        row, col = (torch.from_numpy(ends.astype("int64")) for ends in (coo.row, coo.col))
        values = torch.from_numpy(coo.data)
        return _from_matrix(col, row, values, coo.shape, edge_weight)
    raise TypeError(
        "the adjacency must be an edge_index tensor of shape [2, E], a SparseTensor, or a "
        f"torch.sparse or scipy.sparse matrix, got {type(adjacency).__name__}"
    )


def from_edge_index(
    edge_index: Tensor, edge_weight: Tensor | None
) -> tuple[Tensor, Tensor | None, int | None]:
    """Sources and targets [2, E], weights [E] or None, and the number of nodes it implies."""
    _check.whole("edge_index", edge_index)
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(f"edge_index must have shape [2, E], got {_check.shape(edge_index)}")
    if torch._C._functorch.is_batchedtensor(edge_index):
        raise TypeError(
            "vmap cannot map over edge_index: many graphs are one, as PyG's Batch makes it of them"
        )
    if edge_index.device.type == "meta":
        raise ValueError("edge_index is on the device meta, which holds no values")
    if edge_weight is not None:
        check_weight_shape(edge_weight, edge_index.size(1))
        edge_weight = edge_weight.to(edge_index.device)
    sizes = getattr(edge_index, "sparse_size", lambda: (None, None))()  # PyG's EdgeIndex
    known_sizes = [size for size in sizes if size is not None]
    # While an export traces it is a stand-in, and must stay one.
    plain = (edge_index if exporting() else edge_index.as_subclass(Tensor)).long()
    return plain, edge_weight, max(known_sizes, default=None)


def _from_matrix(
    row: Tensor, col: Tensor, values: Tensor | None, sizes: Any, edge_weight: Tensor | None
) -> tuple[Tensor, Tensor | None, int | None]:
    """Edges of a square matrix whose rows receive."""
    if edge_weight is not None:
        raise ValueError("a sparse matrix brings its own weights: leave edge_weight out")
    _check_square(sizes)
    if values is not None and (values.is_complex() or values.dim() != 1):
        got = f"{values.dtype} {_check.shape(values)}"
        raise TypeError(f"the adjacency matrix must hold a real number for each edge, got {got}")
    if values is not None and not values.is_floating_point():
        values = values.double()
    return torch.stack([col, row]).long(), values, int(sizes[0])


def _check_square(sizes: Any) -> None:
    if len(sizes) != 2 or sizes[0] != sizes[1]:
        raise ValueError(f"the adjacency matrix must be square, got {list(sizes)}")


def check_weight_shape(weight: Any, num_edges: int) -> None:
    _check.floating("edge_weight", weight)
    if weight.shape != (num_edges,):
        raise ValueError(
            f"edge_weight must have shape [{num_edges}], one weight per edge, "
            f"got {_check.shape(weight)}"
        )


def count_nodes(edges: Tensor, num_nodes: int | None, implied: int | None) -> int:
    """As many as are given, which spares a GPU a question, or as the edges need."""
    if num_nodes is None:
        ends = ends_of(edges).tolist()
        check_ends(ends, MOST_NODES)
        return max(ends[1] + 1 if ends else 0, implied or 0)
    _check.integer("num_nodes", num_nodes, 0, MOST_NODES)
    if (implied or 0) > num_nodes:
        raise ValueError(
            f"num_nodes={num_nodes}, but the adjacency has a matrix of {implied} nodes"
        )
    return num_nodes


def ends_of(edges: Tensor) -> Tensor:
    """The least and the greatest index, [2]; [0] without edges."""
    return torch.stack(edges.aminmax()) if edges.numel() else edges.new_empty(0)


def check_ends(ends: list[int], num_nodes: int) -> None:
    low, high = ends or (0, -1)
    if low < 0:
        raise ValueError(f"edge_index holds the negative index {low}")
    if high >= MOST_NODES:
        raise ValueError(f"edge_index holds the index {high}: at most {MOST_NODES:,} nodes")
    if high >= num_nodes:
        raise ValueError(f"num_nodes={num_nodes}, but the adjacency has index {high}")


def check_weights(weight: Tensor | None, transition: str | None) -> None:
    """Refuse edge weights [E] whose transition matrix would not be finite, or negative."""
    if weight is not None:
        check_constant(weight)
        check_extremes(weight_extremes(weight).tolist(), weight, transition)


def check_constant(weight: Tensor | None) -> None:
    if weight is not None and weight.requires_grad:
        raise ValueError(
            "edge weights are constants of a Graph: pass edge_weight.detach(), and give weights "
            "that learn to the layer, or to subtree_attention by entries"
        )


def weight_extremes(weight: Tensor) -> Tensor:
    """What weights add up to in size, the smallest but 0, and the least: [3] float64, or [0]."""
    if not weight.numel():
        return weight.new_empty(0, dtype=torch.float64)
    size = weight.double().abs()
    return torch.stack(
        [size.sum(), size.where(size > 0, math.inf).min(), weight.min().double()],
    )


def check_extremes(extremes: list[float], weight: Tensor | None, transition: str | None) -> None:
    if weight is None or not extremes:
        return
    total, smallest, least = extremes
    if not total <= MOST_WEIGHT:
        _check.finite("edge_weight", weight)
        raise ValueError(
            f"edge weights must add up to {MOST_WEIGHT:.3g} at most, which is as far as float32 "
            f"goes, got {total:.3g}: scale them"
        )
    if smallest < LEAST_WEIGHT:
        raise ValueError(
            f"an edge weight must be 0 or at least {LEAST_WEIGHT:g}, got {smallest:.3g}: scale them"
        )
    if transition is not None and least < 0:
        raise ValueError(
            f"transition '{transition}' needs non-negative edge weights, got {least};"
            " transition=None takes weights as they are"
        )
