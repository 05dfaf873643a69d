"""What memory this machine has, and what of it is free."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

GIB = 2**30


class Memory(NamedTuple):
    """Bytes that are free, None where nobody can tell; whose they are; and whether that is sure."""

    free: int | None
    where: str
    sure: bool = True


def memory(device: torch.device) -> Memory:
    """What is free on a device now."""
    if device.type == "cuda":
        return Memory(torch.cuda.mem_get_info(device)[0], "on the GPU")
    system, group = available(), of_group()
    if group is not None and (system is None or group < system):
        return Memory(group, "here", sure=False)
    if system is not None:
        return Memory(system, "here")
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return Memory(None, "(how much is free cannot be asked on this system)")
    return Memory(None, f"of {gib(total)} in all (how much is free cannot be asked on this system)")


def bound(device: torch.device, budget: int) -> Callable[[], None]:
    """Let torch reserve no more on a GPU than is allocated now and a budget besides: it then hands
    back what it has kept of freed memory before it takes more. Elsewhere nothing is bound.

    Returns:
        What ends that.
    """
    if device.type != "cuda":
        return lambda: None
    index = torch.cuda.current_device() if device.index is None else device.index
    total = torch.cuda.get_device_properties(index).total_memory
    share = (budget + torch.cuda.memory_allocated(index)) / total
    torch.cuda.set_per_process_memory_fraction(min(share, 1.0), index)
    _take_pages(True)
    return partial(_unbound, index)


def _unbound(index: int) -> None:
    torch.cuda.set_per_process_memory_fraction(1.0, index)
    _take_pages(False)


ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Where whoever has settings of their own for torch's allocator puts them."""


def _take_pages(pages: bool) -> None:
    """Whether torch takes memory in pages, any of which it can hand back, and not in blocks, of
    which a small tensor holds all. Where its allocator was set up by hand it stays as it is."""
    if not any(map(os.environ.get, ALLOCATOR)):
        torch._C._accelerator_setAllocatorSettings(f"expandable_segments:{pages}")


def available(path: Path = Path("/proc/meminfo")) -> int | None:
    """What Linux can give without swapping."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line[:13] == "MemAvailable:")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def of_group(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What a container still has, if it is bounded; about, since the kernel gives back more than
    it says: of what it keeps of files, only what was not used of late is counted as free."""
    try:
        most, now, stat = (
            (folder / f"memory.{name}").read_text("utf-8") for name in ("max", "current", "stat")
        )
        kept = dict(line.split(maxsplit=1) for line in stat.splitlines())
        used = int(now) - int(kept.get("inactive_file", 0))
        return None if most.strip() == "max" else max(0, int(most) - used)
    except (OSError, ValueError):
        return None


def gib(count: float) -> str:
    """A size in words."""
    if count >= GIB:
        return f"{count / GIB:.1f} GiB"
    mib = count / 2**20
    return f"{mib:.0f} MiB" if mib >= 1 else f"{count:,.0f} bytes"
