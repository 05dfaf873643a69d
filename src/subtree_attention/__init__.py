"""Subtree attention (STA) and STAGNN for PyTorch Geometric."""

__version__ = "0.1.0"

from . import aggregation, feature_maps, ops
from . import data as datasets
from .explain import Explainer, Explanation, STAExplainer, explain
from .graph import Graph
from .nn import STAGNN, STAConv, global_attention
from .ops import attention, subtree_attention
from .train import Config, fit, load, load_data, recipe

__all__ = [
    "STAGNN",
    "Config",
    "Explainer",
    "Explanation",
    "Graph",
    "STAConv",
    "STAExplainer",
    "aggregation",
    "attention",
    "datasets",
    "explain",
    "feature_maps",
    "fit",
    "global_attention",
    "load",
    "load_data",
    "ops",
    "recipe",
    "subtree_attention",
]
