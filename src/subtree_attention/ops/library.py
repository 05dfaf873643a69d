"""The walk as torch sees it: under autograd, `torch.compile`, and modes that watch operators.

Where nobody watches, a plain autograd function calls the walk; elsewhere custom ops stand for it,
which cost the host more. Nothing in them asks the host: what a kernel must know of a graph is made
before and comes along as tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from ..graph import Graph
from ..partition import Shared
from . import walk
from .backends import BACKENDS
from .blocks import OnRanks
from .gates import gated
from .inputs import check_hop_shapes, full_precision, is_watched, joined
from .kernels import Kernel, Operands, Sizes


class Options(NamedTuple):
    """What is said of a call besides its tensors: see `subtree_attention`, `walk`, `Operands`."""

    hops: int
    eps: float
    backend: str
    states: str = "full"
    state_bytes: int | None = None
    phi: str = ""
    others: str = ""
    """Which inputs follow query, key and value: names of fields of `Operands`, in their order."""
    keep: int = walk.STATES_TOO
    """The most that may be kept; once it is settled, what is."""

    @property
    def kernel(self) -> type[Kernel]:
        return BACKENDS[self.backend]

    def sizes(self, key: Tensor, value: Tensor) -> Sizes:
        return Sizes.of(key, value, self.hops, walk.state_dtype(self.states, value.dtype))

    def operands(self, inputs: Sequence[Tensor]) -> Operands:
        dtype = walk.state_dtype(self.states, inputs[2].dtype)
        query, key, value, *rest = inputs
        others: dict[str, Any] = dict(zip(self.others.split(), rest, strict=True))
        return Operands(self.hops, self.eps, dtype, query, key, value, phi=self.phi, **others)


Matrices: TypeAlias = tuple[Sequence[Tensor], Sequence[Tensor]]
"""The tensors that a matrix and its transpose are made of; in inference there is no transpose."""


class Plan(NamedTuple):
    """All that a call needs besides its inputs: the same for the same graph, shapes and options.

    `forward` takes the inputs to the output and what is kept; `backward` takes the output's
    gradient, what is kept, and the inputs to their gradients.
    """

    options: Options
    matrices: Matrices
    forward: Callable[..., Any]
    backward: Callable[..., Any]
    alone: bool = True
    """Whether no other rank takes part."""

    @staticmethod
    def of(options: Options, matrices: Matrices, sizes: Sizes, shared: Shared | None) -> Plan:
        walkables, both = _walkables(options, matrices, shared), [*matrices[0], *matrices[1]]
        if shared is not None and not shared.mesh.heads.alone:
            agreed = sizes._replace(nodes=shared.most_nodes), shared.most_edges
            blocks = OnRanks(shared.mesh.heads, options, walkables, sizes, agreed)
            return Plan(options, matrices, blocks.forward, blocks.backward, alone=False)
        ways: list[Any] = [partial(way, options, walkables) for way in (_forward, _backward)]
        if options.state_bytes is None and shared is None:
            ways = [options.kernel.repeated(way, sizes, both) for way in ways]
        return Plan(options, matrices, ways[0], ways[1], shared is None)


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
    phi: str = "",
    gate: Tensor | None = None,
    beta: Tensor | None = None,
    keep: int = walk.STATES_TOO,
) -> Tensor:
    """Run a backend under autograd; shapes as in `Operands`, the result as in `walk.forward`."""
    check_hop_shapes(hop_weights, gate, beta, hops, value.size(1))
    whole = state_bytes is None and graph.shared is None  # or heads may be apart
    gates = BACKENDS[backend].gates and whole
    if gate is not None and hop_weights is not None and not gates:
        hop_weights, gate = gated(hop_weights, gate), None
    inputs, watched = [query, key, value], is_watched(value)
    apart = BACKENDS[backend].takes_rows_apart and not watched
    if not apart or joined(inputs) is None:
        # Before autograd saves them: a slice would keep alive all that it was cut from.
        inputs = [tensor.contiguous() for tensor in inputs]
    others = given(hop_weights=hop_weights, gate=gate, beta=beta)
    inputs += [tensor.contiguous() for tensor in others.values()]
    training = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    how = hops, float(eps), backend, states, state_bytes, phi, " ".join(others), keep
    options = Options(*how)
    if watched:
        _check_whole(graph)
        options, matrices = _settle(graph, options, key, value, training)
        return forward(inputs, *matrices, *options)[0]
    plan = plan_of(graph, options, inputs, training)
    return _Walk.apply(plan, *inputs) if training else plan.forward(*inputs)[0]


def given(**others: Tensor | None) -> dict[str, Tensor]:
    """Those of some inputs that are there; their names are `Options.others`."""
    return {name: tensor for name, tensor in others.items() if tensor is not None}


def plan_of(graph: Graph, options: Options, inputs: Sequence[Tensor], training: bool) -> Plan:
    """The plan of a call, made once for a graph and inputs of such shapes."""
    plans, (key, value) = graph.cached("plans", _no_plans), inputs[1:3]
    place = options, training, value.dtype, *[tensor.shape for tensor in inputs]
    if place not in plans:
        settled = _settle(graph, options, key, value, training)
        plans[place] = Plan.of(*settled, options.sizes(key, value), graph.shared)
    return plans[place]


def _check_whole(graph: Graph) -> None:
    """Refuse a part of a graph where operators are watched: an exchange of rows is none."""
    if graph.shared is not None:
        raise RuntimeError(
            "a part of a graph cannot be compiled, traced or transformed: its rows are exchanged "
            "with other ranks; call the model as it is"
        )


def _no_plans(graph: Graph) -> dict[Any, Plan]:
    return {}


def _settle(
    graph: Graph, options: Options, key: Tensor, value: Tensor, training: bool
) -> tuple[Options, Matrices]:
    """What is kept, and the tensors that the matrices are made of."""
    kernel, keep = options.kernel, walk.NOTHING
    if training and options.keep:
        sizes, num_edges = options.sizes(key, value), graph.num_edges
        if graph.shared is not None:  # the same on every rank, or they would not meet
            num_edges = graph.shared.most_edges
            sizes = sizes._replace(nodes=graph.shared.most_nodes)
        found = walk.what_to_keep(kernel, sizes, num_edges, options.state_bytes)
        keep = min(found, options.keep)
    return options._replace(keep=keep), kernel.matrices(graph, value.dtype, training)


def _walkables(
    options: Options, matrices: Matrices, shared: Shared | None = None
) -> list[walk.Walkable]:
    """The matrix, and its transpose if there is one."""
    found = [options.kernel.matrix(tensors) for tensors in matrices if tensors]
    if shared is None or shared.there is None:
        return [walk.Walkable(matrix) for matrix in found]
    exchanges: list[Any] = [shared.there, shared.back]
    return [
        walk.Walkable(matrix, exchange, shared.most_nodes)
        for matrix, exchange in zip(found, exchanges, strict=False)
    ]


def _forward(
    options: Options, walkables: Sequence[walk.Walkable], *inputs: Tensor
) -> tuple[Tensor, Tensor]:
    """The output, and what is kept."""
    operands, how = options.operands(inputs), (options.keep, options.state_bytes)
    return walk.forward(options.kernel, operands, walkables[0], *how)


def _backward(
    options: Options,
    walkables: Sequence[walk.Walkable],
    grad: Tensor,
    kept: Tensor,
    *inputs: Tensor,
) -> tuple[Tensor, ...]:
    """Gradients as of `walk.backward`."""
    operands, how = options.operands(inputs), (options.keep, options.state_bytes)
    matrix, transpose = walkables
    with full_precision(grad):  # of the thread that runs the backward pass
        return walk.backward(options.kernel, grad, operands, kept, matrix, transpose, *how)


class _Walk(torch.autograd.Function):
    """`_forward` and `_backward` where nobody watches."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, *inputs: Tensor) -> Tensor:
        out, kept = plan.forward(*inputs)
        ctx.save_for_backward(kept, *inputs)
        ctx.set_materialize_grads(False)  # or autograd makes zeros where nothing reaches the output
        ctx.plan = plan
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Any, ...]:
        return None, *_gradients(ctx, grad)


