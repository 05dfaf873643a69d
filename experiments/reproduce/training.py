"""A job becomes a run, and a run a record: graph by graph, on a GPU several at a time.

A run that diverges is a result. One that fails is not: it ends with its error, and those beside it
go on.
"""

from __future__ import annotations

import gc
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from experiments.reproduce.jobs import Job, Source
from experiments.reproduce.records import Record
from subtree_attention import tasks
from subtree_attention.datasets import Dataset
from subtree_attention.nn import STAGNN
from subtree_attention.runs.environment import environment
from subtree_attention.train.jobs import Place, work
from subtree_attention.train.run import Diverged, Material, Run
from subtree_attention.train.watch import Watch

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """How a job ended: with a record, or with an error in words."""

    job: Job
    record: Record | None = None
    error: str = ""

    @property
    def words(self) -> str:
        """How it ended, in a line."""
        if self.record is None:
            return f"failed: {self.error}"
        show = tasks.metrics.METRICS[self.record.metric].show
        test = "" if self.record.test is None else f"test {show(self.record.test)}  "
        epochs, diverged = f"{self.record.epochs} epochs", self.record.diverged
        return f"{test}{epochs}" + (f"  diverged at epoch {diverged}" if diverged else "")

    @property
    def notable(self) -> bool:
        """Whether it did not end as it should."""
        return self.record is None or bool(self.record.diverged)


Begin = Callable[[Job], bool]
"""Asked when the turn of a job comes: whether it is run here."""
Stop = Callable[[], bool]
"""Asked now and then: whether what is under way is given up, by `train.jobs.Stopped`."""


def run(jobs: Iterable[Job], place: Place) -> Iterator[Outcome]:
    """How the jobs ended, in the order in which they did."""
    return (outcome for outcome in steps(jobs, place, lambda _: True, Watch()) if outcome)


def steps(
    jobs: Iterable[Job], place: Place, begin: Begin, watch: Watch, stop: Stop | None = None
) -> Iterator[Outcome | None]:
    """As `run`, with None whenever the caller may look after something else.

    Jobs of the same source go together, the first source first.
    """
    groups: dict[tuple[Source, bool], list[Job]] = {}
    for job in jobs:
        groups.setdefault((job.source, job.alone), []).append(job)
    for (_, alone), some in groups.items():
        try:
            data = _prepared(some[0])
            placed = data.to(place.device)  # once: the runs share it
        except Exception as error:
            yield from (Outcome(job, error=in_words(error)) for job in filter(begin, some))
            continue
        yield from (_fitted(job, data) for job in some if job.direct and begin(job))
        start = partial(_JobRun, data=data, placed=placed, place=place)
        rest = [job for job in some if not job.direct]
        yield from _train(rest, start, place.at_a_time(not alone), begin, watch, stop)


_KEPT: dict[Source, Dataset] = {}


def _prepared(job: Job) -> Dataset:
    """Its graph; a process that is given job after job prepares one once."""
    if job.source not in _KEPT:
        _KEPT.clear()
        _KEPT[job.source] = job.load()
    return _KEPT[job.source]


def _train(
    jobs: Iterable[Job],
    start: Callable[[Job], _JobRun],
    at_a_time: int,
    begin: Begin,
    watch: Watch,
    stop: Stop | None = None,
) -> Iterator[Outcome | None]:
    """Jobs on the same data, some at a time."""
    refused: list[Outcome] = []  # could not even be started

    def waiting() -> Iterator[_JobRun]:
        for job in filter(begin, jobs):
            try:
                yield start(job)
            except Exception as error:
                refused.append(Outcome(job, error=in_words(error)))

    for ended in work(waiting(), at_a_time, watch, stop):
        yield None if ended is None else ended.outcome()
        del ended  # as in `work`
        while refused:
            yield refused.pop()
    yield from refused


def _fitted(job: Job, data: Dataset) -> Outcome:
    """How a job ended that no trainer is for."""
    started = time.monotonic()
    try:
        found = job.fit(data)._asdict()
    except Exception as error:
        return Outcome(job, error=in_words(error))
    seconds = round(time.monotonic() - started, 3)
    return Outcome(job, Record(**_about(job, torch.device("cpu")), **found, seconds=seconds))


