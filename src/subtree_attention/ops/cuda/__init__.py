"""The CUDA backend: the recurrence with everything that is made of a row fused into the walk.

Differences to `recurrence.py`, each measured (docs/performance.md):

- a hop reads its neighbours and forms the read-out, or a gradient, of a row in one pass;
- the first hop is gathered from the factors k and v, since S_0 has rank one; so is G_(K-1);
- rows with many neighbours are cut into pieces (`graph.schedule`), so that a hub does not stall
  the rest; the last piece to arrive adds them up, in their order: the same bits every time;
- wide states are cut into slices of columns, and blocks of slices walk one after the other where
  their states are large;
- states that are few and small, for what a hop gathers, are kept for the backward pass instead of
  walked again.

`kernels.cu` and `quotient.cu` are compiled at run time for each shape.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from math import ceil, log2
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...graph import CSR
from .compiler import Module, nvrtc, structure
from .layout import Layout, lay_out, padded

LOT = 16
"""In inference the read-outs of at most so many hops exist at a time."""

BLOCK_BYTES, LEAST_COLUMNS = 2**26, 12
"""Columns of a state walk together up to this size, but so many in any case; the rest follows."""

FILLING_BYTES = 2**28
"""A hop that gathers more than this fills a GPU. Below, two things at a time take less time; above,
they only take more memory."""

KEPT_HOPS, KEPT_BYTES, KEPT_SHARE = 16, 2**28, 0.1
"""States of more hops, or of more bytes in all, are not kept for the backward pass. Where a hop
fills the GPU, the bytes are this share of what it gathers."""

_Hop = structure(  # as in kernels.cu
    pointers="rows pieces col weight old_state left right own other new_state readout dot partial "
    "arrived",
    ints="num_rows num_pieces num_nodes first_column add_own readout_width readout_adds dot_planes",
)
_Kept = structure(  # as in kernels.cu
    pointers="states others dot", ints="num_states num_nodes first_column adds"
)
_Quotient = structure(  # as in quotient.cu
    pointers="value ones readouts hop_weights out grad grad_readouts grad_value products",
    doubles="eps",
    ints="hops first_hop rows",
)


def refusal(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why this backend cannot run there, if it cannot."""
    if device.type != "cuda":
        return f"it runs on NVIDIA GPUs, not on {device.type}"
    if dtype not in (torch.float32, torch.float64):
        return f"it computes in float32 or float64, not in {dtype}"
    return _problem(device)


