"""The operator: subtree attention over all hops, and the attention of a single root.

`subtree_attention` checks its inputs, applies the feature map and hands over to the walk
(`library.py`) or, for the softmax similarity, to the exact evaluation (`softmax.py`). Every
way of computing it is tested against `definition.py`. The maths is in README.md.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _check, feature_maps
from ..feature_maps import FeatureMap
from ..graph import Graph
from . import backends, edges, exported, library, recurrence, roots, softmax, walk
from .gates import gated
from .inputs import (
    FULL,
    check_beta,
    check_eps,
    check_graph,
    check_heads,
    check_hop_shapes,
    check_hop_weights,
    check_on_graph,
    check_power,
    check_state_bytes,
    full_precision,
    is_watched,
    joined,
    map_features,
    one_dtype,
    refuse_on_a_part,
)
from .roots import arrivals

__all__ = [
    "FULL",
    "arrivals",
    "attend",
    "attention",
    "backends",
    "check_beta",
    "check_eps",
    "check_heads",
    "check_hop_shapes",
    "check_on_graph",
    "check_state_bytes",
    "edges",
    "exported",
    "full_precision",
    "gated",
    "is_watched",
    "joined",
    "map_features",
    "one_dtype",
    "recurrence",
    "refuse_on_a_part",
    "roots",
    "subtree_attention",
    "walk",
]


def subtree_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    graph: Graph,
    hops: int,
    hop_weights: Tensor | None = None,
    feature_map: str | FeatureMap = "elu",
    eps: float = 1e-6,
    backend: str = "auto",
    states: str = "full",
    state_bytes: int | None = None,
    beta: Tensor | None = None,
    entries: Tensor | None = None,
) -> Tensor:
    r"""Subtree attention: every node attends to each level of the subtree rooted at it.

    .. math::
        \mathrm{STA}_k(Q, K, V)_i =
            \frac{\phi(Q_i) \sum_j \hat A^k_{ij} \phi(K_j)^T V_j}
                 {\phi(Q_i) \sum_j \hat A^k_{ij} \phi(K_j)^T + \epsilon},
            \qquad \mathrm{STA}_0 = V

    Both sums are a random walk of k steps, so K hops cost O(K E d c) time, and no power of the
    transition matrix is formed. Without `hop_weights` all levels are returned; with them only
    their weighted sum, and then nothing grows with K in inference (on a GPU, beyond 16 read-outs).
    In training the read-outs do, K N H (c + 1) numbers, and the states of few hops where those are
    small.

    With `beta` the denominator of hop k and head h is raised to :math:`\beta_{kh}`. A power of 1 is
    the mean above, to rounding, and 0 a sum: linear attention without a denominator, which knows
    how many walks arrive.

    Half-precision inputs are computed and returned in float32, and autocast does not reach in.

    Args:
        query: `[N, H, d]`, or `[N, d]` for one head, before the feature map.
        key: as `query`.
        value: `[N, H, c]`, or `[N, c]` for one head.
        graph: the :class:`Graph` to walk on.
        hops: K, the height of the subtree, 0 to 10,000.
        hop_weights: `[K + 1]` or `[K + 1, H]`.
        feature_map: a name (`"elu"`, `"relu"`, `"softplus"`), a module with random features, or
            any non-negative function [..., d] -> [..., m]. `"softmax"` is the similarity
            exp(q.k / sqrt(d)) itself, which has no finite map: it is evaluated exactly, where the
            powers of the transition matrix fit (see `ops/softmax.py`).
        eps: added to every denominator. With 0 the result is still defined everywhere: where no
            walk arrives it is 0.
        backend: `"auto"`, or a name from `ops.backends.BACKENDS`.
        states: `"full"`, or `"bfloat16"` to round what walks between hops: on a GPU that is half
            the traffic, with errors of about 1e-3.
        state_bytes: two states, which a walk needs, may take so many bytes; heads, and then value
            columns of a head, walk one after the other as far as that asks for. None: all at once.
        beta: `[K]` or `[K, H]`, powers of the denominators at hops 1 .. K; None: 1. A negative
            denominator, which only a transition with negative entries gives, keeps its sign, but
            for a power of 0.
        entries: `[E]` or `[E, H]`, what the transition matrix (of each head) has in the place of
            its own entries, in the order of `graph.edge_index`; they get gradients. For example
            `graph.entries()[:, None] * gates`, or `graph.entries(edge_weight=weights)`.

    Returns:
        `[K + 1, N, H, c]`, or `[N, H, c]` with `hop_weights`; without H if the inputs have none.
    """
    _check.integer("hops", hops, 0, _check.MOST_HOPS)
    eps = check_eps(eps)
    check_state_bytes(state_bytes)
    check_graph(graph)
    query, key, value, squeeze = check_heads(query, key, value, graph)
    hop_weights = check_hop_weights(hop_weights, hops, value.size(1))
    beta = check_beta(beta, hops, value.size(1))
    if entries is not None:
        entries = edges.check_entries(entries, graph, value.size(1))
    how = feature_map, eps, backend, states, state_bytes
    out = attend(query, key, value, graph, hops, hop_weights, *how, beta=beta, entries=entries)
    return out.squeeze(-2) if squeeze else out


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    graph: Graph,
    hops: int,
    hop_weights: Tensor | None,
    feature_map: str | FeatureMap,
    eps: float,
    backend: str,
    states: str,
    state_bytes: int | None,
    gate: Tensor | None = None,
    beta: Tensor | None = None,
    entries: Tensor | None = None,
    keep: int = walk.STATES_TOO,
) -> Tensor:
    """:func:`subtree_attention` of what is known to fit: a layer checks its settings once.

    Args:
        query: `[N, H, d]`, on the graph's nodes and device.
        key: `[N, H, d]`
        value: `[N, H, c]`
        hop_weights: `[K + 1, H]` or None; with a gate also `[K + 1]` or `[K + 1, 1]`.
        gate: `[K, H]` logits: see :func:`gated`.
        beta: `[K, H]` or None.
        entries: `[E, H]`, or `[E, 1]` for all heads.
        keep: the most that is kept for the backward pass, see `walk`; not with entries.
        graph, hops, feature_map, eps, backend, states, state_bytes: as there.
    """
    with full_precision(value):
        query, key, value, hop_weights = one_dtype(query, key, value, hop_weights)
        gate = None if gate is None else gate.to(value.dtype)
        beta = None if beta is None else beta.to(value.dtype)
        walk.check_states(states, value.device, value.dtype)
        exact = feature_maps.is_softmax(feature_map)
        if graph.shared is not None:
            refuse_on_a_part(
                exact=exact, entries=entries is not None, exported=exported.asked_for()
            )
        if entries is not None or exact or exported.asked_for():  # no kernel does all of it
            if hop_weights is not None and gate is not None:
                hop_weights = gated(hop_weights, gate)
            query, key = map_features(feature_map, query, key)
            how = query, key, value, hop_weights, graph, hops, eps, beta
            if entries is not None:
                edges.check_way(feature_map, states)
                return edges.attend(*how, entries.to(value.dtype), backend, state_bytes)
            return softmax.softmax_attention(*how) if exact else exported.walk(*how)
        chosen, phi = backends.choose(backend, value.device, value.dtype), ""
        if (name := feature_maps.name_of(feature_map)) in backends.BACKENDS[chosen].maps:
            phi = name
        else:
            query, key = map_features(feature_map, query, key)
        options = graph, hops, eps, chosen, states, state_bytes, phi, gate, beta, keep
        return library.run(query, key, value, hop_weights, *options)


@torch.no_grad()
def attention(
    query: Tensor,
    key: Tensor,
    graph: Graph,
    root: int,
    hop: int,
    feature_map: str | FeatureMap = "elu",
    eps: float = 1e-6,
    beta: float | Tensor | None = None,
    entries: Tensor | None = None,
) -> Tensor:
    r"""The exact attention of one root over the `hop`-th level of its subtree.

    Row `root` of :math:`\hat A^k` is :math:`(\hat A^T)^k e_\mathrm{root}`, so k sparse products
    with a vector give every weight: O(k E).

    Args:
        query: `[N, H, d]`, or `[N, d]` for one head, before the feature map.
        key: as `query`.
        graph: the :class:`Graph` that was walked on.
        root: index of the node that attends.
        hop: k, the level attended to; at level 0 a root attends to itself.
        feature_map: as in :func:`subtree_attention`.
        eps: as in :func:`subtree_attention`.
        beta: the power of this hop's denominator, a number or one for each head `[H]`; None: 1.
        entries: as in :func:`subtree_attention`.

    Returns:
        `[N, H]` weights, `[N]` for one head; without beta they sum to 1 (less what eps takes) if a
        walk of that length arrives at the root, otherwise all are 0. With beta they sum to
        something else, and times the values they are still the level.
    """
    _check.integer("hop", hop, 0, _check.MOST_HOPS)
    _check.integer("root", root, 0)
    eps = check_eps(eps)
    check_graph(graph)
    if graph.shared is not None:
        refuse_on_a_part(root=True)
    query, key, _, squeeze = check_heads(query, key, key, graph)
    if root >= graph.num_nodes:
        raise ValueError(f"root {root} is not a node: the graph has {graph.num_nodes} nodes")
    query, key, _, _ = one_dtype(query, key, key, None)
    power = None if beta is None else check_power(beta, key)
    if entries is None:
        reached = arrivals(graph, root, hop, key.dtype)
    else:
        entries = edges.check_entries(entries, graph, key.size(1)).to(key.dtype)
        reached = edges.arrivals(graph, root, hop, entries)
    level = reached.reshape(len(reached), -1).any(1).nonzero().flatten()
    pairs = torch.zeros_like(level), level, reached[level]
    weights = roots.attention_of_pairs(query[[root]], key, *pairs, feature_map, eps, power)
    if hop == 0:
        weights = torch.ones_like(weights)
    weights = torch.zeros_like(key[..., 0]).index_copy(0, level, weights)
    return weights.squeeze(-1) if squeeze else weights
