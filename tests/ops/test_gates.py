"""Hop weights of gated heads, by kernels of their own on a GPU."""

import pytest
import torch

from subtree_attention import ops


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize(("hops", "heads"), [(0, 3), (1, 1), (3, 4), (200, 5)])
def test_a_weight_times_a_share(hops, heads, each, device):
    random = torch.Generator().manual_seed(hops)
    weights = torch.randn(hops + 1, heads if each else 1, generator=random).double().to(device)
    logits = (5 * torch.randn(hops, heads, generator=random)).double().to(device)
    given = weights.requires_grad_(), logits.requires_grad_()
    table = ops.gated(*given)
    wanted = weights[1:] * torch.softmax(logits, dim=-1)
    torch.testing.assert_close(table[1:], wanted)
    torch.testing.assert_close(table[0], weights[0].expand(heads))
    grad = torch.randn(table.shape, generator=random).double().to(device)
    got = torch.autograd.grad(table, given, grad)
    summed = torch.cat([weights[:1].expand(1, heads), wanted])
    for one, right in zip(got, torch.autograd.grad(summed, given, grad), strict=True):
        torch.testing.assert_close(one, right)


def test_gradients_of_gradients_are_not_made_up(device):
    weights = torch.ones(3, 1, device=device, requires_grad=True)
    logits = torch.zeros(2, 4, device=device, requires_grad=True)
    table = ops.gated(weights, logits)
    if device == "cpu":
        (grad,) = torch.autograd.grad(table.square().sum(), weights, create_graph=True)
        assert grad.requires_grad
    else:
        with pytest.raises(RuntimeError, match="double backward"):
            torch.autograd.grad(table.square().sum(), weights, create_graph=True)
