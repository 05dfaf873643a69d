"""Layers and models: the STA layer, what it is made of, global attention, and STAGNN."""

from .aggregation import HopAggregation
from .conv import STAConv
from .everywhere import GlobalAttention, global_attention
from .features import SparseFeatures, as_features
from .heads import HeadGate, HeadMix
from .linear import Linear, project
from .models import BUILDERS, STAGNN, build, parameter_groups, set_states

__all__ = [
    "BUILDERS",
    "STAGNN",
    "GlobalAttention",
    "HeadGate",
    "HeadMix",
    "HopAggregation",
    "Linear",
    "STAConv",
    "SparseFeatures",
    "as_features",
    "build",
    "global_attention",
    "parameter_groups",
    "project",
    "set_states",
]
