"""What a graph's outputs lose without a node: against a network that is asked without it."""

import pytest
import torch

from subtree_attention import STAGNN, Graph
from subtree_attention.explanations import graphs as module
from subtree_attention.explanations.graphs import explain_graph
from subtree_attention.nn import GraphNetwork

BATCH = torch.tensor([0, 0, 0, 1, 2, 2, 2, 2])
EDGES = torch.tensor([[0, 1, 4, 5, 6], [1, 2, 5, 6, 7]])


@pytest.mark.parametrize("block", [2**24, 10])
@pytest.mark.parametrize("pooling", ["mean", "sum", "max", "all"])
def test_it_is_what_pooling_without_the_node_gives(
    pooling: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    network = GraphNetwork(STAGNN(3, 8, 8, hops=2, heads=2), 8, 2, pooling)
    x, graph = torch.randn(8, 3), Graph(EDGES, 8)
    network(x, graph, BATCH, 3)
    network.eval()
    with torch.no_grad():
        outputs, encoded = network(x, graph, BATCH, 3), network.encoded(x, graph, BATCH)
        for number in range(3):
            found = explain_graph(network, x, graph, BATCH, number)
            torch.testing.assert_close(found.outputs, outputs[number])
            assert found.nodes.tolist() == (number == BATCH).nonzero().flatten().tolist()
            for node, added in zip(found.nodes.tolist(), found.added, strict=True):
                kept = (number == BATCH) & (torch.arange(8) != node)
                alone = network.decided(encoded[kept], BATCH[kept] * 0, 1)[0]
                torch.testing.assert_close(added, outputs[number] - alone)


def test_a_graph_that_is_not_there_is_refused() -> None:
    network = GraphNetwork(STAGNN(3, 8, 8, hops=2, heads=2), 8, 2).eval()
    with pytest.raises(ValueError, match="there is no graph 7 in the batch"):
        explain_graph(network, torch.ones(8, 3), Graph(EDGES, 8), BATCH, 7)
    with pytest.raises(TypeError, match="network must be a GraphNetwork"):
        explain_graph(STAGNN(3, 8, 8), torch.ones(8, 3), Graph(EDGES, 8), BATCH, 0)
