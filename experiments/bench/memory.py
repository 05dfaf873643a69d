"""How much memory a call takes, and what happens when there is not enough."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch

from subtree_attention.ops.kernels import cpu

T = TypeVar("T")


def peak(call: Callable[[], T], device: torch.device) -> tuple[T, int]:
    """What `call` returns, and the most bytes that torch held at a time beyond those held before.

    CUDA: the allocator's own count, captured graphs included. CPU: torch's profiler.
    """
    if device.type != "cuda":
        return _peak_on_cpu(call)
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    result = call()
    torch.cuda.synchronize(device)
    return result, torch.cuda.max_memory_allocated(device) - before


def _peak_on_cpu(call: Callable[[], T]) -> tuple[T, int]:
    from torch.profiler import ProfilerActivity, profile

    cpu.POOL.clear()  # what a backend takes from its own pool is counted below
    with _quiet(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        result = call()
    recorded: Any = trace.profiler
    events = [e for e in recorded.kineto_results.events() if e.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return result, most + cpu.POOL.free_bytes()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the profiler says about itself: in warnings, and from C++ to standard error."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on whichever device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _IN_WORDS)


# Of torch's CPU allocator, of the CUDA runtime, of cuBLAS and cuSPARSE.
_IN_WORDS = ("can't allocate memory", "out of memory", "ALLOC_FAILED")


def fits(num_bytes: int, device: torch.device) -> bool:
    """Whether so much may be asked for.

    Where the operating system hands out more memory than there is, asking for too much ends the
    process instead of raising an error: there, look first. A GPU raises.
    """
    available = None if device.type == "cuda" else _available()
    return available is None or num_bytes <= available


def _available() -> int | None:
    """Bytes that the machine can still give; None where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if "MemAvailable" in line)
    except (OSError, StopIteration):
        return None


def release(device: torch.device) -> None:
    """Give back what a failed or finished version held."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
