"""The search: trial after trial until all are done, or the time is used up.

A trial is what `fit` trains; its score is the mean of its runs' best validation scores. Test
scores are neither read nor shown here.
"""

from __future__ import annotations

import gc
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

import torch
from torch_geometric.data import Data

from .. import _check
from ..runs.bundle import without_names
from ..train.loop import choose_device, fit, prepare, with_encoding
from ..train.progress import Silent
from .progress import Display, Quiet, Standing
from .space import settings
from .study import Study, Task, opened, optuna_module

if TYPE_CHECKING:
    from optuna.trial import Trial

    from ..train.run import Epoch

TRIALS = 100
"""Trials of a search that has neither a number nor a time as its end."""

REPORT_EPOCHS = 50
"""How often the curve of a trial is compared with those of others."""

FAILURES = 5
"""Trials that fail in a row before the search asks for a look at the reason."""


class Stopped(KeyboardInterrupt):
    """The search was stopped by the user; the trial under way is put back."""


class _Pruned(Exception):
    """The trial under way is not promising."""


@dataclass
class _Clock:
    """The time that a search may take."""

    seconds: float | None
    started: float

    def left(self) -> float | None:
        """None without an end."""
        if self.seconds is None:
            return None
        return max(0.0, self.started + self.seconds - time.monotonic())

    def is_up(self) -> bool:
        return self.left() == 0.0


def search(
    task: Task,
    out: str | Path | None = None,
    *,
    trials: int | None = None,
    budget: float | None = None,
    prune: bool = False,
    device: str = "auto",
    data_dir: str | Path | None = None,
    mirror: str | Path | None = None,
    display: Display | None = None,
    capture: bool = True,
    together: int | None = None,
    data: Data | None = None,
) -> Study:
    """Go on with the study of a task, or begin it; returns it with all its trials.

    Several processes may call this with the same task and folder at once.

    Args:
        task: what is searched, where, and how.
        out: folder of the study; by default `runs/tune-GRAPH`.
        trials: the study ends with so many trials, whoever did them; by default all points of a
            grid, otherwise `TRIALS` if there is no budget.
        budget: seconds after which this call ends; the trial under way is put back and taken up
            by the next call.
        prune: give up trials whose first run, after `patience` epochs, is below the median of
            the others; what learns slowly may be lost by it.
        device: see `fit`, as all that follow.
        data: a graph of one's own; the task then has its settings as `base`.

    Raises:
        Stopped: on Ctrl-C; the study is as after the end of a budget.
    """
    if trials is not None:
        _check.integer("trials", trials, 1)
    elif task.method != "grid" and budget is None:
        trials = TRIALS
    optuna_module()  # without it nothing else is worth the time
    clock, place = _Clock(budget, time.monotonic()), choose_device(device)
    load: dict[str, Any] = {"data_dir": data_dir, "mirror": mirror}
    how = {"device": device, "capture": capture, "together": together}
    config = task.config({})
    # Before a folder is made; and trials keep no graph of their own.
    graph = (
        prepare(config, **load)
        if data is None
        else with_encoding(without_names(data), config.encoding)
    )
    graphs = {config.encoding: graph}
    with opened(task, default_folder(task) if out is None else Path(out)) as study:
        parts = (study, clock, display or Quiet(), place, trials, prune, load, how, graphs)
        _Worker(*parts, own=data).work()
    return study


def default_folder(task: Task) -> Path:
    """Where a search goes if no folder is named."""
    return Path("runs") / f"tune-{task.graph}"


def parse_budget(text: str) -> float:
    """Seconds of '90s', '20m', '2h' or '1h30m'."""
    number = r"(?:(\d+(?:\.\d+)?){})?"
    found = re.fullmatch("".join(number.format(unit) for unit in "hms"), text.strip())
    hours, minutes, seconds = (float(part or 0) for part in found.groups()) if found else (0, 0, 0)
    total = 3600 * hours + 60 * minutes + seconds
    if total <= 0:
        raise ValueError(f"unknown budget '{text}': write it as 90s, 20m, 2h or 1h30m")
    return total


