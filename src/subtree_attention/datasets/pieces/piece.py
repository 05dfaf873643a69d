"""What one of several processes has of a graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .. import targets
from ..splits import Split, labelled_split
from ..tables import ranks
from ..tables.schema import TableNotes, TableSchema

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@dataclass(frozen=True, eq=False, repr=False)
class Piece:
    """The nodes that a rank owns, with all that is known of them, and the edges that end there.

    Put together, the pieces of all ranks are the `Dataset` that `from_tables` makes of the whole
    tables: a node has the number that it has there.

    Attributes:
        nodes: [n], int64, ascending: the numbers of the nodes that this rank owns.
        x: [n, F], float32, dense or CSR, on all ranks alike.
        y: [n], or [n, C] of labels, as in `Dataset`.
        edge_index: [2, E_r], int64: the edges that end at nodes of this rank, by the numbers of
            both ends, sorted by end and start.
        edge_weight: [E_r], float32; None if all are 1.
        num_nodes, num_edges: N and E, of all ranks together.
        partition: [N], int32: the rank that owns each node.
        split: masks [n] of the split column; None if none was named.
        classes: the names of the classes or labels, C.
        ids: the names of the nodes of this rank, n.
        schema: how columns became features.
        notes: what was done with the tables, on all ranks alike.
        source: where the nodes came from, in words.
        read: the files of which this rank has read rows.
    """

    nodes: Tensor
    x: Tensor
    y: Tensor
    edge_index: Tensor
    edge_weight: Tensor | None
    num_nodes: int
    num_edges: int
    partition: Tensor
    split: Split | None
    classes: tuple[str, ...]
    ids: list[str]
    schema: TableSchema
    notes: TableNotes
    source: str = ""
    read: tuple[str, ...] = field(default=())

    @property
    def num_features(self) -> int:
        """Columns of x."""
        return self.x.size(1)

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def target(self) -> str:
        """What is to be learnt of each node: a "class", "labels" or a "number"."""
        return targets.kind_of(self.y)

    @property
    def known(self) -> Tensor:
        """Nodes of this rank whose target is known: a mask [n]."""
        return targets.known(self.y)

    def random_split(
        self, kind: str = "B", seed: int = 0, group: ProcessGroup | None = None
    ) -> Split:
        """Masks [n] of the split of that kind and seed that one process draws of the whole graph.

        All ranks of the group call it; each learns the class of every node for a moment.
        """
        with ranks.among(group):
            own = torch.stack([self.nodes, targets.groups(self.y)], dim=1)
            nodes, groups = torch.tensor(ranks.gathered_rows(own.numpy())).T
            whole = torch.empty(self.num_nodes, dtype=torch.int64).index_copy_(0, nodes, groups)
            return Split(*(mask[self.nodes] for mask in labelled_split(whole, kind, seed)))

    def __repr__(self) -> str:
        return (
            f"Piece({len(self.nodes):,} of {self.num_nodes:,} nodes, {self.edge_index.size(1):,} "
            f"of {self.num_edges:,} edges, {self.num_features:,} features)"
        )
