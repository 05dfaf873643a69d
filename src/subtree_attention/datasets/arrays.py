"""Graphs that come as tensors or arrays: a PyG `Data`, or an .npz file.

Features that come as a matrix are taken as they are.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from .. import _check
from . import targets
from .dataset import Dataset, class_names, texts
from .features import compact, float32, from_scipy
from .splits import MASKS, own_codes
from .tables.columns import Matrix
from .tables.schema import ColumnLine, TableNotes, TableSchema

if TYPE_CHECKING:
    from torch_geometric.data import Data

OPTIONAL = ("edge_weight", "ids", "classes")
"""What a graph may have besides x, edge_index, y and masks."""


def as_dataset(data: Dataset | Data) -> Dataset:
    """A `Dataset` as it is, and a PyG `Data` by `from_pyg`."""
    return data if isinstance(data, Dataset) else from_pyg(data)


def from_pyg(data: Data) -> Dataset:
    """A PyG `Data` with x, edge_index and y, as it stands; its masks are kept if it has all three.

    y are classes [N] if it holds whole numbers, a number of each node [N] if it is floating, and
    labels [N, C] if it has columns of 0 and 1. What is -1, or NaN, is not known. Links need no y.

    Edges are taken as they are: `ToUndirected` is up to you. `ids` and `classes` are those of the
    data, or the numbers of the nodes and classes.
    """
    if not hasattr(data, "edge_index") or not hasattr(data, "get"):
        raise TypeError(f"a graph is a Dataset or a PyG Data, got {type(data).__name__}")
    for name in ("x", "edge_index", "y"):
        if not isinstance(data.get(name), Tensor) and (name != "y" or data.get("y") is not None):
            raise ValueError(f"the graph has no {name}: it needs x, edge_index and y")
    parts = {name: data.get(name) for name in ("x", "edge_index", "y", *OPTIONAL)}
    if parts["y"] is not None and data.y.dim() == 2 and data.y.size(1) == 1:
        parts["y"] = data.y.flatten()
    masks = [name for name in MASKS if data.get(name) is not None]
    if len(masks) == len(MASKS):
        parts |= {name: data[name] for name in masks}
        masks = []
    unused = masks + ["edge_attr"] * ("edge_attr" in data)
    return _from_tensors("the graph", parts, unused)


def from_npz(path: str | Path) -> Dataset:
    """Arrays in an .npz file: x, edge_index and y, and if there are ids, edge_weight and masks.

    x [N, F] may also be sparse, in the parts x_data, x_indices, x_indptr and x_shape of a CSR
    matrix. Arrays of Python objects are refused, since opening them could run code.
    """
    path = _check.path("path", path)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except MemoryError:
        raise MemoryError(f"{path}: an array in it does not fit into memory") from None
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as .npz: {error}") from None
    x = "x_data" if "x_data" in arrays else "x"
    lacking = [name for name in ("edge_index", "y", x) if name not in arrays]
    if lacking:
        raise ValueError(
            f"{path} has no array {', '.join(lacking)}; it needs x, edge_index and y, and has: "
            f"{', '.join(arrays)}"
        )
    parts = {name: arrays.get(name) for name in OPTIONAL} | {"x": _features(arrays, path)}
    no_classes = arrays["y"].ndim == 2 or arrays["y"].dtype.kind == "f"
    parts["y"] = _tensor("y", arrays["y"], path) if no_classes else None
    for name in ("edge_index",) if no_classes else ("edge_index", "y"):
        if arrays[name].dtype.kind not in "iu":
            raise ValueError(f"{path}: {name} must hold whole numbers, not {arrays[name].dtype}")
        whole = arrays[name].astype(np.int64)
        if not np.array_equal(whole, arrays[name]):
            raise ValueError(f"{path}: {name} holds numbers that int64 does not reach")
        parts[name] = torch.from_numpy(whole)
    for name in ("edge_weight", *MASKS):
        if name in arrays:
            parts[name] = _tensor(name, arrays[name], path)
    return _from_tensors(str(path), parts)


def _from_tensors(source: str, parts: dict[str, Any], unused: Sequence[str] = ()) -> Dataset:
    """Put the parts together, by their names, which checks them; `unused` is only told of."""
    try:
        return _checked(source, parts, unused)._with(source=source)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{source}: {error}") from None


def _checked(source: str, parts: dict[str, Any], unused: Sequence[str]) -> Dataset:
    x, y, weight, ids = parts["x"], parts["y"], parts["edge_weight"], parts["ids"]
    if x.device.type == "meta":
        raise ValueError("x is on the device meta, which holds no values")
    if x.dim() != 2:
        raise ValueError(f"x must be [N, F], got {_check.shape(x)}")
    num_nodes = x.size(0)
    y, classes = _target(y, parts["classes"], num_nodes)
    known, edges = int(targets.known(y).sum()), _check.whole("edge_index", parts["edge_index"])
    if edges.dim() != 2:
        raise ValueError(f"edge_index must be [2, E], got {_check.shape(edges)}")
    if weight is not None:
        weight = float32("edge_weight", _check.plain("edge_weight", weight).flatten())
    many = {"class": f"a label, {len(classes):,} classes", "labels": f"{len(classes):,} labels"}
    told = many.get(targets.kind_of(y), "a number")
    words = [
        f"{source}: {num_nodes:,} nodes, {known:,} with {told}",
        f"{edges.size(-1):,} edges, as they are",
    ]
    if unused:
        why = "a split is all three masks; weights of edges are edge_weight"
        words.append(f"not used: {', '.join(unused)} ({why})")
    masks = {name: parts[name] for name in MASKS if name in parts}
    splits = {"own": _codes(masks, y)} if masks else {}
    shared = sum(int(((codes & (codes - 1)) > 0).sum()) for codes in splits.values())
    if shared:  # more than one bit of a code is set
        words.append(f"{shared:,} nodes are in several parts of the split: scores are not honest")
    return Dataset(
        x=compact(x),
        edge_index=edges.long(),
        y=y,
        edge_weight=weight,
        classes=classes,
        ids=None if ids is None else texts("ids", ids),
        splits=splits,
        schema=TableSchema("id", None, None, True, (Matrix("x", x.size(1)),)),
        notes=TableNotes([ColumnLine("x", "matrix", x.size(1), 0)], words),
    )


def _target(y: Tensor | None, names: Any, num_nodes: int) -> tuple[Tensor, tuple[str, ...]]:
    """Whole numbers are classes, floating ones numbers, and columns of 0 and 1 are labels."""
    if y is None:
        return torch.full((num_nodes,), -1), ()
    if y.is_complex() or y.shape[:1] != (num_nodes,) or y.dim() > 2:
        raise ValueError(f"y must be a whole number for each of {num_nodes} nodes")
    if y.dim() == 2:
        y = y.float()
        y = torch.where(y == -1, torch.nan, y)
        return y, class_names(names, y)
    if y.is_floating_point():
        return y.double(), ()
    y = y.long().clamp(min=-1)
    classes, count = class_names(names, y), int(y.max()) + 1 if num_nodes else 0
    if len(classes) != count:
        raise ValueError(f"{len(classes)} names of classes for {count} classes in y")
    if count < 2:
        raise ValueError(f"y holds {count} class{'es' * (not count)}: two are needed")
    return y, classes


def _codes(masks: dict[str, Tensor], y: Tensor) -> Tensor:
    """A split by three masks, of nodes with a label."""
    if len(masks) < len(MASKS):
        raise ValueError(f"{', '.join(masks)} alone is no split; it needs all of {MASKS}")
    for name, mask in masks.items():
        if _check.plain(name, mask).shape != y.shape[:1] or mask.dtype != torch.bool:
            raise ValueError(f"{name} must be true or false for each of the nodes")
    return own_codes(*(masks[name] & targets.known(y) for name in MASKS))


def _tensor(name: str, array: np.ndarray, path: Path) -> Tensor:
    """An array of numbers, or of true and false, as it is."""
    if array.dtype.kind not in "biufc":
        raise ValueError(f"{path}: {name} must hold numbers, not {array.dtype}")
    try:
        return torch.from_numpy(array)
    except TypeError:  # a type that torch does not have, such as float128
        raise ValueError(f"{path}: {name} must hold numbers, not {array.dtype}") from None


def _features(arrays: dict[str, np.ndarray], path: Path) -> Tensor:
    if "x_data" not in arrays:
        return _tensor("x", arrays["x"], path)
    try:
        parts = tuple(arrays[f"x_{part}"] for part in ("data", "indices", "indptr"))
        matrix = scipy.sparse.csr_matrix(parts, shape=tuple(arrays["x_shape"].tolist()))
        matrix.check_format(full_check=True)
        return from_scipy(matrix)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{path}: x_data, x_indices, x_indptr, x_shape are no CSR: {error}"
        ) from None
