"""Graphs that are not in tables: networkx, PyG, and arrays in an .npz file.

All give what `from_tables` gives. Features that come as a matrix are taken as they are.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from torch_geometric.data import Data

from ... import _check
from ..features import compact, from_scipy, values_of
from ..splits import MASKS
from .build import describe, from_tables
from .columns import Matrix
from .read import TableError
from .schema import ColumnLine, TableNotes, TableSchema


def from_networkx(graph: Any, target: str | None = None, **options: Any) -> Data:
    """A graph of networkx: attributes of its nodes are columns; directions are kept if it has them.

    Args:
        graph: `networkx.Graph` or `DiGraph`.
        target: attribute that holds the label.
        options: as in `from_tables`: weight (an attribute of edges), features, split_column.
    """
    nodes, edges = list(graph.nodes(data=True)), list(graph.edges(data=True))
    people = _columns(nodes, {"id": [str(node) for node, _ in nodes]})
    ends = {"source": [str(edge[0]) for edge in edges], "target": [str(edge[1]) for edge in edges]}
    options = {"directed": graph.is_directed(), **options}
    return from_tables(
        people, _columns(edges, ends), target, id="id", source="source", dest="target", **options
    )


def from_pyg(data: Data) -> Data:
    """A PyG `Data` with x, edge_index and y, as it stands; its masks are kept if it has all three.

    Edges are taken as they are: `ToUndirected` is up to you. `ids` are those of the data, or the
    numbers of the nodes.
    """
    for name in ("x", "edge_index", "y"):
        if not isinstance(data.get(name), Tensor):
            raise TableError(f"the graph has no {name}: it needs x, edge_index and y")
    num_nodes = data.x.size(0)
    weight = data.get("edge_weight")
    masks = {name: data[name] for name in MASKS if isinstance(data.get(name), Tensor)}
    return _from_tensors(
        x=data.x,
        edge_index=data.edge_index,
        y=data.y.flatten() if data.y.shape == (num_nodes, 1) else data.y,
        weight=weight,
        masks=masks if len(masks) == len(MASKS) else {},
        ids=_names(data.get("ids"), num_nodes),
        classes=data.get("classes"),
        name="the graph",
        unused=[
            *(masks if len(masks) < len(MASKS) else ()),
            *(["edge_attr"] if "edge_attr" in data else []),
        ],
    )


def from_npz(path: str | Path) -> Data:
    """Arrays in an .npz file: x, edge_index and y, and if there are ids, edge_weight and masks.

    x [N, F] may also be sparse, in the parts x_data, x_indices, x_indptr and x_shape of a CSR
    matrix. Arrays of Python objects are refused, since opening them could run code.
    """
    path = Path(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise TableError(f"{path} does not exist") from None
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise TableError(f"{path} cannot be read as .npz: {error}") from None
    needed = ["edge_index", "y", *(["x_data"] if "x_data" in arrays else ["x"])]
    lacking = [name for name in needed if name not in arrays]
    if lacking:
        raise TableError(
            f"{path} has no array {', '.join(lacking)}; it needs x, edge_index and y, and has: "
            f"{', '.join(arrays)}"
        )
    num_nodes = len(arrays["y"])
    classes = arrays.get("classes")
    return _from_tensors(
        x=_features(arrays, path),
        edge_index=_whole(arrays, "edge_index", path),
        y=_whole(arrays, "y", path),
        weight=torch.from_numpy(arrays["edge_weight"]) if "edge_weight" in arrays else None,
        masks={m: torch.from_numpy(arrays[m]) for m in MASKS if m in arrays},
        ids=_names(arrays.get("ids"), num_nodes),
        classes=None if classes is None else [str(name) for name in classes],
        name=str(path),
    )


def _from_tensors(
    *,
    x: Tensor,
    edge_index: Tensor,
    y: Tensor,
    weight: Tensor | None,
    masks: dict[str, Tensor],
    ids: list[str],
    classes: list[str] | None,
    name: str,
    unused: Sequence[str] = (),
) -> Data:
    """Check the parts against each other, and put them together; `unused` is only told of."""
    num_nodes = x.size(0)
    _check.finite(f"x of {name}", values_of(x))
    if y.shape != (num_nodes,) or y.dtype.is_floating_point:
        raise TableError(f"{name}: y must be a whole number for each of {num_nodes} nodes")
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise TableError(f"{name}: edge_index must have shape [2, E]")
    if weight is not None:
        weight = weight.float().flatten()
        good = (weight >= 0) & (weight < math.inf)
        if weight.shape != edge_index.shape[1:] or not good.all():
            raise TableError(f"{name}: edge_weight must be a number of at least 0 for each edge")
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        raise TableError(f"{name}: edge_index names a node outside 0..{num_nodes - 1}")
    if len(ids) != num_nodes or len(set(ids)) != num_nodes:
        raise TableError(f"{name}: ids must be different, one for each of {num_nodes} nodes")
    y = y.long().clamp(min=-1)
    count = int(y.max()) + 1
    if count < 2:
        raise TableError(f"{name}: y holds {count} class{'es' * (not count)}: two are needed")
    classes = [str(i) for i in range(count)] if classes is None else list(map(str, classes))
    if len(classes) != count or len(set(classes)) != count:
        raise TableError(f"{name}: {len(classes)} names of classes for {count} classes in y")
    data = Data(x=compact(x), edge_index=edge_index.long(), y=y)
    if weight is not None:
        data.edge_weight = weight
    if masks and len(masks) < len(MASKS):
        raise TableError(f"{name}: {', '.join(masks)} alone is no split; it needs all of {MASKS}")
    for mask, values in masks.items():
        if values.shape != (num_nodes,) or values.dtype != torch.bool:
            raise TableError(f"{name}: {mask} must be true or false for each of the nodes")
        data[mask] = values & (y >= 0)
    recipe = TableSchema("id", None, None, True, (Matrix("x", x.size(1)),))
    known = int((y >= 0).sum())
    notes = [f"{name}: {num_nodes:,} nodes, {known:,} with a label, {count:,} classes"]
    notes.append(f"{edge_index.size(1):,} edges, as they are")
    if unused:
        notes.append(
            f"not used: {', '.join(unused)} (a split is all three masks; weights of edges "
            "are edge_weight)"
        )
    return describe(
        data, ids, classes, recipe, TableNotes([ColumnLine("x", "matrix", x.size(1), 0)], notes)
    )


def _names(ids: Any, num_nodes: int) -> list[str]:
    """Ids as texts; the numbers of the nodes if there are none."""
    if ids is None:
        ids = range(num_nodes)
    return [str(i) for i in (ids.tolist() if isinstance(ids, Tensor | np.ndarray) else ids)]


def _whole(arrays: dict[str, np.ndarray], name: str, path: Path) -> Tensor:
    if arrays[name].dtype.kind not in "iu":
        raise TableError(f"{path}: {name} must hold whole numbers, not {arrays[name].dtype}")
    return torch.from_numpy(arrays[name].astype(np.int64))


def _features(arrays: dict[str, np.ndarray], path: Path) -> Tensor:
    if "x_data" not in arrays:
        return torch.from_numpy(arrays["x"].astype(np.float32))
    try:
        parts = tuple(arrays[f"x_{part}"] for part in ("data", "indices", "indptr"))
        matrix = scipy.sparse.csr_matrix(parts, shape=tuple(arrays["x_shape"].tolist()))
        matrix.check_format(full_check=True)
    except (KeyError, ValueError) as error:
        raise TableError(
            f"{path}: x_data, x_indices, x_indptr, x_shape are no CSR: {error}"
        ) from None
    return from_scipy(matrix)


def _columns(items: list[Any], start: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The attributes of nodes or edges as columns; an attribute that one lacks is missing there."""
    names = dict.fromkeys(name for item in items for name in item[-1])
    for name in names:
        if str(name) in start:
            raise TableError(
                f"the attribute '{name}' has the name of a column that we make: rename"
            )
    return start | {str(name): [item[-1].get(name) for item in items] for name in names}
