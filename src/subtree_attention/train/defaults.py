"""Settings for a graph of one's own, by its size: a first result without knowing any of them.

They lie in the middle of the paper's grid; `sta tune` and `sta train --tune` find better ones.
"""

from __future__ import annotations

import math
from typing import Any

from torch_geometric.data import Data

from .config import Config

SIZES: list[tuple[float, dict[str, Any]]] = [
    (5_000, {"hops": 5, "dropout": 0.4, "runs": 5, "epochs": 1000, "patience": 100}),
    (100_000, {"hops": 5, "dropout": 0.2, "runs": 3, "epochs": 1000, "patience": 100}),
    (math.inf, {"hops": 3, "dropout": 0.0, "runs": 1, "epochs": 500, "patience": 50}),
]
"""Up to so many nodes: few nodes overfit, and many take long."""

STATE_BYTES = 2**30
WIDTHS = (64, 32, 16)
"""Hidden channels: the most for which a state of the walk [N, hidden, classes] takes a GiB."""


def by_size(data: Data, graph: str = "tables") -> Config:
    """The configuration for a graph of one's own.

    No Laplacian encoding: its basis is another one on every graph, and a model shall also be of
    use on new nodes.
    """
    settings = next(values for most, values in SIZES if data.num_nodes <= most)
    bytes_per_channel = 4 * int(data.num_nodes or 0) * (int(data.y.max()) + 1)
    fitting = [width for width in WIDTHS if width * bytes_per_channel <= STATE_BYTES]
    hidden = max(fitting, default=min(WIDTHS))
    config = Config(graph, encoding=0, hidden_channels=hidden, split="B", **settings)
    # A split of its own is one split: runs on it differ by their start only.
    return config.replace(split="own", runs=1) if "train_mask" in data else config
