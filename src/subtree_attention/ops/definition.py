r"""The paper's Eq. 5, dense and to the letter: the ground truth of every test.

.. math::
    \mathrm{STA}_k(Q, K, V)_i =
        \frac{\sum_j \hat A^k_{ij} \, \mathrm{sim}(Q_i, K_j) \, V_j}
             {\sum_j \hat A^k_{ij} \, \mathrm{sim}(Q_i, K_j)}, \qquad \mathrm{STA}_0 = V

Beyond it, the denominator may be raised to a power beta of the hop and head.

It costs O(N^2) memory and works in any dtype. Nothing here is fast, on purpose.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Similarity = Callable[[Tensor, Tensor], Tensor]


def softmax_similarity(query: Tensor, key: Tensor) -> Tensor:
    """exp(q.k / sqrt(d)): [N, H, d], [N, H, d] -> [H, N, N]."""
    scores = torch.einsum("ihd,jhd->hij", query, key)
    return torch.exp(scores / math.sqrt(query.size(-1)))


def kernel_similarity(feature_map: Callable[[Tensor], Tensor]) -> Similarity:
    """phi(q).phi(k): [N, H, d], [N, H, d] -> [H, N, N]."""
    return lambda query, key: torch.einsum("ihm,jhm->hij", feature_map(query), feature_map(key))


def attention_matrix(
    mask: Tensor, similarity: Tensor, eps: float = 0.0, beta: Tensor | None = None
) -> Tensor:
    """The attention of every node on every node under a mask: [N, N], [H, N, N] -> [H, N, N].

    The mask is a power of the transition matrix (STA), or all ones (SA), or one for each head,
    [H, N, N]. Where nothing is masked in, the attention is 0. `beta` [H] is the power of the sums;
    a negative sum keeps its sign, but for a power of 0.
    """
    weights = mask * similarity
    total = weights.sum(-1, keepdim=True) + eps
    divisor = torch.where(total != 0, total, 1)
    if beta is not None:
        beta = beta[:, None, None]
        divisor = torch.where(beta == 0, 1, divisor.sign()) * divisor.abs() ** beta
    return torch.where(total != 0, weights / divisor, 0)


def subtree_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    transition: Tensor,
    hops: int,
    similarity: Similarity = softmax_similarity,
    eps: float = 0.0,
    beta: Tensor | None = None,
) -> Tensor:
    """STA_0 .. STA_K: [N, H, d], [N, H, d], [N, H, c], [N, N] -> [K + 1, N, H, c].

    A transition [H, N, N] is one of its own for each head. `beta` [K, H] are the powers of the
    denominators at hops 1 .. K; None: 1.
    """
    sim = similarity(query, key)
    levels, power = [value], torch.eye(transition.size(-1)).to(transition)
    for hop in range(hops):
        power = transition @ power
        attention = attention_matrix(power, sim, eps, None if beta is None else beta[hop])
        levels.append(torch.einsum("hij,jhc->ihc", attention, value))
    return torch.stack(levels)


def global_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    batch: Tensor | None = None,
    similarity: Similarity = softmax_similarity,
    eps: float = 0.0,
) -> Tensor:
    """SA, every node attends to all nodes of its graph: -> [N, H, c]."""
    batch = torch.zeros(len(query), dtype=torch.long) if batch is None else batch
    mask = (batch[:, None] == batch[None, :]).to(value)
    attention = attention_matrix(mask, similarity(query, key), eps)
    return torch.einsum("hij,jhc->ihc", attention, value)
