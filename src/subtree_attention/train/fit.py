"""`fit`: train a configuration and save everything, from top to bottom.

    from subtree_attention import fit, recipe
    result = fit(recipe("cora", runs=5))            # saved under runs/
    result = fit(recipe("cora"), out="runs/mine", resume=True)

or `sta train cora --runs 5` from the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from .. import _check, datasets, io
from ..config import Config
from ..datasets import Dataset, as_dataset
from ..ops.backends import choose
from ..ops.kernels import cpu
from ..references import Comparison
from ..runs import folder as files
from ..runs.compared import ask
from ..runs.environment import environment
from ..runs.folder import RunResult
from ..runs.portfolio import Portfolio, under_way
from ..runs.saved import dataset_of, save_dataset
from ..tasks import Problem
from ..tasks import of as task_of
from ..tasks.metrics import Metric
from ..upgrade import FORMAT
from .batches import measured_step
from .beside import beside
from .estimate import Expected, expect, of_batches, planned
from .jobs import Place, work
from .logs import Logged, opened, told_too
from .run import Material, SavingRun
from .watch import Watch

MOST_THREADS = 1024
"""A folder that says it was begun with more is not believed."""


FEW = 100
"""Of fewer units for validation it is said that they decide little."""


class Interrupted(KeyboardInterrupt):
    """Training was stopped by the user; what can be taken up again is saved in `folder`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"stopped; it can be taken up again from {folder}")
        self.folder = folder


@dataclass(frozen=True)
class Result:
    """All runs of a configuration, and where they are saved; what it was chosen from, and what
    references reached, if they were asked for; how many validation and test units run 0 has."""

    config: Config
    runs: list[RunResult]
    folder: Path
    portfolio: Portfolio | None = None
    references: Comparison | None = None
    units: tuple[int, int] | None = None

    @property
    def mean(self) -> float:
        """Mean test score."""
        return mean(run.test for run in self.runs)

    @property
    def std(self) -> float | None:
        """Sample standard deviation of the test score; None for a single run."""
        return stdev(run.test for run in self.runs) if len(self.runs) > 1 else None

    def to_dict(self) -> dict[str, Any]:
        """What summary.json holds."""
        return {
            "format": FORMAT,
            "graph": self.config.data.graph,
            "metric": self.config.task.metric,
            "mean": self.mean,
            "std": self.std,
            "runs": [run.to_dict() for run in self.runs],
        }


def fit(
    config: Config,
    out: str | Path | None = None,
    *,
    data: Any = None,
    device: str | Place = "auto",
    resume: bool = False,
    watch: Watch | None = None,
    checkpoint_seconds: float = 5.0,
    stop: Callable[[], bool] | None = None,
    keep_graph: bool = True,
    references: bool | None = None,
    memory: str | int | None = None,
    log: Logged = None,
) -> Result:
    """Train `config.fit.runs` models on as many splits, and save everything under `out`.

    Args:
        config: what to train; `recipe(graph)` gives the paper's.
        out: folder of the results; by default a new one under `runs/`.
        data: the graph, if it is at hand: of `datasets.load`, or one's own (of `from_tables`, or
            any PyG `Data`, see `from_pyg`), which is then kept in `out`.
        device: "cpu", "cuda", "cuda:1", ... or "auto"; or a `Place`, which also says how many runs
            share a GPU and whether epochs are captured; a run's numbers do not depend on that.
        resume: go on with what is in `out`: finished runs are kept, a killed one continues where
            it was and ends with the same numbers.
        watch: told what goes on; nothing is shown by default.
        checkpoint_seconds: how often a run is saved on the way: what a killed one loses.
        stop: asked now and then; when it says so, what is under way is saved and
            `train.jobs.Stopped` is raised.
        keep_graph: keep a graph of one's own in `out`, so that nothing else is needed later.
        references: first see what simple models reach on the split of run 0, half a minute at
            most, and keep that in `out`; see `references.compare`. By default only where a run is
            gone on with that was begun so.
        memory: what training may take, features and graph included but not what libraries are:
            "8GB", "512MiB", a number of bytes, or "free". Numbers are the same to rounding, so that
            a run may go on with another budget.
        log: where epochs go besides: "csv", "tensorboard", "wandb", "mlflow", a `Log` of one's own,
            or a list of them. One that fails is told of, and training goes on.
    """
    if not isinstance(config, Config):
        got = _check.said(config)
        raise TypeError(f"config must be a Config, such as recipe('cora'), got {got}")
    resume, keep_graph = _check.flag("resume", resume), _check.flag("keep_graph", keep_graph)
    references = None if references is None else _check.flag("references", references)
    checkpoint_seconds = _check.number("checkpoint_seconds", checkpoint_seconds)
    if stop is not None and not callable(stop):
        raise TypeError(f"stop must be a function without arguments, got {_check.said(stop)}")
    watch = Watch() if watch is None else _check.kind("watch", watch, Watch, "a Watch")
    logs = opened(log)
    place, out = Place.of(device, memory=memory), None if out is None else _check.path("out", out)
    place.check(config)
    given = files.may_write(config, out, resume)  # before loading
    refuse_under_way(given)
    dataset = dataset_of(config, given) if data is None else given_data(config, data)
    material = Material(dataset.encoded(config.data.encoding), config, place.device, place.memory)
    seeds = range(config.fit.seed, config.fit.seed + config.fit.runs)
    problems = [material.problem(seed) for seed in seeds]
    done = given is not None and files.is_done(given)
    expected = None if done else expectation(material, place, problems[0])
    folder = given or files.new_folder(config.data.graph)
    with files.claimed(folder):
        files.may_write(config, folder, resume)  # again: somebody may have been faster
        kept = material.dataset if keep_graph and dataset.own else None
        begin(folder, config, place.device, watch, kept, references)
        if expected is not None and not any(folder.glob("run-*")):  # else it was said before
            expected.tell(watch)
            warn_of_few(problems[0], material, watch)
        compared = references_beside(folder, material, problems[0], watch, references)
        with threads_of(folder, place.device, watch), told_too(logs, config, watch) as both:
            runs = _train(folder, material, problems, place, both, stop, checkpoint_seconds)
        result = Result(config, runs, folder, references=compared, units=_units(problems[0]))
        summary, there = io.json_bytes(result.to_dict()), [files.REFERENCES] if compared else []
        files.write_listed(folder, {files.SUMMARY: summary}, there=there)
    return result


