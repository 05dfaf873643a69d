"""Bytes of a walk: what its hops gather and move, and what it keeps.

Letters are those of ops/README.md: N nodes, E directed edges, H heads, d key channels and c value
channels of a head, K hops; b bytes of a number of a state. A row is a node's.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from subtree_attention.ops.kernels.cuda import (
    BLOCK_BYTES,
    FILLING_BYTES,
    KEPT_BYTES,
    KEPT_SHARE,
    LEAST_COLUMNS,
)
from subtree_attention.ops.walk import KEPT_HOPS

FLOAT = 4
"""Bytes of a number that is no state's."""
ENTRY = 8
"""Bytes of an entry of a matrix: where from, and how much."""
ROOMS = 3
"""States that a backward pass has under way beside those that are kept."""


@dataclass(frozen=True)
class Walk:
    """K hops of one layer.

    Attributes:
        nodes: rows, N.
        edges: entries, E, both directions counted.
        heads, keys, values, hops: H, d, c, K.
        item: b.
    """

    nodes: float
    edges: float
    heads: int
    keys: float
    values: float
    hops: int
    item: int = FLOAT

    @property
    def row(self) -> float:
        """A state, H d (c + 1) b."""
        return self.heads * self.keys * (self.values + 1) * self.item

    @property
    def factors(self) -> float:
        """What the first hop gathers instead: key and value, H (d + c + 1)."""
        return self.heads * (self.keys + self.values + 1) * FLOAT

    @property
    def readout(self) -> float:
        """Numerators and denominator of a hop, H (c + 1)."""
        return self.heads * (self.values + 1) * FLOAT

    @property
    def block(self) -> float:
        """The columns of a state that walk together on a GPU."""
        column = self.heads * self.keys * self.item
        most = max(BLOCK_BYTES // max(self.nodes * column, 1), LEAST_COLUMNS)
        columns = self.values + 1
        return ceil(columns / ceil(columns / most)) * column

    @property
    def keeps(self) -> bool:
        """Whether training keeps states, by the rule of the CUDA backend."""
        states = (self.hops - 2) * self.nodes * self.row
        gathered = self.edges * self.row * FLOAT / self.item
        most = KEPT_BYTES if gathered <= FILLING_BYTES else KEPT_SHARE * gathered
        return 0 < states <= most and self.hops <= KEPT_HOPS


@dataclass(frozen=True)
class Passes:
    """How often the edges are gone over, and the nodes.

    Attributes:
        states: hops that gather states.
        factors: hops that gather factors.
        moved: states that are written, or read where they are kept.
    """

    states: float
    factors: float
    moved: float

    @staticmethod
    def forward(hops: int) -> Passes:
        return Passes(hops - 1, 1, hops - 1)

    @staticmethod
    def training(hops: int, keeps: bool) -> Passes:
        """Forward, the states again for the queries, and their gradients on the transpose."""
        again = (1, hops - 2) if keeps else (hops - 1, hops - 1)
        return Passes(2 * (hops - 1) + again[0], 3, 2 * (hops - 1) + again[1])


def peak_bytes(walk: Walk, keeps: bool | None = None) -> float:
    """Most bytes of states and read-outs at a time, forward and backward."""
    keeps = walk.keeps if keeps is None else keeps
    kept = (walk.hops - 2) * walk.row if keeps else 0.0
    readouts = 2 * walk.hops * walk.readout  # and their gradients
    return walk.nodes * (kept + min(ROOMS, walk.hops) * walk.block + readouts)
