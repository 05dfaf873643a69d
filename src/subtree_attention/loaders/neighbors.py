"""Batches of nodes with some of what walks bring to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _check
from ..ops.sampling import BY, Sampled, check_fanouts, check_seeds, sample
from .loader import Loader


class NeighborLoader(Loader):
    """Batches of nodes and of sampled in-edges, hop by hop, in PyG's form and with its names.

    A batch is a PyG `Data` with `x`, `y` and whatever else is known of its nodes and edges,
    `edge_index`, `n_id`, `e_id`, `input_id`, `batch_size`, `num_sampled_nodes`,
    `num_sampled_edges`; the first `batch_size` nodes are the seeds. `entries` are estimates of the
    transition's entries, which are right on average: see `ops.sampling`.

    Args:
        data: a PyG `Data`, a `Dataset`, or a pair of PyG's `FeatureStore` and `GraphStore`.
        num_neighbors: in-edges of a node at each hop; -1 takes all.
        batch_size: seeds of a batch.
        input_nodes: the nodes to go through: a mask `[N]`, indices, or None for all.
        shuffle: in another order each epoch.
        replace: draw with replacement.
        by: "uniform", or "walk": edges in proportion to their entries.
        transition: of the graph that is estimated, as in :class:`Graph`.
        self_loops: likewise: with a loop at every node. Loops that were added are edges of the
            batch, whose weight is 1 and whose other attributes are 0.
        drop_last: leave out a last batch that is smaller than the others.
        transform: what is done to a batch.
        num_workers: threads that make batches ahead, in order.
        prefetch: batches that each of them makes ahead.
        seed: of order and draws; None: each epoch takes one from torch's generator.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int],
        batch_size: int = 1,
        input_nodes: Tensor | Sequence[int] | None = None,
        shuffle: bool = False,
        replace: bool = False,
        by: str = "uniform",
        transition: str | None = "rw",
        self_loops: bool = False,
        drop_last: bool = False,
        transform: Callable[[Any], Any] | None = None,
        num_workers: int = 0,
        prefetch: int = 2,
        seed: int | None = None,
    ) -> None:
        self.num_neighbors = check_fanouts(num_neighbors)
        self.by, self.replace = _check.known("by", by, BY), _check.flag("replace", replace)
        super().__init__(
            data,
            batch_size=_check.integer("batch_size", batch_size, 1),
            shuffle=shuffle,
            drop_last=drop_last,
            transition=transition,
            self_loops=self_loops,
            transform=transform,
            num_workers=num_workers,
            prefetch=prefetch,
            seed=seed,
        )
        self.nodes = _nodes(input_nodes, self.source.num_nodes)

    @property
    def count(self) -> int:
        return len(self.nodes)

    def sample(self, which: Tensor, key: int) -> tuple[Sampled, Tensor | None]:
        seeds, by, replace = self.nodes[which], self.by, self.replace
        return sample(self.edges, seeds, self.num_neighbors, key=key, by=by, replace=replace), which


def _nodes(given: Any, num_nodes: int) -> Tensor:
    """Nodes by a mask, by their numbers, or all: [n] int64."""
    if given is None:
        return torch.arange(num_nodes)
    try:
        nodes = torch.as_tensor(given).cpu()
    except (TypeError, ValueError, RuntimeError):
        got = _check.said(given)
        raise TypeError(f"input_nodes must be a mask [N] or indices [n], got {got}") from None
    if nodes.dtype == torch.bool:
        if nodes.shape != (num_nodes,):
            raise ValueError(
                f"input_nodes is a mask of shape {_check.shape(nodes)}, but there are "
                f"{num_nodes} nodes"
            )
        return nodes.nonzero().flatten()
    return check_seeds(nodes.long() if not nodes.numel() else nodes, num_nodes)
