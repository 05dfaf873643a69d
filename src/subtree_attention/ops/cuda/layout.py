"""How a row of the state is laid over the lanes of a warp: what the kernels are specialised by."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from math import ceil

import torch

WARP = 32
THREADS = 128
RESIDENT = 512
QUAD = 4
REGISTERS = {"state": 16, "factors": 48, "push": 64}
"""Numbers of a row that a lane holds at most; more columns are other lanes' work (slices). Few when
it gathers from a state, so that many neighbours are in flight; many from factors, since each slice
reads them again; when it pushes, all of a block, or it cannot."""

LOADS = {"state": 64, "factors": 32, "push": 32}
"""Numbers that a lane has in flight at most."""


@dataclass(frozen=True)
class Layout:
    """The macros of `kernels.cu`, lower case, and the launch grid that follows from them."""

    real: str
    state_bfloat16: int
    kind: str
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

    @property
    def macros(self) -> dict[str, str | int]:
        macros = {name.upper(): value for name, value in asdict(self).items()}
        return {**macros, "KIND": self.kind.upper()}

    @property
    def row(self) -> int:
        """H d, numbers in one column of a node."""
        return self.heads * self.channels

    @property
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
    kind: str,
) -> Layout:
    """Lanes for `block` of `width` columns of heads x channels; `kind` is a key of `REGISTERS`."""
    single = dtype == torch.float32
    vector = next(v for v in (4, 2, 1) if v <= (4 if single else 2) and channels % v == 0)
    per_lane = ceil(channels / (vector * WARP))
    head_lanes = ceil(channels / (vector * per_lane))
    held = per_lane * vector  # in one column
    registers, loads = (n // (1 if single else 2) for n in (REGISTERS[kind], LOADS[kind]))
    slices = min(ceil(block * held / registers), block)
    columns = ceil(block / slices)
    if kind == "factors" and slices > 1:
        columns = min(padded(columns), block)
    loaded = held * columns if kind == "state" else held + padded(columns)
    return Layout(
        real="float" if single else "double",
        state_bfloat16=int(state_dtype == torch.bfloat16),
        kind=kind,
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
