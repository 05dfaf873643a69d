"""Explanations of STAFormer: exact where it is linear given its attention, attributed elsewhere."""

import pytest
import torch
from torch import Tensor

from subtree_attention import Graph, STAFormer, explain
from subtree_attention.explanations import (
    GLOBAL,
    RESIDUAL,
    Attribution,
    Attributor,
    Explainer,
    Explanation,
    attribution,
    explainer_of,
)
from tests.ops.cases import EDGES, FLOAT64_ERROR, assert_all_close, random_edges

LINEAR = {"layers": 1, "norm": "none", "activation": "none"}
"""What leaves an STAFormer linear, given its attention."""

GRAPH = random_edges(20, 50, seed=3).graph("sym", self_loops=True)


def former(**options) -> STAFormer:
    torch.manual_seed(4)
    model = STAFormer(5, 8, 3, **{"layers": 2, "hops": 2, "heads": 2, **options})
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.double().eval()


def features(graph: Graph = GRAPH) -> Tensor:
    return torch.randn(graph.num_nodes, 5, generator=torch.Generator().manual_seed(6)).double()


class TestExact:
    @pytest.mark.parametrize("residual", ["linear", "identity", "none"])
    @pytest.mark.parametrize(
        "options",
        [{}, {"global_attention": True}, {"readout": "sum"}, {"jumping": "concat"}, {"heads": 1}],
        ids=str,
    )
    @pytest.mark.parametrize("projected", [False, True])
    def test_the_parts_add_up(self, residual, options, projected):
        how = {**LINEAR, **options, "residual": residual, "input_projection": projected}
        model, x = former(**how), features()
        explainer, expected = explainer_of(model, x, GRAPH), model(x, GRAPH)
        assert isinstance(explainer, Explainer)
        for root in range(0, GRAPH.num_nodes, 3):
            explanation = explainer(root)
            assert explanation.exact
            assert_all_close([explanation.logits], [expected[root]], FLOAT64_ERROR)
            single = torch.stack([explanation.importance(cls).sum() for cls in range(3)])
            assert_all_close([explanation.bias + single], [expected[root]], FLOAT64_ERROR)

    def test_the_residual_is_the_root_itself(self):
        model, x = former(**LINEAR), features()
        level = explain(model, x, GRAPH, 4).level(RESIDUAL)
        added = model.blocks[0].residual(x)[4] - model.blocks[0].residual.bias
        assert level.nodes.tolist() == [4]
        assert_all_close([level.totals().sum(0)], [model.lin_out.weight @ added], FLOAT64_ERROR)
        assert torch.equal(level.shares, torch.ones(1, 2).double())

    @pytest.mark.parametrize(
        "more", [{"layers": 2}, {"norm": "layer"}, {"activation": "relu"}, {"feed_forward": 1}]
    )
    def test_whatever_is_not_linear_is_attributed(self, more):
        model = former(**{**LINEAR, **more})
        assert isinstance(explainer_of(model, features(), GRAPH), Attributor)
        with pytest.raises(ValueError, match="not linear given its attention"):
            Explainer(model, features(), GRAPH)


