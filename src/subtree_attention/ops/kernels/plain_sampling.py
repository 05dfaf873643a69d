"""A hop of a sample in plain torch: all rows at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ...compressed import csr_rows
from .sampling import Draw, Hop

if TYPE_CHECKING:
    from ..in_edges import InEdges

FEW = 32
"""Up to so many draws of a row each is held against those before it."""

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""The constants of splitmix64."""


class _Picks(NamedTuple):
    """Edges of rows: which row [e], where in `col` [e], its estimated entry [e] float64."""

    row: Tensor
    at: Tensor
    entry: Tensor


def hop(graph: InEdges, nodes: Tensor, draw: Draw, place: Tensor, known: int) -> Hop:
    """See `sampling.HopFunction`."""
    rows = _Rows(graph, nodes)
    edges = rows.together(rows.loops(), rows.others(draw))
    new = edges.sender[_of(place, edges.sender) < 0].unique()
    place[new] = torch.arange(known, known + len(new), dtype=torch.int32)
    return _arranged(edges, place, len(nodes), known + len(new), new)


def inside(graph: InEdges, nodes: Tensor, place: Tensor, rescale: bool) -> Hop:
    """All edges of some rows whose senders are numbered, as a hop that meets nobody new.

    With `rescale`, what is left of a row adds up to what the row did, loops aside.
    """
    rows = _Rows(graph, nodes)
    row, at, entry = rows.others(Draw(0, -1, "uniform", False))
    stays = _of(place, _of(graph.col, at)) >= 0
    if rescale:
        whole = entry.new_zeros(len(nodes)).index_add_(0, row, entry)
        left = entry.new_zeros(len(nodes)).index_add_(0, row[stays], entry[stays])
        entry = entry * torch.where(left != 0, whole / left, 1.0)[row]
    edges = rows.together(rows.loops(), _Picks(row[stays], at[stays], entry[stays]))
    return _arranged(edges, place, len(nodes), len(nodes), nodes[:0])


class _Edges(NamedTuple):
    """The row, the sender, the place and the estimated entry of each edge: [e] each."""

    row: Tensor
    sender: Tensor
    at: Tensor
    entry: Tensor


def _arranged(edges: _Edges, place: Tensor, rows: int, nodes: int, new: Tensor) -> Hop:
    """Edges row by row, by the numbers of their senders."""
    col = _of(place, edges.sender)
    order = torch.argsort(edges.row * nodes + col, stable=True)
    lengths = torch.bincount(edges.row, minlength=rows)
    return Hop(lengths, _of(col, order), _of(edges.at, order), _of(edges.entry, order).float(), new)


class _Rows:
    """Rows of a graph, where loops stand apart."""

    def __init__(self, graph: InEdges, nodes: Tensor) -> None:
        self.graph, self.nodes = graph, nodes
        self.start, stop = _of(graph.rowptr, nodes).long(), _of(graph.rowptr, nodes + 1).long()
        self.first_loop = self.last_loop = stop
        if graph.has_loops:
            self.first_loop = _bisected(graph.col, self.start, stop, nodes)
            self.last_loop = _bisected(graph.col, self.first_loop, stop, nodes + 1)
        self.num_loops = self.last_loop - self.first_loop
        self.degree = stop - self.start - self.num_loops  # without loops

    def scaled(self, weight: Tensor, row: Tensor, senders: Tensor) -> Tensor:
        """Weights [e] times what the transition multiplies edges by, float64."""
        if self.graph.row_scale is not None:
            weight = weight * _of(self.graph.row_scale, _of(self.nodes, row))
        if self.graph.col_scale is not None:
            weight = weight * _of(self.graph.col_scale, senders)
        return weight

    def entry(self, row: Tensor, at: Tensor) -> Tensor:
        """The transition's entries, [e] float64."""
        given = self.graph.edge_weight
        weight = (
            torch.ones(len(at), dtype=torch.float64) if given is None else _of(given, at).double()
        )
        return self.scaled(weight, row, _of(self.graph.col, at))

    def together(self, *picks: _Picks) -> _Edges:
        """Edges that were picked, and the loops that are not among the graph's edges."""
        graph, nodes = self.graph, self.nodes
        row, at, entry = (torch.cat(part) for part in zip(*picks, strict=True))
        edges = _Edges(row, _of(graph.col, at).long(), at, entry)
        if graph.added_loops is None:
            return edges
        added = graph.added_loops[nodes].nonzero().flatten()
        nowhere = added.new_full((len(added),), graph.num_edges)
        weight = self.scaled(entry.new_ones(len(added)), added, nodes[added])
        loops = _Edges(added, nodes[added], nowhere, weight)
        return _Edges(*(torch.cat(part) for part in zip(edges, loops, strict=True)))

    def loops(self) -> _Picks:
        """All loops, as they are."""
        row = csr_rows(_starts(self.num_loops), int(self.num_loops.sum()))
        at = self.first_loop[row] + _inside(self.num_loops)
        return _Picks(row, at, self.entry(row, at))

    def others(self, draw: Draw) -> _Picks:
        """Those of the other edges that are drawn."""
        if draw.fanout < 0:
            return self._all(torch.arange(len(self.nodes)))
        again = draw.replace and draw.by == "uniform"
        whole = self.degree <= (0 if again else draw.fanout)
        exact = self._all(whole.nonzero().flatten())
        drawn = self._drawn((~whole).nonzero().flatten(), draw)
        return _Picks(*(torch.cat(part) for part in zip(exact, drawn, strict=True)))

    def _all(self, which: Tensor) -> _Picks:
        degree = self.degree[which]
        row = _of(which, csr_rows(_starts(degree), int(degree.sum())))
        at = self._at(row, _inside(degree))
        return _Picks(row, at, self.entry(row, at))

    def _at(self, row: Tensor, number: Tensor) -> Tensor:
        """Where the edge of that number among those that are no loops stands."""
        at = _of(self.start, row) + number
        if not self.graph.has_loops:
            return at
        return at + _of(self.num_loops, row).where(at >= _of(self.first_loop, row), 0)

    def _drawn(self, which: Tensor, draw: Draw) -> _Picks:
        if draw.by == "walk":
            return self._walked(which, draw)
        if draw.replace or draw.fanout <= FEW:
            numbers = _few(draw, self.nodes[which], self.degree[which])
        else:
            numbers = self._many(which, draw)
        row = which.repeat_interleave(draw.fanout)
        at = self._at(row, numbers.flatten())
        return _Picks(row, at, self.entry(row, at) * (_of(self.degree, row).double() / draw.fanout))

    def _many(self, which: Tensor, draw: Draw) -> Tensor:
        """Numbers of edges, [m, f]: those that come first in a random order of each row."""
        degree = self.degree[which]
        row = csr_rows(_starts(degree), int(degree.sum()))
        number = _inside(degree)
        chance = _uniform(draw.key, self.nodes[which][row], number)
        order = torch.argsort(row + chance)  # chance < 1: row by row
        first = _starts(degree)[:-1, None] + torch.arange(draw.fanout)
        return number[order[first.flatten()]].view(-1, draw.fanout)

    def _walked(self, which: Tensor, draw: Draw) -> _Picks:
        edges = self._all(which)
        size, ends = edges.entry.abs(), _starts(self.degree[which])
        reached = size.cumsum(0)
        before = torch.cat([reached.new_zeros(1), reached])[ends]
        total = before.diff()  # [m]
        chance = _uniform(draw.key, self.nodes[which][:, None], torch.arange(draw.fanout))
        found = torch.searchsorted(reached, before[:-1, None] + chance * total[:, None], right=True)
        found = found.clamp(ends[:-1, None], ends[1:, None] - 1).flatten()
        edge, count = found.unique(return_counts=True)
        row = edges.row[edge]
        sums = torch.zeros(len(self.nodes), dtype=torch.float64).index_copy_(0, which, total)
        entry = edges.entry[edge].sign() * sums[row] * count / draw.fanout
        return _Picks(row, edges.at[edge], entry)


