"""Logs are told by a thread of their own: a slow disk or a server that is gone keeps nobody
waiting, and a log that fails is left out while training goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from ...config import Config
from ...runs.folder import RunResult, read_curves
from ..watch import Watch, Watches
from .log import Log, LoggedRun

if TYPE_CHECKING:
    from ..run import Run

LAST_SECONDS = 30.0
"""How long the end waits for what is still to be logged."""


@contextmanager
def told_too(logs: Sequence[Log], config: Config, watch: Watch) -> Iterator[Watch]:
    """A watch that also tells some logs of the runs of a configuration."""
    if not logs:
        yield watch
        return
    telling = Telling(logs, config, watch)
    try:
        yield Watches(watch, telling)
    finally:
        telling.close()


class Telling(Watch):
    """Tells logs what it is told.

    Args:
        logs: in their order.
        config: of all runs.
        watch: told in a line of a log that has failed.
    """

    def __init__(self, logs: Sequence[Log], config: Config, watch: Watch) -> None:
        self._logs, self._config, self._watch = list(logs), config, watch
        self._under_way: dict[Path, int] = {}  # folder of a run -> epochs that were told
        self._queue: SimpleQueue[tuple[Any, ...] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="logs", daemon=True)
        self._thread.start()

    def start(self, run: Run) -> None:
        folder: Path = run.folder  # type: ignore[attr-defined]  # it is one that is saved
        self._put("begin", folder, tuple(run.history))
        self._under_way[folder] = len(run.history)

    def epoch(self, run: Run) -> None:
        folder: Path = run.folder  # type: ignore[attr-defined]
        for epoch in run.history[self._under_way[folder] :]:
            self._put("epoch", folder, epoch)
        self._under_way[folder] = len(run.history)

    def finish(self, run: Path, result: RunResult) -> None:
        if self._under_way.pop(run, None) is None:  # done before
            self._put("begin", run, tuple(read_curves(run)))
        self._put("end", run, result)

    def close(self) -> None:
        """All that was told is logged, or it is said what is not."""
        for folder in self._under_way:
            self._put("end", folder, None)
        self._queue.put(None)
        self._thread.join(LAST_SECONDS)
        if self._thread.is_alive():
            self._watch.say(
                f"logs were not done {LAST_SECONDS:g} s after training: what they had not written "
                "by then is in the run folder only"
            )

    def _put(self, what: str, folder: Path, content: Any) -> None:
        self._queue.put((what, LoggedRun.of(folder, self._config), content))

    def _work(self) -> None:
        while (told := self._queue.get()) is not None:
            what, run, content = told
            for log in self._logs.copy():
                try:
                    getattr(log, what)(run, content)
                except Exception as error:  # of whatever kind its library has
                    self._logs.remove(log)
                    self._watch.say(
                        f"log {type(log).__name__} failed ({in_a_line(error)}): training goes on "
                        "without it"
                    )


def in_a_line(error: Exception) -> str:
    """What a library says, short, and nothing that a terminal would obey."""
    words = "".join(c if c.isprintable() else " " for c in f"{type(error).__name__}: {error}")
    words = " ".join(words.split())
    return words if len(words) <= 200 else f"{words[:200]}..."
