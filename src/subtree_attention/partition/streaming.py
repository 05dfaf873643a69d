"""A partition from a stream of edges: nodes gather in clusters, clusters in parts, then both move.

A node asks its neighbours where they are, and goes where most are, as far as there is room (label
propagation). What it has heard of in a pass is one candidate and how far that is ahead, so memory
is a few numbers a node, whatever the number of edges and of parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from .. import _check

PASSES, SLACK = 8, 0.05
"""Passes over all edges for a stage, and how much larger than the mean a part may be."""

PER_PART = 4
"""Clusters are so small that a part has room for so many."""

LEVELS = 3
"""How often clusters of clusters are made."""

STILL = 0.01
"""Where no more than this share moves in a pass, the rest would not either."""

DENSE = 2048
"""The largest clusters, of which all pairs are counted."""

LITTLE = 1e-3
"""What a cluster without neighbours in a part is drawn there: the emptiest attracts it."""

Blocks = Callable[[], Iterable[Tensor]]


def stream(
    blocks: Blocks, num_nodes: int, parts: int, passes: int, slack: float, seed: int
) -> Tensor:
    """The part of each node, [N]."""
    if parts == 1 or not num_nodes:
        return torch.zeros(num_nodes, dtype=torch.long)
    draw = torch.Generator().manual_seed(seed)
    room = max(int((1 + slack) * num_nodes / parts), -(-num_nodes // parts))
    cluster = _clusters(blocks, num_nodes, max(room // PER_PART, 1), passes, draw)
    owner = _placed(blocks, cluster, parts, room)
    return _moved(blocks, owner, parts, room, passes, draw)


def _clusters(
    blocks: Blocks, num_nodes: int, room: int, passes: int, draw: torch.Generator
) -> Tensor:
    """The cluster of each node, [N], numbered from 0; none has more than `room` nodes.

    Nodes move with every block, so that word spreads within a pass. Clusters go on as nodes do, so
    that a part is not made of single nodes.
    """
    cluster, weight = torch.arange(num_nodes), torch.ones(num_nodes, dtype=torch.long)
    for _ in range(LEVELS):
        label, lead = torch.arange(len(weight)), torch.zeros(len(weight), dtype=torch.long)
        load = weight.clone()
        for _ in range(passes):
            moved = 0
            for ends in _linked(blocks, cluster):
                moved += _follow(label, lead, weight, load, room, ends, draw)
            if moved <= STILL * len(label):
                break
        names, label = label.unique(return_inverse=True)
        cluster, before = label[cluster], len(weight)
        weight = torch.zeros(len(names), dtype=torch.long).index_add_(0, label, weight)
        if len(names) > 0.9 * before:
            break
    return cluster


def _follow(
    label: Tensor,
    lead: Tensor,
    weight: Tensor,
    load: Tensor,
    room: int,
    ends: Tensor,
    draw: torch.Generator,
) -> int:
    """Things hear from a block where their neighbours are, and those move that hear more often of
    elsewhere than before of home. In place; how many moved."""
    source, target = ends
    thing, place, votes = _most_frequent(target, label[source], len(label))
    same = label[thing] == place
    lead.index_add_(0, thing, torch.where(same, votes, -votes))
    chosen = torch.rand(len(thing), generator=draw) < 0.5  # or two would change places for ever
    movers = ~same & (lead[thing] < 0) & chosen
    votes = -lead[thing]
    lead[thing] = lead[thing].clamp(min=0)
    thing, place, votes = thing[movers], place[movers], votes[movers]
    admitted = _admitted(place, votes, weight[thing], load, room)
    thing, place, votes = thing[admitted], place[admitted], votes[admitted]
    load.index_add_(0, label[thing], -weight[thing]).index_add_(0, place, weight[thing])
    label[thing], lead[thing] = place, votes
    return len(thing)


def _placed(blocks: Blocks, cluster: Tensor, parts: int, room: int) -> Tensor:
    """The part of each node, [N], by its cluster: the largest first, each to where its neighbours
    are and there is room; the nodes of those that find none, and of small ones, fill up."""
    sizes = torch.bincount(cluster)
    order = sizes.argsort(descending=True, stable=True)
    rank = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order)))
    cluster, sizes = rank[cluster], sizes[order]
    most = min(len(sizes), DENSE)
    between = torch.zeros(most * most, dtype=torch.float64)
    for source, target in _linked(blocks, cluster):
        dense = (source < most) & (target < most)
        pairs = source[dense] * most + target[dense]
        between += torch.bincount(pairs, minlength=most * most)
    between = between.view(most, most)
    part = torch.full((len(sizes),), -1)
    load = torch.zeros(parts, dtype=torch.float64)  # float32 counts up to 2^24
    linked = torch.zeros(most, parts, dtype=torch.float64)
    for one in range(most):
        free = load + sizes[one] <= room
        if bool(free.any()):
            gain = (linked[one] + LITTLE) * (1 - load / room)
            best = int(gain.where(free, -1.0).argmax())
            part[one] = best
            load[best] += sizes[one]
            linked[:, best] += between[:, one]
    return _filled(part[cluster], cluster, load.long())


def _filled(owner: Tensor, cluster: Tensor, load: Tensor) -> Tensor:
    """Nodes without a part, cluster by cluster into those that have less than their share."""
    rest = (owner < 0).nonzero().flatten()
    rest = rest[cluster[rest].argsort(stable=True)]
    free = (-(-len(owner) // len(load)) - load).clamp(min=0)
    owner[rest] = torch.searchsorted(free.cumsum(0), torch.arange(len(rest)), right=True)
    return owner


def _moved(
    blocks: Blocks, owner: Tensor, parts: int, room: int, passes: int, draw: torch.Generator
) -> Tensor:
    """Nodes that have more neighbours elsewhere go there, as long as there is room.

    In a pass a node hears where that may be, and in the next one counts who is there and at home.
    """
    itself, weight = torch.arange(len(owner)), torch.ones_like(owner)
    candidate = torch.full_like(owner, -1)
    for number in range(passes + 1):
        heard, lead = torch.full_like(owner, -1), torch.zeros_like(owner)
        gain = torch.zeros_like(owner)
        for source, target in _linked(blocks, itself):
            where = owner[source]
            there, at_home = where == candidate[target], where == owner[target]
            gain.index_add_(0, target, there.long() - at_home.long())
            _vote(heard, lead, *_most_frequent(target[~at_home], where[~at_home], parts))
        chosen = torch.rand(len(owner), generator=draw) < 0.5
        movers = ((candidate >= 0) & (gain > 0) & chosen).nonzero().flatten()
        load = torch.bincount(owner, minlength=parts)
        admitted = _admitted(candidate[movers], gain[movers], weight[movers], load, room)
        movers = movers[admitted]
        owner[movers] = candidate[movers]
        if number and len(movers) <= STILL * len(owner):  # in the first one nobody has a candidate
            break
        candidate = heard.where(heard != owner, -1)
    return owner


def _most_frequent(thing: Tensor, place: Tensor, places: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of pairs: each thing once, the place that it is with most often, and how often."""
    pairs, counts = (thing * places + place).sort().values.unique_consecutive(return_counts=True)
    thing, order = (pairs // places).unique_consecutive(return_inverse=True)
    numbered = counts * len(pairs) + torch.arange(len(pairs))  # the last one of the most frequent
    best = torch.zeros_like(thing).scatter_reduce_(0, order, numbered, "amax", include_self=False)
    best = best % max(len(pairs), 1)
    return thing, pairs[best] % places, counts[best]


def _vote(candidate: Tensor, lead: Tensor, thing: Tensor, place: Tensor, votes: Tensor) -> None:
    """A block's word on some things meets their candidates of before: they add up, or the larger
    one stays with what it is ahead. In place."""
    before, same = lead[thing], candidate[thing] == place
    candidate[thing] = torch.where(same | (votes > before), place, candidate[thing])
    lead[thing] = torch.where(same, before + votes, (before - votes).abs())


def _admitted(place: Tensor, gain: Tensor, size: Tensor, load: Tensor, room: int) -> Tensor:
    """Which of those who want to a place find room in it, the most eager first: indices."""
    order = gain.argsort(descending=True, stable=True)
    order = order[place[order].argsort(stable=True)]
    to, size = place[order], size[order]
    arrived = size.cumsum(0)
    first = torch.searchsorted(to, to)  # of those who want to the same place
    if order.numel():
        arrived = arrived - (arrived - size)[first]
    return order[load[to] + arrived <= room]


def _linked(blocks: Blocks, node_of: Tensor) -> Iterable[Tensor]:
    """Edges of each block in both directions, [2, 2 B], between the things that nodes belong to."""
    for block in blocks():
        if _check.whole("a block of edges", block).dim() != 2 or block.size(0) != 2:
            raise ValueError(f"a block of edges has shape [2, B], got {_check.shape(block)}")
        ends = block.cpu().long()
        low, high = (int(end) for end in ends.aminmax()) if ends.numel() else (0, -1)
        if low < 0 or high >= len(node_of):
            raise ValueError(f"nodes are 0 to {len(node_of) - 1}, but an edge has {low} or {high}")
        ends = node_of[ends]
        ends = ends[:, ends[0] != ends[1]]
        yield torch.cat([ends, ends.flip(0)], dim=1)
