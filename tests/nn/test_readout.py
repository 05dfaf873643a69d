"""Read-outs of a layer: a mean, a sum, learned powers, or one's own; and what a sum contains."""

import copy

import pytest
import torch
from torch import Tensor, nn

from subtree_attention import STAGNN, STAConv
from subtree_attention.nn import Readout, parameter_groups
from subtree_attention.nn.readout import MeanReadout, PowerReadout, SumReadout
from subtree_attention.ops import definition
from tests.ops.cases import EDGES, FLOAT64_ERROR, assert_all_close

GRAPH = EDGES["undirected"].graph("sym", self_loops=True)
K, H = 3, 4


def alike(x: Tensor) -> Tensor:
    """A feature map for which all nodes are alike."""
    return torch.ones_like(x[..., :1])


def layer(**options) -> STAConv:
    torch.manual_seed(1)
    return STAConv(5, 8, **({"hops": K, "heads": H} | options)).double()


def features() -> Tensor:
    return torch.randn(GRAPH.num_nodes, 5, generator=torch.Generator().manual_seed(2)).double()


class Halves(Readout):
    """Every power is one half, by a parameter of another shape."""

    def __init__(self, hops: int, heads: int) -> None:
        super().__init__(hops, heads)
        self.logit = nn.Parameter(torch.zeros(()))

    def forward(self) -> Tensor:
        return torch.sigmoid(self.logit).expand(self.hops, self.heads)


