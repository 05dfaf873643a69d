"""A budget of memory, held against what is taken: peaks, times, and the cost of an edge.

    python -m experiments.benchmarks.memory --out results/memory-cpu.json
    python -m experiments.benchmarks.memory --device cuda --out results/memory-h200.json

Made graphs (`planted`), each case in a fresh process. `steps`: a step of training and an evaluation
of STAGNN without a budget, then with all, half and a quarter of what that took; on a CPU the growth
of the peak resident set (Linux only), on a GPU what its allocator reserved, and seconds of the
processor or of the GPU, the quickest of a few. `epochs`: an epoch of training with a budget as
`sta train --memory` has it, and the peak of the whole process. `edges`: forward and backward pass
of the operator on 10^6 to 10^8 edges, on a GPU recorded and replayed as `sta train` does.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from experiments.benchmarks.estimate import _status
from experiments.benchmarks.script import leave, parser
from subtree_attention import STAGNN, Dataset, Graph, planted, recipe, subtree_attention
from subtree_attention.nn import set_memory
from subtree_attention.train.estimate import resident
from subtree_attention.train.run import Material

SIZES: dict[str, Any] = {"hidden_channels": 64, "hops": 3, "heads": 4, "dropout": 0.5}
ROUNDS = 3
SHARES = (1, 2, 4)
DEGREE, HOPS = 50, 2
LAYERS = {"cpu": [(1, 8, 31)], "cuda": [(1, 8, 31), (4, 16, 15)]}
"""Heads, key channels and value channels of the operator whose edges are counted."""
EPOCHS = {
    "cpu": [("arxiv", "3GB", True)],
    "cuda": [("products", "24GB", True), ("products", "12GB", False)],
}
"""Shape, budget, and whether it is trained: else it is evaluated."""


def main() -> None:
    command = parser(
        __doc__,
        device="cpu",
        shape=("arxiv", "of steps: a name, or nodes,edges,classes,features; '-': none"),
        edges=("1e6,1e7,1e8", "of the operator, both directions counted"),
        epochs=("", "shape and budget of epochs, as arxiv,3GB; '-': none"),
        threads=(2, "of torch, on a CPU"),
        case="",
    )
    options = command.parse_args()
    device = torch.device(options.device)
    if options.case:  # the fresh process
        torch.set_num_threads(options.threads)
        case = json.loads(options.case)
        print(json.dumps(CASES[case.pop("what")](device=device, **case)))
        return

    def measured(**case: Any) -> Any:
        given = ["--device", options.device, "--threads", str(options.threads)]
        child = [sys.executable, "-m", __spec__.name, *given, "--case", json.dumps(case)]
        child += ["--out", str(options.out)]
        done = subprocess.run(child, capture_output=True, encoding="utf-8", check=False)
        if done.returncode:
            failed.append(done.stderr)
            return {"failed": done.stderr.strip().splitlines()[-1]}
        found = json.loads(done.stdout.splitlines()[-1])
        print(case, found, flush=True)
        return found

    failed: list[str] = []
    results: dict[str, Any] = {"model": SIZES, "shape": options.shape}
    for training in (True, False) if options.shape != "-" else ():
        name = "training" if training else "evaluation"
        how = {"what": "step", "shape": options.shape, "training": training}
        results[name] = {"without": (without := measured(**how))}
        if "failed" in without:
            continue
        budgets = [int(without["peak"]) // share for share in SHARES]
        each = {f"1/{n}": measured(**how, memory=b) for n, b in zip(SHARES, budgets, strict=True)}
        results[name] |= each
    wanted = EPOCHS[device.type]
    if options.epochs:
        shape, _, memory = options.epochs.rpartition(",")
        wanted = [] if options.epochs == "-" else [(shape, memory, True)]
    results["epochs"] = [
        measured(what="epoch", shape=shape, memory=memory, training=training)
        for shape, memory, training in wanted
    ]
    counts = [int(float(count)) for count in options.edges.split(",")]
    results["edges"] = [measured(what="operator", edges=count) for count in counts]
    leave(options.out, results, device, load=round(os.getloadavg()[0], 1))
    if failed:
        sys.exit("\n".join(failed))


# ----------------------------------------------------------------------------- in a fresh process


def graph_of(shape: str) -> Dataset:
    """By the name of a shape, or by nodes,edges,classes,features."""
    return planted(*map(int, shape.split(","))) if "," in shape else planted(shape)


class Peak:
    """The most memory from here on: on a CPU beyond what is resident, on a GPU all that is
    reserved."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.before = device, 0
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
        else:
            Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
            self.before = _status("VmRSS")

    def bytes(self) -> int:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_reserved(self.device)
        return _status("VmHWM") - self.before


