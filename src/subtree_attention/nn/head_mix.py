"""How heads become one output: a linear map over their concatenation, or their sum."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import Linear

from .. import _check

HEAD_MIXES = ("linear", "sum")


class HeadMix(nn.Module):
    r""":math:`[\mathrm{head}^1, \ldots, \mathrm{head}^H] W_O` after dropout, or the sum of heads.

    A single head that is as wide as the output needs no map, nor do summed heads; otherwise
    :math:`W_O` is there.

    Args:
        mix: `"linear"` or `"sum"`.
        heads: H.
        width: channels of a head.
        out_channels: columns of the result.
        dropout: on what :math:`W_O` acts on.
        bias: whether :math:`W_O` has one.
    """

    def __init__(
        self, mix: str, heads: int, width: int, out_channels: int, dropout: float, bias: bool
    ) -> None:
        super().__init__()
        self.mix, self.dropout = _check.known("head_mix", mix, HEAD_MIXES), dropout
        self.heads, self.width = heads, width
        mixed = width if mix == "sum" else heads * width
        needed = width != out_channels or (mix == "linear" and heads > 1)
        self.lin = Linear(mixed, out_channels, bias=bias) if needed else None

    def reset_parameters(self) -> None:
        if self.lin is not None:
            self.lin.reset_parameters()

    def forward(self, heads: Tensor, dtype: torch.dtype) -> Tensor:
        """[N, H, width] -> [N, out_channels].

        The operator returns float32, whatever precision the layer has; `dtype` is that of its
        values, which comes out where :math:`W_O` does not decide.
        """
        out = heads.sum(1) if self.mix == "sum" else heads.flatten(1)
        if self.lin is None:
            return out.to(dtype)
        return self.lin(F.dropout(out, self.dropout, self.training).to(self.lin.weight.dtype))

    def per_head(self) -> Tensor:
        """What each head is multiplied by on its way to the output, [H, out_channels, width]."""
        if self.lin is None:
            return torch.eye(self.width).expand(self.heads, -1, -1)
        if self.mix == "sum":
            return self.lin.weight.expand(self.heads, -1, -1)
        return self.lin.weight.unflatten(1, (self.heads, self.width)).transpose(0, 1)