def _gradients(ctx: Any, grad: Tensor | None) -> Sequence[Tensor | None]:
    kept, *inputs = ctx.saved_tensors
    if grad is None:  # nothing reaches the output
        return [None] * len(inputs)
    if not ctx.plan.alone and torch.is_grad_enabled():
        refuse_double_backward(ctx)
    if ctx.plan.alone and (torch.is_grad_enabled() or is_watched(grad)):
        return backward(grad, inputs, kept, *ctx.plan.matrices, *ctx.plan.options)
    return ctx.plan.backward(grad.contiguous(), kept, *inputs)


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
    phi: str,
    others: str,
    keep: int,
) -> tuple[Tensor, Tensor]:
    """`walk.forward` of [query, key, value] and the others that `Options` names.

    The transpose comes along for the backward pass.
    """
    options = Options(hops, eps, backend, states, state_bytes, phi, others, keep)
    return _forward(options, _walkables(options, (matrix, transpose)), *inputs)


@forward.register_fake
def _(inputs: Sequence[Tensor], matrix: Any, transpose: Any, *settings: Any) -> Any:
    options, (key, value) = Options(*settings), inputs[1:3]
    levels = () if "hop_weights" in options.others.split() else (options.hops + 1,)
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
    phi: str,
    others: str,
    keep: int,
) -> list[Tensor]:
    """`walk.backward`: gradients of the inputs."""
    options = Options(hops, eps, backend, states, state_bytes, phi, others, keep)
    both = _walkables(options, (matrix, transpose))
    grads = _backward(options, both, grad.contiguous(), kept, *inputs)
    return [each.contiguous() for each in grads]  # no parts of one tensor


@backward.register_fake
def _(grad: Tensor, inputs: Sequence[Tensor], *_: Any) -> list[Tensor]:
    return [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in inputs]


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    tensors, matrix, transpose, *settings = inputs
    ctx.save_for_backward(output[1], *tensors, *matrix, *transpose)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # or autograd makes zeros as large as what is kept
    ctx.counts, ctx.options = (len(tensors), len(matrix)), Options(*settings)


def _differentiate(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Any, ...]:
    inputs, parts = ctx.counts
    kept, *saved = ctx.saved_tensors
    saved, matrices = saved[:inputs], saved[inputs:]
    grads: list[Tensor | None] = [None] * inputs  # where nothing reaches the output
    if grad is not None:
        both = matrices[:parts], matrices[parts:]
        grads = [*backward(grad, saved, kept, *both, *ctx.options)]
    no_matrix = [None] * parts  # nor a transpose, which has as many parts
    return grads, no_matrix, no_matrix, *[None] * len(ctx.options)


forward.register_autograd(_differentiate, setup_context=_save_for_backward)


def refuse_double_backward(ctx: Any, *grads: Any) -> None:
    """What stands for the gradient of a gradient."""
    raise RuntimeError(
        "subtree_attention has no double backward (gradients of gradients): use "
        "subtree_attention.ops.definition, which is plain torch, for small graphs"
    )


backward.register_autograd(refuse_double_backward)
