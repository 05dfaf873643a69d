"""What is to be known of a graph whose rows are on many ranks: its sizes, and the targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ...datasets import Split, targets
from ...datasets.pieces import Piece
from ...datasets.splits import labelled_split
from ...partition import Ranks


@dataclass(frozen=True, eq=False)
class Outline:
    """A graph in pieces, as recipes and tasks ask for it: all of a `Dataset` but rows and edges.

    Attributes:
        name: of the graph.
        x: the features of this rank's nodes; only their columns and layout count.
        y, known: the target of all nodes, [N, ...], and where it is known, [N].
        classes: what they are called.
        num_nodes, num_edges: of all ranks together.
        own_split: masks [N] of the split column, if one was named.
        target: what is to be learnt of a node: a "class", "labels" or a "number".
    """

    name: str
    x: Tensor
    y: Tensor
    known: Tensor
    classes: tuple[str, ...]
    num_nodes: int
    num_edges: int
    own_split: Split | None
    target: str

    unit: ClassVar[str] = "node"
    own: ClassVar[bool] = True
    batch: ClassVar[None] = None

    @classmethod
    def of(cls, piece: Piece, name: str, ranks: Ranks) -> Outline:
        """Of the piece of this rank; every rank calls it."""
        own = None
        if piece.split is not None:
            own = Split(*(_whole(mask, piece, ranks) for mask in piece.split))
        y, known = (_whole(each, piece, ranks) for each in (piece.y, piece.known))
        sizes = piece.num_nodes, piece.num_edges
        return cls(name, piece.x, y, known, piece.classes, *sizes, own, piece.target)

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def splits(self) -> tuple[str, ...]:
        """The kinds of split that it brings along."""
        return () if self.own_split is None else ("own",)

    def split(self, kind: str | None = None, seed: int = 0) -> Split:
        """Masks [N], as those of the whole tables."""
        if kind == "own":
            if self.own_split is None:
                raise ValueError("the tables have no split of their own: name it by --split-column")
            return self.own_split
        return labelled_split(targets.groups(self.y), kind or "B", seed)


class InPieces(NamedTuple):
    """A graph of which each rank has a piece."""

    piece: Piece
    outline: Outline


def _whole(values: Tensor, piece: Piece, ranks: Ranks) -> Tensor:
    """Of values [n, ...] of each rank's nodes, those of all nodes: [N, ...]."""
    whole = values.new_zeros(piece.num_nodes, *values.shape[1:])
    kind = values.new_zeros(0).int().dtype if values.dtype.itemsize == 1 else values.dtype
    whole[piece.nodes] = values
    return ranks.summed(whole.to(kind)).to(values.dtype)
