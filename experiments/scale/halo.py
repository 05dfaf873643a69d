"""How many rows partitions of a graph send each other: measured, and by a rule.

The rule: let a share `cut` of all edges lead from one part to another, and the cut edges of a node
go to the other p - 1 parts at random. Then a node of degree g is a halo row of so many parts:

    (p - 1) (1 - (1 - cut / (p - 1))^g)

and the mean over degrees is the halo rows of all parts as a multiple of N. The share `cut` is
measured with METIS or by streaming on graphs that fit here. Where a graph is larger, or there are
more parts, it is taken from those measured: for a family of graphs, the share of the largest one
that was measured with these parts, and beyond the most parts a straight line in log2(p) through the
last two, up to the 1 - 1/p of parts drawn at random.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from subtree_attention import datasets, planted
from subtree_attention.partition import Partition

PARTS = (2, 4, 8, 16, 32, 64)
DEGREE = 29
"""Mean degree of the planted graphs: that of ogbn-papers100M with both directions."""
SIZES = {"metis": (10_000, 30_000, 100_000), "streaming": (10_000, 100_000, 300_000)}
HOMOPHILY = {"mixed": 0.6, "clear": 0.9}
"""Share of edges that stay within one of many groups."""
GROUPS = 512
REAL = ("pubmed", "cs", "computer", "physics")


@dataclass(frozen=True)
class Measured:
    """A partition of a graph.

    Attributes:
        family: graphs that are alike but for their size.
        method: metis or streaming.
        cut: share of edges between parts.
        halo: halo rows of all parts, as a multiple of N.
        rule: what the rule makes of the cut.
        largest: nodes of the largest part, as a multiple of the mean.
        most: halo rows of the part that has most, as a multiple of the mean.
    """

    family: str
    nodes: int
    edges: int
    method: str
    parts: int
    cut: float
    halo: float
    rule: float
    largest: float
    most: float
    seconds: float


def rule(degrees: np.ndarray, cut: float, parts: int) -> float:
    """Halo rows of all parts as a multiple of N, by the rule above."""
    if parts == 1:
        return 0.0
    return float(np.mean((parts - 1) * (1 - (1 - cut / (parts - 1)) ** degrees)))


def power_law(mean: float, exponent: float = 2.5, nodes: int = 100_000) -> np.ndarray:
    """Degrees with the tail of a power law, by their quantiles: [nodes]."""
    quantiles = (np.arange(nodes) + 0.5) / nodes
    weights = (1 - quantiles) ** (-1 / (exponent - 1))
    return weights * mean / weights.mean()


def measure(
    sizes: Mapping[str, tuple[int, ...]] = SIZES, real: Iterable[str] = REAL
) -> Iterator[Any]:
    """Partition planted graphs of growing size, and real ones; -> records, one after the other."""
    for family, homophily in HOMOPHILY.items():
        for nodes in sorted({size for some in sizes.values() for size in some}):
            edges = _planted(nodes, homophily)
            for method in (name for name, some in sizes.items() if nodes in some):
                yield from _partitions(family, edges, nodes, method)
    for name in real:
        data = datasets.load(name)
        yield from _partitions(name, data.edge_index, data.num_nodes, "metis")


def _planted(nodes: int, homophily: float) -> torch.Tensor:
    pairs = nodes * DEGREE // 2
    groups = min(GROUPS, nodes // 16)  # with room for the edges within one
    made = planted(nodes, pairs, groups, 1, homophily=homophily, strangers=0.0)
    return made.edge_index


def _partitions(
    family: str, edges: torch.Tensor, nodes: int, method: str
) -> Iterator[dict[str, Any]]:
    degrees = torch.bincount(edges[0], minlength=nodes).numpy()
    for parts in (parts for parts in PARTS if nodes >= 100 * parts):
        start = time.perf_counter()
        if method == "metis":
            found = Partition.metis(edges, nodes, parts)
        else:
            found = Partition.streaming(list(edges.split(1 << 20, dim=1)), nodes, parts)
        seconds = time.perf_counter() - start
        cut, halo = found.cut(edges) / edges.size(1), found.halo(edges).sum(1).double()
        yield asdict(
            Measured(
                family=family,
                nodes=nodes,
                edges=edges.size(1),
                method=method,
                parts=parts,
                cut=cut,
                halo=float(halo.sum()) / nodes,
                rule=rule(degrees, cut, parts),
                largest=float(found.sizes.max()) * parts / nodes,
                most=float(halo.max() / halo.mean()) if halo.sum() else 1.0,
                seconds=round(seconds, 2),
            )
        )


def cut_of(records: list[dict[str, Any]], family: str, method: str, parts: int) -> float:
    """The share of edges between so many parts, by the rule above."""
    if parts == 1:
        return 0.0
    largest: dict[int, dict[str, Any]] = {}
    for record in records:
        if record["family"] == family and record["method"] == method:
            before = largest.get(record["parts"])
            if before is None or record["nodes"] > before["nodes"]:
                largest[record["parts"]] = record
    if parts in largest:
        return float(largest[parts]["cut"])
    first, last = sorted(largest)[-2:]
    slope = (largest[last]["cut"] - largest[first]["cut"]) / math.log2(last / first)
    further = largest[last]["cut"] + max(slope, 0.0) * math.log2(parts / last)
    return float(min(further, 1 - 1 / parts))
