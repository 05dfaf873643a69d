"""The CUDA backend: the recurrence with everything that is made of a row fused into the walk.

Differences to `recurrence.py`, each measured (docs/performance.md):

- a hop reads its neighbours and forms the read-out, or a gradient, of a row in one pass;
- the first hop is gathered from the factors k and v, since S_0 has rank one; so is G_(K-1);
- rows with many neighbours are cut into pieces (`Graph`'s schedule), so that a hub does not stall
  the rest; the last piece to arrive adds them up, in their order: the same bits every time;
- wide states are cut into slices of columns, and slices that are large walk one after the other.

`kernels.cu` and `quotient.cu` are compiled at run time for each shape.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache, partial
from importlib.resources import files
from math import ceil
from typing import Any

import torch
from torch import Tensor

from ...graph import CSR
from .compiler import Module, nvrtc, structure
from .layout import Layout, layout

LOT = 16
"""Hops whose read-outs are worked on together: bounds what is kept in inference."""

BLOCK_BYTES = 2**29
"""Slices of a state walk together up to this size; larger ones one after the other."""

_pointer, _int = ctypes.c_void_p, ctypes.c_int
_Hop = structure(  # as in kernels.cu
    "_Hop",
    {
        "rows": _pointer,
        "pieces": _pointer,
        "col": _pointer,
        "weight": _pointer,
        "num_rows": _int,
        "num_pieces": _int,
        "old_state": _pointer,
        "left": _pointer,
        "right": _pointer,
        "right_width": _int,
        "first_column": _int,
        "columns": _int,
        "add_left": _pointer,
        "add_right": _pointer,
        "new_state": _pointer,
        "reader": _pointer,
        "readout": _pointer,
        "readout_width": _int,
        "read_adds": _int,
        "dot_right": _pointer,
        "dot_width": _int,
        "dot_adds": _int,
        "dot": _pointer,
        "num_nodes": _int,
        "partial": _pointer,
        "arrived": _pointer,
    },
)
_Quotient = structure(  # as in quotient.cu
    "_Quotient",
    {
        "readouts": _pointer,
        "value": _pointer,
        "hop_weights": _pointer,
        "out": _pointer,
        "grad": _pointer,
        "grad_readouts": _pointer,
        "grad_value": _pointer,
        "products": _pointer,
        "eps": ctypes.c_double,
        "hops": _int,
        "first_hop": _int,
        "rows": _int,
    },
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


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    matrix: CSR,
    hops: int,
    eps: float,
    keep_readouts: bool,
    state_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Walk `hops` steps, read out after each: see `backends.Backend.forward`."""
    query, key, value = _aligned(query), _aligned(key), _aligned(value)
    width = value.size(2) + 1
    levels = _Levels(value, hop_weights, eps)
    out = value.new_empty(*(() if levels.weighted else (hops + 1,)), *value.shape)
    room = hops if keep_readouts else min(hops, LOT)
    readouts = value.new_empty(room, *value.shape[:2], width)
    if not query.numel():  # nobody asks, nobody answers
        readouts.zero_()
    walk = _Walk(query, width, state_dtype, hops, matrix)
    # Slices one after the other only if the read-outs of all hops have room until the last is done.
    for block in walk.blocks(together=room < hops):
        for hop in range(1, hops + 1):
            slot = (hop - 1) % LOT if room < hops else hop - 1
            block.step(
                matrix,
                keep=hop < hops,
                left=key,
                right=value,
                right_width=width - 1,
                reader=query,
                readout=readouts[slot],
                readout_width=width,
            )
            if room < hops and (slot == LOT - 1 or hop == hops):
                levels.combine(readouts[: slot + 1], out, hop - slot)
    if room == hops:
        levels.combine(readouts, out, 1)
    return out, readouts if keep_readouts else readouts[:0]


def backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    readouts: Tensor,
    matrix: CSR,
    transpose: CSR,
    hops: int,
    eps: float,
    state_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of query, key, value and hop weights: see `backends.Backend.backward`."""
    query, key, value = _aligned(query), _aligned(key), _aligned(value)
    width = value.size(2) + 1
    levels = _Levels(value, hop_weights, eps)
    grad_readouts, grad_value, grad_weights = levels.backward(grad, readouts)
    if not hops or not query.numel():
        return torch.zeros_like(query), torch.zeros_like(key), grad_value, grad_weights
    walk = _Walk(query, width, state_dtype, hops, matrix, transpose)
    grad_query, grad_key = walk.room_for_dots(), walk.room_for_dots()
    for block in walk.blocks():
        for hop in range(1, hops + 1):  # the states again, for the queries
            block.step(
                matrix,
                keep=hop < hops,
                left=key,
                right=value,
                right_width=width - 1,
                dot=grad_query,
                dot_right=grad_readouts[hop - 1],
                dot_width=width,
                dot_adds=hop > 1 or block.index > 0,
            )
        source = {"left": query, "right": grad_readouts[-1], "right_width": width}
        for hop in range(hops - 1, 0, -1):  # their gradients, back along the edges
            own = {"add_left": query, "add_right": grad_readouts[hop - 1]}
            block.step(transpose, keep=True, **source, **own)
        block.step(
            transpose,
            keep=False,
            **source,
            reader=key,
            readout=grad_value,
            readout_width=width - 1,
            read_adds=True,
            dot=grad_key,
            dot_right=value,
            dot_width=width - 1,
            dot_adds=block.index > 0,
        )
    return _summed(grad_query), _summed(grad_key), grad_value, grad_weights


forward_bfloat16 = partial(forward, state_dtype=torch.bfloat16)
backward_bfloat16 = partial(backward, state_dtype=torch.bfloat16)


def product(matrix: CSR, dense: Tensor) -> Tensor:
    """CSR times dense, [N, M] x [M, w] -> [N, w]: a step of a state of one column."""
    nodes, columns = matrix.rowptr.numel() - 1, dense.size(1)
    out = dense.new_empty(nodes, columns)
    if out.numel():
        channels = next(d for d in range(min(columns, 128), 0, -1) if columns % d == 0)
        place = layout(columns // channels, channels, 1, dense.dtype, dense.dtype)
        hub = _Hub(place, 1, 1, out, matrix)
        _launch_hop(place, matrix, hub, 1, old_state=_aligned(dense), new_state=out, columns=1)
    return out


class _Levels:
    """Read-outs to levels and their weighted sum, and the gradient of that (`quotient.cu`)."""

    def __init__(self, value: Tensor, hop_weights: Tensor | None, eps: float) -> None:
        self.value, self.eps = value, eps
        self.hop_weights = None if hop_weights is None else hop_weights.contiguous()
        self.rows = value.size(0) * value.size(1)

    @property
    def weighted(self) -> bool:
        return self.hop_weights is not None

    def combine(self, readouts: Tensor, out: Tensor, first_hop: int) -> None:
        """Add the levels of some hops to `out`; hop 0 comes with hop 1."""
        grid = (ceil(self.value.numel() / 256), 1, 1)
        self._launch("combine", grid, readouts=readouts, out=out, first_hop=first_hop)

    def backward(self, grad: Tensor, readouts: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Gradients of the read-outs [K, N, H, c + 1], of the values as far as hop 0 goes, and of
        the hop weights."""
        grad_readouts, grad_value = torch.empty_like(readouts), torch.empty_like(self.value)
        hops = readouts.size(0) + 1
        products = self.value.new_empty(hops if self.weighted else 0, *self.value.shape[:2])
        self._launch(
            "combine_backward",
            (ceil(self.rows / 128), hops, 1),
            readouts=readouts,
            grad=grad,
            grad_readouts=grad_readouts,
            grad_value=grad_value,
            products=products,
            first_hop=1,
        )
        return grad_readouts, grad_value, products.sum(1) if self.weighted else None

    def _launch(self, name: str, grid: tuple[int, int, int], **arguments: Any) -> None:
        if not self.value.numel():
            return
        _, heads, channels = self.value.shape
        real = "float" if self.value.dtype == torch.float32 else "double"
        macros = (("REAL", real), ("HEADS", heads), ("WIDTH", channels + 1))
        module = _module("quotient.cu", macros, self.value.device)
        structure = _filled(
            _Quotient,
            value=self.value,
            hop_weights=self.hop_weights,
            eps=self.eps,
            hops=arguments["readouts"].size(0),
            rows=self.rows,
            **arguments,
        )
        module.launch(name, grid, 256 if name == "combine" else 128, structure)


