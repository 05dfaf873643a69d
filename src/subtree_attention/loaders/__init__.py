"""Batches of a graph that is too large for one step, as PyG's `Data`: sampled, or of clusters.

A batch has PyG's names, so any model of PyG takes it; `walk_graph` makes of it what ours walk on.
"""

from .batch import walk_graph
from .clusters import ClusterLoader
from .neighbors import NeighborLoader

__all__ = ["ClusterLoader", "NeighborLoader", "walk_graph"]
