"""The walk: forward and backward over the hops, once for every kernel.

Here is also what does not depend on how a hop is computed: what is kept for the backward pass, the
blocks of heads and value columns that bound the memory of states, and the exchange of rows between
two hops where each of several partitions owns some of them. `README.md` has the formulas.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

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

NOTHING, READOUTS, STATES_TOO = range(3)
"""What is kept: nothing in inference, the read-outs, or states beside them."""


def _stay(rows: Tensor) -> Tensor:
    return rows


class Walkable(NamedTuple):
    """A matrix to walk on, as its kernel takes it, and what happens before each hop.

    Its rows are those that are owned, its columns those that are needed; `exchange` brings the
    latter from the former, of a state or of its factors. On a whole graph both are all nodes.
    """

    matrix: Any
    exchange: Exchange = _stay


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


def kept_numbers(kernel: type[Kernel], sizes: Sizes, keep: int, state_bytes: int | None) -> int:
    """How many numbers are kept, of the values' type."""
    each = [_kept_sizes(kernel, sizes.part(*part), keep) for part in parts(sizes, state_bytes)]
    return sum(map(sum, each))


def _plan(
    kernel: type[Kernel], sizes: Sizes, keep: int, state_bytes: int | None
) -> tuple[list[tuple[slice, slice]], int]:
    """The parts, and how many numbers are kept of all of them."""
    return parts(sizes, state_bytes), kept_numbers(kernel, sizes, keep, state_bytes)


_planned: Any = lru_cache(1024)(_plan)  # the same in every step of a loop


def _kept_states(kernel: type[Kernel], sizes: Sizes) -> int:
    """Numbers, of the values' type, that kept states fill: a multiple of 4."""
    numbers = len(kernel.kept_hops(sizes.hops)) * sizes.readouts * sizes.channels
    return -(-numbers * sizes.state_item // (4 * sizes.item)) * 4


def _kept_sizes(kernel: type[Kernel], sizes: Sizes, keep: int) -> tuple[int, int]:
    """Numbers that kept states and kept read-outs fill."""
    readouts = sizes.hops * sizes.readouts
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
        memory[states:].view(shape),
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
    sizes, value = operands.sizes, operands.value
    slices, numbers = _planned(kernel, sizes, keep, state_bytes)
    memory = kernel.empty(numbers, value)
    if len(slices) == 1:
        return _forward(kernel, operands, walkable, keep, memory), memory
    levels = () if operands.hop_weights is not None else (operands.hops + 1,)
    out = value.new_empty(*levels, *value.shape)
    for part, held in _with_memory(kernel, sizes, slices, keep, memory):
        out[..., *part] = _forward(kernel, operands.part(*part), walkable, keep, held)
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
    sizes = operands.sizes
    slices, _ = _planned(kernel, sizes, keep, state_bytes)
    if len(slices) == 1:
        return _backward(kernel, grad, operands, walkable, transpose, keep, memory, whole=True)
    query = operands.query.new_zeros(operands.query.shape)
    key = operands.key.new_zeros(operands.key.shape)
    value = operands.value.new_empty(operands.value.shape)
    others = [torch.zeros_like(tensor) for tensor in operands.others]  # [., H]
    for part, held in _with_memory(kernel, sizes, slices, keep, memory):
        grads = grad[..., *part].contiguous(), operands.part(*part)
        own = _backward(kernel, *grads, walkable, transpose, keep, held)
        query[:, part[0]] += own[0]
        key[:, part[0]] += own[1]
        value[:, *part] = own[2]
        for total, share in zip(others, own[3:], strict=True):
            total[:, part[0]] += share
    return query, key, value, *others


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
) -> Tensor:
    matrix, exchange = walkable
    run: Any = kernel(operands, _kept(kernel, operands, keep, memory))
    hops = operands.hops
    kept = kernel.kept_hops(hops) if keep == STATES_TOO else range(0)
    for block in run.blocks(matrix):
        place = _Places(block, kept)
        state: Any = None
        for hop in range(1, hops + 1):
            state = block.first(exchange, place) if hop == 1 else exchange(state)
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
) -> tuple[Any, ...]:
    run: Any = kernel(operands, _kept(kernel, operands, keep, memory))
    hops = operands.hops
    kept = kernel.kept_hops(hops) if keep == STATES_TOO else range(0)
    run.turn(grad)
    # Parts are there to save memory, and exchanges have an order: then one after the other.
    alone = nullcontext(nullcontext())
    together = whole and walkable.exchange is _stay
    with run.two_walks(walkable.matrix) if together else alone as beside:
        with beside:
            for block in run.blocks(walkable.matrix):
                _walk_for_query(block, walkable, hops, kept)
        run.turn_back()
        for block in run.blocks(transpose.matrix):
            _walk_back(block, transpose, hops)
    return run.gradients()


def _walk_for_query(block: Any, walkable: Walkable, hops: int, kept: range) -> None:
    """dq = sum_m S_m dR_m."""
    matrix, exchange = walkable
    place = _Places(block, kept)
    state: Any = None
    for hop in range(1, hops + 1):
        if hop in kept:
            if hop == kept.start:
                block.read_kept()
            state = place(hop)
            continue
        state = block.first(exchange, place) if hop == 1 else exchange(state)
        new = place(hop) if hop < hops and hop + 1 not in kept else None
        state = block.step_for_query(matrix, state, new, hop)


def _walk_back(block: Any, transpose: Walkable, hops: int) -> None:
    """G_m = q (x) dR_m + A^T G_(m+1), down to dS_0 = A^T G_1."""
    matrix, exchange = transpose
    place = _Places(block, range(0))
    state = block.last_gradient(exchange, place)
    for hop in range(hops - 1, 0, -1):
        state = block.step_back(matrix, state, place(hop), hop)
        state = exchange(state)
    block.home(matrix, state)
