"""Steps of a walk whose entries are those of each edge and head: forward, and back with products.

Heads know nothing of each other, so matrices of one pattern and with entries of their own are one
matrix of heads apart: row i g + h receives from column j g + h, for g groups of heads. What walks,
[N, H, e, d], lies in that order anyway.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...compressed import CSR, csr_rows, index_dtype
from ...graph import Graph, transpose_order
from .. import recurrence
from . import cuda, workers
from .cpu import POOL, arrays
from .cuda import tape
from .cuda.along import products as products_along
from .cuda.ends import aligned
from .cuda.layout import lay_out, padded
from .cuda.schedule import Scheduled, share_out

BLOCK_NUMBERS = 2**22
"""Numbers that are gathered at a time for products along edges."""


class Apart(NamedTuple):
    """Where the entries of g matrices with one pattern stand, each for some of the heads.

    Shapes: `rowptr` [N g + 1], `col` [E g]; `order` [E g], where each entry stands in the entries
    [E, g], `place` [E g], the other way round, and `across` [E g], where it stands in the
    transpose; on a GPU also how rows are shared out, see `schedule.share_out`.
    """

    rowptr: Tensor
    col: Tensor
    order: Tensor
    place: Tensor
    across: Tensor
    rows: Tensor | None = None
    pieces: Tensor | None = None

    @staticmethod
    def of(graph: Graph, groups: int, transpose: bool) -> Apart:
        """The matrix of a graph, or its transpose."""
        numbers = torch.arange(graph.num_edges, device=graph.device)
        back = graph.cached("order of the transpose", transpose_order).long()
        sides = [(graph.matrix(), numbers), (graph.transpose(), back)]
        dtype, orders = index_dtype(graph.num_edges * groups, graph.num_nodes * groups), []
        for matrix, number in sides:
            pointers, entry, group = _group_by_group(matrix.rowptr, graph.num_edges, groups)
            orders.append(number[entry] * groups + group)
            if matrix is sides[transpose][0]:
                rowptr, col = pointers.to(dtype), matrix.col.long()[entry] * groups + group
        order, other = orders[transpose], orders[not transpose]
        found = col, order, _inverse(order), _inverse(other)[order]
        on_gpu = graph.device.type == "cuda"
        shares = share_out(rowptr, graph.num_edges * groups) if on_gpu else (None, None)
        return Apart(rowptr, *(each.to(dtype) for each in found), *shares)

    def ordered(self, entries: Tensor) -> Tensor:
        """Entries [E, g] as they stand here, [E g]."""
        return entries.flatten().index_select(0, self.order)

    def put_back(self, weights: Tensor, like: Tensor) -> Tensor:
        """The other way round: [E g] -> [E, g], which is the shape of `like`."""
        return weights.index_select(0, self.place).view(like.shape)


def _group_by_group(rowptr: Tensor, entries: int, groups: int) -> tuple[Tensor, Tensor, Tensor]:
    """All entries of a row for the first group, then all of them for the second, and so on.

    Returns:
        Where the row of each node and group starts, [N g + 1]; and which entry and which group
        stands where, [E g] each.
    """
    start, count = rowptr[:-1].long(), rowptr.diff().long()
    group = torch.arange(groups, device=rowptr.device)
    starts = start[:, None] * groups + group * count[:, None]
    row = csr_rows(rowptr, entries).long()
    places = (torch.arange(entries, device=rowptr.device) - start[row])[:, None] + starts[row]
    there = _inverse(places.flatten())
    pointers = torch.cat([starts.flatten(), start.new_full((1,), entries * groups)])
    return pointers, there // groups, there % groups


def _inverse(order: Tensor) -> Tensor:
    """Where each number stands in a permutation, [n]."""
    numbers = torch.arange(order.numel(), device=order.device)
    return torch.empty_like(order).index_copy_(0, order, numbers)


Ends: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""What a step back reads and adds to: query, dR, and the gradient of the query."""


