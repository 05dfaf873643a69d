"""`open`: a finished run with all that can be asked of it. Everybody who shows one stands on this.

run = sta.open("runs/mine")
run.config, run.model, run.dataset, run.graph, run.split
run.logits, run.probabilities          # [N, C]
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
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
from ..datasets.told import Told
from ..explanations import CORRECTION, Attributor, Explainer, Explanation, explainer_of
from ..graph import Graph
from ..io import FileError
from ..references import Comparison, Fitted
from ..tasks import Problem, Task
from ..tasks.answers import Answers
from ..tasks.calibration import Calibration, Intervals
from ..tasks.deciding import Asked, Decided
from ..tasks.quality import AnyQuality
from ..upgrade import FORMAT
from . import compared, stacked
from . import folder as files
from .answering import Answering
from .environment import choose_device
from .folder import Epoch, RunResult
from .portfolio import Portfolio
from .portfolio import read as read_portfolio
from .what_if import WhatIf, what_if

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
        self.decided: Decided | None = None  # see `deciding`

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
    def references(self) -> Comparison | None:
        """What references reached on its split; only run 0 has some, where they were asked for."""
        return compared.read(self.out) if self.folder.name == "run-0" else None

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Where and when it was trained; an old or copied folder may not say."""
        return files.read_environment(self.out)

    @cached_property
    def portfolio(self) -> Portfolio | None:
        """What its configuration was chosen from; None if nothing else was tried."""
        return read_portfolio(self.out)

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
        try:
            with torch.device("meta"):  # takes no memory, whatever sizes the header claims
                claimed = self.task.network(settings, *sizes)
            kinds = {name: each.dtype for name, each in claimed.state_dict().items()}
            if any(weights[name].dtype != kinds[name] for name in weights.keys() & kinds):
                raise TypeError("weights must be float32")  # all but what batch norm counts
            claimed.load_state_dict(weights, assign=True)
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
        problem = self.task.problem(self.dataset, self.config.data.split, self.result.seed)
        if self.reference is None:
            return problem
        offset, (_, classes) = self.reference.out_of_fold, self._sizes
        if offset.shape != (self.dataset.num_nodes, classes):
            raise FileError(f"{self.folder / files.REFERENCE} is not of this graph")
        return problem.with_inputs(offset=offset)

    @cached_property
    def reference(self) -> Fitted | None:
        """The reference that its model stands on, if it does."""
        name = getattr(self.config.task, "reference", "")
        if not name:
            return None
        files.check_listed(self.folder / files.REFERENCE)
        return stacked.read(self.folder, name, REMEDY)

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
        """What is said of all units, [U, ...], in float64: logits, or of numbers what `found` gives
        a scale. Those of the model, with what training labels correct, see `tasks.smooth`."""
        if not self.corrects:
            return self.outputs
        return self.task.corrected(self.outputs, self.result.found, self.problem)

    @property
    def corrects(self) -> bool:
        """Whether labels of training units correct what the model says."""
        return getattr(self.config.task, "correct", False) and "smooth_reach" in self.result.found

    @cached_property
    def outputs(self) -> np.ndarray:
        """What the model itself says of all units, [U, ...], in float64."""
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

    @cached_property
    def explainer(self) -> Explainer | Attributor:
        """Explains any node of its graph: what its logits are made of, see `explain`."""
        inputs, features = self.problem.to(self.device).inputs, self.dataset.features
        more: dict[str, Any] = dict(inputs)
        if self.corrects:
            more["beside"] = {CORRECTION: torch.from_numpy(self.logits - self.outputs)}
        return explainer_of(self.model, features.to(self.device), self.graph, **more)

    def explain(self, node: str) -> Explanation:
        """Why a node is predicted as it is: what its logits are made of, see `Explanation`.

        In a notebook it shows itself, with names and classes, and `show()` opens the page at it.

        Args:
            node: its id, or its number where it has none.
        """
        if self.task.unit != "node":
            raise ValueError(
                f"nodes are explained, and this run is of {self.task.unit}s: see 'sta explain' and "
                "'sta report'"
            )
        explanation = self.explainer(self.dataset.find(str(node)))
        explanation.run = self
        return explanation

    def what_if(
        self,
        node: str,
        without: Iterable[str] = (),
        cut: Iterable[tuple[str, str]] = (),
        values: Mapping[str, Any] | None = None,
        words: Iterable[tuple[str, str]] = (),
    ) -> WhatIf:
        """What is said of a node if something around it were otherwise; only it is asked again.

        Args:
            node: its id.
            without: ids of nodes that are left out, with all of their edges.
            cut: edges (id, id) that are left out: in both directions, unless the graph is directed.
            values: other values of its own columns, by name, None for a missing one. A feature
                that came in a matrix is called by its number, "12".
            words: (column, word) that are left out of its own texts, tags or categories.
        """
        return what_if(self, node, without, cut, values, words)

    @property
    def temperature(self) -> float:
        """What logits are divided by, where the answers are classes or labels."""
        return self.found["temperature"]

    @cached_property
    def found(self) -> dict[str, Any]:
        """What makes answers of outputs, see `Task.settle`: older folders find it now."""
        stored, derived = self.result.found, self.task.derived(self.target, self.split)
        if stored.keys() >= set(self.task.finds):
            self._check_offsets(stored)
            return {name: stored[name] for name in self.task.finds} | derived
        return self.task.settle(self.logits, self.target, self.split) | derived

    def _check_offsets(self, stored: dict[str, Any]) -> None:
        """Refuse those of another model."""
        wanted, offsets = self._sizes[1], stored.get("offsets")
        if "offsets" in self.task.finds and len(offsets or ()) != wanted:
            path = self.folder / files.SUMMARY
            raise FileError(f"{path} must have an offset for each of {wanted} classes: {REMEDY}")

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
        return self.task.probabilities(self.logits, self.found)

    def scores(self) -> tuple[float, float, float]:
        """The metric on training, validation and test nodes, computed now."""
        outputs = torch.from_numpy(self.logits)
        return self.task.score(self.model, outputs, self.problem.target, self.split)

    def deciding(self, asked: Asked) -> SavedRun:
        """The same run with other answers than the most probable: by a threshold, not for all
        units, or with sets; see `tasks.deciding`."""
        names = self.task.names(self.dataset)
        other = copy(self)
        for name in ("answers", "calibration"):
            other.__dict__.pop(name, None)
        given = (self.found, self.logits, self.target, self.split, names)
        found, other.decided = self.task.decide(asked, *given)
        other.__dict__["found"] = found
        return other

    def on(self, dataset: Dataset, join: bool = False) -> SavedRun:
        """The same model on another graph with the same columns; none of its nodes is in a part.

        With `join`, the first nodes of that graph are those of the run, see `read_tables`: a model
        that is shown labels sees those of training nodes there, and no label otherwise.
        """
        _check.kind("dataset", dataset, Dataset, "a Dataset")
        other, dataset = copy(self), dataset.encoded(self.config.data.encoding)
        found = self.found
        for name in (
            "graph",
            "unit_ids",
            "split",
            "target",
            "outputs",
            "logits",
            "probabilities",
            "calibration",
            "answers",
            "explainer",
        ):
            other.__dict__.pop(name, None)
        problem = self.task.elsewhere(dataset, self.problem.known if join else None)
        if self.reference is not None and problem.known is not None:
            problem = problem.with_inputs(offset=self.reference.apply(dataset, problem.known))
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
        sees = self.corrects or getattr(self.config.task, "show_labels", 0.0) > 0
        if sees and not join and new.notes is not None:
            new.notes.words.append(
                "the model sees labels of training nodes, and of another graph none are known: "
                "trust its predictions there less than the calibration says"
            )
        if self.config.data.encoding and new.notes is not None:
            new.notes.words.append(
                "the model uses Laplacian eigenvectors, which are others on another graph: "
                "trust its predictions there less than the calibration says"
            )
        return new, self.dataset.num_nodes if join else 0

    def answering(self, *, memory: str | int | None = None) -> Answering:
        """What answers about single nodes, or new ones that join the graph, from their subtrees.

        Args:
            memory: see `Answering`.
        """
        return Answering(self, memory)

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
    share_graph(runs)
    return [score(run) for run in runs]


