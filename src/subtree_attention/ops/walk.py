"""The walk: forward and backward over the hops, once for every kernel.

Here is also what does not depend on how a hop is computed: what is kept for the backward pass, the
blocks of heads and value columns that bound the memory of states, and the exchange of rows between
two hops where each of several partitions owns some of them. `README.md` has the formulas.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from .. import _check
from .kernels import Exchange, Kept, Kernel, Operands, Sizes

KEPT_HOPS = 16
"""Training keeps the states of no more hops than these."""

STATES = {
    "full": "as precise as the inputs",
    "bfloat16": "rounded between hops: half the traffic on a GPU, errors of about 1e-3",
}
"""How precise states are."""

LANES = 2
"""Parts that walk at a time where rows are exchanged: while those of one travel, others go on."""

NOTHING, READOUTS, STATES_TOO = range(3)
"""What is kept: nothing (in inference, or where the backward pass walks again for the read-outs),
the read-outs, or states beside them."""


def _stay(rows: Tensor) -> Tensor:
    return rows


class Walkable(NamedTuple):
    """A matrix to walk on, as its kernel takes it, and what happens before each hop.

    Its rows are those that are owned, its columns those that are needed; `exchange` brings the
    latter from the former, of a state or of its factors. On a whole graph both are all nodes.
    `most_rows` are those of the rank that owns most, by which all ranks decide alike; None where
    nobody else walks.
    """

    matrix: Any
    exchange: Exchange = _stay
    most_rows: int | None = None


def check_states(states: str, device: torch.device, dtype: torch.dtype) -> None:
    """Refuse states that would be less precise for nothing."""
    _check.known("states", states, STATES)
    if states == "full":
        return
    if device.type == "cpu":
        raise ValueError(
            f"states='{states}' saves traffic to a GPU's memory; on a CPU it would only cost "
            "precision: use states='full', or where a layer has it already, layer.states = 'full'"
        )
    if dtype != torch.float32:
        raise ValueError(f"states='{states}' belongs to a computation in float32, not in {dtype}")


def state_dtype(states: str, dtype: torch.dtype) -> torch.dtype:
    """The type that states of a computation in `dtype` are stored in."""
    return torch.bfloat16 if states == "bfloat16" else dtype


# ------------------------------------------------------------------------------------ memory


def parts(sizes: Sizes, state_bytes: int | None) -> list[tuple[slice, slice]]:
    """Heads and value columns of which two states together take at most so many bytes.

    Heads do not know of each other, and value columns bring a column of ones of their own, so a
    part is the operator on slices. A value column of a head is the least.
    """
    values, column = sizes.columns - 1, 2 * sizes.nodes * sizes.channels * sizes.state_item
    if state_bytes is None or column * sizes.columns * sizes.heads <= state_bytes:
        return [(slice(0, sizes.heads), slice(0, values))]
    heads = _cut(sizes.heads, state_bytes // (column * sizes.columns))
    columns = _cut(values, state_bytes // column - 1) if len(heads) == sizes.heads else None
    return [(head, some) for head in heads for some in columns or [slice(0, values)]]


def _parts_on_ranks(
    sizes: Sizes, state_bytes: int | None, most_rows: int
) -> list[tuple[slice, slice]]:
    """As many parts on every rank, and where it can be some that walk at a time."""
    bound = None if state_bytes is None else state_bytes // LANES
    found = parts(sizes._replace(nodes=most_rows), bound)
    if len(found) > 1:
        return found
    heads, values = sizes.heads, sizes.columns - 1
    if heads > 1:
        return [(some, slice(0, values)) for some in _cut(heads, -(-heads // LANES))]
    return [(slice(0, heads), some) for some in _cut(values, -(-values // LANES))]


def _cut(count: int, most: int) -> list[slice]:
    """0 .. count in pieces of about the same size, of at most `most` (but one at least)."""
    size = -(-count // -(-count // max(most, 1)))
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def what_to_keep(
    kernel: type[Kernel], sizes: Sizes, num_edges: int, state_bytes: int | None
) -> int:
    """The rule: states of up to `KEPT_HOPS` hops, if they take no more bytes than the kernel says.

    Otherwise they are walked again, and what grows with K is the read-outs only. Parts that bound
    the memory of states keep none. It looks at sizes only, never at what is in a tensor.
    """
    if sizes.hops > KEPT_HOPS or len(parts(sizes, state_bytes)) > 1:
        return READOUTS
    states = _kept_states(kernel, sizes)
    few = states and states * sizes.item <= kernel.most_kept_bytes(sizes, num_edges)
    return STATES_TOO if few else READOUTS


def kept_numbers(
    kernel: type[Kernel],
    sizes: Sizes,
    keep: int,
    state_bytes: int | None,
    most_rows: int | None = None,
) -> int:
    """How many numbers are kept, of the values' type."""
    return _plan(kernel, sizes, keep, state_bytes, most_rows)[1]


