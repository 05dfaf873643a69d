"""Where the nodes of a drawn subtree stand, as on the page (`explore/static/layout.js`).

The root is in the middle, each level on a ring. Every node has a sector of the circle, inside of
that of the node which its walk leads through, so no two lines cross. Angles begin at the top, where
a sector is left free for the captions of the rings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

RING, CLOSE = 58.0, 36.0
"""The least distance of rings, if they are few and if they are many."""
FEW = 4
GAP = 8.0
"""Between neighbours on a ring."""
CIRCLE = 2 * math.pi
Hop = int | str


class Node(NamedTuple):
    """What is to be placed: its level, the place of the node that its walk leads to, if it has
    one, and its diameter."""

    hop: Hop
    parent: int | None
    size: float


class Spot(NamedTuple):
    """Where it stands, the root being at 0, 0; and its angle, clockwise from the top."""

    x: float
    y: float
    angle: float


def place(
    nodes: Sequence[Node], captions: Mapping[Hop, float]
) -> tuple[list[Spot], dict[Hop, float]]:
    """A spot for each node, and the radius of each ring.

    Args:
        nodes: level by level, the root first; a node without a parent is reached by no walk.
        captions: how wide that of a ring is.
    """
    children: list[list[int]] = [[] for _ in nodes]
    for at, node in enumerate(nodes):
        if node.parent is not None:
            children[node.parent].append(at)
    rings, angles = _radii(nodes), [0.0] * len(nodes)
    free = max((captions.get(hop, 0.0) / radius for hop, radius in rings.items()), default=0.0)
    free = min(free, CIRCLE / 3)

    @cache
    def need(at: int) -> float:
        """The sector a node needs, for itself or for what hangs on it."""
        radius = rings.get(nodes[at].hop)
        alone = (nodes[at].size + GAP) / radius if radius else 0.0
        return max(alone, sum(map(need, children[at])))

    def share(siblings: Sequence[int], start: float, end: float) -> None:
        scale = (end - start) / (sum(map(need, siblings)) or 1.0)
        for at in siblings:
            until = start + scale * need(at)
            angles[at] = (start + until) / 2
            share(children[at], start, until)
            start = until

    afar = [at for at, node in enumerate(nodes) if isinstance(node.hop, str)]
    groups = [afar, children[0] if nodes[0].hop == 0 else []]
    most = max(sum(map(need, group)) for group in groups)
    wider = max(1.0, most / (CIRCLE - free))
    rings = {hop: radius * wider for hop, radius in rings.items()}
    for group in groups:
        share(group, free / 2, CIRCLE - free / 2)
    spots = []
    for node, angle in zip(nodes, angles, strict=True):
        radius = rings.get(node.hop, 0.0)
        spots.append(Spot(radius * math.sin(angle), -radius * math.cos(angle), angle))
    return spots, rings


def _radii(nodes: Sequence[Node]) -> dict[Hop, float]:
    """Rings on which the nodes of each level have room side by side."""
    hops = dict.fromkeys(node.hop for node in nodes)
    apart = RING if len(hops) <= FEW + 1 else CLOSE
    rings: dict[Hop, float] = {}
    radius = before = 0.0
    for hop in hops:
        sizes = [node.size for node in nodes if node.hop == hop]
        if hop != 0:
            around = sum(sizes) + len(sizes) * GAP
            between = (before + max(sizes)) / 2 + GAP
            radius = max(radius + max(apart, between), around / CIRCLE)
            rings[hop] = radius
        before = max(sizes)
    return rings
