"""Benchmark graphs: the registry, loading, splits and the Laplacian positional encoding."""

from .encoding import LaplacianEncoding
from .folders import MissingData, Whereabouts, data_folder, where
from .loading import load
from .registry import GraphInfo, info, names
from .splits import apply_split, random_split

__all__ = [
    "GraphInfo",
    "LaplacianEncoding",
    "MissingData",
    "Whereabouts",
    "apply_split",
    "data_folder",
    "info",
    "load",
    "names",
    "random_split",
    "where",
]
