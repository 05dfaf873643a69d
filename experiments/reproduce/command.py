"""What the command does: choose jobs, work them off, and render what there is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from experiments.reproduce.experiments import EXPERIMENTS, Experiment
from experiments.reproduce.jobs import Job
from experiments.reproduce.queue import available, missing, named, taken_over, work_off
from experiments.reproduce.records import OURS
from experiments.reproduce.render import Say, render
from experiments.reproduce.store import Store
from experiments.reproduce.theorem import FILE, GRAPHS
from experiments.reproduce.theorem.measure import measure
from experiments.reproduce.theorem.words import report, sentence
from subtree_attention import _check, datasets
from subtree_attention.io import read_json, write_json
from subtree_attention.show.progress import Lines
from subtree_attention.train.jobs import Place
from subtree_attention.train.watch import Watch

WHATS = (*EXPERIMENTS, "gpr", "theorem", "all")
"""`gpr` is drawn from the runs of `deep`."""


def chosen(what: str) -> list[str]:
    """The experiments behind a word of the command line."""
    _check.known("experiment", what, WHATS)
    return {"all": [*EXPERIMENTS], "gpr": ["deep"], "theorem": []}.get(what, [what])


def jobs_of(
    what: str,
    graphs: list[str] | None = None,
    models: list[str] | None = None,
    runs: int | None = None,
    **changes: Any,
) -> list[Job]:
    """The jobs of an experiment, on some graphs and of some models only if those are named.

    Of `all`, those of the experiments that have such a graph and such a model.
    """
    if runs is not None:
        _check.integer("runs", runs, 1)
    parts = [EXPERIMENTS[name] for name in chosen(what)]
    wanted = [datasets.info(graph).name for graph in graphs or ()]
    if parts:
        _check_offered(what, parts, wanted, models or [])
    jobs: list[Job] = [
        job
        for part in parts
        for graph in part.graphs
        if not wanted or graph in wanted
        for job in part.jobs(graph, runs)
        if not models or job.model in models
    ]
    return [replace(job, config=job.config.replace(**changes)) for job in jobs]


def _check_offered(
    what: str, parts: list[Experiment], graphs: list[str], models: list[str]
) -> None:
    """Refuse graphs and models that no part has."""
    offered = dict.fromkeys(graph for part in parts for graph in part.graphs)
    for graph in graphs:
        if graph not in offered:
            raise ValueError(f"{what} runs on {', '.join(offered)}, not on '{graph}'")
    known = dict.fromkeys([OURS, *(model for part in parts for model in part.models)])
    for model in models:
        _check.known(f"model of {what}", model, known)


class Reproduced(NamedTuple):
    """The files that were rendered, and which runs failed, in words."""

    files: list[Path]
    failed: str


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
    watch: Watch | None = None,
    **changes: Any,
) -> Reproduced:
    """Run what is missing of an experiment and render it, even if some runs fail.

    Args:
        what: one of `WHATS`.
        place: device and data.
        store: where records are and go.
        graphs: some of the experiment's graphs.
        models: some of its models.
        runs: instead of the paper's number.
        again: run also what is there; the latest record counts.
        processes: beside this one for what cannot be captured, see `queue.outcomes`.
        watch: told what is going on; prints lines by default.
        changes: settings of every job's configuration, for a quick look.
    """
    jobs = jobs_of(what, graphs, models, runs, **changes)  # refuses before anything is done
    watch = watch or Lines()
    if what in ("theorem", "all"):
        _theorem(store, graphs, again, watch.say)
    jobs = available(jobs, watch.say)
    if not again:
        for record in taken_over(missing(jobs, store), store):
            store.add(record)
    todo, failed = jobs if again else missing(jobs, store), ""
    banner = f"{what}: {len(todo)} runs to do, {len(jobs) - len(todo)} are there"
    if todo:
        watch.begin(banner, len(todo))
        worked = work_off(todo, place, store, watch, processes, again)
        failed = named(worked.failed, len(todo))
        if left := worked.elsewhere:
            watch.say(f"{left} runs were left to other processes; the last one draws them all")
    elif jobs:
        watch.say(banner)
    return Reproduced(render(what, store, watch.say), failed)


def _theorem(store: Store, graphs: list[str] | None, again: bool, say: Say) -> None:
    """Measure the theorem on every graph that is at hand, unless that was done."""
    path = store.folder / FILE
    stored = read_json(path)["records"] if path.exists() else []
    records = {record["graph"]: record for record in stored}  # by title
    wanted = [datasets.info(graph) for graph in graphs or GRAPHS]
    wanted = [graph for graph in wanted if datasets.where(graph.name).status != "download"]
    todo = [graph for graph in wanted if again or graph.title not in records]
    if not todo:
        say(f"theorem: measured already, in {path}")
    titles = [datasets.info(name).title for name in datasets.names()]
    for graph in todo:
        records[graph.title] = measure(graph.name)
        say(sentence(records[graph.title]))
        in_order = sorted(records.values(), key=lambda record: titles.index(record["graph"]))
        write_json(path, report(in_order))
