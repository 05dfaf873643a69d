"""Subtree attention (STA) and STAGNN for PyTorch Geometric.

Names are found when they are first used (PEP 562), so that importing this package imports neither
torch nor anything else. A new public name takes a line in `_HOMES` and one below TYPE_CHECKING,
and must not be the name of a module of this folder, which would take its place once imported.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # typing's, without importing typing
if TYPE_CHECKING:
    from . import datasets as datasets
    from . import explanations as explanations
    from . import feature_maps as feature_maps
    from . import loaders as loaders
    from . import nn as nn
    from . import ops as ops
    from .config import Config as Config
    from .datasets import Dataset as Dataset
    from .datasets import Query as Query
    from .datasets import from_graphs as from_graphs
    from .datasets import from_networkx as from_networkx
    from .datasets import from_npz as from_npz
    from .datasets import from_ogb as from_ogb
    from .datasets import from_pyg as from_pyg
    from .datasets import from_tables as from_tables
    from .datasets import planted as planted
    from .explanations import Attribution as Attribution
    from .explanations import Attributor as Attributor
    from .explanations import Changes as Changes
    from .explanations import Explainer as Explainer
    from .explanations import Explanation as Explanation
    from .explanations import explain as explain
    from .explanations.pyg import STAExplainer as STAExplainer
    from .graph import Graph as Graph
    from .loaders import ClusterLoader as ClusterLoader
    from .loaders import NeighborLoader as NeighborLoader
    from .nn import STAGNN as STAGNN
    from .nn import STABlock as STABlock
    from .nn import STAConv as STAConv
    from .nn import STAFormer as STAFormer
    from .nn import aggregation as aggregation
    from .nn import global_attention as global_attention
    from .nn import parallelize as parallelize
    from .ops import attention as attention
    from .ops import subtree_attention as subtree_attention
    from .partition import PartGraph as PartGraph
    from .partition import Partition as Partition
    from .partition import mesh as mesh
    from .runs import SavedRun as SavedRun
    from .runs import open as open
    from .runs import predict as predict
    from .runs import predict_links as predict_links
    from .show.notebook import as_html as as_html
    from .show.notebook import as_svg as as_svg
    from .show.notebook import explore as explore
    from .train.candidates import Candidate as Candidate
    from .train.fit import fit as fit
    from .train.logs import Log as Log
    from .train.logs import LoggedRun as LoggedRun
    from .train.portfolio import fit_portfolio as fit_portfolio
    from .train.recipes import recipe as recipe

_HOMES = {
    "STAGNN": "nn",
    "Candidate": "train.candidates",
    "ClusterLoader": "loaders",
    "Config": "config",
    "Dataset": "datasets",
    "Attribution": "explanations",
    "Attributor": "explanations",
    "Changes": "explanations",
    "Explainer": "explanations",
    "Explanation": "explanations",
    "Graph": "graph",
    "Log": "train.logs",
    "LoggedRun": "train.logs",
    "NeighborLoader": "loaders",
    "PartGraph": "partition",
    "Partition": "partition",
    "Query": "datasets",
    "STABlock": "nn",
    "STAConv": "nn",
    "STAExplainer": "explanations.pyg",
    "STAFormer": "nn",
    "SavedRun": "runs",
    "aggregation": "nn",
    "as_html": "show.notebook",
    "as_svg": "show.notebook",
    "attention": "ops",
    "datasets": "",
    "explanations": "",
    "explain": "explanations",
    "explore": "show.notebook",
    "feature_maps": "",
    "fit": "train.fit",
    "fit_portfolio": "train.portfolio",
    "from_graphs": "datasets",
    "from_networkx": "datasets",
    "from_npz": "datasets",
    "from_ogb": "datasets",
    "from_pyg": "datasets",
    "from_tables": "datasets",
    "global_attention": "nn",
    "loaders": "",
    "mesh": "partition",
    "nn": "",
    "open": "runs",
    "ops": "",
    "parallelize": "nn",
    "planted": "datasets",
    "predict": "runs",
    "predict_links": "runs",
    "recipe": "train.recipes",
    "subtree_attention": "ops",
}
"""Where each public name is found; it is itself a module where nothing is said."""

__all__ = [*_HOMES]

if not TYPE_CHECKING:  # or every name would pass

    def __getattr__(name: str) -> object:
        """A public name on its first use; from then on it is an attribute like any other."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        module = import_module(f".{_HOMES[name] or name}", __name__)
        value = globals()[name] = getattr(module, name) if _HOMES[name] else module
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
