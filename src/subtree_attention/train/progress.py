"""What a person sees while training: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .config import Config
    from .run import Epoch, RunResult

LINE_SECONDS = 10.0
"""Plain lines come at most this often within a run."""


class Progress(Protocol):
    """What the loop tells. `epoch` comes for every epoch; several runs may be under way."""

    def begin(self, folder: Path) -> None: ...

    def say(self, line: str) -> None: ...

    def start_run(self, index: int, epoch: int) -> None: ...

    def epoch(self, index: int, now: Epoch, best: Epoch | None) -> None: ...

    def finish_run(self, result: RunResult) -> None: ...


class Silent:
    """Nothing to see."""

    def begin(self, folder: Path) -> None:
        pass

    def say(self, line: str) -> None:
        pass

    def start_run(self, index: int, epoch: int) -> None:
        pass

    def epoch(self, index: int, now: Epoch, best: Epoch | None) -> None:
        pass

    def finish_run(self, result: RunResult) -> None:
        pass


class _Clock:
    """Where the runs are, and how long is left if no validation score improves any more."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.active: dict[int, tuple[int, int]] = {}  # run -> its epoch, and its last if so
        self.finished: list[int] = []  # epochs of the finished runs
        self.counted = 0
        self.since: float | None = None

    def start_run(self, index: int, epoch: int) -> None:
        self.active[index] = (epoch, self._last(epoch))

    def note(self, index: int, now: Epoch, best: Epoch | None) -> None:
        """An epoch is done. The first one of all warms up and starts the clock."""
        self.active[index] = (now.epoch, self._last((best or now).epoch))
        if self.since is None:
            self.since = time.monotonic()
        else:
            self.counted += 1

    def note_finished(self, result: RunResult) -> None:
        self.active.pop(result.run, None)
        self.finished.append(result.epochs)

    def seconds_left(self) -> float | None:
        """None as long as nothing can be said."""
        if self.since is None or not self.counted:
            return None
        here = sum(last - now for now, last in self.active.values())
        known = self.finished or [last for _, last in self.active.values()]
        waiting = self.config.runs - len(self.finished) - len(self.active)
        epochs = here + waiting * sum(known) / len(known)
        return epochs * (time.monotonic() - self.since) / self.counted

    def _last(self, best: int) -> int:
        return min(self.config.epochs, best + self.config.patience)

    def banner(self, folder: Path) -> str:
        """What is about to be trained, and where it goes."""
        config = self.config
        line = f"STAGNN on {config.graph}: {config.runs} run{'s' * (config.runs > 1)}, "
        line += f"{config.hops} hops, {config.heads} head{'s' * (config.heads > 1)}, into {folder}"
        if (folder / "summary.json").exists():
            return line + " (finished already)"
        return line + (" (resumed)" if any(folder.glob("run-*")) else "")


class Lines(_Clock):
    """Plain lines, for logs and pipes."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.last = time.monotonic()

    def begin(self, folder: Path) -> None:
        self.say(self.banner(folder))

    def say(self, line: str) -> None:
        print(line, flush=True)

    def epoch(self, index: int, now: Epoch, best: Epoch | None) -> None:
        self.note(index, now, best)
        left = self.seconds_left()
        if time.monotonic() - self.last >= LINE_SECONDS and left is not None:
            self.last = time.monotonic()
            print(
                f"run {index}  epoch {now.epoch}  {_scores(now, best)}  about {left:.0f} s left",
                flush=True,
            )

    def finish_run(self, result: RunResult) -> None:
        self.note_finished(result)
        print(
            f"run {result.run}  {result.epochs} epochs  "
            f"val {100 * result.val:.2f}  test {100 * result.test:.2f}  {result.seconds:.1f} s",
            flush=True,
        )


class Bars(_Clock):
    """A live display: one bar for the runs, one for the epochs of the runs under way."""

    def __init__(self, config: Config, console: Any) -> None:
        super().__init__(config)
        self.display = live_bars(console)
        self.runs = self.display.add_task("runs  ", total=config.runs, note="")
        self.epochs = self.display.add_task("epochs", total=config.epochs, note="")

    def begin(self, folder: Path) -> None:
        self.say(self.banner(folder))

    def say(self, line: str) -> None:
        self.display.console.print(line, soft_wrap=True)

    def __enter__(self) -> Bars:
        self.display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.display.stop()

    def epoch(self, index: int, now: Epoch, best: Epoch | None) -> None:
        self.note(index, now, best)
        left = self.seconds_left()
        note = _scores(now, best) + ("" if left is None else f"  {clock(left)} left")
        # The bar ends where patience would: it grows when the validation score improves.
        completed, total = map(sum, zip(*self.active.values(), strict=True))
        self.display.update(self.epochs, completed=completed, total=total, note=note)

    def finish_run(self, result: RunResult) -> None:
        self.note_finished(result)
        self.display.update(
            self.runs, completed=len(self.finished), note=f"last test {100 * result.test:.2f}"
        )


def live_bars(console: Any) -> Any:
    """Rich's bars as every live display of ours has them: name, bar, count, and a `note`."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as RichProgress

    return RichProgress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        transient=True,
    )


def clock(seconds: float) -> str:
    """1:05 or 2:03:07."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _scores(now: Epoch, best: Epoch | None) -> str:
    best_val = best.val if best else now.val
    return f"loss {now.loss:.4f}  val {100 * now.val:.2f}  best {100 * best_val:.2f}"
