r"""Hop weights of gated heads: :math:`w_k \, \mathrm{softmax}_h(g_k)`; hop 0 is not gated.

A few numbers, but in torch a dozen operators of a layer's forward and backward pass; on a GPU they
are one kernel each.
"""

from __future__ import annotations

from functools import cache
from math import ceil
from typing import Any

import torch
from torch import Tensor

from .inputs import FULL, is_watched
from .kernels.cuda import CudaKernel, launch

_ARGUMENTS = launch.structure(  # as in gate.cu
    pointers="weights logits table grad grad_weights grad_logits", ints="hops heads columns"
)
_REALS = {torch.float32: "float", torch.float64: "double"}


def gated(weights: Tensor, logits: Tensor) -> Tensor:
    """[K + 1, 1 or H], [K, H] -> [K + 1, H]; hop 0 is not gated."""
    fast = logits.is_cuda and weights.is_cuda and logits.dtype == weights.dtype in FULL
    if not fast or is_watched(logits) or CudaKernel.refusal(logits.device, logits.dtype):
        shares = torch.softmax(logits, dim=-1)
        return weights * torch.cat([shares.new_ones(1, shares.size(1)), shares])
    return _Gated.apply(weights.contiguous(), logits.contiguous())


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, logits: Tensor) -> Tensor:
        ctx.save_for_backward(weights, logits)
        table = logits.new_empty(weights.size(0), logits.size(1))
        _launch("gate", weights, logits, table=table)
        return table

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        weights, logits = ctx.saved_tensors
        if torch.is_grad_enabled():
            raise RuntimeError("hop weights have no double backward (gradients of gradients)")
        found = {"grad_weights": torch.empty_like(weights), "grad_logits": torch.empty_like(logits)}
        _launch("gate_backward", weights, logits, grad=grad.contiguous(), **found)
        return found["grad_weights"], found["grad_logits"]


def _launch(name: str, weights: Tensor, logits: Tensor, **parts: Tensor) -> None:
    hops, heads = logits.shape
    sizes = {"hops": hops, "heads": heads, "columns": weights.size(1)}
    kernels, grid = _kernels(logits.dtype, logits.device), (ceil((hops + 1) / 128), 1, 1)
    kernels(name, grid, 128, weights=weights, logits=logits, **sizes, **parts)


@cache
def _kernels(dtype: torch.dtype, device: torch.device) -> launch.Bound:
    return launch.Bound("gate.cu", (("REAL", _REALS[dtype]),), _ARGUMENTS, device)