def now(device: torch.device) -> float:
    """Seconds of the processor, so that what else runs does not count; on a GPU of the clock."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return time.perf_counter()
    return time.process_time()


def step(
    device: torch.device,
    shape: str,
    training: bool,
    memory: int | None = None,
    rounds: int = ROUNDS,
) -> Any:
    """A step of training, or an evaluation, within a budget for all but features and graph."""
    data = graph_of(shape).to(device)
    graph = Graph(data.edge_index, data.num_nodes)
    for matrix in (graph.matrix, graph.transpose):
        matrix(torch.float32)
    torch.manual_seed(0)
    model = STAGNN(data.num_features, out_channels=data.num_classes, **SIZES).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    few = Graph(torch.tensor([[0, 1], [1, 0]], device=device), 2)
    _learn(model, optimizer, data.x[:2], data.y[:2], few)  # what is compiled does not count
    set_memory(model, memory)
    plan = None
    if memory is not None:
        try:
            with torch.set_grad_enabled(training):
                plan = model.train(training).memory_plan(data.x, graph)
        except ValueError as error:
            return {"budget": memory, "refused": str(error)}
    seconds, peak = [], Peak(device)
    there = peak.bytes() if device.type == "cuda" else 0  # features and graph
    for _ in range(rounds):
        start = now(device)
        if training:
            _learn(model, optimizer, data.x, data.y, graph)
        else:
            with torch.no_grad():
                model.eval()(data.x, graph)
        seconds.append(now(device) - start)
    found = {"seconds": round(min(seconds), 3), "peak": peak.bytes() - there}
    if plan is None:
        return found
    return found | {"budget": memory, "said": plan.bytes, "plan": str(plan)}


def _learn(model: STAGNN, optimizer: torch.optim.Optimizer, x: Any, y: Any, graph: Graph) -> None:
    model.train()
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x, graph), y).backward()
    optimizer.step()


def epoch(device: torch.device, shape: str, memory: str, training: bool) -> Any:
    """An epoch as `sta train --memory` does it, or its evaluation alone; all of the process."""
    data, peak = graph_of(shape), Peak(device)
    settings = {"model": "stagnn", "encoding": 0, "split": "own", **SIZES}
    config = recipe(data, graph=shape, **settings)
    material = Material(data, config, device, memory)
    network = material.network()
    trainer = material.trainer(network, material.problem(0), capture=False)
    work = trainer.epoch if training else trainer.best_outputs
    begun_with = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    seconds = []
    for _ in range(2):
        start, clock = now(device), time.perf_counter()
        work()
        seconds.append((now(device) - start, time.perf_counter() - clock))
    fastest = min(seconds)
    whole = {"process": _status("VmHWM")}
    if device.type == "cuda":
        whole = {"used": torch.cuda.max_memory_allocated(device), "begun_with": begun_with}
    found = {"shape": shape, "memory": memory, "training": training, "peak": peak.bytes(), **whole}
    found |= {"there": resident(data, config, device)}
    return found | {"seconds": round(fastest[0], 2), "clock": round(fastest[1], 2)}


def operator(device: torch.device, edges: int) -> Any:
    """Forward and backward pass of the operator, and its seconds for a million edges."""
    data = planted(max(edges // DEGREE, 1000), edges // 2, 2, 1, homophily=0.5)
    graph = Graph(data.edge_index, data.num_nodes).to(device)
    del data
    for matrix in (graph.matrix, graph.transpose):
        matrix(torch.float32)
    each = {str(layer): _of_edges(graph, *layer) for layer in LAYERS[device.type]}
    return {"edges": graph.num_edges, "nodes": graph.num_nodes, "seconds_per_million": each}


def _of_edges(graph: Graph, heads: int, channels: int, values: int) -> float:
    device = graph.device
    torch.manual_seed(0)
    shapes = (heads, channels), (heads, channels), (heads, values)
    query, key, value = (
        torch.rand(graph.num_nodes, *shape, device=device, requires_grad=True) for shape in shapes
    )
    weights = torch.ones(HOPS + 1, heads, device=device, requires_grad=True)

    def both() -> None:
        out = subtree_attention(query, key, value, graph, HOPS, weights)
        torch.autograd.grad(out.sum(), (query, key, value, weights))

    run, seconds = _recorded(both) if device.type == "cuda" else both, []
    for _ in range(ROUNDS):
        start = now(device)
        run()
        seconds.append(now(device) - start)
    return round(min(seconds) / graph.num_edges * 1e6, 6)


def _recorded(work: Callable[[], None]) -> Callable[[], None]:
    """Work of a GPU, replayed: then small graphs do not wait for the host."""
    aside, recorded = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(aside):
        for _ in range(2):
            work()
    torch.cuda.synchronize()
    with torch.cuda.graph(recorded):
        work()
    return recorded.replay


CASES: dict[str, Callable[..., Any]] = {"step": step, "epoch": epoch, "operator": operator}

if __name__ == "__main__":
    main()
