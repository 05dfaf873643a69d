r"""Global attention (SA): every node attends to all nodes of its own graph, mask all ones.

With a feature map the sums over a graph are shared by its nodes, so SA costs O(N). STA_k tends to
it as k grows (Theorem 1 of the paper).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import _check
from ..feature_maps import FeatureMap
from ..ops import SIMILARITIES, map_features, one_dtype, recurrence


def global_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    batch: Tensor | None = None,
    feature_map: str | FeatureMap = "elu",
    similarity: str | None = None,
    eps: float = 1e-6,
    batch_size: int | None = None,
) -> Tensor:
    r"""Global self-attention in the form of the paper's Eq. 4.

    .. math::
        \mathrm{SA}(Q, K, V)_i = \frac{\phi(Q_i) \sum_j \phi(K_j)^T V_j}
                                      {\phi(Q_i) \sum_j \phi(K_j)^T + \epsilon}

    Args:
        query: `[N, H, d]` before the feature map.
        key: `[N, H, d]`.
        value: `[N, H, c]`.
        batch: `[N]`, the graph of each node; None means that all nodes are one graph.
        feature_map: as in :func:`subtree_attention.subtree_attention`.
        similarity: `"softmax"` for exact softmax attention, O(N^2) per call; it has no eps.
        eps: added to every denominator.
        batch_size: number of graphs in `batch`; saves looking for its maximum.

    Returns:
        `[N, H, c]`.
    """
    with torch.autocast(value.device.type, enabled=False):
        query, key, value, _ = one_dtype(query, key, value, None)
        if similarity is not None:
            _check.known("similarity", similarity, SIMILARITIES)
            return _softmax_attention(query, key, value, batch)
        query, key = map_features(feature_map, query, key)
        if batch is None:
            state = torch.einsum("nhd,nhe->hde", key, recurrence.with_ones(value))
            readout = torch.einsum("nhd,hde->nhe", query, state)
        else:
            if batch_size is None:
                batch_size = int(batch.max()) + 1 if batch.numel() else 0
            own = recurrence.first_state(key, value)  # [N, H, d, c + 1]
            state = own.new_zeros(batch_size, *own.shape[1:]).index_add(0, batch, own)
            readout = recurrence.read(query, state[batch])
        return recurrence.quotient(readout, eps)


def _softmax_attention(query: Tensor, key: Tensor, value: Tensor, batch: Tensor | None) -> Tensor:
    mask = None if batch is None else batch[:, None] == batch[None, :]
    heads_first = (t.transpose(0, 1).unsqueeze(0) for t in (query, key, value))
    out = F.scaled_dot_product_attention(*heads_first, attn_mask=mask)
    return out.squeeze(0).transpose(0, 1)
