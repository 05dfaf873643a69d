"""Heads: how much each counts at each hop (gate), and how they become one (mix)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .. import _check, ops
from ..ops.dropout import drop
from .linear import Linear, is_plain, is_untouched
from .parts import Part, keep_fixed


class HeadGate(Part):
    """How much each head counts at each hop: `forward()` -> [K + 1, H], row 0 is hop 0."""

    sizes = ("hops", "heads")
    hops: int
    heads: int

    def __init__(self, hops: int, heads: int) -> None:
        super().__init__(hops, heads)

    @abstractmethod
    def forward(self) -> Tensor: ...

    def as_softmax(self) -> Tensor | None:
        """Logits [K, H], if this is their softmax over heads at hop k >= 1 and 1 at hop 0: kernels
        can do that themselves."""
        return None


class SoftmaxGate(HeadGate):
    r"""The paper's gate: :math:`\mathrm{softmax}_h(g_k)` at hop k >= 1; hop 0 is not gated."""

    def __init__(self, hops: int, heads: int) -> None:
        super().__init__(hops, heads)
        self.logits = nn.Parameter(torch.zeros(hops, heads))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.logits)

    def forward(self) -> Tensor:
        return ops.gated(self.logits.new_ones(self.hops + 1, 1), self.logits)

    def as_softmax(self) -> Tensor | None:
        return self.logits if type(self) is SoftmaxGate and is_untouched(self) else None


class PlainGate(HeadGate):
    """A free weight for every hop and head, hop 0 included."""

    def __init__(self, hops: int, heads: int) -> None:
        super().__init__(hops, heads)
        self.table = nn.Parameter(torch.ones(hops + 1, heads))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.table)

    def forward(self) -> Tensor:
        return self.table


class NoGate(PlainGate):
    """All heads count alike: the table stays 1 and is not saved."""

    def __init__(self, hops: int, heads: int) -> None:
        super().__init__(hops, heads)
        keep_fixed(self, "table")


GATES: dict[str, type[HeadGate]] = {"softmax": SoftmaxGate, "plain": PlainGate, "none": NoGate}


class HeadMix(Part):
    """How heads become one output: `forward`, [N, H, width] -> [N, out_channels].

    It must be linear up to a constant: then an explanation is a sum over heads. Heads come in
    float32 at least, whatever precision the layer has.
    """

    sizes = ("heads", "width", "out_channels")
    heads: int
    width: int
    out_channels: int

    def __init__(self, heads: int, width: int, out_channels: int) -> None:
        super().__init__(heads, width, out_channels)

    @abstractmethod
    def forward(self, heads: Tensor) -> Tensor: ...


class LinearMix(HeadMix):
    r""":math:`[\mathrm{head}^1, \ldots, \mathrm{head}^H] W_O`, after dropout.

    Heads that come out of `join` as they were, and as wide as the output, need no :math:`W_O`.

    Args:
        heads: H.
        width: channels of a head.
        out_channels: columns of the result.
        dropout: on what :math:`W_O` acts on.
        bias: whether :math:`W_O` has one.
    """

    mixes: ClassVar[bool] = True

    def __init__(
        self, heads: int, width: int, out_channels: int, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__(heads, width, out_channels)
        self.dropout = _check.number("dropout", dropout, below=1)
        columns = self.join(torch.empty(1, heads, width)).size(1)
        needed = self.mixes and not columns == width == out_channels
        self.lin = Linear(columns, out_channels, bias) if needed else None

    def join(self, heads: Tensor) -> Tensor:
        """[N, H, width] -> [N, columns]."""
        return heads.flatten(1)

    def forward(self, heads: Tensor) -> Tensor:
        out = self.join(heads)
        if self.lin is None:
            return out
        return self.lin(drop(out, self.dropout, self.training).to(self.lin.weight.dtype))

    @property
    def comes_apart(self) -> bool:
        """Whether the result is a sum over heads, and :meth:`add` can add them up in turns."""
        own = type(self) is LinearMix and is_untouched(self)
        return own and self.lin is not None and is_plain(self.lin)

    def add(self, out: Tensor, heads: Tensor, first: int) -> Tensor:
        """What some heads [N, g, width], from number `first` on, add to the result, in place; the
        first of them bring the bias."""
        assert self.lin is not None
        columns = slice(first * self.width, (first + heads.size(1)) * self.width)
        weight = self.lin.weight[:, columns]
        part = drop(heads.flatten(1), self.dropout, self.training).to(weight.dtype)
        if first == 0:
            out = out.zero_() if self.lin.bias is None else out.copy_(self.lin.bias)
        return out.addmm_(part, weight.t())


class SumMix(LinearMix):
    r""":math:`\sum_h \mathrm{head}^h`, and :math:`W_O` where that is not as wide as the output."""

    def join(self, heads: Tensor) -> Tensor:
        return heads.sum(1)


class ConcatMix(LinearMix):
    r""":math:`[\mathrm{head}^1, \ldots, \mathrm{head}^H]` as they are; without dropout."""

    mixes = False

    def __init__(self, heads: int, width: int, out_channels: int, **how: Any) -> None:
        if heads * width != out_channels:
            raise ValueError(
                f"{heads} heads of {width} channels are {heads * width} side by side, not "
                f"out_channels={out_channels}: choose heads that divide it, or head_mix='linear'"
            )
        super().__init__(heads, width, out_channels, **how)


HEAD_MIXES: dict[str, type[HeadMix]] = {"linear": LinearMix, "sum": SumMix, "concat": ConcatMix}


def per_head(what: str, channels: int, heads: int, hint: str = "") -> int:
    """An equal share of some channels for every head, rounded down."""
    if _check.integer("heads", heads, 1) > _check.integer(what, channels, 1):
        raise ValueError(
            f"heads={heads} is more than {what}={channels}, which leaves no channel for a head"
            + hint
        )
    return channels // heads
