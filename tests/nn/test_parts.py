"""Aggregations, gates and mixes handed in as modules: used as they are, or refused in words."""

import pytest
import torch
from torch import Tensor, nn

from subtree_attention import STAGNN, STAConv, explain
from subtree_attention.nn import HeadGate, HeadMix, HopAggregation
from subtree_attention.nn.aggregation import AGGREGATIONS, GPR, Sum
from subtree_attention.nn.heads import LinearMix, NoGate, PlainGate, SoftmaxGate, SumMix
from tests.ops.cases import EDGES, FLOAT64_ERROR, assert_all_close

GRAPH = EDGES["directed-weighted"].graph()
K, H, OUT = 3, 2, 4


class Halving(HopAggregation):
    """Hop k counts 2^-k."""

    def hop_weights(self) -> Tensor:
        return 0.5 ** torch.arange(self.hops + 1, dtype=torch.float64)[:, None]

    def forward(self, levels: Tensor) -> Tensor:
        raise AssertionError("a weighted sum is left to the operator")

    def per_level(self, mix: Tensor, levels: Tensor) -> Tensor:
        return self.hop_weights()[..., None, None] * mix


class Last(HopAggregation):
    """Only what is farthest away."""

    def hop_weights(self) -> None:
        return None

    def forward(self, levels: Tensor) -> Tensor:
        return levels[-1]

    def per_level(self, mix: Tensor, levels: Tensor) -> Tensor:
        none = torch.zeros_like(mix).expand(self.hops, *mix.shape)
        return torch.cat([none, mix[None]])


class FirstHead(HeadGate):
    """The other heads are not heard beyond hop 0."""

    def forward(self) -> Tensor:
        table = torch.ones(self.hops + 1, self.heads, dtype=torch.float64)
        table[1:, 1:] = 0
        return table


class Mean(HeadMix):
    """The mean of the heads."""

    def forward(self, heads: Tensor) -> Tensor:
        return heads.mean(1)


def layer(**options) -> STAConv:
    return STAConv(5, OUT, K, H, **{"value_channels": OUT, **options}).double()


def levels_of(conv: STAConv, x: Tensor) -> Tensor:
    """STA_0 .. STA_K, by a layer that only puts them side by side: [K + 1, N, H, c]."""
    side_by_side = layer(aggregation="concat", gate="none")
    side_by_side.load_state_dict(conv.state_dict(), strict=False)
    side_by_side.head_mix = nn.Identity()
    return side_by_side(x, GRAPH).unflatten(-1, (K + 1, OUT)).permute(2, 0, 1, 3)


@pytest.fixture
def x():
    return torch.randn(GRAPH.num_nodes, 5, dtype=torch.float64)


def test_modules_of_ones_own_are_used(x):
    aggregation, gate, mix = Halving(K, H, OUT), FirstHead(K, H), Mean(H, OUT, OUT)
    conv = layer(aggregation=aggregation, gate=gate, head_mix=mix)
    assert (conv.aggregation, conv.gate, conv.head_mix) == (aggregation, gate, mix)
    weights = 0.5 ** torch.arange(K + 1)[:, None] * gate()
    expected = (levels_of(conv, x) * weights[:, None, :, None]).sum(0).mean(1)
    assert_all_close([conv(x, GRAPH)], [expected], FLOAT64_ERROR)


def test_an_aggregation_that_needs_the_levels_gets_them_gated(x):
    conv = layer(aggregation=Last(K, H, OUT), gate=FirstHead(K, H), head_mix=Mean(H, OUT, OUT))
    assert_all_close([conv(x, GRAPH)], [levels_of(conv, x)[-1, :, 0] / H], FLOAT64_ERROR)


