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
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from subtree_attention.train.config import Config
from subtree_attention.train.loop import TOGETHER, can_capture, prepare
from torch import nn
from torch_geometric.data import Data

from experiments.attentions import EdgewiseAttention, STAGNNBy
from experiments.baselines import baseline
from experiments.models import GlobalAttentionGNN
from experiments.reproduce.corruption import corrupt
from experiments.reproduce.experiments import EDGEWISE, Job
from experiments.reproduce.records import OURS, Record
from subtree_attention import datasets
from subtree_attention.graph import Graph
from subtree_attention.nn import STAGNN
from subtree_attention.runs.folder import environment
from subtree_attention.train.run import Diverged, Epoch, Run, train_together
from subtree_attention.train.step import Trainer


@dataclass(frozen=True)
class Place:
    """Where jobs run and what they read: picklable, so that it can be sent to other processes."""

    device: torch.device
    data_dir: Path | None = None
    mirror: Path | None = None
    together: int = TOGETHER
    capture: bool = True


@dataclass(frozen=True)
class Outcome:
    """How a job ended: with a record, or with an error in words."""

    job: Job
    record: Record | None = None
    error: str = ""


Begin = Callable[[Job], bool]
"""Asked when the turn of a job comes: whether it is run here."""


def run(jobs: Iterable[Job], place: Place) -> Iterator[Outcome]:
    """How the jobs ended, in the order in which they did."""
    return (outcome for outcome in steps(jobs, place, lambda _: True) if outcome)


def steps(jobs: Iterable[Job], place: Place, begin: Begin) -> Iterator[Outcome | None]:
    """As `run`, with None whenever the caller may look after something else."""

    def kind(job: Job) -> tuple[str, int, bool]:
        return *data_of(job), job.alone

    for (graph, encoding, alone), some in groupby(sorted(jobs, key=kind), key=kind):
        try:
            data = _prepared(graph, encoding, place)
            placed = copy(data).to(str(place.device))  # once: the runs share it
        except Exception as error:
            yield from (Outcome(job, error=in_words(error)) for job in filter(begin, some))
            continue
        start = partial(_JobRun, data=data, placed=placed, place=place)
        at_a_time = 1 if alone or place.device.type == "cpu" else place.together
        yield from _train(some, start, at_a_time, begin)


def data_of(job: Job) -> tuple[str, int]:
    """What a job needs prepared: the graph and its encoding."""
    return job.graph, job.config.encoding


@lru_cache(maxsize=1)  # a process that is given job after job prepares a graph once
def _prepared(graph: str, encoding: int, place: Place) -> Data:
    """The graph on the CPU, before any split."""
    return prepare(Config(graph, encoding=encoding), place.data_dir, place.mirror)


def _train(
    jobs: Iterable[Job], start: Callable[[Job], _JobRun], at_a_time: int, begin: Begin
) -> Iterator[Outcome | None]:
    """Jobs on the same data, some at a time."""
    refused: list[Outcome] = []  # could not even be started

    def waiting() -> Iterator[_JobRun]:
        for job in filter(begin, jobs):
            try:
                yield start(job)
            except Exception as error:
                refused.append(Outcome(job, error=in_words(error)))

    for current, _ in train_together(waiting(), at_a_time, []):
        yield None if current.epochs_left else current.outcome()
        del current  # as in `train_together`
        while refused:
            yield refused.pop()
    yield from refused


def in_words(error: Exception) -> str:
    """An error in one line; with STA_TRACEBACK=1 it is also shown where it comes from."""
    if os.environ.get("STA_TRACEBACK"):
        traceback.print_exception(error)
    message = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


