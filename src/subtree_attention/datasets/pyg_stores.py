"""A store on disk by PyG's interfaces: the pair that its loaders take for what lies elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch_geometric.data as pyg
from torch import Tensor
from torch_geometric.data.graph_store import EdgeLayout

from ..compressed import csr_rows
from .features import is_csr, to_scipy
from .splits import BITS, MASKS

if TYPE_CHECKING:
    from .store import Store


class FeatureStore(pyg.FeatureStore):
    """x, y and the masks of the graph's own split, by node, from the files of a store.

    As in PyG's `Data`, the group of a graph with one kind of nodes is None. An index is a slice, a
    tensor or an array of node numbers; None is the whole, mapped and not copied.
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.__dict__["_kept"] = store

    def _tensor(self, attr: pyg.TensorAttr) -> Tensor | None:
        """The whole tensor that an attribute names; None if there is none."""
        data = self._kept.dataset
        if attr.group_name is not None:
            return None
        if attr.attr_name in MASKS:
            codes = data.splits.get("own")
            return None if codes is None else codes[:, 0]
        return {"x": data.x, "y": data.y}.get(attr.attr_name)

    def _get_tensor(self, attr: pyg.TensorAttr) -> Tensor | None:
        tensor, index = self._tensor(attr), attr.index
        if tensor is None:
            return None
        index = torch.from_numpy(index) if isinstance(index, np.ndarray) else index
        found = tensor if index is None else _chosen(tensor, index)
        if attr.attr_name in MASKS:
            return found & BITS[MASKS.index(attr.attr_name)] > 0
        return found

    def _get_tensor_size(self, attr: pyg.TensorAttr) -> tuple[int, ...] | None:
        if attr.index is None:
            tensor = self._tensor(attr)
            return None if tensor is None else tuple(tensor.shape)
        found = self._get_tensor(attr)
        return None if found is None else tuple(found.shape)

    def get_all_tensor_attrs(self) -> list[pyg.TensorAttr]:
        names = ["x", "y", *(MASKS if "own" in self._kept.dataset.splits else ())]
        return [pyg.TensorAttr(group_name=None, attr_name=name) for name in names]

    def _put_tensor(self, tensor: Any, attr: pyg.TensorAttr) -> bool:
        raise _unchanged()

    def _remove_tensor(self, attr: pyg.TensorAttr) -> bool:
        raise _unchanged()

    def __len__(self) -> int:
        return self._kept.num_nodes

    def __reduce__(self) -> Any:
        return FeatureStore, (self._kept,)

    def __repr__(self) -> str:
        return f"FeatureStore({self._kept.folder})"


class GraphStore(pyg.GraphStore):
    """The edges of a store: sorted by where they end, in the layouts csc and coo.

    PyG's samplers ask for int64; that copy is made when they ask for it.
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.__dict__["_kept"] = store

    def _get_edge_index(self, edge_attr: pyg.EdgeAttr) -> tuple[Tensor, Tensor] | None:
        store = self._kept
        if edge_attr.edge_type is not None or edge_attr.layout == EdgeLayout.CSR:
            return None
        if edge_attr.layout == EdgeLayout.CSC:
            return store.col.long(), store.rowptr.long()
        return store.col.long(), csr_rows(store.rowptr, store.num_edges).long()

    def get_all_edge_attrs(self) -> list[pyg.EdgeAttr]:
        size = (self._kept.num_nodes, self._kept.num_nodes)
        return [pyg.EdgeAttr(edge_type=None, layout=EdgeLayout.CSC, size=size)]

    def _put_edge_index(self, edge_index: Any, edge_attr: pyg.EdgeAttr) -> bool:
        raise _unchanged()

    def _remove_edge_index(self, edge_attr: pyg.EdgeAttr) -> bool:
        raise _unchanged()

    def __reduce__(self) -> Any:
        return GraphStore, (self._kept,)

    def __repr__(self) -> str:
        return f"GraphStore({self._kept.folder})"


def _chosen(values: Tensor, index: Tensor | slice) -> Tensor:
    """Some rows of an array, dense: batches are small, also where all features are sparse."""
    if not is_csr(values):
        return values[index]
    rows = index.numpy() if isinstance(index, Tensor) else index
    return torch.from_numpy(to_scipy(values)[rows].toarray())


def _unchanged() -> TypeError:
    return TypeError("a store is not changed once it is written: write another one (Store.create)")
