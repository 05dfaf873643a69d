"""Dropout, in one pass on a CPU.

torch draws its random numbers one after the other there, whatever the number of threads: on dense
features that takes longer than all else in a training step.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import backends
from .inputs import is_watched
from .kernels import cpu


def drop(x: Tensor, share: float, training: bool = True) -> Tensor:
    """x with a share of its entries set to 0 and the others scaled up, as `F.dropout`.

    On a CPU, the random numbers of all entries come from one that torch's generator gives: the same
    ones for the same seed, with any number of threads.
    """
    if not training or not share:
        return x
    if x.device.type != "cpu" or is_watched(x) or _backend(x) != "numba":
        return F.dropout(x, share)
    seed = int(torch.empty((), dtype=torch.int64).random_())
    if x.requires_grad and torch.is_grad_enabled():
        return _Dropout.apply(x, share, seed)
    return cpu.dropped(x, share, seed)


def _backend(x: Tensor) -> str:
    return backends.choose("auto", x.device, x.dtype)


class _Dropout(torch.autograd.Function):
    """A linear map, whose transpose it is itself: nothing is kept but the seed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, share: float, seed: int) -> Tensor:
        ctx.how = share, seed
        return cpu.dropped(x, share, seed)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Dropout.apply(grad, *ctx.how), None, None
