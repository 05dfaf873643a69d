"""A budget of memory: what layers and models take, and the quickest way of those that fit.

Bytes are counted from sizes, phase by phase: what is kept until the backward pass, and what is
there besides while a layer goes forward or back. A `Way` says how a layer goes about it: heads and
columns in parts, what is kept, and whether the backward pass computes all of the layer again. Every
way gives the same numbers, to rounding; the planner takes the quickest that fits.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .. import _check, feature_maps, ops
from ..graph import Graph
from ..ops import budget, machine, walk
from ..ops.kernels import Sizes
from ..ops.kernels.cpu import POOL
from .linear import Linear, is_plain, joint_product

if TYPE_CHECKING:
    from .conv import STAConv

BASE = 2**25
"""What libraries take when they are first called."""
MARGIN, GAPS = 1.05, 2**25
"""A budget must hold so many times what is counted, and a little more: allocators round up, and
keep some of what is given back."""
MMAP_THRESHOLD, BLOCK_BYTES = -3, 2**22
"""A setting of glibc's `mallopt`: blocks from that size on have pages of their own."""
OF_OUTPUTS = 5
"""How often the outputs are there at a time: their loss, and gradients of both."""
SHARE_OF_FREE = 0.8
"""Of "free": other programs need memory too."""
MOST_PLANS = 1024
"""Plans that a budget remembers."""


class Way(NamedTuple):
    """How a layer walks.

    Attributes:
        heads: that are there at a time, from their queries to what they attend to.
        again: whether the backward pass begins with the layer's input: nothing else is kept.
        state_bytes: of two states, see `walk.parts`; None: all at once.
        keep: the most that a walk keeps, see `walk`.
    """

    heads: int
    again: bool = False
    state_bytes: int | None = None
    keep: int = walk.STATES_TOO


class Call(NamedTuple):
    """What sizes and precision depend on."""

    nodes: int
    edges: int
    device: torch.device
    dtype: torch.dtype
    training: bool
    dense: bool
    """Whether the features are."""
    batched: bool = False
    """Whether it is of many graphs, each of which global attention keeps to itself."""

    @staticmethod
    def of(x: Any, graph: Graph, model: nn.Module, batched: bool = False) -> Call:
        dense = isinstance(x, Tensor)
        learns = any(p.requires_grad for p in model.parameters()) or (dense and x.requires_grad)
        # The operator computes in float32 at least.
        dtype = torch.promote_types(next(model.parameters()).dtype, torch.float32)
        sizes = x.size(0), graph.num_edges, graph.device, dtype
        return Call(*sizes, torch.is_grad_enabled() and learns, dense, batched)


class Plan(NamedTuple):
    """What was chosen for a budget.

    Attributes:
        budget: bytes that may be taken.
        bytes: that will be, at most.
        ways: of the layers, in their order.
        times: how much longer it takes than without a budget, as far as walks go.
        parts: into how many parts the heads and columns of the first layer are cut.
        pooled: bytes of states that may wait on a CPU to be used again: as many as walk at a time,
            and what is left over.
        training: whether it is for a step of training.
    """

    budget: int
    bytes: int
    ways: tuple[Way, ...]
    times: float
    parts: int
    pooled: int
    training: bool

    def __str__(self) -> str:
        way, words = self.ways[0], []
        words += [f"states in {self.parts} parts"] if self.parts > 1 else []
        words += [f"heads {way.heads} at a time"] * way.again
        words += ["nothing is kept of a walk"] * (way.keep == walk.NOTHING)
        words += ["layers are computed again in the backward pass"] * (way.again and self.training)
        alone = "all at once, as without a budget" if self.times == 1 else "no states are kept"
        words = words or [alone]
        longer = "" if self.times == 1 else f", about {self.times:.1f} times the time"
        return (
            f"memory {machine.gib(self.budget)}: {machine.gib(self.bytes)} at most{longer}; "
            f"{', '.join(words)}"
        )


