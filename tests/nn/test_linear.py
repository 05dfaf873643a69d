"""The linear map: PyG's initial values, and channels that come with the first x."""

import copy
import io

import pytest
import torch
from torch_geometric import nn as pyg

from subtree_attention import STAGNN, STAConv
from subtree_attention.nn import Linear, project
from tests.ops.cases import EDGES

GRAPH = EDGES["directed"].graph()


def drawn(make) -> dict[str, torch.Tensor]:
    torch.manual_seed(7)
    return make().state_dict()


@pytest.mark.parametrize("channels", [(1, 1), (5, 3), (64, 10), (1433, 64)])
@pytest.mark.parametrize("bias", [True, False])
def test_initial_values_are_those_of_pyg(channels, bias):
    ours = drawn(lambda: Linear(*channels, bias=bias))
    theirs = drawn(lambda: pyg.Linear(*channels, bias=bias))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def after_a_call(linear: torch.nn.Module) -> torch.nn.Module:
    linear(torch.ones(2, 5))
    return linear


def test_initial_values_of_a_lazy_map_are_those_of_pyg():
    ours = drawn(lambda: after_a_call(Linear(-1, 3)))
    theirs = drawn(lambda: after_a_call(pyg.Linear(-1, 3)))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert repr(after_a_call(Linear(-1, 3))) == "Linear(5, 3, bias=True)"


def test_reset_draws_again_and_leaves_a_lazy_map_lazy():
    lazy = Linear(-1, 3)
    lazy.reset_parameters()
    assert lazy.in_channels == -1
    linear = after_a_call(lazy)
    before = {name: value.clone() for name, value in linear.state_dict().items()}
    linear.reset_parameters()
    assert not any(torch.equal(value, before[name]) for name, value in linear.state_dict().items())


def saved(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The state as a file brings it back."""
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("make", [lambda c: STAConv(c, 4), lambda c: STAGNN(c, 8, 4)])
class TestLazyLayer:
    def test_a_copy_is_lazy_on_its_own(self, make):
        layer = make(-1)
        copied = copy.deepcopy(layer)
        assert copied(torch.randn(11, 5), GRAPH).shape == (11, 4)
        assert layer(torch.randn(11, 6), GRAPH).shape == (11, 4)

    def test_its_state_is_that_of_a_lazy_layer(self, make):
        other = make(-1)
        other.load_state_dict(saved(make(-1)))
        assert other(torch.randn(11, 5), GRAPH).shape == (11, 4)

    def test_it_takes_its_channels_from_a_state_and_draws_nothing(self, make):
        layer, lazy = make(6), make(-1)
        before = torch.get_rng_state()
        lazy.load_state_dict(saved(layer))
        assert torch.equal(torch.get_rng_state(), before)
        x = torch.randn(11, 6)
        assert torch.equal(lazy(x, GRAPH), layer(x, GRAPH))

    def test_a_layer_becomes_lazy_by_the_state_of_one(self, make):
        layer = make(6)
        layer.load_state_dict(saved(make(-1)))
        assert layer(torch.randn(11, 5), GRAPH).shape == (11, 4)

    def test_it_moves_to_another_precision(self, make):
        assert make(-1).double()(torch.randn(11, 5).double(), GRAPH).dtype == torch.float64


def test_gradients_may_lie_in_any_order():
    """Also heads and channels swapped, which starts and strides like the rows of one tensor."""
    torch.manual_seed(0)
    lin, x, w = Linear(8, 16), torch.randn(30, 8), torch.randn(30, 4, 4)
    found = []
    for head in (project(x, 4, lin)[0], lin(x).unflatten(-1, (4, -1))):
        total = torch.einsum("nhd,ndh->n", head, w).sum()
        found.append(torch.autograd.grad(total, [lin.weight, lin.bias]))
    for joint, alone in zip(*found, strict=True):
        torch.testing.assert_close(joint, alone)
