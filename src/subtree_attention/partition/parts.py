"""Who owns which node: by METIS, from a stream of edges, or by number."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import _check
from ..adjacency import MOST_NODES
from ..graph import Graph
from .streaming import PASSES, SLACK, stream

MOST_PARTS = 2**15
"""A count for each pair of parts fits into memory."""


@dataclass(frozen=True, eq=False)
class Partition:
    """Every node has one owner.

    Attributes:
        owner: `[N]` int32, the part of each node.
        parts: how many parts there are; some may be empty.
    """

    owner: Tensor
    parts: int

    def __post_init__(self) -> None:
        _check.integer("parts", self.parts, 1, MOST_PARTS)
        owner = _check.plain("owner", _check.whole("owner", self.owner))
        if owner.dim() != 1:
            raise ValueError(f"owner must have shape [N], got {_check.shape(owner)}")
        if owner.numel() and not 0 <= int(owner.min()) <= int(owner.max()) < self.parts:
            raise ValueError(
                f"owner must be one of the parts 0 to {self.parts - 1}, "
                f"got {int(owner.min())} to {int(owner.max())}"
            )
        object.__setattr__(self, "owner", owner.to("cpu", torch.int32))

    @staticmethod
    def blocks(num_nodes: int, parts: int) -> Partition:
        """Nodes by number: the first of them to part 0, and so on, as many to each."""
        nodes = _check.integer("num_nodes", num_nodes, 0, MOST_NODES)
        _check.integer("parts", parts, 1, MOST_PARTS)
        return Partition(torch.arange(nodes) * parts // max(nodes, 1), parts)

    @staticmethod
    def metis(edges: Any, num_nodes: int | None, parts: int, seed: int = 0) -> Partition:
        """Parts of as many nodes with few edges between them, by METIS.

        Args:
            edges: a :class:`Graph`, or an edge_index `[2, E]`.
            num_nodes: how many nodes there are; None: those of the Graph, or of the edges.
            parts: how many parts.
            seed: of METIS, which draws.
        """
        _check.integer("parts", parts, 1, MOST_PARTS)
        _check.integer("seed", seed, 0)
        graph = edges if isinstance(edges, Graph) else Graph(edges, num_nodes)
        if num_nodes is not None and num_nodes != graph.num_nodes:
            raise ValueError(f"num_nodes={num_nodes}, but the Graph has {graph.num_nodes} nodes")
        if parts == 1 or parts >= graph.num_nodes:
            return Partition.blocks(graph.num_nodes, parts)
        pymetis = _pymetis()
        neighbours = pymetis.CSRAdjacency(*_neighbours(graph))
        found = pymetis.part_graph(parts, neighbours, options=pymetis.Options(seed=seed))
        return Partition(torch.as_tensor(found.vertex_part), parts)

    @staticmethod
    def streaming(
        blocks: Iterable[Tensor] | Callable[[], Iterable[Tensor]],
        num_nodes: int,
        parts: int,
        passes: int = PASSES,
        slack: float = SLACK,
        seed: int = 0,
    ) -> Partition:
        """Parts of about as many nodes with few edges between them, from edges in blocks.

        Nobody needs all edges at a time: they come block by block, in some passes, and what is
        kept are a few numbers a node. Edges count alike in both directions.

        Args:
            blocks: edges `[2, B]`, a list of them, or a function that opens them anew for a pass.
            num_nodes: N.
            parts: how many parts.
            passes: over all edges, for each of three stages at most.
            slack: a part may have this share of nodes more than the mean.
            seed: of the draws: in a pass only half of the nodes may move.
        """
        _check.integer("num_nodes", num_nodes, 0, MOST_NODES)
        _check.integer("parts", parts, 1, MOST_PARTS)
        _check.integer("passes", passes, 1)
        slack, seed = _check.number("slack", slack), _check.integer("seed", seed, 0)
        if not callable(blocks) and iter(blocks) is blocks:
            raise TypeError(
                "edges are read several times: give a list of blocks, or a function that opens "
                f"them anew, not {type(blocks).__name__}"
            )
        opened = blocks if callable(blocks) else lambda: blocks
        return Partition(stream(opened, num_nodes, parts, passes, slack, seed), parts)

    @property
    def num_nodes(self) -> int:
        return self.owner.numel()

    @property
    def sizes(self) -> Tensor:
        """How many nodes each part owns, `[parts]`."""
        return torch.bincount(self.owner, minlength=self.parts)

    def nodes(self, part: int) -> Tensor:
        """The nodes of a part, ascending, `[n]`."""
        return (self.owner == _check.index("part", part, self.parts)).nonzero().flatten()

    def cut(self, edge_index: Tensor) -> int:
        """How many edges `[2, E]` lead from one part to another."""
        source, target = self._owners(edge_index)
        return int((source != target).sum())

    def halo(self, edge_index: Tensor) -> Tensor:
        """How many nodes of part b send to part a along edges `[2, E]`: `[parts, parts]` by a, b.

        A row of a state for each is what a sends nothing for and b sends in a hop; the way back
        is that of `edge_index.flip(0)`. Nothing travels within a part.
        """
        source, target = self._owners(edge_index)
        between = source != target
        pairs = target[between] * self.num_nodes + edge_index[0].cpu()[between]
        sender = pairs.unique()
        to, by = sender // max(self.num_nodes, 1), self.owner[sender % max(self.num_nodes, 1)]
        counts = torch.bincount(to * self.parts + by, minlength=self.parts**2)
        return counts.view(self.parts, self.parts)

    def _owners(self, edge_index: Tensor) -> Tensor:
        if edge_index.dim() != 2 or edge_index.size(0) != 2:
            raise ValueError(f"edge_index must have shape [2, E], got {_check.shape(edge_index)}")
        return self.owner[_check.whole("edge_index", edge_index).cpu()].long()

    def __repr__(self) -> str:
        return f"Partition(num_nodes={self.num_nodes}, parts={self.parts})"


def _pymetis() -> Any:
    try:
        import pymetis
    except ImportError as error:
        raise ImportError(
            f"METIS cannot be imported ({error}): pip install 'subtree-attention[partition]', or "
            "take another way: Partition.streaming, on the command line --partition streaming"
        ) from None
    return pymetis


def _neighbours(graph: Graph) -> tuple[Any, Any]:
    """Whom a node is linked with, in either direction, once each and not itself: CSR."""
    ends = graph.edge_index.cpu()
    ends = ends[:, ends[0] != ends[1]]
    nodes = max(graph.num_nodes, 1)
    pairs = torch.cat([ends[0] * nodes + ends[1], ends[1] * nodes + ends[0]]).unique()
    starts = torch.searchsorted(pairs, torch.arange(graph.num_nodes + 1) * nodes)
    return starts.numpy(), (pairs % nodes).numpy()