class Steps:
    """Steps in torch along a matrix with entries [E, g].

    States are [N, H, e, d]; read-outs and their gradients [N, H, e].
    """

    def __init__(self, apart: Apart, entries: Tensor) -> None:
        self.apart, self.entries, self.groups = apart, entries, entries.size(1)

    @cached_property
    def weight(self) -> Tensor:
        """The entries as the matrix has them."""
        return self.apart.ordered(self.entries)

    def product(self, weight: Tensor, dense: Tensor) -> Tensor:
        """The matrix with these entries [E g] times what lies on its columns, [N g, w]."""
        return recurrence.product(CSR(*self.apart[:2], weight), dense)

    def empty(self, *shape: int) -> Tensor:
        """Room for states."""
        return self.entries.new_empty(shape)

    def outer(self, left: Tensor, right: Tensor) -> Tensor:
        """[N, H, e], [N, H, d] -> [N, H, e, d]."""
        out = self.empty(*left.shape, right.size(2))
        return torch.mul(left.unsqueeze(-1), right.unsqueeze(-2), out=out)

    def walk(self, state: Tensor) -> Tensor:
        """A S."""
        return self.product(self.weight, self._by_row(state)).view(state.shape)

    def walk_and_read(self, state: Tensor, query: Tensor, readout: Tensor, new: Tensor) -> None:
        """new = A S, readout = q A S."""
        new.copy_(self.walk(state))
        readout.copy_(torch.matmul(new, query.unsqueeze(-1)).squeeze(-1))

    # Backwards, along the transpose: `products` [E g] += <G_m[target], S_(m-1)[source]>, which is
    # what a hop adds to the gradient of each entry.

    def turn(self, state: Tensor, ends: Ends) -> Tensor:
        """G_K = q (x) dR_K, and S_K dR_K for the query."""
        query, grad_readout, grad_query = ends
        self.add_to_query(state, grad_readout, grad_query)
        return self.outer(grad_readout, query)

    def add_to_query(self, state: Tensor, grad_readout: Tensor, grad_query: Tensor) -> None:
        """dq += S_m dR_m."""
        grad_query += recurrence.read(grad_readout, state)

    def walk_back(self, gradient: Tensor, state: Tensor, products: Tensor, ends: Ends) -> Tensor:
        """G_(m-1) = A^T G_m + q (x) dR_(m-1), and S_(m-1) dR_(m-1) for the query."""
        own = self.turn(state, ends)
        return own.add_(self._with_products(gradient, state, products))

    def walk_home(
        self, gradient: Tensor, state: Tensor, products: Tensor, key: Tensor, ones: Tensor
    ) -> tuple[Tensor, Tensor]:
        """dS_0 = A^T G_1, and of it the gradients of the keys and of the values with ones."""
        home = self._with_products(gradient, state, products)
        grad_ones = torch.matmul(home, key.unsqueeze(-1)).squeeze(-1)
        return recurrence.read(ones, home), grad_ones

    def _with_products(self, gradient: Tensor, state: Tensor, products: Tensor) -> Tensor:
        products += self.along_edges(self._by_row(state), self._by_row(gradient))
        return self.walk(gradient)

    def along_edges(self, of_row: Tensor, of_column: Tensor) -> Tensor:
        """<row, column> for each entry: [N g, w], [N g, w] -> [E g], some entries at a time."""
        col, row = self.apart.col, csr_rows(self.apart.rowptr, self.apart.col.numel())
        out, most = of_row.new_empty(col.numel()), max(BLOCK_NUMBERS // of_row.size(1), 1)
        for start in range(0, col.numel(), most):
            some = slice(start, start + most)
            pairs = of_row.index_select(0, row[some]), of_column.index_select(0, col[some])
            out[some] = torch.linalg.vecdot(*pairs)
        return out

    def _by_row(self, state: Tensor) -> Tensor:
        """[N, H, ...] -> [N g, w]."""
        return state.view(len(state) * self.groups, math.prod(state.shape[1:]) // self.groups)

    def sum_along_edges(self, left: Tensor, right: Tensor, dense: Tensor) -> tuple[Tensor, Tensor]:
        """<left[row], right[column]> for each entry, [E H], and what they sum up of the columns.

        That is all that a single hop needs: every head has an entry, g = H.

        Args:
            left: `[N, H, w]`
            right: `[N, H, w]`
            dense: `[N, H, v]`, of which the second is a sum: entries times products times dense.
        """
        products = self.along_edges(left.flatten(0, 1), right.flatten(0, 1))
        found = self.product(products * self.weight, dense.flatten(0, 1))
        return products, found.view(dense.shape)


class CudaSteps(Steps):
    """Hops of the CUDA kernel, with the read-out or what a step back adds in the same pass.

    A row of a matrix of heads apart has one head, so a state [N, H, e, d] is what the kernel calls
    a state of N H nodes. Where all heads share their entries, hops are plain products.
    """

    @cached_property
    def scheduled(self) -> Scheduled:
        apart = self.apart
        assert apart.rows is not None  # on a GPU there are
        assert apart.pieces is not None
        return Scheduled(*apart[:2], self.weight, apart.rows, apart.pieces)

    @cached_property
    def rows(self) -> cuda.Rows:
        return cuda.Rows(self.scheduled)

    @cached_property
    def row(self) -> Tensor:
        """The row of each entry."""
        return csr_rows(self.apart.rowptr, self.apart.col.numel())

    def product(self, weight: Tensor, dense: Tensor) -> Tensor:
        return cuda.product(self.scheduled._replace(weight=weight), dense)

    def along_edges(self, of_row: Tensor, of_column: Tensor) -> Tensor:
        return products_along(of_row, of_column, self.row, self.apart.col)

    def walk_and_read(self, state: Tensor, query: Tensor, readout: Tensor, new: Tensor) -> None:
        if self.groups < state.size(1) or not state.numel():
            super().walk_and_read(state, query, readout, new)
            return
        width = state.size(2)
        places = {"readout": readout.view(-1, 1, width), "readout_width": width}
        self._hop(state, new, own=query, readout_row=width, **places)

    def walk_back(self, gradient: Tensor, state: Tensor, products: Tensor, ends: Ends) -> Tensor:
        if self.groups < state.size(1) or not state.numel():
            return super().walk_back(gradient, state, products, ends)
        query, grad_readout, grad_query = ends
        width, new = state.size(2), torch.empty_like(gradient)
        other = F.pad(grad_readout, (0, padded(width) - width)).view(-1, 1, padded(width))
        self._hop(gradient, new, own=query, other=other, add_own=True)
        products += self.along_edges(self._by_row(state), self._by_row(gradient))
        self.add_to_query(state, grad_readout, grad_query)
        return new

    def _hop(self, old: Tensor, new: Tensor, own: Tensor, **parts: Any) -> None:
        """One hop of states [N, H, e, d]; the parts are fields of `Hop` in kernels.cu."""
        width, channels = old.shape[2:]
        layout = lay_out(1, channels, width, width, old.dtype, old.dtype, factors=False)
        partial = old.new_empty(self.rows.pieces, width, channels)
        arrived = tape.zeros(self.rows.pieces * width, old.device)
        states = {"old_state": old, "new_state": new, "own": aligned(own).view(-1, 1, channels)}
        self.rows.hop(layout, first_column=0, partial=partial, arrived=arrived, **states, **parts)


class NumbaSteps(Steps):
    """All that is done to a row in one pass, by Numba."""

    def __init__(self, apart: Apart, entries: Tensor) -> None:
        super().__init__(apart, entries)
        from . import _numba_edges

        self.kernels, self.workers = _numba_edges, torch.get_num_threads()
        self.dtype, self.pattern = entries.numpy().dtype, arrays(*apart[:2])

    def empty(self, *shape: int) -> Tensor:
        return POOL.take(shape, self.dtype)

    def product(self, weight: Tensor, dense: Tensor) -> Tensor:
        width, out = dense.size(1), self.empty(*dense.shape)
        ends = *arrays(weight, dense, out), self._totals(width)
        self._launch("multiply_rows", width, *ends)
        return out

    def walk_and_read(self, state: Tensor, query: Tensor, readout: Tensor, new: Tensor) -> None:
        shape, ends = self._shape(state), arrays(query, readout)
        states = *arrays(self.weight, state, new), self._totals(math.prod(shape))
        self._launch("walk_and_read_out", shape, *states, *ends)

    def turn(self, state: Tensor, ends: Ends) -> Tensor:
        shape, new = self._shape(state), self.empty(*state.shape)
        self._launch("turn_back", shape, *arrays(new, state, *ends))
        return new

    def walk_back(self, gradient: Tensor, state: Tensor, products: Tensor, ends: Ends) -> Tensor:
        shape, new = self._shape(state), self.empty(*state.shape)
        states = *arrays(self.weight, gradient, new), self._totals(math.prod(shape))
        self._launch("walk_back_along", shape, *states, *arrays(state, products, *ends))
        return new

    def walk_home(
        self, gradient: Tensor, state: Tensor, products: Tensor, key: Tensor, ones: Tensor
    ) -> tuple[Tensor, Tensor]:
        grads, shape = (torch.zeros_like(key), torch.empty_like(ones)), self._shape(state)
        lanes = self.empty(self.workers, *shape)
        states = *arrays(self.weight, gradient, lanes), self._totals(math.prod(shape))
        ends = arrays(state, products, key, ones, *grads)
        self._launch("walk_home_along", shape, *states, *ends)
        return grads

    def sum_along_edges(self, left: Tensor, right: Tensor, dense: Tensor) -> tuple[Tensor, Tensor]:
        products, out = torch.empty_like(self.weight), self.empty(*dense.shape)
        weighted, shape = torch.empty_like(products), (left.size(2), dense.size(2))
        given = arrays(self.weight, left, right, dense, products, weighted, out)
        self._launch("sum_along_edges", shape, *given, self._totals(shape[1]))
        return products, out

    def _shape(self, state: Tensor) -> tuple[int, ...]:
        """(H / g, e, d), of what a row holds."""
        return state.size(1) // self.groups, state.size(2), state.size(3)

    def _launch(self, kernel: str, shape: Any, *arguments: Any) -> None:
        """Run a kernel over all rows, on as many threads as they are worth."""
        rows, counter = self.pattern[0].size - 1, np.zeros(1, np.int64)
        threads = min(self.workers, -(-rows // self.kernels.LOT)) or 1
        given = counter, shape, *self.pattern, *arguments
        workers.run(getattr(self.kernels, kernel), threads, *given)

    def _totals(self, width: int) -> np.ndarray:
        """A row for each thread, while a long one is added up."""
        return POOL.take((self.workers * width,), np.dtype(np.float64)).numpy()
