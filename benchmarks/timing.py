"""The clock of the benchmarks."""

import time
from collections.abc import Callable

import torch


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """Wall clock of one call, device work included."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start
