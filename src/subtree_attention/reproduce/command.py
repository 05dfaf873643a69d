"""What `sta reproduce` does: choose jobs, work them off, and render what there is."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import _check
from .. import data as datasets
from ..train.folder import write_json
from . import theorem
from .experiments import EXPERIMENTS, Job
from .queue import Place, missing, work_off
from .records import OURS
from .render import PARTS, Say, render
from .store import Record, Store

WHATS = (*EXPERIMENTS, "gpr", "theorem", "all")
"""`gpr` is drawn from the runs of `deep`."""


def chosen(what: str) -> list[str]:
    """The experiments behind a word of the command line."""
    _check.known("experiment", what, WHATS)
    if what == "all":
        return [*EXPERIMENTS]
    return ["deep"] if what == "gpr" else [what] if what in EXPERIMENTS else []


def jobs_of(
    what: str,
    graphs: list[str] | None = None,
    models: list[str] | None = None,
    runs: int | None = None,
    **changes: Any,
) -> list[Job]:
    """The jobs of an experiment, on some graphs and of some models only if those are named."""
    jobs = []
    for name in chosen(what):
        experiment = EXPERIMENTS[name]
        for model in models or []:
            _check.known(f"model of {name}", model, [OURS, *experiment.models])
        wanted = [datasets.info(graph).name for graph in graphs or experiment.graphs]
        for graph in wanted:
            if graph not in experiment.graphs:
                raise ValueError(f"{name} runs on {', '.join(experiment.graphs)}, not on '{graph}'")
            jobs += [
                job for job in experiment.jobs(graph, runs) if not models or job.model in models
            ]
    if changes:
        jobs = [_changed(job, changes) for job in jobs]
    return jobs


def _changed(job: Job, changes: dict[str, Any]) -> Job:
    return replace(job, config=job.config.replace(**changes))


def available(jobs: list[Job], place: Place, say: Say) -> list[Job]:
    """The jobs whose graphs are at hand; a graph that is not is named."""
    found: dict[str, bool] = {}
    for graph in dict.fromkeys(job.graph for job in jobs):
        status = datasets.where(graph, place.data_dir, place.mirror).status
        found[graph] = status != "download"
        if not found[graph]:
            say(f"{graph}: its file is neither in the data folder nor in the mirror; left out")
    return [job for job in jobs if found[job.graph]]


def reproduce(
    what: str,
    place: Place,
    store: Store,
    *,
    graphs: list[str] | None = None,
    models: list[str] | None = None,
    runs: int | None = None,
    again: bool = False,
    processes: int = 1,
    say: Say = print,
    **changes: Any,
) -> list[Path]:
    """Run what is missing of an experiment and render it; -> the files that were rendered.

    Args:
        what: one of `WHATS`.
        place: device and data.
        store: where records are and go.
        graphs: some of the experiment's graphs.
        models: some of its models.
        runs: instead of the paper's number.
        again: run also what is there; the latest record counts.
        processes: on a CPU, how many run at a time.
        say: told what is going on.
        changes: settings of every job's configuration, for a quick look.
    """
    if what in ("theorem", "all"):
        _theorem(place, store, graphs, again, say)
    jobs = available(jobs_of(what, graphs, models, runs, **changes), place, say)
    todo = jobs if again else missing(jobs, store)
    if jobs:
        say(f"{what}: {len(todo)} runs to do, {len(jobs) - len(todo)} are there")
    if todo:
        work_off(todo, place, store, _Counter(len(todo), say), processes)
    return render_all(what, store, say)


class _Counter:
    """Says how far the queue is, and how long it may take."""

    def __init__(self, total: int, say: Say) -> None:
        self.total, self.done, self.say, self.started = total, 0, say, time.monotonic()

    def __call__(self, record: Record) -> None:
        self.done += 1
        left = (time.monotonic() - self.started) / self.done * (self.total - self.done)
        name = " ".join(part for part in (record["model"], record["variant"]) if part)
        self.say(
            f"{self.done}/{self.total}  {record['graph']}  {name}  seed {record['seed']}  "
            f"test {100 * record['test']:.2f}  {record['epochs']} epochs  about {left:.0f} s left"
        )


def _theorem(place: Place, store: Store, graphs: list[str] | None, again: bool, say: Say) -> None:
    """Measure the theorem on every graph that is at hand, unless that was done."""
    path = store.folder / theorem.FILE
    if path.exists() and not again:
        say(f"theorem: measured already, in {path}")
        return
    where = (place.data_dir, place.mirror)
    names = [datasets.info(graph).name for graph in graphs or theorem.GRAPHS]
    there = [name for name in names if datasets.where(name, *where).status != "download"]
    write_json(path, theorem.reproduce(there, *where, say=say))


def render_all(what: str, store: Store, say: Say) -> list[Path]:
    """Render all that there are records for."""
    files = []
    for name in [*PARTS, "theorem"] if what == "all" else [what]:
        files += render(name, store, say)
    return files
