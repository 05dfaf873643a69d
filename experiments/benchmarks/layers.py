"""One layer in somebody's own loop: PyG's layers beside STAConv, eager, forward and backward.

    python -m experiments.benchmarks.layers --out results/layers-h200.json
    python -m experiments.benchmarks.layers --render --out results/layers-h200.json

The second prints the first one's results as tables of markdown.

Every layer takes 64 channels to 64, with 4 heads where it has heads, on the same x and edges. Times
are wall clock of a plain loop that does not wait between steps, as users write it; the graph is
prepared once where a layer can (`cached`, a `Graph`). STAConv is compared with float64 first.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, SAGEConv, TransformerConv

from experiments.bench.cases import SHAPES, random_edges
from experiments.bench.measure import Measurement, Run, Version, measure, relative_error
from experiments.benchmarks.script import leave, parser
from subtree_attention import Graph, STAConv, datasets
from subtree_attention.runs.environment import choose_device

CHANNELS, HEADS = 64, 4
TOLERANCE = {"full": 1e-4, "bfloat16": 1e-2}
"""Largest relative error of STAConv, by the precision of its states."""


def edges(name: str) -> tuple[Tensor, int]:
    """The edge_index of a graph of the registry, or of a shape; and the number of nodes."""
    if name in SHAPES:
        shape = SHAPES[name]
        return random_edges(shape.nodes, shape.edges), shape.nodes
    data = datasets.load(name)
    return data.edge_index, data.num_nodes


def loop(layer: nn.Module, x: Tensor, adjacency: Any, training: bool) -> Run:
    """So many steps of one layer; in training with the gradients of x and of all weights."""
    grad, leaves = torch.ones_like(x), [x, *layer.parameters()]

    def run(times: int) -> None:
        with nullcontext() if training else torch.no_grad():
            for _ in range(times):
                out = layer(x, adjacency)
                if training:
                    for leaf in leaves:
                        leaf.grad = None
                    out.backward(grad)

    return run


def pyg_layers() -> dict[str, Callable[[], nn.Module]]:
    """What STAConv stands in for."""
    each = CHANNELS // HEADS
    return {
        "GCNConv": lambda: GCNConv(CHANNELS, CHANNELS),
        "GCNConv, cached": lambda: GCNConv(CHANNELS, CHANNELS, cached=True),
        "SAGEConv": lambda: SAGEConv(CHANNELS, CHANNELS),
        "GATConv": lambda: GATConv(CHANNELS, each, heads=HEADS),
        "GATv2Conv": lambda: GATv2Conv(CHANNELS, each, heads=HEADS),
        "TransformerConv": lambda: TransformerConv(CHANNELS, each, heads=HEADS),
    }


def sta(hops: int, **options: Any) -> STAConv:
    """The same weights for the same hops."""
    torch.manual_seed(0)
    return STAConv(CHANNELS, CHANNELS, hops, HEADS, **options)


def error(hops: int, states: str, x: Tensor, graph: Graph) -> float:
    """Of the output and of the gradients of x and of all weights, against float64."""
    found = []
    ways = (x.dtype, states, "auto"), (torch.float64, "full", "torch")
    for dtype, precision, backend in ways:
        layer = sta(hops, states=precision, backend=backend).to(x.device, dtype)
        own = x.detach().to(dtype).requires_grad_()
        out = layer(own, graph)
        out.backward(torch.ones_like(out))
        found.append([out.detach(), *(leaf.grad for leaf in (own, *layer.parameters()))])
    return relative_error(*found)


def versions(x: Tensor, edge_index: Tensor, graph: Graph, training: bool) -> list[Version]:
    """All that is compared on one graph."""

    def version(name: str, make: Callable[[], Any], adjacency: Any, **checks: Any) -> Version:
        def build() -> Run:
            return loop(make(), x, adjacency, training)

        return Version(name, build, **checks)

    def ours(hops: int, adjacency: Any, what: str = "", states: str = "full") -> Version:
        make = lambda: sta(hops, states=states).to(x.device)  # noqa: E731
        right = partial(error, hops, states, x, graph)
        name = f"STAConv, K = {hops}{what}"
        return version(name, make, adjacency, error=right, tolerance=TOLERANCE[states])

    def theirs(name: str, make: Callable[[], nn.Module]) -> Version:
        return version(name, lambda: make().to(x.device), edge_index)

    found = [theirs(name, make) for name, make in pyg_layers().items()]
    found += [ours(hops, graph) for hops in (1, 3, 10)]
    found += [ours(3, edge_index, ", raw edge_index")]
    if x.is_cuda:
        found += [ours(hops, graph, ", bfloat16 states", "bfloat16") for hops in (3, 10)]
        captured = lambda: torch.compile(sta(3).to(x.device), mode="reduce-overhead")  # noqa: E731
        found += [version("STAConv, K = 3, reduce-overhead", captured, graph)]
    return found


def show(title: str, found: dict[str, Measurement]) -> None:
    """A line for each layer."""
    print(f"\n{title}")
    for name, each in found.items():
        time = each.problem or f"{each.median:9.3f} ms"
        peak = "" if each.peak_bytes is None else f"{each.peak_bytes / 1e6:9.1f} MB"
        wrong = "" if each.relative_error is None else f"   error {each.relative_error:.0e}"
        print(f"{name:34}{time}{peak}{wrong}")


def render(result: dict[str, Any]) -> str:
    """Milliseconds of all layers as tables of markdown, a row for each graph."""
    lines = []
    for part in ("training", "inference"):
        names = list(next(iter(result["graphs"].values()))[part])
        lines += [f"| {part} | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        for graph, found in result["graphs"].items():
            times = [found[part][name]["median"] for name in names]
            lines.append(f"| {graph} | " + " | ".join(f"{time:.3g}" for time in times) + " |")
    return "\n".join(lines)


def main() -> None:
    command = parser(__doc__, device="auto", rounds=9, graphs="cora,physics,arxiv")
    command.add_argument("--render", action="store_true", help="print the results that are there")
    options = command.parse_args()
    if options.render:
        print(render(json.loads(options.out.read_text(encoding="utf-8"))))
        return
    device, result = choose_device(options.device), dict[str, Any]()
    for name in options.graphs.split(","):
        edge_index, nodes = edges(name)
        x = torch.randn(nodes, CHANNELS, generator=torch.Generator().manual_seed(0))
        x, edge_index = x.to(device).requires_grad_(), edge_index.to(device)
        graph = Graph(edge_index, nodes)
        result[name] = {"nodes": nodes, "edges": graph.num_edges}
        for part in ("training", "inference"):
            given = versions(x, edge_index, graph, part == "training")
            found = measure(given, device, options.rounds)
            show(f"{name}, {part}", found)
            result[name][part] = {layer: each.to_dict() for layer, each in found.items()}
    leave(options.out, {"rounds": options.rounds, "graphs": result}, device)


if __name__ == "__main__":
    main()
