"""One hop of a sample: in-edges of some rows are drawn, and senders that are new are numbered.

By Numba (`cpu_sampling.py`) or by torch (`plain_sampling.py`): the same distribution, and as long
as few edges of a row are drawn the same edges; nodes come in another order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

if TYPE_CHECKING:
    from ..in_edges import InEdges


class Draw(NamedTuple):
    """How a hop draws: a key, so many in-edges of a row (-1: all), and by what."""

    key: int
    fanout: int
    by: str
    replace: bool


class Hop(NamedTuple):
    """What was drawn for m rows: how many edges for each, and one row after the other these.

    Attributes:
        lengths: [m] int64.
        col: [e] int32, the local numbers of senders, ascending within a row.
        at: [e] int64, where the edges stand in `InEdges.col`; its length for a loop that was added.
        entries: [e] float32, estimates of the transition's entries.
        new: [k] int64, the nodes that were met first, which are numbered in this order.
    """

    lengths: Tensor
    col: Tensor
    at: Tensor
    entries: Tensor
    new: Tensor


HopFunction = Callable[["InEdges", Tensor, Draw, Tensor, int], Hop]
"""(graph, rows [m], draw, local numbers of nodes [N] or -1, how many there are) -> Hop; nodes that
are new get their numbers."""
