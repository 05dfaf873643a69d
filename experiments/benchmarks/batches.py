"""New graphs at every step: three layers over a `DataLoader` of ENZYMES, beside three GATConvs.

    python -m experiments.benchmarks.batches --out results/batches-h200.json

The layers of a model share the edge_index of a batch, and no two steps have one in common; forward
and backward of the layers are timed, eager, without waiting between steps. "Prepared" layers get a
Graph that is there already: what is between the two is the building of Graphs.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.datasets import TUDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv

from experiments.bench.measure import Run, Version, measure
from experiments.benchmarks.script import leave, parser
from subtree_attention import Graph, STAConv
from subtree_attention.datasets.folders import mirror_folder
from subtree_attention.runs.environment import choose_device

CHANNELS, HEADS, LAYERS, HOPS = 64, 4, 3, 3


def load(size: int) -> list[Batch]:
    """The batches of an epoch; raw files come from the mirror if there is one."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        raw = Path("ENZYMES", "raw")
        mirror = mirror_folder()
        if mirror is not None:
            shutil.copytree(mirror / "TUDataset" / raw, Path(name) / raw)
        return list(DataLoader(TUDataset(name, "ENZYMES"), batch_size=size, shuffle=True))


def gat() -> nn.Module:
    return GATConv(CHANNELS, CHANNELS // HEADS, heads=HEADS)


def sta() -> nn.Module:
    return STAConv(CHANNELS, CHANNELS, HOPS, HEADS)


def epochs(
    make: Callable[[], nn.Module],
    batches: list[tuple[Tensor, Tensor]],
    adjacency: Callable[[Tensor, int], Any],
) -> Run:
    """So many epochs of a stack of layers, each batch with an edge_index of its own."""
    torch.manual_seed(0)
    layers = nn.ModuleList(make() for _ in range(LAYERS)).to(batches[0][0].device)
    leaves = list(layers.parameters())

    def run(times: int) -> None:
        for x, edge_index in batches * times:
            edges = adjacency(edge_index, x.size(0))
            for layer in layers:
                x = layer(x, edges).relu()
            for leaf in leaves:
                leaf.grad = None
            x.sum().backward()

    return run


def versions(batches: list[tuple[Tensor, Tensor]]) -> list[Version]:
    """What is compared on the same batches."""
    graphs = {id(edges): Graph(edges, x.size(0)) for x, edges in batches}

    def version(name: str, make: Callable[[], nn.Module], adjacency: Any) -> Version:
        return Version(name, lambda: epochs(make, batches, adjacency))

    return [
        version("GATConv", gat, lambda edges, nodes: edges.clone()),
        version("STAConv", sta, lambda edges, nodes: edges.clone()),
        version("STAConv, prepared", sta, lambda edges, nodes: graphs[id(edges)]),
    ]


def main() -> None:
    arguments = parser(__doc__, batch=128, rounds=20, device="auto").parse_args()
    device = choose_device(arguments.device)
    batches = [
        (torch.randn(each.num_nodes, CHANNELS, device=device), each.edge_index.to(device))
        for each in load(arguments.batch)
    ]
    found = measure(versions(batches), device, arguments.rounds)
    times = {name: each.median for name, each in found.items()}
    result = {name: time and time / len(batches) for name, time in times.items()}
    for name, time in result.items():
        print(f"{name:20} {found[name].problem or f'{time:.3f} ms a batch'}")
    ratio = None
    if (ours := result["STAConv"]) and (theirs := result["GATConv"]):
        ratio = ours / theirs
        print(f"STAConv takes {ratio:.2f} times as long as GATConv")
    sizes = {"graphs": arguments.batch, "layers": LAYERS, "hops": HOPS, "channels": CHANNELS}
    about = {**sizes, "heads": HEADS, "batches": len(batches)}
    leave(arguments.out, {**about, "milliseconds a batch": result, "ratio": ratio}, device)


if __name__ == "__main__":
    main()
