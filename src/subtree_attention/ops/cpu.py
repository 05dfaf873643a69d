"""The CPU backend: the recurrence with its read-outs fused into the walk, compiled by Numba.

The same algorithm as `recurrence.py`, one pass over the state per hop instead of several. For few
hops the states are kept for the backward pass, which then need not walk them again. Numba is
imported at the first call; its machine code is kept on disk, so only the very first run compiles.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..graph import CSR

KEPT_HOPS = 16
"""Training keeps the states of no more hops than these."""

KEPT_BYTES = 2**28
"""Training keeps the states if they take no more bytes than these; otherwise the read-outs."""

POOL_BYTES = 2**29
"""Memory of states that is held for the next call."""

ALIGNMENT = 64
"""Where rows of a state start: a cache line, so that a vector never lies across two."""


class Pool:
    """Memory for states, used again when nobody holds it any more.

    Fresh memory costs page faults that take longer than a hop.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[np.ndarray]] = {}  # by bytes

    def take(self, shape: tuple[int, ...], dtype: np.dtype) -> Tensor:
        """An empty tensor of that shape; its memory comes back when the tensor is gone."""
        count = math.prod(shape) * dtype.itemsize
        try:
            memory = self._free[count].pop()
        except (KeyError, IndexError):
            memory = np.empty(count + ALIGNMENT, np.uint8)  # NumPy asks for huge pages
        start = -memory.ctypes.data % ALIGNMENT
        view = memory[start : start + count].view(dtype).reshape(shape)
        weakref.finalize(view, self._give, count, memory).atexit = False
        return torch.from_numpy(view)  # the tensor's storage holds the view

    def _give(self, count: int, memory: np.ndarray) -> None:
        if self.free_bytes() + count > POOL_BYTES:
            self.clear()
        if count <= POOL_BYTES:
            self._free.setdefault(count, []).append(memory)

    def free_bytes(self) -> int:
        """What is held and not in use."""
        return sum(count * len(held) for count, held in list(self._free.items()))

    def clear(self) -> None:
        """Let go of what is not in use."""
        self._free.clear()


POOL = Pool()


