"""The operator: subtree attention over all hops, and the attention of a single root.

`subtree_attention` checks its inputs, applies the feature map and hands over to a backend
(`backends.py`) or, for the softmax similarity, to the exact evaluation (`softmax.py`). Every
way of computing it is tested against `definition.py`. The maths is in README.md.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from .. import _check, feature_maps
from ..feature_maps import FeatureMap
from ..graph import Graph
from . import backends, recurrence, softmax

SIMILARITIES = ("softmax",)


def subtree_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    graph: Graph,
    hops: int,
    hop_weights: Tensor | None = None,
    feature_map: str | FeatureMap = "elu",
    similarity: str | None = None,
    eps: float = 1e-6,
    backend: str = "auto",
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

    Half-precision inputs are computed and returned in float32, and autocast does not reach in.

    Args:
        query: `[N, H, d]`, or `[N, d]` for one head, before the feature map.
        key: as `query`.
        value: `[N, H, c]`, or `[N, c]` for one head.
        graph: the :class:`Graph` to walk on.
        hops: K, the height of the subtree; 0 is allowed.
        hop_weights: `[K + 1]` or `[K + 1, H]`.
        feature_map: a name (`"elu"`, `"relu"`, `"softplus"`), a module with random features, or
            any non-negative function [..., d] -> [..., m].
        similarity: `"softmax"` evaluates exp(q.k / sqrt(d)) exactly instead of a feature map,
            where the powers of the transition matrix fit (see `ops/softmax.py`).
        eps: added to every denominator. With 0 the result is still defined everywhere: where no
            walk arrives it is 0.
        backend: `"auto"`, or a name from `ops.backends.BACKENDS`.

    Returns:
        `[K + 1, N, H, c]`, or `[N, H, c]` with `hop_weights`; without H if the inputs have none.
    """
    _check.integer("hops", hops, 0)
    check_eps(eps)
    _check_graph(graph, query=query, key=key, value=value)
    query, key, value, squeeze = check_heads(query, key, value)
    hop_weights = _check_hop_weights(hop_weights, hops, value)
    with backends.full_precision(value):
        query, key, value, hop_weights = one_dtype(query, key, value, hop_weights)
        if similarity is not None:
            _check.known("similarity", similarity, SIMILARITIES)
            out = softmax.softmax_attention(query, key, value, hop_weights, graph, hops, eps)
        else:
            query, key = map_features(feature_map, query, key)
            chosen = backends.choose(backend, value.device, value.dtype)
            out = backends.run(query, key, value, hop_weights, graph, hops, eps, chosen)
    return out.squeeze(-2) if squeeze else out


