"""The search: trial after trial until all are done, or the time is used up.

A trial is what `fit` trains; its score is the mean of its runs' best validation scores. Test
scores are neither read nor shown here.
"""

from __future__ import annotations

import gc
import math
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING

import torch

from .. import _check
from ..datasets import Dataset
from ..io import check_writable
from ..runs.folder import RUNS
from ..runs.saved import dataset_of
from ..train.fit import fit
from ..train.jobs import Place, Stopped
from ..train.run import Run
from ..train.watch import Watch
from .space import settings
from .storage import storage_of
from .study import Plan, Study, TakenOver, need_optuna, opened

if TYPE_CHECKING:
    from optuna.trial import Trial

TRIALS = 100
"""Trials of a search that has neither a number nor a time as its end."""

REPORT_EPOCHS = 50
"""How often the curve of a trial is compared with those of others."""

FAILURES = 5
"""Trials that fail in a row before the search asks for a look at the reason."""


class _Pruned(Exception):
    """The trial under way is not promising."""


def search(
    plan: Plan,
    out: str | Path | None = None,
    *,
    storage: str | None = None,
    study: str | None = None,
    trials: int | None = None,
    budget: float | None = None,
    prune: bool = False,
    device: str | Place = "auto",
    watch: Watch | None = None,
) -> Study:
    """Go on with the study of a plan, or begin it; returns it with all its trials.

    Several processes may call this with the same plan and folder at once, and on several machines
    with the same plan, storage and study. On Ctrl-C, as at the end of a budget, the trial under way
    is put back and taken up by the next call.

    Args:
        plan: what is searched, where, and how.
        out: folder of the study; by default `runs/tune-GRAPH`, or `runs/STUDY`.
        storage: where the trials are kept, if not in the folder: postgresql://user@host/name,
            sqlite:///file.db, or a journal such as /shared/study.jsonl.
        study: the name of the study there, by default `tune-GRAPH`.
        trials: the study ends with so many trials, whoever did them; by default all points of a
            grid, otherwise `TRIALS` if there is no budget.
        budget: seconds after which this call ends.
        prune: give up trials whose first run, after `patience` epochs, is below the median of
            the others; what learns slowly may be lost by it.
        device: see `fit`.
        watch: told what goes on.
    """
    _check.kind("plan", plan, Plan, "a Plan")
    prune = _check.flag("prune", prune)
    if budget is not None:
        _check.number("budget", budget)
    watch = Watch() if watch is None else _check.kind("watch", watch, Watch, "a Watch")
    if trials is not None:
        _check.integer("trials", trials, 1)
    elif plan.method != "grid" and budget is None:
        trials = TRIALS
    need_optuna()  # without it nothing else is worth the time
    if study is not None:
        study = _check_name(study, storage)
    kept = None if storage is None else storage_of(storage)
    end, place = time.monotonic() + (math.inf if budget is None else budget), Place.of(device)
    folder = default_folder(plan, study) if out is None else _check.path("out", out)
    check_writable(folder)  # before a graph is read
    if kept is not None:
        kept.check()
    config = plan.config({})
    place.check(config)
    dataset = dataset_of(config, None)  # before a folder is made
    graphs = {config.data.encoding: dataset.encoded(config.data.encoding)}
    with opened(plan, folder, kept, study) as found:
        _Worker(found, end, watch, place, trials, prune, graphs).work()
    return found


def _check_name(study: str, storage: str | None) -> str:
    if storage is None:
        raise ValueError("a study has a name where it is kept with others: add --storage")
    if not re.fullmatch(r"\w[\w.\-]{0,99}", _check.kind("study", study, str, "a name")):
        raise ValueError(
            f"study must be a name of letters, digits, '_', '.' and '-', got {_check.said(study)}"
        )
    return study


def default_folder(plan: Plan, study: str | None = None) -> Path:
    """Where a search goes if no folder is named."""
    return RUNS / (study or f"tune-{plan.graph}")


def parse_budget(text: str, what: str = "budget") -> float:
    """Seconds of '90s', '20m', '2h' or '1h30m'; `what` is what a refusal calls it."""
    number = r"(?:(\d+(?:\.\d+)?){})?"
    _check.kind("a budget", text, str, "a text such as 20m")
    found = re.fullmatch("".join(number.format(unit) for unit in "hms"), text.strip())
    hours, minutes, seconds = (float(part or 0) for part in found.groups()) if found else (0, 0, 0)
    total = 3600 * hours + 60 * minutes + seconds
    if not 0 < total < math.inf:
        meant = f"{text}s or {text}m, or" if text.isdecimal() and len(text) < 6 else "it"
        raise ValueError(
            f"unknown {what} {_check.said(text)}: write {meant} as 90s, 20m, 2h or 1h30m"
        )
    return total