def refusal(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why this backend cannot run there, if it cannot."""
    if device.type != "cpu":
        return f"it runs on the CPU, not on {device.type}"
    if dtype not in (torch.float32, torch.float64):
        return f"it computes in float32 or float64, not in {dtype}"
    return _numba_problem()


@cache
def _numba_problem() -> str | None:
    """Why Numba cannot be used, if it cannot; asked when a CPU backend is first needed."""
    try:
        import numba  # noqa: F401
    except ImportError as error:
        return f"Numba cannot be imported ({error}): pip install 'subtree-attention[cpu]'"
    return None


def compiled() -> bool:
    """Whether the kernels lie on disk: if not, the first training step compiles them."""
    from . import _numba_kernels as kernels

    folder = Path(kernels.walk_home.stats.cache_path or "")  # the last kernel that a step needs
    return any(folder.glob(f"{kernels.__name__.rpartition('.')[2]}.walk_home-*.nbi"))


def kept_shape(key: Tensor, value: Tensor, hops: int, num_edges: int) -> tuple[int, ...]:
    """What training keeps: the states [K, N, H, c + 1, d] or the read-outs [K, N, H, c + 1].

    Kept states spare a third of the gathers of a training step. The rule: up to `KEPT_HOPS` hops
    and `KEPT_BYTES` bytes; beyond, the states are walked again, and what grows with K is the
    read-outs only.
    """
    num_nodes, heads, channels = value.shape
    readouts = (hops, num_nodes, heads, channels + 1)
    states = (*readouts, key.size(-1))
    if hops <= KEPT_HOPS and math.prod(states) * value.element_size() <= KEPT_BYTES:
        return states
    return readouts


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    matrix: CSR,
    hops: int,
    eps: float,
    kept: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """Walk `hops` steps, read out after each: see `backends.Backend.forward`."""
    (kernels, workers), dtype = _kernels(), value.numpy().dtype
    summed, scales = hop_weights is not None, _scales(hop_weights, hops, value)
    shape = value.size(1), value.size(2) + 1, key.size(2)
    out = value.new_empty(value.shape if summed else (hops + 1, *value.shape))
    memory = POOL.take(tuple(kept), dtype)
    has_states, has_readouts = memory.dim() == 5, memory.dim() == 4
    adjacency, (q, k, v) = _arrays(*matrix[:3]), _arrays(query, key, value)
    levels = [out] * (hops + 1) if summed else list(out)
    spare, epsilon = _room(dtype, len(value), *shape[:2]), dtype.type(eps)
    states = _rooms(dtype, len(value), shape, workers)
    old = states[0]
    kernels.begin(workers, shape, k, v, scales[0], old, *_arrays(levels[0]))
    for hop in range(1, hops + 1):
        new = states[hop % 2] if hop < hops else states[2]  # the last state is only read
        if has_states:
            (new,) = _arrays(memory[hop - 1])
        readout = _arrays(memory[hop - 1])[0] if has_readouts else spare
        at_hop = q, epsilon, scales[hop], summed, readout, *_arrays(levels[hop])
        kernels.walk_and_read(workers, shape, *adjacency, old, new, *at_hop)
        old = new
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
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of query, key, value and hop weights: see `backends.Backend.backward`."""
    (kernels, workers), dtype = _kernels(), value.numpy().dtype
    summed, scales = hop_weights is not None, _scales(hop_weights, hops, value)
    shape = value.size(1), value.size(2) + 1, key.size(2)
    q, k, v = _arrays(query, key, value)
    levels = [*_arrays(grad)] * (hops + 1) if summed else _arrays(*grad)
    products = value.new_empty(hops + 1, *value.shape[:2])
    grads = torch.zeros_like(query), torch.empty_like(key), torch.empty_like(value)
    grad_query, grad_key, grad_value = _arrays(*grads)
    room = [_room(dtype, len(value), *shape[:2]) for _ in range(2)]

    def turn(hop: int) -> tuple[Any, ...]:
        """What a kernel needs to form dR_hop: `hop` of the kernels."""
        at_hop = levels[hop], dtype.type(eps), scales[hop]
        return q, *at_hop, *room, *_arrays(products[hop]), grad_query

    states = _rooms(dtype, len(value), shape, workers)
    has_states = kept.dim() == 5
    if not has_states:  # they have to be walked again
        forwards, old = _arrays(*matrix[:3]), states[0]
        kernels.begin(workers, shape, k, v, scales[0], old, grad_value)  # written again below
        for hop in range(1, hops + 1):
            new = states[hop % 2] if hop < hops else states[2]
            kernels.walk_for_query(workers, shape, *forwards, old, new, turn(hop))
            old = new

    backwards, held, (old, new, last) = _arrays(*transpose[:3]), _arrays(*kept), states
    if hops:
        kernels.last_gradient(workers, shape, held[-1], has_states, old, turn(hops))
    else:
        old.fill(0)
    for hop in range(hops - 1, 0, -1):
        at_hop = held[hop - 1], has_states, old, new, turn(hop)
        kernels.walk_back(workers, shape, *backwards, *at_hop)
        old, new = new, old
    ends = levels[0], scales[0], *_arrays(products[0]), grad_key, grad_value
    kernels.walk_home(workers, shape, *backwards, old, last, k, v, *ends)
    return *grads, products.sum(1) if summed else None


def _kernels() -> tuple[ModuleType, int]:
    """The compiled loops, and how many threads they use: as many as torch does."""
    import numba

    from . import _numba_kernels

    ours, most = torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    threads = min(ours, most)
    numba.set_num_threads(threads)
    if (
        torch.get_num_threads() != ours
    ):  # Numba starts its threads by the OpenMP that torch uses too
        torch.set_num_threads(ours)
    return _numba_kernels, threads


def _arrays(*tensors: Tensor) -> tuple[np.ndarray, ...]:
    """The tensors' memory, flat."""
    return tuple(tensor.detach().contiguous().numpy().reshape(-1) for tensor in tensors)


def _room(dtype: np.dtype, *shape: int) -> np.ndarray:
    """Room for an array of that shape, flat."""
    return POOL.take((math.prod(shape),), dtype).numpy()


def _rooms(
    dtype: np.dtype, num_nodes: int, shape: tuple[int, ...], workers: int
) -> list[np.ndarray]:
    """Room for two states, and for one node's state per thread."""
    return [_room(dtype, count, *shape) for count in (num_nodes, num_nodes, workers)]


def _scales(hop_weights: Tensor | None, hops: int, value: Tensor) -> np.ndarray:
    """[K + 1, H]: the hop weights, or ones."""
    if hop_weights is None:
        return value.new_ones(hops + 1, value.size(1)).numpy()
    return hop_weights.contiguous().numpy()
