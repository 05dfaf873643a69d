"""Products along the entries of a matrix, on a GPU."""

from __future__ import annotations

from torch import Tensor

from . import launch
from .ends import REALS
from .layout import THREADS, WARP

_ALONG = launch.structure(pointers="left right row col out", ints="entries width")  # as in along.cu


def products(left: Tensor, right: Tensor, row: Tensor, col: Tensor) -> Tensor:
    """<left[row], right[col]> for each entry: [rows, w], [columns, w], [n], [n] -> [n]."""
    out = left.new_empty(col.numel())
    if out.numel():
        lanes = lanes_of(left.size(1))
        macros = ("REAL", REALS[left.dtype]), ("LANES", lanes)
        kernels = launch.Bound(launch.module("along.cu", macros, left.device), _ALONG)
        grid = (-(-out.numel() * lanes // THREADS), 1, 1)
        ends = {"left": left.contiguous(), "right": right.contiguous(), "row": row, "col": col}
        sizes = {"entries": out.numel(), "width": left.size(1)}
        kernels("along", grid, THREADS, **ends, out=out, **sizes)
    return out


def lanes_of(width: int) -> int:
    """Lanes that share an entry: each has some four numbers of a row, or more."""
    return min(WARP, 1 << max(-(-width // 4) - 1, 0).bit_length())
