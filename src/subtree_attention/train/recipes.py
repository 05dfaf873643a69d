"""What to run on which graph: the paper's hyper-parameters, as its authors released them.

Those for a graph of one's own are in `defaults`.
"""

from __future__ import annotations

from typing import Any

from torch_geometric.data import Data

from .. import datasets as data
from .config import Config
from .defaults import by_size

_PROTOCOL: dict[str, dict[str, Any]] = {
    "A": {"split": "A", "runs": 5},
    "B": {"split": "B", "runs": 10},
}

RECIPES: dict[str, dict[str, Any]] = {
    "digits": {"hops": 3, "lr": 0.01, "dropout": 0.4, "runs": 5, "patience": 50},
    "cora": {"hops": 10, "heads": 4, "dropout": 0.6, "weight_decay": 1e-4},
    "citeseer": {"heads": 2, "head_mix": "sum", "dropout": 0.6, "weight_decay": 1e-4},
    "deezer": {"heads": 2, "weight_decay": 5e-3, "loss": "binary"},
    "actor": {"heads": 4, "lr": 0.001, "weight_decay": 5e-3},
    "pubmed": {"heads": 4, "dropout": 0.2, "weight_decay": 5e-4},
    "corafull": {
        "heads": 4,
        "head_mix": "sum",
        "lr": 0.001,
        "dropout": 0.4,
        "weight_decay": 1e-4,
    },
    "computer": {"heads": 4, "dropout": 0.4, "weight_decay": 1e-4},
    "photo": {"heads": 8, "head_mix": "sum", "dropout": 0.4, "weight_decay": 5e-5},
    "cs": {"heads": 6, "head_mix": "sum", "lr": 0.001, "dropout": 0.6, "weight_decay": 5e-5},
    "physics": {"heads": 8, "head_mix": "sum", "dropout": 0.4, "weight_decay": 5e-5},
    # Not in the paper: settings in the middle of its grid.
    "cora-ml": {"hops": 5, "dropout": 0.4},
    "minesweeper": {"hops": 5, "dropout": 0.2, "encoding": 0},
}
"""Graph -> settings that differ from `Config`'s defaults (3 hops, 4 heads, lr 0.01, ...)."""


def recipe(graph: str | Data, /, **changes: Any) -> Config:
    """The configuration for a graph, with changes.

    >>> recipe("cora").hops
    10

    Args:
        graph: a name in `subtree_attention.datasets`, or a graph of one's own (`from_tables`),
            whose settings go by its size.
        changes: settings of `Config`; of one's own graph also its name, `graph="papers"`.
    """
    if isinstance(graph, Data):
        return by_size(graph).replace(**changes)
    info = data.info(graph)  # refuses an unknown name
    settings = {"metric": info.metric, **_PROTOCOL[info.protocol], **RECIPES[info.name]}
    return Config(graph=info.name, **settings).replace(**changes)
