"""What a person sees while models train: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..train.watch import Watch

if TYPE_CHECKING:
    from ..references import Comparison
    from ..tasks.metrics import Metric
    from ..train.run import Run

LINE_SECONDS = 10.0
"""Plain lines come at most this often within a training."""


class Lines(Watch):
    """Plain lines, for logs and pipes; and the clock that a live display has too."""

    def __init__(self) -> None:
        self.done, self.elsewhere, self.what = 0, 0, "runs"
        self.total: int | None = 0
        self.active: dict[str, Run] = {}
        self.finished: list[int] = []  # epochs of what has ended here
        self.epochs = 0  # done here
        self.since: float | None = None
        self.began = self.last = time.monotonic()
        self.bound: float | None = None  # when it ends at the latest

    def begin(
        self, banner: str, total: int | None, what: str = "runs", folder: Path | None = None
    ) -> None:
        self.total, self.what, self.began = total, what, time.monotonic()
        self.done, self.since, self.bound = 0, None, None  # runs may follow upon a competition
        self.active.clear()
        self.finished.clear()
        self.say(banner)
        self.refresh()

    def say(self, line: str) -> None:
        print(line, flush=True)

    def compared(self, comparison: Comparison, metric: Metric) -> None:
        from .references import as_text

        self.say(as_text(comparison, metric))

    def start(self, run: Run) -> None:
        self.active[run.name] = run
        self.epochs -= run.epoch  # those were done before

    def epoch(self, run: Run) -> None:
        left = self._tick()
        if time.monotonic() - self.last >= LINE_SECONDS and left is not None:
            self.last = time.monotonic()
            self.say(f"{run.name}  epoch {run.epoch}  {scores(run)}  about {clock(left)} left")

    def end(self, name: str, line: str, notable: bool = False) -> None:
        self._count(name)
        of, left = "" if self.total is None else f"/{self.total}", self.seconds_left()
        rest = "" if left is None else f"  about {clock(left)} left"
        self.say(f"{self.done}{of}  {name}  {line}{rest}")

    def status(
        self, done: int, total: int | None, seconds_left: float | None = None, note: str = ""
    ) -> None:
        self.done, self.total = done, total
        if seconds_left is not None:
            self.bound = time.monotonic() + seconds_left
        self.refresh(note)

    def leave(self, name: str) -> None:
        self.elsewhere += 1
        if self.total:
            self.total -= 1
        self.refresh()

    def refresh(self, note: str | None = None) -> None:
        """Show how far all is, where a display is live."""

    def _tick(self) -> float | None:
        """The first epoch of all warms up and starts the clock."""
        if self.since is None:
            self.since = time.monotonic()
            self.epochs = -sum(run.epoch for run in self.active.values())
        return self.seconds_left()

    def _count(self, name: str) -> None:
        """Something has ended: a run, or a trial with its runs."""
        self.done += 1
        for own in [own for own in self.active if own == name or own.startswith(f"{name},")]:
            epochs = self.active.pop(own).epoch
            self.finished.append(epochs)
            self.epochs += epochs

    def seconds_left(self) -> float | None:
        """If no validation score improves any more; None as long as nothing can be said."""
        bounds = [] if self.bound is None else [max(0.0, self.bound - time.monotonic())]
        counted = self.epochs + sum(run.epoch for run in self.active.values())
        if self.since is not None and counted > 0 and self.total is not None:
            here = sum(run.epochs_left for run in self.active.values())
            known = self.finished or [run.last_epoch for run in self.active.values()]
            waiting = max(0, self.total - self.done - len(self.active))
            epochs = here + waiting * sum(known) / len(known)
            bounds.append(epochs * (time.monotonic() - self.since) / counted)
        elif self.done and self.total:  # they train in other processes
            each = (time.monotonic() - self.began) / self.done
            bounds.append(each * (self.total - self.done))
        return min(bounds, default=None)


class Bars(Lines):
    """A live display: one bar for the trainings, one for the epochs of those under way."""

    def __init__(self, console: Any) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        super().__init__()
        self.display = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            transient=True,
        )
        self.all = self.display.add_task("runs", total=None, note="")
        self.now = self.display.add_task("epochs", total=None, note="")

    def __enter__(self) -> Bars:
        self.display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.display.stop()

    def say(self, line: str) -> None:
        self.display.console.print(line, soft_wrap=True, markup=False)

    def compared(self, comparison: Comparison, metric: Metric) -> None:
        from .references import show

        show(comparison, metric, self.display.console)

    def refresh(self, note: str | None = None) -> None:
        told: Any = {"description": f"{self.what:6}"} | ({} if note is None else {"note": note})
        self.display.update(self.all, completed=self.done, total=self.total, **told)

    def epoch(self, run: Run) -> None:
        left = self._tick()
        others = f" and {len(self.active) - 1} more" if len(self.active) > 1 else ""
        rest = "" if left is None else f"  {clock(left)} left"
        note = f"{run.name}{others}  {scores(run)}{rest}"
        # The bar ends where patience would: it grows when the validation score improves.
        completed = sum(run.epoch for run in self.active.values())
        total = sum(run.last_epoch for run in self.active.values())
        self.display.update(self.now, completed=completed, total=total, note=note)

    def end(self, name: str, line: str, notable: bool = False) -> None:
        self._count(name)
        if notable:
            self.say(f"{name}  {line}")
        self.refresh("" if notable else f"last {name}: {line}")


def clock(seconds: float) -> str:
    """1:05 or 2:03:07."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def scores(run: Run) -> str:
    """Loss and validation scores of a run now."""
    if not run.history:  # it diverged or failed at once
        return ""
    show, now = run.trainer.metric.show, run.history[-1]
    best = (run.best or now).val
    return f"loss {now.loss:.4f}  val {show(now.val)}  best {show(best)}"
