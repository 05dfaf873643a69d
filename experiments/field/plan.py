"""What is still to do, about how long it takes, and when there is no time left to begin a run."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass

from experiments.field.ablation import Ablation
from experiments.field.studies import Study
from experiments.reproduce.jobs import Job
from experiments.reproduce.queue import missing, taken_over
from experiments.reproduce.records import Record
from experiments.reproduce.store import Store
from subtree_attention import datasets

USUAL_SHARE = 0.6
"""Of the epochs: patience ends most runs before."""
SHARED = 3
"""A run takes so many times as long beside others, of which a GPU does not get all at once."""
GRACE = 45.0
"""Seconds beyond its time after which what is under way is given up."""


@dataclass(frozen=True)
class Part:
    """What is missing of a model on a graph: trials, and runs of what they will choose."""

    graph: str
    model: str
    trials: int
    runs: int
    seconds: float


def parts_of(
    study: Study | Ablation, graphs: Iterable[str], models: Iterable[str], store: Store
) -> list[Part]:
    """What is missing of a table, model by model on each graph."""
    found = []
    for graph in graphs:
        records = store.read_graph(study.name, graph)
        for model in models:
            jobs = [job for _, some in study.stages(graph, [model], store) for job in some]
            todo = _to_run(jobs, store)
            trials, unknown = 0, 0
            if isinstance(study, Study):
                trials = len(_to_run(study.trials(graph, model), store))
                if not study.each and not study.chosen(graph, model, records):
                    unknown = study.runs(graph) - 1  # whatever will be chosen
            count = len(todo) + unknown
            each = seconds_of(todo[0], store.on_graph(graph)) if todo else 0.0
            found.append(Part(graph, model, trials, count - trials, each * count))
    return found


def _to_run(jobs: Iterable[Job], store: Store) -> list[Job]:
    """Each job once that is neither there nor was run for another table."""
    todo = {job.key: job for job in missing(jobs, store)}
    for record in taken_over(todo.values(), store):
        del todo[record.key]
    return [*todo.values()]


def seconds_of(job: Job, records: Iterable[Record]) -> float:
    """Of a run beside others: as earlier ones took, or a rough guess for an H200.

    As many epochs as usual, each as long as in the run that shared its device with the fewest.
    """
    alike = [r for r in records if (r.model, r.graph) == (job.model, job.graph)]
    if alike:
        usual = statistics.median(max(r.epochs, 1) for r in alike)
        return usual * min(r.seconds / max(r.epochs, 1) for r in alike)
    nodes, edges = _sizes(job.graph)
    settings = job.config.flat()
    layers, width = settings.get("layers", 1), settings.get("hidden_channels", 64)
    hops = settings.get("hops", 1)
    keys = settings.get("key_channels", 2)  # a state that walks is as many times as wide
    moved = 4 * width * (4 * keys * hops * edges + 30 * nodes)  # bytes of a layer
    epoch = layers * (2e-4 * hops + moved / 2e12) + 1e-3
    return SHARED * USUAL_SHARE * settings["epochs"] * epoch


def _sizes(graph: str) -> tuple[int, int]:
    """Nodes and edges; of a graph that is not in the registry, a small one's."""
    if graph not in datasets.names():
        return 2_000, 60_000
    info = datasets.info(graph)
    return info.num_nodes, info.num_edges


class Clock:
    """When to stop.

    Args:
        minutes: from now on; infinite by default.
    """

    def __init__(self, minutes: float = math.inf) -> None:
        self.end = time.monotonic() + 60 * minutes

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    def has_time_for(self, seconds: float) -> bool:
        return seconds < self.left

    def is_over(self) -> bool:
        """Whether what is under way is given up: later than nothing is begun any more."""
        return self.left < -GRACE
