"""How long references take, and what they reach: on graphs of the registry and on tag lists.

    python -m experiments.benchmarks.references --out results/references-cpu.json

The made graph has 40,000 nodes of four classes, each with some tags out of 30,000 that lean
towards its class, and edges that lead mostly to nodes of the same class. Splits are random,
60/20/20, seed 0.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import scipy.sparse
import torch

from experiments.benchmarks.script import leave, parser
from subtree_attention import datasets, references
from subtree_attention.config import NodeClassification
from subtree_attention.datasets import Dataset, Split, random_split
from subtree_attention.datasets.features import from_scipy
from subtree_attention.tasks import Problem, of


def main() -> None:
    arguments = parser(
        __doc__, graphs="deezer,pubmed,actor", nodes=40_000, tags=30_000
    ).parse_args()
    names = arguments.graphs.split(",")
    graphs = {name: datasets.load(name) for name in names}
    graphs["tags"] = tag_lists(arguments.nodes, arguments.tags)
    results = {}
    for name, data in graphs.items():
        results[name] = measure(data)
        print(f"{name}: {results[name]['seconds']:.1f} s", flush=True)
        for one in results[name]["references"]:
            print(f"  {one['words']}: {one['val']:.4f} {one['test']:.4f} {one['seconds']:.1f} s")
    leave(arguments.out, {"graphs": results})


def measure(data: Dataset) -> dict[str, Any]:
    """All references of a graph on one split."""
    task = of(NodeClassification())
    split: Split = random_split(data.num_nodes, "B", 0)
    start = time.perf_counter()
    found = references.compare(data, task, Problem(data, data.y, split, {}))
    sizes = {"nodes": data.num_nodes, "edges": data.num_edges, "columns": data.x.size(1)}
    return {"seconds": time.perf_counter() - start, **sizes, **found.to_dict()}


def tag_lists(nodes: int, tags: int, classes: int = 4) -> Dataset:
    """Nodes with tags and edges that both say something of their class."""
    random = np.random.default_rng(0)
    y = random.integers(classes, size=nodes)
    counts = random.poisson(25, size=nodes)
    rows = np.repeat(np.arange(nodes), counts)
    popular = (tags * random.random(len(rows)) ** 3).astype(np.int64)
    leaning = random.random(len(rows)) < 0.1
    columns = np.where(leaning, popular // classes * classes + y[rows], popular).clip(max=tags - 1)
    x = scipy.sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(nodes, tags))
    ends = random.integers(nodes, size=(2, 12 * nodes))
    kept = (y[ends[0]] == y[ends[1]]) | (random.random(12 * nodes) < 0.3)
    ends = ends[:, kept][:, : 5 * nodes]
    edges = np.unique(np.concatenate([ends, ends[::-1]], 1), axis=1)
    return Dataset(from_scipy(x), torch.from_numpy(edges), torch.from_numpy(y), name="tags")


if __name__ == "__main__":
    main()