def share_graph(runs: list[SavedRun]) -> None:
    """Let the runs of a folder, which have one graph, read it once."""
    for run in runs[1:]:
        run.__dict__["dataset"] = runs[0].dataset
        if run.problem.dataset is runs[0].problem.dataset:
            run.__dict__["graph"] = runs[0].graph


def dataset_of(config: Config, out: Path | None) -> Dataset:
    """The graph of a configuration, without its encoding: of one's own it is in the folder."""
    graph = config.data.graph
    if out is not None and (out / files.GRAPH).exists():
        found = datasets.read(out / files.GRAPH).renamed(graph)
        return found._with(told=found.told or Told.read(out, found.num_nodes))
    if out is not None and graph not in datasets.names():
        raise FileError(
            f"{out / files.GRAPH} is missing: the graph of this run is not there. If it was cut "
            "off before that was written, begin again with the tables"
        )
    return datasets.load(graph, split=config.data.split)


def save_dataset(out: Path, dataset: Dataset) -> None:
    """Write what `dataset_of` reads, if it is not there; the graph last, which says that it is."""
    if not (out / files.GRAPH).exists():
        if dataset.told is not None and not dataset.mapped:  # a store has it
            dataset.told.write(out)
        dataset.save(out / files.GRAPH)


def save_model(
    path: Path, weights: dict[str, Tensor], config: Config, sizes: dict[str, int]
) -> None:
    """Weights, and in the header the settings and sizes that rebuild the model: see `SavedRun`."""
    header = {"format": FORMAT, "config": config.to_dict(), "sizes": sizes}
    io.write_tensors(path, weights, header)
