r"""Hop weights of gated heads: :math:`w_k \, \mathrm{softmax}_h(g_k)`; hop 0 is not gated."""

from __future__ import annotations

import torch
from torch import Tensor


def gated(weights: Tensor, logits: Tensor) -> Tensor:
    """[K + 1] or [K + 1, H], [K, H] -> [K + 1, H]. Some kernels do this themselves."""
    shares = torch.softmax(logits, dim=-1)
    weights = weights if weights.dim() > 1 else weights[:, None]
    return weights * torch.cat([shares.new_ones(1, shares.size(1)), shares])