def _plan(
    kernel: type[Kernel],
    sizes: Sizes,
    keep: int,
    state_bytes: int | None,
    most_rows: int | None = None,
) -> tuple[list[tuple[slice, slice]], int]:
    """The parts, and how many numbers are kept of all of them."""
    if most_rows is None:
        found = parts(sizes, state_bytes)
    else:
        found = _parts_on_ranks(sizes, state_bytes, most_rows)
    each = [_kept_sizes(kernel, sizes.part(*part), keep) for part in found]
    return found, sum(map(sum, each))


_planned: Any = lru_cache(1024)(_plan)  # the same in every step of a loop


def _kept_states(kernel: type[Kernel], sizes: Sizes) -> int:
    """Numbers, of the values' type, that kept states fill."""
    numbers = len(kernel.kept_hops(sizes.hops)) * sizes.readouts * sizes.channels
    return _whole_quads(-(-numbers * sizes.state_item // sizes.item))


def _whole_quads(numbers: int) -> int:
    """So many that what lies behind them can be loaded four at a time."""
    return -(-numbers // 4) * 4


def _kept_sizes(kernel: type[Kernel], sizes: Sizes, keep: int) -> tuple[int, int]:
    """Numbers that kept states and kept read-outs fill, each of them in whole quads: the states of
    another part may lie behind them."""
    readouts = _whole_quads(sizes.hops * sizes.readouts)
    if keep == STATES_TOO:
        return _kept_states(kernel, sizes), readouts
    return 0, readouts if keep == READOUTS else 0


def _kept(kernel: type[Kernel], operands: Operands, keep: int, memory: Tensor) -> Kept:
    """States and read-outs in the memory of what is kept."""
    if keep == NOTHING:
        return Kept()
    sizes = operands.sizes
    states, _ = _kept_sizes(kernel, sizes, keep)
    shape, has_states = (sizes.hops, sizes.nodes, sizes.heads, sizes.columns), keep == STATES_TOO
    return Kept(
        memory[:states].view(operands.state_dtype) if has_states else None,
        memory[states : states + sizes.hops * sizes.readouts].view(shape),
    )


class _Places:
    """Where the states of a block lie: where they are kept, or in two rooms in turns."""

    def __init__(self, block: Any, kept: range) -> None:
        self.block, self.kept = block, kept
        self.rooms: dict[int, Any] = {}

    def __call__(self, hop: int) -> Any:
        if hop in self.kept:
            return self.block.kept_state(hop)
        if hop % 2 not in self.rooms:
            self.rooms[hop % 2] = self.block.room()
        return self.rooms[hop % 2]


# ------------------------------------------------------------------------------------ in turns

Walk: TypeAlias = Generator[Any, Any, Any]
"""A walk that stops where rows travel: it gives what it waits for, and wants the rows."""


class _Arrived:
    """Rows that need not be waited for."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def wait(self) -> Tensor:
        return self.rows


def _sent(exchange: Any, state: Tensor, block: Any) -> Any:
    """A state of a block on its way."""
    start = getattr(exchange, "start", None)
    return _Arrived(exchange(state)) if start is None else start(state, block.empty)


def _in_turns(walks: Iterable[Walk]) -> None:
    """Some walks at a time, each until rows travel; the order is the same on every rank."""
    rest, under_way = iter(walks), deque[tuple[Walk, Any]]()

    def go(walk: Walk, rows: Any) -> None:
        with suppress(StopIteration):
            under_way.append((walk, walk.send(rows)))

    while True:
        while len(under_way) < LANES and (fresh := next(rest, None)) is not None:
            go(fresh, None)
        if not under_way:
            return
        walk, travelling = under_way.popleft()
        go(walk, travelling.wait())


def _alone(walk: Walk) -> Any:
    """What a walk gives, with nobody beside it."""
    rows = None
    while True:
        try:
            rows = walk.send(rows).wait()
        except StopIteration as done:
            return done.value


# ----------------------------------------------------------------------------------- the walk


def forward(
    kernel: type[Kernel],
    operands: Operands,
    walkable: Walkable,
    keep: int = NOTHING,
    state_bytes: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Walk K steps and read out after each.

    Returns:
        The weighted sum over hops [N, H, c], or all levels [K + 1, N, H, c] without weights; and
        what is kept, flat.
    """
    operands, sizes, value = _agreed(operands, walkable), operands.sizes, operands.value
    slices, numbers = _planned(kernel, sizes, keep, state_bytes, walkable.most_rows)
    memory = kernel.empty(numbers, value)
    if len(slices) == 1:
        return _alone(_forward(kernel, operands, walkable, keep, memory)), memory
    levels = () if operands.hop_weights is not None else (operands.hops + 1,)
    out = value.new_empty(*levels, *value.shape)

    def one(part: tuple[slice, slice], held: Tensor) -> Walk:
        out[..., *part] = yield from _forward(kernel, operands.part(*part), walkable, keep, held)

    _in_turns(one(*each) for each in _with_memory(kernel, sizes, slices, keep, memory))
    return out, memory


def backward(
    kernel: type[Kernel],
    grad: Tensor,
    operands: Operands,
    memory: Tensor,
    walkable: Walkable,
    transpose: Walkable,
    keep: int,
    state_bytes: int | None = None,
) -> tuple[Tensor, ...]:
    """Gradients of query, key and value, and of hop weights, gate and beta as far as there are.

    The states walk once more, or lie where they are kept, for the queries; then the gradient of the
    states walks back along the transpose, for keys and values.
    """
    operands, sizes = _agreed(operands, walkable), operands.sizes
    slices, _ = _planned(kernel, sizes, keep, state_bytes, walkable.most_rows)
    if len(slices) == 1:
        how = operands, walkable, transpose, keep, memory
        return _alone(_backward(kernel, grad, *how, whole=True))
    query = operands.query.new_zeros(operands.query.shape)
    key = operands.key.new_zeros(operands.key.shape)
    value = operands.value.new_empty(operands.value.shape)
    others = [torch.zeros_like(tensor) for tensor in operands.others]  # [., H]

    def one(part: tuple[slice, slice], held: Tensor) -> Walk:
        grads = grad[..., *part].contiguous(), operands.part(*part)
        own = yield from _backward(kernel, *grads, walkable, transpose, keep, held)
        query[:, part[0]] += own[0]
        key[:, part[0]] += own[1]
        value[:, *part] = own[2]
        for total, share in zip(others, own[3:], strict=True):
            total[:, part[0]] += share

    _in_turns(one(*each) for each in _with_memory(kernel, sizes, slices, keep, memory))
    return query, key, value, *others


def _agreed(operands: Operands, walkable: Walkable) -> Operands:
    """Operands that know by how many rows all ranks decide."""
    if walkable.most_rows is None:
        return operands
    return replace(operands, most_rows=walkable.most_rows)


def _with_memory(
    kernel: type[Kernel], sizes: Sizes, slices: list[tuple[slice, slice]], keep: int, memory: Tensor
) -> Iterator[tuple[tuple[slice, slice], Tensor]]:
    """Each part, and its share of what is kept."""
    for part in slices:
        count = sum(_kept_sizes(kernel, sizes.part(*part), keep))
        yield part, memory[:count]
        memory = memory[count:]


def _forward(
    kernel: type[Kernel], operands: Operands, walkable: Walkable, keep: int, memory: Tensor
) -> Walk:
    matrix, exchange = walkable.matrix, walkable.exchange
    run: Any = kernel(operands, _kept(kernel, operands, keep, memory))
    hops = operands.hops
    kept = kernel.kept_hops(hops) if keep == STATES_TOO else range(0)
    for block in run.blocks(matrix):
        place = _Places(block, kept)
        state: Any = None
        for hop in range(1, hops + 1):
            if hop == 1:
                state = block.first(exchange, place)
            elif exchange is not _stay:
                state = yield _sent(exchange, state, block)
            new = place(hop) if hop < hops or hop in kept else None
            state = block.step(matrix, state, new, hop)
    return run.finish()


def _backward(
    kernel: type[Kernel],
    grad: Tensor,
    operands: Operands,
    walkable: Walkable,
    transpose: Walkable,
    keep: int,
    memory: Tensor,
    whole: bool = False,
) -> Walk:
    unread = keep == NOTHING
    if unread:  # room for the read-outs of these heads and columns alone
        keep, count = READOUTS, sum(_kept_sizes(kernel, operands.sizes, READOUTS))
        memory = kernel.empty(count, operands.value)
    run: Any = kernel(operands, _kept(kernel, operands, keep, memory)._replace(unread=unread))
    hops = operands.hops
    kept = kernel.kept_hops(hops) if keep == STATES_TOO else range(0)
    run.turn(grad)
    # Parts are there to save memory, and exchanges have an order: then one after the other.
    alone = nullcontext(nullcontext())
    together = whole and walkable.exchange is _stay
    with run.two_walks(walkable.matrix) if together else alone as beside:
        with beside:
            for block in run.blocks(walkable.matrix):
                lies = unread and kernel.reads_lying
                yield from _walk_for_query(block, walkable, hops, kept, lies)
        run.turn_back()
        for block in run.blocks(transpose.matrix):
            yield from _walk_back(block, transpose, hops)
    return run.gradients()


def _walk_for_query(block: Any, walkable: Walkable, hops: int, kept: range, last: bool) -> Walk:
    """dq = sum_m S_m dR_m; with room for the last state, too, if it is asked for."""
    matrix, exchange = walkable.matrix, walkable.exchange
    place = _Places(block, kept)
    state: Any = None
    for hop in range(1, hops + 1):
        if hop in kept:
            if hop == kept.start:
                block.read_kept()
            state = place(hop)
            continue
        if hop == 1:
            state = block.first(exchange, place)
        elif exchange is not _stay:
            state = yield _sent(exchange, state, block)
        new = place(hop) if (hop < hops and hop + 1 not in kept) or last else None
        state = block.step_for_query(matrix, state, new, hop)


def _walk_back(block: Any, transpose: Walkable, hops: int) -> Walk:
    """G_m = q (x) dR_m + A^T G_(m+1), down to dS_0 = A^T G_1."""
    matrix, exchange = transpose.matrix, transpose.exchange
    place = _Places(block, range(0))
    state = block.last_gradient(exchange, place)
    for hop in range(hops - 1, 0, -1):
        state = block.step_back(matrix, state, place(hop), hop)
        if exchange is not _stay:
            state = yield _sent(exchange, state, block)
    block.home(matrix, state)
