"""What a log is: three methods, and what they are told of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ...config import Config
from ...runs.folder import Epoch, RunResult


@dataclass(frozen=True)
class LoggedRun:
    """A run, as a log is told of it.

    Attributes:
        index: which of the runs of a folder.
        folder: its own, such as runs/mine/run-0.
        metric: the name of the scores.
        settings: every setting by name, the run's seed too.
    """

    index: int
    folder: Path
    metric: str
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, folder: Path, config: Config) -> LoggedRun:
        """The run of a folder."""
        index = int(folder.name.removeprefix("run-"))
        task, model = config.task.name, config.model.name
        settings = {"task": task, "model": model, **config.flat(), "seed": config.fit.seed + index}
        return cls(index, folder, config.task.metric, settings)

    @property
    def out(self) -> Path:
        """The folder of all runs."""
        return self.folder.parent

    @property
    def title(self) -> str:
        """What to call it beside others."""
        return f"{self.out.name}/{self.folder.name}"

    def numbers(self, epoch: Epoch) -> dict[str, float]:
        """What is logged of an epoch: the test score is for the end."""
        return {
            "loss": epoch.loss,
            f"{self.metric}/train": epoch.train,
            f"{self.metric}/val": epoch.val,
        }

    def result(self, result: RunResult) -> dict[str, float]:
        """What is logged when a run has ended: the scores of its best epoch."""
        return {f"{self.metric}/test": result.test, f"{self.metric}/best_val": result.val}


@runtime_checkable
class Log(Protocol):
    """Told of runs as they go on, in a thread of its own, so that training waits for nothing.

    Several runs may be under way at a time. An error ends the log, and not the training.
    """

    def begin(self, run: LoggedRun, history: Sequence[Epoch]) -> None:
        """A run begins; or is taken up again, or was done before, after the epochs in `history`."""

    def epoch(self, run: LoggedRun, epoch: Epoch) -> None:
        """The next epoch of a run."""

    def end(self, run: LoggedRun, result: RunResult | None) -> None:
        """A run has ended; None if it was stopped, and may be taken up again."""
