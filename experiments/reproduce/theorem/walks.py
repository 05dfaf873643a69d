"""How far k hops are from the walk's end: columns of A^k from pi, and STA_k from SA."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from experiments.reproduce.theorem.spectrum import Spectrum, stationary
from subtree_attention.graph import Graph
from subtree_attention.nn.everywhere import global_attention
from subtree_attention.ops import map_features, recurrence

KEY_CHANNELS, VALUE_CHANNELS = 4, 2
"""Sizes of the random queries, keys and values."""

LOOKS_PER_DOUBLING = 8
"""How often distances are computed while k doubles: a measured k is at most 9 % too large."""

Curve = dict[str, list[Any]]
"""`hops`, and at each of them the distances by name."""


def start_nodes(component: Graph, spectrum: Spectrum, count: int, seed: int) -> dict[int, str]:
    """Nodes j whose columns of A^k are walked, and why each was taken.

    With u = D^-1/2 v the slowest part of A^k_ij / pi_i - 1 is lambda^k u_i u_j, up to a factor. So
    the node with the largest |u| is the worst start for large k, and the sample's distance is then
    that of all starts; for small k it is only that of the sample.
    """
    root = stationary(component).sqrt().numpy()
    slow, flip = np.abs(spectrum.vector_2) / root, np.abs(spectrum.vector_N) / root
    side = np.sign(spectrum.vector_2)
    opposite = np.where(side == side[slow.argmax()], 0, slow)
    reasons = {
        "farthest in lambda_2's vector": slow.argmax(),
        "farthest on its other side": opposite.argmax(),
        "farthest in lambda_N's vector": flip.argmax(),
        "smallest degree": root.argmin(),
        "largest degree": root.argmax(),
    }
    chosen: dict[int, str] = {}
    for reason, node in reasons.items():
        chosen.setdefault(int(node), reason)
    for node in np.random.RandomState(seed).permutation(component.num_nodes):  # a frozen stream
        chosen.setdefault(int(node), "random")
        if len(chosen) >= count:
            break
    return dict(list(chosen.items())[:count])


def walk_curve(component: Graph, starts: list[int], cap: int, floor: float) -> Curve:
    """How far columns of A^k are from pi: see `measure_edges`."""
    pi = stationary(component).numpy()[:, None]  # [N, 1]
    columns = np.zeros((component.num_nodes, len(starts)))
    columns[starts, range(len(starts))] = 1.0

    def distances(walked: np.ndarray) -> dict[str, Any]:
        away = np.abs(walked - pi)
        return {"sum": away.sum(0).max(), "entry": away.max(), "relative": (away / pi).max()}

    return _curve(component.to_scipy(), columns, cap, distances, ("relative", floor))


def attention_curve(component: Graph, cap: int, floor: float, seed: int) -> Curve:
    """How far STA_k of random queries, keys and values is from SA: see `measure_edges`."""
    query, key, value = random_attention(component.num_nodes, seed)
    everywhere = global_attention(query, key, value, eps=0.0)  # [N, 1, c]
    query, key = map_features("elu", query, key)
    state = recurrence.first_state(key, value)  # [N, 1, d, c + 1]

    def distances(walked: np.ndarray) -> dict[str, Any]:
        readout = recurrence.read(query, torch.from_numpy(walked).view_as(state))
        distance = ratio_distance(recurrence.quotient(readout, 0.0), everywhere)
        return {"largest": distance.max(), "median": distance.median()}

    block = state.flatten(1).numpy()
    return _curve(component.to_scipy(), block, cap, distances, ("largest", floor))


def _curve(
    matrix: scipy.sparse.csr_array,
    block: np.ndarray,
    cap: int,
    distances: Callable[[np.ndarray], dict[str, Any]],
    until: tuple[str, float],
) -> Curve:
    """The distances of A^k times block [N, w] at each of `looks(cap)`, until one is small enough.

    scipy's product, not `recurrence.step`: on thin blocks of float64 it is several times faster.
    """
    curve, done, (name, floor) = Curve(hops=[]), 0, until
    for hop in looks(cap):
        for _ in range(hop - done):
            block = matrix @ block
        done = hop
        curve["hops"].append(hop)
        for quantity, distance in distances(block).items():
            shortened = float(f"{float(distance):.6g}")  # enough for a curve
            curve.setdefault(quantity, []).append(shortened)
        if curve[name][-1] <= floor:
            break
    return curve


def random_attention(num_nodes: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys [N, 1, d], and values [N, 1, c] >= 0 by ReLU, as the theorem asks."""
    generator = torch.Generator().manual_seed(seed)
    query, key, value = (
        torch.randn(num_nodes, 1, channels, generator=generator, dtype=torch.float64)
        for channels in (KEY_CHANNELS, KEY_CHANNELS, VALUE_CHANNELS)
    )
    return query, key, value.relu()


def ratio_distance(level: Tensor, everywhere: Tensor) -> Tensor:
    """The smallest eta with (1 - eta) / (1 + eta) <= level / everywhere <= (1 + eta) / (1 - eta).

    It is 0 where both are equal and 1 where one of them is 0. Shapes: any, all the same.
    """
    return recurrence.divide((level - everywhere).abs(), level + everywhere)


def looks(cap: int) -> list[int]:
    """Hops up to `cap` at which distances are computed: powers of 2, and some between them."""
    last = math.ceil(LOOKS_PER_DOUBLING * math.log2(max(cap, 1)))
    hops = {round(2 ** (j / LOOKS_PER_DOUBLING)) for j in range(last + 1)}
    hops |= set(range(1, 2 * LOOKS_PER_DOUBLING))  # rounding must not pass over a small one
    return sorted(hop for hop in hops | {cap} if hop <= cap)


def settled(curve: Curve, quantity: str, tolerance: float) -> int | None:
    """The first hop from which on every distance is within the tolerance; None if there is none.

    `sum` and `relative` never grow from hop to hop (A_rw does not stretch the one, nor its
    transpose the other), so what holds at the last hop holds for good.
    """
    found = None
    for hop, distance in zip(reversed(curve["hops"]), reversed(curve[quantity]), strict=True):
        if distance > tolerance:
            break
        found = hop
    return found
