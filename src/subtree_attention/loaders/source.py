"""Where batches come from: a PyG `Data`, a `Dataset`, or PyG's feature store and graph store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .. import _check
from ..compressed import csr_rows
from ..datasets import Dataset, Split
from ..datasets.features import append_columns, rows_of
from ..datasets.splits import MASKS
from ..ops.sampling import InEdges

if TYPE_CHECKING:
    from torch_geometric.data import Data


class Source(ABC):
    """A graph of which batches take some nodes and some edges."""

    num_nodes: int

    @abstractmethod
    def in_edges(self, transition: str | None, self_loops: bool) -> InEdges:
        """Its edges, as a sampler reads them."""

    @abstractmethod
    def fields(self, n_id: Tensor, e_id: Tensor) -> dict[str, Any]:
        """What is known of some nodes [n] and edges [e], by name."""

    @staticmethod
    def of(data: Any) -> Source:
        """That of whatever a user has."""
        if isinstance(data, Dataset):
            return _OfDataset(data)
        if isinstance(data, tuple) and len(data) == 2:
            return _OfStores(*data)
        if hasattr(data, "is_node_attr") and hasattr(data, "edge_index"):
            return _OfData(data)
        raise TypeError(
            "data must be a Dataset, a PyG Data, or a pair of a FeatureStore and a GraphStore, "
            f"got {_check.said(data)}; graphs of several types are not sampled"
        )


class _OfData(Source):
    """A PyG `Data`: what is of nodes or of edges is sliced, all else is passed on."""

    def __init__(self, data: Data) -> None:
        if data.edge_index is None:
            instead = ", not adj_t" if getattr(data, "adj_t", None) is not None else ""
            raise ValueError(f"the graph has no edges: it needs edge_index{instead}")
        if data.num_nodes is None:
            raise ValueError("the graph must say how many nodes it has: data.num_nodes = N")
        self.data, self.num_nodes = data, int(data.num_nodes)

    def in_edges(self, transition: str | None, self_loops: bool) -> InEdges:
        weight = self.data.edge_weight if "edge_weight" in self.data else None
        weight = None if weight is None else weight.float()
        edges = self.data.edge_index.cpu()
        return InEdges.from_edges(edges, self.num_nodes, weight, transition, self_loops)

    def fields(self, n_id: Tensor, e_id: Tensor) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in self.data.keys():  # noqa: SIM118 (a Data is no dictionary)
            value = self.data[name]
            if name in ("edge_index", "adj_t", "num_nodes"):
                continue
            if self.data.is_node_attr(name):
                found[name] = _sliced(value, n_id, self._axis(name, value))
            elif self.data.is_edge_attr(name):
                fill = 1 if name == "edge_weight" else 0
                found[name] = _of_edges(value, e_id, self._axis(name, value), fill)
            else:
                found[name] = value
        return found

    def _axis(self, name: str, value: Any) -> int:
        axis = self.data.__cat_dim__(name, value)
        return axis if isinstance(axis, int) else 0


class _OfDataset(Source):
    """A `Dataset`, in memory or in a store."""

    def __init__(self, data: Dataset) -> None:
        if data.batch is not None:
            raise ValueError("many small graphs need no sample: batches are of whole ones")
        self.data, self.num_nodes = data, data.num_nodes
        own = data.splits.get("own")
        masks = Split.from_codes(own[:, 0]) if own is not None and own.size(1) == 1 else ()
        self.masks = dict(zip(MASKS, masks, strict=False))

    def in_edges(self, transition: str | None, self_loops: bool) -> InEdges:
        data = self.data
        if (rows := getattr(data, "compressed_rows", None)) is not None:
            rowptr, col, weight = rows
            return InEdges.from_csr(rowptr, col, weight, transition, self_loops, trusted=True)
        given = data.edge_index, data.num_nodes, data.edge_weight
        return InEdges.from_edges(*given, transition, self_loops)

    def fields(self, n_id: Tensor, e_id: Tensor) -> dict[str, Any]:
        data = self.data
        x = rows_of(data.x, n_id)
        if data.encoding is not None:
            x = append_columns(x, rows_of(data.encoding, n_id))
        found = {"x": x, "y": rows_of(data.y, n_id)}
        found |= {name: rows_of(mask, n_id) for name, mask in self.masks.items()}
        if data.edge_weight is not None:
            found["edge_weight"] = _of_edges(data.edge_weight, e_id, 0, 1)
        return found


class _OfStores(Source):
    """PyG's stores of a graph of one type: they are asked for the rows of a batch."""

    def __init__(self, features: Any, graph: Any) -> None:
        for store, asked in ((features, "get_tensor"), (graph, "get_edge_index")):
            if not hasattr(store, asked):
                raise TypeError(
                    "a pair must be a FeatureStore and a GraphStore of PyG, in this order, "
                    f"got {_check.said(store)}, which has no {asked}"
                )
        self.features = features
        self.names = [
            attr.attr_name for attr in features.get_all_tensor_attrs() if attr.group_name is None
        ]
        self.layout, self.ends = _edges_of(graph)
        self.num_nodes = self._count(graph)

    def _count(self, graph: Any) -> int:
        for attr in graph.get_all_edge_attrs():
            if attr.size is not None and None not in attr.size:
                return int(max(attr.size))
        for name in self.names:
            size = self.features.get_tensor_size(group_name=None, attr_name=name)
            if size is not None:
                return int(size[0])
        if self.layout == "csc":
            return self.ends[1].numel() - 1
        raise ValueError("the stores must say how many nodes there are: give EdgeAttr a size")

    def in_edges(self, transition: str | None, self_loops: bool) -> InEdges:
        first, second = self.ends
        if self.layout == "csc" and _ascending(second, first):
            return InEdges.from_csr(second, first, None, transition, self_loops)
        source, target = first, second
        if self.layout == "csc":
            target = csr_rows(second, first.numel())
        elif self.layout == "csr":
            source = csr_rows(first, second.numel())
        edges = torch.stack([source.long(), target.long()])
        return InEdges.from_edges(edges, self.num_nodes, None, transition, self_loops)

    def fields(self, n_id: Tensor, e_id: Tensor) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in self.names:
            value = self.features.get_tensor(group_name=None, attr_name=name, index=n_id)
            found[name] = torch.as_tensor(value)
        return found


