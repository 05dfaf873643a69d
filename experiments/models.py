"""Global attention without STA, the first row of Table 2."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from subtree_attention import feature_maps
from subtree_attention.config import MODELS, Settings, STAGNNSettings, like
from subtree_attention.feature_maps import FeatureMap
from subtree_attention.graph import Graph
from subtree_attention.nn import BUILDERS, HeadMix, Linear, global_attention, project
from subtree_attention.nn.features import Features
from subtree_attention.nn.heads import HEAD_MIXES, per_head


class GlobalAttentionGNN(nn.Module):
    r"""STAGNN with global attention (SA) in the place of STA.

    SA is one level, so there is neither hop nor gate; heads are mixed as in STAGNN.

    Args:
        in_channels: columns of x.
        hidden_channels: width of H; a head's queries and keys have `hidden_channels // heads`.
        out_channels: number of classes.
        heads: number of attention heads.
        dropout: share dropped of x, of H, and of the concatenated heads.
        feature_map: as of STAGNN, like the rest.

    Shapes:
        - x: `[N, in_channels]`, dense or sparse
        - result: `[N, out_channels]` logits
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        heads: int = 4,
        dropout: float = 0.0,
        feature_map: str | FeatureMap = "elu",
        head_mix: str | HeadMix = "linear",
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.lin = Linear(in_channels, hidden_channels, dropout=dropout)
        self.conv = _GlobalConv(
            hidden_channels, out_channels, heads, feature_map, head_mix, dropout, eps
        )

    def forward(self, x: Features, graph: Graph) -> Tensor:
        """Logits [N, out_channels]; the graph is not looked at."""
        hidden = F.dropout(F.relu(self.lin(x)), self.dropout, self.training)
        return self.conv(hidden)


class _GlobalConv(nn.Module):
    """SA of heads, mixed; its parameters are called and drawn as those of `STAConv`."""

    def __init__(
        self,
        hidden_channels: int,
        out_channels: int,
        heads: int,
        feature_map: str | FeatureMap,
        head_mix: str | HeadMix,
        dropout: float,
        eps: float,
    ) -> None:
        super().__init__()
        self.heads, self.eps = heads, eps
        keys = per_head("hidden_channels", hidden_channels, heads)
        self.feature_map: Any = feature_maps.build(feature_map, keys)
        self.lin_query = Linear(hidden_channels, heads * keys)
        self.lin_key = Linear(hidden_channels, heads * keys)
        self.lin_value = Linear(hidden_channels, heads * out_channels)
        sizes = heads, out_channels, out_channels
        self.head_mix = HeadMix.pick("head_mix", head_mix, HEAD_MIXES, *sizes, dropout=dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[N, hidden_channels] -> [N, out_channels]."""
        query, key, value = project(x, self.heads, self.lin_query, self.lin_key, self.lin_value)
        everywhere = global_attention(query, key, value, feature_map=self.feature_map, eps=self.eps)
        return self.head_mix(everywhere).to(value.dtype)


@dataclass(frozen=True)
class GlobalAttentionSettings(Settings):
    """The options of `GlobalAttentionGNN`: those of STAGNN that have nothing to do with hops."""

    name: ClassVar[str] = "global-attention"
    title: ClassVar[str] = "global attention"
    hidden_channels: int = like(STAGNNSettings, "hidden_channels")
    heads: int = like(STAGNNSettings, "heads")
    dropout: float = like(STAGNNSettings, "dropout")
    feature_map: str = like(STAGNNSettings, "feature_map")
    head_mix: str = like(STAGNNSettings, "head_mix")
    eps: float = like(STAGNNSettings, "eps")

    @classmethod
    def of(cls, settings: STAGNNSettings) -> GlobalAttentionSettings:
        """What is left of STAGNN's."""
        return cls(**{about.name: getattr(settings, about.name) for about in fields(cls)})


MODELS[GlobalAttentionSettings.name] = GlobalAttentionSettings
BUILDERS[GlobalAttentionSettings.name] = GlobalAttentionGNN
