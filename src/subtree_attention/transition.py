r"""The transition matrix of a graph: by what each edge is multiplied, from the degrees of its ends.

All of it is computed in float64, and rounded once. Row i receives, column j sends; a matrix `A` of
edge weights becomes :math:`\hat A` by scaling its rows and columns.
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor

from .compressed import Pattern

TRANSITIONS = {
    "rw": "A D^-1: a sender splits its mass over its (weighted) out-degree",
    "sym": "D^-1/2 A D^-1/2: the sender's out-degree and the receiver's in-degree",
    "mean": "D^-1 A: a receiver averages over its (weighted) in-degree",
}

Scales = tuple[Tensor | None, Tensor | None]
"""What entries are multiplied by: [N] by column and [N] by row, or None for ones, in float64."""


def scales_of(transition: str | None, send: Pattern | None, receive: Pattern) -> Scales:
    """The scales of a matrix by source and by target, from its transpose, `send`, and itself;
    without the transpose, its columns are counted."""
    if transition == "mean":
        return None, _inverse(_degree(receive))
    if transition not in ("rw", "sym"):
        return None, None
    by_source = _inverse(_column_degree(receive) if send is None else _degree(send))
    if transition == "rw":
        return by_source, None
    return by_source.sqrt(), _inverse(_degree(receive)).sqrt()


def entries_of(pattern: Pattern, scales: Scales, dtype: torch.dtype) -> Tensor:
    """The entries of a matrix with these scales, [E], rounded once."""
    if not pattern.is_large:
        return scaled(pattern, scales).to(dtype)
    entries = torch.empty(pattern.col.numel(), dtype=dtype)  # all of them in float64 are large
    for some, rows in pattern.blocks():
        entries[some] = scaled(pattern.block(some), scales, rows)
    return entries


def scaled(pattern: Pattern, scales: Scales, rows: Tensor | None = None) -> Tensor:
    """Edge weights times what the transition multiplies them by, [E], in float64.

    `rows` [E] are those of the entries, if these are a block of a matrix.
    """
    by_column, by_row = scales
    factors = [] if pattern.edge_weight is None else [pattern.edge_weight.double()]
    if by_row is not None:
        factors.append(by_row.index_select(0, pattern.rows() if rows is None else rows))
    if by_column is not None:
        factors.append(by_column.index_select(0, pattern.col))
    if not factors:
        return torch.ones(pattern.col.numel(), dtype=torch.float64, device=pattern.col.device)
    return reduce(torch.mul, factors)


def _degree(pattern: Pattern) -> Tensor:
    """Weighted degree of each row, [N], in float64."""
    if pattern.edge_weight is None:
        return pattern.rowptr.diff().double()
    given, watched = pattern.edge_weight, torch._C._are_functorch_transforms_active()
    if pattern.is_large and not given.requires_grad | watched:
        degree = given.new_zeros(pattern.num_rows, dtype=torch.float64)
        for some, rows in pattern.blocks():
            degree.index_add_(0, rows, given[some].double())
        return degree
    weight, offsets = given.double(), pattern.rowptr.long()
    if weight.device.type == "cpu" or watched:
        # One after the other too, and `torch.func` knows it; on a GPU the order is by chance.
        return weight.new_zeros(offsets.numel() - 1).index_add(0, pattern.rows(), weight)
    return torch.segment_reduce(weight, "sum", offsets=offsets, initial=0.0, unsafe=True)


def _column_degree(pattern: Pattern) -> Tensor:
    """Weighted degree of each column, [N], in float64: `_degree` of the transpose, without it.

    A column adds its entries up in the order of the rows here as there, so that it is the same sum.
    """
    degree = torch.zeros(pattern.num_rows, dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    for some in pattern.slices():
        col, weight = pattern.col[some], pattern.edge_weight
        degree.index_add_(0, col, one.expand(len(col)) if weight is None else weight[some].double())
    return degree


def _inverse(degree: Tensor) -> Tensor:
    """1 / degree, and 0 where the degree is 0: no edge, no division, and no gradient."""
    return degree.where(degree != 0, torch.inf).reciprocal()
