"""How long explaining one root takes on a random graph, with what is kept for all roots built.

    python benchmarks/explain.py --out results/explain-cpu.json

"explanation" is all parts by hop and head; "importance" the sum of every node's contributions to
a class; "report" what `sta explain` tells: the first five nodes of each level and their walks.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from subtree_attention import STAGNN, Explainer, Graph
from subtree_attention.explain.report import Names, to_dict
from subtree_attention.train.folder import environment, write_json

FEATURES, CLASSES, HEADS = 128, 10, 4
HOPS = (3, 5, 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000, help="both directions counted")
    parser.add_argument("--roots", type=int, default=15)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    half = torch.randint(arguments.nodes, (2, arguments.edges // 2))
    edge_index = torch.cat([half, half.flip(0)], dim=1)
    graph, x = Graph(edge_index, arguments.nodes), torch.randn(arguments.nodes, FEATURES)
    data = Data(x, edge_index)
    results = {hops: measure(hops, data, graph, arguments.roots) for hops in HOPS}
    sizes = {"nodes": arguments.nodes, "edges": graph.num_edges, "roots": arguments.roots}
    sizes |= {"features": FEATURES, "classes": CLASSES, "heads": HEADS}
    about = environment(torch.device("cpu"))
    write_json(arguments.out, {**sizes, "hops": results, "environment": about})
    print(f"written to {arguments.out}")


def measure(hops: int, data: Data, graph: Graph, roots: int) -> dict[str, Any]:
    """Median milliseconds over the first roots, after one that is not counted."""
    model = STAGNN(FEATURES, 64, CLASSES, hops=hops, heads=HEADS).eval()
    built, explainer = timed(lambda: Explainer(model, data.x, graph))
    names, times = Names(data, CLASSES), []
    for root in range(roots + 1):
        explained, explanation = timed(lambda root=root: explainer(root))
        summed, _ = timed(lambda why=explanation: why.importance(why.predicted))
        told, _ = timed(lambda why=explanation: to_dict(why, names))
        times.append((explained, summed, told))
    columns = zip(*times[1:], strict=True)
    medians = [round(statistics.median(column), 2) for column in columns]
    result = dict(zip(("explanation", "importance", "report"), medians, strict=True))
    result |= {"build": round(built, 2), "reached": len(explanation.levels[-1].nodes)}
    print(f"{hops} hops: " + ", ".join(f"{name} {value}" for name, value in result.items()))
    return result


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds, and the result."""
    started = time.perf_counter()
    result = call()
    return 1e3 * (time.perf_counter() - started), result


if __name__ == "__main__":
    main()
