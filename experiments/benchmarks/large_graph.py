"""What benchmarks on a large random graph share: the graph, the model, the options, the file."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from subtree_attention import STAGNN, Graph
from subtree_attention.runs.folder import environment, write_json

FEATURES, CLASSES, HEADS = 128, 10, 4
HOPS = (3, 5, 10)

Measure = Callable[[STAGNN, Data, Graph, int], dict[str, Any]]


def main(description: str, roots: int, measure: Measure) -> None:
    """Call `measure(model, data, graph, roots)` with models of 3, 5 and 10 hops; write a file."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000, help="both directions counted")
    parser.add_argument("--roots", type=int, default=roots)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    half = torch.randint(arguments.nodes, (2, arguments.edges // 2))
    x, y = torch.randn(arguments.nodes, FEATURES), torch.randint(CLASSES, (arguments.nodes,))
    data = Data(x, torch.cat([half, half.flip(0)], dim=1), y=y)
    graph = Graph(data.edge_index, arguments.nodes)
    results = {hops: measure(_untrained(hops), data, graph, arguments.roots) for hops in HOPS}
    sizes = {"nodes": arguments.nodes, "edges": graph.num_edges, "roots": arguments.roots}
    sizes |= {"features": FEATURES, "classes": CLASSES, "heads": HEADS}
    about = environment(torch.device("cpu")) | {"load": round(os.getloadavg()[0], 1)}
    write_json(arguments.out, {**sizes, "hops": results, "environment": about})
    print(f"written to {arguments.out}")


def _untrained(hops: int) -> STAGNN:
    """Not trained: what is computed does not depend on the weights."""
    return STAGNN(FEATURES, 64, CLASSES, hops=hops, heads=HEADS).eval()
