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
from .kernels import Kernel, Operands, Sizes


class Options(NamedTuple):
    """What is said of a call besides its tensors; see `subtree_attention` and `walk`."""

    hops: int
    eps: float
    backend: str
    states: str = "full"
    state_bytes: int | None = None
    keep: int = walk.NOTHING

    @property
    def kernel(self) -> type[Kernel]:
        return BACKENDS[self.backend]

    def sizes(self, key: Tensor, value: Tensor) -> Sizes:
        return Sizes.of(key, value, self.hops, walk.state_dtype(self.states, value.dtype))

    def operands(self, inputs: Sequence[Tensor]) -> Operands:
        dtype = walk.state_dtype(self.states, inputs[2].dtype)
        return Operands(self.hops, self.eps, dtype, *inputs)


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
    # Contiguous before autograd saves them: a slice would keep alive all that it was cut from.
    inputs = [query.contiguous(), key.contiguous(), value.contiguous()]
    inputs += [] if hop_weights is None else [hop_weights]
    training = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    options = Options(hops, float(eps), backend, states, state_bytes)
    if training:
        sizes = options.sizes(*inputs[1:3])
        keep = walk.what_to_keep(options.kernel, sizes, graph.num_edges, state_bytes)
        options = options._replace(keep=keep)
    matrices = options.kernel.matrices(graph, value.dtype, training)
    if _is_watched(value):
        return forward(inputs, *matrices, *options)[0]
    if not training:
        return _forward(inputs, matrices[0], options)[0]
    return _Walk.apply(*matrices, options, *inputs)[0]


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
    inputs: Sequence[Tensor], matrix: Sequence[Tensor], options: Options
) -> tuple[Tensor, Tensor]:
    kernel, walkable = options.kernel, walk.Walkable(options.kernel.matrix(matrix))
    how = walkable, options.keep, options.state_bytes
    return walk.forward(kernel, options.operands(inputs), *how)


def _backward(
    grad: Tensor,
    inputs: Sequence[Tensor],
    kept: Tensor,
    matrix: Sequence[Tensor],
    transpose: Sequence[Tensor],
    options: Options,
) -> list[Tensor]:
    """Gradients of the inputs."""
    kernel, operands = options.kernel, options.operands(inputs)
    both = walk.Walkable(kernel.matrix(matrix)), walk.Walkable(kernel.matrix(transpose))
    how = kept, *both, options.keep, options.state_bytes
    with full_precision(grad):  # of the thread that runs the backward pass
        grads = walk.backward(kernel, grad.contiguous(), operands, *how)
    return [each for each in grads if each is not None]


class _Walk(torch.autograd.Function):
    """`_forward` and `_backward` where nobody watches."""

    @staticmethod
    def forward(
        ctx: Any, matrix: Any, transpose: Any, options: Options, *inputs: Tensor
    ) -> tuple[Tensor, Tensor]:
        out, kept = _forward(inputs, matrix, options)
        _save(ctx, inputs, matrix, transpose, options, kept)
        return out, kept

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Any, ...]:
        return None, None, None, *_gradients(ctx, grad)


def _save(
    ctx: Any, inputs: Any, matrix: Any, transpose: Any, options: Options, kept: Tensor
) -> None:
    ctx.save_for_backward(kept, *inputs, *matrix, *transpose)
    ctx.mark_non_differentiable(kept)
    ctx.set_materialize_grads(False)  # or autograd makes zeros as large as what is kept
    ctx.counts, ctx.options = (len(inputs), len(matrix)), options


def _gradients(ctx: Any, grad: Tensor | None) -> Sequence[Tensor | None]:
    inputs, matrix = ctx.counts
    if grad is None:  # nothing reaches the output
        return [None] * inputs
    kept, *saved = ctx.saved_tensors
    inputs, matrices = saved[:inputs], saved[inputs:]
    tensors = grad, inputs, kept, matrices[:matrix], matrices[matrix:]
    if torch.is_grad_enabled() or _is_watched(grad):
        return backward(*tensors, *ctx.options)
    return _backward(*tensors, ctx.options)


# ----------------------------------------------------------------------------------- custom ops


@torch.library.custom_op("subtree_attention::forward", mutates_args=())
def forward(
    inputs: Sequence[Tensor],
    matrix: Sequence[Tensor],
    transpose: Sequence[Tensor],
    hops: int,
    eps: float,
    backend: str,
    states: str,
    state_bytes: int | None,
    keep: int,
) -> tuple[Tensor, Tensor]:
    """`walk.forward` of [query, key, value] or [query, key, value, hop weights].

    The transpose comes along for the backward pass.
    """
    return _forward(inputs, matrix, Options(hops, eps, backend, states, state_bytes, keep))


@forward.register_fake
def _(inputs: Sequence[Tensor], matrix: Any, transpose: Any, *settings: Any) -> Any:
    options, (key, value) = Options(*settings), inputs[1:3]
    levels = (options.hops + 1,) if len(inputs) == 3 else ()
    how = options.sizes(key, value), options.keep, options.state_bytes
    kept = walk.kept_numbers(options.kernel, *how)
    return value.new_empty(*levels, *value.shape), value.new_empty(kept)


@torch.library.custom_op("subtree_attention::backward", mutates_args=())
def backward(
    grad: Tensor,
    inputs: Sequence[Tensor],
    kept: Tensor,
    matrix: Sequence[Tensor],
    transpose: Sequence[Tensor],
    hops: int,
    eps: float,
    backend: str,
    states: str,
    state_bytes: int | None,
    keep: int,
) -> list[Tensor]:
    """`walk.backward`: gradients of the inputs."""
    options = Options(hops, eps, backend, states, state_bytes, keep)
    return _backward(grad, inputs, kept, matrix, transpose, options)


@backward.register_fake
def _(grad: Tensor, inputs: Sequence[Tensor], *_: Any) -> list[Tensor]:
    return [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in inputs]


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    tensors, matrix, transpose, *settings = inputs
    _save(ctx, tensors, matrix, transpose, Options(*settings), output[1])


def _differentiate(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Any, ...]:
    no_matrix = [None] * ctx.counts[1]  # nor a transpose, which has as many parts
    return list(_gradients(ctx, grad)), no_matrix, no_matrix, *[None] * len(ctx.options)


forward.register_autograd(_differentiate, setup_context=_save_for_backward)


def _refuse_double_backward(ctx: Any, *grads: Any) -> None:
    raise RuntimeError(
        "subtree_attention has no double backward (gradients of gradients): use "
        "subtree_attention.ops.definition, which is plain torch, for small graphs"
    )


backward.register_autograd(_refuse_double_backward)
