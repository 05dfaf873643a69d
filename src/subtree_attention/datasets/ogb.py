"""Graphs of the Open Graph Benchmark, by OGB's own package: its files, its splits, its evaluators.

>>> data = from_ogb("ogbn-arxiv")  # doctest: +SKIP
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from .. import _check
from .arrays import from_pyg
from .collection import from_graphs
from .dataset import Dataset
from .folders import Folder, MissingData, data_folder
from .splits import MASKS

KINDS = {"ogbn": "nodeproppred", "ogbg": "graphproppred"}
"""What a name begins with -> the module of OGB that has it."""
PARTS = ("train", "valid", "test")
"""What OGB calls the parts of a split."""
METRICS = {"acc": "accuracy", "rocauc": "roc_auc", "rmse": "rmse"}
"""What OGB's evaluators compute -> what a task calls it."""


def from_ogb(
    name: str, root: Folder | None = None, meta_dict: Mapping[str, Any] | None = None
) -> Dataset:
    """A graph of OGB, or many, with OGB's split; read, and downloaded if need be, by its package.

    Edges go in both directions. Whole numbers as features, as those of atoms, become a column for
    each value. Nodes without features get the means of those of their edges, else a constant.
    Features of edges are not used otherwise.

    Args:
        name: "ogbn-..." for nodes, "ogbg-..." for graphs with one target each.
        root: where OGB keeps its files, a folder for each graph; by default `ogb` in the data
            folder, see `data_folder`.
        meta_dict: what OGB asks for of a graph that is in its layout but not in its list.

    Raises:
        ValueError: OGB has no such graph, or it is one that cannot be learnt here.
        MissingData: its files are not there, and could not be downloaded.
    """
    module, name = _module(name), name.lower()
    if meta_dict is None:
        _check.known("graph of OGB", name, _master(module))
    folder = data_folder(None) / "ogb" if root is None else _check.path("root", root)
    with _quiet(), _trusted():
        found = _read(module, name, folder, meta_dict)
        split = found.get_idx_split()
        graphs = [found[number] for number in range(len(found))]
    as_dataset = _of_nodes if name.startswith("ogbn") else _of_graphs
    return as_dataset(found, graphs, split)._with(name=name, source=f"{name} of OGB")


def ogb_metric(name: str) -> str:
    """What models for a graph of OGB are compared by, in the words of a task."""
    found = _master(_module(name))
    return METRICS[found[_check.known("graph of OGB", name.lower(), found)]["eval metric"]]


def ogb_scores(name: str, target: np.ndarray, outputs: np.ndarray) -> dict[str, float]:
    """What OGB's own evaluator says of some units.

    Args:
        name: of the graph.
        target: [U] or [U, labels], as a `Dataset` has it.
        outputs: logits [U, C], or numbers [U].
    """
    evaluator = _imported(f"ogb.{KINDS[name[:4]]}").Evaluator(name)
    truth = np.asarray(target, dtype=np.float64)
    scores = np.asarray(outputs, dtype=np.float64)
    if truth.ndim == 1 and scores.ndim == 2:  # classes: the most probable, or the odds of two
        two = evaluator.eval_metric == "rocauc"
        scores = scores[:, 1] - scores[:, 0] if two else scores.argmax(1).astype(np.float64)
    truth, scores = (a if a.ndim == 2 else a[:, None] for a in (truth, scores))
    return {n: float(v) for n, v in evaluator.eval({"y_true": truth, "y_pred": scores}).items()}


# ------------------------------------------------------------------------------------ OGB's package


def _module(name: str) -> ModuleType:
    """The part of OGB that has graphs of such a name."""
    _check.kind("the name of a graph", name, str, "a text")
    kind = name.lower().partition("-")[0]
    if kind == "ogbl":
        raise ValueError(
            f"'{name}' brings pairs of its own to be ranked, which --task link does not take: it "
            "splits the links of a graph itself. Read the graph with OGB, then from_pyg(data)"
        )
    if kind not in KINDS:
        raise ValueError(f"a graph of OGB is called ogbn-... or ogbg-..., got '{name}'")
    return _imported(f"ogb.{KINDS[kind]}")


