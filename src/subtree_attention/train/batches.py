"""Epochs of batches, for graphs on which whole steps take too long.

A step sees some training nodes and a sample of what lies behind them (`ops.sampling`): the walk of
the sample estimates that of the graph. What is evaluated, and kept, is an average of the weights
over the last steps; evaluation is exact, over the whole graph, in the memory that is free. An epoch
goes over the training nodes once, or over as many as `MOST_STEPS` batches hold; the next one goes
on behind them.

Which nodes are in a step, and what is sampled, is a function of the seed and the number of the step
alone: a run that is taken up again ends with the same numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _check
from ..config import Config
from ..datasets.features import rows_of
from ..graph import Graph
from ..loaders.ahead import in_order
from ..nn import as_features
from ..nn import memory as memory_of
from ..nn.features import Features
from ..nn.models import keeping_to
from ..nn.parallel import add_up_gradients
from ..ops import machine
from ..ops.kernels.cpu import POOL
from ..ops.sampling import InEdges, Sampled, key_of, sample
from ..partition import Ranks
from ..tasks import of as task_of
from .step import Trainer

MOST_STEPS = 256
"""Of an epoch: on a graph of any size there is a score, and a checkpoint, after so many."""
MOST_OF_FREE = 0.5
"""Of the free memory: what evaluation may take without a budget."""
OF_A_STEP, EARLY = 0.01, 10
"""Weights after a step count so much in their average, and more of them in the first steps: samples
differ, and the average of the last hundred steps scatters less than any of them."""
AHEAD = 2
"""Batches that are sampled while another is learnt from."""


def refuse_settings(config: Config) -> None:
    """Refuse what looks at all nodes, or walks otherwise than a sample does."""
    if not config.depth:
        raise ValueError("--batch samples neighbours, and a model without hops sees none")
    task, model = config.task, config.model
    if task_of(task).unit != "node":
        raise ValueError(f"--batch is for targets of nodes, not for --task {task.word}")
    for name in ("show_labels", "reference"):
        if getattr(task, name, None):
            raise ValueError(f"--{name.replace('_', '-')} is not for batches: leave out --batch")
    whole = {
        "global_attention": "--global-attention attends to all nodes",
        "smoothing": "--smoothing walks with a loop at every node, which samples do not have",
    }
    for name, words in whole.items():
        if getattr(model, name, None):
            raise ValueError(f"{words}: not with --batch")
    if getattr(model, "feature_map", "") == "softmax":
        raise ValueError("--feature-map softmax, the exact one, is not for --batch")
    if getattr(model, "norm", "") == "batch":
        raise ValueError(
            "--norm batch would count nodes whose neighbours are cut off: use --norm layer with "
            "--batch"
        )


class Step(NamedTuple):
    """What one step learns from: a sample and its features, which training nodes it is about (the
    first of the sample), and those of all ranks."""

    number: int
    sampled: Sampled
    x: Features
    seeds: Tensor
    of_all: Tensor


class Batches:
    """The training nodes in random order, some at a time, with a sample of what lies behind them.

    Args:
        edges: of the whole graph, with the transition that the model walks by.
        nodes: [n], those that are learnt from.
        size: of a batch, over all ranks.
        num_neighbors: at each hop, -1 for all.
        by: "uniform" or "walk", see `ops.sampling`.
        seed: of the order and the samples.
        ranks: those that share a batch; alone by default.
    """

    def __init__(
        self,
        edges: InEdges,
        nodes: Tensor,
        size: int,
        num_neighbors: list[int],
        by: str = "uniform",
        seed: int = 0,
        ranks: Ranks | None = None,
    ) -> None:
        self.edges, self.nodes, self.size = edges, nodes, size
        self.num_neighbors, self.by, self.seed = num_neighbors, by, seed
        self.ranks = ranks or Ranks()
        self.in_a_pass = -(-len(nodes) // size)
        self.in_an_epoch = min(self.in_a_pass, MOST_STEPS)
        self._order: tuple[int, Tensor] = -1, nodes

    def seeds(self, number: int) -> Tensor:
        """The training nodes of a step, [B], on all ranks."""
        turn, place = divmod(number, self.in_a_pass)
        if self._order[0] != turn:
            generator = torch.Generator().manual_seed(key_of(self.seed, turn, 0))
            self._order = turn, self.nodes[torch.randperm(len(self.nodes), generator=generator)]
        return self._order[1][place * self.size : (place + 1) * self.size]

    def sample(self, number: int) -> tuple[Sampled, Tensor, Tensor]:
        """What this rank samples for a step, its training nodes, and those of all ranks."""
        whole = self.seeds(number)
        own = whole.tensor_split(self.ranks.size)[self.ranks.rank]
        key = key_of(self.seed, number, 1)
        return sample(self.edges, own, self.num_neighbors, key=key, by=self.by), own, whole


class BatchTrainer(Trainer):
    """Trains on samples, and evaluates exactly.

    Args:
        batches: what is learnt from.
        memory: bytes that an evaluation may take, or "free"; None: whatever it takes, if there is
            enough.
        given: as `Trainer` takes it.
    """

    def __init__(
        self, *given: Any, batches: Batches, memory: int | str | None = None, **more: Any
    ) -> None:
        super().__init__(*given, **{**more, "capture": False})
        self.batches, self.memory = batches, self._room(memory)
        self.average = [parameter.detach().clone() for parameter in self.model.parameters()]
        if not batches.ranks.alone:
            self.optimizer.register_step_pre_hook(
                lambda *_: add_up_gradients(self.model, batches.ranks)
            )

    def epoch(self) -> None:
        """Learn from some batches, then evaluate: no step is taken ahead, it would be lost."""
        with self._undivided():
            self._learn()
            with self._averaged():
                self._evaluate()

    def state(self) -> dict[str, Tensor]:
        return super().state() | {f"average/{n}": each for n, each in enumerate(self.average)}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        super().load_state(tensors)
        for number, each in enumerate(self.average):
            each.copy_(tensors[f"average/{number}"])

    @torch.no_grad()
    def _room(self, memory: int | str | None) -> int | str | None:
        """What an evaluation may take: as asked for, and refused before anything is trained if it
        cannot do. If nobody says it, all that is free, where it needs most of that. Else it goes
        without a budget, for which freed memory is given back at once, and every step would ask
        for it anew."""
        network = getattr(self.model, "model", self.model)
        call = memory_of.Call.of(self.x, self.graph, network)
        free, _, _ = machine.memory(self.device)
        if memory is None and free is not None:
            much = memory_of.count(network, call) > MOST_OF_FREE * free
            memory = _check.FREE if much else None
        if memory is not None:
            memory_of.make(network, call, memory)
        return memory

    @torch.no_grad()
    def best_outputs(self) -> Tensor:
        with keeping_to(self.model, self.memory):
            return super().best_outputs()

    # ------------------------------------------------------------------------------ one epoch

    def _loss(self, task: Any, y: Tensor, mask: Tensor, outputs: int) -> Any:
        self.counts = task.counts(y, mask, outputs)
        return task.loss_of_some(y, mask, outputs)

    def _learn(self) -> None:
        """The steps of an epoch."""
        self.model.train()
        total, steps = self.loss.new_zeros(1), self.batches.in_an_epoch
        first = int(self.noted) * steps
        with POOL.rounding():  # states of batches are of any size
            for step in in_order(lambda number: self.prepared(first + number), steps, 1, AHEAD):
                total += self.gradients(step)
                self.optimizer.step()
                self._take_into_average(step.number)
        self.loss.copy_(self.batches.ranks.summed(total) / steps)

    def prepared(self, number: int) -> Step:
        """A step, sampled: called in another thread while a step before it is learnt from."""
        sampled, seeds, of_all = self.batches.sample(number)
        return Step(number, sampled, self._rows(sampled.n_id), seeds, of_all)

    def gradients(self, step: Step) -> Tensor:
        """Those of a step, and this rank's share of its loss."""
        # What is dropped is a function of the step too: a run that goes on may have other ranks.
        torch.manual_seed(key_of(self.batches.seed, step.number, 2 + self.batches.ranks.rank))
        self.optimizer.zero_grad()
        loss = self._loss_of(step)
        loss.backward()
        return loss.detach()

    @torch.no_grad()
    def _take_into_average(self, number: int) -> None:
        """The weights after a step: more of them at the start, when they are far from the end."""
        share = max(OF_A_STEP, EARLY / (EARLY + number))
        for average, parameter in zip(self.average, self.model.parameters(), strict=True):
            average.lerp_(parameter, share)

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """With the average of the weights in their place: that is what is evaluated, and kept."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        for number, parameter in enumerate(self.model.parameters()):
            parameter.data, self.average[number] = self.average[number], parameter.data

    def _rows(self, nodes: Tensor) -> Features:
        """Features of some nodes, where they are multiplied."""
        whole = self.x if isinstance(self.x, Tensor) else self.x.tensor
        rows = rows_of(whole, nodes.to(whole.device))
        return as_features(rows.to(self.device))

    def _loss_of(self, step: Step) -> Tensor:
        """This rank's share of the mean over the training nodes of a step."""
        graph, nodes = step.sampled.graph().to(self.device), step.seeds.to(self.device)
        outputs = self.model(step.x, graph)[: len(nodes)]
        if not len(nodes):  # the others have what is left
            return outputs.sum()
        own, all_of_them = (self.counts[n].sum() for n in (nodes, step.of_all.to(self.device)))
        loss = self.loss_of(outputs, nodes)
        return loss * (own / all_of_them).to(loss)

    def _scores(self) -> Tensor:
        """The first rank evaluates, and tells the others."""
        ranks = self.batches.ranks
        if ranks.rank:
            return ranks.broadcast(self.notes.new_zeros(3))
        with keeping_to(self.model, self.memory):
            return ranks.broadcast(super()._scores())


def batches_of(
    config: Config, graph: Graph, nodes: Tensor, seed: int, ranks: Ranks | None = None
) -> Batches:
    """What a configuration asks for."""
    fit = config.fit
    edges = graph.cached("in edges", InEdges.of)  # all runs share them
    return Batches(edges, nodes, fit.batch, config.fan_outs, fit.sample_by, seed, ranks)


def measured_step(trainer: BatchTrainer, steps: int = 2) -> Callable[[], float]:
    """Seconds of a step, when it is asked for; nothing is learnt from it."""

    def measure() -> float:
        trainer.model.train()
        found = []
        with torch.random.fork_rng(devices=[]):
            for number in range(steps + 1):  # the first may compile
                start = time.perf_counter()
                trainer.gradients(trainer.prepared(number))
                found.append(time.perf_counter() - start)
        trainer.optimizer.zero_grad()
        return min(found[1:])

    return measure