def _units(problem: Problem) -> tuple[int, int]:
    """How many there are for validation and for test."""
    return int(problem.split.val.sum()), int(problem.split.test.sum())


def few_in_words(validation: int, unit: str) -> str:
    """What it means to be chosen on few units; empty if they are not."""
    if validation >= FEW:
        return ""
    units = f"{validation} validation {unit}{'s' * (validation != 1)}"
    least = 100 / max(1, validation)
    return f"chosen on {units}: one of them is {least:.2g} %, so small differences mean little"


def warn_of_few(problem: Problem, material: Material, watch: Watch) -> None:
    """Say before training that what is chosen on few units is chosen by chance."""
    words = few_in_words(_units(problem)[0], material.task.unit)
    if words and material.dataset.own:
        more = f"label more {material.task.unit}s, or name more for validation in --split-column"
        watch.say(f"{words}: {more}")


def expectation(material: Material, place: Place, problem: Problem | None = None) -> Expected:
    """What the runs will take, before anything is written; what does not fit is refused.

    `problem` is that of the first run, for configurations that learn from samples of it.
    """
    how = material.dataset, material.config, place.device
    if material.config.fit.batch and problem is not None:
        plan = ""
        if place.memory is not None:
            plan = f"evaluation in {planned(*how, place.memory, training=False)}"
        with torch.random.fork_rng(devices=[]):  # the random numbers are those of the runs
            trainer = material.on_batches(material.network(), problem, material.config.fit.seed)
        steps, step = trainer.batches.in_an_epoch, measured_step(trainer)
        return Expected(of_batches(*how, steps, step, place.memory), "", plan)
    at_a_time = place.at_a_time(place.capture and can_capture(material.config))
    return expect(*how, at_a_time, place.memory)


def refuse_under_way(folder: Path | None) -> None:
    """Where a portfolio has no winner yet, there is no configuration to train."""
    if folder is not None and under_way(folder):
        raise io.FileError(
            f"{folder} holds a portfolio that has no winner yet: go on with 'sta train --resume "
            f"--out {folder}', from Python with fit_portfolio(..., resume=True)"
        )


def references_beside(
    folder: Path, material: Material, problem: Problem, watch: Watch, wanted: bool | None
) -> Comparison | None:
    """See `beside`; who stops it can go on."""
    try:
        return beside(folder, material, problem, watch, wanted)
    except KeyboardInterrupt:
        raise Interrupted(folder) from None


def _train(
    folder: Path,
    material: Material,
    problems: list[Problem],
    place: Place,
    watch: Watch,
    stop: Callable[[], bool] | None,
    checkpoint_seconds: float,
) -> list[RunResult]:
    """The runs of a folder: those that are done are read, the others trained to their end."""
    results, capture = dict[int, RunResult](), place.capture and can_capture(material.config)

    def waiting() -> Iterator[SavingRun]:
        for index, problem in enumerate(problems):
            path = folder / f"run-{index}"
            if path.is_symlink():
                raise io.FileError(f"{path} is a link: nothing is read or written there")
            if files.is_done(path):
                results[index] = files.read_result(path)
                (path / files.CHECKPOINT).unlink(missing_ok=True)  # its end was cut off
                watch.finish(path, results[index])
                watch.end(f"run {index}", told(results[index], material.task.metric))
            else:
                yield SavingRun(material, index, problem, folder, capture, checkpoint_seconds)

    try:
        for run in work(waiting(), place.at_a_time(capture), watch, stop):
            if run is not None:
                results[run.index] = run.finish()
                watch.finish(run.folder, results[run.index])
                watch.end(run.name, told(results[run.index], material.task.metric))
    except KeyboardInterrupt:
        raise Interrupted(folder) from None
    return [results[index] for index in range(len(problems))]


