"""The recurrence's formulas in torch: what walks, a step, the read-out, and its quotient.

The values get a column of ones, so that numerator and denominator of the attention travel
together: one sparse product per hop, no edge tensors, no powers of A. See README.md beside this
file for the derivation.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..graph import CSR


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


def quotient(readout: Tensor, eps: float) -> Tensor:
    """Numerator over denominator, 0 where no walk arrives: [N, H, c + 1] -> [N, H, c]."""
    return divide(readout[..., :-1], readout[..., -1:] + eps)


def quotient_backward(grad: Tensor, readout: Tensor, eps: float) -> Tensor:
    """The quotient rule: [N, H, c], [N, H, c + 1] -> [N, H, c + 1]."""
    denominator = readout[..., -1:] + eps
    grad_numerator = divide(grad, denominator)
    level = divide(readout[..., :-1], denominator)
    return torch.cat([grad_numerator, -(grad_numerator * level).sum(-1, keepdim=True)], dim=-1)


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
