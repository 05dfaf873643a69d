"""Hops of a partitioned graph as events: what a device computes while rows travel.

The columns of a state go in blocks. For each hop and block a device sends its halo rows as soon as
every part has them (the parts draw on each other), computes the inner rows, which need nobody's,
meanwhile, and the others when the rows have come. A device computes one thing at a time and its
link carries one block at a time; parts differ in size and in what they need.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Part:
    """What a hop is for one device.

    Attributes:
        compute: seconds of all rows, all columns.
        inner: share of that which needs no halo row.
        exchange: seconds that halo rows travel, all columns.
        latency: seconds that each block takes at least to travel.
    """

    compute: float
    inner: float
    exchange: float
    latency: float


def parts_like(mean: Part, count: int, largest: float, most: float, seed: int = 0) -> list[Part]:
    """Parts around a mean one: the largest computes `largest` times as long, and the one with most
    halo rows waits `most` times as long."""
    draw = np.random.default_rng(seed)
    sizes = 1 + (largest - 1) * draw.uniform(-1, 1, count)
    halos = 1 + (most - 1) * draw.uniform(-1, 1, count)
    if count > 1:
        sizes[0], halos[-1] = largest, most
    return [
        Part(mean.compute * float(s), mean.inner, mean.exchange * float(h), mean.latency)
        for s, h in zip(sizes, halos, strict=True)
    ]


def seconds(parts: list[Part], hops: int, blocks: int = 4) -> float:
    """Until every part has done all hops."""
    compute = np.array([part.compute for part in parts]) / blocks
    inner = compute * np.array([part.inner for part in parts])
    rest = compute - inner
    travel = np.array([part.exchange for part in parts]) / blocks
    travel = travel + np.array([part.latency for part in parts]) * (travel > 0)
    ready = np.zeros(blocks)  # when all parts have a block's rows of the hop before
    own = np.zeros((len(parts), blocks))  # when a part has its own
    device, link = np.zeros(len(parts)), np.zeros(len(parts))
    for _ in range(hops):
        came = np.zeros_like(own)
        for block in range(blocks):
            link = np.maximum(link, ready[block]) + travel
            came[:, block] = link
        for block in range(blocks):  # inner rows of all blocks first: they wait for nobody
            device = np.maximum(device, own[:, block]) + inner
        for block in range(blocks):
            device = np.maximum(device, came[:, block]) + rest
            own[:, block] = device
        ready = own.max(0)
    return float(device.max())
