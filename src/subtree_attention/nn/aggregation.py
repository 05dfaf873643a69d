r"""How the levels of a subtree become one: AGGR over hops.

Two kinds: a weighted sum over hops (`gpr`, `sum`) is handed to the operator as hop weights, so
that the levels never exist side by side; `concat` and `attention` need all levels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from .. import _check
from .heads import GATES, HeadGate, NoGate
from .parts import Part, keep_fixed


class HopAggregation(Part):
    """AGGR over the levels STA_0 .. STA_K of H heads of c channels.

    Attributes:
        width: channels per head that come out.
    """

    sizes = ("hops", "heads", "channels")
    hops: int
    heads: int
    channels: int

    def __init__(self, hops: int, heads: int, channels: int) -> None:
        super().__init__(hops, heads, channels)
        self.width = self.channels

    def no_weight_decay(self) -> Iterator[nn.Parameter]:
        """Parameters that are not to be decayed: none, unless they weigh hops."""
        yield from ()

    def hop_weights(self) -> Tensor | None:
        """[K + 1, 1 or H] if this is a weighted sum; None if it needs the levels themselves."""
        return None

    @abstractmethod
    def forward(self, levels: Tensor) -> Tensor:
        """[K + 1, N, H, c] -> [N, H, width]."""

    @abstractmethod
    def per_level(self, mix: Tensor, levels: Tensor) -> Tensor:
        """What each level of one node is multiplied by on its way to the output.

        AGGR is linear in the levels, given its weights; those of the attention read-out come from
        the levels themselves.

        Args:
            mix: `[H, out_channels, width]`, what the aggregated heads are multiplied by.
            levels: `[K + 1, H, c]`, gated, of the node.

        Returns:
            `[K + 1, H, out_channels, c]`
        """


class GPR(HopAggregation):
    r""":math:`\sum_k \alpha_k \mathrm{STA}_k`, alpha learned from 1."""

    def __init__(self, hops: int, heads: int, channels: int) -> None:
        super().__init__(hops, heads, channels)
        self.alpha = nn.Parameter(torch.ones(hops + 1))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.alpha)

    def no_weight_decay(self) -> Iterator[nn.Parameter]:
        return self.parameters()

    def hop_weights(self) -> Tensor:
        return self.alpha[:, None]

    def forward(self, levels: Tensor) -> Tensor:
        weights = self.hop_weights().expand(-1, self.heads)
        return torch.einsum("knhc,kh->nhc", levels, weights)

    def per_level(self, mix: Tensor, levels: Tensor) -> Tensor:
        return self.hop_weights()[..., None, None] * mix


class Sum(GPR):
    r""":math:`\sum_k \mathrm{STA}_k`: alpha stays 1 and is not saved."""

    def __init__(self, hops: int, heads: int, channels: int) -> None:
        super().__init__(hops, heads, channels)
        keep_fixed(self, "alpha")


class Concat(HopAggregation):
    r""":math:`[\mathrm{STA}_0, \ldots, \mathrm{STA}_K]`, side by side for the output map."""

    def __init__(self, hops: int, heads: int, channels: int) -> None:
        super().__init__(hops, heads, channels)
        self.width = (hops + 1) * channels

    def forward(self, levels: Tensor) -> Tensor:
        return levels.permute(1, 2, 0, 3).flatten(2)

    def per_level(self, mix: Tensor, levels: Tensor) -> Tensor:
        blocks = mix.unflatten(2, (self.hops + 1, self.channels))  # [H, out, K + 1, c]
        return blocks.permute(2, 0, 1, 3)


class AttentionReadout(HopAggregation):
    r""":math:`\mathrm{STA}_0 + \sum_{k \ge 1} \beta_k \mathrm{STA}_k`, one beta per node and head.

    :math:`\beta_k = \mathrm{softmax}_{k \ge 1}([\mathrm{STA}_0, \mathrm{STA}_k] \cdot w_a)`
    """

    def __init__(self, hops: int, heads: int, channels: int) -> None:
        super().__init__(hops, heads, channels)
        self.weight = nn.Parameter(torch.empty(heads, 2 * channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)

    def beta(self, levels: Tensor) -> Tensor:
        """[K + 1, N, H, c] -> [K, N, H]."""
        # The score's STA_0 part is the same at every hop, but the equation is kept as it stands.
        own, other = self.weight.split(self.channels, dim=-1)
        scores = (levels[:1] * own).sum(-1) + (levels[1:] * other).sum(-1)
        return torch.softmax(scores, dim=0)

    def forward(self, levels: Tensor) -> Tensor:
        return levels[0] + (self.beta(levels)[..., None] * levels[1:]).sum(0)

    def per_level(self, mix: Tensor, levels: Tensor) -> Tensor:
        beta = self.beta(levels[:, None]).squeeze(1)  # [K, H]
        return torch.cat([torch.ones_like(levels[:1, :, 0]), beta])[..., None, None] * mix


AGGREGATIONS: dict[str, type[HopAggregation]] = {
    "gpr": GPR,
    "sum": Sum,
    "concat": Concat,
    "attention": AttentionReadout,
}


def build(
    aggregation: str | HopAggregation,
    gate: str | HeadGate,
    hops: int,
    heads: int,
    channels: int,
) -> tuple[HopAggregation, HeadGate]:
    """The aggregation and the gate of a layer: modules that are handed in if they fit, or by name.

    Names mean what the paper combines: a single head has nothing to gate, and
    the plain gate is a table of hop weights itself, so beside it `"gpr"` is :class:`Sum`. A module
    that is handed in stays what it is.
    """
    shape, gates, kinds = (hops + 1, heads), GATES, AGGREGATIONS
    if heads == 1:
        gates = dict.fromkeys(GATES, NoGate)
    elif isinstance(gate, str) and gate == "plain":
        kinds = {**AGGREGATIONS, "gpr": Sum}
    built_gate = HeadGate.pick("gate", gate, gates, hops, heads)
    built = HopAggregation.pick("aggregation", aggregation, kinds, hops, heads, channels)
    table, weights = built_gate(), built.hop_weights()
    if table.shape != shape:
        raise ValueError(
            f"a gate of {hops} hops and {heads} heads has shape {list(shape)}, "
            f"this one gave {_check.shape(table)}"
        )
    if weights is not None and weights.shape not in ((hops + 1, 1), shape):
        raise ValueError(
            f"hop weights of {hops} hops and {heads} heads have shape [{hops + 1}, 1] or "
            f"{list(shape)}, this aggregation gave {_check.shape(weights)}"
        )
    return built, built_gate
