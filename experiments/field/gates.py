"""Ours with a gate on every edge, where edges have no features: their place in the graph is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
import torch
from torch import Tensor, nn

from subtree_attention.config import MODELS, STAFormerSettings
from subtree_attention.graph import Graph
from subtree_attention.nn import BUILDERS, STAFormer
from subtree_attention.nn.features import Features

COLUMNS = 3


def edge_shapes(graph: Graph) -> Tensor:
    """Of each edge that came, [E', 3]: degrees of source and target, and how many neighbours they
    share, each as log(1 + n) and standardised."""
    order, edges = graph.edge_order.cpu().numpy(), graph.edge_index.cpu().numpy()
    came = order < graph.given_edges
    source, target = edges[:, came]
    size = (graph.num_nodes, graph.num_nodes)
    linked = scipy.sparse.csr_array((np.ones(came.sum()), (target, source)), size)
    linked.setdiag(0)
    linked.eliminate_zeros()
    linked.data[:] = 1  # parallel edges are one
    degree = np.diff(linked.indptr)
    shared = np.asarray(((linked @ linked.T).tocsr())[target, source]).ravel()
    counts = np.log1p(np.stack([degree[source], degree[target], shared], 1))
    counts = (counts - counts.mean(0)) / np.maximum(counts.std(0), 1e-6)
    found = np.zeros((graph.given_edges, COLUMNS))
    found[order[came]] = counts
    return torch.from_numpy(found).float().to(graph.device)


class EdgeGated(nn.Module):
    """STAFormer whose blocks gate the edges by `edge_shapes`; arguments as of STAFormer."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.model = STAFormer(**options, edge_dim=COLUMNS, edge_gate="mlp")
        self.no_weight_decay = self.model.no_weight_decay

    def forward(self, x: Features, graph: Graph) -> Tensor:
        """Outputs [N, out_channels]."""
        return self.model(x, graph, edge_attr=graph.cached("shapes of edges", edge_shapes))


@dataclass(frozen=True)
class EdgeGatedSettings(STAFormerSettings):
    """Those of STAFormer."""

    name: ClassVar[str] = "edge-gated-staformer"
    title: ClassVar[str] = "STAFormer with edge gates"


MODELS[EdgeGatedSettings.name], BUILDERS[EdgeGatedSettings.name] = EdgeGatedSettings, EdgeGated