class TestAttribution:
    @pytest.fixture(autouse=True)
    def few_steps(self, monkeypatch):
        monkeypatch.setattr(attribution, "STEPS", (32,))

    def of(self, root: int = 4, graph: Graph = GRAPH, **options) -> tuple[STAFormer, Attribution]:
        model = former(**options)
        return model, explain(model, features(graph), graph, root)

    @pytest.mark.parametrize("norm", ["layer", "none"])
    @pytest.mark.parametrize("projected", [False, True])
    def test_the_parts_add_up_but_for_what_is_said(self, norm, projected):
        model, told = self.of(norm=norm, input_projection=projected)
        assert isinstance(told, Explanation)
        assert not told.exact
        outputs = model(features(), GRAPH)[4].detach()
        assert_all_close([told.logits], [outputs], FLOAT64_ERROR)
        for cls in range(3):
            parts = float(told.bias[cls] + told.importance(cls).sum())
            assert parts + told.residual(cls) == pytest.approx(float(outputs[cls]), abs=1e-9)
            assert abs(told.residual(cls)) <= 0.05 * float(told.importance(cls).abs().sum())

    def test_it_is_the_integral_of_the_definition(self):
        """Against many small steps with the gradient of the inputs themselves."""
        model, told = self.of(activation="gelu", norm="none")
        x, steps, total = features(), 100, 0.0
        for step in range(steps):
            scaled = (x * (step + 0.5) / steps).requires_grad_()
            (grad,) = torch.autograd.grad(model(scaled, GRAPH)[4, 1], scaled)
            total = total + (grad * x).sum(1) / steps
        assert_all_close([told.importance(1)], [total], 1e-3)  # 1 / steps^2, times a slope of some

    def test_of_a_linear_network_it_is_exact(self):
        """No attention, no activation: every step has the same gradient."""
        model = former(feature_map=lambda x: torch.ones_like(x[..., :1]), readout="sum", **LINEAR)
        told = Attributor(model, features(), GRAPH)(4)
        exact = explain(model, features(), GRAPH, 4)
        for cls in range(3):
            assert told.residual(cls) == pytest.approx(0, abs=1e-12)
            constant = Attributor(model, features(), GRAPH)(4).bias
            moved = exact.importance(cls).sum() - told.importance(cls).sum()
            assert moved == pytest.approx(float((constant - exact.bias)[cls]), abs=1e-10)

    def test_more_steps_are_taken_until_it_adds_up(self, monkeypatch):
        monkeypatch.setattr(attribution, "STEPS", (1,))
        rough = abs(self.of()[1].residual(0))
        monkeypatch.setattr(attribution, "STEPS", (1, 16, 64))
        assert abs(self.of()[1].residual(0)) < rough

    def test_levels_are_distances(self):
        path = Graph(torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]]), 8, self_loops=True)
        _, told = self.of(root=5, graph=path, transition="rw")  # hears what is at most 4 away
        assert {level.hop: level.nodes.tolist() for level in told.levels} == {
            0: [5],
            1: [4],
            2: [3],
            3: [2],
            4: [1],
        }
        assert told.walk(3, 2).nodes == [2, 3, 4, 5]
        assert told.importance(0)[[0, 6, 7]].tolist() == [0, 0, 0]
        assert (told.importance(0)[1:6] != 0).all()

    def test_global_attention_reaches_the_others(self):
        path = Graph(torch.tensor([[0, 1], [1, 2]]), 5, self_loops=True)
        _, told = self.of(root=2, graph=path, transition="rw", global_attention=True)
        assert told.level(GLOBAL).nodes.tolist() == [3, 4]
        assert told.level(GLOBAL).totals([0]).abs() > 0
        assert abs(told.residual(0)) <= 0.05 * float(told.importance(0).abs().sum())

    def test_what_is_named_and_the_rest_are_a_level(self):
        _, told = self.of()
        for level in told.levels:
            sources, rest = level.top(2, "contribution", 1, [1, 2])
            added = sum(source.contribution for source in sources) + rest.contribution
            assert_all_close([added], [level.totals([1, 2])], FLOAT64_ERROR)
            sizes = [abs(float(source.contribution[0, 0])) for source in sources]
            assert sizes == sorted(sizes, reverse=True)
            assert [source.attention.numel() for source in sources] == [0] * len(sources)
        with pytest.raises(ValueError, match="contributions are to a class"):
            told.levels[0].top(2)
        with pytest.raises(ValueError, match="there is no class 3"):
            told.levels[0].contributions(3)

    @pytest.mark.parametrize("projected", [False, True])
    def test_sparse_features_give_the_same(self, projected):
        x = features() * (features() > 0)
        model = former(input_projection=projected)
        dense, sparse = (explain(model, given, GRAPH, 4) for given in (x, x.to_sparse_csr()))
        assert_all_close([sparse.importance(0)], [dense.importance(0)], FLOAT64_ERROR)

    def test_edges_with_features_and_weights(self):
        edges = EDGES["directed-weighted"]
        model = former(edge_dim=3, transition="rw", self_loops=False)
        attr = torch.randn(edges.index.size(1), 3).double()
        x = torch.randn(edges.num_nodes, 5).double()
        how = {"edge_weight": edges.weight.double(), "edge_attr": attr}
        told = explain(model, x, edges.index, 4, **how)
        assert_all_close([told.logits], [model(x, edges.index, **how)[4]], FLOAT64_ERROR)
        assert abs(told.residual(0)) <= 0.05 * float(told.importance(0).abs().sum())

    def test_the_model_is_left_as_it_was(self):
        model = former(dropout=0.5).train()
        explain(model, features(), GRAPH, 4).importance(0)
        assert model.training
        assert all(parameter.requires_grad for parameter in model.parameters())
        assert all(parameter.grad is None for parameter in model.parameters())

    def test_a_root_that_is_none_is_refused(self):
        with pytest.raises(ValueError, match="root 20 is not a node"):
            explain(former(), features(), GRAPH, 20)
