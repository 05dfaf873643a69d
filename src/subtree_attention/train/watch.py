"""What trainings tell while they go on. Nothing is shown here: displays are in `show.progress`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..references import Comparison
    from ..tasks.metrics import Metric
    from .run import Run


class Watch:
    """Told of every training, whether it is a run, the run of a trial or of an experiment.

    As it stands it is silent; a display overrides what it shows.
    """

    def begin(self, banner: str, total: int | None, what: str = "runs") -> None:
        """So many trainings are about to be done; None if only time ends them."""

    def say(self, line: str) -> None:
        """A line for people."""

    def compared(self, comparison: Comparison, metric: Metric) -> None:
        """References have been scored on the split of run 0, now or earlier."""

    def start(self, run: Run) -> None:
        """A run begins, or is taken up again."""

    def epoch(self, run: Run) -> None:
        """Some epochs of a run are done; several runs may be under way."""

    def end(self, name: str, line: str, notable: bool = False) -> None:
        """A training has ended, as the line says; live displays pass over what is not notable."""

    def status(
        self, done: int, total: int | None, seconds_left: float | None = None, note: str = ""
    ) -> None:
        """How far all is, where others work on it too; seconds left at most, if that is known."""

    def leave(self, name: str) -> None:
        """A training is left to another process."""
