"""A run: epochs until patience ends them, and how it is put on disk and taken up again."""

from __future__ import annotations

import math
import time
import weakref
from contextlib import suppress
from copy import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from .. import _check, io, references
from ..config import Config
from ..datasets import Dataset
from ..graph import Graph
from ..nn import as_features, set_memory
from ..nn.memory import most
from ..ops.machine import bound
from ..partition import Ranks
from ..runs import stacked
from ..runs.folder import (
    CHECKPOINT,
    MODEL,
    REFERENCE,
    Epoch,
    RunResult,
    append_curves,
    write_curves,
    write_result,
)
from ..runs.saved import save_model
from ..tasks import Problem
from ..tasks import of as task_of
from ..upgrade import FORMAT
from .batches import BatchTrainer, batches_of, refuse_settings
from .estimate import left
from .step import NOTES, Trainer

READ_SECONDS = 0.1
"""How often the notes of a GPU are read: what a person sees is at most that old."""

SHOWN_SECONDS = 0.5
"""How often new epochs are added to the file of curves, for whoever watches the folder."""

BEGIN_AGAIN = "delete it to begin that run again"
"""What to do about a checkpoint that is damaged."""


class Diverged(RuntimeError):
    """The loss or the outputs of a run are not finite any more, from `epoch` on."""

    def __init__(self, run: str, epoch: Epoch) -> None:
        super().__init__(
            f"the model is not finite any more (loss {epoch.loss}) after epoch "
            f"{epoch.epoch} of {run}: try a smaller lr"
        )
        self.epoch = epoch.epoch


class Unfitted(ValueError):
    """The reference that a model shall stand on cannot be fitted."""


def check_reference(config: Config, dataset: Dataset) -> None:
    """Refuse a reference that a model shall stand on and that cannot be fitted."""
    if reference := getattr(config.task, "reference", ""):
        references.check(reference, dataset, task_of(config.task))


def problem_of(config: Config, dataset: Dataset, seed: int) -> Problem:
    """What the run of a seed learns from, if the task can be learnt on it."""
    task = task_of(config.task)
    problem = task.problem(dataset, config.data.split, seed)
    task.check(problem.target, problem.split, task.names(dataset))
    return problem


class Material:
    """A graph on a device, as all runs of a configuration share it.

    Args:
        dataset: with the encoding that the configuration asks for.
        config: what is trained.
        device: where.
        memory: what training may take, see `Place`.

    Attributes:
        ranks: those that share a batch: this one alone.
    """

    ranks = Ranks()

    def __init__(
        self,
        dataset: Dataset,
        config: Config,
        device: torch.device,
        memory: int | str | None = None,
    ) -> None:
        self.dataset, self.config, self.device, self.memory = dataset, config, device, memory
        if memory is not None:
            weakref.finalize(self, bound(device, most(memory, device)))
        self.task = task_of(config.task)
        self.task.accept(dataset)
        check_reference(config, dataset)
        if config.fit.batch:
            refuse_settings(config)
        self.x = as_features(dataset.features.to(device))  # prepared once: the runs share it
        outputs = self.task.outputs(dataset)
        self.sizes = {"in_channels": self.x.size(1), "out_channels": outputs}
        self._graphs: dict[tuple[Any, ...], Graph] = {}  # by how they are walked on

    def under(self, config: Config) -> Material:
        """The same graph under another configuration: what both can share is there once."""
        if config.data.encoding != self.config.data.encoding:
            dataset = self.dataset.encoded(config.data.encoding)
            return Material(dataset, config, self.device, self.memory)
        other = copy(self)
        other.config, other.task = config, task_of(config.task)
        other.sizes = {**self.sizes, "out_channels": other.task.outputs(self.dataset)}
        return other

    @property
    def graph(self) -> Graph:
        """What is walked on, unless a run sees other edges."""
        walk = tuple(self.config.walk.values())
        if walk not in self._graphs:
            self._graphs[walk] = self._graph_of(self.dataset)
        return self._graphs[walk]

    def problem(self, seed: int) -> Problem:
        """What the run of a seed learns from, on the device; see `problem_of`."""
        return problem_of(self.config, self.dataset, seed).to(self.device)

    def leaning(self, problem: Problem, folder: Path, seed: int) -> Problem:
        """With what a reference says, if the model stands on one: read from the folder of the run,
        or fitted on the training units and kept there."""
        name = getattr(self.config.task, "reference", "")
        if not name:
            return problem
        if (folder / REFERENCE).exists():
            fitted = stacked.read(folder, name, "delete it to fit it again")
        else:
            fitted = self._fitted(name, problem.to(torch.device("cpu")), seed)
            stacked.write(folder, fitted)
        return problem.with_inputs(offset=fitted.out_of_fold.to(self.device))

    def _fitted(self, name: str, problem: Problem, seed: int) -> references.Fitted:
        try:
            return references.fitted(name, self.dataset, self.task, problem, seed)
        except Exception as error:  # of whatever kind its library has
            if _check.out_of_memory(error):
                raise
            raise Unfitted(f"the reference {name} cannot be fitted: {error}") from error

    def network(self) -> torch.nn.Module:
        """What is trained, with fresh weights, and its share of the memory."""
        network = self.task.network(self.config.model, **self.sizes)
        if self.memory is not None and not self.config.fit.batch:
            set_memory(network, left(self.dataset, self.config, self.device, self.memory))
        return network

    def trainer(
        self, model: torch.nn.Module, problem: Problem, capture: bool, seed: int = 0
    ) -> Trainer:
        """What trains a model on a problem; `seed` is that of what is sampled."""
        if self.config.fit.batch:
            return self.on_batches(model, problem, seed)
        x, seen = self.x, problem.dataset
        if seen is self.dataset:
            graph = self.graph
        else:  # it sees other edges, and other features if there is an encoding
            graph = self._graph_of(seen)
            if seen.encoding is not None:
                x = as_features(seen.features.to(self.device))
        return Trainer(
            model.to(self.device),
            x,
            problem.target,
            problem.split,
            graph,
            task=self.task,
            outputs=self.sizes["out_channels"],
            fit=self.config.fit,
            capture=capture,
            inputs=problem.inputs,
            walked=None if problem.walked is None else self._graph_of(problem.walked),
        )

    def on_batches(self, model: torch.nn.Module, problem: Problem, seed: int) -> BatchTrainer:
        """What trains a model on samples of a problem's graph."""
        nodes = problem.split.train.nonzero().flatten().cpu()
        memory = self.memory
        if memory is not None:
            memory = left(self.dataset, self.config, self.device, memory)
        return BatchTrainer(
            model.to(self.device),
            self.x,
            problem.target,
            problem.split,
            self.graph,
            task=self.task,
            outputs=self.sizes["out_channels"],
            fit=self.config.fit,
            inputs=problem.inputs,
            batches=batches_of(self.config, self.graph, nodes, seed, self.ranks),
            memory=memory,
        )

    def _graph_of(self, dataset: Dataset) -> Graph:
        return Graph.from_data(dataset, **self.config.walk).to(self.device)


