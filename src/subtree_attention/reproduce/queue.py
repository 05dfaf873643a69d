"""One queue for all runs: graph by graph, several at a time on a GPU, in processes on a CPU.

A run that is in the store already is not run again, so work that was interrupted goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from copy import copy
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from .. import data as datasets
from ..bench.edgewise import EdgewiseAttention
from ..bench.models import STAGNNBy
from ..graph import Graph
from ..nn import STAGNN
from ..train.config import Config
from ..train.folder import environment
from ..train.loop import TOGETHER, can_capture, prepare
from ..train.run import Run, train_together
from ..train.step import Trainer
from .baselines import baseline, parameter_groups
from .corruption import corrupt
from .experiments import EDGEWISE, Job
from .records import OURS
from .store import Record, Store


@dataclass(frozen=True)
class Place:
    """Where jobs run and what they read: picklable, so that it can be sent to other processes."""

    device: torch.device
    data_dir: Path | None = None
    mirror: Path | None = None
    together: int = TOGETHER
    capture: bool = True


def missing(jobs: Iterable[Job], store: Store) -> list[Job]:
    """The jobs whose records are not there yet."""
    done: dict[tuple[str, str], set[Any]] = {}
    for job in (jobs := list(jobs)):
        place = (job.experiment, job.graph)
        if place not in done:
            done[place] = store.done(*place)
    return [job for job in jobs if job.key not in done[job.experiment, job.graph]]


def work_off(
    jobs: list[Job],
    place: Place,
    store: Store,
    done: Callable[[Record], object],
    processes: int = 1,
) -> None:
    """Run jobs and put their records into the store, each as soon as it is there.

    Args:
        jobs: those of one graph are kept together, its data is prepared once.
        place: where to run them.
        store: where the records go.
        done: told of every record.
        processes: on a CPU, how many run at a time.
    """
    if processes == 1 or place.device.type == "cuda":
        for record in run(jobs, place):
            store.add(record)
            done(record)
        return
    context = torch.multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        futures = [pool.submit(_run_one, job, place) for job in jobs]
        try:
            for future in as_completed(futures):
                store.add(future.result())
                done(future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _run_one(job: Job, place: Place) -> Record:
    torch.set_num_threads(1)  # as many processes as there are cores to use
    return next(run([job], place))


def run(jobs: list[Job], place: Place) -> Iterator[Record]:
    """Records of the jobs, in the order in which they end."""
    in_order = sorted(jobs, key=lambda job: (job.graph, job.config.encoding, job.alone))
    for (graph, encoding), of_graph in groupby(
        in_order, key=lambda job: (job.graph, job.config.encoding)
    ):
        data = _prepared(graph, encoding, place)
        placed = copy(data).to(str(place.device))  # once: the runs share it
        for alone, group in groupby(of_graph, key=lambda job: job.alone):
            start = partial(_JobRun, data=data, placed=placed, place=place)
            waiting = (start(job) for job in group)
            at_a_time = 1 if alone or place.device.type == "cpu" else place.together
            yield from _records(waiting, at_a_time)


@lru_cache(maxsize=1)  # a process that is given job after job prepares a graph once
def _prepared(graph: str, encoding: int, place: Place) -> Data:
    """The graph on the CPU, before any split."""
    return prepare(Config(graph, encoding=encoding), place.data_dir, place.mirror)


def _records(waiting: Iterator[_JobRun], at_a_time: int) -> Iterator[Record]:
    for current, _ in train_together(waiting, at_a_time, []):
        if not current.epochs_left:
            yield current.record_of_it()


class _JobRun(Run):
    """The run of a job."""

    def __init__(self, job: Job, data: Data, placed: Data, place: Place) -> None:
        self.job, self.device = job, place.device
        if self.device.type == "cuda" and job.alone:
            torch.cuda.synchronize(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
        started = time.monotonic()
        split = _split(job, data, placed, place)
        self.held = self._allocated()
        graph = Graph(split.edge_index, split.num_nodes, transition=job.config.transition)
        model, config = build(job, split.x.size(1), int(split.y.max()) + 1, graph)
        model = model.to(place.device)
        decay = config.weight_decay
        if isinstance(model, STAGNN):
            groups = model.parameter_groups(decay)
        else:
            groups = parameter_groups(model, decay)
        capture = place.capture and capturable(job)
        trainer = Trainer(model, split, graph, config, groups, capture)
        name = f"{job.model} {job.variant} on {job.graph}, seed {job.seed}"
        super().__init__(name, trainer, config.epochs, config.patience)
        self.config, self.started = config, started

    def record_of_it(self) -> Record:
        """What is kept of the run: everything that a table or figure may need."""
        assert self.best is not None
        best, job = self.best, self.job
        about = environment(self.device)
        alpha, gates = _hop_weights(self.trainer.model, self.trainer.best_weights)
        return {
            "experiment": job.experiment,
            "graph": job.graph,
            "model": job.model,
            "variant": job.variant,
            "at": job.at,
            "kind": job.kind,
            "seed": job.seed,
            "split": self.config.split,
            "metric": self.config.metric,
            "train": best.train,
            "val": best.val,
            "test": best.test,
            "best_epoch": best.epoch,
            "epochs": self.epoch,
            "seconds": round(self.elapsed(), 3),
            "device": about["device"],
            "commit": about["commit"],
            "peak_bytes": self._peak(),
            "hop_weights": alpha,
            "gates": gates,
            "config": self.config.to_dict(),
            "settings": job.settings,
        }

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
        sizes = {"in_channels": in_channels, "out_channels": classes}
        settings: dict[str, Any] = {**sizes, **job.config.model_settings()}
        if job.model == EDGEWISE:
            return STAGNNBy(EdgewiseAttention(graph), **settings), job.config
        return STAGNN(**settings), job.config
    other = baseline(job.model.lower())
    chosen = other.at_depth(job.settings["depth"]) if "depth" in job.settings else other.settings
    training = {name: chosen[name] for name in ("lr", "weight_decay")}
    return other.build(in_channels, classes, chosen), job.config.replace(**training)


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
    if not isinstance(model, STAGNN) or model.conv.global_attention == "only":
        return None, None
    model.load_state_dict(weights)
    with torch.no_grad():
        alpha, gates = model.conv.aggregation.hop_weights(), model.conv.gate()
    return None if alpha is None else alpha[:, 0].tolist(), gates.tolist()
