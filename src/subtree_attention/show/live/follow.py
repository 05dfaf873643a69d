"""A run folder as it grows: what is new in its curves, how far it is, and whether it goes on.

Test scores are told only of runs that have ended.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from ... import io
from ...config import Config
from ...runs import folder as files
from ...runs import portfolio as kept
from ...runs.folder import FileError, RunResult
from ...tasks import of as task_of

LOOK_SECONDS = 0.4
"""The folder is looked at no more often, however many ask."""
RATE_SECONDS = 30.0
"""How long ago epochs count for how fast they are."""
GONE_SECONDS = 2.0
"""After so long without an epoch it is asked whether anybody trains at all."""
MOST_POINTS = 2000
"""Of a curve that is told from its beginning: more are not to be seen."""

Row = list[float]
"""An epoch: its number, loss, training score, validation score."""


@dataclass
class Curve:
    """The epochs of a run, or of a model that competes, as far as they were written.

    Attributes:
        name: as people call it.
        folder: where they are.
        sign: 1 where a higher score is better, -1 where a lower one is.
        most, patience: where it ends.
        words: what a model is that competes; None of a run.
        out: whether it is known that it does not go on: why, in words.
        trained: so many epochs were trained, which may be more than were ever seen here.
        result: of a run that has ended.
        rows: its epochs.
        best: that with the best validation score, the first of equals.
    """

    name: str
    folder: Path
    sign: int
    most: int
    patience: int
    words: str | None = None
    out: str = ""
    trained: int = 0
    result: RunResult | None = None
    rows: list[Row] = field(default_factory=list)
    best: Row | None = None
    _file: int = 0  # which it was, and how much of it was read
    _read: int = 0

    def grow(self) -> bool:
        """Read what is new. Whether all that was told before still holds."""
        with suppress(FileError), io.open_regular(self.folder / files.METRICS) as file:
            about = os.fstat(file.fileno())
            again = about.st_ino != self._file or about.st_size < self._read
            file.seek(0 if again else self._read)
            new = file.read(io.MOST_BYTES)
            whole = new[: new.rfind(b"\n") + 1]  # the rest is being written
            self._file, self._read = about.st_ino, (0 if again else self._read) + len(whole)
            return self._add([row for line in whole.splitlines() if (row := _row(line))])
        return True  # not there yet, or not any more

    def _add(self, rows: list[Row]) -> bool:
        """A run that was killed may come again from its last checkpoint on, with the same numbers;
        one that was begun anew has others."""
        before, holds = len(self.rows), True
        for row in rows:
            place = int(row[0]) - 1  # epochs are numbered from 1
            if place > len(self.rows):  # one is missing: the file is read again next time
                self._file = 0
                break
            if self.rows[place : place + 1] != [row]:
                holds = holds and place >= before
                self.rows[place:] = [row]
        if not holds:
            self.best, before = None, 0
        for row in self.rows[before:]:
            if self.best is None or self.sign * row[3] > self.sign * self.best[3]:
                self.best = row
        return holds

    @property
    def epoch(self) -> int:
        return len(self.rows)

    @property
    def end(self) -> int:
        """Where it ends if validation does not improve any more."""
        return min(self.most, int(self.best[0] if self.best else 0) + self.patience)

    def told(self, since: int) -> dict[str, Any]:
        """All but epochs that are known already."""
        new = self.rows[since:]
        step = math.ceil(len(new) / MOST_POINTS) or 1
        shown = new[::-1][::step][::-1]  # with the last one
        if since == 0 and self.best is not None and step > 1 and self.best not in shown:
            shown = sorted([*shown, self.best])
        ended = self.result
        best = self.best and {"epoch": self.best[0], "val": self.best[3]}
        return {
            "name": self.name,
            "words": self.words,
            "out": self.out,
            "epochs": self.epoch,
            "trained": max(self.epoch, self.trained),
            "end": self.end,
            "rows": shown,
            "best": {"epoch": ended.best_epoch, "val": ended.val} if ended else best,
            "test": ended and ended.test,
            "seconds": ended and ended.seconds,
        }


def _row(line: bytes) -> Row | None:
    """A line of metrics.jsonl without its test score; None if it is none of ours."""
    with suppress(ValueError, TypeError, KeyError, RecursionError):
        epoch = json.loads(line)
        row = [epoch[name] for name in ("epoch", "loss", "train", "val")]
        numbers = all(type(value) in (int, float) and abs(value) < 1e300 for value in row)
        if numbers and type(row[0]) is int and row[0] > 0:
            return [row[0], *(float(f"{value:.6g}") for value in row[1:])]
    return None


def _curve(name: str, place: Path, config: Config, words: str | None = None) -> Curve:
    sign = task_of(config.task).metric.sign
    return Curve(name, place, sign, config.fit.epochs, config.fit.patience, words)


class Followed:
    """A run folder that is looked at again and again.

    Args:
        folder: of all runs; None as long as nobody knows it.
        trains: whether this process trains there; by default it is asked who holds the folder.
    """

    def __init__(
        self, folder: Path | None = None, trains: Callable[[], bool] | None = None
    ) -> None:
        self.folder, self._trains = folder, trains
        self.session = secrets.token_hex(
            8
        )  # another one when what was told before does not hold any more
        self.runs: list[Curve] = []
        self.models: list[Curve] = []
        self._lock = Lock()
        self._looked, self._grew = -math.inf, -math.inf
        self._config: Config | None = None
        self._portfolio: tuple[Any, kept.Portfolio | None] = None, None
        self._seen: deque[tuple[float, int]] = deque()  # when how many epochs were there
        self._training = True
        self.asked = -math.inf  # when somebody wanted to know

    def state(self, session: str = "", have: Sequence[int] = ()) -> dict[str, Any]:
        """What is to be shown, but for so many epochs of each curve that are known already."""
        with self._lock:
            self.asked = time.monotonic()
            self._look()
            known = list(have) if session == self.session else []
            known += [0] * (len(self.models) + len(self.runs) - len(known))
            curves = [
                curve.told(max(0, since))
                for curve, since in zip([*self.models, *self.runs], known, strict=False)
            ]
            models, runs = curves[: len(self.models)], curves[len(self.models) :]
            return {"session": self.session, **self._head(), "models": models, "runs": runs}

    # ----------------------------------------------------------------------------------- looking

    def _look(self) -> None:
        now = time.monotonic()
        if self.folder is None or now - self._looked < LOOK_SECONDS:
            return
        first, self._looked = self._looked == -math.inf, now
        before = self._count()
        self._find()
        hold = [curve.grow() for curve in [*self.models, *self.runs]]
        if not all(hold):
            self.session = secrets.token_hex(8)
        if self._count() != before and not first:
            self._grew = now
        self._seen.append((now, self._count()))
        while self._seen[0][0] < now - RATE_SECONDS:
            self._seen.popleft()
        if self._trains is not None:
            self._training = self._trains()
        elif now - self._grew > GONE_SECONDS:
            self._training = files.is_claimed(self.folder)
        else:
            self._training = True

    def _find(self) -> None:
        """The curves that there are; what has come later comes last."""
        assert self.folder is not None
        portfolio = self._read_portfolio()
        if portfolio is not None:
            self._find_models(portfolio)
            winner = portfolio.winner
            self._config = None if winner is None else portfolio.config(winner)
        elif self._config is None and (self.folder / files.CONFIG).exists():
            self._config = files.read_config(self.folder)
        if self._config is None:
            return
        for run in files.run_folders(self.folder):
            curve = next((one for one in self.runs if one.folder == run), None)
            if curve is None:
                curve = _curve(f"run {run.name.removeprefix('run-')}", run, self._config)
                self.runs.append(curve)
            if curve.result is None and files.is_done(run):
                curve.result = files.read_result(run)

    def _find_models(self, portfolio: kept.Portfolio) -> None:
        assert self.folder is not None
        for tried in portfolio.tried:
            model = next((one for one in self.models if one.name == tried.name), None)
            if model is None:
                place = self.folder / files.COMPETING / tried.name / "run-0"
                model = _curve(tried.name, place, portfolio.config(tried), tried.words)
                self.models.append(model)
                if self.runs:  # which come behind them
                    self.session = secrets.token_hex(8)
            model.out = "won" if tried.state == kept.WON else tried.why
            if tried.epochs > model.epoch and tried.val is not None:  # it came and went unseen
                model.trained = tried.epochs
                model.best = [tried.best_epoch, math.nan, math.nan, tried.val]

    def _read_portfolio(self) -> kept.Portfolio | None:
        """Read again only if it has changed."""
        assert self.folder is not None
        try:
            about = os.stat(self.folder / files.PORTFOLIO)
        except OSError:
            return None
        mark = about.st_ino, about.st_mtime_ns, about.st_size
        if self._portfolio[0] != mark:
            self._portfolio = mark, kept.read(self.folder)
        return self._portfolio[1]

    def _count(self) -> int:
        return sum(curve.epoch for curve in [*self.models, *self.runs])

    # ----------------------------------------------------------------------------------- telling

    def _head(self) -> dict[str, Any]:
        portfolio = self._portfolio[1]
        config = self._config or (portfolio.base if portfolio else None)
        if self.folder is None or config is None:
            return {"state": "starting", "folder": str(self.folder or "")}
        metric = task_of(config.task).metric
        done = files.is_done(self.folder)
        state = "finished" if done else "training" if self._training else "stopped"
        return {
            "state": state,
            "folder": str(self.folder),
            "graph": config.data.graph,
            "model": config.model.title,
            "metric": {
                "label": metric.label,
                "unit": metric.unit,
                "scale": metric.scale,
                "form": metric.form,
                "sign": metric.sign,
            },
            "total": config.fit.runs,
            "competing": bool(self.models) and not (portfolio and portfolio.won),
            "patience": config.fit.patience,
            "left": self._seconds_left(config) if state == "training" else None,
        }

    def _seconds_left(self, config: Config) -> float | None:
        """If no validation score improves any more; None as long as nothing can be said."""
        (first, before), (last, now) = self._seen[0], self._seen[-1]
        if not self.runs or last - first < 1 or now <= before:
            return None
        ended = [run.epoch for run in self.runs if run.result]
        going = [run for run in self.runs if not run.result]
        here = sum(max(0, run.end - run.epoch) for run in going)
        known = ended or [run.end for run in going]
        waiting = max(0, config.fit.runs - len(self.runs))
        return (here + waiting * sum(known) / len(known)) * (last - first) / (now - before)
