"""A graph that is shared out to ranks: who owns which node, and what a rank holds of it.

`parts` says who owns what, `streaming` finds it out from edges that nobody has all of, `graph` is
what a rank holds and walks on, `exchange` brings it rows of others, `groups` are who takes part.
"""

from .exchange import Exchange
from .graph import PartGraph, Shared
from .groups import HEADS, NODES, Mesh, Ranks, Summed, as_mesh, flat, mesh
from .here import HERE, running_on
from .parts import Partition

__all__ = [
    "HEADS",
    "HERE",
    "NODES",
    "Exchange",
    "Mesh",
    "PartGraph",
    "Partition",
    "Ranks",
    "Shared",
    "Summed",
    "as_mesh",
    "flat",
    "mesh",
    "running_on",
]
