"""From bytes to seconds: the speeds that a device reaches, and what a walk and a step take."""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.scale.machines import DEVICES, Device
from experiments.scale.walk import FLOAT, Passes, Walk

MEASURED = "H200"
"""The device whose speeds were fitted."""


@dataclass(frozen=True)
class Speeds:
    """What a device reaches, bytes a second, and seconds.

    Attributes:
        memory: rows of states that are gathered from memory.
        cached: rows that the cache holds.
        factors: rows of factors.
        copy: bytes that are read or written once, in order.
        launch: seconds that a hop takes at least.
        cache: bytes.
        flops: of dense products.
    """

    memory: float
    cached: float
    factors: float
    copy: float
    launch: float
    cache: float
    flops: float

    def on(self, device: Device) -> Speeds:
        """The same shares of another device's bandwidth."""
        of = DEVICES[MEASURED]
        memory = device.bandwidth / of.bandwidth
        return replace(
            self,
            memory=self.memory * memory,
            cached=self.cached * memory,
            factors=self.factors * memory,
            copy=self.copy * memory,
            flops=self.flops * device.flops / of.flops,
            cache=device.cache,
        )

    def hit(self, walk: Walk) -> float:
        """Share of gathered rows that the cache holds, if neighbours are drawn at random."""
        return min(1.0, self.cache / max(walk.nodes * walk.block, 1.0))

    def hop(self, walk: Walk) -> float:
        """One hop that gathers states and writes them."""
        return self.passes(walk, Passes(1, 0, 1))

    def passes(self, walk: Walk, passes: Passes) -> float:
        """Seconds of hops."""
        hit = self.hit(walk)
        a_byte = (1 - hit) / self.memory + hit / self.cached
        return (
            passes.states * walk.edges * walk.row * a_byte
            + passes.factors * walk.edges * walk.factors / self.factors
            + passes.moved * walk.nodes * walk.row / self.copy
            + (passes.states + passes.factors) * self.launch
        )

    def training(self, walk: Walk, keeps: bool | None = None) -> float:
        """Forward and backward."""
        return self.passes(walk, Passes.training(walk.hops, walk.keeps if keeps is None else keeps))

    def forward(self, walk: Walk) -> float:
        return self.passes(walk, Passes.forward(walk.hops))

    def dense(self, numbers: float, products: float, times: int) -> float:
        """Seconds of what is done at each node: numbers passed over, and products."""
        return times * (numbers * FLOAT / self.copy + 2 * products / self.flops)
