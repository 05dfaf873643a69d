"""What the expressions of the corpus are made of: good values, in which one thing goes wrong."""

# ruff: noqa: F401 - the expressions use what is imported

import math
from functools import cache
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import scipy.sparse
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import subtree_attention as sta
from subtree_attention import Config, Dataset, Graph, datasets, feature_maps, fit, recipe
from subtree_attention.config import DataSettings, FitSettings, NodeClassification, STAGNNSettings
from subtree_attention.datasets.splits import labelled_split
from subtree_attention.datasets.tables.schema import TableSchema
from subtree_attention.nn import (
    STAGNN,
    Linear,
    SparseFeatures,
    STAConv,
    as_features,
    build,
    global_attention,
    parameter_groups,
)
from subtree_attention.nn.aggregation import GPR, AttentionReadout, Concat
from subtree_attention.nn.edges import MLPEdgeGate
from subtree_attention.nn.heads import LinearMix, NoGate, PlainGate, SoftmaxGate, SumMix
from subtree_attention.runs import evaluate, predict
from subtree_attention.tasks import of as task_of
from subtree_attention.train.jobs import Place
from subtree_attention.tune import Plan, search
from subtree_attention.tune.loop import parse_budget

N = 12  # nodes on a ring, neighbours both ways
ring = torch.tensor([list(range(N)), [(i + 1) % N for i in range(N)]])
edges = torch.cat([ring, ring.flip(0)], dim=1)  # [2, 24]
x = torch.linspace(-1, 1, 5 * N).view(N, 5)
y = torch.arange(N) % 2
w = torch.ones(2 * N)
q, v = torch.ones(N, 2, 4), torch.ones(N, 2, 3)
some = torch.arange(N) < 6
others, rest = (torch.arange(N) >= 6) & (torch.arange(N) < 9), torch.arange(N) >= 9
nodes = {
    "id": [f"n{i}" for i in range(N)],
    "age": list(range(N)),
    "city": ["Rome", "Oslo", "Bern"] * 4,
    "label": ["yes", "no"] * 6,
    "part": ["train"] * 6 + ["val"] * 3 + ["test"] * 3,
}
links = {
    "source": [f"n{i}" for i in range(N)],
    "target": [f"n{(i + 1) % N}" for i in range(N)],
    "strength": [1.0] * N,
}
new_nodes = {**nodes, "id": [f"m{i}" for i in range(N)]}
new_links = {"source": ["m0", "m1"], "target": ["m1", "m2"], "strength": [1.0, 2.0]}


def data(**changes: Any) -> Data:
    """A PyG `Data` with some parts changed."""
    return Data(**{"x": x, "edge_index": edges, "y": y, **changes})


def masked(train: Any = some, val: Any = others, test: Any = rest) -> Data:
    return data(train_mask=train, val_mask=val, test_mask=test)


def npz(**changes: Any) -> Dataset:
    """The graph of an .npz file with some arrays changed; None leaves one out."""
    parts = {"x": x.numpy(), "edge_index": edges.numpy(), "y": y.numpy(), **changes}
    np.savez("graph.npz", **{name: part for name, part in parts.items() if part is not None})
    return datasets.from_npz("graph.npz")


def full(value: Any, dtype: torch.dtype = torch.float64, *shape: int) -> Tensor:
    return torch.full(shape or (N, 5), value, dtype=dtype)


def tables(people: Any = nodes, friends: Any = links, target: Any = "label", **how: Any) -> Dataset:
    """A graph of tables; text is that of a CSV file."""
    given = {"nodes.csv": people, "edges.csv": friends}
    for name, table in given.items():
        if (
            isinstance(table, str | bytes)
            and (b"\n" if isinstance(table, bytes) else "\n") in table
        ):
            text = table.encode() if isinstance(table, str) else table
            Path(name).write_bytes(text)
            given[name] = name
    return datasets.from_tables(*given.values(), target, **how)


def csv(table: dict[str, list[Any]]) -> str:
    """A table as the text of a CSV file."""
    rows = zip(*table.values(), strict=True)
    lines = [",".join(map(str, row)) for row in [table, *rows]]
    return "\n".join(lines) + "\n"


@cache
def dataset() -> Dataset:
    return datasets.from_tables(nodes, links, "label", weight="strength")


@cache
def config() -> Config:
    small = {"hops": 2, "heads": 2, "hidden_channels": 8, "runs": 1, "epochs": 2}
    return recipe(dataset(), graph="mine", **small)


graph = Graph(edges, N)
model, conv = STAGNN(5, 8, 2, hops=2, heads=2), STAConv(5, 6, hops=2, heads=2)
beside = STAConv(5, 6, hops=2, heads=2, global_attention=True)
explained = sta.explain(model, x, edges, 0)
