"""How long a training will take, and how much memory: said before it begins, from sizes alone.

What a network does is counted from its layers (`cost`): edges times numbers of a state that walks,
products of matrices, what is read and written besides. How fast this machine does each is measured
once, in a fraction of a second (`speed`). How far that holds: results/estimate-cpu.json.
"""

from __future__ import annotations

import itertools
import operator
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from ..config import Config, STAFormerSettings, STAGNNSettings
from ..datasets import Dataset
from ..graph import Graph
from ..nn import Linear, STAConv, set_states
from ..nn import memory as memory_of
from ..nn.memory import BASE
from ..ops import subtree_attention, walk
from ..ops.backends import BACKENDS, choose
from ..ops.machine import Memory, gib, memory
from ..tasks import of as task_of
from .watch import Watch

FLOAT = 4
"""Bytes of a number."""
PASSES = 12
"""How often an epoch reads or writes what a layer gives, besides the products: activation, dropout,
their gradients, the loss."""
COPIES = 4
"""How often what a layer gives is there at a time: before and after dropout, and as a gradient."""
OF_NODE = 12
"""Edges that cost as much as what a hop does at a node: to write its state and to read it out."""
OF_WEIGHTS = 6
"""Weights, gradients, two moments, the best so far, and room to compare."""
ROW_BYTES = 96
"""Of a node on a GPU: pointers, scales, and how rows are shared out, there and back."""
CALL_SECONDS = {"cpu": 4e-4, "cuda": 5e-5}
"""What a layer costs in an epoch however small it is; on a GPU captured."""
TRIES = 3
"""How often each is measured; the quickest counts."""
TIGHT, TOO_MUCH = 0.8, 2.0
"""Shares of the free memory: what takes more than the first may fail, than the second will."""
WIDTHS = (64, 32, 16, 8)
"""Hidden channels that are offered where there is too little memory."""


class Cost(NamedTuple):
    """What an epoch (a step and an evaluation) does, and what is held at a time.

    Attributes:
        walked: edges times numbers of the state.
        flops: of products of matrices.
        moved: bytes that are read or written besides.
        calls: layers.
        bytes: of all that is there at once, the graph and the features included.
    """

    walked: float
    flops: float
    moved: float
    calls: int
    bytes: int


class Speed(NamedTuple):
    """What a device does in a second, of `Cost`."""

    walked: float
    flops: float
    moved: float


@dataclass(frozen=True)
class Estimate:
    """What a configuration on a graph will take.

    Attributes:
        config: what is trained.
        cost: of an epoch of one run.
        device: where.
        runs: how many go on side by side.
        memory: what is free there.
        fast: what the device does in a second; measured when it is asked for, if it is not given.
    """

    config: Config
    cost: Cost
    device: torch.device
    runs: int
    memory: Memory
    fast: Speed | None = None

    @property
    def bytes(self) -> int:
        """Of all runs side by side."""
        return self.cost.bytes * self.runs

    @cached_property
    def seconds(self) -> float:
        """Of an epoch of all runs side by side."""
        fast = self.fast or speed(self.device, torch.get_num_threads())
        parts = zip(self.cost[:3], fast, strict=True)
        one = sum(amount / rate for amount, rate in parts)
        return self.runs * (one + self.cost.calls * CALL_SECONDS[self.device.type])

    @property
    def fits(self) -> bool:
        """Whether there is memory for it, as far as that can be known."""
        return self.memory.free is None or self.bytes <= TIGHT * self.memory.free

    def line(self) -> str:
        """In a line: 'about 0.21 s an epoch, a run 21 s to 3:30 min; 0.6 GiB of 18.2 GiB free'."""
        fit = self.config.fit
        least, most = (self.seconds * min(fit.epochs, n) for n in (fit.patience, fit.epochs))
        run = clock(most) if clock(least) == clock(most) else f"{clock(least)} to {clock(most)}"
        free = self.memory.free
        of = f"of {gib(free)} free {self.memory.where}" if free is not None else self.memory.where
        return f"about {clock(self.seconds)} an epoch, {run} a run; {gib(self.bytes)} {of}"


OF_EVALUATION = 1 / 4
"""Of what whole epochs do: an evaluation goes forward once, a step forward and about twice back."""


