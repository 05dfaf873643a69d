"""Whether the order of nodes matters to the walk: the operator on the same graph, renumbered.

    python -m experiments.benchmarks.order --out results/order-h200.json

A hop gathers rows of the states of neighbours; numbers that are close lie close in memory. Orders:
as the graph came, reverse Cuthill-McKee (which brings neighbours together), by degree, and random.
Forward and backward, captured as a CUDA graph, so that the host takes no part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor

from experiments.bench.measure import Run, Version, measure
from experiments.benchmarks.layers import edges
from experiments.benchmarks.script import leave, parser
from subtree_attention import Graph, subtree_attention
from subtree_attention.runs.environment import choose_device

HOPS, HEADS, KEYS, VALUES = 3, 4, 16, 16


def orders(edge_index: Tensor, nodes: int) -> dict[str, np.ndarray]:
    """Names of orders -> the nodes [N] in that order."""
    source, target = edge_index.numpy()
    matrix = csr_array((np.ones(len(source)), (target, source)), (nodes, nodes))
    return {
        "as it came": np.arange(nodes),
        "reverse Cuthill-McKee": reverse_cuthill_mckee((matrix + matrix.T).tocsr(), True),
        "by degree": np.argsort(-np.diff(matrix.indptr), kind="stable"),
        "random": np.random.default_rng(0).permutation(nodes),
    }


def renumbered(edge_index: Tensor, order: np.ndarray) -> Tensor:
    """The same edges between nodes that are numbered by their place in the order."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return torch.from_numpy(place)[edge_index]


def captured(graph: Graph) -> Callable[[], Run]:
    """The operator on the graph, forward and backward."""

    def build() -> Run:
        random = torch.Generator(graph.device).manual_seed(0)
        shapes: list[tuple[int, ...]]
        shapes = [(graph.num_nodes, HEADS, width) for width in (KEYS, KEYS, VALUES)]
        shapes += [(HOPS + 1, HEADS)]
        given = [torch.randn(s, generator=random, device=graph.device) for s in shapes]
        inputs = [tensor.requires_grad_() for tensor in given]

        def step() -> None:
            query, key, value, weights = inputs
            out = subtree_attention(query, key, value, graph, HOPS, weights)
            torch.autograd.grad(out, inputs, value)

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            step()

        def run(times: int) -> None:
            for _ in range(times):
                recorded.replay()

        return run

    return build


def main() -> None:
    options = parser(__doc__, rounds=7, graphs="computer,cs,physics,arxiv").parse_args()
    device, result = choose_device("cuda"), dict[str, Any]()
    for name in options.graphs.split(","):
        edge_index, nodes = edges(name)
        versions = [
            Version(order, captured(Graph(renumbered(edge_index, numbers), nodes).to(device)))
            for order, numbers in orders(edge_index, nodes).items()
        ]
        found = measure(versions, device, options.rounds)
        result[name] = {order: each.to_dict() for order, each in found.items()}
        print(name, {order: each.problem or each.median for order, each in found.items()})
    leave(options.out, {"rounds": options.rounds, "graphs": result}, device)


if __name__ == "__main__":
    main()