class TestReadouts:
    def test_heads_are_spread_from_a_mean_to_a_sum(self):
        beta = PowerReadout(2, 5).beta
        torch.testing.assert_close(beta[1], torch.tensor([1.0, 0.75, 0.5, 0.25, 0.0]))
        assert torch.equal(beta[0], beta[1])
        assert PowerReadout(2, 1).beta.tolist() == [[0.5], [0.5]]

    def test_only_powers_are_learned_and_none_is_decayed(self):
        kinds = {"mean": MeanReadout, "sum": SumReadout, "power": PowerReadout}
        for name, kind in kinds.items():
            conv = layer(readout=name)
            assert type(conv.readout) is kind
            learned = [*conv.readout.parameters()]
            assert len(learned) == (name == "power")
            _, (*_, kept) = (group["params"] for group in parameter_groups(conv, 0.1))
            assert not learned or kept is learned[0]

    def test_a_sum_is_not_saved_and_a_power_is(self):
        assert not [key for key in layer(readout="sum").state_dict() if "readout" in key]
        assert "readout.beta" in layer(readout="power").state_dict()

    def test_the_default_has_what_it_had_before(self):
        assert layer(readout="mean").state_dict().keys() == layer().state_dict().keys()
        assert layer().readout() is None

    @pytest.mark.parametrize("name", ["sum", "power"])
    def test_reset(self, name):
        conv = layer(readout=name)
        before = conv.readout().clone()
        with torch.no_grad():
            conv.readout.beta.fill_(7)
        conv.reset_parameters()
        assert torch.equal(conv.readout(), before)

    def test_no_hops(self):
        conv = layer(hops=0, readout="power")
        assert conv.readout().shape == (0, H)
        assert conv(features(), GRAPH).shape == (GRAPH.num_nodes, 8)

    @pytest.mark.parametrize("aggregation", ["gpr", "concat", "attention"])
    def test_powers_learn_with_every_aggregation(self, aggregation):
        conv = layer(readout="power", aggregation=aggregation)
        conv(features(), GRAPH).square().sum().backward()
        assert (conv.readout.beta.grad != 0).all()

    def test_one_of_ones_own(self):
        conv, usual = layer(readout=Halves(K, H)), layer(readout="power")
        with torch.no_grad():
            usual.readout.beta.fill_(0.5)
        own = {name: p for name, p in usual.state_dict().items() if "readout" not in name}
        conv.load_state_dict(own, strict=False)
        out = conv(features(), GRAPH)
        assert_all_close([out], [usual(features(), GRAPH)], FLOAT64_ERROR)
        out.square().sum().backward()
        assert conv.readout.logit.grad != 0

    def test_it_is_copied_with_the_layer(self):
        conv = layer(readout="power")
        other = copy.deepcopy(conv)
        with torch.no_grad():
            other.readout.beta.zero_()
        x = features()
        assert not torch.allclose(conv(x, GRAPH), other(x, GRAPH))

    @pytest.mark.parametrize(
        ("readout", "kind", "message"),
        [
            ("largest", ValueError, "unknown readout 'largest'. Known: mean, sum, power"),
            ("powr", ValueError, "Did you mean 'power'"),
            (nn.Identity(), TypeError, "readout must be a name or a Readout, got Identity"),
            (PowerReadout(K, 2), ValueError, "was made for heads=2, but the layer has heads=4"),
            (PowerReadout(2, H), ValueError, "was made for hops=2, but the layer has hops=3"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, readout, kind, message):
        with pytest.raises(kind, match=message):
            layer(readout=readout)

    def test_powers_of_another_shape_are_refused(self):
        class Wrong(Halves):
            def forward(self):
                return torch.zeros(self.hops)

        with pytest.raises(ValueError, match=r"has powers \[3, 4\], this one gave \[3\]"):
            layer(readout=Wrong(K, H))


class TestAttentionWeights:
    @pytest.mark.parametrize("readout", ["sum", "power"])
    def test_along_edges_they_are_those_of_the_definition(self, readout):
        conv, x = layer(readout=readout), features()
        _, (edge_index, weights) = conv(x, GRAPH, return_attention_weights=True)
        query, key, _ = conv.project(x)
        similarity = definition.kernel_similarity(conv.feature_map)(query, key)
        dense = definition.attention_matrix(GRAPH.dense(), similarity, conv.eps, conv.power(1))
        source, target = edge_index
        found = torch.zeros_like(dense)  # to which parallel edges add up
        found.index_put_((torch.arange(H)[:, None], target, source), weights.t(), accumulate=True)
        assert_all_close([found], [dense], FLOAT64_ERROR)

    @pytest.mark.parametrize("hop", range(K + 1))
    def test_of_a_root_times_values_they_are_the_level(self, hop):
        conv, x = layer(readout="power", aggregation="concat", head_mix="linear"), features()
        query, key, value = conv.project(x)
        wanted = definition.subtree_attention(
            query,
            key,
            value,
            GRAPH.dense(),
            K,
            definition.kernel_similarity(conv.feature_map),
            conv.eps,
            conv.readout(),
        )[hop, 4]
        weights = conv.attention(x, GRAPH, 4, hop)
        assert_all_close([torch.einsum("nh,nhc->hc", weights, value)], [wanted], FLOAT64_ERROR)


class TestWhatASumContains:
    """With a constant feature map a level is A^k X W, whatever queries and keys are."""

    def conv(self, **options) -> STAConv:
        how = {"heads": 1, "feature_map": alike, "readout": "sum", "bias": False, "hops": 5}
        return layer(**(how | options))

    def powers(self, x: Tensor, conv: STAConv) -> list[Tensor]:
        """A^k X W for k = 0 .. K."""
        walked = [x @ conv.lin_value.weight.t()]
        for _ in range(conv.hops):
            walked.append(GRAPH.dense() @ walked[-1])
        return walked

    @pytest.mark.parametrize("eps", [0.0, 1e-3])
    def test_gpr_gnn(self, eps):
        conv, x = self.conv(eps=eps), features()
        alpha = torch.randn(6).double()  # as learned
        with torch.no_grad():
            conv.aggregation.alpha.copy_(alpha)
        wanted = sum(a * level for a, level in zip(alpha, self.powers(x, conv), strict=True))
        assert_all_close([conv(x, GRAPH)], [wanted], FLOAT64_ERROR)

    def test_sgc(self):
        conv, x = self.conv(), features()
        with torch.no_grad():
            conv.aggregation.alpha.zero_()[-1] = 1
        assert_all_close([conv(x, GRAPH)], [self.powers(x, conv)[-1]], FLOAT64_ERROR)

    def test_gcns_propagation(self):
        """One hop, symmetric with self-loops: the convolution of GCN, as PyG has it."""
        gcn = pytest.importorskip("torch_geometric.nn").GCNConv(5, 8, bias=False).double()
        conv, x = self.conv(hops=1), features()
        with torch.no_grad():
            conv.aggregation.alpha.copy_(torch.tensor([0.0, 1.0]))
            conv.lin_value.weight.copy_(gcn.lin.weight)
        edges = torch.unique(EDGES["undirected"].index, dim=1)
        edges = edges[:, edges[0] != edges[1]]
        graph = type(GRAPH)(edges, GRAPH.num_nodes, transition="sym", self_loops=True)
        assert_all_close([conv(x, graph)], [gcn(x, edges)], FLOAT64_ERROR)

    def test_the_gradient_is_that_of_the_plain_formula(self):
        conv, x = self.conv(), features()
        given = [conv.lin_value.weight, conv.aggregation.alpha]
        alpha = conv.aggregation.alpha
        plain = sum(a * level for a, level in zip(alpha, self.powers(x, conv), strict=True))
        found, wanted = (
            torch.autograd.grad(out.square().sum(), given) for out in (conv(x, GRAPH), plain)
        )
        assert_all_close([*found], [*wanted], FLOAT64_ERROR)

    def test_a_mean_of_it_is_over_the_walks(self):
        conv, x = self.conv(readout="mean", eps=0.0), features()
        with torch.no_grad():
            conv.aggregation.alpha.zero_()[-1] = 1
        power = torch.linalg.matrix_power(GRAPH.dense(), 5)
        wanted = power @ (x @ conv.lin_value.weight.t()) / power.sum(1, keepdim=True)
        assert_all_close([conv(x, GRAPH)], [wanted], FLOAT64_ERROR)


class TestUnderTorch:
    @pytest.mark.parametrize("readout", ["sum", "power"])
    @pytest.mark.parametrize("aggregation", ["gpr", "concat"])
    def test_compiled(self, readout, aggregation):
        torch._dynamo.reset()
        conv, x = layer(readout=readout, aggregation=aggregation), features()
        compiled = torch.compile(conv, fullgraph=True, backend="aot_eager")
        given = [*conv.parameters()]
        (found, *grads), (wanted, *right) = (
            (out, *torch.autograd.grad(out.square().sum(), given))
            for out in (compiled(x, GRAPH), conv(x, GRAPH))
        )
        assert_all_close([found, *grads], [wanted, *right], FLOAT64_ERROR)

    @pytest.mark.parametrize("readout", ["sum", "power"])
    def test_exported(self, readout):
        conv, x = layer(readout=readout, transition="sym", self_loops=True), features()
        edges = EDGES["undirected"].index
        program = torch.export.export(conv, (x, edges), strict=False)
        assert_all_close([program.module()(x, edges)], [conv(x, edges)], FLOAT64_ERROR)

    def test_a_model_takes_it(self):
        model = STAGNN(5, 8, 3, readout="power")
        assert any(p is model.conv.readout.beta for p in model.no_weight_decay())
