"""Graphs with all that is known of them: those of the registry, and the user's own.

What needs torch is imported when it is first used: names and protocols of graphs do not.
"""

# ruff: noqa: F401 - names below TYPE_CHECKING are public by `_HOMES`

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .folders import MissingData, Whereabouts, data_folder, where
from .registry import GraphInfo, info, names

if TYPE_CHECKING:
    from .arrays import as_dataset, from_npz, from_pyg
    from .collection import from_graphs
    from .dataset import Dataset
    from .encoding import LaplacianEncoding
    from .loading import load
    from .made_up import planted
    from .ogb import from_ogb
    from .pieces import Piece, read_piece
    from .splits import Split, random_split
    from .store import Store, read
    from .streamed import store_tables
    from .tables.schema import TableNotes, TableSchema
    from .tables.sources.query import Query
    from .tables.table import TableError
    from .tabular import apply_schema, from_networkx, from_tables, join_tables
    from .writing import write_tables

_HOMES = {
    "arrays": ("as_dataset", "from_npz", "from_pyg"),
    "collection": ("from_graphs",),
    "dataset": ("Dataset",),
    "encoding": ("LaplacianEncoding",),
    "loading": ("load",),
    "made_up": ("planted",),
    "ogb": ("from_ogb",),
    "pieces": ("Piece", "read_piece"),
    "splits": ("Split", "random_split"),
    "store": ("Store", "read"),
    "streamed": ("store_tables",),
    "tabular": ("apply_schema", "from_networkx", "from_tables", "join_tables"),
    "tables.schema": ("TableNotes", "TableSchema"),
    "tables.sources.query": ("Query",),
    "tables.table": ("TableError",),
    "writing": ("write_tables",),
}
_HOME = {name: home for home, public in _HOMES.items() for name in public}

__all__ = ["GraphInfo", "MissingData", "Whereabouts", "data_folder", "info", "names", "where"]
__all__ += [*_HOME]

if not TYPE_CHECKING:  # or every name would pass

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f".{_HOME[name]}", __name__), name)
        return value
