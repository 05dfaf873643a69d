"""Who is to own which node, found by ranks of which each has some of the edges.

A linear deterministic greedy stream, in passes: a rank decides about the nodes whose rows it has
read, some at a time, by where their neighbours are and how full it is there. After every turn the
ranks tell each other what they have decided: a number a node, but never an edge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...partition import Partition
from ...partition.streaming import SLACK
from ..tables import ranks

PASSES, TURNS, EACH = 20, 64, 500
"""Over all nodes; how many turns there are in each, and nodes of a turn at least. With fewer turns
all move at a time to where others just leave."""
STILL = 0.01
"""Where no more than this share moves in a pass, the rest would not either."""
ENTRIES = 2**21
"""Nodes times parts that are weighed at a time."""
LITTLE = 1e-3
"""What a node without neighbours in a part is drawn there: the emptiest attracts it."""


@dataclass(frozen=True)
class _Stream:
    """What a rank knows of all nodes, and of those that it decides about.

    Attributes:
        owner: [N], int32, the part of each node; -1 where it has none yet.
        load: [parts], how many nodes are there.
        room: how many may be.
        first: the number of the first node of this rank.
        starts, neighbours: [n + 1] and [m]: the neighbours of its nodes, CSR.
        counts: how many nodes each rank decides about.
    """

    owner: np.ndarray
    load: np.ndarray
    room: int
    first: int
    starts: np.ndarray
    neighbours: np.ndarray
    counts: list[int]

    def step(self, number: int, turn: int, turns: int) -> int:
        """Some nodes of each rank find a part; how many have another than before."""
        bounds = [(many * turn // turns, many * (turn + 1) // turns) for many in self.counts]
        start, end = bounds[ranks.rank()]
        wanted, gain = self._best(start, end)
        goes = (wanted != self.owner[self.first + start : self.first + end]) & (gain > 0)
        if number:  # only half of them, or two would change places for ever
            draw = np.random.default_rng((number, turn, ranks.rank()))
            goes &= draw.random(end - start) < 0.5
        # Of the room in a part each rank gets a share, so that it never overflows.
        left = (self.room - self.load) * (end - start) // max(sum(b - a for a, b in bounds), 1)
        some = np.flatnonzero(goes)
        some = some[np.lexsort((-gain[some], wanted[some]))]  # the most eager first
        place = np.arange(len(some)) - np.searchsorted(wanted[some], wanted[some])
        some = some[place < left[wanted[some]]]
        return self._tell(some + self.first + start, wanted[some])

    def fill(self) -> None:
        """Nodes that have found no room go where there is some."""
        mine = slice(self.first, self.first + self.counts[ranks.rank()])
        rest = np.flatnonzero(self.owner[mine] < 0) + self.first
        place = np.arange(len(rest)) + ranks.before(len(rest))
        self._tell(rest, np.searchsorted(np.cumsum(self.room - self.load), place, "right"))

    def _best(self, start: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """The part that each node is drawn to most, and how much more than to its own."""
        parts, free = len(self.load), 1 - self.load / self.room
        wanted, gain = np.zeros(end - start, np.int64), np.zeros(end - start)
        each = max(1, ENTRIES // parts)
        for a in range(start, end, each):
            b = min(a + each, end)
            where = self.owner[self.neighbours[self.starts[a] : self.starts[b]]]
            node = np.repeat(np.arange(b - a) * parts, np.diff(self.starts[a : b + 1]))
            pairs = (node + where)[where >= 0]
            counts = np.bincount(pairs, minlength=(b - a) * parts).reshape(b - a, parts)
            drawn = (counts + LITTLE) * free
            home = self.owner[self.first + a : self.first + b]
            stay = np.where(home >= 0, drawn[np.arange(b - a), home], 0)
            wanted[a - start : b - start] = drawn.argmax(1)
            gain[a - start : b - start] = drawn.max(1) - stay
        return wanted, gain

    def _tell(self, nodes: np.ndarray, found: np.ndarray) -> int:
        """What each rank has decided is so for all; how many nodes that were."""
        nodes, found = ranks.gathered_rows(np.stack([nodes, found], axis=1).astype(np.int32)).T
        before = self.owner[nodes]
        self.load[:] += np.bincount(found, minlength=len(self.load))
        self.load[:] -= np.bincount(before[before >= 0], minlength=len(self.load))
        self.owner[nodes] = found
        return len(nodes)


def find_owners(
    index: np.ndarray, first: int, count: int, num_nodes: int, directed: bool
) -> np.ndarray:
    """The owner [N], int32, of each node; none has more than `SLACK` above the mean.

    Args:
        index: [2, E_r], some of the edges.
        first, count: the nodes that this rank decides about, by number.
        num_nodes: N.
        directed: whether edges may lead one way only.
    """
    parts = ranks.size()
    numbered: np.ndarray = Partition.blocks(num_nodes, parts).owner.numpy()
    if parts == 1:
        return numbered
    both = np.concatenate([index, index[::-1]], axis=1) if directed else index
    room = max(int((1 + SLACK) * num_nodes / parts), -(-num_nodes // parts))
    nobody = np.full(num_nodes, -1, np.int32), np.zeros(parts, np.int64)
    counts = ranks.told(count)
    stream = _Stream(*nobody, room, first, *_neighbours(both, first, counts), counts)
    turns = max(1, min(TURNS, num_nodes // EACH))
    for number in range(PASSES):
        moved = sum(stream.step(number, turn, turns) for turn in range(turns))
        stream.fill()
        if moved <= STILL * num_nodes:
            break
    # Numbers may say more than edges do, as those of a crawl or of a sorted table.
    return min((stream.owner, numbered), key=lambda owner: _cut(index, owner))


def _neighbours(index: np.ndarray, first: int, counts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Whom the nodes of this rank are joined with, by edges [2, E_r] that lead both ways."""
    count = counts[ranks.rank()]
    home = np.searchsorted(np.cumsum(counts), index[1], "right")
    source, dest = ranks.route_rows(index.T.astype(np.int32), home).T
    starts = np.concatenate([[0], np.cumsum(np.bincount(dest - first, minlength=count))])
    return starts, source[np.argsort(dest, kind="stable")]


def _cut(index: np.ndarray, owner: np.ndarray) -> int:
    """How many edges lead from one part to another."""
    return ranks.count_of(owner[index[0]] != owner[index[1]])