class Run:
    """A run under way: a trainer, the history of its epochs, and where it will end.

    Args:
        name: what to call it.
        trainer: what runs its epochs.
        epochs: most epochs.
        patience: epochs without a better validation score after which it ends.
        about: what an error calls it.
    """

    def __init__(
        self, name: str, trainer: Trainer, epochs: int, patience: int, about: str = ""
    ) -> None:
        self.name, self.about, self.trainer = name, about or name, trainer
        self.most, self.patience = epochs, patience
        self.until = epochs  # where it pauses, if others have their turn before it goes on
        self.history: list[Epoch] = []
        self.best: Epoch | None = None
        self.seconds = 0.0  # spent before this process took it up
        self.started = time.monotonic()

    @property
    def epoch(self) -> int:
        return self.history[-1].epoch if self.history else 0

    @property
    def last_epoch(self) -> int:
        """Where it ends, or pauses, if the validation score does not improve any more."""
        return min(self.until, self.end)

    @property
    def end(self) -> int:
        """Where it ends if the validation score does not improve any more."""
        return min(self.most, (self.best.epoch if self.best else 0) + self.patience)

    @property
    def epochs_left(self) -> int:
        """How many epochs there are at least, if the validation score does not improve any more."""
        return max(0, self.last_epoch - self.epoch)

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
        self.trainer.epoch()

    def record(self) -> None:
        """Take over what the trainer has noted; the first of equally good epochs is the best."""
        rows, sign = self.trainer.read(since=self.epoch), self.trainer.metric.sign
        for number, row in enumerate(rows, start=self.epoch + 1):
            epoch = Epoch(number, *row)
            if not math.isfinite(epoch.loss + epoch.val):
                raise Diverged(self.about, epoch)
            if self.best is None or sign * epoch.val > sign * self.best.val:
                self.best = epoch  # before it is history: an interrupt must not come between
            self.history.append(epoch)

    def pause(self) -> None:
        """Between two looks at it: a run that is kept on disk may be saved here."""

    def suspend(self) -> None:
        """It is stopped here, perhaps in the middle of an epoch."""

    def elapsed(self) -> float:
        return self.seconds + time.monotonic() - self.started


