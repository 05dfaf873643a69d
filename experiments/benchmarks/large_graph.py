"""What benchmarks on a large random graph share: the graph, the model, the options, the file."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from experiments.benchmarks.script import leave, parser
from subtree_attention import STAGNN, Config, Dataset, Graph, SavedRun

FEATURES, CLASSES, HEADS = 128, 10, 4
HOPS = (3, 5, 10)

Measure = Callable[[SavedRun, int], dict[str, Any]]


def main(description: str | None, roots: int, measure: Measure) -> None:
    """Call `measure(run, roots)` with models of 3, 5 and 10 hops; write a file."""
    edges = (1_000_000, "both directions counted")
    arguments = parser(description, nodes=100_000, edges=edges, roots=roots).parse_args()
    torch.manual_seed(0)
    half = torch.randint(arguments.nodes, (2, arguments.edges // 2))
    x, y = torch.randn(arguments.nodes, FEATURES), torch.randint(CLASSES, (arguments.nodes,))
    data = Dataset(x, torch.cat([half, half.flip(0)], dim=1), y, name="random")
    graph = Graph(data.edge_index, arguments.nodes)
    results = {hops: measure(_untrained(hops, data, graph), arguments.roots) for hops in HOPS}
    sizes = {"nodes": arguments.nodes, "edges": graph.num_edges, "roots": arguments.roots}
    sizes |= {"features": FEATURES, "classes": CLASSES, "heads": HEADS}
    leave(arguments.out, {**sizes, "hops": results}, load=round(os.getloadavg()[0], 1))


def _untrained(hops: int, data: Dataset, graph: Graph) -> SavedRun:
    """Not trained and in no folder: what is computed does not depend on the weights."""
    run = SavedRun(Path("untrained"), torch.device("cpu"))
    model = STAGNN(FEATURES, 64, CLASSES, hops=hops, heads=HEADS).eval()
    run.config, run.model = Config.of("random", hops=hops), model
    run.found = {"temperature": 1.0}
    run.dataset, run.graph = data, graph
    run.problem = run.task.problem(data, "B", 0)
    with torch.no_grad():
        run.logits = model(data.x, graph).double().numpy()
    return run
