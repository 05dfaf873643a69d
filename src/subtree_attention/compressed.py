"""Sparse matrices in compressed rows: made of edges, looked at in blocks, transposed.

What the entries of a walk's matrix are is in `transition.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

INT32_MAX = 2**31 - 1
ENTRIES = 2**22
"""Entries of a large matrix that are looked at together, so that little memory is taken beside."""


class CSR(NamedTuple):
    """A sparse matrix in compressed rows.

    Shapes: `rowptr` [N + 1], `col` [E], `weight` [E]; `col` ascends within a row.
    """

    rowptr: Tensor
    col: Tensor
    weight: Tensor


class Pattern(NamedTuple):
    """Where the entries of a matrix are, with the raw edge weights (None: all are 1)."""

    rowptr: Tensor
    col: Tensor
    edge_weight: Tensor | None

    @property
    def num_rows(self) -> int:
        return self.rowptr.numel() - 1

    @property
    def is_large(self) -> bool:
        """Whether it is on a CPU, and to be looked at in blocks."""
        return self.col.device.type == "cpu" and self.col.numel() > ENTRIES

    def rows(self) -> Tensor:
        """The row of each entry, [E]."""
        return csr_rows(self.rowptr, self.col.numel())

    def slices(self) -> Iterator[slice]:
        """The entries, some at a time."""
        for start in range(0, self.col.numel(), ENTRIES):
            yield slice(start, min(start + ENTRIES, self.col.numel()))

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """The same, each time with the rows of the entries."""
        for some in self.slices():
            first, last = _row_of(self.rowptr, some.start), _row_of(self.rowptr, some.stop - 1)
            counts = self.rowptr[first : last + 2].clamp(some.start, some.stop).diff()
            yield some, csr_rows_of(counts, some.stop - some.start) + first

    def block(self, some: slice) -> Pattern:
        """Some of the entries, beside the row pointers of all."""
        weight = None if self.edge_weight is None else self.edge_weight[some]
        return self._replace(col=self.col[some], edge_weight=weight)

    def first(self, entries: int) -> Pattern:
        """Without what comes after so many entries."""
        dtype = index_dtype(self.num_rows, entries)
        weight = None if self.edge_weight is None else self.edge_weight[:entries]
        return Pattern(self.rowptr.to(dtype), self.col[:entries].to(dtype), weight)

    def transposed(self, rows: Tensor) -> Pattern:
        """The transpose of a square matrix, whose entries stand in these rows, [E]."""
        rowptr, col, order = _by_column(rows, self.col, self.num_rows)
        weight = self.edge_weight
        return Pattern(rowptr, col, None if weight is None else weight.index_select(0, order))


def index_dtype(*sizes: int) -> torch.dtype:
    """int32 where it can count that far."""
    return torch.int32 if max(sizes) <= INT32_MAX else torch.int64


def csr_rows(rowptr: Tensor, entries: int) -> Tensor:
    """The row of each entry of a CSR matrix, [E]; without E a GPU would make the host wait."""
    return csr_rows_of(rowptr.diff(), entries)


def csr_rows_of(counts: Tensor, entries: int) -> Tensor:
    """The row of each entry, [E], of rows with so many entries each."""
    return torch.repeat_interleave(counts, output_size=entries)


def _row_of(rowptr: Tensor, entry: int) -> int:
    """The row in which an entry stands."""
    return int(torch.searchsorted(rowptr, entry, right=True)) - 1


def row_pointers(ascending: Tensor, num_rows: int) -> Tensor:
    """Where the entries of each row start, [rows + 1], of entries in ascending rows."""
    rows = torch.arange(num_rows + 1, dtype=ascending.dtype, device=ascending.device)
    return torch.searchsorted(ascending, rows, out_int32=ascending.dtype == torch.int32)


def transposed(rowptr: Tensor, col: Tensor, num_columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """Row pointers and columns of a CSR matrix's transpose, and where its entries stand there."""
    return _by_column(csr_rows(rowptr, col.numel()), col, num_columns)


def _by_column(rows: Tensor, col: Tensor, num_columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """`transposed`, of a matrix whose entries stand in these rows, [E].

    A stable sort: the columns of the transpose ascend, and parallel edges keep their order.
    """
    senders, order = torch.sort(col, stable=True)
    return row_pointers(senders, num_columns), rows.index_select(0, order), order


def compressed(
    edges: Tensor, weight: Tensor | None, num_nodes: int
) -> tuple[Pattern, Tensor, Tensor]:
    """Edges as a matrix whose rows receive, the row of each entry, and which edge it is.

    The order is canonical, so equal graphs are equal.
    """
    source, target = edges
    order = torch.add(source, target, alpha=max(num_nodes, 1)).argsort(stable=True)
    dtype = index_dtype(num_nodes, order.numel())
    col, rows = edges.index_select(1, order).to(dtype)
    weight = None if weight is None else weight.index_select(0, order)
    return Pattern(row_pointers(rows, num_nodes), col, weight), rows, order.to(dtype)


def edges_with_loops(
    edges: Tensor, weight: Tensor | None, num_nodes: int
) -> tuple[Tensor, Tensor | None]:
    """A loop of weight 1 more for each node: an edge of node N, which is none, where it has one.

    Such edges are cut off later: how many they are is a question that a GPU is not asked alone.
    """
    source, target = edges
    loops = source.where(source == target, num_nodes).clamp_(0, num_nodes)  # whatever is in it
    has_loop = edges.new_zeros(num_nodes + 1, dtype=torch.bool).index_fill_(0, loops, True)
    nodes = torch.arange(num_nodes, device=edges.device)
    nodes = nodes.masked_fill_(has_loop[:-1], num_nodes)
    if weight is not None:
        weight = torch.cat([weight, weight.new_ones(num_nodes)])
    return torch.cat([edges, nodes.expand(2, -1)], dim=1), weight


def rows_with_loops(given: Pattern) -> tuple[Pattern, Tensor]:
    """The matrix with a loop of weight 1 in every row that has none, and which entry each was: E
    for a loop. Entries keep their order, and a loop stands where its column belongs."""
    num_nodes, entries = given.num_rows, given.col.numel()
    device = given.col.device
    lacks = torch.ones(num_nodes, dtype=torch.int64, device=device)
    before = torch.zeros(num_nodes, dtype=torch.int64, device=device)  # entries before the loop
    for some, rows in given.blocks():
        col = given.col[some]
        lacks.index_fill_(0, rows[rows == col].long(), 0)
        before += torch.bincount(rows[col < rows], minlength=num_nodes)
    added = lacks.cumsum(0) - lacks  # loops in the rows before
    places = (given.rowptr[:-1] + added + before)[lacks > 0]
    total = entries + places.numel()
    dtype = index_dtype(num_nodes, total)
    rowptr = torch.cat([given.rowptr.long()[:-1] + added, added.new_tensor([total])]).to(dtype)
    col = torch.empty(total, dtype=dtype, device=device)
    order = torch.full((total,), entries, dtype=dtype, device=device)
    weight = None if given.edge_weight is None else given.edge_weight.new_ones(total)
    col[places] = lacks.nonzero().flatten().to(dtype)
    for some, rows in given.blocks():
        came = torch.arange(some.start, some.stop, device=device)
        goes = came + added[rows] + lacks[rows] * (given.col[some] > rows)
        col[goes], order[goes] = given.col[some].to(dtype), came.to(dtype)
        if weight is not None and given.edge_weight is not None:
            weight[goes] = given.edge_weight[some]
    return Pattern(rowptr, col, weight), order
