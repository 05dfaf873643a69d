"""How a row of the state is laid over the lanes of a warp: what the kernels are specialised by."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from math import ceil

import torch

WARP = 32
THREADS = 128
REGISTERS = {torch.float32: 64, torch.float64: 32}
"""Numbers of a row that a lane holds at most; a row that is wider is cut into slices of columns."""


@dataclass(frozen=True)
class Layout:
    """The macros of `kernels.cu`, lower case, and the launch grid that follows from them."""

    real: str
    state_bfloat16: int
    heads: int
    channels: int
    width: int
    columns: int
    vector: int
    per_lane: int
    head_lanes: int
    group_heads: int
    unroll: int
    threads: int = THREADS

    @property
    def macros(self) -> dict[str, str | int]:
        return {name.upper(): value for name, value in asdict(self).items()}

    @property
    def slices(self) -> int:
        """Slices of columns that make up the width."""
        return ceil(self.width / self.columns)

    @property
    def row(self) -> int:
        """H d, numbers in one column of a node."""
        return self.heads * self.channels

    def grid(self, items: int, slices: int) -> tuple[int, int, int]:
        """Blocks for rows and pieces, slices, and groups of heads."""
        units_per_warp = WARP // (self.group_heads * self.head_lanes)
        units = self.threads // WARP * units_per_warp
        return ceil(items / units), slices, ceil(self.heads / self.group_heads)


@cache
def layout(
    heads: int, channels: int, width: int, dtype: torch.dtype, state_dtype: torch.dtype
) -> Layout:
    """Lanes for states of `width` columns of heads x channels."""
    size = 4 if dtype == torch.float32 else 2  # numbers in the widest load
    vector = next(v for v in (4, 2, 1) if v <= size and channels % v == 0)
    per_lane = ceil(channels / (vector * WARP))
    head_lanes = ceil(channels / (vector * per_lane))
    held = per_lane * vector  # in one column
    slices = ceil(width * held / REGISTERS[dtype])
    columns = ceil(width / min(slices, width))
    return Layout(
        real="float" if dtype == torch.float32 else "double",
        state_bfloat16=int(state_dtype == torch.bfloat16),
        heads=heads,
        channels=channels,
        width=width,
        columns=columns,
        vector=vector,
        per_lane=per_lane,
        head_lanes=head_lanes,
        group_heads=min(heads, WARP // head_lanes),
        unroll=max(1, min(4, REGISTERS[dtype] // (columns * held))),
    )