def refusal_bfloat16(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why states in bfloat16 cannot be used there, if they cannot."""
    if dtype != torch.float32:
        return f"states in bfloat16 belong to a computation in float32, not in {dtype}"
    return refusal(device, dtype)


@cache
def _problem(device: torch.device) -> str | None:
    """Why CUDA C++ cannot be compiled or run, if it cannot."""
    if torch.version.hip:
        return "it is written for NVIDIA's CUDA, not for ROCm"
    if torch.cuda.get_device_capability(device) < (7, 0):
        return "it needs a GPU of compute capability 7.0 or newer"
    try:
        nvrtc()
    except OSError as error:
        return str(error)
    return None


def kept_shape(
    key: Tensor,
    value: Tensor,
    hops: int,
    num_edges: int,
    state_dtype: torch.dtype | None = None,
) -> tuple[int, ...]:
    """What training keeps: the read-outs, and S_2 .. S_(K-1) where they are few and small.

    S_1 is made of the factors again, which costs little.
    """
    states, readouts = _kept_sizes(key, value, hops, state_dtype or key.dtype)
    gathered = _gathered_bytes(num_edges, key.size(1) * key.size(2), value.size(2))
    most = KEPT_BYTES if gathered <= FILLING_BYTES else KEPT_SHARE * gathered
    few = hops <= KEPT_HOPS and states * key.element_size() <= most
    return (states + readouts if few else readouts,)


def fills_gpu(num_edges: int, channels: int, values: int) -> bool:
    """Whether a hop fills a GPU, of states with `channels` = H d and c `values`."""
    return _gathered_bytes(num_edges, channels, values) > FILLING_BYTES


def _gathered_bytes(num_edges: int, channels: int, values: int) -> int:
    return 4 * num_edges * channels * (values + 1)


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    matrix: CSR,
    hops: int,
    eps: float,
    kept: Sequence[int],
    state_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Walk `hops` steps, read out after each: see `backends.Backend.forward`."""
    query, key, value = _aligned(query), _aligned(key), _aligned(value)
    levels = _Levels(value, hop_weights, eps)
    out = value.new_empty(*(() if levels.weighted else (hops + 1,)), *value.shape)
    memory = value.new_empty(kept)
    walk = _Walk(query, value, hops, state_dtype)
    states, readouts = walk.kept(memory)
    if readouts is None:
        readouts = value.new_empty(min(hops, LOT), *levels.readout_shape)
    room, ones = readouts.size(0), levels.ones()
    # Blocks of columns only if the read-outs of all hops have room until the last block is done.
    for block in walk.blocks(matrix, together=room < hops):
        path = block.path(states)
        for hop in range(1, hops + 1):
            block.step(
                matrix,
                old=path[hop - 2] if hop > 1 else None,
                new=path[hop - 1] if hop < hops else None,
                left=key,
                right=ones,
                own=query,
                readout=readouts[(hop - 1) % room],
                readout_width=levels.width,
            )
            if room < hops and (hop % room == 0 or hop == hops):
                count = (hop - 1) % room + 1
                levels.combine(readouts[:count], out, hop - count + 1)
    if room == hops:
        levels.combine(readouts, out, 1)
    return out, memory


def backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    kept: Tensor,
    matrix: CSR,
    transpose: CSR,
    hops: int,
    eps: float,
    state_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of query, key, value and hop weights: see `backends.Backend.backward`."""
    query, key, value = _aligned(query), _aligned(key), _aligned(value)
    levels = _Levels(value, hop_weights, eps)
    walk = _Walk(query, value, hops, state_dtype)
    states, readouts = walk.kept(kept)
    assert readouts is not None  # the forward pass knew that this one would come
    grads = levels.backward(grad, readouts)
    if not hops or not query.numel():
        return torch.zeros_like(query), torch.zeros_like(key), grads.value, grads.hop_weights
    filling = fills_gpu(matrix.col.numel(), query[0].numel(), value.size(2))
    grad_query = walk.dots()
    # The two walks are independent of each other.
    with nullcontext() if filling else _beside(query.device):
        for block in walk.blocks(matrix):
            _walk_for_query(block, matrix, key, grads, states, grad_query)
    try:
        if filling:
            grad_query.add_up()  # the other walk can use the room
        grad_key = walk.dots()
        for block in walk.blocks(transpose):
            _walk_back(block, transpose, query, key, grads, grad_key)
    finally:  # also if memory runs out here: what runs beside still writes
        if not filling:
            _join(query.device)
    return grad_query.add_up(), grad_key.add_up(), grads.value, grads.hop_weights


def _walk_for_query(
    block: _Block,
    matrix: CSR,
    key: Tensor,
    grads: _Gradients,
    states: Tensor | None,
    grad_query: _Dots,
) -> None:
    """dq = sum_m S_m dR_m: the states once more, or as they were kept."""
    hops = grads.readouts.size(0)

    def step(hop: int, old: Tensor | None, new: Tensor | None) -> None:
        other = grads.readouts[hop - 1]
        block.step(matrix, old, new, left=key, right=grads.ones, other=other, dots=grad_query)

    if states is None:
        path = [None, *block.path(), None]
        for hop in range(1, hops + 1):
            step(hop, path[hop - 1], path[hop])
    else:
        kept = block.kept(states)
        step(1, None, None)
        block.dot_kept(kept, grads.readouts[1:-1], grad_query)
        step(hops, kept[-1], None)


def _walk_back(
    block: _Block, transpose: CSR, query: Tensor, key: Tensor, grads: _Gradients, grad_key: _Dots
) -> None:
    """G_m = q (x) dR_m + A^T G_(m+1), and at home dk = dS_0 v, dv += k dS_0."""
    path, old, last = block.path(), None, grads.readouts[-1]
    for hop in range(grads.readouts.size(0) - 1, 0, -1):
        new = path[hop - 1]
        block.step(
            transpose,
            old=old,
            new=new,
            left=query,
            right=last,
            own=query,
            other=grads.readouts[hop - 1],
            add_own=True,
        )
        old = new
    block.step(
        transpose,
        old=old,
        new=None,
        left=query,
        right=last,
        own=key,
        readout=grads.value,
        readout_width=grads.value.size(-1),
        readout_adds=True,
        other=grads.ones,
        dots=grad_key,
    )


kept_shape_bfloat16 = partial(kept_shape, state_dtype=torch.bfloat16)
forward_bfloat16 = partial(forward, state_dtype=torch.bfloat16)
backward_bfloat16 = partial(backward, state_dtype=torch.bfloat16)


def product(matrix: CSR, dense: Tensor) -> Tensor:
    """CSR times dense, [N, M] x [M, w] -> [N, w]: a hop of a state of one column."""
    out = dense.new_empty(matrix.rowptr.numel() - 1, dense.size(1))
    if out.numel():
        width = dense.size(1)
        channels = next(d for d in range(min(width, 128), 0, -1) if width % d == 0)
        shape = (width // channels, channels, 1, 1, dense.dtype, dense.dtype)
        place = lay_out(*shape, factors=False)
        hub = _Hub(place, matrix, dense.dtype)
        _launch_hop(place, matrix, hub, old_state=_aligned(dense), new_state=out)
    return out


# ------------------------------------------------------------------------ read-outs to levels


@dataclass(frozen=True)
class _Gradients:
    """What the quotient rule gives: of the read-outs [K, N, H, padded c + 1], of the values as far
    as hop 0 goes, of the hop weights [K + 1, H]; and [V | 1], padded."""

    readouts: Tensor
    value: Tensor
    hop_weights: Tensor | None
    ones: Tensor


class _Levels:
    """Read-outs to levels and their weighted sum, and the gradient of that (`quotient.cu`)."""

    def __init__(self, value: Tensor, hop_weights: Tensor | None, eps: float) -> None:
        self.value, self.eps, self.width = value, eps, value.size(2) + 1
        self.hop_weights = None if hop_weights is None else hop_weights.contiguous()
        self.rows = value.size(0) * value.size(1)
        self.readout_shape = (*value.shape[:2], self.width)
        self.group = min(32, 2 ** ceil(log2(max(self.width - 1, 1))))  # lanes that share a row

    @property
    def weighted(self) -> bool:
        return self.hop_weights is not None

    def ones(self) -> Tensor:
        """[V | 1], padded to whole quads."""
        ones = self.value.new_empty(*self.value.shape[:2], padded(self.width))
        self._launch("pad", (ceil(ones.numel() / 256), 1, 1), 256, ones=ones)
        return ones

    def combine(self, readouts: Tensor, out: Tensor, first_hop: int) -> None:
        """Add the levels of some hops to `out`; hop 0 comes with hop 1."""
        grid, hops = (ceil(self.value.numel() / 256), 1, 1), readouts.size(0)
        parts = {"readouts": readouts, "out": out, "hops": hops, "first_hop": first_hop}
        self._launch("combine", grid, 256, **parts)

    def backward(self, grad: Tensor, readouts: Tensor) -> _Gradients:
        """The quotient rule, for all hops."""
        hops, shape = readouts.size(0), (*self.value.shape[:2], padded(self.width))
        grad_readouts, ones = self.value.new_empty(hops, *shape), self.value.new_empty(shape)
        grad_value = torch.empty_like(self.value)
        products = self.value.new_empty(hops + 1, *shape[:2]) if self.weighted else None
        self._launch(
            "combine_backward",
            (ceil(self.rows * self.group / 128), hops + 1, 1),
            128,
            readouts=readouts,
            grad=grad,
            grad_readouts=grad_readouts,
            grad_value=grad_value,
            ones=ones,
            products=products,
        )
        grad_weights = None if products is None else products.sum(1)
        return _Gradients(grad_readouts, grad_value, grad_weights, ones)

    def _launch(self, name: str, grid: tuple[int, int, int], threads: int, **parts: Any) -> None:
        if not self.value.numel():
            return
        heads, real = self.value.size(1), _REALS[self.value.dtype]
        sizes = (("HEADS", heads), ("WIDTH", self.width), ("PADDED", padded(self.width)))
        kernel = _Kernel(name, "quotient.cu", (("REAL", real), *sizes, ("GROUP", self.group)))
        given = {"value": self.value, "hop_weights": self.hop_weights, "eps": self.eps}
        device = self.value.device
        _launch(kernel, device, grid, threads, _Quotient, rows=self.rows, **given, **parts)


_REALS = {torch.float32: "float", torch.float64: "double"}


# ------------------------------------------------------------------------------------ the walk


def _kept_sizes(key: Tensor, value: Tensor, hops: int, state_dtype: torch.dtype) -> tuple[int, int]:
    """Numbers, of the key's type, that K - 2 states and K read-outs fill."""
    num_nodes, heads, channels = key.shape
    readout = num_nodes * heads * (value.size(2) + 1)
    states = max(hops - 2, 0) * readout * channels * state_dtype.itemsize
    return ceil(states / (4 * key.element_size())) * 4, hops * readout


class _Walk:
    """States [N, e, H d] on their way over a graph."""

    def __init__(
        self, query: Tensor, value: Tensor, hops: int, state_dtype: torch.dtype | None
    ) -> None:
        self.query, self.value, self.hops = query, value, hops
        self.width = value.size(2) + 1
        self.state_dtype = state_dtype or query.dtype

    def layout(self, columns: int, factors: bool) -> Layout:
        """How so many columns are laid over lanes, from their factors or from a state."""
        shape = (*self.query.shape[1:], self.width, columns)
        return lay_out(*shape, self.query.dtype, self.state_dtype, factors)

    def kept(self, memory: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """States, block after block, and read-outs [K, N, H, e] in what the forward pass keeps."""
        states, readouts = _kept_sizes(self.query, self.value, self.hops, self.state_dtype)
        shape = (self.hops, *self.value.shape[:2], self.width)
        if memory.numel() == readouts:
            return None, memory.view(shape)
        if memory.numel() != states + readouts:
            return None, None
        return memory[:states].view(self.state_dtype), memory[states:].view(shape)

    def blocks(self, matrix: CSR, together: bool = False) -> Iterator[_Block]:
        """Columns that walk together; together: all of them."""
        size = self._block_columns(together)
        if self.query.numel() and self.hops:
            for first in range(0, self.width, size):
                yield _Block(self, matrix, first, min(size, self.width - first))

    def dots(self) -> _Dots:
        """Room for what blocks sum over their columns, [N, H, d]."""
        size = self._block_columns()
        last = (self.width - 1) % size + 1  # a narrower block may have more slices
        layouts = [self.layout(c, factors) for c in (size, last) for factors in (False, True)]
        planes = max(layout.slices for layout in layouts)
        return _Dots(self.query.new_empty(planes, *self.query.shape))

    def _block_columns(self, together: bool = False) -> int:
        if together:
            return self.width
        column_bytes = max(self.query.numel(), 1) * self.state_dtype.itemsize
        most = max(BLOCK_BYTES // column_bytes, LEAST_COLUMNS)
        blocks = ceil(self.width / most)
        return min(padded(ceil(self.width / blocks)), self.width)  # of about the same size


class _Dots:
    """Sums over columns, a plane [N, H, d] for each slice; how many hold something already."""

    def __init__(self, planes: Tensor) -> None:
        self.planes, self.filled = planes, 0

    def add_up(self) -> Tensor:
        """The sum of all planes; it takes their place."""
        if self.filled > 1:
            self.planes, self.filled = self.planes[: self.filled].sum(0, keepdim=True), 1
        return self.planes[0]


class _Block:
    """Columns of the state that walk together."""

    def __init__(self, walk: _Walk, matrix: CSR, first_column: int, columns: int) -> None:
        self.walk, self.first_column, self.columns = walk, first_column, columns
        self.from_factors, self.from_state = walk.layout(columns, True), walk.layout(columns, False)
        self.hub = _Hub(self.from_state, matrix, walk.query.dtype)

    def path(self, states: Tensor | None = None) -> list[Tensor]:
        """Where S_1 .. S_(K-1) go: two places in turns, or S_1 to one and the others where they
        are kept."""
        walk, on_the_way = self.walk, max(self.walk.hops - 1, 0)
        shape = (min(on_the_way, 2 if states is None else 1), self.columns * walk.query.numel())
        room = walk.query.new_empty(shape, dtype=walk.state_dtype)
        if states is not None:
            return [room[0], *self.kept(states)]
        return [room[hop % 2] for hop in range(on_the_way)]

    def kept(self, states: Tensor) -> Tensor:
        """S_2 .. S_(K-1) [K - 2, N b H d] of these b columns."""
        count, column = self.walk.hops - 2, (self.walk.hops - 2) * self.walk.query.numel()
        first = self.first_column * column
        return states[first : first + self.columns * column].view(count, -1)

    def step(
        self,
        matrix: CSR,
        old: Tensor | None,
        new: Tensor | None,
        dots: _Dots | None = None,
        **parts: Any,
    ) -> None:
        """One hop from `old`, or from the factors; the parts are fields of `Hop` in kernels.cu."""
        place = self.from_factors if old is None else self.from_state
        if dots is not None:
            parts |= {"dot": dots.planes, "dot_planes": dots.filled}
            dots.filled = max(dots.filled, place.slices)
        _launch_hop(
            place,
            matrix,
            self.hub,
            first_column=self.first_column,
            old_state=old,
            new_state=new,
            **parts,
        )

    def dot_kept(self, states: Tensor, others: Tensor, dots: _Dots) -> None:
        """dots += sum over kept states and their columns."""
        place, query = self.from_state, self.walk.query
        _launch(
            _Kernel("dot_kept", "kernels.cu", place.macros),
            query.device,
            (ceil(query.numel() / place.vector / place.threads), 1, 1),
            place.threads,
            _Kept,
            states=states,
            others=others,
            dot=dots.planes,
            num_states=len(states),
            num_nodes=query.size(0),
            first_column=self.first_column,
            adds=dots.filled > 0,
        )
        dots.filled = max(dots.filled, 1)


class _Hub:
    """Where the pieces of a long row meet: their sums, and how many have arrived."""

    def __init__(self, layout: Layout, matrix: CSR, dtype: torch.dtype) -> None:
        pieces, device = _count(matrix.pieces), matrix.col.device
        counters = pieces * layout.block * layout.heads  # a slice has a column at least
        self.partial = torch.empty(pieces, layout.block, layout.row, dtype=dtype, device=device)
        self.arrived = torch.zeros(counters, dtype=torch.int32, device=device)


def _launch_hop(layout: Layout, matrix: CSR, hub: _Hub, **parts: Any) -> None:
    """One hop of all rows; the parts are fields of `Hop` in kernels.cu."""
    num_rows, num_pieces = _count(matrix.rows), _count(matrix.pieces)
    _launch(
        _Kernel("walk", "kernels.cu", layout.macros),
        matrix.col.device,
        layout.grid(num_rows + num_pieces),
        layout.threads,
        _Hop,
        rows=matrix.rows,
        pieces=matrix.pieces,
        col=matrix.col,
        weight=matrix.weight,
        num_rows=num_rows,
        num_pieces=num_pieces,
        num_nodes=matrix.rowptr.numel() - 1,
        partial=hub.partial,
        arrived=hub.arrived,
        **parts,
    )


# ------------------------------------------------------------------------------------- helpers


class _Kernel(NamedTuple):
    """A kernel, its source, and the macros that specialise it."""

    name: str
    file: str
    macros: tuple[tuple[str, str | int], ...]


def _launch(
    kernel: _Kernel,
    device: torch.device,
    grid: tuple[int, int, int],
    threads: int,
    arguments: type[ctypes.Structure],
    **parts: Any,
) -> None:
    """Queue a kernel; the parts are fields of its structure of arguments."""
    module = _module(kernel.file, kernel.macros, device)
    module.launch(kernel.name, grid, threads, _filled(arguments, **parts))


@cache
def _module(file: str, macros: tuple[tuple[str, str | int], ...], device: torch.device) -> Module:
    return Module(files(__package__).joinpath(file).read_text(), dict(macros), device)


@contextmanager
def _beside(device: torch.device) -> Iterator[None]:
    """Queue work on a second stream; `_join` waits for it."""
    side, main = _side_stream(device), torch.cuda.current_stream(device)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        yield


def _join(device: torch.device) -> None:
    torch.cuda.current_stream(device).wait_stream(_side_stream(device))


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def _filled(kind: type[ctypes.Structure], **values: Any) -> ctypes.Structure:
    """A structure whose pointers are tensors' addresses; None is a null pointer."""
    plain = {name: v.data_ptr() if isinstance(v, Tensor) else v for name, v in values.items()}
    return kind(**plain)


def _count(items: Tensor | None) -> int:
    if items is None:  # only a matrix that was not made on a GPU has no schedule
        raise ValueError("the matrix is not on the GPU where its product is asked for")
    return items.size(0)


def _aligned(tensor: Tensor) -> Tensor:
    """The tensor where its rows can be loaded 16 bytes at a time."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()
