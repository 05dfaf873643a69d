"""A few in-edges of a few nodes, hop by hop, with entries that are right on average.

Seeds receive from nodes, these from others, and so on. Of a row's d in-edges f are drawn, and their
entries of the transition are multiplied by d / f: `E[A_hat x] = A x`, row by row. What is drawn for
a node depends on the key and on the node only, neither on threads nor on the rest of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import _check
from ..compressed import INT32_MAX
from ..graph import Graph
from .in_edges import InEdges
from .kernels import cpu_sampling, plain_sampling
from .kernels.cpu import NumbaKernel
from .kernels.sampling import Draw, Hop, HopFunction

BY = {
    "uniform": "every in-edge of a row alike, each at most once",
    "walk": "in proportion to its entry, as a walk would come along it; with replacement",
}
MOST_KEY = 2**64 - 1

__all__ = ["BY", "InEdges", "Sampled", "among", "key_of", "sample"]


@dataclass(frozen=True, eq=False)
class Sampled:
    """Nodes and in-edges that were drawn, as a matrix whose rows receive.

    Attributes:
        n_id: `[n]` int64, the nodes: the seeds as they came, then by depth.
        rowptr: `[n + 1]`; nodes of the last depth receive nothing.
        col: `[e]`, senders by their place in `n_id`, ascending within a row.
        at: `[e]` int64, where the edges stand in `source.col`.
        entries: `[e]` float32, the estimated entries of the transition.
        num_sampled_nodes: seeds, then new nodes of each hop.
        num_sampled_edges: of each hop.
        source: where they were drawn.
    """

    n_id: Tensor
    rowptr: Tensor
    col: Tensor
    at: Tensor
    entries: Tensor
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]
    source: InEdges

    @cached_property
    def e_id(self) -> Tensor:
        """`[e]` int64, what the edges are called in the graph (`InEdges.e_id`); looked up when it
        is first asked for, which is a walk through memory for nothing if nobody does."""
        return self.source.called(self.at)

    @property
    def batch_size(self) -> int:
        """How many seeds there are: the first of `n_id`."""
        return self.num_sampled_nodes[0]

    @property
    def edge_index(self) -> Tensor:
        """`[2, e]` int64: senders and receivers, as PyG has them."""
        ends = np.empty((2, len(self.col)), np.int64)
        ends[0], ends[1] = self.col, np.repeat(np.arange(len(self.n_id)), self.rowptr.diff())
        return torch.from_numpy(ends)

    def graph(self) -> Graph:
        """What the operator walks on: a matrix of `entries`, as they are."""
        graph = Graph.from_csr(self.rowptr, self.col, self.entries, transition=None)
        graph.stand_for(self.source.walks_by, self.e_id == self.source.given_edges)
        return graph

    def __repr__(self) -> str:
        sizes = f"seeds={self.batch_size}, nodes={len(self.n_id)}, edges={len(self.col)}"
        return f"Sampled({sizes})"


def sample(
    graph: InEdges,
    seeds: Tensor,
    num_neighbors: Sequence[int],
    *,
    key: int,
    by: str = "uniform",
    replace: bool = False,
) -> Sampled:
    """Some of what walks of `len(num_neighbors)` steps bring to the seeds.

    A node that is new at depth d gets `num_neighbors[d]` of its in-edges, once for all. Loops are
    kept with their own entries and are not counted. Rows of which all edges are taken are exact.

    Args:
        graph: where to sample.
        seeds: `[B]` nodes. One that comes twice is there twice, with the same row.
        num_neighbors: in-edges at each depth; -1 takes all of them.
        key: what is drawn is a function of it.
        by: "uniform", or "walk": in proportion to entries, with replacement, draws of one edge
            merged; the entry of an edge that was drawn c times is the sum of its row times c / f.
        replace: draw with replacement; not more than f of "uniform" even where a row has fewer.
    """
    _check.kind("graph", graph, InEdges, "InEdges, as InEdges.of(graph) makes them")
    fanouts = check_fanouts(num_neighbors)
    _check.integer("key", key, 0, MOST_KEY)
    _check.known("by", by, BY)
    _check.flag("replace", replace)
    nodes = check_seeds(seeds, graph.num_nodes)
    with torch.inference_mode(False):
        return _sample(graph, nodes, [Draw(key, f, by, replace) for f in fanouts])


def among(graph: InEdges, nodes: Tensor, rescale: bool = True) -> Sampled:
    """Some nodes and the edges among them, which is what a cluster is.

    Args:
        graph: where they are.
        nodes: `[n]` different nodes.
        rescale: multiply what is left of a row so that it adds up to what the whole row does, loops
            aside; a row of which nothing is left stays empty.
    """
    _check.kind("graph", graph, InEdges, "InEdges, as InEdges.of(graph) makes them")
    nodes, _ = check_seeds(nodes, graph.num_nodes), _check.flag("rescale", rescale)
    with torch.inference_mode(False):
        place = graph.room()
        _number(nodes, place)
        if len(nodes) and not torch.equal(place[nodes].long(), torch.arange(len(nodes))):
            raise ValueError("nodes must be different, but one is there twice")
        kept = plain_sampling.inside(graph, nodes, place, rescale)
        place.index_fill_(0, nodes, -1)
        graph.give(place)
        return _assembled(nodes, [kept], [len(nodes), 0], graph)


def key_of(*numbers: int) -> int:
    """A key made of some numbers, such as a seed, an epoch and a batch; other numbers, another."""
    key = 0
    for number in numbers:
        key = plain_sampling.mixed(key + plain_sampling.mixed(number + 1))
    return key


def check_fanouts(num_neighbors: Any) -> list[int]:
    """In-edges at each depth, at least one of them."""
    if isinstance(num_neighbors, int | str) or not hasattr(num_neighbors, "__iter__"):
        got = _check.said(num_neighbors)
        raise TypeError(f"num_neighbors must be a list, a number for each hop, got {got}")
    given = [_check.integer("a number of neighbours", f, -1) for f in num_neighbors]
    if not given or 0 in given:
        raise ValueError(
            "num_neighbors must have at least one hop, and -1 (all) or at least 1 for each, "
            f"got {given}"
        )
    return given


def check_seeds(seeds: Any, num_nodes: int) -> Tensor:
    """Nodes that are there, [B] int64."""
    nodes = _check.plain("seeds", _check.whole("seeds", seeds)).cpu().long()
    if nodes.dim() != 1:
        raise ValueError(f"seeds must have shape [B], got {_check.shape(nodes)}")
    if nodes.numel() and not 0 <= int(nodes.min()) <= int(nodes.max()) < num_nodes:
        raise ValueError(
            f"seeds must be nodes 0 to {num_nodes - 1}, got {int(nodes.min())} to "
            f"{int(nodes.max())}"
        )
    return nodes.contiguous()


def _hop_function() -> HopFunction:
    """By Numba where it is, else by torch."""
    if NumbaKernel.refusal(torch.device("cpu"), torch.float32):
        return plain_sampling.hop
    return cpu_sampling.hop


def _sample(graph: InEdges, seeds: Tensor, draws: list[Draw]) -> Sampled:
    place, draw_hop = graph.room(), _hop_function()
    found, hops = [seeds], list[Hop]()
    _number(seeds, place)
    known = len(seeds)
    for draw in draws:
        hops.append(draw_hop(graph, found[-1], draw, place, known))
        found.append(hops[-1].new)
        known += len(found[-1])
    n_id = _joined(found)
    place.numpy()[n_id.numpy()] = -1
    graph.give(place)  # after an error it is not: nobody knows what is left in it
    return _assembled(n_id, hops, [len(nodes) for nodes in found], graph)


def _number(seeds: Tensor, place: Tensor) -> None:
    """Number the seeds [B] in `place` [N]; one that comes twice is found where it came first."""
    where, nodes = place.numpy(), seeds.numpy()
    numbers = np.arange(len(nodes), dtype=where.dtype)
    where[nodes] = numbers
    if not np.array_equal(where[nodes], numbers):
        first = np.unique(nodes, return_index=True)[1]
        where[nodes[first]] = first


def _assembled(n_id: Tensor, hops: list[Hop], counts: list[int], source: InEdges) -> Sampled:
    """Hops one below the other, and below them the rows of the last depth."""
    edges = [hop.col.numel() for hop in hops]
    starts = np.zeros(len(n_id) + 1, np.int32 if sum(edges) <= INT32_MAX else np.int64)
    rows = len(n_id) - counts[-1]
    np.cumsum(_joined([hop.lengths for hop in hops]).numpy(), out=starts[1 : rows + 1])
    starts[rows + 1 :] = starts[rows]
    rowptr = torch.from_numpy(starts)
    col = _joined([hop.col for hop in hops])
    at = _joined([hop.at for hop in hops])
    entries = _joined([hop.entries for hop in hops])
    return Sampled(n_id, rowptr, col, at, entries, counts, edges, source)


def _joined(parts: list[Tensor]) -> Tensor:
    """One after the other. By NumPy, as all here: torch would wake threads for it, and to wait for
    them on busy cores takes longer than the sample."""
    return torch.from_numpy(np.concatenate([part.numpy() for part in parts]))