@dataclass(frozen=True)
class OfBatches(Estimate):
    """What steps on samples will take, each epoch with an evaluation of the whole graph.

    Attributes:
        steps: of an epoch.
        step: seconds of one, which it measures.
    """

    steps: int = 0
    step: Callable[[], float] = float

    @cached_property
    def seconds(self) -> float:
        whole: float = Estimate.seconds.func(self)  # type: ignore[attr-defined]
        return self.steps * self.step() + OF_EVALUATION * whole


def clock(seconds: float) -> str:
    """Two digits in a unit that people take: 0.21 s, 45 s, 3.5 min, 2.1 h."""
    for unit, size, most in (("s", 1, 90), ("min", 60, 90 * 60), ("h", 3600, 48 * 3600)):
        if seconds < most:
            value = seconds / size
            return f"{value:.0f} {unit}" if value >= 10 else f"{value:.2g} {unit}"
    return f"{seconds / 86400:.0f} days"


# ----------------------------------------------------------------------------------------- sizes


def cost(
    dataset: Dataset, config: Config, device: torch.device, budget: int | str | None = None
) -> Cost:
    """What an epoch of a configuration on a graph does; nothing is computed.

    With a budget of memory it goes the way that is planned for it, and a budget that cannot do is
    refused.
    """
    x, network = dataset.features, _network(dataset, config)
    channels = x.size(1)
    nodes, loops = dataset.num_nodes, config.walk["self_loops"]
    edges = dataset.num_edges + (nodes if loops else 0)
    entries = x.values().numel() if x.is_sparse_csr else x.numel()
    walked = flops = moved = 0.0
    held, calls = float(resident(dataset, config, device)), 0
    encoder: Any = getattr(network, "encoder", None)
    for name, module in network.named_modules():
        if isinstance(module, Linear):
            inner = encoder is None or name.startswith("encoder")
            rows = nodes if inner else _units(dataset, config)
            first = inner and channels <= module.in_channels
            if first and x.is_sparse_csr:
                walked += 3 * entries * module.out_channels
            else:
                times = 3 if first else 4  # forward twice, and the gradients
                flops += 2.0 * times * rows * module.in_channels * module.out_channels
            moved += PASSES * FLOAT * rows * module.out_channels
            held += 0 if inner else COPIES * FLOAT * rows * module.out_channels
            calls += 1
        elif isinstance(module, STAConv):
            states = _states(module, nodes, edges, device)
            walked += states.numbers * (edges + OF_NODE * nodes) * module.hops * states.walks
            calls += 1
    held += OF_WEIGHTS * FLOAT * sum(parameter.numel() for parameter in network.parameters())
    if budget is None:
        inside = network if encoder is None else encoder
        taken = BASE + memory_of.count(inside, _call(dataset, config, device))
    else:
        plan = planned(dataset, config, device, budget)
        taken, walked = plan.bytes, walked * plan.times
    return Cost(walked, flops, moved, calls, int(held) + taken)


def _network(dataset: Dataset, config: Config) -> nn.Module:
    """What is trained; nobody's random numbers are used."""
    task = task_of(config.task)
    with torch.random.fork_rng(devices=[]):  # the random numbers are those of the runs
        network = task.network(config.model, dataset.features.size(1), task.outputs(dataset))
    if config.fit.precision == "bf16":
        set_states(network, "bfloat16")
    return network


def planned(
    dataset: Dataset,
    config: Config,
    device: torch.device,
    budget: int | str,
    training: bool = True,
) -> memory_of.Plan:
    """How a step of training, or an evaluation, keeps to a budget of memory; one that cannot do is
    refused."""
    total = memory_of.most(budget, device)
    there = total - left(dataset, config, device, total)
    network = _network(dataset, config)
    inside = getattr(network, "encoder", None) or network
    call = _call(dataset, config, device)._replace(training=training)
    return memory_of.make(inside, call, total, there)


def _call(dataset: Dataset, config: Config, device: torch.device) -> memory_of.Call:
    """A step of training, for those who count bytes."""
    edges = dataset.num_edges + (dataset.num_nodes if config.walk["self_loops"] else 0)
    dense = not dataset.features.is_sparse_csr
    batched = dataset.batch is not None
    return memory_of.Call(dataset.num_nodes, edges, device, torch.float32, True, dense, batched)