@dataclass
class _Worker:
    """This process's part of a search."""

    study: Study
    end: float  # of the time that it may take, by the monotonic clock
    watch: Watch
    place: Place
    limit: int | None
    prune: bool
    graphs: dict[int, Dataset]  # by their encoding
    seconds: list[float] = field(default_factory=list)  # of the trials done here
    failures: list[str] = field(default_factory=list)  # the reasons of the latest in a row

    def work(self) -> None:
        """Trials until there are none, the time is up, or the user stops."""
        self.watch.begin(self._banner(), self._total(), "trials")
        while not self._is_over() and (trial := self.study.next(self.limit)):
            self._try(trial)

    def _is_over(self) -> bool:
        return time.monotonic() >= self.end

    def _try(self, trial: Trial) -> None:
        """One trial: trained, pruned, failed, put back, or lost to another process."""
        watch, started = _TrialWatch(self, trial), time.monotonic()
        try:
            outcome = self._outcome(trial, watch)
        except Stopped:
            self.study.put_back(trial)
            return
        except TakenOver:
            outcome = "taken over by another process: this one had not been heard of"
        except BaseException:
            self.study.put_back(trial)
            raise
        if self.place.device.type == "cuda":  # the next one has other shapes
            gc.collect()
            torch.cuda.empty_cache()
        self.seconds.append(time.monotonic() - started)
        point = (f"{name} {value}" for name, value in settings(trial.params).items())
        self._tell(trial, "  ".join([outcome, *point]))
        if len(self.failures) >= FAILURES:
            raise RuntimeError(f"{FAILURES} trials in a row failed, the last: {self.failures[-1]}")

    def _outcome(self, trial: Trial, watch: _TrialWatch) -> str:
        """Train it and record what came of it; in words."""
        try:
            config = self.study.plan.config(trial.params)
            result = fit(
                config,
                self.study.run_folder(trial),
                data=self._graph(config.data.encoding),
                device=self.place,
                resume=True,  # the process that began this trial may have ended
                watch=watch,
                stop=self._is_over,
                keep_graph=False,
            )
        except _Pruned:
            self._settle()
            self.study.prune(trial)
            return f"given up after {watch.seen} epochs"
        except (RuntimeError, MemoryError) as error:  # diverged, out of memory
            self._settle()
            reason = (str(error) or type(error).__name__).strip().splitlines()[0]
            self.study.fail(trial, reason)
            self.failures.append(reason)
            return f"failed: {reason}"
        runs = result.runs
        scores, epochs = [run.val for run in runs], [run.epochs for run in runs]
        self.study.finish(trial, scores, epochs, sum(run.seconds for run in runs))
        self.failures.clear()
        return f"val {self.study.metric.show(mean(scores))}"

    def _tell(self, trial: Trial, line: str) -> None:
        """How a trial ended, how far the whole study is, and how long this process still has."""
        trials, done = self.study.trials(), self.study.done()
        running = sum(trial.state.name == "RUNNING" for trial in trials)
        total, left = self._total(), max(0.0, self.end - time.monotonic())
        if total is not None and self.seconds:
            rest = total - len(trials) + running
            left = min(left, rest * median(self.seconds) / max(1, running))
        show, best = self.study.metric.show, ""
        if done:
            best = f"best {show(done[0].value)} (trial {done[0].number})"
        self.watch.status(len(trials) - running - 1, total, left if left < math.inf else None, best)
        self.watch.end(f"trial {trial.number}", f"{line}  {best}", notable=True)

    def _total(self) -> int | None:
        return min(filter(None, (self.limit, len(self.study.points))), default=None)

    def _graph(self, encoding: int) -> Dataset:
        if encoding not in self.graphs:
            self.graphs[encoding] = next(iter(self.graphs.values())).encoded(encoding)
        return self.graphs[encoding]

    def _banner(self) -> str:
        plan, done, total = self.study.plan, len(self.study.trials()), self._total()
        line = f"tuning {plan.config({}).model.title} on {plan.graph}: {plan.method}, "
        line += f"space '{plan.space}', "
        line += f"{total} trials" if total is not None else "as many trials as the time allows"
        line += f" of {plan.runs} run{'s' * (plan.runs > 1)}, into {self.study.shown}"
        return line + (f" (continued: {done} begun or done)" if done else "")

    def _settle(self) -> None:
        """Wait for epochs that are still queued, before the memory that they use is freed."""
        if self.place.device.type == "cuda":
            with suppress(RuntimeError):  # what went wrong is known already
                torch.cuda.synchronize(self.place.device)


class _TrialWatch(Watch):
    """What `fit` tells of the runs of a trial: shown, and compared with other trials."""

    def __init__(self, worker: _Worker, trial: Trial) -> None:
        self.worker, self.trial = worker, trial
        self.seen = 0  # epochs of the first run that were compared

    def start(self, run: Run) -> None:
        run.name = f"trial {self.trial.number}, {run.name}"
        self.worker.watch.start(run)

    def epoch(self, run: Run) -> None:
        self.worker.watch.epoch(run)
        if not self.worker.prune or not run.name.endswith(", run 0") or run.best is None:
            return
        new, self.seen = range(self.seen + 1, run.epoch + 1), run.epoch
        for epoch in (epoch for epoch in new if epoch % REPORT_EPOCHS == 0):
            self.trial.report(run.best.val, epoch)
            if self.trial.should_prune():
                raise _Pruned
