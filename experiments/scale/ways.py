"""What a training step needs, each way: memory of a device, seconds, bytes over its links."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from math import ceil, log2
from typing import Any, NamedTuple

from experiments.scale import simulate
from experiments.scale.machines import GB, PER_NODE, Device, Link
from experiments.scale.models import Model, Shape, dense_seconds, step_bytes, step_seconds
from experiments.scale.seconds import Speeds
from experiments.scale.walk import ENTRY, FLOAT, ROOMS, Passes, Walk, peak_bytes

COUNTS = (1, 8, 64, 512)
ONE, BUDGET, HEADS, NODES, MESH = (
    "one device, full batch",
    "one device, memory budget",
    "heads and columns",
    "nodes",
    "mesh",
)
WAYS = (ONE, BUDGET, HEADS, NODES, MESH)
BLOCKS = 4
"""Blocks of columns whose rows travel while another is computed."""


@dataclass(frozen=True)
class Machine:
    """Devices, and what joins them: within a node, between nodes, and with the host."""

    device: Device
    near: Link
    far: Link
    host: Link

    def seconds(self, sent: float, count: int) -> float:
        """To send so many bytes to others at random, of `count` devices in all."""
        if count == 1:
            return 0.0
        near = min(count, PER_NODE) - 1
        inside = sent * near / (count - 1)
        return max(self.near.seconds(inside), self._far(sent - inside, count))

    def _far(self, sent: float, count: int) -> float:
        return self.far.seconds(sent) if count > PER_NODE else 0.0

    def latency(self, count: int) -> float:
        """Of an exchange in which each sends to each."""
        return (self.far if count > PER_NODE else self.near).latency * log2(max(count, 2))


@dataclass(frozen=True)
class Cut:
    """What a partition is like.

    Attributes:
        halo: halo rows of all parts as a multiple of N.
        inner: share of rows that need no halo row.
        largest, most: of the largest part, and of the one with most halo rows, over the mean.
    """

    halo: float = 0.0
    inner: float = 1.0
    largest: float = 1.0
    most: float = 1.0


Cuts = Callable[[Shape, int], Cut]
"""How a graph is cut into so many parts."""


@dataclass(frozen=True)
class Need:
    """A step, one way.

    Attributes:
        devices: how many.
        bytes: most memory of a device.
        fits: whether it has that.
        seconds: of a training step.
        walk, link, dense: of these, what a device computes hops, what its links take, and what it
            does at nodes; links and hops overlap.
        sent: bytes that a device sends in a step.
        note: how the ranks are laid out.
        limit: what is in its way: memory, link, columns (fewer than ranks), replicated (dense work
            that each rank of a group does), or nothing.
    """

    way: str
    devices: int
    bytes: float
    fits: bool
    seconds: float
    walk: float
    link: float
    dense: float
    sent: float
    note: str
    limit: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def needs(
    model: Model, shape: Shape, machine: Machine, speeds: Speeds, cuts: Cuts, count: int
) -> Iterator[Need]:
    """Every way that uses so many devices."""
    speeds = speeds.on(machine.device)
    if count == 1:
        yield one(model, shape, machine, speeds)
        yield budget(model, shape, machine, speeds)
        return
    yield heads(model, shape, machine, speeds, count)
    yield nodes(model, shape, machine, speeds, cuts, count)
    yield mesh(model, shape, machine, speeds, cuts, count)


def one(model: Model, shape: Shape, machine: Machine, speeds: Speeds) -> Need:
    """All on one device, all columns at a time."""
    held = _held(shape, shape.nodes, shape.edges) + step_bytes(model, shape)
    dense, total = dense_seconds(model, shape, speeds), step_seconds(model, shape, speeds)
    return _need(ONE, 1, held, machine, total, "", walk=total - dense, dense=dense)


def budget(model: Model, shape: Shape, machine: Machine, speeds: Speeds) -> Need:
    """Parts of (head, columns) one after the other; states and read-outs are not kept, and what
    nodes have between layers is in the host's memory (`_Layout`)."""
    return _shared(BUDGET, model, shape, machine, speeds, Cut(), 1, 1)


class _Layout(NamedTuple):
    """How a rank does its share.

    Attributes:
        part: what walks at a time.
        parts: how many of these, a layer.
        keeps: whether states are kept.
        away: features and what nodes have between layers are in the host's memory, and pass through
            once forward and once backward, over the link to it. On the device are matrices, and of
            one part its queries, keys, values and outputs with their gradients.
    """

    part: Walk
    parts: int
    keeps: bool
    away: bool


def _layouts(own: Walk) -> Iterator[_Layout]:
    """From the soonest to the smallest."""
    if own.keeps:
        yield _Layout(own, 1, True, False)
    for away in (False, True):
        for part, parts in _parts(own):
            yield _Layout(part, parts, False, away)


def _parts(walk: Walk) -> Iterator[tuple[Walk, int]]:
    """A walk in ever more parts, and how many: all of it, a head, some columns of a head."""
    yield walk, 1
    if walk.heads > 1:
        yield replace(walk, heads=1), walk.heads
    columns = walk.values
    while columns > 1:
        columns = ceil(columns / 2)
        yield replace(walk, heads=1, values=columns), walk.heads * ceil(walk.values / columns)


def heads(model: Model, shape: Shape, machine: Machine, speeds: Speeds, count: int) -> Need:
    """Each rank walks its heads and columns over the whole graph; the rest is done by all."""
    return _shared(HEADS, model, shape, machine, speeds, Cut(), 1, count)


