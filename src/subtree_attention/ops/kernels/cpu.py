"""The Numba kernel: read-outs and gradients fused into the walk, for the CPU.

One pass over the state per hop instead of several. Numba is imported at the first call; its machine
code is kept on disk, so only the very first run compiles (`_numba_kernels.py`).
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import machine
from . import Exchange, Kept, Kernel, Operands, Place, Sizes, workers

KEPT_BYTES, KEPT_SHARE, MOST_KEPT_BYTES = 2**28, 0.1, 2**32
"""Training keeps the states if they take no more bytes than the first, or than this share of what
a hop gathers, up to the last; otherwise the read-outs."""

POOL_BYTES, POOL_SHARE = 2**29, 0.25
"""Memory of states that is held for the next call: so much, or what was in use at a time, up to
this share of what was free before."""

ALIGNMENT = 64
"""Where rows of a state start: a cache line, so that a vector never lies across two."""


class Pool:
    """Memory for states, used again when nobody holds it any more.

    Fresh memory costs page faults that take longer than a hop.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[np.ndarray]] = {}  # by bytes; those that came last are last
        self._used: dict[int, int] = {}  # bytes of what somebody holds, by number
        self._numbers, self._peak = count(), 0
        self.bounded: int | None = None
        self.coarse = False

    @property
    def most(self) -> int:
        """Bytes that are held: beyond the first few, no more than were in use at a time."""
        if self.bounded is not None:
            return self.bounded
        return max(POOL_BYTES, min(self._peak, self._share))

    @cached_property
    def _share(self) -> int:
        return int(POOL_SHARE * (machine.memory(torch.device("cpu")).free or 0))

    def take(self, shape: tuple[int, ...], dtype: np.dtype) -> Tensor:
        """An empty tensor of that shape; its memory comes back when the tensor is gone."""
        size = math.prod(shape) * dtype.itemsize
        room, number = _rounded(size) if self.coarse else size, next(self._numbers)
        try:
            memory = self._free[room].pop()
        except (KeyError, IndexError):
            if self.bounded is not None and 8 * room > self.bounded:
                self.clear()  # of another size, it would lie beside this one
            memory = np.empty(room + ALIGNMENT, np.uint8)  # NumPy asks for huge pages
        self._used[number] = room
        self._peak = max(self._peak, sum([*self._used.values()]))
        start = -memory.ctypes.data % ALIGNMENT
        view = memory[start : start + size].view(dtype).reshape(shape)
        weakref.finalize(view, self._give, number, memory).atexit = False
        return torch.from_numpy(view)  # the tensor's storage holds the view

    @contextmanager
    def rounding(self) -> Iterator[None]:
        """For a while rooms are up to an eighth larger than asked for, so that states of about the
        same size, as those of batches, use the same ones; what is held at its end is let go."""
        self.coarse = True
        try:
            yield
        finally:
            self.coarse = False
            self.clear()

    def _give(self, number: int, memory: np.ndarray) -> None:
        size, most = self._used.pop(number), self.most
        if size > most or (self.bounded is not None and self.free_bytes() + size > most):
            return
        held = self._free.pop(size, [])
        self._free[size] = held  # the last one now
        held.append(memory)
        while self.free_bytes() > most:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Let go of one of the size that has not come for longest."""
        with suppress(StopIteration, KeyError, RuntimeError):  # another thread was at it
            size = next(iter(self._free))
            held = self._free[size]
            del held[:1]
            if not held:
                del self._free[size]

    def free_bytes(self) -> int:
        """What is held and not in use."""
        return sum(size * len(held) for size, held in list(self._free.items()))

    def bound(self, most: int) -> None:
        """Hold no more than so many bytes, from now on, and of states only."""
        self.bounded = most
        if self.free_bytes() > most:
            self.clear()

    def clear(self) -> None:
        """Let go of what is not in use."""
        self._free.clear()
        self._peak = 0


def _rounded(count: int) -> int:
    """Up to the next number of four binary digits."""
    unit = 1 << max(count.bit_length() - 4, 0)
    return -(-count // unit) * unit


POOL = Pool()
Matrix = tuple[np.ndarray, ...]
"""Row pointers, columns and weights."""


@cache
def _numba_problem() -> str | None:
    """Why Numba cannot be used, if it cannot; asked when a CPU backend is first needed."""
    try:
        import numba  # noqa: F401
    except ImportError as error:
        return f"Numba cannot be imported ({error}): pip install 'subtree-attention[cpu]'"
    except BaseException:  # interrupted half-way, it could not be imported again
        for name in [*sys.modules]:
            if name.partition(".")[0] in ("numba", "llvmlite"):
                del sys.modules[name]
        raise
    return None


def compiled() -> bool:
    """Whether the kernels lie on disk: if not, the first training step compiles them."""
    from . import _numba_kernels as kernels

    folder = Path(kernels.walk_home.stats.cache_path or "")  # the last kernel that a step needs
    return any(folder.glob(f"{kernels.__name__.rpartition('.')[2]}.walk_home-*.nbi"))


class NumbaKernel(Kernel):
    """States [N, H, c + 1, d]. Kept states spare a third of the gathers of a training step.

    A state of rank one, S_0 or G_K, is not formed where keys fill whole vectors: the hop gathers
    its factors, d times fewer numbers.
    """

    summary = "read-outs fused into the walk, compiled by Numba; CPU, float32 and float64"
    of_edge = 100  # rows of few columns are read from memory at a lower rate, too

    @staticmethod
    def refusal(device: torch.device, dtype: torch.dtype) -> str | None:
        if device.type != "cpu":
            return f"it runs on the CPU, not on {device.type}"
        if dtype not in (torch.float32, torch.float64):
            return f"it computes in float32 or float64, not in {dtype}"
        return _numba_problem()

    @staticmethod
    def matrix(tensors: Sequence[Tensor]) -> Matrix:
        return arrays(*tensors)

    @staticmethod
    def kept_hops(hops: int) -> range:
        return range(1, hops + 1)

    @staticmethod
    def most_kept_bytes(sizes: Sizes, num_edges: int) -> float:
        gathered = num_edges * sizes.heads * sizes.channels * sizes.columns * sizes.item
        return max(KEPT_BYTES, min(KEPT_SHARE * gathered, MOST_KEPT_BYTES))

    @staticmethod
    def grad_readouts(sizes: Sizes) -> int:
        return min(sizes.hops, 2)

    @staticmethod
    def empty(numbers: int, like: Tensor) -> Tensor:
        return POOL.take((numbers,), like.numpy().dtype)

    def __init__(self, operands: Operands, kept: Kept) -> None:
        super().__init__(operands, kept)
        from . import _numba_kernels, _numba_vectors

        self.kernels, self.workers = _numba_kernels, torch.get_num_threads()
        value, weights = operands.value, operands.hop_weights
        self.dtype, self.nodes = value.numpy().dtype, len(value)
        self.shape = value.size(1), value.size(2) + 1, operands.key.size(2)
        self.eps, self.summed = self.dtype.type(operands.eps), weights is not None
        if weights is None:
            weights = value.new_ones(operands.hops + 1, value.size(1))
        self.scales = weights.contiguous().numpy()
        given = value.new_empty(operands.hops, 0) if operands.beta is None else operands.beta
        self.beta = given.detach().contiguous().numpy()  # [K, H], or [K, 0] where there is none
        self.query, self.key = arrays(operands.query, operands.key)
        self.turned = False  # to the backward pass
        self.lanes = self._empty(self.workers, *self.shape)  # a node's state for each thread
        total = self.workers * math.prod(self.shape)  # the same, while a long row is added up
        self.totals = POOL.take((total,), np.dtype(np.float64)).numpy()
        self.by_factors = self.shape[2] * self.dtype.itemsize % _numba_vectors.HALF_BYTES == 0
        self.factors: tuple[np.ndarray, ...] = ()  # of a state that is not formed

    def room(self) -> Tensor:
        return self._rows(self.nodes)

    def kept_state(self, hop: int) -> Tensor:
        assert self.kept.states is not None
        row = math.prod(self.shape)
        size = self.nodes * row
        return self.kept.states[(hop - 1) * size : hop * size].view(self.nodes, row)

    # ------------------------------------------------------------------------------- forward

    @cached_property
    def out(self) -> Tensor:
        """The output; hop 0 comes with the first state."""
        value, hops = self.operands.value, self.operands.hops
        return value.new_empty(value.shape if self.summed else (hops + 1, *value.shape))

    @cached_property
    def levels(self) -> list[np.ndarray]:
        """Where the levels go; in the backward pass, their gradients."""
        return self._levels(self.out)

    @cached_property
    def readout(self) -> np.ndarray:
        """Room for the read-outs of a hop."""
        return self._empty(self.nodes, *self.shape[:2])

    @cached_property
    def ones(self) -> Tensor:
        """[v | 1], [N, H, e]."""
        return _with_ones(self.operands.value)

    def first(self, exchange: Exchange, place: Place) -> Tensor | None:
        self._put_level_zero()
        given = self.operands
        key, value = exchange(given.key), exchange(given.value)
        ones = self.ones if value is given.value else _with_ones(value)
        return self._made_of(key, ones, place, 0)

    def _made_of(self, left: Tensor, right: Tensor, place: Place, hop: int) -> Tensor | None:
        """The state right (x) left on the columns; None where the next hop gathers its factors."""
        if self.by_factors:
            self.factors = arrays(left, right)
            return None
        state = place(hop) if len(left) == self.nodes else self._rows(len(left))
        self._launch("begin", len(left), *arrays(left, right, state))
        return state

    def _put_level_zero(self) -> None:
        if not self.turned:
            level = self.out if self.summed else self.out[0]
            torch.mul(self.operands.value, torch.from_numpy(self.scales[0])[:, None], out=level)

    def step(
        self, matrix: Matrix, old: Tensor | None, new: Tensor | None, hop: int
    ) -> Tensor | None:
        readout = self.readout if self.kept.readouts is None else self._kept_readout(hop)
        at_hop = self.query, self.eps, self.scales[hop], self.beta[hop - 1], self.summed
        ends = *at_hop, readout, self.levels[hop]
        source = self._source(matrix, old)
        self._launch("walk_and_read", self.nodes, source, *self._into(new), *ends)
        return new

    def finish(self) -> Tensor:
        if not self.operands.hops:
            self._put_level_zero()
        return self.out

    # ------------------------------------------------------------------------------ backward

    def turn(self, grad: Tensor) -> None:
        given, self.turned, self.levels = self.operands, True, self._levels(grad)
        self.products = given.value.new_empty(given.hops + 1, *given.value.shape[:2])
        nodes, heads = self.nodes, self.beta.shape[1]
        self.beta_products = given.value.new_empty(given.hops, nodes, heads)
        self.grads = (
            torch.zeros_like(given.query),
            torch.zeros_like(given.key),
            torch.empty_like(given.value),
        )
        self.grad_query, self.grad_key, self.grad_value = arrays(*self.grads)
        rooms = self.grad_readouts(given.sizes)
        self.grads_of_readouts = [self._empty(self.nodes, *self.shape[:2]) for _ in range(rooms)]

    def step_for_query(
        self, matrix: Matrix, old: Tensor | None, new: Tensor | None, hop: int
    ) -> Tensor | None:
        source, unread = self._source(matrix, old), self.kept.unread
        self._launch("walk_for_query", self.nodes, source, *self._into(new), unread, self._at(hop))
        return new

    def last_gradient(self, exchange: Exchange, place: Place) -> Tensor | None:
        hops = self.operands.hops
        if not hops:
            return exchange(place(0).zero_())
        self._launch("turn_back", self.nodes, self.nodes, self._kept_rows(hops), self._at(hops))
        readout = torch.from_numpy(self._grad_readout(hops)).view(self.nodes, *self.shape[:2])
        return self._made_of(exchange(self.operands.query), exchange(readout), place, hops)

    def step_back(self, transpose: Matrix, old: Tensor | None, new: Tensor, hop: int) -> Tensor:
        source, at_hop = self._source(transpose, old), (self._kept_rows(hop), *self._into(new))
        self._launch("walk_back", self.nodes, source, *at_hop, self._at(hop))
        return new

    def home(self, transpose: Matrix, old: Tensor | None) -> None:
        source, at_home = self._source(transpose, old), (self.key, *arrays(self.ones))
        ends = self.levels[0], self.scales[0], *arrays(self.products[0])
        grads = self.grad_key, self.grad_value
        self._launch("walk_home", self.nodes, source, *self._into(None), *at_home, *ends, *grads)

    def gradients(self) -> tuple[Tensor, ...]:
        of_weights = [self.products.sum(1)] if self.summed else []
        of_beta = [] if self.operands.beta is None else [self.beta_products.sum(1)]
        return *self.grads, *of_weights, *of_beta

    def _at(self, hop: int) -> tuple[Any, ...]:
        """What a kernel needs to form dR_hop: `hop` of the kernels."""
        at_hop = self.levels[hop], self.eps, self.scales[hop], self._kept_readout(hop)
        ends = self._grad_readout(hop), *arrays(self.products[hop]), self.grad_query
        powers = self.beta[hop - 1], *arrays(self.beta_products[hop - 1])
        return self.query, *at_hop, *ends, *powers

    def _grad_readout(self, hop: int) -> np.ndarray:
        """Room for dR_hop; that of the hop before it, which may still be gathered, is another."""
        return self.grads_of_readouts[hop % len(self.grads_of_readouts)]

    def _kept_rows(self, hop: int) -> np.ndarray:
        """The states of a hop, if they are kept."""
        return self.query[:0] if self.kept.states is None else arrays(self.kept_state(hop))[0]

    def _kept_readout(self, hop: int) -> np.ndarray:
        assert self.kept.readouts is not None  # the forward pass knew that this one would come
        return arrays(self.kept.readouts[hop - 1])[0]

    # ------------------------------------------------------------------------------- helpers

    def _launch(self, kernel: str, rows: int, *arguments: Any) -> None:
        """Run a kernel over so many rows, on as many threads as they are worth."""
        kernels, counter = self.kernels, np.zeros(1, np.int64)
        threads = min(self.workers, -(-rows // kernels.LOT)) or 1
        workers.run(getattr(kernels, kernel), threads, counter, self.shape, *arguments)

    def _levels(self, out: Tensor) -> list[np.ndarray]:
        """The output of each hop, or its gradient."""
        return [*arrays(out)] * (self.operands.hops + 1) if self.summed else [*arrays(*out)]

    def _source(self, matrix: Matrix, state: Tensor | None) -> Matrix:
        """What a hop gathers: a state, or where there is none its factors."""
        return *matrix, *(self.factors if state is None else arrays(state))

    def _into(self, new: Tensor | None) -> tuple[np.ndarray, np.ndarray]:
        """Where a state goes, a node at a time if it is only looked at; room for a row's total."""
        return self.lanes if new is None else arrays(new)[0], self.totals

    def _rows(self, nodes: int) -> Tensor:
        return POOL.take((nodes, math.prod(self.shape)), self.dtype)

    def _empty(self, *shape: int) -> np.ndarray:
        """Room for an array of that shape, flat."""
        return POOL.take((math.prod(shape),), self.dtype).numpy()


