"""Aggregation over hops and gates over heads, against formulas written out."""

import pytest
import torch

from subtree_attention.nn import aggregation, heads

K, N, H, C = 3, 6, 2, 4


@pytest.fixture
def levels():
    return torch.randn(K + 1, N, H, C, dtype=torch.float64)


def built(name: str, gate: str = "none", hops: int = K, heads: int = H):
    """Aggregation and gate with random parameters, in float64."""
    modules = aggregation.build(name, gate, hops, heads, C)
    for parameter in (p for module in modules for p in module.parameters()):
        torch.nn.init.normal_(parameter)
    return [module.double() for module in modules]


def gpr(levels, module):
    return sum(module.alpha[k] * levels[k] for k in range(K + 1))


def plain_sum(levels, module):
    return sum(levels)


def concat(levels, module):
    return torch.cat(list(levels), dim=-1)


def attention(levels, module):
    out = levels[0].clone()
    for node in range(N):
        for head in range(H):
            own = levels[0, node, head]
            scores = torch.stack(
                [torch.cat([own, levels[k, node, head]]) @ module.weight[head] for k in (1, 2, 3)]
            )
            beta = scores.exp() / scores.exp().sum()
            out[node, head] += sum(beta[k - 1] * levels[k, node, head] for k in (1, 2, 3))
    return out


FORMULAS = {"gpr": gpr, "sum": plain_sum, "concat": concat, "attention": attention}


def test_every_aggregation_has_a_formula_here():
    assert FORMULAS.keys() == aggregation.AGGREGATIONS.keys()


@pytest.mark.parametrize("name", FORMULAS)
def test_aggregations_equal_their_formula(name, levels):
    module, _ = built(name)
    out = module(levels)
    assert out.shape == (N, H, module.width)
    torch.testing.assert_close(out, FORMULAS[name](levels, module))  # float64 defaults


@pytest.mark.parametrize("name", FORMULAS)
def test_without_hops_only_the_value_is_left(name, levels):
    module, gate = built(name, "softmax", hops=0)
    scale = module.alpha[0] if name == "gpr" else 1
    torch.testing.assert_close(module(levels[:1] * gate()[:, None, :, None]), levels[0] * scale)


def test_only_weighted_sums_have_hop_weights():
    kinds = {name: built(name)[0].hop_weights() is not None for name in FORMULAS}
    assert kinds == {"gpr": True, "sum": True, "concat": False, "attention": False}


def test_the_softmax_gate_shares_each_hop_among_heads_and_leaves_hop_zero():
    _, gate = built("gpr", "softmax")
    table = gate()
    assert table.shape == (K + 1, H)
    assert torch.equal(table[0], torch.ones(H, dtype=torch.float64))
    torch.testing.assert_close(table[1:], gate.logits.exp() / gate.logits.exp().sum(1, True))


def test_the_plain_gate_is_a_free_table_with_hop_zero():
    _, gate = built("gpr", "plain")
    assert torch.equal(gate(), gate.table)
    assert gate.table.shape == (K + 1, H)


def test_no_gate_is_ones_without_parameters():
    _, gate = built("gpr", "none")
    assert (gate() == 1).all()
    assert not list(gate.parameters())
    assert not gate.state_dict()


def test_the_plain_gate_takes_the_place_of_alpha():
    module, _ = aggregation.build("gpr", "plain", K, H, C)
    assert not list(module.parameters())


@pytest.mark.parametrize("gate", heads.GATES)
def test_one_head_has_no_gate_but_keeps_alpha(gate):
    module, gate = aggregation.build("gpr", gate, K, 1, C)
    assert isinstance(gate, heads.NoGate)
    assert module.alpha.shape == (K + 1,)


@pytest.mark.parametrize(("gate", "start"), [("softmax", 1 / H), ("plain", 1.0), ("none", 1.0)])
def test_initial_values_and_reset(gate, start):
    modules = aggregation.build("gpr", gate, K, H, C)
    for _ in range(2):
        weights = modules[0].hop_weights() * modules[1]()
        torch.testing.assert_close(weights[1:], torch.full((K, H), start))
        torch.testing.assert_close(weights[0], torch.ones(H))
        for module in modules:
            for parameter in module.parameters():
                torch.nn.init.normal_(parameter)
            module.reset_parameters()


def test_reset_draws_the_attention_readout_anew():
    module, _ = built("attention")
    before = module.weight.detach().clone()
    module.reset_parameters()
    assert not torch.equal(module.weight, before)


@pytest.mark.parametrize(
    ("name", "gate", "message"),
    [
        ("gpt", "none", "unknown aggregation 'gpt'. Did you mean 'gpr'"),
        ("gpr", "sotfmax", "unknown gate 'sotfmax'. Did you mean 'softmax'"),
    ],
)
def test_unknown_names_come_with_a_suggestion(name, gate, message):
    with pytest.raises(ValueError, match=message):
        aggregation.build(name, gate, K, H, C)
