"""The models of the contenders: STAGNN by another attention, PyG's models, and GCN on our parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GAT, GCN, GraphSAGE
from torch_geometric.nn.models import Polynormer, SGFormer

from subtree_attention.graph import Graph
from subtree_attention.nn import STAGNN
from subtree_attention.nn.linear import SparseLinear, SparseProduct

HIDDEN, LAYERS, DROPOUT = 64, 2, 0.5

Attention = Callable[..., Tensor]
"""`(phi(q), phi(k), value, hop_weights, graph, hops, eps)` -> [N, H, c]."""


class STAGNNBy(STAGNN):
    """STAGNN whose layer attends by a given function; the parameters are the same."""

    def __init__(self, attend: Attention, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.attend = attend
        self.conv._attend_subtree = self._attend_subtree  # type: ignore[method-assign]

    def _attend_subtree(self, query: Tensor, key: Tensor, value: Tensor, graph: Graph) -> Tensor:
        phi, weights = self.conv.feature_map, self.conv.hop_weights()
        if weights is None:
            raise ValueError("the benchmark needs an aggregation that is a weighted sum over hops")
        return self.attend(
            phi(query), phi(key), value, weights, graph, self.conv.hops, self.conv.eps
        )


# ----------------------------------------------------------------------------------- PyG's models


@dataclass(frozen=True)
class PyGModel:
    """A model of PyG as its users run it.

    Attributes:
        build: `(in_channels, classes)` -> the model.
        loss: what fits its outputs.
        takes_batch: whether it wants to know the graph of each node.
    """

    build: Callable[[int, int], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
    takes_batch: bool = False


def _polynormer(in_channels: int, classes: int) -> nn.Module:
    model = Polynormer(
        in_channels, HIDDEN, classes, local_layers=LAYERS, global_layers=LAYERS, dropout=DROPOUT
    )
    model._global = True  # PyG leaves it to the user to end the local phase
    return model


def _sgformer(in_channels: int, classes: int) -> nn.Module:
    layers = {"trans_num_layers": LAYERS, "gnn_num_layers": LAYERS}
    return SGFormer(in_channels, HIDDEN, classes, **layers)


PYG_MODELS = {
    "PyG GCN": PyGModel(lambda f, c: GCN(f, HIDDEN, LAYERS, c, dropout=DROPOUT)),
    "PyG GAT": PyGModel(lambda f, c: GAT(f, HIDDEN, LAYERS, c, dropout=DROPOUT, heads=8)),
    "PyG GraphSAGE": PyGModel(lambda f, c: GraphSAGE(f, HIDDEN, LAYERS, c, dropout=DROPOUT)),
    "PyG SGFormer": PyGModel(_sgformer, F.nll_loss, takes_batch=True),
    "PyG Polynormer": PyGModel(_polynormer, F.nll_loss, takes_batch=True),
}


# -------------------------------------------------------------------------------- GCN on our parts


class SparseGCN(nn.Module):
    """PyG's two-layer GCN on our sparse features and prepared products.

    It shows what our way of running an epoch costs without subtree attention. On
    `Graph(edge_index, transition="sym", self_loops=True)` of an undirected graph it is the same
    function as PyG's.

    Shapes:
        - x: `[N, in_channels]`, dense or `torch.sparse_csr`
        - result: `[N, out_channels]` logits
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lins = nn.ModuleList(
            [
                SparseLinear(in_channels, HIDDEN, bias=False),
                SparseLinear(HIDDEN, out_channels, bias=False),
            ]
        )
        self.biases = nn.ParameterList(
            [nn.Parameter(torch.zeros(width)) for width in (HIDDEN, out_channels)]
        )

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        hidden = F.relu(self._layer(0, x, graph))
        return self._layer(1, F.dropout(hidden, DROPOUT, self.training), graph)

    def _layer(self, index: int, x: Tensor, graph: Graph) -> Tensor:
        sent = self.lins[index](x)
        matrix, transpose = graph.matrix(sent.dtype), graph.transpose(sent.dtype)
        return SparseProduct.apply(sent, matrix, transpose) + self.biases[index]