class _Walk:
    """States on their way: room for two, and for the pieces of long rows."""

    def __init__(
        self,
        query: Tensor,
        width: int,
        state_dtype: torch.dtype | None,
        hops: int,
        *matrices: CSR,
    ) -> None:
        num_nodes, heads, channels = query.shape
        state_dtype = state_dtype or query.dtype
        self.query, self.state_dtype, self.hops = query, state_dtype, hops
        self.matrices = matrices
        self.layout = layout(heads, channels, width, query.dtype, state_dtype)
        slice_bytes = num_nodes * self.layout.columns * self.layout.row * state_dtype.itemsize
        together = BLOCK_BYTES // max(slice_bytes, 1)
        self.slices_together = min(max(together, 1), self.layout.slices)

    def blocks(self, together: bool = False) -> Iterator[_Block]:
        """The slices of columns, in blocks that walk together."""
        if not self.query.numel() or not self.hops:
            return
        size = self.layout.slices if together else self.slices_together
        columns = min(size * self.layout.columns, self.layout.width)
        states = self.query.new_empty(
            min(self.hops - 1, 2),
            self.query.size(0) * columns * self.layout.row,
            dtype=self.state_dtype,
        )
        hub = _Hub(self.layout, size, columns, self.query, *self.matrices)
        for index, first in enumerate(range(0, self.layout.slices, size)):
            slices = min(size, self.layout.slices - first)
            yield _Block(self.layout, index, first, slices, states, hub)

    def room_for_dots(self) -> Tensor:
        """One [N, H, d] for each slice of a block."""
        return self.query.new_empty(self.slices_together, *self.query.shape)


class _Block:
    """Slices that walk together. Before the first step their state is only known by its factors."""

    def __init__(
        self,
        layout: Layout,
        index: int,
        first_slice: int,
        slices: int,
        states: Tensor,
        hub: _Hub,
    ) -> None:
        self.layout, self.index, self.slices = layout, index, slices
        self.first_column = first_slice * layout.columns
        self.columns = min(slices * layout.columns, layout.width - self.first_column)
        self.states, self.hub = states, hub
        self.now: int | None = None  # which of the states is the latest

    def step(self, matrix: CSR, keep: bool, **parts: Any) -> None:
        """One hop. The new state is kept for the next one, or the walk is over."""
        new = None if not keep else 1 - (1 if self.now is None else self.now)
        _launch_hop(
            self.layout,
            matrix,
            self.hub,
            self.slices,
            old_state=None if self.now is None else self.states[self.now],
            new_state=None if new is None else self.states[new],
            first_column=self.first_column,
            columns=self.columns,
            **parts,
        )
        self.now = new


class _Hub:
    """Where the pieces of a long row meet: their sums, and how many have arrived."""

    def __init__(
        self, layout: Layout, slices: int, columns: int, like: Tensor, *matrices: CSR
    ) -> None:
        pieces = max(_count(matrix.pieces) for matrix in matrices)
        self.partial = like.new_empty(pieces, columns, layout.row)
        self.arrived = like.new_zeros(pieces * slices * layout.heads, dtype=torch.int32)


def _launch_hop(layout: Layout, matrix: CSR, hub: _Hub, slices: int, **parts: Any) -> None:
    """One hop of all rows; the parts are fields of `Hop` in kernels.cu."""
    name = "walk_from_factors" if parts["old_state"] is None else "walk_from_state"
    num_rows, num_pieces = _count(matrix.rows), _count(matrix.pieces)
    arguments = _filled(
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
    module = _module("kernels.cu", tuple(layout.macros.items()), matrix.col.device)
    module.launch(name, layout.grid(num_rows + num_pieces, slices), layout.threads, arguments)


def _count(items: Tensor | None) -> int:
    assert items is not None  # a CSR matrix on a GPU has its schedule
    return items.size(0)


def _filled(kind: type[ctypes.Structure], **values: Any) -> ctypes.Structure:
    """A structure whose pointers are tensors' addresses; None is a null pointer."""
    plain = {name: v.data_ptr() if isinstance(v, Tensor) else v for name, v in values.items()}
    return kind(**plain)


@cache
def _module(file: str, macros: tuple[tuple[str, str | int], ...], device: torch.device) -> Module:
    return Module(files(__package__).joinpath(file).read_text(), dict(macros), device)


def _aligned(tensor: Tensor) -> Tensor:
    """The tensor where its rows can be loaded 16 bytes at a time."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def _summed(slices: Tensor) -> Tensor:
    return slices[0] if slices.size(0) == 1 else slices.sum(0)
