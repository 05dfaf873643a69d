"""Dropout as a module, for rows that are nodes."""

from __future__ import annotations

from torch import Tensor, nn

from .. import _check
from ..ops.dropout import drop


class Dropout(nn.Module):
    """Dropout on `[N, ...]`: on a part of a graph the same entries as on the whole.

    Args:
        share: of the entries that are dropped in training.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = _check.number("share", share, below=1)

    def forward(self, x: Tensor) -> Tensor:
        return drop(x, self.share, self.training)

    def extra_repr(self) -> str:
        return f"{self.share}"