@pytest.mark.parametrize("aggregation", [Halving, Last])
def test_they_are_explained(x, aggregation):
    parts = {"aggregation": aggregation(K, H, OUT), "gate": FirstHead(K, H)}
    conv = layer(**parts, head_mix=Mean(H, OUT, OUT), global_attention=True)
    logits = conv(x, GRAPH)
    for root in range(GRAPH.num_nodes):
        assert_all_close([explain(conv, x, GRAPH, root).logits], [logits[root]], FLOAT64_ERROR)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_our_own_modules_are_what_their_names_mean(x, name):
    named, aggregation = layer(aggregation=name), AGGREGATIONS[name](K, H, OUT)
    mix = LinearMix(H, aggregation.width, OUT)
    given = layer(aggregation=aggregation, gate=SoftmaxGate(K, H), head_mix=mix)
    given.load_state_dict(named.state_dict())
    assert torch.equal(given(x, GRAPH), named(x, GRAPH))
    assert repr(given) == repr(named)


def test_what_names_leave_out_stays_where_it_is_handed_in():
    assert isinstance(STAConv(5, 4, K, 1, gate="softmax").gate, NoGate)
    assert isinstance(STAConv(5, 4, K, 1, gate=SoftmaxGate(K, 1)).gate, SoftmaxGate)
    assert isinstance(layer(aggregation="gpr", gate="plain").aggregation, Sum)
    assert isinstance(layer(aggregation="gpr", gate=PlainGate(K, H)).aggregation, GPR)
    assert isinstance(layer(aggregation=GPR(K, H, OUT), gate="plain").aggregation, GPR)


def test_stagnn_hands_them_on_and_does_not_decay_weights_of_hops():
    model = STAGNN(5, 8, OUT, K, H, aggregation=GPR(K, H, OUT), gate=PlainGate(K, H))
    kept = {id(p) for p in model.no_weight_decay()}
    names = {name for name, p in model.named_parameters() if id(p) in kept}
    assert names == {"conv.aggregation.alpha", "conv.gate.table"}


def test_summed_heads_are_as_wide_as_the_output_unless_said():
    assert STAConv(5, 6, K, H, head_mix=SumMix(H, 6, 6)).value_channels == 6


class TooShort(FirstHead):
    def forward(self) -> Tensor:
        return super().forward()[1:]


class WithoutHeads(Halving):
    def hop_weights(self) -> Tensor:
        return super().hop_weights()[:, 0]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"gate": SoftmaxGate(2, H)}, ValueError, r"gate \(SoftmaxGate\) .* hops=2, .* hops=3"),
        ({"gate": SoftmaxGate(K, 3)}, ValueError, "made for heads=3, but the layer has heads=2"),
        ({"gate": TooShort(K, H)}, ValueError, r"shape \[4, 2\], this one gave \[3, 2\]"),
        ({"gate": nn.Linear(2, 2)}, TypeError, "must be a name or a HeadGate, got Linear"),
        ({"gate": SoftmaxGate}, TypeError, "gate must be one of softmax, plain, none, got <class"),
        ({"aggregation": GPR(2, H, OUT)}, ValueError, r"aggregation \(GPR\) .* hops=2"),
        ({"aggregation": GPR(K, H, 3)}, ValueError, "channels=3, but the layer has channels=4"),
        ({"aggregation": WithoutHeads(K, H, OUT)}, ValueError, r"\[4, 1\] or \[4, 2\], .* \[4\]"),
        ({"aggregation": nn.ReLU()}, TypeError, "must be a name or a HopAggregation, got ReLU"),
        ({"head_mix": SumMix(H, 3, OUT)}, ValueError, "width=3, but the layer has width=4"),
        ({"head_mix": SumMix(H, OUT, 9)}, ValueError, "out_channels=9, but the layer has out_cha"),
        ({"head_mix": nn.ReLU()}, TypeError, "must be a name or a HeadMix, got ReLU"),
        ({"aggregation": "concat", "head_mix": SumMix(H, OUT, OUT)}, ValueError, "has width=16"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_does_not_fit_is_refused_in_words(options, error, message):
    with pytest.raises(error, match=message):
        layer(**options)
