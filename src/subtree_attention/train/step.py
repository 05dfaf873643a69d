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
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from ..graph import Graph
from ..nn import as_features, parameter_groups
from ..ops.cuda import fills_gpu
from ..tasks.metrics import LOSSES, METRICS, masks_of
from .config import Config

EAGER_EPOCHS = 2
"""Epochs before the capture: libraries allocate their workspaces in the first ones."""

NOTES = 1024
"""Epochs that can be noted before they are read."""


class Trainer:
    """Trains a model on one split of a graph, epoch by epoch.

    Args:
        model: anything that gives logits as `model(data.x, graph)`, on the device of the data.
        data: with x, y, train_mask, val_mask and test_mask.
        graph: as the model takes it.
        config: learning rate, weight decay, loss and metric are taken from it.
        capture: replay a CUDA graph instead of calling the model every time.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        graph: Graph,
        config: Config,
        capture: bool = True,
    ) -> None:
        self.model, self.x, self.graph = model, as_features(data.x), graph
        self.device = data.y.device
        on_gpu = self.device.type == "cuda"
        self.capture = capture and on_gpu
        groups = parameter_groups(model, config.weight_decay)
        self.optimizer = torch.optim.Adam(
            groups, lr=config.lr, fused=on_gpu or None, capturable=on_gpu
        )
        classes = int(data.y.max()) + 1
        self.loss_of = LOSSES[config.loss](data.y, data.train_mask, classes)
        self.scores_of = METRICS[config.metric](data.y, masks_of(data))

        self.best = _Copies(model.state_dict())
        self.best_score = self._tensor(-torch.inf)
        self.loss = self._tensor(torch.nan)  # of the step that the model is ahead
        self.notes = torch.zeros(NOTES, 4, dtype=torch.float64, device=self.device)
        self.noted = torch.zeros(1, dtype=torch.long, device=self.device)
        self.ahead = False
        self.between_epochs = True
        self.eager_epochs = 0
        self.replay: torch.cuda.CUDAGraph | None = None
        filling = fills_gpu(graph.num_edges, config.hidden_channels, classes)
        overlap = not filling and not _has_running_statistics(model)
        self.place = _OnGPU(self.device, overlap) if on_gpu else _OnCPU()

    def advance(self, epochs: int) -> None:
        """Queue some epochs. On a GPU this does not wait for them."""
        for _ in range(epochs):
            if self.replay is not None:
                with self.place.own():
                    self.replay.replay()
                continue
            # Whatever is interrupted from here on has to go back to a checkpoint, and that includes
            # putting the random numbers away at the end of `own`.
            self.between_epochs = False
            with self.place.own():
                self._eager_epoch()
            self.between_epochs = True

    def _eager_epoch(self) -> None:
        """An epoch call by call; then, when it is time, the capture of those that follow."""
        if not self.ahead:
            self._descend(self._gradients())
            self.ahead = True
            self.place.settle()  # what the first call makes is there for every stream
        self._epoch()
        self.eager_epochs += 1
        if self.capture and self.eager_epochs >= EAGER_EPOCHS:
            self._capture()

    @property
    def best_weights(self) -> dict[str, Tensor]:
        """The state of the model at its best epoch."""
        return self.best.tensors

    def read(self, since: int) -> list[list[float]]:
        """Loss and scores on training, validation and test nodes of the epochs after `since`, of
        which `NOTES` are remembered. Waits for what is queued."""
        with self.place.own():
            epochs = range(since, int(self.noted))
            return self.notes[[epoch % NOTES for epoch in epochs]].tolist() if epochs else []

    def state(self) -> dict[str, Tensor]:
        """Everything that the next epochs depend on."""
        tensors = _named("model", self.model.state_dict()) | _named("best", self.best_weights)
        for index, moments in self.optimizer.state_dict()["state"].items():
            tensors |= _named(f"optimizer/{index}", moments)
        tensors |= {"loss": self.loss, "best_score": self.best_score, "epochs": self.noted}
        tensors[f"random/{self.device.type}"] = self.place.random_state()
        self.place.settle()
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
        self.place.set_random_state(tensors[name])
        self.place.settle()

    # ------------------------------------------------------------------------------ one epoch

    def _epoch(self) -> None:
        """Evaluate the weights as they are, and beside it take the next step of descent."""
        with self.place.beside():
            self._evaluate()
        if not self.eager_epochs:  # a resumed run: its first call makes what all streams use
            self.place.settle()
        loss = self._gradients()
        self.place.join()
        self._descend(loss)

    def _gradients(self) -> Tensor:
        self.model.train()
        self.optimizer.zero_grad()
        loss = self.loss_of(self.model(self.x, self.graph))
        loss.backward()
        return loss.detach()

    def _descend(self, loss: Tensor) -> None:
        self.optimizer.step()
        self.loss.copy_(loss)

    @torch.no_grad()
    def _evaluate(self) -> None:
        """Note the loss and the scores, and keep the weights if they are the best."""
        self.model.eval()
        logits = self.model(self.x, self.graph)
        # A model with a logit that is not finite has no score; then x - x is not 0 for their sum.
        total = logits.sum(dtype=torch.float64)
        scores = torch.where(total - total == 0, self.scores_of(logits), torch.nan)
        self.notes.index_copy_(0, self.noted % NOTES, torch.cat([self.loss, scores])[None])
        self.noted += 1
        better = scores[1:2] > self.best_score
        torch.where(better, scores[1:2], self.best_score, out=self.best_score)
        self.best.take(self.model.state_dict(), better)

    def _capture(self) -> None:
        """Record an epoch as a CUDA graph; recording runs nothing."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self.device)
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            self._epoch()
        except BaseException:
            with suppress(RuntimeError):  # this fails too, and would hide why
                graph.capture_end()
            raise
        graph.capture_end()
        self.replay = graph

    def _tensor(self, value: float) -> Tensor:
        return torch.full((1,), value, dtype=torch.float64, device=self.device)


class _OnCPU:
    """Where a trainer works: in turn with others, each with random numbers of its own."""

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
