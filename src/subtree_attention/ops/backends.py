"""The backend table of the operator, and the custom ops through which torch sees a backend.

A backend is two functions, forward and backward, and a reason why it cannot run somewhere. The
custom ops give every backend autograd, `torch.compile(fullgraph=True)` and autocast for free.
To add one: write the two functions, test them against `definition.py`, and add a line to
`BACKENDS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import _check
from ..graph import CSR, Graph
from . import cpu, cuda, recurrence
from .inputs import full_precision


@dataclass(frozen=True)
class Backend:
    """How subtree attention is computed. `query` and `key` are phi(q), phi(k) >= 0.

    Attributes:
        forward: `(query, key, value, hop_weights, matrix, hops, eps, kept)` -> `(out, kept)`.
            `query`, `key` [N, H, d], `value` [N, H, c], `hop_weights` [K + 1, H] or None,
            `matrix` the CSR of A. `out` is the weighted sum over hops [N, H, c], or all levels
            [K + 1, N, H, c] without weights. `kept` goes in as a shape and comes out as a tensor:
            what the backward pass needs, of the shape that `kept_shape` says; [0] for nothing.
        backward: `(grad, query, key, value, hop_weights, kept, matrix, transpose, hops, eps)`
            -> gradients of query, key, value and hop_weights (None without weights).
        refusal: `(device, dtype)` -> None if it can run there, otherwise why not.
        summary: one line for `sta info`.
        kept_shape: `(key, value, hops, num_edges)` -> the shape of `kept`; the read-outs
            [K, N, H, c + 1] unless a backend has a rule of its own.
    """

    forward: Callable[..., tuple[Tensor, Tensor]]
    backward: Callable[..., tuple[Tensor, Tensor, Tensor, Tensor | None]]
    refusal: Callable[[torch.device, torch.dtype], str | None]
    summary: str
    kept_shape: Callable[[Tensor, Tensor, int, int], tuple[int, ...]] = recurrence.readouts_shape


BACKENDS: dict[str, Backend] = {
    "cuda": Backend(
        cuda.forward,
        cuda.backward,
        cuda.refusal,
        "everything that is made of a row fused into the walk, compiled by NVRTC; NVIDIA GPU, "
        "float32 and float64",
        cuda.kept_shape,
    ),
    "numba": Backend(
        cpu.forward,
        cpu.backward,
        cpu.refusal,
        "read-outs fused into the walk, compiled by Numba; CPU, float32 and float64",
        cpu.kept_shape,
    ),
    "torch": Backend(
        recurrence.forward,
        recurrence.backward,
        lambda device, dtype: None,
        "one sparse product per hop in plain torch; any device, float32 and float64",
    ),
    "cuda-bf16": Backend(
        cuda.forward_bfloat16,
        cuda.backward_bfloat16,
        cuda.refusal_bfloat16,
        "as cuda, but the states between hops are rounded to bfloat16: half the traffic, errors "
        "of about 1e-3; only when asked for",
        cuda.kept_shape_bfloat16,
    ),
}


@torch.compiler.assume_constant_result
def choose(name: str, device: torch.device, dtype: torch.dtype) -> str:
    """The backend to run: `name`, or for "auto" the environment's `STA_BACKEND`, or the rule.

    The rule: the first backend of the table that does not refuse.
    """
    if name == "auto":
        name = os.environ.get("STA_BACKEND", "auto")
    _check.known("backend", name, ["auto", *BACKENDS])
    if name == "auto":
        return next(n for n, backend in BACKENDS.items() if not backend.refusal(device, dtype))
    reason = BACKENDS[name].refusal(device, dtype)
    if reason:
        raise ValueError(f"backend '{name}' cannot run here: {reason}")
    return name


def product(matrix: CSR, dense: Tensor) -> Tensor:
    """CSR times dense, [N, M] x [M, w] -> [N, w], the same bits every time; no gradient."""
    if cuda.refusal(dense.device, dense.dtype):
        return recurrence.product(matrix, dense)
    return cuda.product(matrix, dense)


def run(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    graph: Graph,
    hops: int,
    eps: float,
    backend: str,
) -> Tensor:
    """Run a backend under autograd; shapes as in `Backend`."""
    inputs = [query, key, value] if hop_weights is None else [query, key, value, hop_weights]
    training = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    shape = BACKENDS[backend].kept_shape
    kept = shape(key, value, hops, graph.num_edges) if training else (0,)
    # Before autograd saves them: a slice would keep alive all that it was cut from.
    query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    matrix, transpose = graph.matrix(value.dtype), graph.transpose(value.dtype)
    out, _ = _forward(
        query, key, value, hop_weights, *matrix, *transpose, hops, float(eps), kept, backend
    )
    return out


@torch.library.custom_op("subtree_attention::forward", mutates_args=())
def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    rowptr: Tensor,
    col: Tensor,
    weight: Tensor,
    rows: Tensor | None,
    pieces: Tensor | None,
    rowptr_t: Tensor,
    col_t: Tensor,
    weight_t: Tensor,
    rows_t: Tensor | None,
    pieces_t: Tensor | None,
    hops: int,
    eps: float,
    kept: Sequence[int],
    backend: str,
) -> tuple[Tensor, Tensor]:
    with full_precision(query):
        return BACKENDS[backend].forward(
            query.contiguous(),
            key.contiguous(),
            value.contiguous(),
            hop_weights,
            CSR(rowptr, col, weight, rows, pieces),
            hops,
            eps,
            kept,
        )


@_forward.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, hop_weights: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor]:
    hops, _, kept, _ = rest[-4:]
    levels = (hops + 1,) if hop_weights is None else ()
    out = value.new_empty(*levels, *value.shape)
    return out, value.new_empty(kept)


@torch.library.custom_op("subtree_attention::backward", mutates_args=())
def _backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    kept: Tensor,
    rowptr: Tensor,
    col: Tensor,
    weight: Tensor,
    rows: Tensor | None,
    pieces: Tensor | None,
    rowptr_t: Tensor,
    col_t: Tensor,
    weight_t: Tensor,
    rows_t: Tensor | None,
    pieces_t: Tensor | None,
    hops: int,
    eps: float,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    with full_precision(query):
        grads = BACKENDS[backend].backward(
            grad.contiguous(),
            query.contiguous(),
            key.contiguous(),
            value.contiguous(),
            hop_weights,
            kept,
            CSR(rowptr, col, weight, rows, pieces),
            CSR(rowptr_t, col_t, weight_t, rows_t, pieces_t),
            hops,
            eps,
        )
    return *grads[:3], grad.new_empty(0) if grads[3] is None else grads[3]


@_backward.register_fake
def _(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grad_weights = grad.new_empty(0 if hop_weights is None else hop_weights.shape)
    return (
        torch.empty_like(query, memory_format=torch.contiguous_format),
        torch.empty_like(key, memory_format=torch.contiguous_format),
        torch.empty_like(value, memory_format=torch.contiguous_format),
        grad_weights,
    )


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, hop_weights, *csrs, hops, eps, _, backend = inputs
    ctx.save_for_backward(query, key, value, hop_weights, output[1], *csrs)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # or autograd makes zeros as large as what is kept
    ctx.hops, ctx.eps, ctx.backend = hops, eps, backend


def _differentiate(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Any, ...]:
    if grad is None:  # nothing reaches the output
        return (None,) * 18
    *grads, grad_weights = _backward(grad, *ctx.saved_tensors, ctx.hops, ctx.eps, ctx.backend)
    return *grads, None if ctx.saved_tensors[3] is None else grad_weights, *[None] * 14


_forward.register_autograd(_differentiate, setup_context=_save_for_backward)


def _refuse_double_backward(ctx: Any, *grads: Any) -> None:
    raise RuntimeError(
        "subtree_attention has no double backward (gradients of gradients): use "
        "subtree_attention.ops.definition, which is plain torch, for small graphs"
    )


_backward.register_autograd(_refuse_double_backward)
