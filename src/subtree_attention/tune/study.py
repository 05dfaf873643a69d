"""The study: which points were tried, and how several processes share them.

    OUT/study.jsonl      Optuna's journal: every trial, its settings and its validation scores
    OUT/trials/KEY/      the run folder of a trial; gone when the trial is done
    OUT/*.lock           held while a process chooses its next trial, or lives

The journal is where a study is kept if no other place is named (`storage.py`); otherwise OUT is
this machine's, and

    OUT/storage.json     says of which study, so that it is not another's

Choosing a trial is done alone, so no point is tried twice. A trial that is under way although its
process is gone is put back. Where there are no locks on files (Windows), a journal is for one
process at a time.
"""

from __future__ import annotations

import shutil
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _check, datasets
from ..config import Config, STAGNNSettings
from ..io import TEMPORARY, FileError, read_json, write_json
from ..tasks import of as task_of
from ..train.recipes import recipe
from .space import distributions, grid, key, settings, space_of
from .storage import Journal, Storage

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy
    from optuna.trial import FrozenTrial, Trial

METHODS = ("optuna", "grid")
JOURNAL, ELSEWHERE = "study.jsonl", "storage.json"
STARTUP_TRIALS = 10
"""Trials before any is given up for its curve."""


def quiet() -> None:
    """Optuna tells of every trial otherwise; displays are ours."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)


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
        graph: name in `subtree_attention.datasets`.
        method: "optuna" (proposals that learn from the trials) or "grid" (every point).
        space: a name in `SPACES`; a grid needs one of choices only.
        runs: splits per trial; the score of a trial is their mean validation score.
        seed: of the proposals and of the first split.
        changes: settings other than the recipe's that all trials share.
    """

    graph: str
    method: str = "optuna"
    space: str = "paper"
    runs: int = 3
    seed: int = 0
    changes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "graph", datasets.info(self.graph).name)
        _check.kind("changes", self.changes, dict, "a dictionary of settings")
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
        return recipe(self.graph).replace(**self.changes, **settings(point), seed=self.seed)


class TakenOver(Exception):
    """This process was taken for dead, and another does its trial: what it found does not count."""


class Study:
    """The trials of a plan; open it with `opened`."""

    def __init__(self, plan: Plan, folder: Path, storage: Storage, name: str | None) -> None:
        self.plan, self.folder, self.storage, self.name = plan, folder, storage, name
        self.space, self.metric = space_of(plan.space), task_of(plan.config({}).task).metric
        self.points = grid(self.space, plan.seed)
        with self.alone():
            self.optuna = _open(storage, name or "tune", plan, self.metric.sign)
            self._check_plan()
            if name is not None:
                self._check_folder()
            self._sweep()

    def alone(self) -> AbstractContextManager[object]:
        """No other process is in this part."""
        return self.storage.alone()

    @property
    def shown(self) -> str:
        """What it is called in messages."""
        if self.name is None:
            return str(self.folder)
        return f"the study {self.name} at {self.storage.shown}"

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
            for lost in self.storage.dead(self.optuna):
                self._put_back(lost)
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
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Heartbeat of storage")  # `claim` sees to it
            trial = self.optuna.ask(distributions(self.space))
        self.storage.claim(trial)
        return trial

    def _put_back(self, trial: Trial | FrozenTrial) -> None:
        if self.plan.method == "optuna" and trial.params.keys() == self.space.keys():
            self.optuna.enqueue_trial(trial.params)
        # Without a reason: it does not count. A database may have failed it already.
        self.optuna.tell(trial.number, state=_state("FAIL"), skip_if_finished=True)

    def _end(self, trial: Trial, told: Mapping[str, Any], **outcome: Any) -> None:
        with self.alone():  # nobody takes it over meanwhile
            if self._all()[trial.number].state.is_finished():
                raise TakenOver
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
        self.storage.sweep()

    def _check_plan(self) -> None:
        """The study's plan must be this one; a new study takes it over."""
        mine = asdict(self.plan)
        theirs = self.optuna.user_attrs.get("task")  # so called since the first studies
        if theirs is None:
            self.optuna.set_user_attr("task", mine)
        elif theirs != mine:
            different = [
                f"{name} {theirs.get(name)!r}, not {value!r}"
                for name, value in mine.items()
                if theirs.get(name) != value
            ]
            another = "folder with --out" if self.name is None else "name with --study"
            raise FileError(
                f"{self.shown} holds another search ({'; '.join(different)}): go on with that "
                f"one by its own options, or choose another {another}"
            )

    def _check_folder(self) -> None:
        """The folder must be this study's; an empty one becomes it."""
        mine = self.optuna.user_attrs.get("id")
        if mine is None:
            mine = uuid.uuid4().hex
            self.optuna.set_user_attr("id", mine)
        if not (self.folder / ELSEWHERE).exists():
            about = {"id": mine, "study": self.name, "storage": self.storage.shown}
            write_json(self.folder / ELSEWHERE, about)
            return
        theirs = read_json(self.folder / ELSEWHERE)
        if not isinstance(theirs, dict) or theirs.get("id") != mine:
            raise FileError(
                f"{self.folder} belongs to another search than {self.shown}: choose another "
                "folder with --out"
            )


@contextmanager
def opened(
    plan: Plan, folder: Path, storage: Storage | None = None, name: str | None = None
) -> Iterator[Study]:
    """A study, made if there is none; this process counts as alive until the end.

    Args:
        plan: what it is about.
        folder: where this machine works; and where the study is kept, without a storage.
        storage: another place where it is kept.
        name: its name there, by default `tune-GRAPH`.
    """
    if folder.exists() and not folder.is_dir():
        raise FileError(f"{folder} is a file: choose a folder")
    folder.mkdir(parents=True, exist_ok=True)
    # Locks and what is being written are another process that is about to begin.
    strange = any(path.suffix not in (".lock", TEMPORARY) for path in folder.iterdir())
    if strange and not (folder / (JOURNAL if storage is None else ELSEWHERE)).exists():
        held = "search" if storage is None else f"part of a search at {storage.shown}"
        raise FileError(f"{folder} is not empty and holds no {held}: choose another folder")
    if storage is None:
        storage, name = Journal(folder / JOURNAL), None
    else:
        name = name or f"tune-{plan.graph}"
    with storage.in_words():
        study = Study(plan, folder, storage, name)
        with storage.working():
            yield study


def _open(storage: Storage, name: str, plan: Plan, sign: int) -> OptunaStudy:
    import optuna

    quiet()
    return optuna.create_study(
        storage=storage.open(),
        study_name=name,
        direction="maximize" if sign > 0 else "minimize",
        load_if_exists=True,
        # Not before `patience` epochs: a small learning rate starts slowly.
        pruner=optuna.pruners.MedianPruner(STARTUP_TRIALS, plan.config({}).fit.patience),
    )


def _state(name: str) -> Any:
    from optuna.trial import TrialState

    return TrialState[name]
