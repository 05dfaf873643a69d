"""The study on disk: which points were tried, and how several processes share them.

    OUT/study.jsonl      Optuna's journal: every trial, its settings and its validation scores
    OUT/trials/KEY/      the run folder of a trial; gone when the trial is done
    OUT/*.lock           held while a process chooses its next trial, or lives

Choosing a trial is done under a lock, so no point is tried twice. A process holds a lock of its
own as long as it lives: a trial that is under way although its process is gone is put back. The
system drops both locks with their process, however it ends. Where there are no such locks
(Windows), one process at a time.
"""

from __future__ import annotations

import os
import shutil
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _check, datasets
from ..config import Config, STAGNNSettings
from ..io import FileError, drop_torn_line, lock, lock_if_free, locked
from ..tasks import of as task_of
from ..train.recipes import recipe
from .space import distributions, grid, key, settings, space_of

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy
    from optuna.trial import FrozenTrial, Trial

METHODS = ("optuna", "grid")
JOURNAL = "study.jsonl"
STARTUP_TRIALS = 10
"""Trials before any is given up for its curve."""


def need_optuna() -> None:
    """The search keeps its trials with Optuna: say how to get it, where it is missing."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        words = 'the search needs Optuna: pip install "subtree-attention[tune]"'
        raise ImportError(words) from None


@dataclass(frozen=True)
class Plan:
    """What a study is about: trials are comparable only if all of this is the same.

    Attributes:
        graph: name in `subtree_attention.datasets`, or with `base` any.
        method: "optuna" (proposals that learn from the trials) or "grid" (every point).
        space: a name in `SPACES`; a grid needs one of choices only.
        runs: splits per trial; the score of a trial is their mean validation score.
        seed: of the proposals and of the first split.
        changes: settings other than the recipe's that all trials share.
        base: the settings of a graph of one's own, in place of a recipe.
        data: what tells that graph from another.
    """

    graph: str
    method: str = "optuna"
    space: str = "paper"
    runs: int = 3
    seed: int = 0
    changes: dict[str, Any] = field(default_factory=dict)
    base: dict[str, Any] | None = None
    data: str | None = None

    def __post_init__(self) -> None:
        if self.base is None:
            object.__setattr__(self, "graph", datasets.info(self.graph).name)
        _check.kind("changes", self.changes, dict, "a dictionary of settings")
        _check.kind("data", self.data, (str, type(None)), "a fingerprint")
        _check.known("method", self.method, METHODS)
        _check.integer("runs", self.runs, 1, _check.MOST_RUNS)
        _check.integer("seed", self.seed, 0, _check.MOST_SEED)
        if self.method == "grid" and not grid(space_of(self.space)):
            raise ValueError(
                f"the space '{self.space}' has ranges, so it has no grid: "
                "use --method optuna, or --space paper"
            )
        searched = self.changes.keys() & {*space_of(self.space), "runs", "seed"}
        if searched:
            raise ValueError(f"{', '.join(sorted(searched))}: fixed, and searched at once")
        model = self.config({}).model  # refuses what the recipe cannot be changed to
        if model.name != STAGNNSettings.name:
            raise ValueError(
                f"settings of STAGNN are searched, and '{self.graph}' is learnt with "
                f"{model.title}: choose its settings by hand (sta train --help)"
            )

    def config(self, point: Mapping[str, Any]) -> Config:
        """What a trial at a point trains."""
        return self.protocol(point).replace(runs=self.runs)

    def protocol(self, point: Mapping[str, Any]) -> Config:
        """The recipe that a point is: with the number of runs that results are reported on."""
        config = recipe(self.graph) if self.base is None else Config.from_dict(self.base)
        return config.replace(**self.changes, **settings(point), seed=self.seed)


class Study:
    """The trials of a plan in a folder; open it with `opened`."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.space, self.metric = space_of(plan.space), task_of(plan.config({}).task).metric
        self.points = grid(self.space, plan.seed)
        self.worker = f"worker-{uuid.uuid4().hex[:12]}.lock"
        with self.alone():
            self.optuna = _open(folder, plan, self.metric.sign)
            self._check_plan()
            self._sweep()

    def alone(self) -> AbstractContextManager[int]:
        """No other process is in this part."""
        return locked(self.folder / "study.lock")

    def trials(self) -> list[FrozenTrial]:
        """All trials that count: done, failed for a reason of their own, or under way."""
        return [
            trial
            for trial in self._all()
            if "reason" in trial.user_attrs or trial.state.name not in ("FAIL", "WAITING")
        ]

    def done(self) -> list[FrozenTrial]:
        """The trials that have a validation score, best first; of equals the earlier one."""
        scored, sign = [t for t in self._all() if t.state.name == "COMPLETE"], self.metric.sign
        return sorted(scored, key=lambda trial: (-sign * (trial.value or 0.0), trial.number))

    def next(self, limit: int | None) -> Trial | None:
        """A trial that this process shall do now; None if there are `limit`, or no points left."""
        with self.alone():
            self._put_back_the_dead()
            queue, attempts = self.plan.method == "grid", count()
            while True:
                tried = {key(trial.params) for trial in self.trials()}
                left = [point for point in self.points if key(point) not in tried]
                if len(tried) >= (limit or float("inf")) or (self.points and not left):
                    return None
                if queue:
                    self.optuna.enqueue_trial(left[0])
                trial = self._ask(next(attempts))
                if key(trial.params) not in tried:
                    return trial
                # A proposal that was tried before tells nothing new: take any other point.
                self.optuna.tell(trial, state=_state("FAIL"))
                queue = bool(self.points)

    def finish(self, trial: Trial, scores: list[float], epochs: list[int], seconds: float) -> None:
        """Record the validation scores of a trial's runs."""
        told = {"scores": scores, "epochs": epochs, "seconds": round(seconds, 3)}
        self._end(trial, told, values=sum(scores) / len(scores))

    def fail(self, trial: Trial, reason: str) -> None:
        """Record that a trial cannot be done."""
        self._end(trial, {"reason": reason}, state=_state("FAIL"))

    def prune(self, trial: Trial) -> None:
        """Record that a trial was given up for its curve."""
        self._end(trial, {}, state=_state("PRUNED"))

    def put_back(self, trial: Trial) -> None:
        """Somebody else shall do it, or this process later; its run folder stays for that."""
        with self.alone():
            self._put_back(trial)

    def run_folder(self, trial: Trial | FrozenTrial) -> Path:
        """Named after the settings, so that whoever takes up a trial goes on where it was."""
        return self.folder / "trials" / key(trial.params)

    # ---------------------------------------------------------------------------------- inside

    def _all(self) -> list[FrozenTrial]:
        return self.optuna.get_trials(deepcopy=False)

    def _ask(self, attempt: int) -> Trial:
        from optuna.samplers import TPESampler

        # By the number of trials that count: processes do not propose the same, and going on after
        # a stop proposes what would have been proposed without it.
        seed = (1_000_003 * self.plan.seed + len(self.trials()) + 7_919 * attempt) % 2**32
        self.optuna.sampler = TPESampler(seed=seed)
        trial = self.optuna.ask(distributions(self.space))
        trial.set_user_attr("worker", self.worker)
        return trial

    def _put_back_the_dead(self) -> None:
        for trial in self._all():
            worker = trial.user_attrs.get("worker")
            if trial.state.name == "RUNNING" and not (worker and _is_held(self.folder / worker)):
                self._put_back(trial)

    def _put_back(self, trial: Trial | FrozenTrial) -> None:
        if self.plan.method == "optuna" and trial.params.keys() == self.space.keys():
            self.optuna.enqueue_trial(trial.params)
        self.optuna.tell(trial.number, state=_state("FAIL"))  # no reason: it does not count

    def _end(self, trial: Trial, told: Mapping[str, Any], **outcome: Any) -> None:
        for name, value in told.items():
            trial.set_user_attr(name, value)
        self.optuna.tell(trial, **outcome)
        shutil.rmtree(self.run_folder(trial), ignore_errors=True)

    def _sweep(self) -> None:
        """Remove what processes left that died between the end of a trial and their own."""
        for trial in self._all():
            if trial.state.is_finished() and (
                "reason" in trial.user_attrs or trial.value is not None
            ):
                shutil.rmtree(self.run_folder(trial), ignore_errors=True)
        for worker in self.folder.glob("worker-*.lock"):
            _is_held(worker)

    def _check_plan(self) -> None:
        """The folder's plan must be this one; a new folder takes it over."""
        mine = {name: value for name, value in asdict(self.plan).items() if value is not None}
        theirs = self.optuna.user_attrs.get("task")  # so called since the first studies
        if theirs and theirs.get("base"):
            theirs = {**theirs, "base": Config.from_dict(theirs["base"]).to_dict()}
        if theirs is None:
            self.optuna.set_user_attr("task", mine)
        elif theirs != mine:
            different = [
                f"{name} {theirs.get(name)!r}, not {value!r}"
                for name, value in mine.items()
                if theirs.get(name) != value
            ]
            raise FileError(
                f"{self.folder} holds another search ({'; '.join(different)}): go on with that "
                "one by its own options, or choose another folder with --out"
            )