@torch.no_grad()
def attention(
    query: Tensor,
    key: Tensor,
    graph: Graph,
    root: int,
    hop: int,
    feature_map: str | FeatureMap = "elu",
    similarity: str | None = None,
    eps: float = 1e-6,
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
        similarity: as in :func:`subtree_attention`.
        eps: as in :func:`subtree_attention`.

    Returns:
        `[N, H]` weights, `[N]` for one head; they sum to 1 (less what eps takes) if a walk of
        that length arrives at the root, otherwise all are 0.
    """
    _check.integer("hop", hop, 0)
    _check.integer("root", root, 0)
    check_eps(eps)
    _check_graph(graph, query=query, key=key)
    query, key, _, squeeze = check_heads(query, key, key)
    if root >= graph.num_nodes:
        raise ValueError(f"root {root} is not a node: the graph has {graph.num_nodes} nodes")
    query, key, _, _ = one_dtype(query, key, key, None)
    with backends.full_precision(key):
        weights = _root_attention(query, key, graph, root, hop, feature_map, similarity, eps)
    return weights.squeeze(-1) if squeeze else weights


def _root_attention(
    query: Tensor,
    key: Tensor,
    graph: Graph,
    root: int,
    hop: int,
    feature_map: str | FeatureMap,
    similarity: str | None,
    eps: float,
) -> Tensor:
    """[N, H, d], [N, H, d] -> [N, H]."""
    if similarity is not None:
        _check.known("similarity", similarity, SIMILARITIES)
    reached = arrivals(graph, root, hop, key.dtype)
    if hop == 0:
        return reached[:, None].expand(-1, key.size(1)).clone()
    if similarity is not None:
        level = reached.nonzero().flatten()
        at_root = torch.zeros_like(level)
        shares = softmax.pair_attention(query[[root]], key, at_root, level, reached[level], eps)
        return torch.zeros_like(key[..., 0]).index_copy(0, level, shares)
    query, key = map_features(feature_map, query, key)
    weights = reached[:, None] * (query[root] * key).sum(-1)
    return recurrence.divide(weights, weights.sum(0) + eps)


def arrivals(graph: Graph, root: int, hop: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Row `root` of A^hop: the share of each node's mass at the root after `hop` steps, [N]."""
    reached = torch.zeros(graph.num_nodes, 1, dtype=dtype, device=graph.device)
    reached[root] = 1
    for _ in range(hop):
        reached = recurrence.product(graph.transpose(dtype), reached)
    return reached.squeeze(1)


def check_eps(eps: float) -> float:
    """Return `eps` if it is a finite number of at least 0."""
    if isinstance(eps, bool) or not isinstance(eps, int | float | np.floating):
        raise TypeError(f"eps must be a number, got {eps!r}")
    if not 0 <= eps < math.inf:
        raise ValueError(f"eps must be a finite number of at least 0, got {eps}")
    return eps


def _check_graph(graph: Graph, **tensors: Tensor) -> None:
    """Refuse what is no Graph, and tensors that do not lie on its nodes."""
    if not isinstance(graph, Graph):
        raise TypeError(
            f"graph must be a subtree_attention.Graph, got {type(graph).__name__}: "
            "Graph(edge_index, num_nodes) makes one"
        )
    for name, tensor in tensors.items():
        _check_tensor(name, tensor)
        if tensor.size(0) != graph.num_nodes:
            raise ValueError(
                f"{name} has {tensor.size(0)} rows, but the graph has {graph.num_nodes} nodes"
            )
        if tensor.device != graph.device:
            raise ValueError(
                f"{name} is on {tensor.device}, but the graph is on {graph.device}: "
                "move it with graph.to(device)"
            )


def _check_tensor(name: str, tensor: Tensor) -> None:
    _check.floating(name, tensor)
    if tensor.dim() not in (2, 3):
        raise ValueError(
            f"{name} must have shape [N, H, channels] or [N, channels], got {_check.shape(tensor)}"
        )


def check_heads(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor, bool]:
    """Query, key and value as [N, H, .], and whether they came without a head axis."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        _check_tensor(name, tensor)
    if query.shape != key.shape:
        raise ValueError(
            f"query and key must have the same shape, got {_check.shape(query)} "
            f"and {_check.shape(key)}"
        )
    if 0 in (query.size(-1), value.size(-1)):
        raise ValueError(
            f"a head needs channels, got queries {_check.shape(query)} and values "
            f"{_check.shape(value)}"
        )
    if query.shape[:-1] != value.shape[:-1]:
        raise ValueError(
            "query and value must have the same number of nodes and heads, got "
            f"{_check.shape(query)} and {_check.shape(value)}"
        )
    if value.dim() == 2:
        return query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1), True
    return query, key, value, False


def _check_hop_weights(hop_weights: Tensor | None, hops: int, value: Tensor) -> Tensor | None:
    """Hop weights as [K + 1, H]."""
    if hop_weights is None:
        return None
    _check.floating("hop_weights", hop_weights)
    heads = value.size(1)
    if hop_weights.shape == (hops + 1,):
        return hop_weights[:, None].expand(hops + 1, heads)
    if hop_weights.shape != (hops + 1, heads):
        raise ValueError(
            f"hop_weights must have shape [{hops + 1}] or [{hops + 1}, {heads}] for {hops} hops "
            f"and {heads} heads, got {_check.shape(hop_weights)}"
        )
    return hop_weights


def one_dtype(
    query: Tensor, key: Tensor, value: Tensor, hop_weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The widest dtype of the inputs, float32 at least."""
    dtype = torch.promote_types(torch.promote_types(query.dtype, key.dtype), value.dtype)
    dtype = torch.promote_types(dtype, torch.float32)
    weights = None if hop_weights is None else hop_weights.to(dtype)
    return query.to(dtype), key.to(dtype), value.to(dtype), weights


def map_features(
    feature_map: str | FeatureMap, query: Tensor, key: Tensor
) -> tuple[Tensor, Tensor]:
    """phi(q), phi(k): [N, H, d] -> [N, H, m]."""
    phi = feature_maps.fixed(feature_map)
    mapped_query, mapped_key = phi(query), phi(key)
    for features, given in ((mapped_query, query), (mapped_key, key)):
        feature_maps.check_output(features, given)
        # A look at values makes a GPU wait, so there a user's map is trusted.
        user_defined = not feature_maps.built_in(feature_map)
        if user_defined and features.device.type == "cpu" and not torch.compiler.is_compiling():
            feature_maps.check_non_negative(features)
    return mapped_query.to(query.dtype), mapped_key.to(key.dtype)
