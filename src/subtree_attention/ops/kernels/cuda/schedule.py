"""How a GPU shares out the rows of a matrix, so that a hub does not stall the rest."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ....graph import CSR, INT32_MAX, Graph

PIECES = 2048
SHORTEST_PIECE, LONGEST_PIECE = 16, 128
"""Rows are cut where they have more than a `PIECES`th of all neighbours, within bounds."""


class Scheduled(NamedTuple):
    """A CSR matrix, and how its rows are shared out (see `share_out`)."""

    rowptr: Tensor
    col: Tensor
    weight: Tensor
    rows: Tensor
    pieces: Tensor


def scheduled(matrix: CSR) -> Scheduled:
    """The matrix, ready for the kernels."""
    return Scheduled(*matrix, *share_out(matrix.rowptr, matrix.col.numel()))


def graph_schedule(graph: Graph, dtype: torch.dtype, transpose: bool) -> tuple[Tensor, Tensor]:
    """How the rows of a graph's matrix, or of its transpose, are shared out."""
    matrix = graph.transpose(dtype) if transpose else graph.matrix(dtype)
    return share_out(matrix.rowptr, graph.num_edges)


def share_out(rowptr: Tensor, entries: int) -> tuple[Tensor, Tensor]:
    """Rows in one piece, and pieces of those that are too long for one.

    Returns:
        `rows` [R, 4], int32, the longest first: node, first entry, last entry + 1, 0; and `pieces`
        [P, 2, 4] of the rows that are too long: node, first entry, last entry + 1, 0, and the
        first piece of that row, how many it has, 0, 0.
    """
    if entries > INT32_MAX:
        raise ValueError(f"on a GPU a graph may have up to {INT32_MAX:,} edges")
    start, stop = rowptr[:-1].long(), rowptr[1:].long()
    degree = stop - start
    piece = min(max(entries // PIECES, SHORTEST_PIECE), LONGEST_PIECE)
    by_length = degree.argsort(descending=True, stable=True)
    too_long = int((degree > piece).sum())
    long, short = by_length[:too_long].sort().values, by_length[too_long:]
    rows = [short, start[short], stop[short], torch.zeros_like(short)]

    # A row of n entries in pieces of sqrt(n): then adding up its pieces takes no longer than one.
    length = degree[long].double().sqrt().ceil().long().clamp(min=piece)
    count = (degree[long] + length - 1) // length
    first = count.cumsum(0) - count
    hub = torch.repeat_interleave(count)
    nth = torch.arange(hub.numel(), device=hub.device) - first[hub]
    begin = start[long][hub] + nth * length[hub]
    end = torch.minimum(begin + length[hub], stop[long][hub])
    zero = torch.zeros_like(hub)
    pieces = [long[hub], begin, end, zero, first[hub], count[hub], zero, zero]
    return torch.stack(rows, 1).int(), torch.stack(pieces, 1).int().view(-1, 2, 4)
