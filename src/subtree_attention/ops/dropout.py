"""Dropout, in one pass on a CPU.

torch draws its random numbers one after the other there, whatever the number of threads: on dense
features that takes longer than all else in a training step. And on a part of a graph, an entry is
to be dropped where it would be in the whole: by its number there, whoever has it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..partition import HERE
from . import backends
from .inputs import is_watched
from .kernels import cpu

LOT = 2**24
"""Entries whose random bits torch computes at a time."""


class Rows(NamedTuple):
    """Where the entries of rows lie, and which they are in the whole: row pointers [n + 1], and the
    number of each row's first entry [n]; int64."""

    rowptr: Tensor
    first: Tensor

    @staticmethod
    def dense(nodes: Tensor, width: int) -> Rows:
        """Of the rows of some nodes, of so many entries each."""
        return Rows(torch.arange(len(nodes) + 1, device=nodes.device) * width, nodes * width)


def drop(x: Tensor, share: float, training: bool = True, rows: Rows | None = None) -> Tensor:
    """x with a share of its entries set to 0 and the others scaled up, as `F.dropout`.

    On a CPU, the random numbers of all entries come from one that torch's generator gives: the same
    ones for the same seed, with any number of threads. While a model runs on a part of a graph they
    do so everywhere, by the numbers that entries have in the whole; `rows` says which, where they
    are not those of its nodes.
    """
    if not training or not share:
        return x
    if HERE.part is not None:
        return _numbered(x, share, rows or _rows_here(x, HERE.part.nodes))
    if x.device.type != "cpu" or is_watched(x) or _backend(x) != "numba":
        return F.dropout(x, share)
    seed = _seed()
    if x.requires_grad and torch.is_grad_enabled():
        return _Dropout.apply(x, share, seed, None)
    return cpu.dropped(x, share, seed)


def _seed() -> int:
    return int(torch.empty((), dtype=torch.int64).random_())


def _backend(x: Tensor) -> str:
    return backends.choose("auto", x.device, x.dtype)


def _rows_here(x: Tensor, nodes: Tensor) -> Rows:
    if len(x) != len(nodes):
        raise ValueError(f"dropout on {len(x)} rows, but this rank owns {len(nodes)} nodes")
    return Rows.dense(nodes, x.shape[1:].numel())


def _numbered(x: Tensor, share: float, rows: Rows) -> Tensor:
    seed = _seed()  # the same on every rank
    if x.requires_grad and torch.is_grad_enabled():
        return _Dropout.apply(x, share, seed, rows)
    return _dropped(x, share, seed, rows)


def _dropped(x: Tensor, share: float, seed: int, rows: Rows | None) -> Tensor:
    """`cpu.dropped`, where Numba cannot run in torch, to the same bits."""
    if rows is None or (x.device.type == "cpu" and _backend(x) == "numba"):
        return cpu.dropped(x, share, seed, rows)
    least, flat = cpu.least_draw(share), x.flatten()
    lengths = rows.rowptr.diff()
    offset = torch.repeat_interleave(rows.first - rows.rowptr[:-1], lengths, output_size=len(flat))
    stays = [
        _draws(numbers + start, seed) >= least
        for start, numbers in zip(range(0, len(flat), LOT), offset.split(LOT), strict=False)
    ]
    kept = torch.cat(stays) if stays else flat.new_empty(0, dtype=torch.bool)
    scale = 1 / (1 - least / 2**16)
    return torch.where(kept, flat * scale, 0.0).view_as(x)


def _draws(numbers: Tensor, seed: int) -> Tensor:
    """The 16 random bits of entries, given their numbers less their place in this lot, [n]: as
    `_numba_kernels._random` has them."""
    numbers = numbers + torch.arange(len(numbers), device=numbers.device)
    draw = numbers % 4
    z = (numbers - draw + 1) * _signed(0x9E3779B97F4A7C15) + seed
    z = (z ^ _shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _signed(0x94D049BB133111EB)
    z = z ^ _shifted(z, 31)
    return (z >> (16 * draw)) & 0xFFFF


def _signed(bits: int) -> int:
    """64 bits as torch's integers have them."""
    return bits - 2**64 if bits >= 2**63 else bits


def _shifted(z: Tensor, by: int) -> Tensor:
    """To the right, zeros coming in."""
    return (z >> by) & (2 ** (64 - by) - 1)


class _Dropout(torch.autograd.Function):
    """A linear map, whose transpose it is itself: nothing is kept but the seed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, share: float, seed: int, rows: Rows | None) -> Tensor:
        ctx.how = share, seed, rows
        return _dropped(x, share, seed, rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _Dropout.apply(grad, *ctx.how), None, None, None
