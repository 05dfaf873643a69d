r"""The torch backend: keys and key-value products walk, and each hop is read out by the queries.

The values get a column of ones, so that numerator and denominator of the attention travel
together: one sparse product per hop, no edge tensors, no powers of A. See README.md beside this
file for the derivation, and `backends.py` for the contract that these two functions fulfil.

It is deterministic on CPU and CUDA: `embedding_bag` sums a row's neighbours in the order in which
they are stored, where cuSPARSE's product may differ from call to call.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..graph import CSR


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    matrix: CSR,
    hops: int,
    eps: float,
    kept: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """Walk `hops` steps, read out after each: see `backends.Backend.forward`."""
    out, readouts = start(value, hop_weights, hops), value.new_empty(kept)
    state = first_state(key, value)
    for hop in range(1, hops + 1):
        state = step(matrix, state)
        readout = read(query, state)
        if readouts.numel():
            readouts[hop - 1] = readout
        level = quotient(readout, eps)
        if hop_weights is None:
            out[hop] = level
        else:
            out.addcmul_(level, hop_weights[hop, :, None])
    return out, readouts


def backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    readouts: Tensor,
    matrix: CSR,
    transpose: CSR,
    hops: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of query, key, value and hop weights: see `backends.Backend.backward`.

    The states are walked again instead of kept: first forwards for the queries, then the
    gradient walks back along the transposed graph for keys and values.
    """

    def grad_level(hop: int) -> Tensor:
        """The gradient of STA_hop, [N, H, c]."""
        return grad[hop] if hop_weights is None else grad * hop_weights[hop, :, None]

    def grad_readout(hop: int) -> Tensor:
        """dR_hop [N, H, c + 1]; formed when it is needed, so that it does not grow with K."""
        return quotient_backward(grad_level(hop), readouts[hop - 1], eps)

    grad_query = torch.zeros_like(query)
    state = first_state(key, value)
    for hop in range(1, hops + 1):
        state = step(matrix, state)
        grad_query += torch.matmul(state, grad_readout(hop).unsqueeze(-1)).squeeze(-1)
    del state

    grad_key, grad_value = torch.zeros_like(key), grad_level(0).clone()
    if hops:
        state = outer(query, grad_readout(hops))
        for hop in range(hops - 1, 0, -1):
            state = step(transpose, state)
            state.addcmul_(query.unsqueeze(-1), grad_readout(hop).unsqueeze(-2))
        state = step(transpose, state)
        grad_key = torch.matmul(state, with_ones(value).unsqueeze(-1)).squeeze(-1)
        grad_value += read(key, state)[..., :-1]

    if hop_weights is None:
        return grad_query, grad_key, grad_value, None
    grad_weights = [(grad * value).sum((0, 2))]
    grad_weights += [(grad * quotient(readout, eps)).sum((0, 2)) for readout in readouts]
    return grad_query, grad_key, grad_value, torch.stack(grad_weights)


def readouts_shape(key: Tensor, value: Tensor, hops: int, num_edges: int) -> tuple[int, ...]:
    """What training keeps: the read-outs, [K, N, H, c + 1]."""
    num_nodes, heads, channels = value.shape
    return (hops, num_nodes, heads, channels + 1)


def start(value: Tensor, hop_weights: Tensor | None, hops: int) -> Tensor:
    """The output with hop 0 in it; shape as in `Backend.forward`."""
    if hop_weights is not None:
        return value * hop_weights[0, :, None]
    out = value.new_empty(hops + 1, *value.shape)
    out[0] = value
    return out


def first_state(key: Tensor, value: Tensor) -> Tensor:
    """S_0 = k^T [v | 1]: [N, H, d], [N, H, c] -> [N, H, d, c + 1]."""
    return outer(key, with_ones(value))


def step(matrix: CSR, state: Tensor) -> Tensor:
    """One step of the walk, A S: [N, H, d, c + 1] -> the same."""
    return product(matrix, state.flatten(1)).view_as(state)


def product(matrix: CSR, dense: Tensor) -> Tensor:
    """CSR times dense, [N, M] x [M, w] -> [N, w], summed in stored order on every device."""
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
