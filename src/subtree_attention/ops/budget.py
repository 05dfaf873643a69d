"""How many bytes a walk takes, and how long each way of walking is: arithmetic on sizes alone.

`walk.py` has the ways: heads and columns in parts, and what is kept for the backward pass. What a
layer and a model take around the walk is in `nn/memory.py`, what there is in `machine.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from . import walk
from .kernels import Kernel, Sizes

PIECES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
"""Into how many pieces heads are cut, and the columns of a head."""


class Taken(NamedTuple):
    """Bytes of a walk over some heads: until the backward pass, and beside that while it walks."""

    kept: int
    forward: int
    backward: int
    numbers: float
    """How long both passes take: numbers of states that are gathered along an edge in a hop."""
    rooms: int
    """Of the states that are there while it walks."""
    walks: float
    """Forward and backward, until all gradients are there: over how many times all hops."""


def taken(
    kernel: type[Kernel], sizes: Sizes, num_edges: int, keep: int, state_bytes: int | None
) -> Taken:
    """What walks of such sizes take, if no more than `keep` is kept of them."""
    if keep:
        keep = min(keep, walk.what_to_keep(kernel, sizes, num_edges, state_bytes))
    cut = walk.parts(sizes, state_bytes)
    part = sizes.part(*cut[0])  # none is larger
    column, readouts = part.nodes * part.heads * part.channels, part.readouts * sizes.item
    keys = column * sizes.item
    ends = 2 * keys + readouts
    kept = walk.kept_numbers(kernel, sizes, keep, state_bytes) * sizes.item
    together = kernel.columns_together(part)
    rooms = kernel.rooms * column * sizes.state_item * together
    # Read-outs of a hop; and where there are parts, what goes into one and comes out of it.
    forward = rooms + readouts + (ends + readouts if len(cut) > 1 else 0)
    backward = rooms + int((kernel.grad_readouts(part) + 1) * readouts)
    backward += kernel.planes(part) * keys
    backward += (sizes.hops + 1) * sizes.nodes * sizes.heads * sizes.item  # <dO, STA_m>
    backward += 2 * ends if len(cut) > 1 else 0
    if keep == walk.NOTHING:
        forward += (kernel.unkept_readouts(part) - 1) * readouts
        backward += (sizes.hops + 1) * readouts
        backward += rooms * (part.columns - together) // together if kernel.reads_lying else 0
    spared = len(kernel.kept_hops(sizes.hops)) if keep == walk.STATES_TOO else 0
    walks = 3 - spared / max(sizes.hops, 1)
    each = (sizes.part(*some) for some in cut)
    numbers = sum(one.heads * one.channels * one.columns + kernel.of_edge for one in each)
    return Taken(kept, forward, backward, walks * numbers, rooms, walks)


def cuts(sizes: Sizes) -> Iterator[int]:
    """Bounds for two states, each just enough, from all at once down to a column of a head."""
    heads, values = sizes.heads, sizes.columns - 1
    some_heads = {-(-heads // pieces) * sizes.columns for pieces in PIECES}
    of_a_head = {-(-values // pieces) + 1 for pieces in PIECES}  # with one of ones
    for columns in sorted(some_heads | of_a_head, reverse=True):
        yield 2 * sizes.nodes * sizes.channels * sizes.state_item * columns