def _edges_of(graph: Any) -> tuple[str, tuple[Tensor, Tensor]]:
    """The layout of a graph store's edges and its two tensors; by receivers, if it has that."""
    attrs = {attr.layout.value: attr for attr in graph.get_all_edge_attrs()}
    for layout in ("csc", "coo", "csr"):
        if layout in attrs:
            ends = graph.get_edge_index(attrs[layout])
            first, second = (torch.as_tensor(end) for end in ends)
            return layout, (first, second)
    raise ValueError("the GraphStore has no edges of a graph of one type")


def _ascending(starts: Tensor, senders: Tensor) -> bool:
    """Whether the senders of each node ascend."""
    falls = (senders.diff() < 0).nonzero().flatten() + 1
    return bool(torch.isin(falls, starts).all())


def _sliced(value: Any, index: Tensor, axis: int) -> Any:
    """Some of the rows of a tensor, an array or a list."""
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            return rows_of(value, index)
        return value.index_select(axis, index.to(value.device))
    if isinstance(value, list | tuple):
        return [value[i] for i in index.tolist()]
    return value.take(index.numpy(), axis)


def _of_edges(value: Any, e_id: Tensor, axis: int, fill: float) -> Any:
    """The same of edges; a loop that was added, which none of them is, has `fill` everywhere."""
    count = value.size(axis) if isinstance(value, Tensor) else len(value)
    added = e_id >= count
    if not bool(added.any()):
        return _sliced(value, e_id, axis)
    if not isinstance(value, Tensor):
        raise TypeError("with self_loops, what is known of edges must be tensors")
    taken = _sliced(value, e_id.where(~added, 0), axis) if count else value.new_empty(0)
    shape = [-1 if each == axis % value.dim() else 1 for each in range(value.dim())]
    return taken.masked_fill(added.view(shape).to(value.device), fill)
