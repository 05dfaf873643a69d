"""Layers and models: the STA layer, what it is made of, global attention, and STAGNN."""

from .aggregation import HopAggregation
from .block import STABlock
from .conv import STAConv
from .decoder import LinkNetwork, PairDecoder
from .dropout import Dropout
from .edges import EdgeGate
from .everywhere import GlobalAttention, global_attention
from .features import SparseFeatures, as_features
from .former import STAFormer
from .heads import HeadGate, HeadMix
from .labels import KnownLabels, Labelled, NodeNetwork, unwrapped
from .linear import Linear, project
from .models import BUILDERS, STAGNN, build, set_memory, set_states
from .norms import BatchNorm
from .offloaded import OffloadedFeatures
from .parallel import Parallel, parallelize
from .parts import parameter_groups
from .pooling import GraphNetwork, pool
from .readout import Readout

__all__ = [
    "BUILDERS",
    "STAGNN",
    "BatchNorm",
    "Dropout",
    "EdgeGate",
    "GlobalAttention",
    "GraphNetwork",
    "HeadGate",
    "HeadMix",
    "HopAggregation",
    "KnownLabels",
    "Labelled",
    "Linear",
    "LinkNetwork",
    "NodeNetwork",
    "OffloadedFeatures",
    "PairDecoder",
    "Parallel",
    "Readout",
    "STABlock",
    "STAConv",
    "STAFormer",
    "SparseFeatures",
    "as_features",
    "build",
    "global_attention",
    "parallelize",
    "parameter_groups",
    "pool",
    "project",
    "set_memory",
    "set_states",
    "unwrapped",
]
