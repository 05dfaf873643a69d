"""A layer with edge features in somebody's own loop: PyG's beside STAConv with gated edges.

    python -m experiments.benchmarks.edge_gates --out results/edge-gates-cpu.json

A batch of made-up molecules: trees in which a node has few neighbours, some rings, and four kinds
of bonds, one column each. GATConv and STAConv walk on loops besides. Every layer takes 64 channels
to 64, with 4 heads where it has heads, and gives gradients of x, of the features of edges and of
all weights. Times are wall clock of a plain loop that does not wait between steps; the graph is
prepared once where a layer can (a `Graph`). STAConv is compared with float64 first; its rows
without edge features say what the gates cost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GINEConv, TransformerConv

from experiments.bench.measure import Run, Version, measure, relative_error
from experiments.benchmarks.layers import CHANNELS, HEADS, TOLERANCE, loop, show
from experiments.benchmarks.script import leave, parser
from subtree_attention import Graph, STAConv
from subtree_attention.runs.environment import choose_device

BONDS = 4


def molecules(count: int, atoms: int, seed: int = 0) -> tuple[Tensor, Tensor, int]:
    """Edges [2, E] both ways, their kinds [E, BONDS] and the number of nodes of many trees of so
    many atoms, each with two rings."""
    generator = torch.Generator().manual_seed(seed)
    child = torch.arange(1, atoms).expand(count, -1)
    back = torch.randint(1, 4, child.shape, generator=generator)  # hangs on one of the last three
    rings = torch.randint(0, atoms - 5, (count, 2), generator=generator)
    ends = torch.cat([child, rings + 5], 1), torch.cat([(child - back).clamp_min(0), rings], 1)
    first = torch.arange(count)[:, None] * atoms
    source, target = ((end + first).flatten() for end in ends)
    kind = torch.randint(0, BONDS, source.shape, generator=generator)
    both = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
    kinds = torch.nn.functional.one_hot(torch.cat([kind, kind]), BONDS).float()
    return both, kinds, count * atoms


class Along(nn.Module):
    """A layer with the features of edges that it is called with."""

    def __init__(self, layer: nn.Module, edge_attr: Tensor | None) -> None:
        super().__init__()
        self.layer, self.edge_attr = layer, edge_attr

    def forward(self, x: Tensor, adjacency: Any) -> Tensor:
        extra = {} if self.edge_attr is None else {"edge_attr": self.edge_attr}
        return self.layer(x, adjacency, **extra)


def pyg_layers() -> dict[str, Callable[[], nn.Module]]:
    """Layers of PyG that take features of edges."""
    each, edges = CHANNELS // HEADS, {"edge_dim": BONDS}
    between = partial(nn.Linear, CHANNELS, CHANNELS)
    return {
        "GATConv": lambda: GATConv(CHANNELS, each, HEADS, **edges),
        "GINEConv": lambda: GINEConv(nn.Sequential(between(), nn.ReLU(), between()), **edges),
        "TransformerConv": lambda: TransformerConv(CHANNELS, each, HEADS, **edges),
    }


def sta(hops: int, edge_dim: int | None = BONDS, **options: Any) -> STAConv:
    """The same weights for the same hops."""
    torch.manual_seed(0)
    layer = STAConv(CHANNELS, CHANNELS, hops, HEADS, edge_dim=edge_dim, **options)
    for parameter in () if layer.edge_gate is None else layer.edge_gate.parameters():
        nn.init.normal_(parameter)
    return layer


def error(hops: int, x: Tensor, graph: Graph, edge_attr: Tensor) -> float:
    """Of the output and of the gradients of x, edge features and weights, against float64."""
    found = []
    for dtype, backend in ((x.dtype, "auto"), (torch.float64, "torch")):
        layer = sta(hops, backend=backend).to(x.device, dtype)
        own = [tensor.detach().to(dtype).requires_grad_() for tensor in (x, edge_attr)]
        out = layer(own[0], graph, edge_attr=own[1])
        out.backward(torch.ones_like(out))
        found.append([out.detach(), *(leaf.grad for leaf in (*own, *layer.parameters()))])
    return relative_error(*found)


def versions(
    x: Tensor, edge_index: Tensor, edge_attr: Tensor, graph: Graph, training: bool
) -> list[Version]:
    """All that is compared."""

    def version(name: str, make: Callable[[], nn.Module], adjacency: Any, **checks: Any) -> Version:
        attr = None if "no edge features" in name else edge_attr

        def build() -> Run:
            return loop(Along(make().to(x.device), attr), x, adjacency, training)

        return Version(name, build, **checks)

    found = [version(name, make, edge_index) for name, make in pyg_layers().items()]
    for hops in (1, 3):
        name, plain = f"STAConv, K = {hops}", partial(sta, hops, None)
        checks = {
            "error": partial(error, hops, x, graph, edge_attr),
            "tolerance": TOLERANCE["full"],
        }
        found += [version(name, partial(sta, hops), graph, **checks)]
        found += [version(f"{name}, no edge features", plain, graph)]
    return found


def main() -> None:
    options = parser(__doc__, device="auto", rounds=9, molecules=128, atoms=24).parse_args()
    device, result = choose_device(options.device), dict[str, Any]()
    edge_index, edge_attr, nodes = molecules(options.molecules, options.atoms)
    x = torch.randn(nodes, CHANNELS, generator=torch.Generator().manual_seed(0))
    x, edge_index, edge_attr = (tensor.to(device) for tensor in (x, edge_index, edge_attr))
    graph = Graph(edge_index, nodes, self_loops=True)
    for part in ("training", "inference"):
        x.requires_grad_(part == "training")
        edge_attr.requires_grad_(part == "training")
        given = versions(x, edge_index, edge_attr, graph, part == "training")
        found = measure(given, device, options.rounds)
        show(f"{nodes:,} nodes, {graph.num_edges:,} edges, {part}", found)
        result[part] = {layer: each.to_dict() for layer, each in found.items()}
    sizes = {"nodes": nodes, "edges": graph.num_edges, "molecules": options.molecules}
    leave(options.out, {"rounds": options.rounds, **sizes, **result}, device)


if __name__ == "__main__":
    main()
