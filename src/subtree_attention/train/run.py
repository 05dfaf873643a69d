"""Runs: epochs until patience ends them, several at a time, and how one is put on disk."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch_geometric.data import Data

from ..graph import Graph
from ..nn import STAGNN
from ..runs import folder as store
from .config import Config
from .step import NOTES, Trainer

READ_SECONDS = 0.1
"""How often the notes of a GPU are read: what a person sees is at most that old."""


@dataclass(frozen=True)
class Epoch:
    """One line of metrics.jsonl. Scores lie between 0 and 1."""

    epoch: int
    loss: float
    train: float
    val: float
    test: float


class Diverged(RuntimeError):
    """The loss or the outputs of a run are not finite any more, from `epoch` on."""

    def __init__(self, run: str, epoch: Epoch) -> None:
        super().__init__(
            f"the model is not finite any more (loss {epoch.loss}) after epoch "
            f"{epoch.epoch} of {run}: try a smaller lr"
        )
        self.epoch = epoch.epoch


@dataclass(frozen=True)
class RunResult:
    """One run: scores at its best validation epoch."""

    run: int
    seed: int
    val: float
    test: float
    best_epoch: int
    epochs: int
    seconds: float


class Run:
    """A run under way: a trainer, the history of its epochs, and where it will end.

    Args:
        name: what to call it in an error.
        trainer: what runs its epochs.
        epochs: most epochs.
        patience: epochs without a better validation score after which it ends.
    """

    def __init__(self, name: str, trainer: Trainer, epochs: int, patience: int) -> None:
        self.name, self.trainer, self.most, self.patience = name, trainer, epochs, patience
        self.history: list[Epoch] = []
        self.best: Epoch | None = None
        self.seconds = 0.0  # spent before this process took it up
        self.started = time.monotonic()

    @property
    def epoch(self) -> int:
        return self.history[-1].epoch if self.history else 0

    @property
    def epochs_left(self) -> int:
        """How many epochs there are at least, if the validation score does not improve any more."""
        waited = self.epoch - self.best.epoch if self.best else 0
        return max(0, min(self.most - self.epoch, self.patience - waited))

    def epochs_to_read(self) -> int:
        """How many epochs to queue before the next look at their numbers.

        Never past the end that patience sets, so that no epoch is wasted; none if a run is taken
        up that was stopped at its end.
        """
        if self.trainer.replay is None:
            return min(1, self.epochs_left)
        per_epoch = self.elapsed() / max(self.epoch, 1)
        return min(self.epochs_left, NOTES, max(1, int(READ_SECONDS / per_epoch)))

    def advance(self) -> None:
        """Queue an epoch."""
        self.trainer.advance(1)

    def record(self) -> list[Epoch]:
        """Take over what the trainer has noted; the first of equally good epochs is the best."""
        rows = self.trainer.read(since=self.epoch)
        new = [Epoch(number, *row) for number, row in enumerate(rows, start=self.epoch + 1)]
        for epoch in new:
            if not math.isfinite(epoch.loss + epoch.val):
                raise Diverged(self.name, epoch)
            if self.best is None or epoch.val > self.best.val:
                self.best = epoch  # before it is history: an interrupt must not come between
            self.history.append(epoch)
        return new

    def elapsed(self) -> float:
        return self.seconds + time.monotonic() - self.started


R = TypeVar("R", bound=Run)


def train_together(
    waiting: Iterator[R], at_a_time: int, active: list[R]
) -> Iterator[tuple[R, list[Epoch]]]:
    """Train runs to their end, some at a time: yields a run and its new epochs, again and again.

    Args:
        waiting: runs, made when their turn comes.
        at_a_time: how many share the device.
        active: those under way; the caller's, who may need them when something happens.
    """
    while True:
        while len(active) < at_a_time and (run := next(waiting, None)) is not None:
            active.append(run)
        if not active:
            return
        _advance(active)
        under_way = len(active)
        for run in active.copy():
            yield run, run.record()
            if not run.epochs_left:
                active.remove(run)
        del run  # what has ended gives its memory back before the next is made
        if len(active) < under_way:
            # The memory of a captured epoch is used by nothing else, and kept until it is asked
            # for: a hundred runs would take all of a GPU, also from other processes.
            torch.cuda.empty_cache()


def _advance(runs: Sequence[Run]) -> None:
    """Some epochs of every run, in turns, so that a GPU has work from all of them."""
    counts = [run.epochs_to_read() for run in runs]
    for number in range(max(counts)):
        for run, count in zip(runs, counts, strict=True):
            if number < count:
                run.advance()


class SavedRun(Run):
    """A run of STAGNN that is put on disk, and taken up again from there."""

    def __init__(
        self, config: Config, index: int, data: Data, graph: Graph, out: Path, capture: bool
    ) -> None:
        self.config, self.index, self.folder = config, index, out / f"run-{index}"
        self.sizes = {"in_channels": data.x.size(1), "out_channels": int(data.y.max()) + 1}
        torch.manual_seed(config.seed + index)
        model = STAGNN(**self.sizes, **config.model_settings()).to(data.y.device)
        trainer = Trainer(model, data, graph, config, capture)
        super().__init__(_described(config, index), trainer, config.epochs, config.patience)
        self.saved = self.started
        self._restore()

    def checkpoint(self) -> None:
        """Everything that the rest of the run depends on, in one file."""
        if self.best is None:
            return
        header = {
            "history": [asdict(epoch) for epoch in self.history],
            "best": asdict(self.best),
            "seconds": self.elapsed(),
        }
        path = self.folder / "checkpoint.safetensors"
        store.write_tensors(path, self.trainer.state(), header)
        self._write_metrics()
        self.saved = time.monotonic()

    def finish(self) -> RunResult:
        """Write the results; only then is the checkpoint superfluous."""
        assert self.best is not None  # a run has at least one epoch
        best, seed = self.best, self.config.seed + self.index
        seconds = round(self.elapsed(), 3)
        result = RunResult(self.index, seed, best.val, best.test, best.epoch, self.epoch, seconds)
        path = self.folder / "model.safetensors"
        store.save_model(path, self.trainer.best_weights, self.config, self.sizes)
        self._write_metrics()
        store.write_json(self.folder / "summary.json", asdict(result))
        (self.folder / "checkpoint.safetensors").unlink(missing_ok=True)
        return result

    def _restore(self) -> None:
        """Go on from the checkpoint, if there is one."""
        path = self.folder / "checkpoint.safetensors"
        if path.exists():
            tensors, header = store.read_tensors(path)
            self.trainer.load_state(tensors)
            self.history = [Epoch(**epoch) for epoch in header["history"]]
            self.best, self.seconds = Epoch(**header["best"]), header["seconds"]

    def _write_metrics(self) -> None:
        lines = "".join(json.dumps(asdict(epoch)) + "\n" for epoch in self.history)
        store.write_bytes(self.folder / "metrics.jsonl", lines.encode())


def _described(config: Config, index: int) -> str:
    return (
        f"run {index} on {config.graph} "
        f"(lr {config.lr}, weight decay {config.weight_decay}, dropout {config.dropout}, "
        f"hops {config.hops}, heads {config.heads}, feature map {config.feature_map}, "
        f"eps {config.eps})"
    )
