"""The attention of single roots: which weight a root's attention gives each node.

A root attends to what reaches it, by how much of it arrives (its mass: an entry of a power of the
transition matrix) and how similar it is (its score). `shares` is that formula, for whoever has mass
and scores; `attention_of_pairs` computes the scores too. Pairs come first, then heads: [n, H].
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .. import feature_maps
from ..feature_maps import FeatureMap
from ..graph import Graph
from . import recurrence
from .inputs import full_precision, map_features, one_dtype


def shares(
    mass: Tensor,
    scores: Tensor,
    eps: float,
    softmax: bool = False,
    root: Tensor | None = None,
    num_roots: int = 1,
    beta: Tensor | None = None,
) -> Tensor:
    """The attention on n nodes: what arrives of each times its similarity, over the sum.

    With `beta` it is over the sum^beta: weights, which are no shares of 1 any more.

    Args:
        mass: `[n]` or `[n, H]`, what arrives at the root from each node.
        scores: `[n, H]`: phi(q).phi(k), or q.k / sqrt(d) with `softmax`.
        eps: added to the sum, as in :func:`subtree_attention`.
        softmax: whether the similarity is exp(score), without overflow, instead of the score.
        root: `[n]`, which of `num_roots` roots each node is attended by; None: all by one.
        beta: `[H]`, the power of the sum; None: 1.

    Returns:
        `[n, H]`, in the dtype of the scores; 0 where nothing arrives.
    """
    weights, total = weigh(mass, scores, eps, softmax, root, num_roots, beta)
    return recurrence.divide(weights, total if root is None else total[root])


def weigh(
    mass: Tensor,
    scores: Tensor,
    eps: float,
    softmax: bool = False,
    root: Tensor | None = None,
    num_roots: int = 1,
    beta: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The two sides of `shares`' quotient: weights [n, H] and their sums at the roots [R, H].

    With `softmax` both are over exp(the root's largest score), and with `beta` [H] the sums are
    raised to it.
    """
    mass = mass[:, None] if mass.dim() == 1 else mass
    if not softmax:
        weights = mass * scores
        total = _summed(weights, root, num_roots) + eps
        return weights, total if beta is None else recurrence.raised(total, beta)
    scores = scores.masked_fill(mass == 0, -torch.inf)  # an edge of weight 0 is no edge
    peak = scores.new_full((num_roots, scores.size(1)), -torch.inf)
    if root is not None:
        peak = peak.scatter_reduce(0, root[:, None].expand_as(scores), scores.detach(), "amax")
    elif len(scores):
        peak = scores.detach().amax(0, keepdim=True)
    peak = torch.where(peak.isfinite(), peak, 0)
    weights = mass * torch.exp(scores - (peak if root is None else peak[root]))
    total = _summed(weights, root, num_roots)
    if eps:  # eps belongs to the sum of the plain exponentials
        total = total + eps * torch.exp(-peak)
    if beta is None:
        return weights, total
    left = torch.exp(peak * (1 - beta))  # of the largest, which no longer cancels
    return weights * (left if root is None else left[root]), recurrence.raised(total, beta)


def _summed(weights: Tensor, root: Tensor | None, num_roots: int) -> Tensor:
    """[n, H] -> [R, H]."""
    if root is None:
        return weights.sum(0, keepdim=True)
    return weights.new_zeros(num_roots, weights.size(1)).index_add(0, root, weights)


def pair_scores(query: Tensor, key: Tensor, root: Tensor, node: Tensor, softmax: bool) -> Tensor:
    """The scores of n pairs, as `shares` takes them: [R, H, d], [N, H, d] -> [n, H]."""
    products = (query[root] * key[node]).sum(-1)
    return products / math.sqrt(query.size(-1)) if softmax else products


def attention_of_pairs(
    query: Tensor,
    key: Tensor,
    root: Tensor,
    node: Tensor,
    mass: Tensor,
    feature_map: str | FeatureMap = "elu",
    eps: float = 1e-6,
    beta: Tensor | None = None,
) -> Tensor:
    """The attention of roots on nodes, for n pairs of them, of which all that count are given.

    Args:
        query: `[R, H, d]` of the roots, before the feature map.
        key: `[N, H, d]` of the nodes.
        root: `[n]`, the root of each pair.
        node: `[n]`, the node of each pair.
        mass: `[n]` or `[n, H]`, what arrives at the root from the node.
        feature_map: as in :func:`subtree_attention`, `"softmax"` included.
        eps: as in :func:`subtree_attention`.
        beta: `[H]`, that of the hop; None: 1.

    Returns:
        `[n, H]`; without beta the shares of a root sum to 1, less what eps takes.
    """
    query, key, _, _ = one_dtype(query, key, key, None)
    with full_precision(key):
        query, key = map_features(feature_map, query, key)
        softmax = feature_maps.is_softmax(feature_map)
        scores = pair_scores(query, key, root, node, softmax)
        power = None if beta is None else beta.to(scores)
        return shares(mass.to(scores), scores, eps, softmax, root, query.size(0), power)


def arrivals(graph: Graph, root: int, hop: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Row `root` of A^hop: the share of each node's mass at the root after `hop` steps, [N]."""
    reached = torch.zeros(graph.num_nodes, 1, dtype=dtype, device=graph.device)
    reached[root] = 1
    for _ in range(hop):
        reached = recurrence.product(graph.transpose(dtype), reached)
    return reached.squeeze(1)
