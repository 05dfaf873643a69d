"""Seconds of one hop on a CPU: what the formulas of docs/scale.md are held against there.

A walk of five hops less one of two is three hops that gather states, on a uniform random graph. The
seconds are those of the processor on one thread, the least of some rounds, since others may use the
machine. Copies of 256 MB say what its memory does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import torch

from experiments.benchmarks.script import leave, parser
from subtree_attention import Graph
from subtree_attention.ops import subtree_attention

HEADS, KEYS = 4, 16
SIZES = [(2_000, 10), (20_000, 10), (200_000, 10), (20_000, 30), (100_000, 30)]
"""Nodes, and edges of each."""
VALUES = (2, 7, 15)


def main() -> None:
    arguments = parser(__doc__, rounds=7, threads=1).parse_args()
    torch.set_num_threads(arguments.threads)
    rows = []
    for nodes, degree in SIZES:
        torch.manual_seed(0)
        edges = nodes * degree
        graph = Graph(torch.randint(nodes, (2, edges)), nodes)
        for values in VALUES:
            rows.append(_measured(graph, values, arguments.rounds))
            print({name: value for name, value in rows[-1].items() if name != "seconds"})
    about = {"heads": HEADS, "keys": KEYS, "rounds": arguments.rounds}
    about["copy_bytes_per_second"] = _copied(arguments.rounds)
    leave(arguments.out, {**about, "hops": rows}, load=round(os.getloadavg()[0], 1))


def _measured(graph: Graph, values: int, rounds: int) -> dict[str, Any]:
    nodes = graph.num_nodes
    query, key = (torch.rand(nodes, HEADS, KEYS) for _ in range(2))
    value = torch.randn(nodes, HEADS, values)

    def walk(hops: int) -> Callable[[], object]:
        weights = torch.ones(hops + 1, HEADS)
        return lambda: subtree_attention(query, key, value, graph, hops, weights)

    with torch.no_grad():
        few, more = walk(2), walk(5)
        few(), more()  # compiled, and memory is there
        seconds = [[_seconds(call) for call in (few, more)] for _ in range(rounds)]
    hop = (min(after for _, after in seconds) - min(before for before, _ in seconds)) / 3
    sizes = {"nodes": nodes, "edges": graph.num_edges, "values": values}
    return {**sizes, "hop_seconds": hop, "seconds": seconds}


def _copied(rounds: int) -> float:
    source = torch.ones(1 << 26)
    target = torch.empty_like(source)
    target.copy_(source)
    shortest = min(_seconds(lambda: target.copy_(source)) for _ in range(rounds))
    return 2 * source.nbytes / shortest


def _seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


if __name__ == "__main__":
    main()
