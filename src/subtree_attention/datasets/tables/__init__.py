"""The user's own graphs: from tables of nodes and edges, networkx, PyG or arrays to one `Data`.

Tables are read with polars: `pip install "subtree-attention[tables]"`.
"""

from .build import apply_recipe, from_tables, join_tables
from .read import TableError
from .schema import TableNotes, TableSchema
from .sources import from_networkx, from_npz, from_pyg

__all__ = [
    "TableError",
    "TableNotes",
    "TableSchema",
    "apply_recipe",
    "from_networkx",
    "from_npz",
    "from_pyg",
    "from_tables",
    "join_tables",
]
