"""A graph as a sampler reads it: who sends to a node, and what the entries of a transition are.

Nothing of the size of the edges is made of edges that come in compressed rows, so they may lie in a
file. The entries of the transition are factors: a number a sender, a number a receiver, and where
edges have weights, theirs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .. import _check
from ..adjacency import check_weights
from ..compressed import csr_rows
from ..graph import Graph
from ..transition import TRANSITIONS

CHUNK = 2**22
"""Edges that are looked at together, where all of them are looked at."""


@dataclass(frozen=True, eq=False)
class InEdges:
    """In-edges in compressed rows, and the transition's entries as factors; on the CPU.

    An entry is `edge_weight[e] * row_scale[i] * col_scale[j]`, where what is None counts as 1.

    Attributes:
        rowptr: `[N + 1]`, int32 or int64; row i receives.
        col: `[E]`, int32 or int64, the senders, ascending within a row.
        e_id: `[E]`, where each edge stood in the edge_index that came; None: where it stands here.
        col_scale: `[N]` float64, by sender, or None.
        row_scale: `[N]` float64, by receiver, or None.
        edge_weight: `[E]`, or None.
        added_loops: `[N]`, a mask of nodes with a loop of weight 1 that is not among the edges;
            None: there are none.
        has_loops: whether some edge leads from a node to itself.
        given_edges: how many edges came: what `e_id` says of a loop that was added.
        walks_by: the transition, and whether loops were added; None: it is not known.
    """

    rowptr: Tensor
    col: Tensor
    e_id: Tensor | None = None
    col_scale: Tensor | None = None
    row_scale: Tensor | None = None
    edge_weight: Tensor | None = None
    added_loops: Tensor | None = None
    has_loops: bool = True
    given_edges: int = 0
    walks_by: tuple[str | None, bool] | None = None
    _rooms: deque[Tensor] = field(default_factory=deque, init=False, repr=False)
    _made: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def num_nodes(self) -> int:
        return self.rowptr.numel() - 1

    @property
    def num_edges(self) -> int:
        """Without loops that were added beside the edges."""
        return self.col.numel()

    @classmethod
    def of(cls, graph: Graph) -> InEdges:
        """Those of a graph, with its transition and its self-loops."""
        if graph.shared is not None:
            raise TypeError("a part of a graph has not all its edges: sample from the whole Graph")
        there = graph.to("cpu")
        rowptr, col, weight = there._receive
        loops = there.self_loops or _any_loop(rowptr, col)
        order = None if there._order is None else there._order.clamp(max=there.given_edges)
        by_sender, by_receiver = there._scales()
        return cls(
            rowptr,
            col,
            order,
            by_sender,
            by_receiver,
            weight,
            has_loops=loops,
            given_edges=there.given_edges,
            walks_by=graph.walks_by,
        )

    @classmethod
    def from_edges(
        cls,
        edge_index: Any,
        num_nodes: int | None = None,
        edge_weight: Tensor | None = None,
        transition: str | None = "rw",
        self_loops: bool = False,
    ) -> InEdges:
        """Those of an edge_index `[2, E]`, or whatever else a :class:`Graph` is made of."""
        return cls.of(Graph(edge_index, num_nodes, edge_weight, transition, self_loops))

    @classmethod
    def from_csr(
        cls,
        rowptr: Tensor,
        col: Tensor,
        edge_weight: Tensor | None = None,
        transition: str | None = "rw",
        self_loops: bool = False,
        *,
        e_id: Tensor | None = None,
        out_degree: Tensor | None = None,
        trusted: bool = False,
    ) -> InEdges:
        """Those of an adjacency in compressed rows, which is not copied: it may lie in a file.

        All edges are gone through once, some at a time.

        Args:
            rowptr: `[N + 1]`; the in-edges of node i are `rowptr[i]` to `rowptr[i + 1]`.
            col: `[E]`, int32 or int64, the senders, ascending within a row.
            edge_weight: `[E]`, None if all are 1.
            transition: as in :class:`Graph`.
            self_loops: add a loop of weight 1 to every node that has none.
            e_id: `[E]`, what the edges are called; by default by their places.
            out_degree: `[N]`, the (weighted) out-degrees without loops that are added, if they are
                known.
            trusted: whether rows are known to ascend and to name nodes that are there.
        """
        if transition is not None:
            _check.known("transition", transition, TRANSITIONS)
        _check_parts(rowptr, col, {"edge_weight": edge_weight, "e_id": e_id})
        if not trusted:
            _check_rows(rowptr, col)
            check_weights(edge_weight, transition)
        added = None
        if _check.flag("self_loops", self_loops):
            added = ~_with_loop(rowptr, col)
        by_sender, by_receiver = _scales(transition, rowptr, col, edge_weight, added, out_degree)
        loops = bool((~added).any()) if added is not None else _any_loop(rowptr, col)
        return cls(
            rowptr,
            col,
            e_id,
            by_sender,
            by_receiver,
            edge_weight,
            added,
            loops,
            given_edges=col.numel(),
            walks_by=(transition, self_loops),
        )

    def called(self, at: Tensor) -> Tensor:
        """What edges at some places of `col` are called, [e] int64; E is a loop that was added."""
        if self.e_id is None:
            return at
        if self.added_loops is None:
            return self.e_id.index_select(0, at).long()
        named = self.e_id.index_select(0, at.clamp(max=max(self.num_edges - 1, 0))).long()
        return named.where(at < self.num_edges, self.given_edges)

    def chunks(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Some edges at a time: which, their receivers and their senders, int64."""
        return _chunks(self.rowptr, self.col)

    # ----------------------------------------------------------------------------------- rooms

    def room(self) -> Tensor:
        """A place for each node, `[N]` int32, all -1: to be given back by `give`, as it was.

        One for every call at a time, so that a batch costs nothing that grows with N.
        """
        try:
            return self._rooms.pop()
        except IndexError:
            return torch.full((self.num_nodes,), -1, dtype=torch.int32)

    def give(self, room: Tensor) -> None:
        self._rooms.append(room)

    def made(self, name: str, make: Any) -> Any:
        """`make(self)`, made once."""
        if name not in self._made:
            self._made[name] = make(self)
        return self._made[name]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_rooms": deque(), "_made": {}}

    def __repr__(self) -> str:
        return f"InEdges(num_nodes={self.num_nodes}, num_edges={self.num_edges})"


