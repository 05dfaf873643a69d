"""What a trained STAGNN says of a single root: with gradients, and without some edges.

A root's answer needs one row of each power of A, not the whole walk: K products of a vector with
the matrix. Both forms here give what the model gives, to rounding.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from subtree_attention import STAConv, ops


class Answers:
    """The answers of a layer for one root at a time.

    Args:
        conv: a layer as in the paper: transition "rw", a mean of what arrives, no global attention.
        hidden: `[N, width]`, what it sees.
        edge_index: `[2, E]`, without weights.
    """

    def __init__(self, conv: STAConv, hidden: Tensor, edge_index: Tensor) -> None:
        plain = conv.transition in ("rw", "auto") and not conv.self_loops and conv.beside is None
        if not plain or conv.readout() is not None or conv.edge_gate is not None:
            raise ValueError("answers of a root are for a layer as in the paper")
        self.conv, self.hidden, self.edge_index = conv.eval(), hidden, edge_index
        self._near = lru_cache(maxsize=1)(self._around)  # a root is mostly asked for many times

    def reach(self, root: int) -> np.ndarray:
        """The nodes from which a walk of at most K steps leads to the root, ascending."""
        seen, newest = np.zeros(len(self.hidden), bool), np.array([root])
        for _ in range(self.conv.hops):
            seen[newest] = True
            around = np.unique(self._receive[newest].indices)
            newest = around[~seen[around]]
        seen[newest] = True
        return np.flatnonzero(seen)

    def __call__(
        self, root: int, hidden: Tensor | None = None, weight: Tensor | None = None
    ) -> Tensor:
        """[C], with gradients for what the layer sees [N, width] and for edge weights [E]."""
        reached, inside, source, target = self._near(root)
        own, nodes = torch.searchsorted(reached, root), len(reached)
        sources = self.edge_index[0]
        weight = torch.ones(len(sources)) if weight is None else weight
        degree = weight.new_zeros(len(self.hidden)).index_add(0, sources, weight)
        steps = weight[inside] / degree[sources[inside]].clamp(min=1e-12)
        mass = [torch.zeros(nodes).index_fill(0, own, 1.0)]
        for _ in range(self.conv.hops):
            mass.append(torch.zeros(nodes).index_add(0, source, steps * mass[-1][target]))
        hidden = (self.hidden if hidden is None else hidden)[reached]
        seen, value = _seen(self.conv, hidden, int(own))
        sums = torch.einsum("kn,nhc->khc", torch.stack(mass[1:]), seen)[:, None]
        return _answered(self.conv, sums, value)[0]

    def _around(self, root: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Nodes that reach the root [n], edges between them [e], and the places of their ends."""
        reached = torch.from_numpy(self.reach(root))
        place = torch.full((len(self.hidden),), -1)
        place[reached] = torch.arange(len(reached))
        source, target = place[self.edge_index]
        inside = ((source >= 0) & (target >= 0)).nonzero().flatten()
        return reached, inside, source[inside], target[inside]

    @torch.no_grad()
    def without(self, root: int, cuts: Sequence[Tensor]) -> Tensor:
        """[B, C], each without a set of edges [2, p]: B removals in one walk, in float64.

        Without an edge, its sender splits its mass among those that are left: a column of A loses
        an entry, and the rest of it is scaled. Queries, keys and values are what they were.
        """
        nodes = self.reach(root)
        own = int(np.searchsorted(nodes, root))
        sender, receiver, of = _places(nodes, cuts)
        weights = self._send[nodes]
        degree = np.maximum(weights.sum(1), 1)  # whoever sends to none is in no row
        steps = sp.csr_array(sp.diags_array(1 / degree) @ weights[:, nodes])
        cut = np.asarray(weights[sender, receiver]).ravel()
        changed, place = np.unique(sender * len(cuts) + of, return_inverse=True)
        where = np.divmod(changed, len(cuts))
        left = degree[where[0]] - np.bincount(place, cut, len(changed))
        scale = np.divide(degree[where[0]], left, np.zeros(len(left)), where=left > 0)
        # Edges that lead away from all walks to the root count in degrees only.
        at, inside = _found(nodes, receiver)
        at, of, share = at[inside], of[inside], (cut / degree[sender])[inside]
        place = place[inside]
        seen, value = _seen(self._exact, self.hidden[nodes].double(), own)
        mass = np.zeros((len(nodes), len(cuts)))
        mass[own] = 1
        sums = []
        for _ in range(self.conv.hops):
            lost = np.bincount(place, mass[at, of] * share, len(changed))
            mass = steps @ mass
            mass[where] = (mass[where] - lost) * scale
            arrived = torch.from_numpy(mass).t() @ seen.flatten(1)
            sums.append(arrived.unflatten(1, seen.shape[1:]))
        return _answered(self._exact, torch.stack(sums), value)

    @cached_property
    def _send(self) -> sp.csr_array:
        """How many edges lead from each node to each: rows send."""
        source, target = self.edge_index.numpy()
        size = (len(self.hidden), len(self.hidden))
        return sp.csr_array((np.ones(len(source)), (source, target)), size)

    @cached_property
    def _receive(self) -> sp.csr_array:
        return sp.csr_array(self._send.T)

    @cached_property
    def _exact(self) -> STAConv:
        return copy.deepcopy(self.conv).double()


def _seen(conv: STAConv, hidden: Tensor, root: int) -> tuple[Tensor, Tensor]:
    """What the root sees of each node for a unit of mass, [n, H, c + 1]: similarity times values,
    and the similarity itself; and its own values [H, c]."""
    query, key, value = conv.project(hidden)
    query, key = ops.map_features(conv.feature_map, query, key)
    similar = torch.einsum("hd,nhd->nh", query[root], key)[..., None]
    return torch.cat([similar * value, similar], -1), value[root]


def _answered(conv: STAConv, sums: Tensor, value: Tensor) -> Tensor:
    """Logits [B, C] from what arrived at each hop, [K, B, H, c + 1], and the root's values."""
    means = sums[..., :-1] / (sums[..., -1:] + conv.eps)
    levels = torch.cat([value.expand(1, *means.shape[1:]), means])
    return conv.head_mix(conv.aggregation(conv.gate()[:, None, :, None] * levels))


def _places(nodes: np.ndarray, cuts: Sequence[Tensor]) -> list[np.ndarray]:
    """Cut edges that some nodes send: their places among these, receivers, and which removal's."""
    of = np.repeat(np.arange(len(cuts)), [cut.size(1) for cut in cuts])
    source, target = torch.cat([*cuts], 1).numpy()
    places, inside = _found(nodes, source)
    return [places[inside], target[inside], of[inside]]


def _found(nodes: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where nodes stand among ascending ones, and whether they do."""
    places = np.searchsorted(nodes, asked).clip(max=len(nodes) - 1)
    return places, nodes[places] == asked
