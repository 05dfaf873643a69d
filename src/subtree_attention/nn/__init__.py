"""Layers and models: the STA layer, what it is made of, global attention, and STAGNN."""

from .aggregation import HopAggregation
from .block import STABlock
from .conv import STAConv
from .decoder import LinkNetwork, PairDecoder
from .edges import EdgeGate
from .everywhere import GlobalAttention, global_attention
from .features import SparseFeatures, as_features
from .former import STAFormer
from .heads import HeadGate, HeadMix
from .linear import Linear, project
from .models import BUILDERS, STAGNN, build, parameter_groups, set_states
from .pooling import GraphNetwork, pool
from .readout import Readout

__all__ = [
    "BUILDERS",
    "STAGNN",
    "EdgeGate",
    "GlobalAttention",
    "GraphNetwork",
    "HeadGate",
    "HeadMix",
    "HopAggregation",
    "Linear",
    "LinkNetwork",
    "PairDecoder",
    "Readout",
    "STABlock",
    "STAConv",
    "STAFormer",
    "SparseFeatures",
    "as_features",
    "build",
    "global_attention",
    "parameter_groups",
    "pool",
    "project",
    "set_states",
]