# ----------------------------------------------------------------------------------------- bytes


class _Bytes(NamedTuple):
    """Of a layer: until its backward pass, and while it goes forward, is mixed, and goes back."""

    kept: int
    forward: int
    mix: int
    backward: int
    numbers: float
    rooms: int


def sizes_of(layer: STAConv, call: Call, heads: int) -> Sizes:
    """Of the walk of some heads of a layer."""
    made = getattr(layer.feature_map, "num_features", None)
    channels = made if isinstance(made, int) else layer.key_channels
    states = walk.state_dtype(layer.states, call.dtype).itemsize
    sizes = call.nodes, heads, channels, layer.value_channels + 1, layer.hops
    return Sizes(*sizes, call.dtype.itemsize, states)


def _of_layer(layer: STAConv, call: Call, way: Way) -> _Bytes:
    """What a layer takes that goes this way."""
    sizes = sizes_of(layer, call, way.heads)
    kernel = ops.backends.BACKENDS[ops.backends.choose(layer.backend, call.device, call.dtype)]
    keep = way.keep if call.training else walk.NOTHING
    walked = budget.taken(kernel, sizes, call.edges, keep, way.state_bytes)
    column = call.nodes * sizes.item
    groups = -(-layer.heads // way.heads)
    given = column * way.heads * (2 * layer.key_channels + layer.value_channels)
    mapped = column * way.heads * (2 * sizes.channels + layer.value_channels)
    weighted = layer.aggregation.hop_weights() is not None
    level = column * way.heads * layer.value_channels
    # Levels that are needed side by side: as they are, gated, and as aggregations take them.
    levels = 0 if weighted else LEVELS * (layer.hops + 1) * level
    out = level if weighted else level + levels
    heads = column * layer.heads * layer.aggregation.width
    beside = 0 if layer.beside is None else given + 2 * heads
    # Global attention within the graphs of a batch: what nodes bring, and what they find.
    state = sizes.channels * sizes.columns * way.heads * column
    states = state if call.batched and layer.beside is not None else 0
    result = column * layer.out_channels
    temporary = column * way.heads * sizes.channels
    forward = given + mapped + temporary + walked.kept + walked.forward + out
    apart = not call.training and _mixes_apart(layer, way)  # then only results lie side by side
    forward += (result if apart else heads) if groups > 1 else 0
    if not call.training:
        mix = 2 * result if apart else 2 * heads + 2 * result
        numbers = groups * walked.numbers / max(walked.walks, 1)
        return _Bytes(0, forward + beside + 3 * states, mix, 0, numbers, walked.rooms)
    of_x = 2 * column * layer.lin_query.in_channels  # gradients of x, one added to another
    grads = max(mapped + walked.backward, mapped + given + of_x)  # first of the walk, then of x
    kept = levels + (0 if way.again else mapped + walked.kept)
    backward = mapped + walked.kept + grads + heads + (out if groups > 1 else 0) + of_x // 2
    numbers = groups * walked.numbers
    if way.again:  # all of the forward pass once more
        numbers += numbers / max(walked.walks, 1)
        backward = max(backward, forward + heads)
    mix = kept + 3 * heads + 2 * result
    beside += 2 * states
    forward, backward = forward + 2 * states, backward + 3 * states
    return _Bytes(kept + beside, forward, mix, backward, numbers, walked.rooms)


LEVELS = 3
"""How often the levels of all hops are there where they are not summed at once."""
NORMS = (nn.LayerNorm, nn.modules.batchnorm._NormBase)


def _around(model: nn.Module, layers: Sequence[nn.Module], call: Call) -> tuple[int, int]:
    """Bytes that all but the layers keep, and that are there besides for a while."""
    inside = {id(part) for layer in layers for part in layer.modules()}
    column = call.nodes * (call.dtype.itemsize if call.dtype.is_floating_point else 4)
    kept, widest = 0, 0
    for module in model.modules():
        if id(module) in inside:
            continue
        if isinstance(module, Linear):
            dropped = module.in_channels if module.dropout and call.dense else 0
            each = 2 * module.out_channels + dropped if call.training else module.out_channels
            kept += each * column
            widest = max(widest, module.out_channels)
        elif isinstance(module, NORMS):
            shape = getattr(module, "normalized_shape", None)
            width: int = shape[0] if shape else getattr(module, "num_features", 0)
            kept += (2 if call.training else 1) * width * column
    dropped_first: Any = layers and getattr(model, "input_dropout", 0.0)
    if dropped_first and call.training and call.dense:
        first: Any = layers[0]
        kept += first.lin_query.in_channels * column
    return kept, 3 * widest * column


def count(model: nn.Module, call: Call, ways: Sequence[Way] | None = None) -> int:
    """Bytes that a call of a model takes, and its backward pass, if its layers go these ways.

    By default they go the usual one. What is there before, features, graph and weights, is not
    counted.
    """
    layers = _layers(model)
    ways = [_usual(layer) for layer in layers] if ways is None else ways
    each = [_of_layer(layer, call, way) for layer, way in zip(layers, ways, strict=True)]
    kept, widest = _around(model, layers, call)
    besides = widest
    item = call.nodes * call.dtype.itemsize
    width = layers[-1].out_channels if layers else 0  # of models of others, only what they share
    outputs = OF_OUTPUTS * width * item if call.training else 0
    mixed = [0, *(layer.heads * layer.aggregation.width * item for layer in layers)]
    held = sum(one.kept for one in each) + (sum(mixed[1:]) if call.training else 0)
    peaks = []
    for one, mix in zip(each, mixed[1:], strict=True):
        others = held - one.kept - (mix if call.training else 0)
        pooled = one.rooms if call.device.type == "cpu" else 0  # they wait to be used again
        back = one.backward + outputs // OF_OUTPUTS
        peaks.append(others + max(one.forward, one.mix + outputs + pooled, back))
        besides = max(besides, widest + pooled)
    return kept + max([held + besides, *peaks])


# ------------------------------------------------------------------------------------------ plan


def _layers(model: nn.Module) -> list[Any]:
    """Those that can go several ways: STA layers."""
    return [module for module in model.modules() if hasattr(module, "way")]


def _ways(layer: STAConv, call: Call) -> Iterator[Way]:
    """Ways that a layer may go, the usual one first."""
    yield _usual(layer)
    groups = {-(-layer.heads // parts) for parts in range(1, layer.heads + 1)}
    kept = (walk.STATES_TOO, walk.READOUTS, walk.NOTHING) if call.training else (walk.STATES_TOO,)
    apart = _comes_apart(layer)
    for heads in sorted(groups if apart else {layer.heads}, reverse=True):
        some = heads < layer.heads  # which are always computed from x on
        for bound in budget.cuts(sizes_of(layer, call, heads)):
            for keep in kept:
                for again in {some, some or (call.training and apart)}:
                    yield Way(heads, again, bound, keep)


def _usual(layer: STAConv) -> Way:
    """As without a budget."""
    return Way(layer.heads, False, layer.state_bytes)


def _comes_apart(layer: STAConv) -> bool:
    """Whether a head can be computed without the others: what levels become is a sum."""
    lins = layer.lin_query, layer.lin_key, layer.lin_value
    return (
        layer.aggregation.hop_weights() is not None
        and layer.beside is None
        and all(map(is_plain, lins))
        and layer.attends_as_usual()
    )


def make(model: nn.Module, call: Call, memory: int | str, there: int = 0) -> Plan:
    """The quickest plan within a budget, of which some bytes are `there` already; a ValueError
    names the least budget that would do."""
    layers = _layers(model)
    if not layers:
        raise ValueError(f"memory is for STA layers, and {type(model).__name__} has none")
    given = most(memory, call.device) - there
    usual = [_usual(layer) for layer in layers]
    found: tuple[float, int, list[Way]] | None = None
    least, base = given, _numbers(layers, call, usual)
    options = [[*_ways(layer, call)] for layer in layers]
    for number in range(max(map(len, options))):
        ways = [each[min(number, len(each) - 1)] for each in options]
        taken = int(MARGIN * count(model, call, ways)) + BASE + GAPS
        numbers = _numbers(layers, call, ways)
        least = taken if number == 0 else min(least, taken)
        if taken <= given and (found is None or numbers < found[0]):
            found = numbers, taken, ways
    if found is None:
        raise ValueError(
            f"memory: {machine.gib(given + there)} cannot do, {-(-(least + there) // 10**6)}MB "
            f"({least + there} bytes) is the least that would; {_offer(layers[0], call, least)}"
        )
    numbers, taken, ways = found
    sizes = sizes_of(layers[0], call, ways[0].heads)
    parts = len(walk.parts(sizes, ways[0].state_bytes)) * -(-layers[0].heads // ways[0].heads)
    rooms = max(
        _of_layer(*each).rooms for each in zip(layers, [call] * len(layers), ways, strict=True)
    )
    pooled = max(rooms, given - taken)
    times = max(1.0, round(numbers / base, 2)) if base else 1.0
    return Plan(given + there, taken + there, tuple(ways), times, parts, pooled, call.training)


def _numbers(layers: Sequence[Any], call: Call, ways: Sequence[Way]) -> float:
    each = (_of_layer(layer, call, way) for layer, way in zip(layers, ways, strict=True))
    return sum(one.numbers * layer.hops for one, layer in zip(each, layers, strict=True))


def _offer(layer: STAConv, call: Call, least: int) -> str:
    """What else takes less memory than the least that was found."""
    if least < 2 * (BASE + GAPS):
        return f"{machine.gib(BASE + GAPS)} of it are for libraries, whatever the model"
    if call.device.type == "cuda" and layer.states == "full":
        return "states='bfloat16' (in training precision='bf16') or fewer channels take less"
    return "fewer channels or heads take less"


def most(memory: int | str, device: torch.device) -> int:
    """A budget in bytes."""
    given = _check.memory("memory", memory)
    if isinstance(given, int):
        return given
    free, where, _ = machine.memory(device)
    if free is None:
        raise ValueError(f"memory='{_check.FREE}': {where}: give a size")
    return int(SHARE_OF_FREE * free)


# -------------------------------------------------------------------------------------- in a call


class Budget:
    """The memory that a layer or a model may take, and the plans that were made for it."""

    def __init__(self, memory: int | str) -> None:
        self.memory = memory
        self.plans: dict[Call, Plan] = {}

    def settle(self, model: nn.Module, x: Any, graph: Graph, batched: bool = False) -> Plan:
        """Let the layers of a model go ways that keep to the budget, in a call with this x."""
        if isinstance(x, Tensor) and ops.is_watched(x):
            raise ValueError(
                "memory= plans calls one by one, not what is compiled, exported or transformed: "
                "there, bound states by state_bytes instead"
            )
        for part in model.modules():
            if isinstance(part, Linear):
                part.take_size_of(x)
        call = Call.of(x, graph, model, batched)
        if call not in self.plans:
            if len(self.plans) == MOST_PLANS:  # of batches, each of a size of its own
                self.plans.clear()
            self.plans[call] = make(model, call, self.memory)
        plan = self.plans[call]
        for layer, way in zip(_layers(model), plan.ways, strict=True):
            layer.way = way
        if call.device.type == "cpu":
            POOL.bound(plan.pooled)
            _give_back()
        return plan


@cache
def _give_back() -> None:
    """Let glibc hand freed blocks of some size back to the system, where it would keep those of up
    to 32 MiB between others; other libraries decide for themselves."""
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt"):
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, BLOCK_BYTES)


@contextmanager
def as_before() -> Iterator[None]:
    """What kernels on a CPU hold for their next call has the bound of before, afterwards."""
    bounded = POOL.bounded
    try:
        yield
    finally:
        POOL.bounded = bounded


def plan(model: Any, x: Any, graph: Graph) -> Plan:
    """What a model or layer with a budget does in a call with this x."""
    if model.budget is None:
        raise ValueError("there is no budget to plan for: give memory= when the model is made")
    return model.budget.settle(model, x, graph)


def check(memory: Any, feature_map: Any, edge_dim: int | None) -> Budget | None:
    """The budget that is given by `memory=`, if one is."""
    given = _check.memory("memory", memory)
    if given is None:
        return None
    if feature_maps.is_softmax(feature_map):
        raise ValueError("memory= cannot bound the exact softmax, which is dense: leave it out")
    if edge_dim is not None:
        raise ValueError("memory= does not count gates of edges: bound states by state_bytes")
    return Budget(given)


def refuse(along_edges: bool, entries: Tensor | None) -> None:
    """Refuse in a call what a budget does not count."""
    what = "attention weights along edges" if along_edges else ""
    what = what or ("weights of edges that learn" if entries is not None else "")
    if what:
        raise ValueError(f"memory= does not count {what}: bound states by state_bytes instead")


def mixed_apart(layer: STAConv, x: Tensor, graph: Graph, way: Way) -> Tensor:
    """The result of a layer whose heads are computed some at a time: [N, in_channels] -> [N, out].

    Without gradients they are also mixed some at a time, and never lie side by side.
    """
    if torch.is_grad_enabled() or not _mixes_apart(layer, way):
        return layer.head_mix(heads_apart(layer, x, graph, way))
    mix: Any = layer.head_mix
    out = mix.lin.weight.new_empty(x.size(0), layer.out_channels)
    for first, some in _groups(layer, x, graph, way):
        out = mix.add(out, _some_heads(*some), first)
    return out


def _mixes_apart(layer: STAConv, way: Way) -> bool:
    return way.heads < layer.heads and getattr(layer.head_mix, "comes_apart", False)


def _groups(layer: STAConv, x: Tensor, graph: Graph, way: Way) -> Iterator[tuple[int, Any]]:
    """What `_some_heads` takes for each group of heads, with the number of its first."""
    weights, beta = layer.hop_weights(), layer.readout()
    assert weights is not None  # or it does not come apart
    weights = weights.expand(-1, layer.heads)
    for first in range(0, layer.heads, way.heads):
        part = slice(first, first + way.heads)
        yield first, (layer, x, graph, way, part, weights, beta)


def heads_apart(layer: STAConv, x: Tensor, graph: Graph, way: Way) -> Tensor:
    """What heads attend to, some at a time: [N, in_channels] -> [N, H, width].

    The backward pass begins with x, so that nothing of a head is there while others are computed.
    """
    given = [some for _, some in _groups(layer, x, graph, way)]
    if not torch.is_grad_enabled():
        return torch.cat([_some_heads(*some) for some in given], 1)
    how: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    return torch.cat([checkpoint(_some_heads, *some, **how) for some in given], 1)


def _some_heads(
    layer: STAConv,
    x: Tensor,
    graph: Graph,
    way: Way,
    part: slice,
    weights: Tensor,
    beta: Tensor | None,
) -> Tensor:
    """Of some heads: [N, g, width]."""
    lins = layer.lin_query, layer.lin_key, layer.lin_value
    rows = [lin.weight.unflatten(0, (layer.heads, -1))[part].flatten(0, 1) for lin in lins]
    free = [
        lin.bias.unflatten(0, (layer.heads, -1))[part].flatten()
        for lin in lins
        if lin.bias is not None
    ]
    heads = len(range(*part.indices(layer.heads)))
    (query, key, value), _ = joint_product(x, heads, rows, free)
    how = layer.feature_map, layer.eps, layer.backend, layer.states, way.state_bytes, None
    power = None if beta is None else beta[:, part]
    walked = query, key, value, graph, layer.hops, weights[:, part]
    return ops.attend(*walked, *how, power, keep=way.keep)
