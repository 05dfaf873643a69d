"""Subtree attention (STA) and STAGNN for PyTorch Geometric."""

__version__ = "0.1.0"

from . import aggregation, feature_maps, ops
from . import data as datasets
from .explain import Explainer, Explanation, STAExplainer, explain
from .graph import Graph
from .nn import STAGNN, STAConv, global_attention
from .ops import attention, subtree_attention
from .tables import from_networkx, from_npz, from_pyg, from_tables
from .train import Config, fit, load, load_data, predict, recipe

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
    "from_networkx",
    "from_npz",
    "from_pyg",
    "from_tables",
    "global_attention",
    "load",
    "load_data",
    "ops",
    "predict",
    "recipe",
    "subtree_attention",
]
