"""Subtrees of single roots of a large graph, and of one to which a little is added.

`Subtrees` has the edges of a graph as it stands. A `Change` is what new nodes and edges add to it:
which rows get more entries, and which nodes other degrees. A root is then answered from the edges
that end in its own subtree; nothing as large as the graph is touched, but for rooms that are made
once and left as they were found.

An entry of the transition is a weight times a scale of its source and one of its target, so a
node whose degree is another one changes all of its entries at once, wherever they are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from queue import Empty, SimpleQueue
from typing import NamedTuple

import numpy as np
import torch

from .. import _check
from ..graph import Graph
from . import backends
from .kernels import workers

ROWS = 1024
"""Whose states are computed at a time."""
ROOM = 1024
"""New nodes that rooms have place for from the start."""


class Shape(NamedTuple):
    """Of the rows [N, H, d + c] that are read out: heads, channels of keys and of values."""

    heads: int
    keys: int
    values: int


@dataclass(frozen=True)
class Change:
    """What is added to a graph of N nodes.

    Attributes:
        new: m, nodes N .. N + m - 1.
        nodes: [p], those that anything is changed of, ascending; all new ones are among them.
        ptr: [p + 1], where the entries begin that the row of each has more.
        col, weight: [x], their sources and weights; a weight may take away from one that is there.
        by_source, by_target: [p], the scales of the nodes as they are now.
    """

    new: int
    nodes: np.ndarray
    ptr: np.ndarray
    col: np.ndarray
    weight: np.ndarray
    by_source: np.ndarray
    by_target: np.ndarray


NONE = np.zeros(0, np.int64)
NOTHING = Change(0, NONE, np.zeros(1, np.int64), NONE, *(np.zeros(0) for _ in range(3)))
"""The graph as it is."""


class Rooms:
    """What one thread needs: all of it as long as the graph, and between calls as it was made."""

    def __init__(self, size: int, index: np.dtype) -> None:
        self.size = size
        self.at = np.full(size, -1, np.int32)
        self.total = np.zeros(size)
        self.lists = np.empty(size, index), np.empty(size, index)
        self.masses = np.empty(size), np.empty(size)

    @contextmanager
    def with_change(self, change: Change) -> Iterator[None]:
        """`at` says which nodes are changed."""
        self.at[change.nodes] = np.arange(len(change.nodes))
        try:
            yield
        finally:
            self.at[change.nodes] = -1


class Part(NamedTuple):
    """Some nodes of a graph: new ones first, then those that reach them, the nearest first.

    Attributes:
        nodes: [n], their numbers in the graph.
        rows: nodes that all in-edges are there of: the first so many.
    """

    nodes: np.ndarray
    rows: int


class Subtrees:
    """The edges of a graph, as they are walked on from a root outwards.

    Args:
        graph: on the CPU.
    """

    def __init__(self, graph: Graph) -> None:
        _check.kind("graph", graph, Graph, "a Graph")
        if graph.device.type != "cpu":
            raise ValueError(f"subtrees are taken on the CPU, and the graph is on {graph.device}")
        self.num_nodes, self.transition = graph.num_nodes, graph.transition
        self.self_loops, self.given = graph.self_loops, graph.given_edges
        self.rowptr, self.col = (part.numpy() for part in graph._receive[:2])
        weight = graph._receive.edge_weight
        self.weight = np.zeros(0, np.float32) if weight is None else weight.numpy()
        self.by_source, self.by_target = (
            np.zeros(0) if scale is None else scale.numpy() for scale in graph._scales()
        )
        self._order = graph.edge_order.numpy() if graph.self_loops else None
        self._graph = graph
        self._rooms: SimpleQueue[Rooms] = SimpleQueue()
        self._compiled = backends.choose("auto", graph.device, torch.float32) == "numba"

    # ---------------------------------------------------------------------------------- changes

    def change(
        self, new: int, source: np.ndarray, target: np.ndarray, weight: np.ndarray | None
    ) -> Change:
        """What new nodes and directed edges do to the graph.

        An edge that is there already is one edge with it: their weights add up, in float32 as the
        graph has them; without weights nothing changes.

        Args:
            new: m; they have the numbers N .. N + m - 1.
            source, target: [x], each pair once.
            weight: [x]; None where the graph has none.
        """
        if (weight is None) == bool(self.weight.size) and len(source):
            raise ValueError("new edges have weights if those of the graph have some")
        added = np.ones(len(source)) if weight is None else weight.astype(np.float32).astype("f8")
        for place in np.flatnonzero((source < self.num_nodes) & (target < self.num_nodes)):
            own = None if weight is None else float(weight[place])
            added[place] = self._added(int(source[place]), int(target[place]), own)
        if self.self_loops:
            fresh = np.setdiff1d(np.arange(new) + self.num_nodes, source[source == target])
            source, target = np.concatenate([source, fresh]), np.concatenate([target, fresh])
            added = np.concatenate([added, np.ones(len(fresh))])
        kept = added != 0
        return self._sorted(new, source[kept], target[kept], added[kept])

    def _added(self, source: int, target: int, weight: float | None) -> float:
        """What an edge between two nodes of the graph adds to the entry that may be there."""
        first, last = self.rowptr[target : target + 2].tolist()
        place = first + int(np.searchsorted(self.col[first:last], source))
        there = place < last and self.col[place] == source
        if weight is None:
            return 0.0 if there else 1.0
        before = float(self.weight[place]) if there else 0.0
        made = there and self._order is not None and self._order[place] == self.given
        # A loop that was made because there was none gives way to one that is given.
        return float(np.float32((0.0 if made else before) + weight)) - before

    def _sorted(
        self, new: int, source: np.ndarray, target: np.ndarray, weight: np.ndarray
    ) -> Change:
        """Entries by row, and the scales of all nodes that have an edge more."""
        fresh = np.arange(new) + self.num_nodes
        nodes = np.unique(np.concatenate([source, target, fresh])).astype(np.int64)
        rows = np.searchsorted(nodes, target)
        order = np.argsort(rows, kind="stable")
        ptr = np.searchsorted(rows[order], np.arange(len(nodes) + 1))
        senders = np.searchsorted(nodes, source)
        out, into = (np.bincount(ends, weight, len(nodes)) for ends in (senders, rows))
        scales = self._scale(self.by_source, nodes, out), self._scale(self.by_target, nodes, into)
        return Change(new, nodes, ptr, source[order].astype(np.int64), weight[order], *scales)

    def _scale(self, scales: np.ndarray, nodes: np.ndarray, more: np.ndarray) -> np.ndarray:
        """The scales [p] of nodes whose degree has grown by so much."""
        if not scales.size:
            return np.ones(len(nodes))
        power = 2 if self.transition == "sym" else 1
        own, old = np.zeros(len(nodes)), nodes < self.num_nodes
        own[old] = scales[nodes[old]]
        degree = np.divide(1.0, own**power, out=np.zeros(len(nodes)), where=own != 0) + more
        return np.divide(1.0, degree, out=np.zeros(len(nodes)), where=degree > 0) ** (1 / power)

    @cached_property
    def _sends(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row pointers, targets and weights of the edges by their source."""
        rowptr, col, weight = self._graph._send
        weights = np.zeros(0, np.float32) if weight is None else weight.numpy()
        return rowptr.numpy(), col.numpy(), weights

    # ---------------------------------------------------------------------------------- read-outs

    @property
    def compiled(self) -> bool:
        """Whether read-outs are compiled: only those can use states."""
        return self._compiled

    def states(self, rows: np.ndarray, shape: Shape) -> np.ndarray:
        """The states of one hop, without the scales of the targets: float32 [N, H, c + 1, d].

        With them the last step of a root is not walked any more: most edges of a subtree are there.

        Args:
            rows: phi(k) and v of the nodes, float32 [N, H, d + c]
            shape: H, d and c.
        """
        from .kernels._numba_subtree import first_states

        size = shape.heads, shape.values + 1, shape.keys
        with _check.fits("states of {:,} nodes", self.num_nodes):
            states = np.empty((self.num_nodes, *size), np.float32)
        flat, turns = (rows.reshape(-1), states.reshape(-1)), itertools.count(0, ROWS)

        def work(worker: int) -> None:
            room = np.empty(math.prod(size))
            while (start := next(turns)) < self.num_nodes:
                stop = min(start + ROWS, self.num_nodes)
                given = self.rowptr, self.col, self.weight, self.by_source, flat[0], tuple(shape)
                first_states(*given, start, stop, room, flat[1])

        workers.run(work, torch.get_num_threads())
        return states

    def readouts(
        self,
        roots: np.ndarray,
        hops: int,
        query: np.ndarray,
        rows: np.ndarray,
        new_rows: np.ndarray,
        shape: Shape,
        change: Change = NOTHING,
        states: np.ndarray | None = None,
    ) -> np.ndarray:
        """phi(q) S_k of the levels 1 .. K of some roots, numerators and denominators.

        Args:
            roots: [R]
            hops: K
            query: phi(q) of the roots, float32 [R, H, d]
            rows: phi(k) and v of the nodes, float32 [N, H, d + c]
            new_rows: the same of new ones, [m, H, d + c]
            shape: H, d and c.
            change: what is added to the graph.
            states: of one hop, see :meth:`states`, where they are kept.

        Returns:
            float64 [R, K, H, c + 1]
        """
        out = np.zeros((len(roots), hops, shape.heads, shape.values + 1))
        flat = (np.ascontiguousarray(each, np.float32).reshape(-1) for each in (rows, new_rows))
        own, fresh = flat
        asked = np.ascontiguousarray(query, np.float32).reshape(len(roots), -1)
        read = self._read if self._compiled else self._read_plainly
        kept = np.zeros(0, np.float32) if states is None else states.reshape(-1)
        turns, rest = itertools.count(), (own, fresh, kept, shape, change)

        def work(worker: int) -> None:
            with self._room(change.new) as rooms, rooms.with_change(change):
                while (turn := next(turns)) < len(roots):
                    read(int(roots[turn]), asked[turn], out[turn], rooms, hops, *rest)

        workers.run(work, min(len(roots), torch.get_num_threads()) or 1)
        return out

    def _read(
        self,
        root: int,
        query: np.ndarray,
        out: np.ndarray,
        rooms: Rooms,
        hops: int,
        rows: np.ndarray,
        new_rows: np.ndarray,
        states: np.ndarray,
        shape: Shape,
        change: Change,
    ) -> None:
        from .kernels._numba_subtree import read_subtree

        matrix = self.rowptr, self.col, self.weight, self.by_source, self.by_target
        more = change.ptr, change.col, change.weight, change.by_source, change.by_target
        given = query, rows, new_rows, states, tuple(shape)
        room = rooms.total, rooms.lists, rooms.masses, out.reshape(-1)
        walked = states.size and len(change.nodes)
        sends = self._sends if walked else (self.rowptr, self.col, self.weight)  # nobody looks
        changed = change.nodes, rooms.at, *more
        read_subtree(matrix, sends, changed, self.num_nodes, root, hops, *given, *room)

    def _read_plainly(
        self,
        root: int,
        query: np.ndarray,
        out: np.ndarray,
        rooms: Rooms,
        hops: int,
        rows: np.ndarray,
        new_rows: np.ndarray,
        states: np.ndarray,
        shape: Shape,
        change: Change,
    ) -> None:
        """As the kernel does it, in NumPy."""
        width = shape.heads, shape.keys + shape.values
        rows, new_rows = rows.reshape(-1, *width), new_rows.reshape(-1, *width)
        asked = query.reshape(shape.heads, shape.keys)
        nodes, mass = np.array([root], np.int64), np.ones(1)
        for hop in range(hops):
            scaled = mass * self._scales_of(nodes, rooms, self.by_target, change.by_target)
            owner, source, weight = self._edges_of(nodes, rooms, change)
            np.add.at(rooms.total, source, scaled[owner] * weight)
            nodes = np.unique(source)
            arrived = rooms.total[nodes]
            rooms.total[nodes] = 0.0
            mass = arrived * self._scales_of(nodes, rooms, self.by_source, change.by_source)
            old = nodes < self.num_nodes
            here = np.concatenate([rows[nodes[old]], new_rows[nodes[~old] - self.num_nodes]])
            keys, values = here[..., : shape.keys], here[..., shape.keys :]
            share = mass[:, None] * np.einsum("nhd,hd->nh", keys, asked)
            out[hop, :, :-1] = np.einsum("nh,nhc->hc", share, values)
            out[hop, :, -1] = share.sum(0)

    def _edges_of(
        self, nodes: np.ndarray, rooms: Rooms, change: Change
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The in-edges of some nodes: whose each is (its place among them), source and weight."""
        old = np.flatnonzero(nodes < self.num_nodes)
        first = self.rowptr[nodes[old]]
        owner, edge = _ranges(first, self.rowptr[nodes[old] + 1] - first)
        weight = self.weight[edge].astype("f8") if self.weight.size else np.ones(len(edge))
        changed = np.flatnonzero(rooms.at[nodes] >= 0)
        at = rooms.at[nodes[changed]]
        whose, more = _ranges(change.ptr[at], change.ptr[at + 1] - change.ptr[at])
        return (
            np.concatenate([old[owner], changed[whose]]),
            np.concatenate([self.col[edge].astype(np.int64), change.col[more]]),
            np.concatenate([weight, change.weight[more]]),
        )

    def _scales_of(
        self, nodes: np.ndarray, rooms: Rooms, scales: np.ndarray, changed: np.ndarray
    ) -> np.ndarray:
        """[n]"""
        found, at = np.ones(len(nodes)), rooms.at[nodes]
        old = at < 0
        if scales.size:
            found[old] = scales[nodes[old]]
        found[~old] = changed[at[~old]]
        return found

    # ---------------------------------------------------------------------------------- parts

    def part(self, roots: np.ndarray, hops: int, change: Change = NOTHING) -> Part:
        """The nodes that reach some roots within so many hops, and all new ones."""
        with self._room(change.new) as rooms, rooms.with_change(change):
            fresh = np.arange(change.new) + self.num_nodes
            there = rooms.total  # 1 where a node is in the part
            levels = [_new_ones(there, np.concatenate([fresh, roots]))]
            for _ in range(hops):
                _, source, _ = self._edges_of(levels[-1], rooms, change)
                levels.append(_new_ones(there, source))
            nodes = np.concatenate(levels)
            there[nodes] = 0.0
        return Part(nodes, len(nodes) - len(levels[-1]) if hops else 0)

    def entries(
        self, part: Part, change: Change = NOTHING
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The transition between the nodes of a part, in compressed rows: rowptr, col and entries
        in float64; a node that not all in-edges are there of has none."""
        import scipy.sparse

        with self._room(change.new) as rooms, rooms.with_change(change):
            receivers = part.nodes[: part.rows]
            owner, source, weight = self._edges_of(receivers, rooms, change)
            weight *= self._scales_of(receivers, rooms, self.by_target, change.by_target)[owner]
            weight *= self._scales_of(source, rooms, self.by_source, change.by_source)
            place = rooms.total  # of each node in the part
            place[part.nodes] = np.arange(len(part.nodes))
            col = place[source].astype(np.int64)
            place[part.nodes] = 0.0
        size = len(part.nodes)
        matrix = scipy.sparse.csr_array(
            (weight, (owner, col)), (size, size)
        )  # sums what is parallel
        matrix.sort_indices()
        return matrix.indptr, matrix.indices, matrix.data

    @contextmanager
    def _room(self, new: int) -> Iterator[Rooms]:
        """Rooms that nobody else uses, large enough for so many new nodes."""
        try:
            rooms = self._rooms.get_nowait()
        except Empty:
            rooms = None
        if rooms is None or rooms.size < self.num_nodes + new:
            rooms = Rooms(self.num_nodes + max(ROOM, 2 * new), self.col.dtype)
        yield rooms
        self._rooms.put(rooms)  # not after an error: they may not be what they were


def _ranges(first: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers first .. first + count - 1 of each range, and which range each is of."""
    owner = np.repeat(np.arange(len(first)), count)
    starts = np.cumsum(count) - count
    return owner, np.arange(len(owner)) - starts[owner] + first[owner]


def _new_ones(there: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Those of some nodes that are not there yet, each once and in their order; now they are."""
    fresh = nodes[there[nodes] == 0]
    found, first = np.unique(fresh, return_index=True)
    there[found] = 1.0
    return fresh[np.sort(first)]
