"""Subtree attention (STA) and STAGNN for PyTorch Geometric."""

__version__ = "0.1.0"

from . import datasets, feature_maps, ops
from .datasets.tables import from_networkx, from_npz, from_pyg, from_tables
from .explanations import Explainer, Explanation, STAExplainer, explain
from .graph import Graph
from .nn import STAGNN, STAConv, aggregation, global_attention
from .ops import attention, subtree_attention
from .runs.evaluate import load_data
from .runs.folder import load
from .runs.predict import predict
from .train.config import Config
from .train.loop import fit
from .train.recipes import recipe

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
