"""How a GPU shares out the rows of a matrix, so that a hub does not stall the rest."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ....compressed import CSR, INT32_MAX
from ....graph import SURVEYS, Graph

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


class ByLength(NamedTuple):
    """The rows of matrices, the longest first.

    Shapes: `rows` [..., N], which they are; `longest` [..., M], the lengths of the first: no other
    can be so long that it is cut.
    """

    rows: Tensor
    longest: Tensor


def scheduled(matrix: CSR) -> Scheduled:
    """The matrix, ready for the kernels."""
    return Scheduled(*matrix, *share_out(matrix.rowptr, matrix.col.numel()))


def graph_schedule(graph: Graph, transpose: bool) -> tuple[Tensor, Tensor]:
    """How the rows of a graph's matrix, or of its transpose, are shared out."""
    rows, longest = _graph_rows(graph).rows, graph.cached("survey", _survey).view(2, -1)
    rowptr, rows, longest = (each[int(transpose)] for each in (graph.rowptrs, rows, longest))
    return _share_out(rowptr, graph.entry_counts[int(transpose)], ByLength(rows, longest))


def share_out(rowptr: Tensor, entries: int) -> tuple[Tensor, Tensor]:
    """Rows in one piece, and pieces of those that are too long for one.

    Returns:
        `rows` [R, 4], int32, the longest first: node, first entry, last entry + 1, 0; and `pieces`
        [P, 2, 4] of the rows that are too long: node, first entry, last entry + 1, 0, and the
        first piece of that row, how many it has, 0, 0.
    """
    by_length = _by_length(rowptr, entries)
    return _share_out(rowptr, entries, by_length._replace(longest=by_length.longest.cpu()))


def _by_length(rowptrs: Tensor, entries: int) -> ByLength:
    """Of row pointers [..., N + 1] to at most so many entries each."""
    lengths, rows = rowptrs.diff().sort(descending=True, stable=True)
    return ByLength(rows, lengths[..., : max(PIECES, entries // LONGEST_PIECE)])


def _graph_rows(graph: Graph) -> ByLength:
    """Of a graph's matrix and of its transpose, [2, N]."""
    return graph.cached("rows by length", _both_by_length)


def _both_by_length(graph: Graph) -> ByLength:
    return _by_length(torch.stack(graph.rowptrs), max(graph.entry_counts))


def _longest_rows(graph: Graph) -> Tensor:
    return _graph_rows(graph).longest.flatten()


SURVEYS["cuda"] = _longest_rows


def _survey(graph: Graph) -> Tensor:
    """Asked for alone, of a graph that was built elsewhere."""
    return _longest_rows(graph).cpu()


def _share_out(rowptr: Tensor, entries: int, by_length: ByLength) -> tuple[Tensor, Tensor]:
    """`share_out`, which asks nothing if the lengths of the longest rows are on the host."""
    if entries > INT32_MAX:
        raise ValueError(f"on a GPU a graph may have up to {INT32_MAX:,} edges")
    piece = min(max(entries // PIECES, SHORTEST_PIECE), LONGEST_PIECE)
    too_long = by_length.longest[by_length.longest > piece]
    long, short = by_length.rows.tensor_split([too_long.numel()])
    start, stop = rowptr[:-1], rowptr[1:]
    node = torch.arange(start.numel(), dtype=rowptr.dtype, device=rowptr.device)
    spans = torch.stack([node, start, stop, torch.zeros_like(node)], 1).int()
    rows = spans.index_select(0, short)
    if not too_long.numel():
        return rows, spans.new_empty(0, 2, 4)

    hubs = spans.index_select(0, long.sort().values)
    number = int(_cut(too_long, piece)[1].sum())  # of pieces, all lengths being on the host
    length, count = _cut(hubs[:, 2] - hubs[:, 1], piece)
    first = count.cumsum(0) - count
    hub = torch.repeat_interleave(count, output_size=number)
    node, start, stop, zero = hubs.index_select(0, hub).unbind(1)
    length, count, first = torch.stack([length, count, first]).index_select(1, hub)
    begin = start + (torch.arange(number, device=hub.device) - first) * length
    end = torch.minimum(begin + length, stop)
    pieces = torch.stack([node, begin, end, zero, first, count, zero, zero], 1)
    return rows, pieces.int().view(-1, 2, 4)


def _cut(lengths: Tensor, piece: int) -> tuple[Tensor, Tensor]:
    """The length and the number of the pieces of long rows.

    A row of n entries in pieces of sqrt(n): then adding up its pieces takes no longer than one.
    """
    length = lengths.double().sqrt().ceil().clamp(min=piece).long()
    return length, (lengths + length - 1) // length
