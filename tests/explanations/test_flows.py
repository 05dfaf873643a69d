"""`Explanation.edges`: over which edges a logit came."""

import itertools

import numpy as np
import pytest
import torch

from subtree_attention import STAGNN, Explainer, Explanation, STAConv, STAFormer, explain
from tests.explanations.test_explanation import OPTIONS, case, name, randomised, stagnn
from tests.ops.cases import EDGES, Edges


def by_edge(explanation: Explanation, *classes: int) -> dict[tuple[int, int], float]:
    (sources, targets), added = explanation.edges(*classes)
    assert added.dtype == torch.float64
    pairs = list(zip(sources.tolist(), targets.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    return dict(zip(pairs, added.tolist(), strict=True))


def walk_by_walk(explanation: Explanation, matrices: list[np.ndarray], cls: int) -> dict:
    """Every sequence of nodes that ends in the root, one by one."""
    found: dict[tuple[int, int], float] = {}
    for hop, level in enumerate(explanation.levels):
        for place, source in enumerate(level.nodes.tolist()):
            for head, added in enumerate(level.contributions(cls)[place].tolist()):
                dense = matrices[head % len(matrices)]
                between = itertools.product(range(len(dense)), repeat=max(hop - 1, 0))
                ways = [(source, *way, explanation.root) for way in between] if hop else []
                products = [
                    np.prod([dense[b, a] for a, b in itertools.pairwise(way)]) for way in ways
                ]
                for way, product in zip(ways, products, strict=True):
                    if product:
                        for step in itertools.pairwise(way):
                            share = added * product / sum(products)
                            found[step] = found.get(step, 0) + share
    return found


def assert_same(found: dict, expected: dict) -> None:
    for pair in found.keys() | expected.keys():
        assert found.get(pair, 0) == pytest.approx(expected.get(pair, 0), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("transition", ["rw", "sym", None])
@pytest.mark.parametrize("graph", ["directed-weighted", "parallel-edges", "self-loops", "no-edges"])
def test_it_is_the_sum_over_all_walks(graph, transition):
    torch.manual_seed(0)
    walked = EDGES[graph].graph(transition)
    model = randomised(STAGNN(5, 8, 3, 3, 2)).double()
    explainer = Explainer(model, torch.randn(walked.num_nodes, 5).double(), walked)
    for root in range(0, walked.num_nodes, 4):
        explanation = explainer(root)
        expected = walk_by_walk(explanation, [walked.dense().numpy()], 1)
        assert_same(by_edge(explanation, 1), expected)


def test_heads_whose_edges_have_gates_have_walks_of_their_own():
    torch.manual_seed(0)
    edges = EDGES["directed-weighted"]
    layer = randomised(STAConv(5, 3, 3, 2, edge_dim=2)).double()
    graph, x = edges.graph(), torch.randn(edges.num_nodes, 5).double()
    gated = torch.randn(edges.index.size(1), 2).double()
    explanation = explain(layer, x, graph, 3, edge_attr=gated)
    entries = layer.entries(graph, None, gated, torch.float64)
    matrices = [graph.to_scipy(own).toarray() for own in entries.unbind(1)]
    assert_same(by_edge(explanation, 0), walk_by_walk(explanation, matrices, 0))


@pytest.mark.parametrize("options", OPTIONS[::2], ids=name)
def test_last_steps_bring_what_the_levels_add(options):
    """Of a root that no walk passes, all that comes over its edges are last steps."""
    model, x, graph = case({**options, "edges": "directed"}, stagnn, torch.float64)
    source, target = graph.edge_index
    root = graph.num_nodes  # a new node that hears three others, and speaks to none
    more = torch.tensor([[0, 1, 2], [root] * 3])
    edges = Edges(torch.cat([torch.stack([source, target]), more], 1), root + 1)
    x = torch.cat([x, torch.randn(1, 5).double()])
    explanation = explain(model, x, edges.graph(graph.transition), root)
    walked = [level for level in explanation.levels if level.hop in range(1, model.conv.hops + 1)]
    for cls in range(3):
        into = sum(added for (_, end), added in by_edge(explanation, cls).items() if end == root)
        assert into == pytest.approx(sum(float(level.total[:, cls].sum()) for level in walked))


def test_what_leaves_a_node_is_what_comes_to_it_and_what_it_adds():
    torch.manual_seed(0)
    edges = EDGES["two-components"]
    model, x = randomised(STAGNN(5, 8, 3, 4, 2)).double(), torch.randn(5, 5).double()
    explanation = explain(model, x, edges.graph(), 0)
    added, over = explanation.importance(2), by_edge(explanation, 2)
    for node in (1, 2):  # the root's walks end in it, and others pass
        come = sum(flow for (_, end), flow in over.items() if end == node)
        leave = sum(flow for (start, _), flow in over.items() if start == node)
        assert leave == pytest.approx(come + float(added[node]))


def test_a_class_rather_than_another_is_their_difference():
    torch.manual_seed(0)
    model, x = randomised(STAGNN(5, 8, 3, 3, 2)).double(), torch.randn(11, 5).double()
    explanation = explain(model, x, EDGES["directed"].graph(), 4)
    one, other = (by_edge(explanation, cls) for cls in (0, 2))
    both = by_edge(explanation, 0, 2)
    assert both == pytest.approx({pair: one[pair] - other[pair] for pair in one}, abs=1e-12)


def test_edges_that_no_walk_takes_bring_nothing():
    edges = EDGES["two-components"].index
    explanation = explain(STAGNN(5, 8, 3, 2), torch.randn(5, 5), edges, 3)
    flows = explanation.edges(0)
    assert flows.of(edges)[-2:].tolist() == [
        by_edge(explanation, 0)[3, 4],
        by_edge(explanation, 0)[4, 3],
    ]
    assert not flows.of(edges)[:4].any()
    assert flows.of(edges[:, :0]).shape == (0,)


def test_without_hops_there_are_no_edges():
    explanation = explain(STAGNN(5, 8, 3, 0, 2), torch.randn(11, 5), EDGES["directed"].graph(), 4)
    assert explanation.edges(0).edge_index.shape == (2, 0)


def test_classes_and_attributions_are_refused_in_words():
    graph = EDGES["directed"].graph()
    explanation = explain(STAGNN(5, 8, 3), torch.randn(11, 5), graph, 4)
    for classes in ((3,), (0, 3)):
        with pytest.raises(ValueError, match="there is no class 3: the model has classes 0 to 2"):
            explanation.edges(*classes)
    attribution = explain(STAFormer(5, 8, 3), torch.randn(11, 5), EDGES["directed"].index, 4)
    with pytest.raises(ValueError, match="an attribution is to nodes, not to edges"):
        attribution.edges(0)
