"""STAGNN, the paper's model: an MLP, then one STA layer whose values are logits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import _check
from ..feature_maps import FeatureMap
from .conv import STAConv
from .linear import SparseLinear, check_dropout, check_features


class STAGNN(nn.Module):
    r"""STAGNN of `"Tailoring Self-Attention for Graph via Rooted Subtrees"
    <https://arxiv.org/abs/2310.05296>`_: returns logits.

    .. math::
        O = \sum_{k=0}^K \alpha_k \mathrm{STA}_k(H W_Q, H W_K, H W_V), \qquad H = \mathrm{MLP}(X)

    The MLP is one linear map with ReLU; each head's values have as many channels as there are
    classes. Dropout acts on x, on H, and on the concatenated heads.

    Args:
        in_channels: columns of x; -1 takes them from the first x that comes.
        hidden_channels: width of H; a head's queries and keys have `hidden_channels // heads`.
        out_channels: number of classes.
        hops: K, the height of the subtree.
        heads: number of attention heads.
        dropout: share dropped, the same in all three places.
        feature_map: see :class:`STAConv`, like all that follow.

    Shapes:
        - x: `[N, in_channels]`, dense or `torch.sparse_csr` (never made dense)
        - result: `[N, out_channels]` logits
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        hops: int = 3,
        heads: int = 4,
        dropout: float = 0.0,
        feature_map: str | FeatureMap = "elu",
        similarity: str | None = None,
        transition: str | None = "auto",
        self_loops: bool = False,
        aggregation: str = "gpr",
        gate: str = "softmax",
        head_mix: str = "linear",
        global_attention: str | None = None,
        eps: float = 1e-5,
        cached: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.dropout = check_dropout(dropout)
        self.lin = SparseLinear(in_channels, hidden_channels, dropout=dropout)
        self.conv = STAConv(
            hidden_channels,
            out_channels,
            hops,
            heads,
            key_channels=key_channels(hidden_channels, heads),
            value_channels=out_channels,
            feature_map=feature_map,
            similarity=similarity,
            transition=transition,
            self_loops=self_loops,
            aggregation=aggregation,
            gate=gate,
            head_mix=head_mix,
            global_attention=global_attention,
            dropout=dropout,
            eps=eps,
            cached=cached,
            backend=backend,
        )

    def reset_parameters(self) -> None:
        """Back to fresh initial values."""
        self.lin.reset_parameters()
        self.conv.reset_parameters()

    def no_weight_decay(self) -> Iterator[nn.Parameter]:
        """The parameters that the paper does not decay: alpha, gates and alpha_T."""
        yield from self.conv.no_weight_decay()

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Two groups for an optimiser: decayed, and not."""
        return parameter_groups(self, weight_decay)

    def hidden(self, x: Tensor) -> Tensor:
        """H = MLP(X): [N, in_channels] -> [N, hidden_channels]."""
        check_features(x)
        return F.dropout(F.relu(self.lin(x)), self.dropout, self.training)

    def forward(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        """Logits [N, out_channels]; arguments as in :meth:`STAConv.forward`."""
        return self.conv(self.hidden(x), edge_index, edge_weight, batch, batch_size=batch_size)

    @torch.no_grad()
    def attention(
        self, x: Tensor, edge_index: Any, root: int, hop: int, edge_weight: Tensor | None = None
    ) -> Tensor:
        """The exact attention of `root` over level `hop` of its subtree, [N, H]; no dropout."""
        with evaluating(self):
            return self.conv.attention(self.hidden(x), edge_index, root, hop, edge_weight)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.lin.in_channels}, {self.lin.out_channels}, "
            f"{self.conv.out_channels}, hops={self.conv.hops}, heads={self.conv.heads})"
        )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode; afterwards every part of it is as it was."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def key_channels(hidden_channels: int, heads: int) -> int:
    """Channels of a head's queries and keys: an equal share of the hidden ones, rounded down."""
    _check.integer("hidden_channels", hidden_channels, 1)
    _check.integer("heads", heads, 1)
    if heads > hidden_channels:
        raise ValueError(
            f"heads={heads} is more than hidden_channels={hidden_channels}, which leaves no "
            "channel for a head"
        )
    return hidden_channels // heads


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Groups for an optimiser: what a model names in `no_weight_decay()`, if it has that, is not
    decayed."""
    named = getattr(model, "no_weight_decay", None)
    kept = list(named()) if callable(named) else []
    ids = {id(parameter) for parameter in kept}
    decayed = [p for p in model.parameters() if id(p) not in ids]
    groups = [{"params": decayed, "weight_decay": weight_decay}]
    return [*groups, {"params": kept, "weight_decay": 0.0}] if kept else groups
