"""A batch: what was sampled, as PyG's `Data`, and back as what the operator walks on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..compressed import row_pointers
from ..graph import Graph
from ..ops.sampling import Sampled
from .source import Source

if TYPE_CHECKING:
    from torch_geometric.data import Data


def made(source: Source, sampled: Sampled, input_id: Tensor | None) -> Data:
    """A `Data` of what was sampled, with PyG's names and `entries`."""
    from torch_geometric.data import Data

    batch = Data(edge_index=sampled.edge_index)
    for name, value in source.fields(sampled.n_id, sampled.e_id).items():
        batch[name] = value
    batch.n_id, batch.e_id, batch.entries = sampled.n_id, sampled.e_id, sampled.entries
    if input_id is not None:
        batch.input_id, batch.batch_size = input_id, len(input_id)
        batch.num_sampled_nodes = sampled.num_sampled_nodes
        batch.num_sampled_edges = sampled.num_sampled_edges
    batch.walks_by, batch.given_edges = sampled.source.walks_by, sampled.source.given_edges
    return batch


def walk_graph(batch: Any) -> Graph:
    """What the layers of this package take as their graph: the matrix of a batch's `entries`.

    Edges must be as the loader gave them: a transform that adds, drops or sorts edges takes
    `entries` from them.

    Args:
        batch: from a `NeighborLoader` or a `ClusterLoader`, on any device.
    """
    if getattr(batch, "entries", None) is None:
        raise ValueError("the batch has no entries: it must come from a loader of this package")
    source, target = batch.edge_index
    if batch.entries.shape != source.shape:
        raise ValueError(
            f"the batch has {len(source)} edges, but {len(batch.entries)} entries: a transform "
            "changed its edges"
        )
    if source.device.type == "cpu":  # a GPU would have to be waited for
        place = target * batch.num_nodes + source
        if not bool((place.diff() >= 0).all()):
            raise ValueError("the edges of the batch were sorted anew: a transform changed them")
    rowptr = row_pointers(target.contiguous(), batch.num_nodes)
    graph = Graph.from_csr(rowptr, source, batch.entries, transition=None)
    graph.stand_for(batch.walks_by, batch.e_id == batch.given_edges)
    return graph