def _few(draw: Draw, nodes: Tensor, degree: Tensor) -> Tensor:
    """Numbers below the degree of each row, [m, f]; different ones, unless with replacement.

    The s-th is drawn from the first d - f + s + 1 numbers, and is the last of these if the one
    that was drawn is there already: every set of f numbers is as likely.
    """
    drawn = torch.empty(len(nodes), draw.fanout, dtype=torch.int64)
    for s in range(draw.fanout):
        last = degree - 1 if draw.replace else degree - draw.fanout + s
        number = (_uniform(draw.key, nodes, torch.tensor(s)) * (last + 1)).long()
        if s and not draw.replace:
            number = torch.where((drawn[:, :s] == number[:, None]).any(1), last, number)
        drawn[:, s] = number
    return drawn


# ------------------------------------------------------------------------------------- numbers


def _uniform(key: int, nodes: Tensor, number: Tensor) -> Tensor:
    """A draw from [0, 1) for each node and number of a draw, float64, by splitmix64."""
    start = _mixed(nodes * _signed(_GOLDEN) + _signed(mixed(key)))
    bits = _mixed(start + (number + 1) * _signed(_GOLDEN))
    return _shifted(bits, 11).double() * 2.0**-53


def mixed(bits: int) -> int:
    """64 bits, well mixed, of which none is lost."""
    bits %= 2**64
    bits = (bits ^ (bits >> 30)) * _FIRST % 2**64
    bits = (bits ^ (bits >> 27)) * _SECOND % 2**64
    return bits ^ (bits >> 31)


def _mixed(bits: Tensor) -> Tensor:
    """The same of int64, which wraps around."""
    bits = (bits ^ _shifted(bits, 30)) * _signed(_FIRST)
    bits = (bits ^ _shifted(bits, 27)) * _signed(_SECOND)
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Tensor, by: int) -> Tensor:
    """To the right, with zeros from the left."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def _signed(bits: int) -> int:
    return bits - 2**64 if bits >= 2**63 else bits


def _of(values: Tensor, index: Tensor) -> Tensor:
    """values[index], in a fraction of the time."""
    return values.index_select(0, index)


def _starts(lengths: Tensor) -> Tensor:
    """Where rows of such lengths start and end, [m + 1]."""
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def _inside(lengths: Tensor) -> Tensor:
    """0, 1, ... within each of some rows of such lengths."""
    starts = _starts(lengths)
    total = int(starts[-1])
    return torch.arange(total) - torch.repeat_interleave(starts[:-1], lengths, output_size=total)


def _bisected(col: Tensor, low: Tensor, high: Tensor, nodes: Tensor) -> Tensor:
    """The first place from low to high, [m] each, at which `col` is not below the node."""
    while bool((low < high).any()):
        middle = (low + high) // 2
        there = middle.clamp(max=col.numel() - 1)
        below = (col[there] < nodes) & (low < high)
        high = torch.where(below, high, middle.minimum(high))
        low = torch.where(below, middle + 1, low)
    return low
