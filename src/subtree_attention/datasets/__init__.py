"""Benchmark graphs: the registry, loading, splits and the Laplacian positional encoding."""

from .arrays import as_dataset
from .dataset import Dataset, read
from .encoding import LaplacianEncoding
from .folders import MissingData, Whereabouts, data_folder, where
from .loading import load
from .registry import GraphInfo, info, names
from .splits import Split, apply_split, random_split

__all__ = [
    "Dataset",
    "GraphInfo",
    "LaplacianEncoding",
    "MissingData",
    "Split",
    "Whereabouts",
    "apply_split",
    "as_dataset",
    "data_folder",
    "info",
    "load",
    "names",
    "random_split",
    "read",
    "where",
]
