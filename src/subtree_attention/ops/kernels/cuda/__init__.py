"""The CUDA kernel: everything that is made of a row is fused into the walk.

Differences to plain torch, each measured (docs/performance.md):

- a hop reads its neighbours and forms the read-out, or a gradient, of a row in one pass;
- the first hop is gathered from the factors k and v, since S_0 has rank one; so is G_(K-1);
- rows with many neighbours are cut into pieces (`schedule.py`), so that a hub does not stall the
  rest; the last piece to arrive adds them up, in their order: the same bits every time;
- wide states are cut into slices of columns, and blocks of slices walk one after the other where
  their states are large;
- states that are few and small, for what a hop gathers, are kept for the backward pass instead of
  walked again; where a hop does not fill the GPU, the two walks of that pass run side by side.

`kernels.cu` and `quotient.cu` are compiled at run time for each shape.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib.resources import files
from math import ceil, log2
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....graph import Graph
from .. import Exchange, Kept, Kernel, Operands, Place, Sizes
from .compiler import Module, nvrtc, structure
from .layout import Layout, lay_out, padded
from .schedule import Scheduled, graph_schedule

LOT = 16
"""In inference the read-outs of at most so many hops exist at a time."""

BLOCK_BYTES, LEAST_COLUMNS = 2**26, 12
"""Columns of a state walk together up to this size, but so many in any case; the rest follows."""

FILLING_BYTES = 2**28
"""A hop that gathers more than this fills a GPU. Below, two things at a time take less time; above,
they only take more memory."""

KEPT_BYTES, KEPT_SHARE = 2**28, 0.1
"""States of more bytes are not kept for the backward pass. Where a hop fills the GPU, the bytes are
this share of what it gathers."""

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


def fills_gpu(num_edges: int, channels: int, values: int) -> bool:
    """Whether a hop fills a GPU, of states with `channels` = H d and c `values`."""
    return _gathered_bytes(num_edges, channels, values) > FILLING_BYTES


def _gathered_bytes(num_edges: int, channels: int, values: int) -> int:
    return 4 * num_edges * channels * (values + 1)


class CudaKernel(Kernel):
    """States [N, e, H d], in blocks of columns."""

    summary = (
        "everything that is made of a row fused into the walk, compiled by NVRTC; NVIDIA GPU, "
        "float32 and float64"
    )

    @staticmethod
    def refusal(device: torch.device, dtype: torch.dtype) -> str | None:
        if device.type != "cuda":
            return f"it runs on NVIDIA GPUs, not on {device.type}"
        if dtype not in (torch.float32, torch.float64):
            return f"it computes in float32 or float64, not in {dtype}"
        return _problem(device)

    @staticmethod
    def matrices(graph: Graph, dtype: torch.dtype, both: bool) -> tuple[list[Tensor], list[Tensor]]:
        make = partial(graph_schedule, dtype=dtype, transpose=False)
        matrix = [*graph.matrix(dtype), *graph.cached("cuda schedule", make)]
        if not both:
            return matrix, []
        make = partial(graph_schedule, dtype=dtype, transpose=True)
        return matrix, [*graph.transpose(dtype), *graph.cached("cuda schedule back", make)]

    @staticmethod
    def matrix(tensors: Sequence[Tensor]) -> Scheduled:
        return Scheduled(*tensors)

    @staticmethod
    def kept_hops(hops: int) -> range:
        return range(2, hops)  # S_1 is made of the factors again, which costs little

    @staticmethod
    def most_kept_bytes(sizes: Sizes, num_edges: int) -> float:
        gathered = _gathered_bytes(num_edges, sizes.heads * sizes.channels, sizes.columns - 1)
        return KEPT_BYTES if gathered <= FILLING_BYTES else KEPT_SHARE * gathered

    def __init__(self, operands: Operands, kept: Kept) -> None:
        super().__init__(operands, kept)
        self.query, self.key = _aligned(operands.query), _aligned(operands.key)
        self.value, self.hops = _aligned(operands.value), operands.hops
        self.state_dtype, self.width = operands.state_dtype, self.value.size(2) + 1
        self.levels = _Levels(self.value, operands.hop_weights, operands.eps)

    def layout(self, columns: int, factors: bool) -> Layout:
        """How so many columns are laid over lanes, from their factors or from a state."""
        shape = (*self.query.shape[1:], self.width, columns)
        return lay_out(*shape, self.query.dtype, self.state_dtype, factors)

    def blocks(self, matrix: Scheduled) -> Iterator[_Block]:
        if self.query.numel() and self.hops:
            size, ones = self.block_columns(), self.ones
            for first in range(0, self.width, size):
                yield _Block(self, matrix, ones, first, min(size, self.width - first))

    def block_columns(self) -> int:
        """Columns that walk together: all where read-outs have no room until the last is done."""
        if len(self.readouts) < self.hops:
            return self.width
        column_bytes = max(self.query.numel(), 1) * self.state_dtype.itemsize
        most = max(BLOCK_BYTES // column_bytes, LEAST_COLUMNS)
        blocks = ceil(self.width / most)
        return min(padded(ceil(self.width / blocks)), self.width)  # of about the same size

    # ------------------------------------------------------------------------------- forward

    @cached_property
    def ones(self) -> Tensor:
        """[V | 1], padded."""
        return self.levels.ones()

    @cached_property
    def out(self) -> Tensor:
        levels = () if self.levels.weighted else (self.hops + 1,)
        return self.value.new_empty(*levels, *self.value.shape)

    @cached_property
    def readouts(self) -> Tensor:
        """Room for the read-outs of all hops, or of a lot."""
        if self.kept.readouts is not None:
            return self.kept.readouts
        return self.value.new_empty(min(self.hops, LOT), *self.value.shape[:2], self.width)

    def combine_lot(self, hop: int) -> None:
        """Add levels to the output where the room for read-outs is full."""
        room = len(self.readouts)
        if room < self.hops and (hop % room == 0 or hop == self.hops):
            count = (hop - 1) % room + 1
            self.levels.combine(self.readouts[:count], self.out, hop - count + 1)

    def finish(self) -> Tensor:
        if len(self.readouts) == self.hops:
            self.levels.combine(self.readouts, self.out, 1)
        return self.out

    # ------------------------------------------------------------------------------ backward

    def turn(self, grad: Tensor) -> None:
        self.grads = self.levels.backward(grad, self.readouts)
        self.ones, self.grad_query, self.beside = self.grads.ones, self.dots(), False

    def dots(self) -> _Dots:
        """Room for what blocks sum over their columns, [N, H, d]."""
        size = self.block_columns()
        last = (self.width - 1) % size + 1  # a narrower block may have more slices
        layouts = [self.layout(c, factors) for c in (size, last) for factors in (False, True)]
        planes = max(layout.slices for layout in layouts)
        return _Dots(self.query.new_empty(planes, *self.query.shape))

    def two_walks(self, matrix: Scheduled) -> AbstractContextManager[AbstractContextManager[Any]]:
        channels, values = self.query.size(1) * self.query.size(2), self.value.size(2)
        filling = fills_gpu(matrix.col.numel(), channels, values)
        self.beside = bool(self.hops and self.query.numel()) and not filling
        return _side_by_side(self.query.device) if self.beside else super().two_walks(matrix)

    def turn_back(self) -> None:
        if not self.beside:
            self.grad_query.add_up()  # the other walk can use the room
        self.grad_key = self.dots()

    def gradients(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        grads = self.grad_query.add_up(), self.grad_key.add_up(), self.grads.value
        return *grads, self.grads.hop_weights


class _Block:
    """Columns of the states that walk together."""

    def __init__(
        self, run: CudaKernel, matrix: Scheduled, ones: Tensor, first_column: int, columns: int
    ) -> None:
        self.run, self.first_column, self.columns, self.ones = run, first_column, columns, ones
        self.from_factors, self.from_state = run.layout(columns, True), run.layout(columns, False)
        self.hub = _Hub(self.from_state, matrix, run.query.dtype)

    def room(self) -> Tensor:
        query = self.run.query
        shape = (query.size(0), self.columns * query.size(1) * query.size(2))
        return query.new_empty(shape, dtype=self.run.state_dtype)

    def _kept(self) -> Tensor:
        """S_2 .. S_(K-1) [K - 2, N, b H d] of these b columns; blocks lie one after the other."""
        assert self.run.kept.states is not None
        count, query = self.run.hops - 2, self.run.query
        first, size = self.first_column * query.numel() * count, self.columns * query.numel()
        states = self.run.kept.states[first : first + count * size]
        return states.view(count, query.size(0), -1)

    def kept_state(self, hop: int) -> Tensor:
        return self._kept()[hop - 2]

    def first(self, exchange: Exchange, place: Place) -> None:
        self.left, self.right = exchange(self.run.key), exchange(self.ones)

    def step(self, matrix: Scheduled, old: Tensor | None, new: Tensor | None, hop: int) -> Any:
        run = self.run
        readout = run.readouts[(hop - 1) % len(run.readouts)]
        parts = {"own": run.query, "readout": readout, "readout_width": run.width}
        self._hop(matrix, old, new, None, **parts)
        run.combine_lot(hop)
        return new

    def step_for_query(
        self, matrix: Scheduled, old: Tensor | None, new: Tensor | None, hop: int
    ) -> Tensor | None:
        other = self.run.grads.readouts[hop - 1]
        self._hop(matrix, old, new, self.run.grad_query, other=other)
        return new

    def last_gradient(self, exchange: Exchange, place: Place) -> None:
        self.left, self.right = exchange(self.run.query), exchange(self.run.grads.readouts[-1])

    def step_back(self, transpose: Scheduled, old: Tensor | None, new: Tensor, hop: int) -> Tensor:
        other = self.run.grads.readouts[hop - 1]
        self._hop(transpose, old, new, None, own=self.run.query, other=other, add_own=True)
        return new

    def home(self, transpose: Scheduled, old: Tensor | None) -> None:
        value = self.run.grads.value
        parts = {"readout": value, "readout_width": value.size(-1), "readout_adds": True}
        grad_key, own = self.run.grad_key, self.run.key
        self._hop(transpose, old, None, grad_key, own=own, other=self.ones, **parts)

    def _hop(
        self,
        matrix: Scheduled,
        old: Tensor | None,
        new: Tensor | None,
        dots: _Dots | None,
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
            left=self.left,
            right=self.right,
            **parts,
        )

    def read_kept(self) -> None:
        """dq += sum over kept states and their columns."""
        run, place, dots, states = self.run, self.from_state, self.run.grad_query, self._kept()
        _launch(
            _Kernel("dot_kept", "kernels.cu", place.macros),
            run.query.device,
            (ceil(run.query.numel() / place.vector / place.threads), 1, 1),
            place.threads,
            _Kept,
            states=states,
            others=run.grads.readouts[1:-1],
            dot=dots.planes,
            num_states=len(states),
            num_nodes=run.query.size(0),
            first_column=self.first_column,
            adds=dots.filled > 0,
        )
        dots.filled = max(dots.filled, 1)


def product(matrix: Scheduled, dense: Tensor) -> Tensor:
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


# ------------------------------------------------------------------------------------ launches


class _Dots:
    """Sums over columns, a plane [N, H, d] for each slice; how many hold something already."""

    def __init__(self, planes: Tensor) -> None:
        self.planes, self.filled = planes, 0

    def add_up(self) -> Tensor:
        """The sum of all planes, 0 if none holds anything; it takes their place."""
        if not self.filled:
            self.planes.zero_()
        elif self.filled > 1:
            self.planes, self.filled = self.planes[: self.filled].sum(0, keepdim=True), 1
        return self.planes[0]


class _Hub:
    """Where the pieces of a long row meet: their sums, and how many have arrived."""

    def __init__(self, layout: Layout, matrix: Scheduled, dtype: torch.dtype) -> None:
        pieces, device = matrix.pieces.size(0), matrix.col.device
        counters = pieces * layout.block * layout.heads  # a slice has a column at least
        self.partial = torch.empty(pieces, layout.block, layout.row, dtype=dtype, device=device)
        self.arrived = torch.zeros(counters, dtype=torch.int32, device=device)


def _launch_hop(layout: Layout, matrix: Scheduled, hub: _Hub, **parts: Any) -> None:
    """One hop of all rows; the parts are fields of `Hop` in kernels.cu."""
    num_rows, num_pieces = matrix.rows.size(0), matrix.pieces.size(0)
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
    return Module(
        files(__package__).joinpath(file).read_text(encoding="utf-8"), dict(macros), device
    )


@contextmanager
def _side_by_side(device: torch.device) -> Iterator[AbstractContextManager[Any]]:
    """Two things at a time: gives a context that queues work on a second stream."""
    side, main = _side_stream(device), torch.cuda.current_stream(device)
    side.wait_stream(main)
    try:
        yield torch.cuda.stream(side)
    finally:  # also if memory runs out on the way: what runs beside still writes
        main.wait_stream(side)


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def _filled(kind: type[ctypes.Structure], **values: Any) -> ctypes.Structure:
    """A structure whose pointers are tensors' addresses; None is a null pointer."""
    plain = {name: v.data_ptr() if isinstance(v, Tensor) else v for name, v in values.items()}
    return kind(**plain)


def _aligned(tensor: Tensor) -> Tensor:
    """The tensor where its rows can be loaded 16 bytes at a time."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()
