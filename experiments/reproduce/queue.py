"""One queue for all runs: which are missing, where each of them runs, and what becomes of it.

A run that is in the store already with the same settings, for this or another experiment, is not
run again; so work that was interrupted goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from experiments.reproduce.claims import Claims
from experiments.reproduce.jobs import Job
from experiments.reproduce.records import Record
from experiments.reproduce.store import Store
from experiments.reproduce.training import Begin, Outcome, Stop, steps
from experiments.reproduce.workers import Workers
from subtree_attention.config import Config
from subtree_attention.train.jobs import Place, Stopped
from subtree_attention.train.watch import Watch

MOST_PROCESSES = 8


def default_processes(device: torch.device) -> int:
    """On a GPU half of the cores, at most 8, for what cannot be captured; on a CPU 1."""
    if device.type == "cpu":
        return 1
    return max(1, min(MOST_PROCESSES, (os.cpu_count() or 1) // 2))


def available(jobs: list[Job], say: Callable[[str], object]) -> list[Job]:
    """The jobs whose graphs are at hand; a graph that is not is named."""
    first = {job.graph: job for job in reversed(jobs)}
    absent = [graph for graph, job in first.items() if not job.at_hand]
    for graph in absent:
        say(f"{graph}: its file is neither in the data folder nor in the mirror; left out")
    return [job for job in jobs if job.graph not in absent]


def missing(jobs: Iterable[Job], store: Store) -> list[Job]:
    """The jobs whose runs are not there yet, or were made with other settings."""
    jobs = list(jobs)
    places = {(job.experiment, job.graph) for job in jobs}
    return absent(jobs, [record for place in places for record in store.read_graph(*place)])


def absent(jobs: Iterable[Job], records: Iterable[Record]) -> list[Job]:
    """The jobs that none of the records is of."""
    there = {(record.experiment, record.graph, *record.key): record for record in records}

    def done(job: Job) -> bool:
        record = there.get((job.experiment, job.graph, *job.key))
        return record is not None and _has_settings_of(job, record)

    return [job for job in jobs if not done(job)]


def taken_over(jobs: Iterable[Job], store: Store) -> list[Record]:
    """Records for jobs whose very run was made for another experiment; `made_for` names that."""
    made: dict[str, list[Record]] = {}
    records = []
    for job in jobs:
        if job.graph not in made:
            made[job.graph] = store.on_graph(job.graph)
        for record in made[job.graph]:
            if record.experiment != job.experiment and _is_run_of(job, record):
                about: dict[str, Any] = {"variant": job.variant, "at": job.at, "kind": job.kind}
                about |= {"experiment": job.experiment, "made_for": record.experiment}
                records.append(replace(record, **about))
                break
    return records


def _is_run_of(job: Job, record: Record) -> bool:
    """Whether a record is what the job would give: nothing but the names may differ."""
    # Memory is measured alone, so such a job is run for itself.
    takes = not job.alone and job.kind is None and record.kind is None
    same = (record.model, record.seed) == (job.model, job.seed)
    return takes and same and _has_settings_of(job, record)


def _has_settings_of(job: Job, record: Record) -> bool:
    """Whether a record of the job's model was made as the job would be."""
    if record.settings != job.all_settings or not record.config:
        return False
    return Config.from_dict(record.config) == job.training  # it may be older than a setting


class Worked(NamedTuple):
    """The jobs that failed, which have no record, and how many were left to other processes."""

    failed: list[Job]
    elsewhere: int


def work_off(
    jobs: list[Job],
    place: Place,
    store: Store,
    watch: Watch,
    processes: int = 1,
    again: bool = False,
    may_begin: Begin | None = None,
    stop: Stop | None = None,
) -> Worked:
    """Run jobs and put their records into the store, each as soon as it is there.

    What another process is at, or has done meanwhile, is left to it.

    Args:
        jobs: those of one graph are kept together, its data is prepared once.
        place: where to run them.
        store: where the records go.
        watch: told of every job that starts, ends, or is left to others.
        processes: see `outcomes`.
        again: run also what is there.
        may_begin: asked first; what it refuses is left for another time.
        stop: when it says so, no job is begun any more, and those under way have no record.
    """
    failed, left, claims = list[Job](), list[Job](), Claims(store)

    def begin(job: Job) -> bool:
        """Not what another process is at, or has ended since the jobs were chosen."""
        if may_begin is not None and not may_begin(job):
            return False
        ours = claims.take(job)
        if ours and not again and not missing([job], store):
            claims.drop(job)
            ours = False
        if not ours:
            left.append(job)
            watch.leave(str(job))
        return ours

    ending = outcomes(jobs, place, processes, begin, watch, stop)
    with closing(claims), closing(ending) as ended, suppress(Stopped):
        for outcome in ended:
            if outcome.record is None:
                failed.append(outcome.job)
            else:
                store.add(outcome.record)
            claims.drop(outcome.job)
            watch.end(str(outcome.job), outcome.words, outcome.notable)
    return Worked(failed, len(left))


def outcomes(
    jobs: list[Job],
    place: Place,
    processes: int,
    begin: Begin,
    watch: Watch,
    stop: Stop | None = None,
) -> Generator[Outcome]:
    """How the jobs ended, in the order in which they did.

    What can be captured runs in this process, several at a time; what the host holds up, in
    `processes` beside it, if there are more than one; then what wants to be alone.
    """
    here, elsewhere, alone = _shared_out(jobs, place, processes)
    with Workers(elsewhere, place, processes, begin) as workers:
        for outcome in steps(here, place, begin, watch, stop):
            if outcome:
                yield outcome
            yield from workers.ended(0)
        while workers.working:
            yield from workers.ended()
    yield from filter(None, steps(alone, place, begin, watch, stop))


def _shared_out(
    jobs: list[Job], place: Place, processes: int
) -> tuple[list[Job], list[Job], list[Job]]:
    """Jobs for this process, for others, and for this one when nothing else runs."""
    on_gpu = place.device.type == "cuda"
    here, elsewhere, alone = list[Job](), list[Job](), list[Job]()
    for job in jobs:
        captured = on_gpu and place.capture and job.capturable
        if on_gpu and job.alone:
            alone.append(job)
        elif processes > 1 and not captured:
            elsewhere.append(job)
        else:
            here.append(job)
    return here, elsewhere, alone


def named(failed: list[Job], of: int) -> str:
    """3 of 50 runs failed: GCN on cora, seeds 0, 1; GAT on actor, seed 3. Empty if none did."""
    if not failed:
        return ""
    seeds: dict[str, list[str]] = {}
    for job in failed:
        seeds.setdefault(job.title, []).append(str(job.seed))
    parts = [f"{title}, seed{'s' * (len(s) > 1)} {', '.join(s)}" for title, s in seeds.items()]
    return f"{len(failed)} of {of} runs failed: {'; '.join(parts)}"
