"""The layer and the model as the paper and its released program define them, dense and by hand."""

import torch
import torch.nn.functional as F
from torch import Tensor

from subtree_attention import STAGNN, Graph, STAConv, feature_maps
from subtree_attention.nn.aggregation import AGGREGATIONS
from subtree_attention.nn.heads import GATES
from subtree_attention.nn.readout import READOUTS
from subtree_attention.ops import definition

LAYER_OPTIONS = {
    "hops": [2, 0, 1, 3, 7],
    "aggregation": list(AGGREGATIONS),
    "gate": list(GATES),
    "heads": [2, 1, 3],
    "head_mix": ["linear", "sum"],
    "global_attention": [False, True],
    "feature_map": ["elu", "softmax"],
    "readout": list(READOUTS),
}
"""What a layer can be made with, for `pairwise`."""


def dense_conv(
    conv: STAConv,
    x: Tensor,
    graph: Graph,
    aggregation: str = "gpr",
    gate: str = "softmax",
    head_mix: str = "linear",
    global_attention: bool = False,
    feature_map: str = "elu",
    readout: str = "mean",
    batch: Tensor | None = None,
) -> Tensor:
    """What `conv`, made with these options, should return: [N, out_channels]."""

    def project(linear, channels):
        out = x @ linear.weight.t()
        return (out if linear.bias is None else out + linear.bias).view(len(x), -1, channels)

    query = project(conv.lin_query, conv.key_channels)
    key = project(conv.lin_key, conv.key_channels)
    value = project(conv.lin_value, conv.value_channels)
    sim = definition.kernel_similarity(feature_maps.elu)
    if feature_map == "softmax":
        sim = definition.softmax_similarity
    beta = None
    if readout != "mean":
        beta = conv.readout.beta if readout == "power" else value.new_zeros(conv.hops, conv.heads)
    levels = definition.subtree_attention(
        query, key, value, graph.dense(value.dtype), conv.hops, sim, conv.eps, beta
    )
    out = mix(conv, aggregate(conv, levels, aggregation, gate), head_mix)
    if global_attention:
        # Softmax attention over a whole graph has no eps: it is never without a node.
        global_eps = 0.0 if feature_map == "softmax" else conv.eps
        everywhere = definition.global_attention(query, key, value, batch, sim, global_eps)
        summed = everywhere.sum(1)
        if conv.value_channels != conv.out_channels:
            summed = summed @ conv.beside.lin.weight.t()
        out = out + conv.beside.weight * summed
    return out


def aggregate(conv: STAConv, levels: Tensor, aggregation: str, gate: str) -> Tensor:
    """Gate every level's heads, then AGGR over the hops: -> [N, H, width]."""
    alone = conv.heads == 1  # one head has no gate
    gated = [levels[0]]
    for hop in range(1, conv.hops + 1):
        share = (
            torch.softmax(conv.gate.logits[hop - 1], 0) if gate == "softmax" and not alone else 1
        )
        gated.append(levels[hop] * torch.as_tensor(share).view(1, -1, 1))
    if gate == "plain" and not alone:
        table = conv.gate.table[..., None]  # [K + 1, H, 1], in the place of alpha
        gated = [level * weight for level, weight in zip(levels, table, strict=True)]
        aggregation = "sum" if aggregation == "gpr" else aggregation

    if aggregation == "gpr":
        return sum(
            alpha * level for alpha, level in zip(conv.aggregation.alpha, gated, strict=True)
        )
    if aggregation == "sum":
        return sum(gated)
    if aggregation == "concat":
        return torch.cat(gated, dim=-1)
    if conv.hops == 0:
        return gated[0]
    weight = conv.aggregation.weight  # [H, 2c]
    pairs = torch.stack([torch.cat([gated[0], level], -1) for level in gated[1:]])
    beta = torch.softmax((pairs * weight).sum(-1), dim=0)
    return gated[0] + sum(b[..., None] * level for b, level in zip(beta, gated[1:], strict=True))


def mix(conv: STAConv, heads: Tensor, head_mix: str) -> Tensor:
    """W_O once over the concatenated heads, or their sum."""
    out = torch.cat(list(heads.unbind(1)), -1) if head_mix == "linear" else heads.sum(1)
    alone = conv.heads == 1 or head_mix == "sum"
    if alone and out.size(-1) == conv.out_channels:
        return out  # neither W_O nor its bias
    return out @ conv.head_mix.lin.weight.t() + conv.head_mix.lin.bias


def dense_model(model: STAGNN, x: Tensor, graph: Graph, **options) -> Tensor:
    """What STAGNN should return without dropout."""
    hidden = F.relu(x @ model.lin.weight.t() + model.lin.bias)
    return dense_conv(model.conv, hidden, graph, **options)
