"""Batches of clusters: nodes that are near each other, and the edges among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import _check
from ..compressed import csr_rows
from ..ops.sampling import InEdges, Sampled, among
from ..partition import Partition
from ..partition.parts import MOST_PARTS
from .loader import Loader

PARTITIONS = {
    "metis": "few edges between parts, by METIS: needs all edges in memory",
    "streaming": "from edges that come in blocks",
    "blocks": "nodes by their numbers",
}


class ClusterLoader(Loader):
    """Batches of whole clusters of a partition, as PyG `Data`: the nodes of some parts and all
    edges among them.

    Edges that lead from one batch to another are lost, and which these are does not change unless
    parts are combined anew: with `batch_parts` > 1 and `shuffle`. By `rescale` the rest of a row
    stands for all of it. `entries` are otherwise those of the whole graph.

    Args:
        data: a PyG `Data`, a `Dataset`, or a pair of PyG's `FeatureStore` and `GraphStore`.
        parts: how many parts, or a :class:`Partition`.
        batch_parts: parts of a batch.
        shuffle: in another order, and with other parts together, each epoch.
        partition: how parts are made: "metis", "streaming" or "blocks". None: by METIS where it is
            installed, else from a stream.
        rescale: multiply what is left of a row, so that it adds up to what the whole row does.
        transition: as in :class:`Graph`.
        self_loops: likewise.
        drop_last: leave out a last batch of fewer parts.
        transform: what is done to a batch.
        num_workers: threads that make batches ahead, in order.
        prefetch: batches that each of them makes ahead.
        seed: of the partition and of the order; None: each epoch takes one from torch's generator.
    """

    def __init__(
        self,
        data: Any,
        parts: int | Partition,
        batch_parts: int = 1,
        shuffle: bool = False,
        partition: str | None = None,
        rescale: bool = True,
        transition: str | None = "rw",
        self_loops: bool = False,
        drop_last: bool = False,
        transform: Callable[[Any], Any] | None = None,
        num_workers: int = 0,
        prefetch: int = 2,
        seed: int | None = None,
    ) -> None:
        if partition is not None:
            _check.known("partition", partition, PARTITIONS)
        if not isinstance(parts, Partition):
            _check.integer("parts", parts, 1, MOST_PARTS)
        self.rescale = _check.flag("rescale", rescale)
        super().__init__(
            data,
            batch_size=_check.integer("batch_parts", batch_parts, 1),
            shuffle=shuffle,
            drop_last=drop_last,
            transition=transition,
            self_loops=self_loops,
            transform=transform,
            num_workers=num_workers,
            prefetch=prefetch,
            seed=seed,
        )
        if not isinstance(parts, Partition):
            parts = _partition(self.edges, parts, partition, seed or 0)
        if parts.num_nodes != self.source.num_nodes:
            raise ValueError(
                f"the partition is of {parts.num_nodes} nodes, but there are "
                f"{self.source.num_nodes}"
            )
        self.partition = parts
        self._nodes = parts.owner.argsort(stable=True).split(parts.sizes.tolist())

    @property
    def count(self) -> int:
        return self.partition.parts

    def sample(self, which: Tensor, key: int) -> tuple[Sampled, Tensor | None]:
        nodes = torch.cat([self._nodes[part] for part in which.tolist()])
        return among(self.edges, nodes.sort().values, self.rescale), None


def _partition(edges: InEdges, parts: int, how: str | None, seed: int) -> Partition:
    if how == "blocks":
        return Partition.blocks(edges.num_nodes, parts)
    if how != "streaming":
        rows = csr_rows(edges.rowptr, edges.num_edges)
        whole = torch.stack([edges.col.long(), rows.long()])
        try:
            return Partition.metis(whole, edges.num_nodes, parts, seed)
        except ImportError:
            if how == "metis":
                raise

    def blocks() -> Any:
        for _, rows, senders in edges.chunks():
            yield torch.stack([senders, rows])

    return Partition.streaming(blocks, edges.num_nodes, parts, seed=seed)