class _JobRun(Run):
    """The run of a job, which may diverge or fail without an end to those beside it."""

    def __init__(self, job: Job, data: Data, placed: Data, place: Place) -> None:
        self.job, self.device = job, place.device
        self.diverged: int | None = None  # the epoch
        self.error = ""
        if self.device.type == "cuda" and job.alone:
            gc.collect()  # what earlier runs left must not be freed while this one is measured
            torch.cuda.synchronize(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
        started = time.monotonic()
        split = _split(job, data, placed, place)
        self.held = self._allocated()
        graph = Graph(split.edge_index, split.num_nodes, transition=job.config.transition)
        model, config = build(job, split.x.size(1), int(split.y.max()) + 1, graph)
        model = model.to(place.device)
        capture = place.capture and capturable(job)
        trainer = Trainer(model, split, graph, config, capture)
        super().__init__(str(job), trainer, config.epochs, config.patience)
        self.config, self.started = config, started

    @property
    def epochs_left(self) -> int:
        return 0 if self.diverged or self.error else super().epochs_left

    def advance(self) -> None:
        if not self.error:
            with self._ending():
                super().advance()

    def record(self) -> list[Epoch]:
        if not self.error:
            with self._ending():
                return super().record()
        return []

    def outcome(self) -> Outcome:
        """How it ended."""
        record = None
        if not self.error:
            with self._ending():
                record = self._record_of_it()
        return Outcome(self.job, record, self.error)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Divergence and errors end this run."""
        try:
            yield
        except Diverged as stopped:
            self.diverged = stopped.epoch
        except Exception as error:
            self.error = in_words(error)

    def _record_of_it(self) -> Record:
        """What is kept of the run: everything that a table or figure may need.

        Scores are those of the best epoch; None if it diverged before there was one.
        """
        best, job = self.best, self.job
        about = environment(self.device)
        alpha, gates = None, None
        if best:
            alpha, gates = _hop_weights(self.trainer.model, self.trainer.best_weights)
        of_job = ("experiment", "graph", "model", "variant", "at", "kind", "seed")
        taken: dict[str, Any] = {name: getattr(job, name) for name in of_job}
        taken |= {name: getattr(best, name) if best else None for name in ("train", "val", "test")}
        return Record(
            **taken,
            split=self.config.split,
            metric=self.config.metric,
            best_epoch=best.epoch if best else None,
            epochs=self.epoch,
            diverged=self.diverged,
            seconds=round(self.elapsed(), 3),
            device=about["device"],
            commit=about["commit"],
            peak_bytes=self._peak(),
            hop_weights=alpha,
            gates=gates,
            config=self.config.to_dict(),
            settings=settings_of(job),
        )

    def _allocated(self) -> int:
        on_gpu = self.device.type == "cuda"
        return torch.cuda.memory_allocated(self.device) if on_gpu else 0

    def _peak(self) -> int | None:
        """Most memory beyond the data; known where the run had the GPU to itself."""
        if self.device.type != "cuda" or not self.job.alone:
            return None
        return torch.cuda.max_memory_allocated(self.device) - self.held


def capturable(job: Job) -> bool:
    """Whether epochs of a job can be replayed as a CUDA graph."""
    if job.model in (OURS, EDGEWISE):
        return can_capture(job.config)
    return baseline(job.model.lower()).capturable


def build(job: Job, in_channels: int, classes: int, graph: Graph) -> tuple[nn.Module, Config]:
    """The model of a job, made for its graph, and its configuration."""
    torch.manual_seed(job.seed)
    if job.model in (OURS, EDGEWISE):
        sizes: dict[str, Any] = {"in_channels": in_channels, "out_channels": classes}
        if job.config.global_attention == "only":
            named = ("hidden_channels", "heads", "dropout", "feature_map", "head_mix", "eps")
            options: dict[str, Any] = {name: getattr(job.config, name) for name in named}
            return GlobalAttentionGNN(**sizes, **options), job.config
        settings: dict[str, Any] = {**sizes, **job.config.model_settings()}
        if job.model == EDGEWISE:
            return STAGNNBy(EdgewiseAttention(graph), **settings), job.config
        return STAGNN(**settings), job.config
    built = baseline(job.model.lower()).build(in_channels, classes, settings_of(job))
    return built, config_of(job)


def config_of(job: Job) -> Config:
    """The configuration that a job trains by: a baseline brings its own learning rate and decay."""
    if job.model in (OURS, EDGEWISE):
        return job.config
    chosen = settings_of(job)
    return job.config.replace(**{name: chosen[name] for name in ("lr", "weight_decay")})


def settings_of(job: Job) -> dict[str, Any]:
    """All settings of a baseline; STAGNN's are in its configuration."""
    if job.model in (OURS, EDGEWISE):
        return {}
    return {**baseline(job.model.lower()).settings, **job.settings}


def _split(job: Job, data: Data, placed: Data, place: Place) -> Data:
    """The data on the job's split and device: shared, or corrupted if it asks for that."""
    if job.kind is not None and job.at:
        placed = corrupt(data, job.kind, job.at, job.seed)
    where = {"data_dir": place.data_dir, "mirror": place.mirror}
    split = datasets.apply_split(placed, job.config.split, seed=job.seed, **where)
    return split.to(str(place.device))


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
