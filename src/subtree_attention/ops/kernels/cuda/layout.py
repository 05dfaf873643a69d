"""How a row of the state is laid over the lanes of a warp: what the kernels are specialised by."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache, cached_property
from math import ceil

import torch

WARP = 32
THREADS = 128
RESIDENT = 512
QUAD = 4
STATE_REGISTERS, FACTOR_REGISTERS = 16, 48
"""Numbers of a row that a lane holds at most; more columns are other lanes' work (slices). Few when
it gathers from a state, so that many neighbours are in flight; many from factors, since each slice
reads them again."""

STATE_LOADS, FACTOR_LOADS = 64, 32
"""Numbers that a lane has in flight at most."""


@dataclass(frozen=True, eq=False)  # `lay_out` makes each once
class Layout:
    """The macros of `kernels.cu`, lower case, and the launch grid that follows from them."""

    real: str
    state_bfloat16: int
    factors: int
    heads: int
    channels: int
    padded: int
    block: int
    columns: int
    vector: int
    per_lane: int
    head_lanes: int
    group_heads: int
    unroll: int
    threads: int = THREADS
    resident: int = RESIDENT

    @cached_property  # asked for at every launch
    def macros(self) -> tuple[tuple[str, str | int], ...]:
        return tuple((field.name.upper(), getattr(self, field.name)) for field in fields(self))

    @property
    def row(self) -> int:
        """H d, numbers in one column of a node."""
        return self.heads * self.channels

    @cached_property
    def slices(self) -> int:
        """Slices that the columns are cut into."""
        return ceil(self.block / self.columns)

    def grid(self, items: int) -> tuple[int, int, int]:
        """Thread blocks for rows and pieces, slices of columns, and groups of heads."""
        units = self.threads // WARP * (WARP // (self.group_heads * self.head_lanes))
        return ceil(items / units), self.slices, ceil(self.heads / self.group_heads)


def padded(width: int) -> int:
    """Columns rounded up so that they can be loaded four at a time."""
    return ceil(width / QUAD) * QUAD


@cache
def lay_out(
    heads: int,
    channels: int,
    width: int,
    block: int,
    dtype: torch.dtype,
    state_dtype: torch.dtype,
    factors: bool,
) -> Layout:
    """Lanes for `block` of `width` columns of heads x channels, from a state or from factors."""
    single = dtype == torch.float32
    vector = next(v for v in (4, 2, 1) if v <= (4 if single else 2) and channels % v == 0)
    per_lane = ceil(channels / (vector * WARP))
    head_lanes = ceil(channels / (vector * per_lane))
    held = per_lane * vector  # in one column
    registers, loads = (
        (FACTOR_REGISTERS, FACTOR_LOADS) if factors else (STATE_REGISTERS, STATE_LOADS)
    )
    if not single:
        registers, loads = registers // 2, loads // 2
    elif state_dtype == torch.bfloat16 and not factors:  # twice as many in the same bytes
        registers, loads = registers * 2, loads * 2
    slices = min(ceil(block * held / registers), block)
    columns = ceil(block / slices)
    if factors and slices > 1:
        columns = min(padded(columns), block)
    loaded = held + padded(columns) if factors else held * columns
    return Layout(
        real="float" if single else "double",
        state_bfloat16=int(state_dtype == torch.bfloat16),
        factors=int(factors),
        heads=heads,
        channels=channels,
        padded=padded(width),
        block=block,
        columns=columns,
        vector=vector,
        per_lane=per_lane,
        head_lanes=head_lanes,
        group_heads=min(heads, WARP // head_lanes),
        unroll=max(1, min(8, loads // loaded)),
        resident=RESIDENT,
    )
