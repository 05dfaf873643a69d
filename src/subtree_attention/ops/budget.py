"""How many bytes a walk takes, and how long each way of walking is: arithmetic on sizes alone.

`walk.py` has the ways: heads and columns in parts, and what is kept for the backward pass. What a
layer and a model take around the walk is in `nn/memory.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from . import walk
from .kernels import Kernel, Sizes

GIB = 2**30
OF_EDGE = 16
"""Numbers of a state whose gather takes as long as finding out along which edge."""
PARTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
"""Into how many parts heads are cut; with more, edges would be read more often than states."""


class Taken(NamedTuple):
    """Bytes of a walk over some heads: until the backward pass, and beside that while it walks."""

    kept: int
    forward: int
    backward: int
    numbers: float
    """How long both passes take: numbers of states that are gathered along an edge in a hop."""
    rooms: int
    """Of the states that are there while it walks."""


def taken(
    kernel: type[Kernel], sizes: Sizes, num_edges: int, keep: int, state_bytes: int | None
) -> Taken:
    """What walks of such sizes take, if no more than `keep` is kept of them."""
    if keep:
        keep = min(keep, walk.what_to_keep(kernel, sizes, num_edges, state_bytes))
    cut = walk.parts(sizes, state_bytes)
    part = sizes.part(*cut[0])  # none is larger
    readouts, state = (part.readouts * size for size in (sizes.item, 1))
    state *= part.channels * sizes.state_item
    ends = sizes.nodes * part.heads * (2 * part.channels + part.columns) * sizes.item
    kept = walk.kept_numbers(kernel, sizes, keep, state_bytes) * sizes.item
    rooms = kernel.rooms * state
    # Read-outs of a hop; and where there are parts, what goes into one and comes out of it.
    forward = rooms + readouts + (ends + readouts if len(cut) > 1 else 0)
    backward = rooms + (kernel.grad_readouts(sizes.hops) + 1) * readouts
    backward += (sizes.hops + 1) * sizes.nodes * sizes.heads * sizes.item  # <dO, STA_m>
    backward += 2 * ends if len(cut) > 1 else 0
    if keep == walk.NOTHING:
        backward += (sizes.hops + 1) * readouts
    walks = {walk.NOTHING: 4, walk.READOUTS: 3, walk.STATES_TOO: 2}[keep]
    each = (sizes.part(*some) for some in cut)
    numbers = sum(one.heads * one.channels * one.columns + OF_EDGE for one in each)
    return Taken(kept, forward, backward, float(walks * numbers), rooms)


def cuts(sizes: Sizes) -> Iterator[int]:
    """Bounds for two states, from all at once down to a column of a head."""
    whole = 2 * sizes.readouts * sizes.channels * sizes.state_item
    least = 4 * sizes.nodes * sizes.channels * sizes.state_item  # a column, and that of ones
    for parts in PARTS:
        yield max(whole // parts, least)
        if whole // parts <= least:
            return


# --------------------------------------------------------------------------------------- machine


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
    return partial(torch.cuda.set_per_process_memory_fraction, 1.0, index)


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
    return f"{count / GIB:.1f} GiB" if count >= GIB / 10 else f"{count / 2**20:.0f} MiB"
