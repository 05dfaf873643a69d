"""The walk as torch sees it: under autograd, `torch.compile`, and modes that watch operators.

Where nobody watches, a plain autograd function calls the walk; elsewhere custom ops stand for it,
which cost the host more. Nothing in them asks the host: what a kernel must know of a graph is made
before and comes along as tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..graph import Graph
from . import walk
from .backends import BACKENDS
from .inputs import full_precision
from .kernels import Operands, Sizes


class Options(NamedTuple):
    """What is said of a call besides its tensors; see `subtree_attention` and `walk`."""

    hops: int
    eps: float
    backend: str
    states: str = "full"
    state_bytes: int | None = None
    keep: int = walk.NOTHING

    def sizes(self, key: Tensor, value: Tensor) -> Sizes:
        dtype = walk.state_dtype(self.states, value.dtype)
        return Sizes.of(key, value, self.hops, dtype)

    def operands(self, query: Tensor, key: Tensor, value: Tensor, weights: Any) -> Operands:
        dtype = walk.state_dtype(self.states, value.dtype)
        return Operands(query, key, value, weights, self.hops, self.eps, dtype)


def run(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    graph: Graph,
    hops: int,
    eps: float,
    backend: str,
    states: str = "full",
    state_bytes: int | None = None,
) -> Tensor:
    """Run a backend under autograd; shapes as in `Operands`, the result as in `walk.forward`."""
    inputs = [query, key, value] if hop_weights is None else [query, key, value, hop_weights]
    training = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    # Before autograd saves them: a slice would keep alive all that it was cut from.
    query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    kernel, options = BACKENDS[backend], Options(hops, float(eps), backend, states, state_bytes)
    if training:
        sizes = options.sizes(key, value)
        keep = walk.what_to_keep(kernel, sizes, graph.num_edges, state_bytes)
        options = options._replace(keep=keep)
    tensors = query, key, value, hop_weights, *kernel.matrices(graph, value.dtype, training)
    if _is_watched(value):
        return forward(*tensors, *options)[0]
    return _Walk.apply(*tensors, options)[0] if training else _forward(*tensors, options)[0]


def _is_watched(tensor: Tensor) -> bool:
    """Whether somebody wants to see operators: a compiler, a mode, a transform, other tensors."""
    return (
        torch.compiler.is_compiling()
        or type(tensor) is not Tensor
        or tensor.device.type not in ("cpu", "cuda")
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._are_functorch_transforms_active()
    )


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    matrix: Sequence[Tensor],
    transpose: Sequence[Tensor],
    options: Options,
) -> tuple[Tensor, Tensor]:
    kernel, operands = BACKENDS[options.backend], options.operands(query, key, value, hop_weights)
    walkable = walk.Walkable(kernel.matrix(matrix))
    return walk.forward(kernel, operands, walkable, options.keep, options.state_bytes)


def _backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    kept: Tensor,
    matrix: Sequence[Tensor],
    transpose: Sequence[Tensor],
    options: Options,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    kernel, operands = BACKENDS[options.backend], options.operands(query, key, value, hop_weights)
    both = walk.Walkable(kernel.matrix(matrix)), walk.Walkable(kernel.matrix(transpose))
    with full_precision(value):  # of the thread that runs the backward pass
        return walk.backward(
            kernel, grad.contiguous(), operands, kept, *both, options.keep, options.state_bytes
        )


# -------------------------------------------------------------------------- without an audience


class _Walk(torch.autograd.Function):
    """`_forward` and `_backward`."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        output = _forward(*inputs)
        _save(ctx, inputs, inputs[6], output[1])
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Any, ...]:
        return *_gradients(ctx, grad), None, None, None


def _save(ctx: Any, inputs: tuple[Any, ...], options: Options, kept: Tensor) -> None:
    matrix, transpose = inputs[4:6]
    ctx.save_for_backward(*inputs[:4], kept, *matrix, *transpose)
    ctx.mark_non_differentiable(kept)
    ctx.set_materialize_grads(False)  # or autograd makes zeros as large as what is kept
    ctx.length, ctx.options = len(matrix), options


def _gradients(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
    """Of query, key, value and hop weights."""
    if grad is None:  # nothing reaches the output
        return None, None, None, None
    query, key, value, hop_weights, kept, *matrices = ctx.saved_tensors
    matrix, transpose = matrices[: ctx.length], matrices[ctx.length :]
    tensors = grad, query, key, value, hop_weights, kept, matrix, transpose
    if not torch.is_grad_enabled() and not _is_watched(grad):
        return _backward(*tensors, ctx.options)
    *grads, grad_weights = backward(*tensors, *ctx.options)
    return *grads, None if hop_weights is None else grad_weights


# ----------------------------------------------------------------------------------- custom ops


@torch.library.custom_op("subtree_attention::forward", mutates_args=())
def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    matrix: Sequence[Tensor],
    transpose: Sequence[Tensor],
    hops: int,
    eps: float,
    backend: str,
    states: str,
    state_bytes: int | None,
    keep: int,
) -> tuple[Tensor, Tensor]:
    """`walk.forward`; the transpose comes along for the backward pass."""
    options = Options(hops, eps, backend, states, state_bytes, keep)
    return _forward(query, key, value, hop_weights, matrix, transpose, options)


@forward.register_fake
def _(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    matrix: Sequence[Tensor],
    transpose: Sequence[Tensor],
    *settings: Any,
) -> tuple[Tensor, Tensor]:
    options = Options(*settings)
    levels = (options.hops + 1,) if hop_weights is None else ()
    kernel, sizes = BACKENDS[options.backend], options.sizes(key, value)
    kept = walk.kept_numbers(kernel, sizes, options.keep, options.state_bytes)
    return value.new_empty(*levels, *value.shape), value.new_empty(kept)


@torch.library.custom_op("subtree_attention::backward", mutates_args=())
def backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    kept: Tensor,
    matrix: Sequence[Tensor],
    transpose: Sequence[Tensor],
    hops: int,
    eps: float,
    backend: str,
    states: str,
    state_bytes: int | None,
    keep: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`walk.backward`; empty gradients of hop weights where there are none."""
    options = Options(hops, eps, backend, states, state_bytes, keep)
    grads = _backward(grad, query, key, value, hop_weights, kept, matrix, transpose, options)
    return *grads[:3], grad.new_empty(0) if grads[3] is None else grads[3]


@backward.register_fake
def _(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, hop_weights: Tensor | None, *_: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grad_weights = grad.new_empty(0 if hop_weights is None else hop_weights.shape)
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), grad_weights


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _save(ctx, inputs, Options(*inputs[6:]), output[1])


def _differentiate(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Any, ...]:
    no_matrix = [None] * ctx.length  # nor a transpose, which has as many parts
    return *_gradients(ctx, grad), no_matrix, no_matrix, *[None] * len(ctx.options)


forward.register_autograd(_differentiate, setup_context=_save_for_backward)


def _refuse_double_backward(ctx: Any, *grads: Any) -> None:
    raise RuntimeError(
        "subtree_attention has no double backward (gradients of gradients): use "
        "subtree_attention.ops.definition, which is plain torch, for small graphs"
    )


backward.register_autograd(_refuse_double_backward)
