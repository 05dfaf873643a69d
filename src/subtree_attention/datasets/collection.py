"""Many graphs as one `Dataset`: side by side, without an edge between them, a target for each.

>>> data = from_graphs(TUDataset(root, "MUTAG"))  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import _check
from . import targets
from .dataset import Dataset, class_names, texts
from .features import compact, float32
from .splits import own_codes
from .tables.columns import Matrix
from .tables.labels import PARTS
from .tables.schema import ColumnLine, TableNotes, TableSchema

UNKNOWN = -1
"""The class of a graph without one."""


def from_graphs(
    graphs: Iterable[Any],
    *,
    ids: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    split: Sequence[str] | None = None,
) -> Dataset:
    """Many graphs of PyG as one `Dataset`, whose target is that of each graph.

    Args:
        graphs: a list of `Data`, or a dataset of PyG (`TUDataset`, any `InMemoryDataset`). Each
            has x [n, F], edge_index, and y: the class of the graph as a whole number, or a floating
            number. Without y, or where it is negative or NaN, it is not known. Edges are taken as
            they are.
        ids: what the graphs are called; by default their numbers.
        classes: the names of the classes; by default their numbers.
        split: train, val, test or nothing for each graph; by default splits are random.
    """
    listed = _listed(graphs)
    for number, graph in enumerate(listed):
        _check_graph(number, graph, listed[0])
    sizes = torch.tensor([graph.x.size(0) for graph in listed])
    starts = sizes.cumsum(0) - sizes
    edges = [_check.whole("edge_index", graph.edge_index).long() for graph in listed]
    y = _target(listed)
    x = torch.cat([float32("x", graph.x.to_dense()) for graph in listed])
    weights = [graph.get("edge_weight") for graph in listed]
    numbers = y.is_floating_point()
    what = "number" if numbers else "label"
    known = int(targets.known(y).sum())
    words = [
        f"{len(listed):,} graphs of {len(x):,} nodes, {known:,} with a {what}",
        f"{sum(part.size(1) for part in edges):,} edges, as they are",
    ]
    if any("edge_attr" in graph for graph in listed):
        words.append("not used: edge_attr (weights of edges are edge_weight)")
    return Dataset(
        x=compact(x),
        edge_index=torch.cat([part + start for part, start in zip(edges, starts, strict=True)], 1),
        y=y,
        edge_weight=None if weights[0] is None else float32("edge_weight", torch.cat(weights)),
        classes=() if numbers else class_names(classes, y),
        splits={} if split is None else {"own": codes_of(split, y)},
        schema=TableSchema("id", None, None, True, (Matrix("x", x.size(1)),)),
        notes=TableNotes([ColumnLine("x", "matrix", x.size(1), 0)], words),
        source="the graphs",
        batch=torch.repeat_interleave(torch.arange(len(listed)), sizes),
        graph_ids=None if ids is None else texts("ids", ids),
    )


def codes_of(split: Sequence[str | None], y: Tensor) -> Tensor:
    """A word for each graph, train, val, test or nothing, as codes [G, 1] of a split."""
    if len(split) != len(y):
        raise ValueError(f"split must be a word for each of {len(y)} graphs, got {len(split)}")
    named = {word: part for part, words in PARTS.items() for word in words}
    parts = np.array([named[_check.known("part", w.lower(), named)] if w else "" for w in split])
    masks = [torch.from_numpy(parts == part) & targets.known(y) for part in PARTS]
    for part, mask in zip(PARTS, masks, strict=True):
        if not mask.any():
            raise ValueError(f"split has no graph with a label for '{part}': each part needs some")
    return own_codes(*masks)


def _listed(graphs: Any) -> list[Any]:
    """The graphs one by one."""
    try:
        listed = list(graphs)
    except TypeError:
        raise TypeError(
            f"graphs must be a list of PyG Data or a dataset of PyG, got {_check.said(graphs)}"
        ) from None
    if not listed:
        raise ValueError("there is no graph in the list")
    return listed


def _check_graph(number: int, graph: Any, first: Any) -> None:
    """Refuse what cannot lie beside the others."""
    if not hasattr(graph, "edge_index") or not hasattr(graph, "get"):
        raise TypeError(f"graph {number}: must be a PyG Data, got {type(graph).__name__}")
    if not isinstance(graph.get("x"), Tensor):
        raise ValueError(
            f"graph {number} has no x: features can be made of degrees or be constant "
            "(torch_geometric.transforms.OneHotDegree, Constant)"
        )
    for name in ("x", "edge_index"):
        if not isinstance(graph.get(name), Tensor) or graph[name].dim() != 2:
            raise ValueError(f"graph {number}: {name} must be a tensor of two dimensions")
    if not graph.x.size(0):
        raise ValueError(f"graph {number} has no nodes: leave it out")
    if graph.x.size(1) != first.x.size(1):
        raise ValueError(
            f"graph {number} has {graph.x.size(1)} features, but graph 0 has {first.x.size(1)}"
        )
    edges = graph.edge_index
    inside = not edges.numel() or (edges.min() >= 0 and edges.max() < graph.x.size(0))
    if edges.size(0) != 2 or not inside:
        raise ValueError(
            f"graph {number}: edge_index must be [2, E] within its {graph.x.size(0)} nodes"
        )
    if (graph.get("edge_weight") is None) != (first.get("edge_weight") is None):
        raise ValueError(f"graph {number}: either all graphs have an edge_weight, or none")


def _target(graphs: list[Any]) -> Tensor:
    """The class of each graph, [G] with -1 where it is not known, or its number, with NaN."""
    given = [None if graph.get("y") is None else torch.as_tensor(graph.y) for graph in graphs]
    for number, y in enumerate(given):
        if y is not None and (y.numel() != 1 or y.is_complex()):
            raise ValueError(
                f"graph {number}: y must be one number, the class or the number of the graph, got "
                f"{y.dtype} {_check.shape(y)}"
            )
    if any(y is not None and y.is_floating_point() for y in given):
        return torch.tensor([torch.nan if y is None else float(y) for y in given])
    return torch.tensor([UNKNOWN if y is None else max(int(y), UNKNOWN) for y in given])
