"""Epochs on the device: nothing in them waits for the host.

An epoch is a step of gradient descent, an evaluation, the scores, and keeping the weights if the
validation score is the best so far. Its numbers are noted on the device and read now and then.

Evaluating an epoch and computing the next gradients both need the same weights and nothing of each
other, so on a GPU that neither of them fills they run side by side (unless the model has running
statistics, which the gradients change): a trainer is always one step of descent ahead. There an
epoch is captured as a CUDA graph once shapes and memory have settled, and
then only replayed.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, nn

from ..config import FitSettings
from ..datasets import Split
from ..graph import Graph
from ..nn import parameter_groups, set_states
from ..tasks import Task

EAGER_EPOCHS = 2
"""Epochs before the capture: libraries allocate their workspaces in the first ones."""

NOTES = 1024
"""Epochs that can be noted before they are read."""


class Trainer:
    """Trains a model on one split of a graph, epoch by epoch.

    Args:
        model: anything that gives outputs as `model(x, graph, **inputs)`, on the device of x.
        x: the features, as the model takes them.
        y: the target of every unit of the task, [U, ...].
        split: training, validation and test units, masks [U].
        graph: as the model takes it.
        task: what the outputs are for: their loss and their scores.
        outputs: how many numbers the model gives for a unit.
        fit: learning rate, weight decay, and how precise the states of the walk are.
        capture: replay a CUDA graph instead of calling the model every time.
        inputs: what the model takes besides, by name: none by default.
        walked: the graph to learn on, where that is not the one to evaluate on.
    """

    def __init__(
        self,
        model: nn.Module,
        x: Any,
        y: Tensor,
        split: Split,
        graph: Graph,
        *,
        task: Task,
        outputs: int,
        fit: FitSettings,
        capture: bool = True,
        inputs: Mapping[str, Any] | None = None,
        walked: Graph | None = None,
    ) -> None:
        self.model, self.x, self.graph, self.inputs = model, x, graph, dict(inputs or {})
        self.walked = graph if walked is None else walked
        self.device = y.device
        if fit.precision == "bf16":
            set_states(model, "bfloat16")
        on_gpu = self.device.type == "cuda"
        self.capture = capture and on_gpu
        groups = parameter_groups(model, fit.weight_decay)
        self.optimizer = torch.optim.Adam(
            groups, lr=fit.lr, fused=on_gpu or None, capturable=on_gpu
        )
        self.loss_of = self._loss(task, y, split.train, outputs)
        self.scores_of, self.metric = task.scores(model, y, split), task.metric

        self.best = _Copies(model.state_dict())
        self.best_score = self._tensor(-self.metric.sign * torch.inf)
        self.loss = self._tensor(torch.nan)  # of the step that the model is ahead
        self.notes = torch.zeros(NOTES, 4, dtype=torch.float64, device=self.device)
        self.noted = torch.zeros(1, dtype=torch.long, device=self.device)
        self.ahead = False
        self.between_epochs = True
        self.eager_epochs = 0
        self.replay: torch.cuda.CUDAGraph | None = None
        fills = getattr(model, "fills_gpu", None)  # then two things at a time only take more memory
        overlap = not (fills and fills(graph)) and not _has_running_statistics(model)
        overlap = overlap and not any(getattr(m, "budget", None) for m in model.modules())
        self.lane = _OnGPU(self.device, overlap) if on_gpu else _OnCPU()

    def epoch(self) -> None:
        """Queue an epoch. On a GPU this does not wait for it.

        It evaluates the weights as they are, and beside that takes the next step of descent; then,
        when it is time, the epochs that follow are captured.
        """
        with self._undivided():
            if self.replay is not None:
                self.replay.replay()
                return
            if not self.ahead:
                self._learn()
                self.ahead = True
                self.lane.settle()  # what the first call makes is there for every stream
            self._evaluate()
            if not self.eager_epochs:  # a resumed run: its first call makes what all streams use
                self.lane.settle()
            self._learn()
            self.eager_epochs += 1
            if self.capture and self.eager_epochs >= EAGER_EPOCHS:
                self._capture()

    @contextmanager
    def _undivided(self) -> Iterator[None]:
        """Work in the own lane. Whatever is interrupted in here has to go back to a checkpoint, and
        that includes putting the random numbers away; a replay is queued as a whole."""
        self.between_epochs = self.replay is not None
        with self.lane.own():
            yield
        self.between_epochs = True

    @property
    def best_weights(self) -> dict[str, Tensor]:
        """The state of the model at its best epoch."""
        return self.best.tensors

    @torch.no_grad()
    def best_outputs(self) -> Tensor:
        """What the model says of all units at its best epoch, whose weights it takes over."""
        with self.lane.own():
            self.model.load_state_dict(self.best_weights)
            outputs = self.model.eval()(self.x, self.graph, **self.inputs)
        self.lane.settle()  # whoever asks works on another stream
        return outputs

    def read(self, since: int) -> list[list[float]]:
        """Loss and scores on training, validation and test units of the epochs after `since`, of
        which `NOTES` are remembered. Waits for what is queued."""
        with self.lane.own():
            epochs = range(since, int(self.noted))
            return self.notes[[epoch % NOTES for epoch in epochs]].tolist() if epochs else []

    def state(self) -> dict[str, Tensor]:
        """Everything that the next epochs depend on."""
        tensors = _named("model", self.model.state_dict()) | _named("best", self.best_weights)
        for index, moments in self.optimizer.state_dict()["state"].items():
            tensors |= _named(f"optimizer/{index}", moments)
        tensors |= {"loss": self.loss, "best_score": self.best_score, "epochs": self.noted}
        tensors[f"random/{self.device.type}"] = self.lane.random_state()
        self.lane.settle()
        return tensors

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of `state`."""
        self.model.load_state_dict(_below("model", tensors))
        for name, tensor in _below("best", tensors).items():
            self.best_weights[name].copy_(tensor)
        optimizer = self.optimizer.state_dict()
        indices = [index for group in optimizer["param_groups"] for index in group["params"]]
        moments = {index: _below(f"optimizer/{index}", tensors) for index in indices}
        optimizer["state"] = {index: named for index, named in moments.items() if named}
        self.optimizer.load_state_dict(optimizer)
        self.loss.copy_(tensors["loss"])
        self.best_score.copy_(tensors["best_score"])
        self.noted.copy_(tensors["epochs"])
        self.ahead = True
        name = f"random/{self.device.type}"
        if name not in tensors:
            there = next(key.split("/")[1] for key in tensors if key.startswith("random/"))
            raise ValueError(
                f"this run was started on {there}; its random numbers do not exist on "
                f"{self.device.type}, so it can only go on there (--device {there})"
            )
        self.lane.set_random_state(tensors[name])
        self.lane.settle()

    # ------------------------------------------------------------------------------ one epoch

    def _loss(self, task: Task, y: Tensor, mask: Tensor, outputs: int) -> Any:
        """What is minimised: a function of the outputs."""
        return task.loss(self.model, y, mask, outputs)

    def _learn(self) -> None:
        """One step of gradient descent."""
        self.model.train()
        self.optimizer.zero_grad()
        loss = self.loss_of(self.model(self.x, self.walked, **self.inputs))
        loss.backward()
        self.lane.join()  # the evaluation beside reads the weights
        self.optimizer.step()
        self.loss.copy_(loss.detach())

    @torch.no_grad()
    def _evaluate(self) -> None:
        """Beside what follows: note the loss and the scores, and keep the weights if they are the
        best."""
        with self.lane.beside():
            scores = self._scores()
            self.notes.index_copy_(0, self.noted % NOTES, torch.cat([self.loss, scores])[None])
            self.noted += 1
            score = scores[1:2]
            better = self.metric.sign * score > self.metric.sign * self.best_score
            torch.where(better, score, self.best_score, out=self.best_score)
            self.best.take(self.model.state_dict(), better)

    def _scores(self) -> Tensor:
        """Of the weights as they are, on training, validation and test units, [3]."""
        outputs = self.model.eval()(self.x, self.graph, **self.inputs)
        # Without a score if any output is not finite: then x - x is not 0 for their sum.
        total = outputs.sum(dtype=torch.float64)
        return torch.where(total - total == 0, self.scores_of(outputs), torch.nan)

    def _capture(self) -> None:
        """Record an epoch as a CUDA graph; recording runs nothing."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self.device)
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            self._evaluate()
            self._learn()
        except BaseException:
            with suppress(RuntimeError):  # this fails too, and would hide why
                graph.capture_end()
            raise
        graph.capture_end()
        self.replay = graph

    def _tensor(self, value: float) -> Tensor:
        return torch.full((1,), value, dtype=torch.float64, device=self.device)


class _OnCPU:
    """The lane of a trainer: its own random numbers, in turn with others."""

    def __init__(self) -> None:
        self.random = torch.get_rng_state()

    @contextmanager
    def own(self) -> Iterator[None]:
        """Work with the own random numbers."""
        before = torch.get_rng_state()
        torch.set_rng_state(self.random)
        try:
            yield
        finally:
            self.random = torch.get_rng_state()
            torch.set_rng_state(before)

    def beside(self) -> AbstractContextManager[None]:
        """Work that may run at the same time as what follows, up to `join`."""
        return nullcontext()

    def join(self) -> None:
        """What follows needs what ran beside."""

    def settle(self) -> None:
        """Wait for the device, so that anybody else finds what was made here."""

    def random_state(self) -> Tensor:
        return self.random

    def set_random_state(self, state: Tensor) -> None:
        self.random = state


class _OnGPU:
    """As `_OnCPU`, with two streams of its own, so that several trainers can share a GPU."""

    def __init__(self, device: torch.device, overlap: bool) -> None:
        index = torch.cuda.current_device() if device.index is None else device.index
        self.device, self.generator = device, torch.cuda.default_generators[index]
        self.random = self.generator.clone_state()
        self.main = _borrow_stream(device, self)
        self.side = _borrow_stream(device, self) if overlap else self.main
        self.settle()  # what the trainer was made of is there

    @contextmanager
    def own(self) -> Iterator[None]:
        before = self.generator.graphsafe_get_state()
        self.generator.graphsafe_set_state(self.random)
        try:
            with torch.cuda.stream(self.main):
                yield
        finally:
            self.generator.graphsafe_set_state(before)

    def beside(self) -> AbstractContextManager[Any]:
        self.side.wait_stream(self.main)
        return torch.cuda.stream(self.side)

    def join(self) -> None:
        self.main.wait_stream(self.side)

    def settle(self) -> None:
        torch.cuda.synchronize(self.device)

    def random_state(self) -> Tensor:
        return self.random.get_state()

    def set_random_state(self, state: Tensor) -> None:
        self.random.set_state(state)


_IDLE_STREAMS: dict[torch.device, list[torch.cuda.Stream]] = defaultdict(list)


def _borrow_stream(device: torch.device, owner: object) -> torch.cuda.Stream:
    """A stream until the owner is gone: libraries keep a workspace for every stream they saw."""
    idle = _IDLE_STREAMS[device]
    stream = idle.pop() if idle else torch.cuda.Stream(device)
    weakref.finalize(owner, idle.append, stream)
    return stream


def _has_running_statistics(model: nn.Module) -> bool:
    """Whether a step changes what the evaluation beside it would read: batch norm does."""
    norms = (m for m in model.modules() if isinstance(m, nn.modules.batchnorm._NormBase))
    return any(norm.track_running_stats for norm in norms)


class _Copies:
    """Copies of named tensors, one behind the other, so that all can be replaced at once."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.names = defaultdict(list)  # of each dtype
        for name, tensor in tensors.items():
            self.names[tensor.dtype].append(name)
        self.rows = {dtype: self._row(tensors, dtype) for dtype in self.names}
        self.tensors = {}
        for dtype, names in self.names.items():
            parts = self.rows[dtype].split([tensors[name].numel() for name in names])
            for name, part in zip(names, parts, strict=True):
                self.tensors[name] = part.view(tensors[name].shape)

    def take(self, tensors: dict[str, Tensor], which: Tensor) -> None:
        """The tensors as they are now, if `which` [1] is true."""
        for dtype, row in self.rows.items():
            torch.where(which, self._row(tensors, dtype), row, out=row)

    def _row(self, tensors: dict[str, Tensor], dtype: torch.dtype) -> Tensor:
        return torch.cat([tensors[name].flatten() for name in self.names[dtype]])


def _named(prefix: str, tensors: dict[str, Any]) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": torch.as_tensor(tensor) for name, tensor in tensors.items()}


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    start = prefix + "/"
    return {name[len(start) :]: t for name, t in tensors.items() if name.startswith(start)}
