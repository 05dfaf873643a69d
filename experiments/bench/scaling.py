"""How time and memory of our operator grow with edges, hops, heads and classes.

One size grows while the others stay at `Point`'s defaults, on uniform random graphs with ten edges
a node. An axis ends where memory does, or after a point that took longer than the time limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from experiments.bench import attention, memory
from experiments.bench.attention import OURS
from experiments.bench.cases import random_edges
from experiments.bench.measure import Measurement, measure
from subtree_attention.graph import Graph
from subtree_attention.ops import backends
from subtree_attention.runs.environment import environment

HIDDEN, EPS = 64, 1e-5
EDGES_PER_NODE = 10
BASE_EDGES = {"cuda": 10**6, "cpu": 10**5}

AXES: dict[str, list[int]] = {
    "edges": [10**4, 10**5, 10**6, 10**7, 10**8],
    "hops": [1, 2, 3, 5, 10, 20, 50, 100],
    "heads": [1, 2, 4, 8, 16],
    "classes": [2, 5, 10, 20, 40, 80],
}

CHECKED_NUMBERS = {"cuda": 10**11, "cpu": 10**9}
"""Points whose hops gather more numbers than this are not compared with float64: it takes long."""


@dataclass(frozen=True)
class Point:
    """Sizes of one measurement; the key channels of all heads together are 64."""

    edges: int
    hops: int = 3
    heads: int = 4
    classes: int = 8

    @property
    def nodes(self) -> int:
        return max(4, self.edges // EDGES_PER_NODE)

    def needs_bytes(self) -> int:
        """Roughly what graph, states and read-outs take: to be asked before, not measured."""
        states = 4 * self.nodes * HIDDEN * (self.classes + 1)
        readouts = self.hops * self.nodes * self.heads * (self.classes + 1)
        return 4 * (states + readouts) + 100 * self.edges


def scale(
    device: torch.device,
    *,
    backend: str = "auto",
    rounds: int = 5,
    limit: float = 20.0,
    axes: dict[str, list[int]] | None = None,
    say: Callable[[str], object] = print,
) -> dict[str, Any]:
    """Measure every axis; the result is what the JSON file holds.

    Args:
        device, backend, rounds, say: as of `compare`.
        limit: seconds of a point after which its axis ends.
        axes: sizes of each axis, ascending; by default `AXES`.
    """
    backend = backends.choose(backend, device, torch.float32)
    base = Point(edges=BASE_EDGES[device.type])
    measured: dict[str, list[dict[str, Any]]] = {}
    for axis, sizes in (axes or AXES).items():
        say(f"{axis}: {sizes[0]:,} to {sizes[-1]:,}")
        measured[axis] = []
        for size in sizes:
            point, start = replace(base, **{axis: size}), time.monotonic()
            result = _measure_point(point, device, backend, rounds)
            measured[axis].append({**asdict(point), "nodes": point.nodes, **result.to_dict()})
            memory.release(device)
            if result.problem or time.monotonic() - start > limit:
                break
    return {
        "backend": backend,
        "rounds": rounds,
        "base": asdict(base),
        "axes": measured,
        "environment": environment(device),
    }


def _measure_point(point: Point, device: torch.device, backend: str, rounds: int) -> Measurement:
    failed = Measurement(problem="out of memory")
    if not memory.fits(point.needs_bytes(), device):
        return failed
    try:
        edge_index = random_edges(point.nodes, point.edges).to(device)
        graph = Graph(edge_index, point.nodes)
        del edge_index
        graph.matrix(), graph.transpose()
        sizes = (point.hops, point.heads, HIDDEN // point.heads, point.classes)
        task = attention.make_task(graph, *sizes, EPS)
        numbers = point.hops * point.edges * HIDDEN * (point.classes + 1)
        version = attention.our_version(task, backend, numbers <= CHECKED_NUMBERS[device.type])
    except (RuntimeError, MemoryError) as error:
        if not memory.is_out_of_memory(error):
            raise
        return failed
    return measure([version], device, rounds)[OURS]
