"""The walk with entries of its own for every edge and head: gated edges, and weights that learn.

The gradient of an entry is what comes back to its target times what walks at its source, over all
hops:

    d entries[e, h] = sum_m <G_m[target(e), h], S_(m-1)[source(e), h]>

so the backward pass needs both at a time. A single hop needs no states: S_0 and G_1 have rank one,
and the products are of vectors, along edges. The walk gives read-outs; quotients are torch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _check, feature_maps
from ..graph import Graph
from . import backends, exported, recurrence, walk
from .inputs import full_precision, is_watched
from .kernels import Sizes
from .kernels.edges import Apart, CudaSteps, NumbaSteps, Steps
from .library import Matrices, refuse_double_backward

STEPS: dict[str, type[Steps]] = {"cuda": CudaSteps, "numba": NumbaSteps, "torch": Steps}
"""By backend."""

KEPT_BYTES = 2**28
"""Training keeps the states if they take no more bytes than these; otherwise they walk again."""


def check_entries(entries: Any, graph: Graph, heads: int) -> Tensor:
    """Entries as [E, H], or [E, 1] for all heads."""
    _check.floating("entries", entries)
    edges = graph.num_edges
    if entries.shape not in ((edges,), (edges, 1), (edges, heads)):
        raise ValueError(
            f"entries must have shape [{edges}] or [{edges}, {heads}], one for each edge of the "
            f"graph (and head), got {_check.shape(entries)}"
        )
    if entries.device != graph.device:
        raise ValueError(f"entries are on {entries.device}, but the graph is on {graph.device}")
    return entries if entries.dim() == 2 else entries.unsqueeze(1)


def check_way(feature_map: Any, states: str) -> None:
    """Refuse what a walk with entries does not do."""
    if feature_maps.is_softmax(feature_map):
        raise ValueError(
            "feature_map='softmax' knows one transition matrix for all heads, and constant: with "
            "entries, edge features or edge weights that learn, use SoftmaxFeatures or another map"
        )
    if states != "full":
        raise ValueError(f"with entries of edges states are not rounded: not states='{states}'")


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    graph: Graph,
    hops: int,
    eps: float,
    beta: Tensor | None,
    entries: Tensor,
    backend: str,
    state_bytes: int | None = None,
) -> Tensor:
    """All levels [K + 1, N, H, c], or their weighted sum [N, H, c].

    Args:
        query: phi(q), `[N, H, d]`.
        key: phi(k), `[N, H, d]`.
        value: `[N, H, c]`
        hop_weights: `[K + 1, H]` or None.
        beta: `[K, H]` or None.
        entries: `[E, H]`, or `[E, 1]` for all heads, in the order of the graph's edges.
        graph, hops, eps, backend, state_bytes: as in `subtree_attention`.
    """
    if exported.asked_for():
        return exported.walk(query, key, value, hop_weights, graph, hops, eps, beta, entries)
    backend, levels = backends.choose(backend, value.device, value.dtype), value[None]
    if hops:
        ones, power = recurrence.with_ones(value), None if beta is None else beta[:, None]
        readouts = _in_parts(query, key, ones, entries, graph, hops, backend, state_bytes)
        levels = torch.cat([levels, recurrence.quotient(readouts, eps, power)])
    if hop_weights is None:
        return levels
    return (levels * hop_weights[:, None, :, None]).sum(0)


def _in_parts(
    query: Tensor,
    key: Tensor,
    ones: Tensor,
    entries: Tensor,
    graph: Graph,
    hops: int,
    backend: str,
    state_bytes: int | None,
) -> Tensor:
    """`read_outs`, of some heads and columns after others where states are bounded."""
    cut = walk.parts(Sizes.of(key, ones, hops, ones.dtype), state_bytes)
    if len(cut) == 1:
        return read_outs(query, key, ones, entries, graph, hops, backend)
    by_head: dict[int, list[Tensor]] = {}
    for heads, columns in cut:
        own = entries if entries.size(1) == 1 else entries[:, heads]
        parts = query[:, heads], key[:, heads], ones[:, heads, columns], own
        found = read_outs(*parts, graph, hops, backend, keep=False)
        by_head.setdefault(heads.start, []).append(found)
    return torch.cat([torch.cat(columns, -1) for columns in by_head.values()], 2)


def arrivals(graph: Graph, root: int, hop: int, entries: Tensor) -> Tensor:
    """Row `root` of A^hop with entries [E, g], of each of its matrices: -> [N, g]."""
    reached = entries.new_zeros(graph.num_nodes, entries.size(1))
    reached[root] = 1
    back = Steps(Apart.of(graph, entries.size(1), transpose=True), entries)
    for _ in range(hop):
        reached = back.walk(reached)
    return reached


# ------------------------------------------------------------------------------------ the walk


class Options(NamedTuple):
    """What is said of a walk besides its tensors; `keep`: whether states are kept."""

    hops: int
    backend: str
    keep: bool

    def kept_shape(self, query: Tensor, ones: Tensor) -> tuple[int, ...]:
        """Of the states that are kept, [K, N, H, e, d]; of one hop, scores along edges [E, H]."""
        return (self.hops if self.keep else 0, *ones.shape, query.size(2))

    def steps(self, tensors: Sequence[Tensor], entries: Tensor) -> Steps:
        """The steps along a matrix of these tensors."""
        return STEPS[self.backend](Apart(*tensors), entries)


def read_outs(
    query: Tensor,
    key: Tensor,
    ones: Tensor,
    entries: Tensor,
    graph: Graph,
    hops: int,
    backend: str,
    keep: bool = True,
) -> Tensor:
    """R_1 .. R_K under autograd: [N, H, d], [N, H, d], [N, H, e], [E, g] -> [K, N, H, e].

    Args:
        query: phi(q)
        key: phi(k)
        ones: the values, with the column of ones.
        entries: for each edge and head, or `[E, 1]`.
        graph: to walk on.
        hops: K >= 1.
        backend: a name of `backends.BACKENDS`.
        keep: whether states may be kept for the backward pass, where they are small.
    """
    if hops == 1:  # along edges, where every head has a score of its own
        entries = entries.expand(-1, query.size(1))
    inputs = [tensor.contiguous() for tensor in (query, key, ones, entries)]
    training = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    states = hops * ones.numel() * query.size(2) * ones.element_size()
    options = Options(hops, backend, keep and training and hops > 1 and states <= KEPT_BYTES)
    matrices = _matrices(graph, entries.size(1), training)
    if is_watched(ones):
        return forward(inputs, *matrices, *options)[0]
    if training:
        return _Walk.apply(options, matrices, *inputs)
    return _forward(options, matrices[0], inputs)[0]


def _matrices(graph: Graph, groups: int, both: bool) -> Matrices:
    """The tensors that `Apart` is made of, and those of the transpose if both are asked for."""
    found: list[list[Tensor]] = []
    for transpose in (False, True)[: 1 + both]:
        make = partial(Apart.of, groups=groups, transpose=transpose)
        apart = graph.cached(("edges apart", groups, transpose), make)
        found.append([tensor for tensor in apart if tensor is not None])
    return found[0], found[1] if both else []


def _forward(
    options: Options, matrix: Sequence[Tensor], inputs: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """The read-outs [K, N, H, e], and what is kept for the gradient, flat."""
    query, key, ones, entries = inputs
    steps = options.steps(matrix, entries)
    if options.hops == 1:
        scores, readout = steps.sum_along_edges(query, key, ones)
        return readout[None], scores
    readouts = ones.new_empty(options.hops, *ones.shape)
    kept = steps.empty(*options.kept_shape(query, ones))
    state = steps.outer(ones, key)
    for hop in range(options.hops):
        new = kept[hop] if options.keep else steps.empty(*state.shape)
        steps.walk_and_read(state, query, readouts[hop], new)
        state = new
    return readouts, kept.flatten()


def _backward(
    options: Options, matrices: Matrices, grad: Tensor, kept: Tensor, inputs: Sequence[Tensor]
) -> list[Tensor]:
    """Gradients of the inputs, from that of the read-outs."""
    query, key, ones, entries = inputs
    forth, back = (options.steps(each, entries) for each in matrices)
    if options.hops == 1:
        return _backward_once(forth, back, grad[0], kept, inputs)
    first = forth.outer(ones, key)
    if options.keep:
        states = iter([first, *kept.view(options.kept_shape(query, ones))][::-1])
    else:
        states = _backwards(first, forth.walk, options.hops)
    grad_query, products = torch.zeros_like(query), torch.zeros_like(back.weight)
    gradient = back.turn(next(states), (query, grad[-1], grad_query))
    for hop in range(options.hops - 2, -1, -1):
        ends = query, grad[hop], grad_query
        gradient = back.walk_back(gradient, next(states), products, ends)
    grad_key, grad_ones = back.walk_home(gradient, next(states), products, key, ones)
    return [grad_query, grad_key, grad_ones, back.apart.put_back(products, entries)]


def _backwards(first: Tensor, step: Callable[[Tensor], Tensor], hops: int) -> Iterator[Tensor]:
    """S_K .. S_0, of which about 2 sqrt(K) exist at a time: each is walked to twice."""
    stride, state, marks = math.isqrt(hops), first, [first]
    for hop in range(1, hops + 1):
        state = step(state)
        if hop % stride == 0:
            marks.append(state)
    del state
    top = hops
    while marks:
        bottom, states = (len(marks) - 1) * stride, [marks.pop()]
        while bottom + len(states) <= top:
            states.append(step(states[-1]))
        while states:
            yield states.pop()
        top = bottom - 1


def _backward_once(
    forth: Steps, back: Steps, grad: Tensor, scores: Tensor, inputs: Sequence[Tensor]
) -> list[Tensor]:
    """`_backward` of a single hop, by the scores of its entries [E H]."""
    query, key, ones, entries = inputs
    products, grad_query = forth.sum_along_edges(grad, ones, key)
    across = back.apart.across  # from where the entries of the matrix stand
    for_key, for_ones = (
        (each * forth.weight).index_select(0, across) for each in (products, scores)
    )
    grad_key = back.product(for_key, query.flatten(0, 1)).view(key.shape)
    grad_ones = back.product(for_ones, grad.flatten(0, 1)).view(ones.shape)
    return [grad_query, grad_key, grad_ones, forth.apart.put_back(scores * products, entries)]


class _Walk(torch.autograd.Function):
    """`_forward` and `_backward` where nobody watches."""

    @staticmethod
    def forward(ctx: Any, options: Options, matrices: Matrices, *inputs: Tensor) -> Tensor:
        readouts, kept = _forward(options, matrices[0], inputs)
        ctx.save_for_backward(kept, *inputs)
        ctx.options, ctx.matrices = options, matrices
        return readouts

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        kept, *inputs = ctx.saved_tensors
        if torch.is_grad_enabled() or is_watched(grad):
            return None, None, *backward(grad, inputs, kept, *ctx.matrices, *ctx.options)
        with full_precision(grad):  # of the thread that runs the backward pass
            found = _backward(ctx.options, ctx.matrices, grad.contiguous(), kept, inputs)
        return None, None, *found


# ----------------------------------------------------------------------------------- custom ops


@torch.library.custom_op("subtree_attention::edges_forward", mutates_args=())
def forward(
    inputs: Sequence[Tensor],
    matrix: Sequence[Tensor],
    transpose: Sequence[Tensor],
    hops: int,
    backend: str,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    """`_forward` of [query, key, ones, entries]; the transpose comes along for the backward."""
    return _forward(Options(hops, backend, keep), matrix, inputs)


@forward.register_fake
def _(inputs: Sequence[Tensor], matrix: Any, transpose: Any, *settings: Any) -> Any:
    (query, _, ones, entries), options = inputs, Options(*settings)
    kept = math.prod(options.kept_shape(query, ones)) if options.hops > 1 else entries.numel()
    return ones.new_empty(options.hops, *ones.shape), ones.new_empty(kept)


@torch.library.custom_op("subtree_attention::edges_backward", mutates_args=())
def backward(
    grad: Tensor,
    inputs: Sequence[Tensor],
    kept: Tensor,
    matrix: Sequence[Tensor],
    transpose: Sequence[Tensor],
    hops: int,
    backend: str,
    keep: bool,
) -> list[Tensor]:
    """`_backward`: gradients of the inputs."""
    options = Options(hops, backend, keep)
    return _backward(options, (matrix, transpose), grad.contiguous(), kept, inputs)


@backward.register_fake
def _(grad: Tensor, inputs: Sequence[Tensor], *_: Any) -> list[Tensor]:
    return [torch.empty_like(tensor) for tensor in inputs]


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    tensors, matrix, transpose, *settings = inputs
    ctx.save_for_backward(output[1], *tensors, *matrix, *transpose)
    ctx.mark_non_differentiable(output[1])
    ctx.parts, ctx.options = len(matrix), settings


def _differentiate(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    (kept, *inputs), matrices = ctx.saved_tensors[:5], ctx.saved_tensors[5:]
    both = matrices[: ctx.parts], matrices[ctx.parts :]
    no_matrix = [None] * ctx.parts
    found = backward(grad, inputs, kept, *both, *ctx.options)
    return found, no_matrix, no_matrix, *[None] * len(ctx.options)


forward.register_autograd(_differentiate, setup_context=_save_for_backward)
backward.register_autograd(refuse_double_backward)