def _check_parts(rowptr: Tensor, col: Tensor, others: dict[str, Tensor | None]) -> None:
    """Refuse what cannot be compressed rows, by its shapes and dtypes."""
    for name, part in {"rowptr": rowptr, "col": col}.items():
        _check.plain(name, _check.whole(name, part))
        if part.dim() != 1 or part.dtype not in (torch.int32, torch.int64):
            got = f"{part.dtype} {_check.shape(part)}"
            raise ValueError(f"{name} must be int32 or int64, one after the other, got {got}")
        if part.device.type != "cpu":
            raise ValueError(f"{name} must be on the CPU, which samples, got {part.device}")
    if not rowptr.numel() or int(rowptr[0]) != 0 or int(rowptr[-1]) != col.numel():
        ends = [int(rowptr[0]), int(rowptr[-1])] if rowptr.numel() else []
        raise ValueError(
            f"rowptr must have shape [N + 1] and lead from 0 to the {col.numel()} edges of col, "
            f"got {_check.shape(rowptr)} with the ends {ends}"
        )
    for name, given in others.items():
        if given is not None and given.shape != col.shape:
            raise ValueError(
                f"{name} must have shape [{col.numel()}], a number an edge, "
                f"got {_check.shape(given)}"
            )


def _chunks(rowptr: Tensor, col: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Some edges at a time: which, their rows and their senders, int64."""
    ends = rowptr[1:]
    for first in range(0, col.numel(), CHUNK):
        some = slice(first, min(first + CHUNK, col.numel()))
        low = int(torch.searchsorted(ends, first, right=True))
        high = int(torch.searchsorted(ends, some.stop - 1, right=True)) + 1
        parts = rowptr[low : high + 1].long().clamp(some.start, some.stop)
        yield some, low + csr_rows(parts, some.stop - first), col[some].long()


def _check_rows(rowptr: Tensor, col: Tensor) -> None:
    """Refuse senders that are not there, or that do not ascend within a row."""
    nodes = rowptr.numel() - 1
    if nodes and int(rowptr.diff().min()) < 0:
        raise ValueError("rowptr must not descend")
    last = -1  # of the chunk before: row * N + sender
    for _, rows, senders in _chunks(rowptr, col):
        low, high = (int(end) for end in senders.aminmax())
        if low < 0 or high >= nodes:
            raise ValueError(f"col must name nodes 0 to {nodes - 1}, got {low} to {high}")
        place = torch.add(senders, rows, alpha=nodes)
        if int(place[0]) < last or not bool((place.diff() >= 0).all()):
            raise ValueError(
                "col must ascend within a row: sort each row, or use InEdges.from_edges"
            )
        last = int(place[-1])


def _with_loop(rowptr: Tensor, col: Tensor) -> Tensor:
    """Which nodes have an edge to themselves, a mask [N]."""
    found = torch.zeros(rowptr.numel() - 1, dtype=torch.bool)
    for _, rows, senders in _chunks(rowptr, col):
        found[rows[rows == senders]] = True
    return found


def _any_loop(rowptr: Tensor, col: Tensor) -> bool:
    return any(bool((rows == senders).any()) for _, rows, senders in _chunks(rowptr, col))


def _scales(
    transition: str | None,
    rowptr: Tensor,
    col: Tensor,
    weight: Tensor | None,
    added: Tensor | None,
    out_degree: Tensor | None,
) -> tuple[Tensor | None, Tensor | None]:
    """What the transition multiplies an edge by: [N] by sender, [N] by receiver, in float64."""
    by_sender = by_receiver = None
    if transition in ("rw", "sym"):
        degree = _out_degree(rowptr, col, weight) if out_degree is None else out_degree.double()
        by_sender = _inverse(degree, added)
    if transition in ("mean", "sym"):
        by_receiver = _inverse(_in_degree(rowptr, col, weight), added)
    if transition == "sym":
        assert by_sender is not None
        assert by_receiver is not None
        return by_sender.sqrt(), by_receiver.sqrt()
    return by_sender, by_receiver


def _inverse(degree: Tensor, added: Tensor | None) -> Tensor:
    """1 / degree, with the loops that are added, and 0 where that is 0."""
    whole = degree if added is None else degree + added
    return whole.where(whole != 0, torch.inf).reciprocal()


def _out_degree(rowptr: Tensor, col: Tensor, weight: Tensor | None) -> Tensor:
    """[N] float64; one after the other, so that it has the bits of a `Graph`'s."""
    total = torch.zeros(rowptr.numel() - 1, dtype=torch.float64)
    for some, _, senders in _chunks(rowptr, col):
        if weight is None:
            total += torch.bincount(senders, minlength=total.numel())
        else:
            total.index_add_(0, senders, weight[some].double())
    return total


def _in_degree(rowptr: Tensor, col: Tensor, weight: Tensor | None) -> Tensor:
    """[N] float64."""
    if weight is None:
        return rowptr.diff().double()
    total = torch.zeros(rowptr.numel() - 1, dtype=torch.float64)
    for some, rows, _ in _chunks(rowptr, col):
        total.index_add_(0, rows, weight[some].double())
    return total
