"""Logs that are files in the run folder. A run that is taken up again is written anew from its
epochs, so that nothing is there twice and nothing is missing."""

from __future__ import annotations

import csv
import io as texts
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ... import io
from ...runs.folder import Epoch, RunResult
from .log import LoggedRun

TABLE, BOARD = "metrics.csv", "tensorboard"
COLUMNS = ("run", "epoch", "loss", "train", "val", "test")
BOARD_SECONDS = 5
"""How old at most is what TensorBoard sees."""


class Table:
    """OUT/metrics.csv: a row of each epoch of every run; "test" at the best one, once a run has
    ended."""

    def __init__(self) -> None:
        self._rows: dict[int, list[list[Any]]] = {}

    def begin(self, run: LoggedRun, history: Sequence[Epoch]) -> None:
        self._rows = {**self._read(run.out), **self._rows}
        self._rows[run.index] = [self._row(run, epoch) for epoch in history]
        self._write(run.out)

    def epoch(self, run: LoggedRun, epoch: Epoch) -> None:
        self._rows[run.index].append(self._row(run, epoch))
        with open(run.out / TABLE, "a", newline="") as file:
            file.write(_lines(self._rows[run.index][-1:]))

    def end(self, run: LoggedRun, result: RunResult | None) -> None:
        if result is not None:
            self._rows[run.index][result.best_epoch - 1][-1] = result.test
            self._write(run.out)

    def _row(self, run: LoggedRun, epoch: Epoch) -> list[Any]:
        return [run.index, epoch.epoch, epoch.loss, epoch.train, epoch.val, ""]

    def _read(self, out: Path) -> dict[int, list[list[Any]]]:
        """What an earlier process wrote, of runs that are not told again."""
        rows: dict[int, list[list[Any]]] = {}
        with suppress(io.FileError, ValueError, IndexError):
            for row in csv.reader(io.read_bytes(out / TABLE).decode().splitlines()[1:]):
                rows.setdefault(int(row[0]), []).append(row)
        return rows

    def _write(self, out: Path) -> None:
        rows = [row for _, some in sorted(self._rows.items()) for row in some]
        io.write_bytes(out / TABLE, _lines([COLUMNS, *rows]).encode())


def _lines(rows: Sequence[Sequence[Any]]) -> str:
    written = texts.StringIO()
    csv.writer(written, lineterminator="\n").writerows(rows)
    return written.getvalue()


class TensorBoard:
    """OUT/tensorboard/run-0: event files, for `tensorboard --logdir`."""

    def __init__(self) -> None:
        self._writers: dict[int, Any] = {}

    def begin(self, run: LoggedRun, history: Sequence[Epoch]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        place = run.out / BOARD / run.folder.name
        for old in place.glob("events.out.tfevents.*"):
            old.unlink()
        self._writers[run.index] = SummaryWriter(str(place), flush_secs=BOARD_SECONDS)
        for epoch in history:
            self.epoch(run, epoch)

    def epoch(self, run: LoggedRun, epoch: Epoch) -> None:
        for name, value in run.numbers(epoch).items():
            self._writers[run.index].add_scalar(name, value, epoch.epoch)

    def end(self, run: LoggedRun, result: RunResult | None) -> None:
        writer = self._writers.pop(run.index)
        if result is not None:
            plain = {
                name: value if isinstance(value, bool | int | float) else str(value)
                for name, value in run.settings.items()
            }
            writer.add_hparams(
                plain, run.result(result), run_name=".", global_step=result.best_epoch
            )
        writer.close()