@dataclass
class _Worker:
    """This process's part of a search."""

    study: Study
    clock: _Clock
    display: Display
    place: torch.device
    limit: int | None
    prune: bool
    load: dict[str, Any]  # how graphs are found
    how: dict[str, Any]  # how they are trained on
    graphs: dict[int, Data]  # encoding -> graph
    own: Data | None = None  # a graph of one's own, without an encoding
    seconds: list[float] = field(default_factory=list)  # of the trials done here
    failures: list[str] = field(default_factory=list)  # the reasons of the latest in a row

    def work(self) -> None:
        """Trials until there are none, the time is up, or the user stops."""
        self.display.begin(self._banner())
        try:
            while not self.clock.is_up():
                trial = self.study.next(self.limit)
                if trial is None:
                    break
                self._try(trial)
        except KeyboardInterrupt:
            raise Stopped from None

    def _try(self, trial: Trial) -> None:
        """One trial: trained, pruned, failed, or put back."""
        task, watch = self.study.task, _Watch(self, trial)
        line, started = _describe(trial), time.monotonic()
        self.display.start(trial.number, line)
        try:
            config = task.config(trial.params)
            result = fit(
                config,
                self.study.run_folder(trial),
                resume=True,  # the process that began this trial may have ended
                progress=watch,
                data=self._graph(config.encoding),
                **self.how,
                **self.load,
            )
            scores = [run.val for run in result.runs]
            epochs = [run.epochs for run in result.runs]
            seconds = sum(run.seconds for run in result.runs)
            self.study.finish(trial, scores, epochs, seconds)
            outcome = f"val {100 * mean(scores):.2f}"
            self.failures.clear()
        except _Pruned:
            self._settle()
            self.study.prune(trial)
            outcome = f"given up after {watch.epochs} epochs"
        except (RuntimeError, MemoryError) as error:  # diverged, out of memory
            self._settle()
            self.failures.append(_one_line(error))
            self.study.fail(trial, self.failures[-1])
            outcome = f"failed: {self.failures[-1]}"
        except KeyboardInterrupt:
            self.study.put_back(trial)
            if watch.time_is_up:
                return
            raise
        except BaseException:
            self.study.put_back(trial)
            raise
        self._clear()
        self.seconds.append(time.monotonic() - started)
        self.display.finish(trial.number, f"{outcome}  {line}", self.standing())
        if len(self.failures) >= FAILURES:
            raise RuntimeError(f"{FAILURES} trials in a row failed, the last: {self.failures[-1]}")

    def standing(self) -> Standing:
        """How far the whole study is, and how long this process still has."""
        trials, done = self.study.trials(), self.study.done()
        running = sum(trial.state.name == "RUNNING" for trial in trials)
        total = self._total()
        left = [] if (budget := self.clock.left()) is None else [budget]
        if total is not None and self.seconds:
            left.append((total - len(trials) + running) * median(self.seconds) / max(1, running))
        best = (done[0].number, done[0].value or 0.0) if done else None
        return Standing(len(trials) - running, total, best, min(left, default=None))

    def _total(self) -> int | None:
        ends = [end for end in (self.limit, len(self.study.points) or None) if end is not None]
        return min(ends, default=None)

    def _graph(self, encoding: int) -> Data:
        if encoding not in self.graphs:
            if self.own is not None:
                self.graphs[encoding] = with_encoding(without_names(self.own), encoding)
            else:
                config = self.study.task.config({}).replace(encoding=encoding)
                self.graphs[encoding] = prepare(config, **self.load)
        return self.graphs[encoding]

    def _banner(self) -> str:
        task, done = self.study.task, len(self.study.trials())
        total = self._total()
        line = f"tuning STAGNN on {task.graph}: {task.method}, space '{task.space}', "
        line += f"{total} trials" if total is not None else "as many trials as the time allows"
        line += f" of {task.runs} run{'s' * (task.runs > 1)}, into {self.study.folder}"
        return line + (f" (continued: {done} begun or done)" if done else "")

    def _settle(self) -> None:
        """Wait for epochs that are still queued, before the memory that they use is freed."""
        if self.place.type == "cuda":
            with suppress(RuntimeError):  # what went wrong is known already
                torch.cuda.synchronize(self.place)

    def _clear(self) -> None:
        """Give the memory of a trial back: the next one has other shapes."""
        if self.place.type == "cuda":
            gc.collect()
            torch.cuda.empty_cache()


class _Watch(Silent):
    """What `fit` tells on the way: shown, compared with other trials, and timed."""

    def __init__(self, worker: _Worker, trial: Trial) -> None:
        self.worker, self.trial = worker, trial
        self.time_is_up = False
        self.epochs = 0

    def epoch(self, index: int, now: Epoch, best: Epoch | None) -> None:
        self.epochs += 1
        score = (best or now).val
        left = self.worker.clock.left()
        self.worker.display.epoch(index, now.epoch, score, left)
        if left == 0.0:
            self.time_is_up = True
            raise KeyboardInterrupt  # `fit` saves all it needs to go on
        if self.worker.prune and index == 0 and now.epoch % REPORT_EPOCHS == 0:
            self.trial.report(score, now.epoch)
            if self.trial.should_prune():
                raise _Pruned


def _describe(trial: Trial) -> str:
    return "  ".join(f"{name} {value}" for name, value in settings(trial.params).items())


def _one_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]
