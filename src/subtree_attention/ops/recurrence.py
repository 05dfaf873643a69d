"""The recurrence's formulas in torch: what walks, a step, the read-out, and its quotient.

The values get a column of ones, so that numerator and denominator of the attention travel
together: one sparse product per hop, no edge tensors, no powers of A. See README.md beside this
file for the derivation.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..compressed import CSR


def first_state(key: Tensor, value: Tensor) -> Tensor:
    """S_0 = k^T [v | 1]: [N, H, d], [N, H, c] -> [N, H, d, c + 1]."""
    return outer(key, with_ones(value))


def step(matrix: CSR, state: Tensor) -> Tensor:
    """One step of the walk, A S: a row [H, d, c + 1] for each column of A -> one for each row."""
    rows = matrix.rowptr.numel() - 1
    return product(matrix, state.flatten(1)).view(rows, *state.shape[1:])


def product(matrix: CSR, dense: Tensor) -> Tensor:
    """CSR times dense, [N, M] x [M, w] -> [N, w], the same bits every time.

    `embedding_bag` sums a row's neighbours in the order in which they are stored, on every device,
    where cuSPARSE's product may differ from call to call.
    """
    if dense.numel() == 0 or matrix.col.numel() == 0:
        return dense.new_zeros(matrix.rowptr.numel() - 1, dense.size(1))
    return F.embedding_bag(
        matrix.col,
        dense,
        matrix.rowptr,
        mode="sum",
        per_sample_weights=matrix.weight,
        include_last_offset=True,
    )


def read(query: Tensor, state: Tensor) -> Tensor:
    """The read-out q S: [N, H, d], [N, H, d, c + 1] -> [N, H, c + 1]."""
    return torch.matmul(query.unsqueeze(-2), state).squeeze(-2)


def quotient(readout: Tensor, eps: float, beta: Tensor | None = None) -> Tensor:
    """Numerator over denominator^beta, 0 where no walk arrives: [N, H, c + 1] -> [N, H, c].

    `beta` is that of the hop, [H]; None: 1.
    """
    return divide(readout[..., :-1], _raised_of(readout[..., -1:] + eps, beta))


def quotient_backward(
    grad: Tensor, readout: Tensor, eps: float, beta: Tensor | None = None
) -> Tensor:
    """The quotient rule: [N, H, c], [N, H, c + 1] -> [N, H, c + 1]."""
    denominator = readout[..., -1:] + eps
    raised_denominator = _raised_of(denominator, beta)
    grad_numerator = divide(grad, raised_denominator)
    level = divide(readout[..., :-1], raised_denominator)
    if beta is None:
        grad_denominator = (grad_numerator * level).sum(-1, keepdim=True)
    else:
        product = (grad * level).sum(-1, keepdim=True)
        grad_denominator = divide(beta[:, None] * product, denominator)
    return torch.cat([grad_numerator, -grad_denominator], dim=-1)


def beta_backward(grad: Tensor, readout: Tensor, eps: float, beta: Tensor) -> Tensor:
    """The gradient of a hop's beta: [N, H, c], [N, H, c + 1], [H] -> [H]."""
    product = (grad * quotient(readout, eps, beta)).sum(-1)
    size = (readout[..., -1] + eps).abs()
    return -(product * torch.where(size != 0, size, 1).log()).sum(0)


def raised(denominator: Tensor, beta: Tensor) -> Tensor:
    """|denominator|^beta with the denominator's sign; 1 for a beta of 0, and 0 where it is 0.

    With non-negative features and transitions there is no negative denominator. With others the
    sign is kept, so that a beta of 1 is the plain quotient and no other gives NaN, and a beta of 0
    leaves the numerator alone.
    """
    arrived = denominator != 0
    power = torch.where(arrived, denominator.abs(), 1) ** beta
    return torch.where(arrived, torch.where(beta == 0, 1, denominator.sign()) * power, 0)


def _raised_of(denominator: Tensor, beta: Tensor | None) -> Tensor:
    """Of a hop: [N, H, 1], [H] -> [N, H, 1]; of several: [K, N, H, 1], [K, 1, H]."""
    return denominator if beta is None else raised(denominator, beta.unsqueeze(-1))


def outer(left: Tensor, right: Tensor) -> Tensor:
    """[N, H, d], [N, H, e] -> [N, H, d, e]."""
    return left.unsqueeze(-1) * right.unsqueeze(-2)


def with_ones(value: Tensor) -> Tensor:
    """[N, H, c] -> [N, H, c + 1], the last column counts."""
    return F.pad(value, (0, 1), value=1.0)


def divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator / denominator, and 0 where the denominator is 0."""
    arrived = denominator != 0
    return torch.where(arrived, numerator / torch.where(arrived, denominator, 1), 0)
