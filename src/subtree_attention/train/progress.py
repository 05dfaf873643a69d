"""What a person sees while training: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .config import Config
    from .loop import Epoch, RunResult

LINE_SECONDS = 10.0
"""Plain lines come at most this often within a run."""


class Progress(Protocol):
    """What the loop tells. `epoch` comes after every epoch."""

    def begin(self, folder: Path) -> None: ...

    def start_run(self, index: int, epoch: int) -> None: ...

    def epoch(self, now: Epoch, best: Epoch | None) -> None: ...

    def finish_run(self, result: RunResult) -> None: ...


class Silent:
    """Nothing to see."""

    def begin(self, folder: Path) -> None:
        pass

    def start_run(self, index: int, epoch: int) -> None:
        pass

    def epoch(self, now: Epoch, best: Epoch | None) -> None:
        pass

    def finish_run(self, result: RunResult) -> None:
        pass


class _Clock:
    """How long is left, if the validation score does not improve any more."""

    def __init__(self, config: Config) -> None:
        self.config, self.finished = config, list[float]()
        self.index, self.first = 0, (0, 0.0)

    def start_run(self, index: int, epoch: int) -> None:
        self.index, self.first = index, (0, 0.0)

    def seconds_left(self, now: Epoch, best: Epoch | None) -> float | None:
        """None as long as nothing can be said; the first epoch warms up and does not count."""
        if not self.first[0]:
            self.first = (now.epoch, time.monotonic())
        epochs, spent = now.epoch - self.first[0], time.monotonic() - self.first[1]
        if epochs < 1:
            return None
        last = min(self.config.epochs, (best or now).epoch + self.config.patience)
        this_run = max(last - now.epoch, 0) * spent / epochs
        usual = sum(self.finished) / len(self.finished) if self.finished else spent + this_run
        return this_run + usual * (self.config.runs - self.index - 1)

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
        print(self.banner(folder), flush=True)

    def epoch(self, now: Epoch, best: Epoch | None) -> None:
        left = self.seconds_left(now, best)
        if time.monotonic() - self.last >= LINE_SECONDS and left is not None:
            self.last = time.monotonic()
            print(
                f"run {self.index + 1}/{self.config.runs}  epoch {now.epoch}  "
                f"{_scores(now, best)}  about {left:.0f} s left",
                flush=True,
            )

    def finish_run(self, result: RunResult) -> None:
        self.finished.append(result.seconds)
        print(
            f"run {result.run + 1}/{self.config.runs}  {result.epochs} epochs  "
            f"val {100 * result.val:.2f}  test {100 * result.test:.2f}  {result.seconds:.1f} s",
            flush=True,
        )


class Bars(_Clock):
    """A live display: one bar for the runs, one for the epochs of the current run."""

    def __init__(self, config: Config, console: Any) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress

        super().__init__(config)
        self.display = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            transient=True,
        )
        self.runs = self.display.add_task("runs  ", total=config.runs, note="")
        self.epochs = self.display.add_task("epochs", total=config.epochs, note="")

    def begin(self, folder: Path) -> None:
        self.display.console.print(self.banner(folder), soft_wrap=True)

    def __enter__(self) -> Bars:
        self.display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.display.stop()

    def start_run(self, index: int, epoch: int) -> None:
        super().start_run(index, epoch)
        self.display.reset(self.epochs, completed=epoch, note="")

    def epoch(self, now: Epoch, best: Epoch | None) -> None:
        # The bar ends where patience would: it grows when the validation score improves.
        total = min(self.config.epochs, (best or now).epoch + self.config.patience)
        left = self.seconds_left(now, best)
        minutes, seconds = divmod(round(left or 0), 60)
        note = _scores(now, best) + ("" if left is None else f"  {minutes}:{seconds:02d} left")
        self.display.update(self.epochs, completed=now.epoch, total=total, note=note)

    def finish_run(self, result: RunResult) -> None:
        self.finished.append(result.seconds)
        self.display.update(
            self.runs, completed=result.run + 1, note=f"last test {100 * result.test:.2f}"
        )


def _scores(now: Epoch, best: Epoch | None) -> str:
    best_val = best.val if best else now.val
    return f"loss {now.loss:.4f}  val {100 * now.val:.2f}  best {100 * best_val:.2f}"
