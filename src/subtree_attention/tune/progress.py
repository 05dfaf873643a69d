"""What a person sees during a search: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ..train.progress import clock, live_bars


@dataclass(frozen=True)
class Standing:
    """How far a study is.

    Attributes:
        done: trials that are finished, by whichever process.
        total: trials when it ends; None if only time ends it.
        best: number and validation score of the best trial.
        seconds_left: at most; None as long as nothing can be said.
    """

    done: int
    total: int | None
    best: tuple[int, float] | None
    seconds_left: float | None

    def __str__(self) -> str:
        parts = []
        if self.best:
            parts.append(f"best {100 * self.best[1]:.2f} (trial {self.best[0]})")
        if self.seconds_left is not None:
            parts.append(f"{clock(self.seconds_left)} left")
        return "  ".join(parts)


class Display(Protocol):
    """What a search tells. `epoch` comes for every epoch of every run of a trial."""

    def begin(self, banner: str) -> None: ...

    def start(self, trial: int, line: str) -> None: ...

    def epoch(self, run: int, epoch: int, score: float, seconds_left: float | None) -> None: ...

    def finish(self, trial: int, line: str, standing: Standing) -> None: ...


class Quiet:
    """Nothing to see."""

    def begin(self, banner: str) -> None:
        pass

    def start(self, trial: int, line: str) -> None:
        pass

    def epoch(self, run: int, epoch: int, score: float, seconds_left: float | None) -> None:
        pass

    def finish(self, trial: int, line: str, standing: Standing) -> None:
        pass


class TrialLines(Quiet):
    """A plain line per trial, for logs and pipes."""

    def begin(self, banner: str) -> None:
        print(banner, flush=True)

    def finish(self, trial: int, line: str, standing: Standing) -> None:
        of = "" if standing.total is None else f"/{standing.total}"
        print(f"{standing.done}{of}  trial {trial}  {line}  {standing}", flush=True)


class TrialBars(Quiet):
    """A live display: one bar for the trials, and what the trial under way does."""

    def __init__(self, console: Any) -> None:
        self.display = live_bars(console)
        self.trials = self.display.add_task("trials", total=None, note="")
        self.now = self.display.add_task("epochs", total=None, note="")

    def __enter__(self) -> TrialBars:
        self.display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.display.stop()

    def begin(self, banner: str) -> None:
        self._print(banner)

    def start(self, trial: int, line: str) -> None:
        self.display.update(self.now, completed=0, note=f"trial {trial}: {line}")

    def epoch(self, run: int, epoch: int, score: float, seconds_left: float | None) -> None:
        left = "" if seconds_left is None else f"  {clock(seconds_left)} left"
        note = f"run {run}  best val {100 * score:.2f}{left}"
        self.display.update(self.now, completed=epoch, note=note)

    def finish(self, trial: int, line: str, standing: Standing) -> None:
        self._print(f"trial {trial}  {line}")
        self.display.update(
            self.trials, completed=standing.done, total=standing.total, note=str(standing)
        )

    def _print(self, line: str) -> None:
        self.display.console.print(line, soft_wrap=True, markup=False)
