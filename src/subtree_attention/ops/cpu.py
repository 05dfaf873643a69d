"""The CPU backend: the recurrence with its read-outs fused into the walk, compiled by Numba.

The same algorithm as `recurrence.py`, one pass over the state per hop instead of several. Numba is
imported at the first call; its machine code is kept on disk, so only the very first run compiles.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from ..graph import CSR
from .recurrence import start, with_ones

SCRATCH_BYTES = 2**28
"""Two states up to this size are kept for the next call, one pair per thread."""

CHUNK_ROWS = 256
"""Rows that a thread takes at a time."""

_scratch = threading.local()


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
    kernels = _kernels()
    out, readouts = start(value, hop_weights, hops), value.new_empty(kept)
    scales = _scales(hop_weights, hops, value)
    adjacency, eps = _arrays(*matrix[:3]), value.numpy().dtype.type(eps)
    old, new = _two_states(key, value)
    kernels.outer(*_arrays(key, with_ones(value)), old)
    spare = value.new_empty(*value.shape[:2], value.size(-1) + 1)
    for hop in range(1, hops + 1):
        readout = (readouts[hop - 1] if readouts.numel() else spare).numpy()
        target = (out[hop] if hop_weights is None else out).numpy()
        kernels.walk_and_read(*adjacency, old, new, query.numpy(), readout)
        kernels.quotient(readout, eps, scales[hop], hop_weights is not None, target)
        old, new = new, old
    return out, readouts


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
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of query, key, value and hop weights: see `backends.Backend.backward`."""
    kernels = _kernels()
    scales, dtype = _scales(hop_weights, hops, value), value.numpy().dtype
    grad_readout = np.empty(readouts.shape[1:], dtype)
    products = value.new_empty(value.shape[:2])
    q, k, v = _arrays(query, key, with_ones(value))
    forwards, backwards = _arrays(*matrix[:3]), _arrays(*transpose[:3])

    def form_grad_readout(hop: int) -> None:
        """dR_hop, into the one buffer that there is; <grad, STA_hop> into `products`."""
        level = grad if hop_weights is not None else grad[hop]
        arguments = level.numpy(), readouts[hop - 1].numpy(), dtype.type(eps), scales[hop]
        kernels.quotient_backward(*arguments, grad_readout, products.numpy())

    grad_query, grad_key = torch.zeros_like(query), torch.zeros_like(key)
    grad_value = grad[0].clone() if hop_weights is None else grad * hop_weights[0, :, None]
    grad_weights = [(grad * value).sum((0, 2))] if hop_weights is not None else []
    old, new = _two_states(key, value)
    kernels.outer(k, v, old)
    for hop in range(1, hops + 1):
        form_grad_readout(hop)
        if hop_weights is not None:
            grad_weights.append(products.sum(0))
        kernels.walk_for_query(*forwards, old, new, grad_readout, grad_query.numpy())
        old, new = new, old

    if hops:  # the buffer holds dR_K by now
        kernels.outer(q, grad_readout, old)
        for hop in range(hops - 1, 0, -1):
            form_grad_readout(hop)
            kernels.walk_back(*backwards, old, new, q, grad_readout)
            old, new = new, old
        ends = grad_key.numpy(), grad_value.numpy()
        kernels.walk_home(*backwards, old, new, k, v, *ends)
    weights = torch.stack(grad_weights) if grad_weights else None
    return grad_query, grad_key, grad_value, weights


def _kernels() -> ModuleType:
    """The compiled loops, told to use as many threads as torch does."""
    import numba

    from . import _numba_kernels

    most = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    numba.set_num_threads(min(torch.get_num_threads(), most))
    # Rows are handed out in small lots: a thread that finds its core taken (torch's own threads
    # wait actively for a while) does not hold up the others.
    numba.set_parallel_chunksize(CHUNK_ROWS)
    return _numba_kernels


def _arrays(*tensors: Tensor) -> tuple[np.ndarray, ...]:
    return tuple(tensor.detach().contiguous().numpy() for tensor in tensors)


def _two_states(key: Tensor, value: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Room for the state before and after a step, [N, H, c + 1, d] each.

    Fresh memory costs page faults that take longer than a hop, so a small one is kept.
    """
    shape = (2, *value.shape[:2], value.size(-1) + 1, key.size(-1))
    kept = getattr(_scratch, "states", None)
    if kept is None or kept.shape != shape or kept.dtype != value.dtype:
        kept = torch.empty(shape, dtype=value.dtype)
        _scratch.states = kept if kept.nbytes <= SCRATCH_BYTES else None
    return kept[0].numpy(), kept[1].numpy()


def _scales(hop_weights: Tensor | None, hops: int, value: Tensor) -> np.ndarray:
    """[K + 1, H]: the hop weights, or ones."""
    if hop_weights is None:
        return value.new_ones(hops + 1, value.size(1)).numpy()
    return hop_weights.contiguous().numpy()