def nodes(
    model: Model, shape: Shape, machine: Machine, speeds: Speeds, cuts: Cuts, count: int
) -> Need:
    """Each rank has a part of the nodes; halo rows travel before each hop."""
    return _shared(NODES, model, shape, machine, speeds, cuts(shape, count), count, 1)


def mesh(
    model: Model, shape: Shape, machine: Machine, speeds: Speeds, cuts: Cuts, count: int
) -> Need:
    """Nodes over some ranks, heads over the others: of the layouts that fit the soonest done."""
    layouts = []
    for by in (by for by in (2, 4, 8) if count // by > 1):
        cut = cuts(shape, count // by)
        layouts.append(_shared(MESH, model, shape, machine, speeds, cut, count // by, by))
    return min(layouts, key=lambda need: (not need.fits, need.seconds))


def _shared(
    way: str,
    model: Model,
    shape: Shape,
    machine: Machine,
    speeds: Speeds,
    cut: Cut,
    by_nodes: int,
    by_heads: int,
) -> Need:
    """Nodes over some ranks and heads over others, laid out as it fits."""
    count, walk = by_nodes * by_heads, model.walk(shape)
    if by_heads > walk.heads * walk.values:
        note = f"{walk.heads * walk.values:.0f} columns in all"
        return _need(way, count, float("inf"), machine, float("inf"), note, few=True)
    own = replace(
        walk,
        nodes=shape.nodes / by_nodes * cut.largest,
        edges=shape.edges / by_nodes * cut.largest,
        heads=max(walk.heads // by_heads, 1),
        values=_columns(walk, by_heads),
    )
    halo = shape.nodes * cut.halo / by_nodes * cut.most
    matrices = 2 * (own.edges + own.nodes) * ENTRY
    left = own.nodes * FLOAT * (shape.features + model.layers * model.numbers(shape))
    left += own.nodes * (model.layers - 1) * walk.hops * own.readout

    def held(layout: _Layout) -> float:
        part = layout.part
        ends = 4 * part.heads * (part.keys + part.values) * FLOAT * part.nodes
        rooms = halo * min(ROOMS, part.hops) * part.block
        return matrices + (ends if layout.away else left) + peak_bytes(part, layout.keeps) + rooms

    layouts = [one for one in _layouts(own) if one.away or way != BUDGET]
    fitting = (one for one in layouts if held(one) <= machine.device.memory)
    layout = next(fitting, layouts[-1])
    part, parts, keeps, away = layout
    passes = Passes.training(walk.hops, keeps)
    times = model.layers * parts
    hops, sent = (
        int(passes.states + passes.factors),
        halo * (passes.states * part.row + passes.factors * part.factors),
    )
    computed, travel = speeds.passes(part, passes), machine.seconds(sent, count)
    seconds = computed
    if by_nodes > 1:
        mean = simulate.Part(
            computed / hops / cut.largest,
            cut.inner,
            travel / hops / cut.most,
            machine.latency(by_nodes),
        )
        some = simulate.parts_like(mean, by_nodes, cut.largest, cut.most)
        seconds = simulate.seconds(some, hops, BLOCKS)
    dense = dense_seconds(model, replace(shape, nodes=own.nodes, edges=own.edges), speeds)
    shared = model.layers * own.nodes * FLOAT * _reduced(walk, by_heads)
    reduced = machine.seconds(shared, by_heads)
    note = f"{by_nodes} x {by_heads}" if way == MESH else ""
    words = [note] * bool(note) + [f"{parts} parts a layer"] * (parts > 1)
    through = 2 * left if away else 0.0
    if away:
        words.append(f"{left / GB:,.0f} GB in the host")
    from_host = machine.host.seconds(through)
    return _need(
        way,
        count,
        held(layout),
        machine,
        max(times * seconds, from_host) + reduced + dense,
        ", ".join(words),
        walk=times * computed,
        link=max(times * travel, from_host) + reduced,
        dense=dense,
        sent=times * sent + shared + through,
    )


def _columns(walk: Walk, ranks: int) -> float:
    """Value columns of a head that a rank walks: all, until there are more ranks than heads."""
    return ceil(walk.values / max(1, ranks // walk.heads))


def _reduced(walk: Walk, ranks: int) -> float:
    """Numbers a node that a rank sends: outputs and gradients of values gathered, gradients of
    queries and keys summed (a ring: twice each)."""
    others = (ranks - 1) / ranks
    values, keys = walk.heads * walk.values, walk.heads * walk.keys
    return others * (2 * values + 2 * 2 * keys)


def _held(shape: Shape, nodes: float, edges: float) -> float:
    """Matrices and features."""
    return 2 * (edges + nodes) * ENTRY + nodes * shape.features * FLOAT


def _need(
    way: str,
    count: int,
    held: float,
    machine: Machine,
    seconds: float,
    note: str,
    walk: float = 0.0,
    link: float = 0.0,
    dense: float = 0.0,
    sent: float = 0.0,
    few: bool = False,
) -> Need:
    fits, limit = held <= machine.device.memory, ""
    if few:
        limit = "columns"
    elif not fits:
        limit = "memory"
    elif link > walk + dense:
        limit = "link"
    elif way in (HEADS, MESH) and dense > walk:
        limit = "replicated"
    return Need(way, count, held, fits, seconds, walk, link, dense, sent, note, limit)