def resident(dataset: Dataset, config: Config, device: torch.device) -> int:
    """Bytes of features and graph, which are there before a step begins; of those that lie in files
    only the entries of the transition."""
    x = dataset.features
    edges = dataset.num_edges + (dataset.num_nodes if config.walk["self_loops"] else 0)
    if dataset.mapped:
        return FLOAT * edges
    # Of a sparse x also its transpose, and what is dropped of both.
    entries = 12 * x.values().numel() + 2 * x.size(0) if x.is_sparse_csr else x.numel()
    if device.type == "cpu":
        own = dataset.num_edges * 16  # as they came
    else:
        own = edges * 4 + dataset.num_nodes * ROW_BYTES  # where each came
    return FLOAT * entries + edges * 8 * 2 + own


def left(dataset: Dataset, config: Config, device: torch.device, budget: int | str) -> int:
    """What a budget leaves for the steps of training."""
    total, there = memory_of.most(budget, device), resident(dataset, config, device)
    if there >= total:
        raise ValueError(
            f"memory: {gib(total)} cannot do: features and graph alone take {gib(there)}"
        )
    return total - there


def _units(dataset: Dataset, config: Config) -> int:
    """Rows of what a decoder or a readout sees: pairs of nodes, or graphs."""
    return dataset.num_units if dataset.batch is not None else 2 * dataset.num_edges


class _States(NamedTuple):
    numbers: int  # of a node
    walks: int  # over all hops, in an epoch


def _states(conv: Any, nodes: int, edges: int, device: torch.device) -> _States:
    """Of the walk of a layer: what its kernel keeps, by the kernel's own rule."""
    kernel = BACKENDS[choose(conv.backend, device, torch.float32)]
    call = memory_of.Call(nodes, edges, device, torch.float32, True, True)
    sizes = memory_of.sizes_of(conv, call, conv.heads)
    keep = walk.what_to_keep(kernel, sizes, edges, conv.state_bytes)
    again = keep != walk.STATES_TOO  # then the states walk a second time, for the queries
    return _States(sizes.heads * sizes.columns * sizes.channels, 4 if again else 3)


# --------------------------------------------------------------------------------------- machine


@cache
def speed(
    device: torch.device, threads: int, now: Callable[[], float] = time.perf_counter
) -> Speed:
    """How fast a device is now, measured: a walk, a product, and a sum of two tensors.

    `threads` are those of torch: with others it is another machine. `now` is the clock.
    """
    small = device.type == "cpu"
    nodes, edges, width = (20_000, 100_000, 512) if small else (200_000, 4_000_000, 4096)
    random = np.random.default_rng(0)
    index = torch.from_numpy(random.integers(0, nodes, (2, edges))).to(device)
    graph = Graph(index, nodes)
    heads, channels, columns, hops = 4, 8, 3, 2
    query = torch.ones(nodes, heads, channels, device=device)
    value = torch.ones(nodes, heads, columns, device=device)
    matrix = torch.ones(width, width, device=device)
    long = torch.ones(4 * 10**6 if small else 10**8, device=device)
    weights = torch.ones(hops + 1, heads, device=device)
    numbers = heads * channels * (columns + 1) * hops * (edges + OF_NODE * nodes)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: subtree_attention(query, query, value, graph, hops, weights),
        lambda: matrix @ matrix,
        lambda: long + long,
    )
    with torch.no_grad():
        walking, product, moving = (_seconds(call, device, now) for call in calls)
    return Speed(numbers / walking, 2 * width**3 / product, 3 * FLOAT * long.numel() / moving)


def _seconds(call: Callable[[], Any], device: torch.device, now: Callable[[], float]) -> float:
    """Of the quickest of a few calls; the first, which may compile, does not count."""
    call()
    found = []
    for _ in range(TRIES):
        start = _settled(device, now)
        call()
        found.append(_settled(device, now) - start)
    return max(min(found), 1e-9)


