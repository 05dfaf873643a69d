"""What a person sees while jobs are worked off: a live display on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from typing import Any, Protocol

from experiments.reproduce.experiments import Job
from experiments.reproduce.render import Say
from experiments.reproduce.training import Outcome
from subtree_attention.train.progress import clock, live_bars


class Watch(Protocol):
    """What the queue tells; `elsewhere` counts the jobs that were left to other processes."""

    elsewhere: int

    def begin(self, total: int) -> None: ...

    def start(self, job: Job) -> None: ...

    def leave(self, job: Job) -> None: ...

    def end(self, outcome: Outcome) -> None: ...


class RunLines:
    """A plain line per run, for logs and pipes."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.begin(0)

    def begin(self, total: int) -> None:
        self.total, self.done, self.running = total, 0, list[Job]()
        self.elsewhere = 0  # left to other processes
        self.since = time.monotonic()

    def start(self, job: Job) -> None:
        self.running.append(job)

    def leave(self, job: Job) -> None:
        self.elsewhere += 1
        self.total -= 1

    def end(self, outcome: Outcome) -> None:
        self._count(outcome)
        self.say(f"{self.done}/{self.total}  {told(outcome)}  about {self._left()} left")

    def _count(self, outcome: Outcome) -> None:
        self.running = [job for job in self.running if job != outcome.job]
        self.done += 1

    def _left(self) -> str:
        """How long the rest takes, if it is like what is done."""
        each = (time.monotonic() - self.since) / self.done
        return clock(each * (self.total - self.done))


class RunBars(RunLines):
    """A live display: a bar for the runs, the time left, and what is running."""

    def __init__(self, say: Say, console: Any) -> None:
        self.display = live_bars(console)
        self.bar = self.display.add_task("runs", total=None, note="", visible=False)
        super().__init__(say)

    def __enter__(self) -> RunBars:
        self.display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.display.stop()

    def begin(self, total: int) -> None:
        super().begin(total)
        self._show()

    def start(self, job: Job) -> None:
        super().start(job)
        self._show()

    def leave(self, job: Job) -> None:
        super().leave(job)
        self._show()

    def end(self, outcome: Outcome) -> None:
        self._count(outcome)
        if outcome.record is None or outcome.record.diverged:
            self.say(told(outcome))
        self._show()

    def _show(self) -> None:
        note = f"{self._left()} left  " if self.done else ""
        if self.running:
            others = len(self.running) - 1
            note += str(self.running[0]) + (f" and {others} more" if others else "")
        shown = {"completed": self.done, "total": self.total, "visible": self.total > 0}
        self.display.update(self.bar, note=note, **shown)


def told(outcome: Outcome) -> str:
    """A job and how it ended, in a line."""
    record = outcome.record
    if record is None:
        return f"{outcome.job}  failed: {outcome.error}"
    parts = [str(outcome.job)]
    if record.test is not None:
        parts.append(f"test {100 * record.test:.2f}")
    parts.append(f"{record.epochs} epochs")
    if record.diverged:
        parts.append(f"diverged at epoch {record.diverged}")
    return "  ".join(parts)