def _about(job: Job, device: torch.device) -> dict[str, Any]:
    """What a record says of its job and of where it was run."""
    config, where = job.training, environment(device)
    of_job = ("experiment", "graph", "model", "variant", "at", "kind", "seed")
    return {name: getattr(job, name) for name in of_job} | {
        "split": config.data.split,
        "metric": config.task.metric,
        "device": where["device"],
        "commit": where["commit"],
        "packages": {name: found for name, found in where["packages"].items() if found},
        "config": config.to_dict(),
        "settings": job.all_settings,
    }


def in_words(error: Exception) -> str:
    """An error in one line; with STA_TRACEBACK=1 it is also shown where it comes from."""
    if os.environ.get("STA_TRACEBACK"):
        traceback.print_exception(error)
    message = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


class _JobRun(Run):
    """The run of a job, which may diverge or fail without an end to those beside it."""

    def __init__(self, job: Job, data: Dataset, placed: Dataset, place: Place) -> None:
        self.job, self.device = job, place.device
        self.diverged: int | None = None  # the epoch
        self.error = ""
        self.held: int | None = None  # bytes of the data, where the run has the GPU to itself
        measured = self.device.type == "cuda" and job.alone
        if measured:
            gc.collect()  # what earlier runs left must not be freed while this one is measured
            torch.cuda.synchronize(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
        started, config = time.monotonic(), job.training
        changed = job.changed(data)
        if changed is not data:
            placed = changed.to(self.device)
        material = Material(placed, config, self.device)
        if measured:
            self.held = torch.cuda.memory_allocated(self.device)
        capture = place.capture and job.capturable
        trainer = material.trainer(job.build(material), material.problem(job.seed), capture)
        super().__init__(str(job), trainer, config.fit.epochs, config.fit.patience)
        self.started = started

    @property
    def epochs_left(self) -> int:
        return 0 if self.diverged or self.error else super().epochs_left

    def advance(self) -> None:
        self._unless_failed(super().advance)

    def record(self) -> None:
        self._unless_failed(super().record)

    def outcome(self) -> Outcome:
        """How it ended."""
        record = self._unless_failed(self._record_of_it)
        return Outcome(self.job, record, self.error)

    def _unless_failed(self, call: Callable[[], T]) -> T | None:
        """What the call gives; divergence and errors end this run."""
        if not self.error:
            try:
                return call()
            except Diverged as stopped:
                self.diverged = stopped.epoch
            except Exception as error:
                self.error = in_words(error)
        return None

    def _record_of_it(self) -> Record:
        """What is kept of the run: everything that a table or figure may need.

        Scores are those of the best epoch; None if it diverged before there was one.
        """
        best = self.best
        alpha, gates, peak = None, None, None
        if best:
            alpha, gates = _hop_weights(self.trainer.model, self.trainer.best_weights)
        if self.held is not None:
            peak = torch.cuda.max_memory_allocated(self.device) - self.held
        names = ("train", "val", "test")
        scores: dict[str, Any] = {n: getattr(best, n) if best else None for n in names}
        return Record(
            **_about(self.job, self.device),
            **scores,
            best_epoch=best.epoch if best else None,
            epochs=self.epoch,
            diverged=self.diverged,
            seconds=round(self.elapsed(), 3),
            peak_bytes=peak,
            hop_weights=alpha,
            gates=gates,
        )


def _hop_weights(
    model: nn.Module, weights: dict[str, torch.Tensor]
) -> tuple[list[float] | None, list[list[float]] | None]:
    """The learned alpha [K + 1] and gates [K + 1, H] of STAGNN at its best epoch."""
    if not isinstance(model, STAGNN):
        return None, None
    model.load_state_dict(weights)
    with torch.no_grad():
        alpha, gates = model.conv.aggregation.hop_weights(), model.conv.gate()
    return None if alpha is None else alpha[:, 0].tolist(), gates.tolist()