class SavingRun(Run):
    """A run of a configuration that is put on disk, and taken up again from there.

    Args:
        material: graph and configuration.
        index: which of its runs, each on a split and a seed of its own.
        problem: of that seed.
        out: the folder of all its runs.
        capture: see `Trainer`.
        checkpoint_seconds: how often it is saved: what a killed one loses.
    """

    def __init__(
        self,
        material: Material,
        index: int,
        problem: Problem,
        out: Path,
        capture: bool,
        checkpoint_seconds: float,
    ) -> None:
        self.material, self.index = material, index
        self.folder, self.every = out / f"run-{index}", checkpoint_seconds
        config, fit = material.config, material.config.fit
        problem = self.problem = material.leaning(problem, self.folder, fit.seed + index)
        torch.manual_seed(fit.seed + index)
        trainer = material.trainer(material.network(), problem, capture, fit.seed + index)
        settings = ", ".join(f"{name} {value}" for name, value in config.flat().items())
        about = f"run {index} on {config.data.graph} ({settings})"
        super().__init__(f"run {index}", trainer, fit.epochs, fit.patience, about)
        self.saved = self.shown = self.started
        self._written = 0  # epochs in the file of curves
        self._restore()

    def pause(self) -> None:
        now = time.monotonic()
        if now - self.saved >= self.every:
            self.checkpoint()
        elif now - self.shown >= SHOWN_SECONDS:
            self._show()

    def suspend(self) -> None:
        # In the middle of an epoch, the last checkpoint is what counts.
        if self.trainer.between_epochs:
            with suppress(Diverged):  # it will diverge again
                self.record()
            self.checkpoint()

    def checkpoint(self) -> None:
        """Everything that the rest of the run depends on, in one file."""
        if self.best is None:
            return
        header = {
            "format": FORMAT,
            "history": [asdict(epoch) for epoch in self.history],
            "best": asdict(self.best),
            "seconds": self.elapsed(),
        }
        io.write_tensors(self.folder / CHECKPOINT, self.trainer.state(), header)
        self._show()
        self.saved = time.monotonic()

    def _show(self) -> None:
        """Add what is new to the file of curves, which is written whole at first."""
        new = self.history[self._written :]
        if not self._written or not append_curves(self.folder, new):
            write_curves(self.folder, self.history)
        self._written, self.shown = len(self.history), time.monotonic()

    def finish(self) -> RunResult:
        """The results, written."""
        assert self.best is not None  # a run has at least one epoch
        best, seed = self.best, self.material.config.fit.seed + self.index
        found = self._found()
        result = RunResult(
            run=self.index,
            seed=seed,
            **{"val": best.val, "test": best.test, **found},
            best_epoch=best.epoch,
            epochs=self.epoch,
            seconds=round(self.elapsed(), 3),
        )
        self._write(result)
        return result

    def _write(self, result: RunResult) -> None:
        """The weights and the results; only then is the checkpoint superfluous."""
        weights, sizes = self.trainer.best_weights, self.material.sizes
        save_model(self.folder / MODEL, weights, self.material.config, sizes)
        write_result(self.folder, result, self.history)
        (self.folder / CHECKPOINT).unlink(missing_ok=True)

    def _found(self) -> dict[str, Any]:
        """Found once, here, so that a unit has one answer, whoever is asked; the scores too, where
        outputs are corrected."""
        outputs = self.trainer.best_outputs().double().cpu().numpy()
        task, problem = self.material.task, self.problem.to(torch.device("cpu"))
        found: dict[str, Any] = task.correction(outputs, problem)
        if found:
            outputs = task.corrected(outputs, found, problem)
            given = torch.from_numpy(outputs), problem.target, problem.split
            _, found["val"], found["test"] = task.score(self.trainer.model, *given)
        return found | task.settle(outputs, problem.target.numpy(), problem.split)

    def _restore(self) -> None:
        """Go on from the checkpoint, if there is one."""
        found = self._checkpoint()
        if found is None:
            return
        (tensors, header), path, remedy = found, self.folder / CHECKPOINT, BEGIN_AGAIN
        if header.get("format", 1) != FORMAT:
            raise io.FileError(
                f"{path} is of an older version, which rounded in another order: what goes on from "
                f"it would be neither that version's numbers nor this one's; {remedy}"
            )
        try:
            self.trainer.load_state(tensors)
            self.history = [Epoch(**epoch) for epoch in header["history"]]
            self.best, self.seconds = Epoch(**header["best"]), float(header["seconds"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise io.FileError(f"{path} is not of this run ({error}): {remedy}") from None

    def _checkpoint(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
        """What was saved on the way: tensors and their header."""
        path = self.folder / CHECKPOINT
        return io.read_tensors(path, BEGIN_AGAIN) if path.exists() else None
