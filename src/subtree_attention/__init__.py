"""Subtree attention (STA) and STAGNN for PyTorch Geometric."""

__version__ = "0.1.0"

from . import aggregation, feature_maps, ops
from .graph import Graph
from .nn import STAGNN, STAConv, global_attention
from .ops import attention, subtree_attention

__all__ = [
    "STAGNN",
    "Graph",
    "STAConv",
    "aggregation",
    "attention",
    "feature_maps",
    "global_attention",
    "ops",
    "subtree_attention",
]