def _settled(device: torch.device, now: Callable[[], float]) -> float:
    """What the clock says when nothing is queued any more."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return now()


# -------------------------------------------------------------------------------------- estimate


def estimate(
    dataset: Dataset,
    config: Config,
    device: torch.device,
    at_a_time: int = 1,
    fast: Speed | None = None,
    budget: int | str | None = None,
) -> Estimate:
    """Time and memory of a configuration on a graph, of which so many runs go on side by side.

    `fast` is what the device does in a second; by default it is measured. `budget` is as in `cost`.
    """
    runs = min(at_a_time, config.fit.runs)
    found = cost(dataset, config, device, budget)
    return Estimate(config, found, device, runs, memory(device), fast)


def behind(config: Config) -> int:
    """How many nodes are sampled for a training node, at most; of all neighbours, one."""
    return sum(itertools.accumulate(map(abs, config.fan_outs), operator.mul))


def of_batches(
    dataset: Dataset,
    config: Config,
    device: torch.device,
    steps: int,
    step: Callable[[], float],
    budget: int | str | None = None,
) -> OfBatches:
    """Time and memory of a configuration that learns from samples: so many steps an epoch, of
    which one takes as many seconds as `step` measures."""
    network, whole = _network(dataset, config), _call(dataset, config, device)
    inside = getattr(network, "encoder", None) or network
    nodes = min(dataset.num_nodes, config.fit.batch * (1 + behind(config)))
    batch = memory_of.Call(nodes, nodes, device, torch.float32, True, whole.dense)
    evaluated = memory_of.count(inside, whole._replace(training=False))
    if budget is not None:
        evaluated = min(evaluated, left(dataset, config, device, budget))
    found = cost(dataset, config, device)
    held = resident(dataset, config, device) + BASE + memory_of.count(inside, batch) + evaluated
    about = found._replace(bytes=held), device, 1, memory(device), None
    return OfBatches(config, *about, steps, step)


def smaller(found: Estimate, dataset: Dataset) -> Iterator[str]:
    """What takes less memory than an estimate and fits, each with what it takes."""
    for words, changes in _offers(found.config):
        try:
            other = found.config.replace(**changes)
        except ValueError:  # it has settings that the other model does not
            continue
        less = replace(found, config=other, cost=cost(dataset, other, found.device))
        if less.bytes < found.bytes and less.fits:
            yield f"{words} takes {gib(less.bytes)}"


def _offers(config: Config) -> Iterator[tuple[str, dict[str, Any]]]:
    """Smaller models, the widest first; of the deep one the cost does not grow with classes times
    channels."""
    model: Any = config.model
    most, least = (getattr(model, name, 0) for name in ("hidden_channels", "heads"))
    for width in WIDTHS:
        if least <= width < most:
            yield f"--hidden-channels {width}", {"hidden_channels": width}
    if model.name == STAGNNSettings.name:
        yield f"--model {STAFormerSettings.name}", {"model": STAFormerSettings.name}


def refuse_too_large(found: Estimate, dataset: Dataset) -> str:
    """What to say of what may not fit: empty if it does; what cannot is an error."""
    if found.fits:
        return ""
    free = found.memory.free or 0
    instead = "; ".join(smaller(found, dataset)) or "no smaller model would fit either"
    needs = f"about {gib(found.bytes)} are needed, and {gib(free)} are free {found.memory.where}"
    if found.bytes > TOO_MUCH * free and found.memory.sure:
        raise ValueError(f"{needs}: not begun; {instead}")
    return f"{needs}: it may fail; {instead}"


def expect(
    dataset: Dataset,
    config: Config,
    device: torch.device,
    at_a_time: int = 1,
    budget: int | str | None = None,
) -> Expected:
    """What is to be said before training; what cannot fit is refused."""
    found = estimate(dataset, config, device, at_a_time, budget=budget)
    plan = "" if budget is None else str(planned(dataset, config, device, budget))
    return Expected(found, refuse_too_large(found, dataset), plan)


class Expected(NamedTuple):
    """An estimate, what to say if memory is tight, and how a budget of it is kept to."""

    found: Estimate
    warning: str
    plan: str = ""

    def tell(self, watch: Watch, whose: str = "") -> None:
        """Say it; nothing is measured for a watch that shows nothing."""
        if type(watch) is Watch:
            return
        for line in filter(None, (self.warning, whose + self.found.line(), self.plan)):
            watch.say(line)
