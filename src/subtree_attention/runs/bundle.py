"""The graph of a run on the user's own data, kept with the run: no original file is needed again.

    OUT/graph.safetensors   features, edges, weights, labels, and masks if there are any
    OUT/ids.json            the ids of the nodes
    OUT/columns.json        the classes, how columns became features, and what was done

Whoever wrote such a folder, reading it runs nothing of theirs, and every index is checked.
"""

from __future__ import annotations

import zlib
from copy import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from .. import _check
from ..datasets.features import from_named_parts, named_parts, values_of
from ..datasets.splits import MASKS
from ..datasets.tables.build import describe
from ..datasets.tables.schema import TableNotes, TableSchema
from ..graph import index_dtype
from . import folder as store
from .folder import RunFolderError

GRAPH, IDS, COLUMNS = "graph.safetensors", "ids.json", "columns.json"
NAMES = ("ids", "recipe", "report")


def is_own(data: Data) -> bool:
    """Whether this is what `from_tables` and its siblings give: a graph that knows its columns."""
    return "recipe" in data


def without_names(data: Data) -> Data:
    """A shallow copy with what training needs: a million ids are not to be moved to a device."""
    data = copy(data)
    for name in NAMES:
        if name in data:
            del data[name]
    return data


def save(folder: Path, data: Data) -> None:
    """Write what `read` reads; the graph last, so that it stands for all."""
    store.write_json(folder / IDS, data.ids)
    recipe, report = data.recipe.to_dict(), data.report.to_dict()
    store.write_json(
        folder / COLUMNS, {"classes": data.classes, "recipe": recipe, "report": report}
    )
    store.write_tensors(folder / GRAPH, tensors(data), {"num_features": data.x.size(1)})


def read(folder: Path) -> Data:
    """The graph as `from_tables` gave it; anything that does not fit is a `RunFolderError`."""
    if not (folder / GRAPH).exists():
        raise RunFolderError(f"{folder / GRAPH} is missing: the graph of this run is not there")
    stored, header = store.read_tensors(folder / GRAPH)
    ids, about = store.read_json(folder / IDS), store.read_json(folder / COLUMNS)
    try:
        ids, classes = _words(ids, IDS), _words(about["classes"], "classes")
        recipe = TableSchema.from_dict(about["recipe"])
        report = TableNotes.from_dict(about["report"])
        data = _checked(stored, header["num_features"], len(ids), len(classes))
        if data.x.size(1) != recipe.width:
            raise ValueError(f"{data.x.size(1)} features, but columns for {recipe.width}")
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise RunFolderError(f"the graph in {folder} is broken: {_said(error)}") from None
    return describe(data, ids, classes, recipe, report)


def check_same(folder: Path, data: Data) -> None:
    """Refuse to go on with a run on another graph than that it was started on."""
    stored = read(folder)
    ours, theirs = tensors(stored), tensors(data)
    same = ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)
    if not same or (stored.ids, stored.classes) != (data.ids, data.classes):
        raise RunFolderError(f"{folder} was started on another graph: choose another folder")


def fingerprint(data: Data) -> str:
    """A short text that another graph does not have."""
    crc = 0
    for name, tensor in tensors(data).items():
        crc = zlib.crc32(f"{name} {list(tensor.shape)}".encode(), crc)
        crc = zlib.crc32(tensor.contiguous().numpy().tobytes(), crc)
    return f"{crc:08x}"


def tensors(data: Data) -> dict[str, Tensor]:
    """All of a graph that numbers depend on, by name, as it is stored."""
    dtype = index_dtype(data.num_nodes)  # half the size on disk
    found = {"edge_index": data.edge_index.to(dtype), "y": data.y, **named_parts(data.x)}
    return found | {name: data[name] for name in ("edge_weight", *MASKS) if name in data}


def _checked(stored: dict[str, Tensor], width: Any, num_nodes: int, num_classes: int) -> Data:
    """What was stored as a graph; a `ValueError` for what could lead out of an array."""
    _check.integer("num_features", width, 0)
    x = from_named_parts(stored, (num_nodes, width), trusted=False)
    edge_index, y = stored["edge_index"].long(), stored["y"].long()
    if tuple(x.shape) != (num_nodes, width) or x.dtype != torch.float32:
        raise ValueError(f"x is not float32 [{num_nodes}, {width}]")
    _check.finite("x", values_of(x))
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or not _within(edge_index, 0, num_nodes):
        raise ValueError("edge_index does not fit the nodes")
    if y.shape != (num_nodes,) or not _within(y, -1, num_classes):
        raise ValueError("y does not fit the nodes and the classes")
    data = Data(x=x, edge_index=edge_index, y=y)
    if "edge_weight" in stored:
        weight = stored["edge_weight"].float()
        if weight.shape != edge_index.shape[1:] or not bool((weight >= 0).all()):
            raise ValueError("edge_weight is not a number of at least 0 for each edge")
        data.edge_weight = weight
    for name in MASKS:
        if name in stored:
            mask = stored[name]
            if mask.shape != (num_nodes,) or mask.dtype != torch.bool or bool((y[mask] < 0).any()):
                raise ValueError(f"{name} does not fit the labelled nodes")
            data[name] = mask
    return data


def _within(values: Tensor, low: int, end: int) -> bool:
    return not values.numel() or (int(values.min()) >= low and int(values.max()) < end)


def _words(values: Any, what: str) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{what} is no list of texts")
    if len(set(values)) != len(values):
        raise ValueError(f"{what} holds a text twice")
    return values


def _said(error: Exception) -> str:
    """The first line of an error; that of a `KeyError` is the name that is missing."""
    text = (str(error) or type(error).__name__).splitlines()[0]
    return f"{text} is missing" if isinstance(error, KeyError) else text
