"""Steps on samples beside steps on the whole graph: scores, epochs, and seconds to get there.

    python -m experiments.benchmarks.sampled --out results/sampled-cpu.json

What is in the file already stays, and graphs are added to it one by one.
Each graph is trained both ways with its recipe, on the same split, one after the other, until
patience, `--minutes` or `--epochs` end it. A way is "there" at the first epoch whose validation
score is within half a point of the best that either way reached. `planted` is a made-up graph of
10^6 nodes and 10^7 directed edges with ten planted classes; others are of the registry.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch

from experiments.benchmarks.script import CPU, leave, parser, prepare
from subtree_attention import planted, recipe
from subtree_attention.config import Config
from subtree_attention.datasets import Dataset
from subtree_attention.io import read_json
from subtree_attention.train.large import BATCH
from subtree_attention.train.run import Material, Run

PLANTED: dict[str, Any] = {"nodes": 10**6, "edges": 5 * 10**6, "classes": 10, "features": 32}
HALF_A_POINT = 0.005
WHOLE, SAMPLED = "whole", "sampled"


def main() -> None:
    options = parser(
        __doc__,
        graphs="pubmed,computer,planted",
        batch=(BATCH, "training nodes of a step on samples"),
        epochs=(10**6, "at most, beside patience"),
        minutes=(30.0, "at most for one way on one graph"),
        ways=(f"{WHOLE},{SAMPLED}", "which of them"),
        under=("", "what the graph is called in the file, if not by its name"),
        threads=2,
    ).parse_args()
    torch.set_num_threads(options.threads)
    found = read_json(options.out)["graphs"] if options.out.exists() else {}
    for name in options.graphs.split(","):
        ways, dataset = graph_of(name, options.batch)
        curves = {
            way: curve(dataset, ways[way], options.epochs, 60 * options.minutes)
            for way in options.ways.split(",")
        }
        found[options.under or name] = {
            "settings": {way: ways[way].flat() for way in curves},
            **compared(curves),
            "curves": curves,
        }
        print(name, *(found[options.under or name][way] for way in curves), flush=True)
        leave(options.out, {"graphs": found}, load=round(os.getloadavg()[0], 1))


def graph_of(name: str, batch: int) -> tuple[dict[str, Config], Dataset]:
    """A graph, and the two ways to train on it."""
    dataset = planted(**PLANTED, seed=0) if name == "planted" else None
    about = {} if dataset is None else {"graph": name}
    known: Any = name if dataset is None else dataset
    ways = {
        way: recipe(known, encoding=0, runs=1, **about, **more)
        for way, more in {WHOLE: {}, SAMPLED: {"batch": batch}}.items()
    }
    return ways, prepare(ways[WHOLE]) if dataset is None else dataset


def curve(dataset: Dataset, config: Config, epochs: int, seconds: float) -> list[dict[str, float]]:
    """Scores after each epoch, with the seconds since training began."""
    material = Material(dataset, config, CPU)
    problem = material.problem(config.fit.seed)
    torch.manual_seed(config.fit.seed)
    trainer = material.trainer(material.network(), problem, False, config.fit.seed)
    run = Run(config.data.graph, trainer, min(epochs, config.fit.epochs), config.fit.patience)
    start, rows = time.perf_counter(), []
    while run.epochs_left and time.perf_counter() - start < seconds:
        run.advance()
        run.record()
        took, last = time.perf_counter() - start, run.history[-1]
        rows.append({"seconds": round(took, 2), "val": last.val, "test": last.test})
    return rows


def compared(curves: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Of each way its best epoch, and when it was within half a point of the best of both."""
    bests = {way: max(rows, key=lambda row: row["val"]) for way, rows in curves.items()}
    bar = max(best["val"] for best in bests.values()) - HALF_A_POINT
    found: dict[str, Any] = {}
    for way, rows in curves.items():
        there = next((n for n, row in enumerate(rows, 1) if row["val"] >= bar), None)
        found[way] = {
            "val": bests[way]["val"],
            "test": bests[way]["test"],
            "epochs": len(rows),
            "seconds": rows[-1]["seconds"],
            "there_epochs": there,
            "there_seconds": None if there is None else rows[there - 1]["seconds"],
        }
    return found


if __name__ == "__main__":
    main()
