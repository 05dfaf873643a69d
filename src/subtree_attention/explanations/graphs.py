"""Which nodes made the answer of a graph: what it would be without each of them.

The pooling of a network of graphs is no sum of parts once an MLP follows, so nothing adds up here.
What can be said exactly is how the outputs change if a node is left out of the pooling. The others
keep what has walked to them from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .. import _check
from ..graph import Graph
from ..nn import GraphNetwork
from ..nn.features import Features

BLOCK = 2**24
"""Numbers that are pooled at a time."""


@dataclass(frozen=True, eq=False)
class GraphExplanation:
    """A graph and its nodes.

    Attributes:
        outputs: [C], what the network gives for the graph.
        nodes: [n], the numbers of its nodes among all.
        added: [n, C], what each output loses without a node in the pooling.
    """

    outputs: Tensor
    nodes: Tensor
    added: Tensor


@torch.no_grad()
def explain_graph(
    network: GraphNetwork, x: Features, graph: Graph, batch: Tensor, number: int
) -> GraphExplanation:
    """Explain what a network says of one of many graphs.

    Args:
        network: in evaluation mode.
        x: [N, F], of all graphs.
        graph: all of them.
        batch: [N], the graph of each node.
        number: which graph.
    """
    _check.kind("network", network, GraphNetwork, "a GraphNetwork")
    nodes = (batch == number).nonzero().flatten()
    if not len(nodes):
        raise ValueError(f"there is no graph {_check.said(number)} in the batch")
    encoded = network.encoded(x, graph, batch)[nodes]  # [n, width]
    n, width = encoded.shape
    outputs = network.decided(encoded, torch.zeros(n, dtype=torch.long, device=batch.device), 1)
    others = ~torch.eye(n, dtype=torch.bool, device=batch.device)
    without = []
    for rows in others.split(max(1, BLOCK // (n * width))):
        left_out, kept = rows.nonzero(as_tuple=True)  # each of some nodes, and all others
        without.append(network.decided(encoded[kept], left_out, len(rows)))
    return GraphExplanation(outputs[0], nodes, outputs - torch.cat(without))