@contextmanager
def opened(plan: Plan, folder: Path) -> Iterator[Study]:
    """The study in a folder, made if there is none; this process counts as alive until the end."""
    if folder.exists() and not folder.is_dir():
        raise FileError(f"{folder} is a file: choose a folder")
    folder.mkdir(parents=True, exist_ok=True)
    # Locks alone are another process that is about to write the journal.
    strange = any(path.suffix != ".lock" for path in folder.iterdir())
    if strange and not (folder / JOURNAL).exists():
        raise FileError(f"{folder} is not empty and holds no search: choose another folder")
    study = Study(plan, folder)
    with locked(folder / study.worker):
        try:
            yield study
        finally:
            (folder / study.worker).unlink(missing_ok=True)


def _open(folder: Path, plan: Plan, sign: int) -> OptunaStudy:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this part of Optuna may still change
        lock: Any = _JournalLock(folder / "journal.lock", folder / JOURNAL)
        storage = JournalStorage(JournalFileBackend(str(folder / JOURNAL), lock))
    return optuna.create_study(
        storage=storage,
        study_name="tune",
        direction="maximize" if sign > 0 else "minimize",
        load_if_exists=True,
        # Not before `patience` epochs: a small learning rate starts slowly.
        pruner=optuna.pruners.MedianPruner(STARTUP_TRIALS, plan.config({}).fit.patience),
    )


def _state(name: str) -> Any:
    from optuna.trial import TrialState

    return TrialState[name]


# ------------------------------------------------------------------------------------------ locks


class _JournalLock:
    """The lock of Optuna's journal, in the form that Optuna asks for.

    Its own are files, which stay behind when their process is killed: others then wait for 30 s.
    And a line that was cut off with its process would spoil what others write behind it.
    """

    def __init__(self, path: Path, journal: Path) -> None:
        self.path, self.journal = path, journal
        self.held: int | None = None

    def acquire(self) -> bool:
        if self.held is None:  # Ctrl-C may have come before the release
            self.held = lock(self.path)
        with suppress(FileNotFoundError):  # before the first line
            journal = os.open(self.journal, os.O_RDWR)
            try:
                drop_torn_line(journal)
            finally:
                os.close(journal)
        return True

    def release(self) -> None:
        if self.held is not None:
            os.close(self.held)
            self.held = None


def _is_held(path: Path) -> bool:
    """Whether a process that lives holds the lock; what a dead one left behind is removed."""
    free = lock_if_free(path)
    if free is None:
        return True
    with suppress(OSError):
        path.unlink()
    os.close(free)
    return False
