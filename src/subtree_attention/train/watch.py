"""What trainings tell while they go on. Nothing is shown here: displays are in `show.progress` and
`show.live`, and what is written elsewhere too in `logs`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..references import Comparison
    from ..runs.folder import RunResult
    from ..tasks.metrics import Metric
    from .run import Run


class Watch:
    """Told of every training, whether it is a run, the run of a trial or of an experiment.

    As it stands it is silent; a display overrides what it shows.
    """

    def begin(
        self, banner: str, total: int | None, what: str = "runs", folder: Path | None = None
    ) -> None:
        """So many trainings are about to be done, and saved in a folder; None if only time ends
        them, or if they have folders of their own."""

    def say(self, line: str) -> None:
        """A line for people."""

    def compared(self, comparison: Comparison, metric: Metric) -> None:
        """References have been scored on the split of run 0, now or earlier."""

    def start(self, run: Run) -> None:
        """A run begins, or is taken up again."""

    def epoch(self, run: Run) -> None:
        """Some epochs of a run are done; several runs may be under way."""

    def finish(self, run: Path, result: RunResult) -> None:
        """A run is saved in its folder, now or before."""

    def end(self, name: str, line: str, notable: bool = False) -> None:
        """A training has ended, as the line says; live displays pass over what is not notable."""

    def status(
        self, done: int, total: int | None, seconds_left: float | None = None, note: str = ""
    ) -> None:
        """How far all is, where others work on it too; seconds left at most, if that is known."""

    def leave(self, name: str) -> None:
        """A training is left to another process."""


class Watches(Watch):
    """Several that are told the same, in this order."""

    def __init__(self, *watches: Watch) -> None:
        self.watches = watches

    def begin(
        self, banner: str, total: int | None, what: str = "runs", folder: Path | None = None
    ) -> None:
        for watch in self.watches:
            watch.begin(banner, total, what, folder)

    def say(self, line: str) -> None:
        for watch in self.watches:
            watch.say(line)

    def compared(self, comparison: Comparison, metric: Metric) -> None:
        for watch in self.watches:
            watch.compared(comparison, metric)

    def start(self, run: Run) -> None:
        for watch in self.watches:
            watch.start(run)

    def epoch(self, run: Run) -> None:
        for watch in self.watches:
            watch.epoch(run)

    def finish(self, run: Path, result: RunResult) -> None:
        for watch in self.watches:
            watch.finish(run, result)

    def end(self, name: str, line: str, notable: bool = False) -> None:
        for watch in self.watches:
            watch.end(name, line, notable)

    def status(
        self, done: int, total: int | None, seconds_left: float | None = None, note: str = ""
    ) -> None:
        for watch in self.watches:
            watch.status(done, total, seconds_left, note)

    def leave(self, name: str) -> None:
        for watch in self.watches:
            watch.leave(name)
