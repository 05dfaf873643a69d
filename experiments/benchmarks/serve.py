"""How long answers about single nodes take, from their subtrees and over HTTP.

    python -m experiments.benchmarks.serve --out results/serve-cpu.json

A made graph (`planted`) with hubs, and a model that is not trained: what is computed does not
depend on its weights. Nodes of the graph are drawn at random; new ones have ten edges, to nodes at
random and to ends of random edges, which are hubs more often. Beside them the whole graph with the
new nodes, as `sta predict --join` computes it, whose probabilities must be the same. Over HTTP 50
clients ask in a process of their own, on the same cores. All is on 127.0.0.1, and ends.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.benchmarks.clients import spread
from experiments.benchmarks.script import leave, parser
from subtree_attention import STAGNN, Config, Dataset, Graph, SavedRun, planted
from subtree_attention.datasets.tables.columns import Vector
from subtree_attention.datasets.tables.edges import Ends
from subtree_attention.datasets.tables.schema import TableSchema
from subtree_attention.nn import set_memory
from subtree_attention.runs.answering import Answering
from subtree_attention.runs.folder import RunResult
from subtree_attention.serve.server import Desk, server
from subtree_attention.show.pages.serving import address, listen, serving

FEATURES, CLASSES, HIDDEN, HEADS, HOPS = 32, 10, 64, 4, 3
LINKS, BATCH, CLIENTS = 10, 100, 50
Rows = list[dict[str, Any]]


def main() -> None:
    nodes = (1_000_000, "of the graph")
    edges = (5_000_000, "each in both directions")
    asked = (300, "nodes of each kind that are asked for one by one")
    requests = (20, "of each client")
    sizes: Any = {"nodes": nodes, "edges": edges, "asked": asked, "requests": requests}
    made = parser(__doc__, **sizes, memory=("6GB", "of the whole graph's walk"))
    given = made.parse_args()
    chance = np.random.default_rng(0)
    run = untrained(planted(given.nodes, given.edges, CLASSES, FEATURES))
    result: dict[str, Any] = {"nodes": given.nodes, "edges": 2 * given.edges, "hops": HOPS}
    result |= {"features": FEATURES, "classes": CLASSES, "hidden": HIDDEN, "heads": HEADS}
    few = new_nodes(run.dataset, BATCH, chance, by_degree=True)
    result["whole"], expected = whole(run, few, given.memory)
    for name, memory in (("states kept", None), ("no states", 0)):
        started = time.perf_counter()
        answering = run.answering(memory=memory)
        found: dict[str, Any] = {"start_seconds": round(time.perf_counter() - started, 2)}
        off = abs(answering.new(*few).probabilities - expected).max()
        found["largest_difference_from_the_whole"] = float(off)
        assert off < 1e-6, off
        found |= measure(answering, given.asked, chance)
        if memory is None:
            found["http"] = over_http(answering, given.requests, chance)
        result[name] = found
        print(name, json.dumps(found, indent=1))
        del answering
        gc.collect()
    leave(given.out, result, load=round(os.getloadavg()[0], 1), threads=torch.get_num_threads())


def untrained(data: Dataset) -> SavedRun:
    """Not trained and in no folder; its features are a column of lists."""
    column = Vector("x", [0.0] * FEATURES, [1.0] * FEATURES, False)
    schema = TableSchema("id", None, Ends("source", "target"), False, (column,))
    run = SavedRun(Path("untrained"), torch.device("cpu"))
    torch.manual_seed(0)
    run.model = STAGNN(FEATURES, HIDDEN, CLASSES, hops=HOPS, heads=HEADS).eval()
    run.config, run.found = Config.of("planted", hops=HOPS, encoding=0), {"temperature": 1.0}
    run.result = RunResult(0, 0, 0.0, 0.0, 0, 0, 0.0)
    run.dataset = replace(data, schema=schema)
    run.graph = Graph.from_data(run.dataset)
    run.problem = run.task.problem(run.dataset, "own", 0)
    run._header = {"sizes": {"in_channels": FEATURES, "out_channels": CLASSES}}
    return run


def new_nodes(
    data: Dataset, count: int, chance: np.random.Generator, by_degree: bool
) -> tuple[Rows, Rows]:
    """Rows of new nodes and of their edges."""
    most = data.num_edges if by_degree else data.num_nodes
    drawn = chance.integers(0, most, (count, LINKS))
    targets = data.edge_index[0].numpy()[drawn] if by_degree else drawn
    x = chance.standard_normal((count, FEATURES)).round(4).tolist()
    nodes = [{"id": f"new-{i}", "x": row} for i, row in enumerate(x)]
    edges = [
        {"source": f"new-{i}", "target": str(target)}
        for i, row in enumerate(targets.tolist())
        for target in dict.fromkeys(row)
    ]
    return nodes, edges


def whole(run: SavedRun, new: tuple[Rows, Rows], memory: str) -> tuple[dict[str, Any], np.ndarray]:
    """The graph with new nodes in one piece: seconds, and their probabilities."""
    nodes, edges = ({name: [row[name] for row in rows] for name in rows[0]} for rows in new)
    set_memory(run.model, memory)
    started = time.perf_counter()
    joined, start = run.read_tables(nodes, edges, join=True)
    read = time.perf_counter() - started
    shares = run.on(joined, True).probabilities[start:]
    seconds = time.perf_counter() - started
    set_memory(run.model, None)
    found = {"new_nodes": len(shares), "memory": memory}
    found |= {"join_seconds": round(read, 2), "seconds": round(seconds, 2)}
    print("whole", found)
    return found, shares


def measure(answering: Answering, count: int, chance: np.random.Generator) -> dict[str, Any]:
    """Nodes of the graph and new ones, one by one and in batches."""
    ids = [str(node) for node in chance.integers(0, answering.dataset.num_nodes, count)]
    answering.nodes(ids[:1])
    groups = [ids[start : start + BATCH] for start in range(0, count, BATCH)]
    found = {
        "nodes one by one": one_by_one([partial(answering.nodes, [id]) for id in ids]),
        f"nodes in batches of {BATCH}": in_batches(
            [partial(answering.nodes, some) for some in groups], count
        ),
    }
    for by_degree in (False, True):
        rows = [new_nodes(answering.dataset, 1, chance, by_degree) for _ in range(count)]
        kind = f"new, edges {'by degree' if by_degree else 'at random'}"
        calls = [partial(answering.new, *row) for row in rows]
        found[f"{kind}, one by one"] = one_by_one(calls)
        batches = [
            new_nodes(answering.dataset, BATCH, chance, by_degree)
            for _ in range(max(1, count // BATCH))
        ]
        several = [partial(answering.new, *row) for row in batches]
        found[f"{kind}, in batches of {BATCH}"] = in_batches(several, BATCH * len(batches))
    return found


def one_by_one(calls: Sequence[Callable[[], Any]]) -> dict[str, float]:
    times = []
    for call in calls:
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return {"nodes_a_second": round(len(times) / sum(times), 1), **spread(times)}


def in_batches(calls: Sequence[Callable[[], Any]], count: int) -> dict[str, float]:
    started = time.perf_counter()
    for call in calls:
        call()
    return {"nodes_a_second": round(count / (time.perf_counter() - started), 1)}


# ------------------------------------------------------------------------------------------ HTTP


def over_http(answering: Answering, requests: int, chance: np.random.Generator) -> dict[str, Any]:
    """50 clients at a time, each with a connection of its own; first one client, to compare."""
    data = answering.dataset
    bodies: dict[str, list[Any]] = {"nodes": [], "new": []}
    for _ in range(200):
        bodies["nodes"].append({"ids": [str(chance.integers(0, data.num_nodes))]})
        nodes, edges = new_nodes(data, 1, chance, by_degree=True)
        bodies["new"].append({"nodes": nodes, "edges": edges})
    found: dict[str, Any] = {}
    with served(answering) as url:
        for kind, some in bodies.items():
            for clients in (1, CLIENTS):
                asked = {"url": url, "clients": clients, "requests": requests, "bodies": some}
                command = [sys.executable, str(Path(__file__).with_name("clients.py"))]
                done = subprocess.run(
                    command,
                    input=json.dumps(asked),
                    capture_output=True,
                    text=True,
                    check=True,
                    timeout=600,
                )
                found[f"{kind}, {clients} clients"] = json.loads(done.stdout)
    return found


@contextmanager
def served(answering: Answering) -> Iterator[str]:
    desk = Desk(answering)
    with listen(0) as listening, serving(server(desk, listening), listening):
        yield address(listening)
    desk.close()


if __name__ == "__main__":
    main()
