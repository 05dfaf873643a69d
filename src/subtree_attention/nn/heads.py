r"""What happens to heads: how much each counts at each hop (gate), and how they become one (mix).

A gate or a mix of one's own is a subclass of `HeadGate` or `HeadMix`, and an instance of it is
passed to the layer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import _check
from .linear import Linear, check_dropout

# --------------------------------------------------------------------------------------- gates


class HeadGate(nn.Module, ABC):
    """How much each head counts at each hop: `forward()` -> [K + 1, H], row 0 is hop 0."""

    def __init__(self, hops: int, heads: int) -> None:
        super().__init__()
        self.hops, self.heads = hops, heads

    def reset_parameters(self) -> None:
        """Nothing to reset unless a gate has parameters."""

    @abstractmethod
    def forward(self) -> Tensor: ...

    def extra_repr(self) -> str:
        return f"hops={self.hops}, heads={self.heads}"


class SoftmaxGate(HeadGate):
    r"""The paper's gate: :math:`\mathrm{softmax}_h(g_k)` at hop k >= 1; hop 0 is not gated."""

    def __init__(self, hops: int, heads: int) -> None:
        super().__init__(hops, heads)
        self.logits = nn.Parameter(torch.zeros(hops, heads))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.logits)

    def forward(self) -> Tensor:
        gate = torch.softmax(self.logits, dim=-1)
        return torch.cat([gate.new_ones(1, self.heads), gate])


class PlainGate(HeadGate):
    """A free weight for every hop and head, hop 0 included."""

    def __init__(self, hops: int, heads: int) -> None:
        super().__init__(hops, heads)
        self.table = nn.Parameter(torch.ones(hops + 1, heads))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.table)

    def forward(self) -> Tensor:
        return self.table


class NoGate(HeadGate):
    """All heads count alike."""

    ones: Tensor

    def __init__(self, hops: int, heads: int) -> None:
        super().__init__(hops, heads)
        self.register_buffer("ones", torch.ones(hops + 1, heads), persistent=False)

    def forward(self) -> Tensor:
        return self.ones


GATES: dict[str, type[HeadGate]] = {"softmax": SoftmaxGate, "plain": PlainGate, "none": NoGate}


def build_gate(gate: str | HeadGate, hops: int, heads: int) -> HeadGate:
    """The gate of a layer: one that is handed in if it fits, or one by name.

    A single head has nothing to gate, so there every name means :class:`NoGate`.
    """
    if not isinstance(gate, nn.Module):
        kind = GATES[_check.known("gate", gate, GATES)]
        return (NoGate if heads == 1 else kind)(hops, heads)
    check_part("gate", gate, HeadGate, hops=hops, heads=heads)
    table = gate()
    if table.shape != (hops + 1, heads):
        raise ValueError(
            f"a gate of {hops} hops and {heads} heads has shape [{hops + 1}, {heads}], "
            f"this one gave {_check.shape(table)}"
        )
    return gate


# ----------------------------------------------------------------------------------------- mixes


class HeadMix(nn.Module, ABC):
    """How heads become one output: `forward`, [N, H, width] -> [N, out_channels].

    Heads come in float32 at least, whatever precision the layer has.
    """

    def __init__(self, heads: int, width: int, out_channels: int) -> None:
        super().__init__()
        self.heads, self.width, self.out_channels = heads, width, out_channels

    def reset_parameters(self) -> None:
        """Nothing to reset unless a mix has parameters."""

    @abstractmethod
    def forward(self, heads: Tensor) -> Tensor: ...

    @abstractmethod
    def per_head(self) -> Tensor:
        """What each head is multiplied by on its way to the output, [H, out_channels, width]: a
        mix is linear, so that an explanation is a sum over heads."""

    def constant(self) -> Tensor | None:
        """What it adds to every output, [out_channels]; None if nothing."""
        return None

    def extra_repr(self) -> str:
        return f"heads={self.heads}, width={self.width}, out_channels={self.out_channels}"


class _Mapped(HeadMix):
    """Heads joined into one row, then dropout and :math:`W_O`.

    Heads that come out of `join` as they were, and as wide as the output, need no :math:`W_O`.

    Args:
        heads: H.
        width: channels of a head.
        out_channels: columns of the result.
        dropout: on what :math:`W_O` acts on.
        bias: whether :math:`W_O` has one.
    """

    def __init__(
        self, heads: int, width: int, out_channels: int, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__(heads, width, out_channels)
        self.dropout = check_dropout(dropout)
        columns = self.join(torch.empty(1, heads, width)).size(1)
        needed = not columns == width == out_channels
        self.lin = Linear(columns, out_channels, bias) if needed else None

    def reset_parameters(self) -> None:
        if self.lin is not None:
            self.lin.reset_parameters()

    @abstractmethod
    def join(self, heads: Tensor) -> Tensor:
        """[N, H, width] -> [N, columns]."""

    def forward(self, heads: Tensor) -> Tensor:
        out = self.join(heads)
        if self.lin is None:
            return out
        return self.lin(F.dropout(out, self.dropout, self.training).to(self.lin.weight.dtype))

    def weight(self) -> Tensor:
        """What the joined heads are multiplied by, [out_channels, columns]."""
        return torch.eye(self.width) if self.lin is None else self.lin.weight

    def constant(self) -> Tensor | None:
        return None if self.lin is None else self.lin.bias


class LinearMix(_Mapped):
    r""":math:`[\mathrm{head}^1, \ldots, \mathrm{head}^H] W_O`, after dropout."""

    def join(self, heads: Tensor) -> Tensor:
        return heads.flatten(1)

    def per_head(self) -> Tensor:
        return self.weight().unflatten(1, (self.heads, self.width)).transpose(0, 1)


class SumMix(_Mapped):
    r""":math:`\sum_h \mathrm{head}^h`, and :math:`W_O` where that is not as wide as the output."""

    def join(self, heads: Tensor) -> Tensor:
        return heads.sum(1)

    def per_head(self) -> Tensor:
        return self.weight().expand(self.heads, -1, -1)


HEAD_MIXES: dict[str, Callable[..., HeadMix]] = {"linear": LinearMix, "sum": SumMix}


def build_mix(
    mix: str | HeadMix, heads: int, width: int, out_channels: int, dropout: float, bias: bool
) -> HeadMix:
    """The mix of a layer: one that is handed in if it fits, or one by name."""
    if not isinstance(mix, nn.Module):
        kind = HEAD_MIXES[_check.known("head_mix", mix, HEAD_MIXES)]
        return kind(heads, width, out_channels, dropout, bias)
    check_part("head_mix", mix, HeadMix, heads=heads, width=width, out_channels=out_channels)
    return mix


def check_part(what: str, part: nn.Module, kind: type[nn.Module], **sizes: int) -> None:
    """Refuse a module that is not of this kind, or was made for other sizes."""
    if not isinstance(part, kind):
        raise TypeError(f"{what} must be a name or a {kind.__name__}, got {type(part).__name__}")
    for name, size in sizes.items():
        made_for = getattr(part, name)
        if made_for != size:
            raise ValueError(
                f"this {what} ({type(part).__name__}) was made for {name}={made_for}, "
                f"but the layer has {name}={size}"
            )