def _with_ones(value: Tensor) -> Tensor:
    """[v | 1]: [N, H, c] -> [N, H, c + 1]."""
    nodes, heads, channels = value.shape
    ones = POOL.take((nodes, heads, channels + 1), value.detach().numpy().dtype)
    ones[..., :channels] = value.detach()
    ones[..., channels] = 1
    return ones


def least_draw(share: float) -> int:
    """What 16 random bits must be at least so that an entry stays, where a share is dropped."""
    return min(round(share * 2**16), 2**16 - 1)


def dropped(
    x: Tensor, share: float, seed: int, rows: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """x where 16 random bits of an entry say that it stays, scaled up, and 0 elsewhere.

    With `rows`, row pointers [n + 1] and the number of each row's first entry [n], entries draw by
    these numbers; else by their place in x.
    """
    from . import _numba_kernels as kernels

    least = least_draw(share)
    shape, dtype = tuple(x.shape), x.detach().numpy().dtype
    (given,) = arrays(x)
    out = POOL.take(shape, dtype) if POOL.bounded is None else x.new_empty(shape)
    scale = given.dtype.type(1 / (1 - least / 2**16))
    threads = min(torch.get_num_threads(), -(-given.size // kernels.DROP_LOT)) or 1
    how = np.zeros(1, np.int64), np.uint64(seed), np.uint64(least), scale
    if rows is None:
        workers.run(kernels.drop, threads, *how, given, *arrays(out))
    else:
        workers.run(kernels.drop_rows, threads, *how, *arrays(*rows), given, *arrays(out))
    return out


def seed_at(seed: int, entries: int) -> int:
    """The seed of what follows so many entries, a multiple of 4: `dropped` of a part is then as of
    the whole."""
    return (seed + entries * 0x9E3779B97F4A7C15) % 2**64  # see `_random` of the kernels


def arrays(*tensors: Tensor) -> tuple[np.ndarray, ...]:
    """The tensors' memory, flat."""
    return tuple(tensor.detach().contiguous().numpy().reshape(-1) for tensor in tensors)
