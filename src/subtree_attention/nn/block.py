"""STABlock: an STA layer with what deep networks put around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from .. import _check
from ..ops.dropout import drop
from .conv import STAConv
from .dropout import Dropout
from .features import Features, as_features
from .linear import Linear
from .norms import BatchNorm
from .parts import reset_children

NORMS: dict[str, Callable[[int], nn.Module]] = {
    "layer": nn.LayerNorm,
    "batch": BatchNorm,
    "none": lambda channels: nn.Identity(),
}
RESIDUALS = ("linear", "identity", "none")
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "none": lambda x: x,
}


class STABlock(nn.Module):
    r"""A residual block around :class:`STAConv`, made to be stacked.

    .. math::
        Y = \mathrm{dropout}(\sigma(\mathrm{norm}(\mathrm{STAConv}(X) + \mathrm{residual}(X)))),
        \qquad Z = \mathrm{norm}'(Y + \mathrm{FFN}(Y))

    without the second part unless `feed_forward` asks for it. The layer inside reads out with
    :math:`R_k / D_k^{\beta}`, a learned beta for each hop and head that starts at 1 (a mean) in the
    first head and at 0 (a sum, which sees degrees) in the last, and its similarities are cosines,
    so that sums stay bounded and many blocks train.

    Args:
        in_channels: columns of x; -1 takes them from the first x that comes.
        out_channels: columns of the result.
        hops: K, how many levels of its subtree a node reads in this block.
        heads: H; they must divide `out_channels`.
        key_channels: channels of a query or key, per head.
        norm: `"layer"`, `"batch"` or `"none"`.
        residual: `"linear"` (a map of x), `"identity"` (x itself; a linear map where the widths
            differ) or `"none"`: hop 0 reads the node itself all the same.
        feed_forward: hidden channels of the feed-forward part as a multiple of `out_channels`;
            0: none.
        activation: `"relu"`, `"gelu"` or `"none"`.
        dropout: behind the activation.
        attention_start: initial weights of queries and keys are scaled by this. Near 0 all
            similarities begin at 1: a block begins as the plain walk of its values and learns whom
            to attend to, which helps many blocks to train.
        options: any other of :class:`STAConv`; here the defaults are `feature_map="unit"`,
            `readout="power"`, `gate="plain"` and `head_mix="concat"`.

    Shapes:
        - x: `[N, in_channels]`, dense or sparse
        - result: `[N, out_channels]`
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hops: int = 2,
        heads: int = 2,
        key_channels: int = 8,
        norm: str = "layer",
        residual: str = "linear",
        feed_forward: int = 0,
        activation: str = "relu",
        dropout: float = 0.0,
        attention_start: float = 1.0,
        **options: Any,
    ) -> None:
        super().__init__()
        _check.known("norm", norm, NORMS)
        _check.known("residual", residual, RESIDUALS)
        _check.known("activation", activation, ACTIVATIONS)
        _check.integer("feed_forward", feed_forward, 0, 16)
        self.dropout = _check.number("dropout", dropout, below=1)
        self.activation = activation
        usual = {
            "feature_map": "unit",
            "readout": "power",
            "gate": "plain",
            "head_mix": "concat",
        }
        self.conv = STAConv(
            in_channels,
            out_channels,
            hops,
            heads,
            key_channels,
            **{**usual, **options},
        )
        for lin in (self.conv.lin_query, self.conv.lin_key):
            lin.gain = _check.number("attention_start", attention_start)
            lin.reset_parameters()
        self.residual = _residual(residual, in_channels, out_channels)
        self.norm = NORMS[norm](out_channels)
        self.feed_forward = _feed_forward(out_channels, feed_forward, dropout)
        self.last_norm = NORMS[norm](out_channels) if feed_forward else None

    def reset_parameters(self) -> None:
        """Back to fresh initial values."""
        reset_children(self)

    def no_weight_decay(self) -> Iterator[nn.Parameter]:
        """Hop weights, gates of heads and betas: not to be decayed."""
        yield from self.conv.no_weight_decay()

    def forward(
        self,
        x: Features,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """[N, in_channels] -> [N, out_channels]; arguments as in :meth:`STAConv.forward`."""
        x = as_features(x)
        more = {"batch_size": batch_size, "edge_attr": edge_attr}
        out: Tensor = self.conv(x, edge_index, edge_weight, batch, **more)
        if self.residual is not None:
            out = out + self.residual(x)
        out = ACTIVATIONS[self.activation](self.norm(out))
        out = drop(out, self.dropout, self.training)
        if self.feed_forward is None or self.last_norm is None:
            return out
        return self.last_norm(out + self.feed_forward(out))


class _Itself(nn.Module):
    """x as it is; sparse x dense."""

    def forward(self, x: Features) -> Tensor:
        return x if isinstance(x, Tensor) else x.dense()


def _residual(kind: str, in_channels: int, out_channels: int) -> nn.Module | None:
    if kind == "none":
        return None
    if kind == "identity" and in_channels == -1:
        raise ValueError(
            "residual='identity' needs in_channels: with -1 it is not known whether x is as wide "
            "as the block"
        )
    same = kind == "identity" and in_channels == out_channels
    return _Itself() if same else Linear(in_channels, out_channels)


def _feed_forward(channels: int, times: int, dropout: float) -> nn.Module | None:
    if not times:
        return None
    return nn.Sequential(
        Linear(channels, times * channels),
        nn.ReLU(),
        Dropout(dropout),
        Linear(times * channels, channels),
        Dropout(dropout),
    )