def _imported(name: str) -> ModuleType:
    """A module of OGB; at its import OGB would ask a server for its newest version."""
    asks = "outdated"
    before = sys.modules.get(asks)
    sys.modules[asks] = None  # type: ignore[assignment]  # not to be imported
    try:
        with _quiet():
            return import_module(name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "ogb":
            raise
        raise ModuleNotFoundError(
            'graphs of OGB need its package: pip install "subtree-attention[ogb]"', name="ogb"
        ) from None
    finally:
        del sys.modules[asks]
        if before is not None:
            sys.modules[asks] = before


def _master(module: ModuleType) -> dict[str, dict[str, str]]:
    """What OGB lists of its graphs."""
    import pandas

    table = Path(str(module.__file__)).with_name("master.csv")
    return dict(pandas.read_csv(table, index_col=0, keep_default_na=False).to_dict())


def _read(module: ModuleType, name: str, folder: Path, meta: Mapping[str, Any] | None) -> Any:
    """OGB's dataset in PyG's form."""
    kind = "PygNodePropPredDataset" if name.startswith("ogbn") else "PygGraphPropPredDataset"
    folder.mkdir(parents=True, exist_ok=True)
    there = folder / name.replace("-", "_")
    try:
        return getattr(module, kind)(name, root=str(folder), meta_dict=meta)
    except (OSError, EOFError, RuntimeError, SystemExit) as error:
        if isinstance(error, RuntimeError) and _check.out_of_memory(error):
            raise
        with contextlib.suppress(OSError):
            there.rmdir()  # empty, from an attempt to download: OGB would take it for an old one
        why = str(error) or "it was not confirmed"
        raise MissingData(
            f"the files of '{name}' could not be had ({why}). Unpack OGB's archive of it into "
            f"{there}, so that {there / 'raw'} is there"
        ) from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What OGB prints goes where progress goes; what it asks too. Its last release is of 2023, and
    libraries warn of how it uses them."""
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings(action="ignore"):
        yield


def _trusted() -> contextlib.AbstractContextManager[None]:
    """Lets torch read what OGB has written: objects of PyG and arrays, and no code besides."""
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    multiarray = import_module("numpy._core.multiarray")
    numbers = [type(np.dtype(kind)) for kind in (np.int64, np.float32, np.float64)]
    arrays = [multiarray._reconstruct, multiarray.scalar, np.ndarray, np.dtype, *numbers]
    return torch.serialization.safe_globals([DataEdgeAttr, DataTensorAttr, GlobalStorage, *arrays])


# ------------------------------------------------------------------------------------ as a Dataset


def _of_nodes(found: Any, graphs: list[Any], split: dict[str, Any]) -> Dataset:
    """One graph with targets of its nodes."""
    from torch_geometric.data import Data
    from torch_geometric.utils import to_undirected

    if found.is_hetero:
        raise ValueError(f"'{found.name}' has nodes of several kinds: here they are of one kind")
    (graph,), (x,) = graphs, _features(graphs)
    nobody = torch.zeros(len(x), dtype=torch.bool)
    masks = {
        mask: nobody.index_fill(0, torch.as_tensor(split[part]).long(), True)
        for mask, part in zip(MASKS, PARTS, strict=True)
    }
    edges = to_undirected(graph.edge_index, num_nodes=len(x))
    return from_pyg(Data(x=x, edge_index=edges, y=_target(found, graph.y), **masks))


def _of_graphs(found: Any, graphs: list[Any], split: dict[str, Any]) -> Dataset:
    """Many graphs with a target each."""
    from torch_geometric.data import Data

    if found.num_tasks > 1 or found.task_type == "subtoken prediction":
        raise ValueError(
            f"'{found.name}' has {found.num_tasks:,} targets of the kind '{found.task_type}' for a "
            "graph: graphs have one class or number here"
        )
    listed = [
        Data(x=x, edge_index=graph.edge_index, y=_target(found, graph.y).flatten())
        for graph, x in zip(graphs, _features(graphs), strict=True)
    ]
    words = np.full(len(graphs), "", dtype=object)
    for part in PARTS:
        words[np.asarray(split[part])] = part
    return from_graphs(listed, split=words.tolist())


def _target(found: Any, y: Tensor) -> Tensor:
    """Classes as whole numbers, -1 where OGB has NaN; numbers and labels as they are."""
    if "classification" not in found.task_type or found.num_tasks > 1 or not y.is_floating_point():
        return y
    return torch.where(y.isnan(), -1.0, y).long()


def _features(graphs: list[Any]) -> list[Tensor]:
    """[n, F] of each graph: as it has them, or by its edges, or constant."""
    first = graphs[0]
    if first.x is not None and first.x.is_floating_point():
        return [graph.x.float() for graph in graphs]
    if first.x is not None:
        sizes = (torch.stack([graph.x.amax(0) for graph in graphs]).amax(0) + 1).tolist()
        return [_one_hot(graph.x, sizes) for graph in graphs]
    if first.edge_attr is not None:
        return [_of_edges(graph) for graph in graphs]
    return [torch.ones(graph.num_nodes, 1) for graph in graphs]


def _one_hot(x: Tensor, sizes: list[int]) -> Tensor:
    """Whole numbers [n, c] below `sizes` as a column for each value: [n, sum of sizes]."""
    columns = [one_hot(column, size) for column, size in zip(x.t(), sizes, strict=True)]
    return torch.cat(columns, 1).float()


def _of_edges(graph: Any) -> Tensor:
    """The means of the features of the edges that end at each node: [n, F]."""
    from torch_geometric.utils import scatter

    return scatter(graph.edge_attr.float(), graph.edge_index[1], 0, graph.num_nodes, reduce="mean")