@contextmanager
def threads_of(folder: Path, device: torch.device, watch: Watch) -> Iterator[None]:
    """On a CPU, as many threads as the folder was begun with: torch rounds sums by how they are
    shared out, and a run that goes on must end with the same numbers."""
    begun, now = files.read_environment(folder).get("threads", 0), torch.get_num_threads()
    if device.type != "cpu" or begun == now or begun not in range(1, MOST_THREADS):
        yield
        return
    watch.say(f"begun with {begun} threads: goes on with as many instead of {now}")
    torch.set_num_threads(begun)
    try:
        yield
    finally:
        torch.set_num_threads(now)


def can_capture(config: Config) -> bool:
    """Whether epochs can be replayed: the exact softmax similarity asks the host on the way."""
    return getattr(config.model, "feature_map", None) != "softmax"


def given_data(config: Config, data: Any) -> Dataset:
    """Data that was handed in, if it can be trained on under this configuration."""
    dataset, graph = as_dataset(data), config.data.graph
    if not dataset.own:
        if dataset.name != graph:
            raise ValueError(f"data is '{dataset.name}', but the configuration is for '{graph}'")
        return dataset
    if graph in datasets.names():
        raise ValueError(
            f"'{graph}' is a graph of the registry: name yours otherwise, as in "
            "recipe(data, graph='mine')"
        )
    task_of(config.task).accept(dataset)
    if dataset.x.size(1) + config.data.encoding == 0:
        raise ValueError(
            "no column is left as a feature: add one, or let positions in the graph be the "
            "features (--encoding 8)"
        )
    return dataset.renamed(graph)


def begin(
    folder: Path,
    config: Config,
    device: torch.device,
    watch: Watch,
    kept: Dataset | None,
    references: bool | None = None,
) -> None:
    """Write what belongs to all runs: the graph that is kept, the settings, the environment."""
    watch.begin(_banner(config, folder), config.fit.runs, folder=folder)
    say_compiling(device, watch)
    begun = files.CONFIG in files.listed(folder)
    if kept is not None:
        refuse_other_graph(folder, kept)
    if not begun:
        contents = {files.CONFIG: config.to_dict(), files.ENVIRONMENT: begun_in(folder, device)}
        files.write_listed(folder, {n: io.json_bytes(content) for n, content in contents.items()})
    if references:
        ask(folder)
    if kept is not None:
        save_dataset(folder, kept)
    io.sweep(folder, files.FILES)


def say_compiling(device: torch.device, watch: Watch) -> None:
    """Say that the first epoch waits, where it does."""
    if choose("auto", device, torch.float32) == "numba" and not cpu.compiled():
        watch.say("compiling the CPU kernels: once on this machine, about half a minute")


def refuse_other_graph(folder: Path, dataset: Dataset) -> None:
    """A folder that keeps a graph goes on with that one only."""
    graph = folder / files.GRAPH
    if graph.exists() and not dataset.same_as(_kept(graph)):
        raise io.FileError(f"{folder} was started on another graph: choose another folder")


def begun_in(folder: Path, device: torch.device) -> dict[str, Any]:
    """The environment that a folder was begun in; this one, if nothing was."""
    with suppress(io.FileError):  # of an older version, or of one that was cut off here
        return files.read_environment(folder) or environment(device)
    return environment(device)


def _kept(graph: Path) -> Dataset:
    """The graph of a folder that is gone on with; the data is at hand, if it is damaged."""
    try:
        return datasets.read(graph)
    except io.FileError as error:
        raise io.FileError(f"{error}: delete it, and it is written again") from None


def _banner(config: Config, folder: Path) -> str:
    """What is about to be trained, and where it goes."""
    runs, model = config.fit.runs, ", ".join(_brief(config))
    line = f"{model} on {config.data.graph}: {runs} run{'s' * (runs > 1)}, into {folder}"
    if files.is_done(folder):
        return line + " (finished already)"
    won = {folder / "run-0"} if files.PORTFOLIO in files.listed(folder) else set()
    return line + (" (resumed)" if {*folder.glob("run-*")} - won else "")


def _brief(config: Config) -> Iterator[str]:
    yield config.model.title
    for name in ("layers", "hops", "heads"):
        count = getattr(config.model, name, None)
        if count is not None:
            yield f"{count} {name[:-1]}{'s' * (count != 1)}"
    if config.fit.precision != "full":
        yield f"states in {config.fit.precision}"


def told(result: RunResult, metric: Metric) -> str:
    """How a run ended, in a line."""
    show = metric.show
    return (
        f"{result.epochs} epochs  val {show(result.val)}  test {show(result.test)}  "
        f"{result.seconds:.1f} s"
    )
