"""Steps of a walk whose entries are those of each edge and head: forward, and back with products.

Heads know nothing of each other, so matrices of one pattern and with entries of their own are one
matrix of heads apart: row i g + h receives from column j g + h, for g groups of heads. What walks,
[N, H, e, d], lies in that order anyway.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from ...graph import CSR, Graph, csr_rows, index_dtype, transpose_order
from .. import recurrence
from . import cuda
from .cuda.schedule import Scheduled, share_out

BLOCK_NUMBERS = 2**22
"""Numbers that are gathered at a time for products along edges."""


class Apart(NamedTuple):
    """Where the entries of g matrices with one pattern stand, each for some of the heads.

    Shapes: `rowptr` [N g + 1], `col` [E g]; `order` [E g], where each entry stands in the entries
    [E, g]; on a GPU also how rows are shared out, see `schedule.share_out`.
    """

    rowptr: Tensor
    col: Tensor
    order: Tensor
    rows: Tensor | None = None
    pieces: Tensor | None = None

    @staticmethod
    def of(graph: Graph, groups: int, transpose: bool) -> Apart:
        """The matrix of a graph, or its transpose."""
        rowptr, col, _ = graph.transpose() if transpose else graph.matrix()
        entry = order = torch.arange(graph.num_edges, device=graph.device)
        if transpose:
            order = graph.cached("order of the transpose", transpose_order).long()
        edges, group = graph.num_edges * groups, torch.arange(groups, device=graph.device)
        start, count = rowptr[:-1].long(), rowptr.diff().long()
        # All entries of a row for the first group, then all of them for the second.
        starts = start[:, None] * groups + group * count[:, None]
        row = csr_rows(rowptr, graph.num_edges).long()
        place = ((entry - start[row])[:, None] + starts[row]).flatten()
        dtype = index_dtype(edges, graph.num_nodes * groups)
        pointers = torch.cat([starts.flatten(), start.new_full((1,), edges)]).to(dtype)
        found = []
        for numbers in (col.long(), order):
            flat = (numbers[:, None] * groups + group).flatten()
            found.append(torch.empty_like(flat).index_copy_(0, place, flat).to(dtype))
        shares = share_out(pointers, edges) if graph.device.type == "cuda" else (None, None)
        return Apart(pointers, found[0], found[1], *shares)

    def ordered(self, entries: Tensor) -> Tensor:
        """Entries [E, g] as they stand here, [E g]."""
        return entries.flatten().index_select(0, self.order)

    def put_back(self, weights: Tensor, like: Tensor) -> Tensor:
        """The other way round: [E g] -> [E, g], which is the shape of `like`."""
        flat = torch.empty_like(weights).index_copy_(0, self.order.long(), weights)
        return flat.view(like.shape)


Ends: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""What a step back adds to a state: query, dR, and the gradient of the query."""


class Steps:
    """Steps in torch along a matrix with entries; `weight` [E g] in its order.

    States are [N, H, e, d]; read-outs and their gradients [N, H, e].
    """

    def __init__(self, apart: Apart, entries: Tensor) -> None:
        self.apart, self.weight, self.groups = apart, apart.ordered(entries), entries.size(1)

    def product(self, weight: Tensor, dense: Tensor) -> Tensor:
        """The matrix with these entries [E g] times what lies on its columns, [N g, w]."""
        return recurrence.product(CSR(*self.apart[:2], weight), dense)

    def walk(self, state: Tensor) -> Tensor:
        """A S."""
        return self.product(self.weight, self._by_row(state)).view(state.shape)

    def walk_and_read(self, state: Tensor, query: Tensor, readout: Tensor, new: Tensor) -> None:
        """new = A S, readout = q A S."""
        new.copy_(self.walk(state))
        readout.copy_(torch.matmul(new, query.unsqueeze(-1)).squeeze(-1))

    def walk_back(
        self, gradient: Tensor, state: Tensor, products: Tensor, ends: Ends | None
    ) -> Tensor:
        """A^T G, of which each entry is added to `products` [E g] as its gradient; and the ends.

        Args:
            gradient: G_m.
            state: S_(m-1).
            products: += <G_m[target], S_(m-1)[source]> in the order of the transpose.
            ends: if given, q (x) dR_(m-1) is added to what is returned, and S_(m-1) dR_(m-1) to
                the gradient of the query.
        """
        new = self.walk(gradient)
        products += self.along_edges(self._by_row(state), self._by_row(gradient))
        if ends is not None:
            query, grad_readout, grad_query = ends
            new += recurrence.outer(grad_readout, query)
            grad_query += recurrence.read(grad_readout, state)
        return new

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

    # One hop, along edges: every head has an entry, g = H, and a row its query, key and values.

    def read_once(self, query: Tensor, key: Tensor, ones: Tensor, readout: Tensor) -> Tensor:
        """readout = sum_j A (q.k) v, and the scores q.k of all entries, [E H]."""
        scores = self.along_edges(query.flatten(0, 1), key.flatten(0, 1))
        readout.copy_(self.product(scores * self.weight, ones.flatten(0, 1)).view(ones.shape))
        return scores

    def gradients_once(self, grad: Tensor, key: Tensor, ones: Tensor) -> tuple[Tensor, Tensor]:
        """From dR: the gradients of the query, and of the scores times entries, [E H]."""
        products = self.along_edges(grad.flatten(0, 1), ones.flatten(0, 1))
        found = self.product(products * self.weight, key.flatten(0, 1))
        return found.view(key.shape), products


class CudaSteps(Steps):
    """Products with the hop of the CUDA kernel."""

    def product(self, weight: Tensor, dense: Tensor) -> Tensor:
        apart = self.apart
        assert apart.rows is not None  # on a GPU there are
        assert apart.pieces is not None
        return cuda.product(Scheduled(*apart[:2], weight, apart.rows, apart.pieces), dense)


STEPS: dict[str, type[Steps]] = {"cuda": CudaSteps, "torch": Steps}
"""By backend; those of torch where there are none."""
