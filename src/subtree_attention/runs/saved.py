"""`open`: a finished run with all that can be asked of it. Everybody who shows one stands on this.

run = sta.open("runs/mine")
run.config, run.model, run.dataset, run.graph, run.split
run.logits, run.probabilities          # [N, C]
"""

from __future__ import annotations

import os
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from .. import _check, datasets, io, tasks
from ..config import Config
from ..datasets import Dataset, Split
from ..datasets.tabular import apply_schema, join_tables
from ..graph import Graph
from ..io import FileError
from ..tasks import Problem, Task
from ..tasks.answers import Answers
from ..tasks.calibration import Calibration, Intervals
from ..tasks.quality import AnyQuality
from ..upgrade import FORMAT
from . import folder as files
from .environment import choose_device
from .folder import Epoch, RunResult

Folder = str | os.PathLike[str]
REMEDY = "take it from a copy, or delete the folder of that run and go on with sta train --resume"


class SavedRun:
    """A finished run; each part of it is read or computed when it is first asked for.

    Args:
        folder: OUT/run-0.
        device: where its model works.
    """

    def __init__(self, folder: Path, device: torch.device) -> None:
        self.folder, self.device = folder, device
        self.out = folder.resolve().parent

    @cached_property
    def _header(self) -> dict[str, Any]:
        """What stands beside the weights: the settings and sizes that rebuild the model."""
        path = self.folder / files.MODEL
        header = io.read_header(path, REMEDY)
        if header.get("format", 1) not in range(1, FORMAT + 1):
            got = _check.said(header["format"])
            raise FileError(f"{path} has format {got}, and this version reads up to {FORMAT}")
        return header

    @cached_property
    def config(self) -> Config:
        """The settings that its model was trained with."""
        return files.config_from(self._header.get("config"), self.folder / files.MODEL)

    @cached_property
    def result(self) -> RunResult:
        """Its scores when it was trained."""
        return files.read_result(self.folder)

    @cached_property
    def curves(self) -> list[Epoch]:
        """Its epochs."""
        return files.read_curves(self.folder)

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Where and when it was trained; an old or copied folder may not say."""
        return files.read_environment(self.out)

    @cached_property
    def task(self) -> Task:
        """What it has learnt."""
        return tasks.of(self.config.task)

    @cached_property
    def model(self) -> nn.Module:
        """The weights of its best epoch, in evaluation mode."""
        path, settings = self.folder / files.MODEL, self.config.model
        (weights, _), sizes = io.read_tensors(path, REMEDY), self._sizes
        files.check_listed(path)
        if any(weight.dtype != torch.float32 for weight in weights.values()):
            raise FileError(f"{path} does not fit its own settings: weights must be float32")
        try:
            with torch.device("meta"):  # takes no memory, whatever sizes the header claims
                self.task.network(settings, *sizes).load_state_dict(weights, assign=True)
            model = self.task.network(settings, *sizes)
            model.load_state_dict(weights)
        except (TypeError, ValueError, RuntimeError, MemoryError) as error:
            said = " ".join(str(error).split())[:300]  # torch names every weight
            raise FileError(f"{path} does not fit its own settings: {said}") from None
        return model.to(self.device).eval()

    @property
    def _sizes(self) -> tuple[int, int]:
        """Columns of the features, and outputs: all that a model is built from besides settings."""
        sizes, names = self._header.get("sizes"), ("in_channels", "out_channels")
        found = sizes if isinstance(sizes, dict) else {}
        if found.keys() != set(names) or not all(type(n) is int and n >= 0 for n in found.values()):
            raise FileError(f"{self.folder / files.MODEL}: sizes must be {' and '.join(names)}")
        return found["in_channels"], found["out_channels"]

    @cached_property
    def dataset(self) -> Dataset:
        """Its graph, with the encoding that its model takes."""
        return dataset_of(self.config, self.out).encoded(self.config.data.encoding)

    @cached_property
    def problem(self) -> Problem:
        """What it has learnt from."""
        return self.task.problem(self.dataset, self.config.data.split, self.result.seed)

    @cached_property
    def split(self) -> Split:
        """Which nodes, or other units of its task, it was trained, chosen and tested on."""
        return self.problem.split

    @cached_property
    def target(self) -> np.ndarray:
        """What was to be learnt of each unit, [U, ...]."""
        return self.problem.target.numpy()

    @cached_property
    def unit_ids(self) -> list[str]:
        """What the nodes, or other units of its task, are called."""
        return self.task.unit_ids(self.problem)

    @cached_property
    def graph(self) -> Graph:
        """What its model walks on."""
        return Graph.from_data(self.problem.dataset, **self.config.walk).to(self.device)

    @cached_property
    def logits(self) -> np.ndarray:
        """What the model says of all units, [U, ...], in float64: logits, or of numbers what
        `found` gives a scale."""
        model, problem = self.model, self.problem.to(self.device)
        features = problem.dataset.features
        takes, _ = self._sizes
        if features.size(1) != takes:
            raise FileError(
                f"the model takes {takes} features, but the graph has {features.size(1)}"
            )
        with torch.no_grad():
            outputs = model(features.to(self.device), self.graph, **problem.inputs)
        logits = outputs.double().cpu().numpy()
        if not np.isfinite(logits).all():
            raise FileError("the model gives values that are not finite: it is broken")
        return logits

    @property
    def temperature(self) -> float:
        """What logits are divided by, where the answers are classes or labels."""
        return self.found["temperature"]

    @cached_property
    def found(self) -> dict[str, float]:
        """What makes answers of outputs, see `Task.settle`: older folders find it now."""
        stored = self.result.found
        if stored.keys() >= set(self.task.finds):
            return {name: stored[name] for name in self.task.finds}
        return self.task.settle(self.logits, self.target, self.split)

    @cached_property
    def calibration(self) -> Calibration | Intervals:
        """How far answers can be trusted, on validation and test units."""
        return self.task.calibration(self.found, self.logits, self.target, self.split)

    @cached_property
    def answers(self) -> Answers:
        """What is predicted for all units, as people have it."""
        names = self.task.names(self.dataset)
        return self.task.answers(self.logits, self.target, self.found, names)

    @cached_property
    def probabilities(self) -> np.ndarray:
        """The probability of each class for all nodes, calibrated, [N, C]."""
        return self.task.probabilities(self.logits, self.temperature)

    def scores(self) -> tuple[float, float, float]:
        """The metric on training, validation and test nodes, computed now."""
        outputs = torch.from_numpy(self.logits)
        return self.task.score(self.model, outputs, self.problem.target, self.split)

    def on(self, dataset: Dataset) -> SavedRun:
        """The same model on another graph with the same columns; none of its nodes is in a part."""
        _check.kind("dataset", dataset, Dataset, "a Dataset")
        other, dataset = copy(self), dataset.encoded(self.config.data.encoding)
        found = self.found
        for name in (
            "graph",
            "unit_ids",
            "split",
            "target",
            "logits",
            "probabilities",
            "calibration",
            "answers",
        ):
            other.__dict__.pop(name, None)
        target = self.task.target(dataset)
        nobody = torch.zeros(len(target), dtype=torch.bool)
        problem = Problem(dataset, target, Split(nobody, nobody, nobody), self.task.inputs(dataset))
        other.__dict__ |= {"found": found, "dataset": dataset, "problem": problem}
        return other

    def read_tables(
        self,
        nodes: Any,
        edges: Any,
        join: bool = False,
        unknown_ends: str = "error",
        graphs: Any = None,
    ) -> tuple[Dataset, int]:
        """New tables, see `predict`, as a graph that `on` takes; and where their nodes begin."""
        if nodes is None or edges is None:
            raise ValueError("new nodes need both tables: --nodes and --edges")
        if not self.dataset.own:
            raise ValueError(
                f"this model was trained on '{self.config.data.graph}' of the registry, which has "
                "no columns: new tables need a model that was trained on tables "
                "(sta train --nodes ...)"
            )
        if _check.flag("join", join):
            new = join_tables(self.dataset, nodes, edges, unknown_ends)
        else:
            new = apply_schema(self.dataset, nodes, edges, unknown_ends, graphs)
        if self.config.data.encoding and new.notes is not None:
            new.notes.words.append(
                "the model uses Laplacian eigenvectors, which are others on another graph: "
                "trust its predictions there less than the calibration says"
            )
        return new, self.dataset.num_nodes if join else 0

    def __repr__(self) -> str:
        return f"SavedRun('{self.folder}', {self.config.model.name} on {self.config.data.graph})"


def open(folder: Folder, *, device: str = "auto") -> SavedRun:
    """The run of a folder; of several, the one with the best validation score.

    >>> run = open("runs/mine")  # doctest: +SKIP
    >>> run.model(run.dataset.features, run.graph)  # doctest: +SKIP

    Args:
        folder: what `sta train` wrote, or one run in it (`OUT/run-1`).
        device: "cpu", "cuda", "cuda:1", ... or "auto".
    """
    return best(open_all(folder, device=device))


def open_all(folder: Folder, *, device: str = "auto") -> list[SavedRun]:
    """Every finished run of a folder."""
    place = choose_device(device)
    folder = _check.path("folder", folder)
    return [SavedRun(path, place) for path in files.finished_runs(folder)]


def best(runs: list[SavedRun]) -> SavedRun:
    """The one with the best validation score."""
    if len(runs) == 1:
        return runs[0]
    return max(runs, key=lambda run: runs[0].task.metric.sign * run.result.val)


class Scores(NamedTuple):
    """Scores of one run now, and more scores of its test nodes."""

    run: SavedRun
    train: float
    val: float
    test: float
    quality: AnyQuality


def score(run: SavedRun) -> Scores:
    """A run on the split that it was trained on, by its calibrated answers."""
    test = run.split.test.numpy()
    found = run.task.quality(run.logits[test], run.target[test], run.found)
    return Scores(run, *run.scores(), found)


def evaluate(folder: Folder, *, device: str = "auto") -> list[Scores]:
    """Every finished run below a folder, or the one run that the folder is."""
    runs = open_all(folder, device=device)
    for run in runs[1:]:  # they have one graph: it is read once
        run.__dict__["dataset"] = runs[0].dataset
        if run.problem.dataset is runs[0].problem.dataset:
            run.__dict__["graph"] = runs[0].graph
    return [score(run) for run in runs]


def dataset_of(config: Config, out: Path | None) -> Dataset:
    """The graph of a configuration, without its encoding: of one's own it is in the folder."""
    graph = config.data.graph
    if out is not None and (out / files.GRAPH).exists():
        return datasets.read(out / files.GRAPH).renamed(graph)
    if out is not None and graph not in datasets.names():
        raise FileError(
            f"{out / files.GRAPH} is missing: the graph of this run is not there. If it was cut "
            "off before that was written, begin again with the tables"
        )
    return datasets.load(graph, split=config.data.split)


def save_model(
    path: Path, weights: dict[str, Tensor], config: Config, sizes: dict[str, int]
) -> None:
    """Weights, and in the header the settings and sizes that rebuild the model: see `SavedRun`."""
    header = {"format": FORMAT, "config": config.to_dict(), "sizes": sizes}
    io.write_tensors(path, weights, header)
