"""How near the time and memory that are said before training come to what it then takes.

    python -m experiments.benchmarks.estimate --threads 1 --out results/estimate-cpu.json

Made graphs of several sizes, each in a fresh process on the CPU. Seconds are those of the
processor, so that what else runs on the machine does not count, of the quickest of a few epochs;
memory is the largest since the graph was made. Linux only.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix

from experiments.benchmarks.script import CPU, leave, parser
from subtree_attention.datasets import Dataset
from subtree_attention.datasets.features import from_scipy
from subtree_attention.train import estimate
from subtree_attention.train.recipes import recipe
from subtree_attention.train.run import Material

CASES: dict[str, dict[str, Any]] = {
    "tiny": {"nodes": 200, "edges": 500, "features": 10, "classes": 2},
    "small": {"nodes": 2_000, "edges": 5_000, "features": 50, "classes": 3},
    "middle": {"nodes": 10_000, "edges": 50_000, "features": 50, "classes": 5},
    "dense": {"nodes": 5_000, "edges": 200_000, "features": 20, "classes": 4},
    "tags": {"nodes": 20_000, "edges": 100_000, "features": 3_000, "classes": 4, "sparse": True},
    "wide": {"nodes": 5_000, "edges": 40_000, "features": 1_500, "classes": 10},
    "large": {"nodes": 100_000, "edges": 500_000, "features": 20, "classes": 5},
    "classes": {"nodes": 3_000, "edges": 10_000, "features": 20, "classes": 300},
}
MODELS = ("stagnn", "staformer")
EPOCHS = 2


def main() -> None:
    command = parser(__doc__, threads=(1, "of torch"), case="", model="")
    command.add_argument("cases", nargs="*", default=list(CASES))
    options = command.parse_args()
    if options.case:  # the fresh process
        print(json.dumps(measured(options.case, options.model, options.threads)))
        return
    results: dict[str, Any] = {}
    for case in options.cases:
        for model in MODELS:
            given = ["--case", case, "--model", model, "--threads", str(options.threads)]
            child = [sys.executable, "-m", __spec__.name, *given, "--out", str(options.out)]
            done = subprocess.run(child, capture_output=True, encoding="utf-8", check=False)
            if done.returncode:
                sys.exit(done.stderr)
            found = results[f"{case} {model}"] = json.loads(done.stdout)
            ratios = {name: found[name]["ratio"] for name in ("seconds", "mib")}
            print(f"{case} {model}: said by taken {ratios}", flush=True)
            leave(options.out, {"cases": CASES, "threads": options.threads, "found": results})


def measured(case: str, model: str, threads: int) -> dict[str, Any]:
    """What is said, what is taken, and their ratio."""
    torch.set_num_threads(threads)
    dataset = made(**CASES[case])
    config = recipe(dataset, graph="made", model=model)
    before = time.process_time()
    fast = estimate.speed(CPU, threads, time.process_time)
    probe = time.process_time() - before
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the largest from here on
    resident = _status("VmRSS")
    material = Material(dataset, config, CPU)
    trainer = material.trainer(material.network(), material.problem(0), capture=False)
    trainer.epoch()
    taken = []
    for _ in range(EPOCHS):
        start = time.process_time()
        trainer.epoch()
        taken.append(time.process_time() - start)
    said = estimate.estimate(dataset, config, CPU, fast=fast)
    held = _status("VmHWM") - resident
    return {
        "seconds": _beside(said.seconds, min(taken)),
        "mib": _beside(said.bytes / 2**20, held / 2**20),
        "hidden_channels": config.flat()["hidden_channels"],
        "probe_seconds": round(probe, 3),
    }


def _beside(said: float, taken: float) -> dict[str, float]:
    return {"said": round(said, 4), "taken": round(taken, 4), "ratio": round(said / taken, 2)}


def _status(name: str) -> int:
    """Bytes that the system counts of this process."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def made(nodes: int, edges: int, features: int, classes: int, sparse: bool = False) -> Dataset:
    """A graph without any order: edges between random nodes, both ways."""
    random = np.random.default_rng(0)
    index = torch.from_numpy(random.integers(0, nodes, (2, edges)))
    if sparse:
        rows, some = np.arange(nodes).repeat(20), random.integers(0, features, 20 * nodes)
        x = from_scipy(csr_matrix((np.ones(20 * nodes), (rows, some)), (nodes, features)))
    else:
        x = torch.from_numpy(random.normal(size=(nodes, features)).astype(np.float32))
    y = torch.from_numpy(np.arange(nodes) % classes)
    return Dataset(x=x, edge_index=torch.cat([index, index.flip(0)], 1), y=y, name="made")


if __name__ == "__main__":
    main()
