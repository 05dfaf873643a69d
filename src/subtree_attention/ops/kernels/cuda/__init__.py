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

`kernels.cu` and `ends.cu` are compiled at run time for each shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache, cached_property, partial
from math import ceil
from typing import Any

import torch
from torch import Tensor

from ....graph import Graph
from .. import Exchange, Kept, Kernel, Operands, Pass, Place, Sizes
from . import launch, tape
from .compiler import nvrtc
from .ends import MAPS, Dots, Ends, Products, aligned
from .layout import Layout, lay_out, padded
from .schedule import Scheduled, graph_schedule

LOT = 16
"""In inference the read-outs of at most so many hops exist at a time."""

MOST_HOPS = 16
"""Passes of more hops are not written down to be played again."""

BLOCK_BYTES, LEAST_COLUMNS = 2**26, 12
"""Columns of a state walk together up to this size, but so many in any case; the rest follows."""

FILLING_BYTES = 2**28
"""A hop that gathers more than this fills a GPU. Below, two things at a time take less time; above,
they only take more memory."""

KEPT_BYTES, KEPT_SHARE = 2**28, 0.1
"""States of more bytes are not kept for the backward pass. Where a hop fills the GPU, the bytes are
this share of what it gathers."""

_HOP = launch.structure(  # as in kernels.cu
    pointers="rows pieces col weight old_state left right own other new_state readout dot partial "
    "arrived",
    ints="num_rows num_pieces num_nodes first_column add_own readout_width readout_row "
    "readout_adds dot_planes",
)
_KEPT = launch.structure(  # as in kernels.cu
    pointers="states others dot", ints="num_states num_nodes first_column adds"
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


def _together(sizes: Sizes) -> int:
    """Columns that walk at a time, so that blocks are of about the same size."""
    column_bytes = max(sizes.nodes, 1) * sizes.heads * sizes.channels * sizes.state_item
    blocks = ceil(sizes.columns / max(BLOCK_BYTES // column_bytes, LEAST_COLUMNS))
    return min(padded(ceil(sizes.columns / blocks)), sizes.columns)


def _layout(sizes: Sizes, columns: int, factors: bool) -> Layout:
    """How so many columns are laid over lanes, from their factors or from a state."""
    dtype = torch.float32 if sizes.item == 4 else torch.float64
    state_dtype = dtype if sizes.state_item == sizes.item else torch.bfloat16
    shape = sizes.heads, sizes.channels, sizes.columns, columns
    return lay_out(*shape, dtype, state_dtype, factors)


def _planes(sizes: Sizes, together: int | None = None) -> int:
    """The most slices that a block has."""
    together = together or _together(sizes)
    last = (sizes.columns - 1) % together + 1  # a narrower block may have more slices
    layouts = [_layout(sizes, c, factors) for c in {together, last} for factors in (False, True)]
    return max(layout.slices for layout in layouts)


class CudaKernel(Kernel):
    """States [N, e, H d], in blocks of columns."""

    summary = (
        "everything that is made of a row fused into the walk, compiled by NVRTC; NVIDIA GPU, "
        "float32 and float64"
    )
    maps = MAPS[1:]
    gates = takes_rows_apart = reads_lying = True
    of_edge = 60  # launches, and factors that each part gathers again, count in it

    @staticmethod
    def refusal(device: torch.device, dtype: torch.dtype) -> str | None:
        if device.type != "cuda":
            return f"it runs on NVIDIA GPUs, not on {device.type}"
        if dtype not in (torch.float32, torch.float64):
            return f"it computes in float32 or float64, not in {dtype}"
        return _problem(device)

    @staticmethod
    def matrices(graph: Graph, dtype: torch.dtype, both: bool) -> tuple[list[Tensor], list[Tensor]]:
        make = partial(graph_schedule, transpose=False)
        matrix = [*graph.matrix(dtype), *graph.cached("cuda schedule", make)]
        if not both:
            return matrix, []
        make = partial(graph_schedule, transpose=True)
        return matrix, [*graph.transpose(dtype), *graph.cached("cuda schedule back", make)]

    @staticmethod
    def matrix(tensors: Sequence[Tensor]) -> Rows:
        return Rows(Scheduled(*tensors))

    @staticmethod
    def repeated(work: Pass, sizes: Sizes, matrices: Sequence[Tensor]) -> Pass:
        """Written down where the host may take longer than the kernels."""
        parts = len(Scheduled._fields)
        each = [Scheduled(*matrices[i : i + parts]) for i in range(0, len(matrices), parts)]
        filling = fills_gpu(each[0].col.numel(), sizes.heads * sizes.channels, sizes.columns - 1)
        # A tape holds all states at a time, which are large where the GPU is busy anyway.
        plays = sizes.hops <= (1 if filling else MOST_HOPS)
        pieces = max(matrix.pieces.size(0) for matrix in each)
        count, device = pieces * sizes.columns * sizes.heads, matrices[0].device
        return tape.Repeated(work, count, device, matrices, plays)

    @staticmethod
    def kept_hops(hops: int) -> range:
        return range(2, hops)  # S_1 is made of the factors again, which costs little

    @staticmethod
    def columns_together(sizes: Sizes) -> int:
        return sizes.columns if sizes.hops > LOT else _together(sizes)

    @staticmethod
    def unkept_readouts(sizes: Sizes) -> int:
        return min(sizes.hops, LOT)

    @staticmethod
    def grad_readouts(sizes: Sizes) -> float:
        # Of all hops, and the values with their ones twice; rows of whole quads.
        return (sizes.hops + 2) * padded(sizes.columns) / sizes.columns

    @staticmethod
    def planes(sizes: Sizes) -> int:
        return _planes(sizes)

    @staticmethod
    def most_kept_bytes(sizes: Sizes, num_edges: int) -> float:
        gathered = _gathered_bytes(num_edges, sizes.heads * sizes.channels, sizes.columns - 1)
        return KEPT_BYTES if gathered <= FILLING_BYTES else KEPT_SHARE * gathered

    def __init__(self, operands: Operands, kept: Kept) -> None:
        super().__init__(operands, kept)
        self.ends = Ends(operands)
        self.query, self.key, self.ones = self.ends.query, self.ends.key, self.ends.ones
        self.hops, self.state_dtype = operands.hops, operands.state_dtype
        self.width = self.ends.width
        # Whoever has no rows exchanges some too.
        self.walks = bool(self.hops and (operands.most_rows or len(self.query)))
        self.reading = kept.unread and self.walks
        self.brought: dict[str, tuple[Tensor, Tensor]] = {}

    def bring(self, exchange: Exchange, name: str, left: Tensor, right: Tensor) -> Any:
        """Factors on the columns of a matrix, exchanged once for all blocks."""
        if name not in self.brought:
            self.brought[name] = exchange(left), exchange(right)
        return self.brought[name]

    def blocks(self, matrix: Rows) -> Iterator[_Block]:
        if self.walks:
            size = self.width if self.reading else self.block_columns
            for first in range(0, self.width, size):
                yield _Block(self, matrix, first, min(size, self.width - first))

    @cached_property
    def block_columns(self) -> int:
        """Columns that walk together: all where read-outs have no room until the last is done."""
        return self.width if len(self.readouts) < self.hops else _together(self.sizes)

    @cached_property
    def sizes(self) -> Sizes:
        """By which all ranks decide alike."""
        return self.operands.sizes._replace(nodes=self.operands.most_rows or len(self.query))

    # ------------------------------------------------------------------------------- forward

    @cached_property
    def out(self) -> Tensor:
        value = self.operands.value
        levels = () if self.operands.hop_weights is not None else (self.hops + 1,)
        return value.new_empty(*levels, *value.shape)

    @cached_property
    def readouts(self) -> Tensor:
        """Room for the read-outs of all hops, or of a lot."""
        if self.kept.readouts is not None:
            return self.kept.readouts
        return self.ones.new_empty(min(self.hops, LOT), *self.ones.shape[:2], self.width)

    def combine_lot(self, hop: int) -> None:
        """Add levels to the output where the room for read-outs is full."""
        room = len(self.readouts)
        if room < self.hops and (hop % room == 0 or hop == self.hops):
            count = (hop - 1) % room + 1
            self.ends.combine(self.readouts[:count], self.out, hop - count + 1)

    def finish(self) -> Tensor:
        if len(self.readouts) == self.hops:
            self.ends.combine(self.readouts, self.out, 1)
        return self.out

    # ------------------------------------------------------------------------------ backward

    def turn(self, grad: Tensor) -> None:
        self.grad, self.grads = grad, self.ends.room(self.hops)
        self.products: Products | None = self.ends.room_for_products(self.hops)
        self.divide(range(0, 1 if self.reading else self.hops + 1))
        self.dot_query, self.beside = self.dots(), False

    def divide(self, hops: range) -> None:
        """The quotient rule for some hops; behind the last, what is summed over nodes."""
        assert self.products is not None
        self.ends.backward(self.grad, self.readouts, self.grads, self.products, hops)
        if hops.stop > self.hops:
            self.others, self.products = self.ends.of_others(self.products), None

    def dots(self) -> Dots:
        """Room for what blocks sum over their columns, [N, H, d]."""
        planes = _planes(self.sizes, self.block_columns)
        return Dots(self.query.new_empty(planes, *self.query.shape))

    def two_walks(self, matrix: Rows) -> AbstractContextManager[AbstractContextManager[Any]]:
        channels = self.query.size(1) * self.query.size(2)
        filling = fills_gpu(matrix.entries, channels, self.width - 1)
        # Outside of a captured graph, small walks wait for the host, and a second stream costs it.
        apart = bool(self.hops and self.query.numel()) and not self.reading
        self.beside = apart and not filling and tape.capturing()
        device = self.query.device
        return launch.side_by_side(device) if self.beside else super().two_walks(matrix)

    def turn_back(self) -> None:
        if not self.beside:  # the other walk can use the room
            self._unmap_query()
        self.dot_key, self.reading = self.dots(), False

    def _unmap_query(self) -> None:
        self.ends.unmap_query(self.dot_query, self.grads.query)
        del self.dot_query

    def gradients(self) -> tuple[Tensor, ...]:
        if self.beside:
            self._unmap_query()
        self.ends.unmap_key(self.dot_key, self.grads.key)
        found = self.grads
        return found.query, found.key, found.value, *self.others


class _Block:
    """Columns of the states that walk together."""

    def __init__(self, run: CudaKernel, rows: Rows, first_column: int, columns: int) -> None:
        self.run, self.rows, self.first_column, self.columns = run, rows, first_column, columns

    @cached_property
    def from_factors(self) -> Layout:
        return _layout(self.run.sizes, self.columns, True)

    @cached_property
    def from_state(self) -> Layout:
        return _layout(self.run.sizes, self.columns, False)

    @cached_property
    def meeting(self) -> dict[str, Tensor]:
        """Where the pieces of a long row meet: their sums, and how many have arrived."""
        query, pieces = self.run.query, self.rows.pieces
        heads, channels = query.shape[1:]
        return {
            "partial": query.new_empty(pieces, self.columns, heads * channels),
            "arrived": tape.zeros(pieces * self.columns * heads, query.device),
        }

    @staticmethod
    def empty(numbers: int, like: Tensor) -> Tensor:
        return like.new_empty(numbers)

    @property
    def numbers(self) -> int:
        """Of a node: b H d."""
        return self.columns * self.run.query.size(1) * self.run.query.size(2)

    def room(self) -> Tensor:
        query = self.run.query
        return query.new_empty(query.size(0), self.numbers, dtype=self.run.state_dtype)

    def _kept(self) -> Tensor:
        """S_2 .. S_(K-1) [K - 2, N, b H d] of these b columns; blocks lie one after the other."""
        assert self.run.kept.states is not None
        count, query = self.run.hops - 2, self.run.query
        first, size = self.first_column * query.numel() * count, self.columns * query.numel()
        states = self.run.kept.states[first : first + count * size]
        return states.view(count, query.size(0), self.numbers)

    def kept_state(self, hop: int) -> Tensor:
        return self._kept()[hop - 2]

    def first(self, exchange: Exchange, place: Place) -> None:
        self.left, self.right = self.run.bring(exchange, "first", self.run.key, self.run.ones)

    def step(self, matrix: Rows, old: Tensor | None, new: Tensor | None, hop: int) -> Any:
        self._read(old, new, hop)
        self.run.combine_lot(hop)
        return new

    def _read(self, old: Tensor | None, new: Tensor | None, hop: int) -> None:
        """A hop, read out."""
        run = self.run
        readout = run.readouts[(hop - 1) % len(run.readouts)]
        places = {"readout": readout, "readout_width": run.width, "readout_row": readout.stride(0)}
        self._hop(old, new, None, own=run.query, **places)

    def step_for_query(
        self, matrix: Rows, old: Tensor | None, new: Tensor | None, hop: int
    ) -> Tensor | None:
        others = self.run.grads.readouts[hop - 1 : hop]
        if self.run.reading:
            # The gradient of a read-out is of all its columns, which no unit has by itself: the
            # state is looked at once more, where it lies.
            assert new is not None
            self._read(old, new, hop)
            self.run.divide(range(hop, hop + 1))
            self._add_dots(new[None], others)
        else:
            self._hop(old, new, self.run.dot_query, other=others[0])
        return new

    def last_gradient(self, exchange: Exchange, place: Place) -> None:
        run = self.run
        self.left, self.right = run.bring(exchange, "last", run.query, run.grads.readouts[-1])

    def step_back(self, transpose: Rows, old: Tensor | None, new: Tensor, hop: int) -> Tensor:
        other = self.run.grads.readouts[hop - 1]
        self._hop(old, new, None, own=self.run.query, other=other, add_own=True)
        return new

    def home(self, transpose: Rows, old: Tensor | None) -> None:
        value, own, other = self.run.grads.value, self.run.key, self.run.ones
        places = {"readout": value, "readout_width": value.size(2), "readout_row": value.stride(0)}
        self._hop(old, None, self.run.dot_key, own=own, other=other, readout_adds=True, **places)

    def _hop(self, old: Tensor | None, new: Tensor | None, dots: Dots | None, **parts: Any) -> None:
        """One hop from `old`, or from the factors; the parts are fields of `Hop` in kernels.cu."""
        layout = self.from_state if old is not None else self.from_factors
        if old is None:
            parts["left"], parts["right"] = self.left, self.right
        if dots is not None:
            parts["dot"], parts["dot_planes"] = dots.planes, dots.filled
            dots.filled = max(dots.filled, layout.slices)
        column = self.first_column
        self.rows.hop(
            layout, first_column=column, old_state=old, new_state=new, **self.meeting, **parts
        )

    def read_kept(self) -> None:
        self._add_dots(self._kept(), self.run.grads.readouts[1:-1])

    def _add_dots(self, states: Tensor, others: Tensor) -> None:
        """dq += sum over states [n, N, b H d] and their columns; `others` are dR [n, N, H, .]."""
        run, dots, layout = self.run, self.run.dot_query, self.from_state
        if not run.query.numel():  # a rank without nodes
            return
        module = launch.module("kernels.cu", layout.macros, run.query.device)
        launch.Bound(module, _KEPT)(
            "dot_kept",
            (ceil(run.query.numel() / layout.vector / layout.threads), 1, 1),
            layout.threads,
            states=states,
            others=others,
            dot=dots.planes,
            num_states=len(states),
            num_nodes=run.query.size(0),
            first_column=self.first_column,
            adds=dots.filled > 0,
        )
        dots.filled = max(dots.filled, 1)


class Rows:
    """The rows of a matrix that is walked on, bound once to the kernels of each layout."""

    def __init__(self, matrix: Scheduled) -> None:
        self.matrix, self.entries = matrix, matrix.col.numel()
        self.pieces, self.items = matrix.pieces.size(0), matrix.rows.size(0) + matrix.pieces.size(0)
        self.bound: dict[Layout, tuple[launch.Bound, tuple[int, int, int]]] = {}

    def hop(self, layout: Layout, **parts: Any) -> None:
        """One hop of all rows; the parts are fields of `Hop` in kernels.cu."""
        if not self.items:  # a rank without nodes
            return
        if layout not in self.bound:
            self.bound[layout] = self._bind(layout), layout.grid(self.items)
        kernels, grid = self.bound[layout]
        kernels("walk", grid, layout.threads, **parts)

    def _bind(self, layout: Layout) -> launch.Bound:
        matrix = self.matrix
        return launch.Bound(
            launch.module("kernels.cu", layout.macros, matrix.col.device),
            _HOP,
            rows=matrix.rows,
            pieces=matrix.pieces,
            col=matrix.col,
            weight=matrix.weight,
            num_rows=matrix.rows.size(0),
            num_pieces=self.pieces,
            num_nodes=matrix.rowptr.numel() - 1,
        )


def product(matrix: Scheduled, dense: Tensor) -> Tensor:
    """CSR times dense, [N, M] x [M, w] -> [N, w]: a hop of a state of one column."""
    out = dense.new_empty(matrix.rowptr.numel() - 1, dense.size(1))
    if out.numel():
        width = dense.size(1)
        channels = next(d for d in range(min(width, 128), 0, -1) if width % d == 0)
        shape = (width // channels, channels, 1, 1, dense.dtype, dense.dtype)
        layout, rows = lay_out(*shape, factors=False), Rows(matrix)
        partial = dense.new_empty(rows.pieces, width)
        arrived = tape.zeros(rows.pieces * layout.slices * layout.heads, dense.device)
        states = {"old_state": aligned(dense), "new_state": out}
        rows.hop(layout, partial=partial, arrived=arrived, **states)
    return out
