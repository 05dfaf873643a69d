r"""Hop weights of gated heads: :math:`w_k \, \mathrm{softmax}_h(g_k)`; hop 0 is not gated."""

from __future__ import annotations

import torch
from torch import Tensor


def gated(weights: Tensor, logits: Tensor) -> Tensor:
    """[K + 1, 1 or H], [K, H] -> [K + 1, H]. Some kernels do this themselves (`Kernel.gates`)."""
    shares = torch.softmax(logits, dim=-1)
    return weights * torch.cat([shares.new_ones(1, shares.size(1)), shares])
