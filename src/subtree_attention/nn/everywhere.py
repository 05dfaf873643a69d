r"""Global attention (SA): every node attends to all nodes of its own graph, mask all ones.

With a feature map the sums over a graph are shared by its nodes, so SA costs O(N). STA_k tends to
it as k grows (Theorem 1 of the paper).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import _check, feature_maps, ops
from .._tracing import exporting, uncompiled
from ..feature_maps import FeatureMap
from ..ops import recurrence
from ..partition import HERE, Summed
from .heads import SumMix


def global_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    batch: Tensor | None = None,
    feature_map: str | FeatureMap = "elu",
    eps: float = 1e-6,
    batch_size: int | None = None,
) -> Tensor:
    r"""Global self-attention in the form of the paper's Eq. 4.

    .. math::
        \mathrm{SA}(Q, K, V)_i = \frac{\phi(Q_i) \sum_j \phi(K_j)^T V_j}
                                      {\phi(Q_i) \sum_j \phi(K_j)^T + \epsilon}

    Args:
        query: `[N, H, d]`, or `[N, d]` for one head, before the feature map.
        key: as `query`.
        value: `[N, H, c]`, or `[N, c]` for one head.
        batch: `[N]`, the graph of each node; None means that all nodes are one graph.
        feature_map: as in :func:`subtree_attention.subtree_attention`; with `"softmax"` a call
            costs O(N^2).
        eps: added to every denominator, which the softmax of a whole graph does not need.
        batch_size: number of graphs in `batch`; saves looking for its maximum.

    Returns:
        `[N, H, c]`; without H if the inputs have none.
    """
    eps, part = ops.check_eps(eps), HERE.part
    query, key, value, squeeze = ops.check_heads(query, key, value)
    if part is not None:
        exact = feature_maps.is_softmax(feature_map)
        ops.refuse_on_a_part(batch=batch is not None, exact=exact)
    graphs = 1
    if batch is not None:
        batch = check_batch(batch, value.size(0))
        graphs = count_graphs(batch, batch_size)
    with ops.full_precision(value):
        query, key, value, _ = ops.one_dtype(query, key, value, None)
        query, key = ops.map_features(feature_map, query, key)
        if feature_maps.is_softmax(feature_map):
            mask = None if batch is None else batch[:, None] == batch[None, :]
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))  # heads first
            out = F.scaled_dot_product_attention(query, key, value, mask).transpose(0, 1)
        elif batch is None:
            state = torch.einsum("nhd,nhe->hde", key, recurrence.with_ones(value))
            if part is not None:
                state = Summed.apply(state, part.shared.mesh.nodes)
            out = recurrence.quotient(torch.einsum("nhd,hde->nhe", query, state), eps)
        else:
            own = recurrence.first_state(key, value)  # [N, H, d, c + 1]
            with _check.fits("a batch of {:,} graphs", graphs):
                state = own.new_zeros(graphs, *own.shape[1:])
            state = state.index_add(0, batch, own)
            out = recurrence.quotient(recurrence.read(query, state[batch]), eps)
    return out.squeeze(-2) if squeeze else out


class GlobalAttention(SumMix):
    r"""SA beside STA: :math:`\alpha_T \sum_h \mathrm{SA}^h`, with a learned :math:`\alpha_T`.

    The heads, which :func:`global_attention` gives, are summed and not gated; where they are not
    as wide as the output, a linear map without bias widens them.
    """

    def __init__(self, heads: int, width: int, out_channels: int) -> None:
        super().__init__(heads, width, out_channels, bias=False)
        self.weight = nn.Parameter(torch.ones(()))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.ones_(self.weight)

    def forward(self, heads: Tensor) -> Tensor:
        return self.weight * super().forward(heads).to(self.weight.dtype)


def check_batch(batch: Tensor, num_nodes: int) -> Tensor:
    """The graph of each node, [N], as indices; looks at shape and type only."""
    if _check.whole("batch", batch).shape != (num_nodes,):
        raise ValueError(
            f"batch must have shape [{num_nodes}], the graph of each node, "
            f"got {_check.shape(batch)}"
        )
    return batch.long()


def count_graphs(batch: Tensor, batch_size: int | None = None) -> int:
    """The number of graphs in a batch; looks at its values only where that is not given."""
    if batch_size is None and exporting():
        raise ValueError(
            "batch needs batch_size, the number of graphs, while torch.export traces: its values "
            "are not there to be counted"
        )
    if batch_size is not None:
        _check.integer("batch_size", batch_size, 0)
        # On a GPU the host would wait for the answer.
        if batch.device.type != "cpu" or torch.compiler.is_compiling():
            return batch_size
    return (_count_uncompiled if torch.compiler.is_compiling() else _count)(batch, batch_size)


def _count(batch: Tensor, batch_size: int | None) -> int:
    if not batch.numel():
        return batch_size or 0
    least, most = (int(value) for value in batch.aminmax())
    if least < 0:
        raise ValueError(f"batch holds the negative graph {least}")
    if batch_size is not None and most >= batch_size:
        raise ValueError(f"batch holds graph {most}, but batch_size={batch_size}")
    return most + 1 if batch_size is None else batch_size


_count_uncompiled = uncompiled(
    _count, "the number of graphs is one more than the largest value of batch: pass batch_size"
)
