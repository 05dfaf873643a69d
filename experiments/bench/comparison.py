"""The whole benchmark: graph after graph, the operator and then the epoch, and what it all says."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from experiments.bench import attention, cases, epoch, memory
from experiments.bench.attention import OURS
from experiments.bench.cases import Case
from experiments.bench.measure import Version, copy_bandwidth, measure
from subtree_attention import datasets
from subtree_attention.ops import backends
from subtree_attention.runs.environment import environment

Say = Callable[[str], object]


def compare(
    graphs: list[str],
    shapes: list[str],
    device: torch.device,
    *,
    backend: str = "auto",
    rounds: int = 7,
    say: Say = print,
    save: Callable[[dict[str, Any]], object] = lambda result: None,
) -> dict[str, Any]:
    """Measure every version on every graph and shape; the result is what the JSON file holds.

    Args:
        graphs: names from `sta datasets`.
        shapes: names from `cases.SHAPES`, or "NODES,EDGES,FEATURES,CLASSES".
        device: where to measure.
        backend: how ours computes the operator.
        rounds: how often every version is timed.
        say: told what is going on.
        save: given the result so far after every graph, so that a run that is stopped has some.
    """
    backend = backends.choose(backend, device, torch.float32)
    prepare: dict[str, Callable[[], Case]] = {}
    for name in graphs:
        name = datasets.info(name).name  # refuses an unknown one before the work begins
        prepare[name] = partial(cases.from_registry, name, device)
    for text in shapes:
        cases.parse_shape(text)
        prepare[f"shape {text}"] = partial(cases.from_shape, text, device)

    bandwidth = copy_bandwidth(device)
    result: dict[str, Any] = {
        "backend": backend,
        "rounds": rounds,
        "copy_bytes_per_second": bandwidth,
        "graphs": {},
        "environment": environment(device),
    }
    for name, make in prepare.items():
        say(f"{name}: preparing")
        case = make()
        say(f"{name}: operator and epoch")
        result["graphs"][case.name] = _measure_case(case, backend, rounds, bandwidth)
        result["mean_ratio"] = {
            part: _mean_ratios([graph[part]["versions"] for graph in result["graphs"].values()])
            for part in ("operator", "epoch")
        }
        save(result)
        del case  # before the next one is prepared
        memory.release(device)
    return result


def _measure_case(case: Case, backend: str, rounds: int, bandwidth: float) -> dict[str, Any]:
    """Operator and epoch on one graph."""
    device, model = case.graph.device, case.config.model
    task = attention.make_task(
        case.graph, model.hops, model.heads, case.key_channels, case.classes, model.eps
    )
    operator = _measure_part(partial(attention.versions, task, backend), device, rounds)
    operator["needed_bytes"] = task.needed_bytes()
    for measured in operator["versions"].values():
        if measured["median"]:
            per_second = task.needed_bytes() / (1e-3 * measured["median"])
            measured["copy_share"] = per_second / bandwidth
    del task
    epochs = _measure_part(partial(epoch.versions, case, backend), device, rounds)
    epochs["dense_feature_bytes"] = epoch.dense_bytes(case)
    return {**case.to_dict(), "operator": operator, "epoch": epochs}


def _measure_part(
    make_versions: Callable[[], list[Version]], device: torch.device, rounds: int
) -> dict[str, Any]:
    """All versions of one computation, with their times as multiples of ours."""
    try:
        versions = make_versions()
    except (RuntimeError, MemoryError) as error:
        if not memory.is_out_of_memory(error):
            raise
        # Nothing is reported that could not be checked.
        return {"versions": {}, "problem": "the float64 reference ran out of memory"}
    measured = {name: m.to_dict() for name, m in measure(versions, device, rounds).items()}
    ours = measured[OURS]["median"]
    for version in measured.values():
        timed = ours and version["median"]
        version["ratio"] = version["median"] / ours if timed else None
    return {"versions": measured, "problem": None}


def _mean_ratios(tables: list[dict[str, Any]]) -> dict[str, float]:
    """Version -> geometric mean of its times as multiples of ours, over the graphs that have it."""
    ratios: dict[str, list[float]] = {}
    for table in tables:
        for name, version in table.items():
            if version["ratio"]:
                ratios.setdefault(name, []).append(math.log(version["ratio"]))
    return {name: math.exp(statistics.mean(logs)) for name, logs in ratios.items()}
