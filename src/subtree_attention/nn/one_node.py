"""The plain layer as one node of autograd, for loops that wait for the host.

A small graph's layer takes a GPU less time than torch takes to note down what it is made of. Where
nothing but the layer's own tensors takes part (no dropout, hooks, global attention, autocast or
compiler), projections, walk and mix of heads are one function with a gradient of its own: the same
numbers as one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import feature_maps, ops
from ..graph import Graph
from ..ops import backends, library
from .aggregation import GPR, Sum
from .heads import ConcatMix, LinearMix
from .linear import is_plain, is_untouched, joint_gradients, joint_product

if TYPE_CHECKING:
    from .conv import STAConv


class _Call(NamedTuple):
    """What is said of a call besides its tensors, and how many of those there are of each kind."""

    graph: Graph
    heads: int
    options: library.Options
    biases: int
    hop_tensors: int

    def sort(self, tensors: Sequence[Tensor]) -> list[Sequence[Tensor]]:
        """The weights of queries, keys and values, their biases, hop weights (and the gate's
        logits, and powers of denominators), and weight (and bias) of the mix."""
        hops, mix = 3 + self.biases, 3 + self.biases + self.hop_tensors
        return [tensors[:3], tensors[3:hops], tensors[hops:mix], tensors[mix:]]


def run(layer: STAConv, x: Tensor, graph: Graph) -> Tensor | None:
    """The layer of x in one node: [N, in_channels] -> [N, out_channels]; None where it is more."""
    if not (_is_eager(x) and _is_plain(layer)):
        return None
    backend = backends.choose(layer.backend, x.device, x.dtype)
    kernel, lins = backends.BACKENDS[backend], (layer.lin_query, layer.lin_key, layer.lin_value)
    biases = [lin.bias for lin in lins if lin.bias is not None]
    phi = feature_maps.name_of(layer.feature_map)
    if phi not in kernel.maps or not kernel.gates or len(biases) not in (0, len(lins)):
        return None
    layer.lin_query.check(x)
    ops.check_on_graph("query", x, graph)
    ops.walk.check_states(layer.states, x.device, x.dtype)
    logits = layer.gate.as_softmax()
    weights: Any = layer.hop_weights() if logits is None else layer.aggregation.alpha
    beta = layer.readout()
    ops.check_hop_shapes(weights, logits, beta, layer.hops, layer.heads)
    hop = library.given(hop_weights=weights, gate=logits, beta=beta)
    mix: Any = layer.head_mix.lin
    mixing = [tensor for tensor in (mix.weight, mix.bias) if tensor is not None] if mix else []
    how = layer.hops, layer.eps, backend, layer.states
    options = library.Options(*how, phi=phi, others=" ".join(hop))
    call = _Call(graph, layer.heads, options, len(biases), len(hop))
    tensors = [*(lin.weight for lin in lins), *biases, *hop.values(), *mixing]
    if any(tensor.dtype != x.dtype or tensor.device != x.device for tensor in tensors):
        return None
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, *tensors)):
        return _Layer.apply(call, x, *tensors)
    return _forward(call, x, tensors, training=False)[0]


def _is_eager(x: Tensor) -> bool:
    """Whether x is on a GPU, and nobody wants to see what is done with it."""
    return (
        x.is_cuda
        and x.dtype in ops.FULL
        and not ops.is_watched(x)
        and not torch.is_autocast_enabled("cuda")
    )


OWN = {"project", "attend"}
"""Methods of the layer that somebody may put others in place of, besides its hop weights."""


def _is_plain(layer: STAConv) -> bool:
    """Whether the layer is its own tensors and the paper's formulas, and nothing else."""
    mix = layer.head_mix
    return (
        not (vars(layer).keys() & OWN)
        and layer.weighs_as_usual()
        and layer.state_bytes is None
        and (layer.way is None or layer.way.state_bytes is None)
        and type(mix) in (LinearMix, ConcatMix)
        and not (mix.dropout and mix.training)
        and is_untouched(mix)
        and (mix.lin is None or is_plain(mix.lin))
        and is_plain(layer.lin_query)
        and is_plain(layer.lin_key)
        and is_plain(layer.lin_value)
        and type(layer.aggregation) in (GPR, Sum)
    )


def _forward(
    call: _Call, x: Tensor, tensors: Sequence[Tensor], training: bool
) -> tuple[Tensor, list[Tensor], library.Plan]:
    """The output, what its gradient needs besides, and the plan of the walk."""
    weights, biases, hop, mix = call.sort(tensors)
    parts, joint = joint_product(x, call.heads, weights, biases)
    plan = library.plan_of(call.graph, call.options, [*parts, *hop], training)
    heads, kept = plan.forward(*parts, *hop)
    flat = heads.flatten(1)
    return F.linear(flat, *mix) if mix else flat, [joint, *parts, kept, flat], plan


def _one_by_one(call: _Call, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """The same in nodes of torch and of the walk."""
    weights, biases, hop, mix = call.sort(tensors)
    (query, key, value), _ = joint_product(x, call.heads, weights, biases)
    named: dict[str, Any] = dict(zip(call.options.others.split(), hop, strict=True))
    how = named.pop("hop_weights"), call.options.phi, *call.options[1:4], None
    heads = ops.attend(query, key, value, call.graph, call.options.hops, *how, **named)
    return F.linear(heads.flatten(1), *mix) if mix else heads.flatten(1)


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: _Call, x: Tensor, *tensors: Tensor) -> Tensor:
        out, made, ctx.plan = _forward(call, x, tensors, training=True)
        ctx.call, ctx.given = call, 1 + len(tensors)
        # Where heads are not mixed, the last of what was made is the output itself.
        ctx.save_for_backward(x, *tensors, *(made if out is not made[-1] else made[:-1]))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        (x, *tensors), made = saved[: ctx.given], saved[ctx.given :]
        if torch.is_grad_enabled() or ops.is_watched(grad):
            return None, *_gradients_one_by_one(ctx, grad, x, tensors)
        joint, query, key, value, kept, *flat = made
        _, biases, hop, mix = ctx.call.sort(tensors)
        grad_mix: list[Tensor] = []
        if mix:
            grad_mix = [grad.t() @ flat[0], *([grad.sum(0)] if len(mix) > 1 else [])]
            grad = grad @ mix[0]
        grad_heads = grad.reshape(value.shape)
        parts = ctx.plan.backward(grad_heads.contiguous(), kept, query, key, value, *hop)
        for_x = ctx.needs_input_grad[1]
        found = joint_gradients(parts[:3], x, joint, for_x, bool(biases))
        return None, found[0], *found[1], *found[2], *parts[3 : 3 + len(hop)], *grad_mix


def _gradients_one_by_one(
    ctx: Any, grad: Tensor, x: Tensor, tensors: Sequence[Tensor]
) -> list[Tensor | None]:
    """Gradients that can be asked for gradients, as far as the walk's can."""
    given, asked = [x, *tensors], ctx.needs_input_grad[1:]
    with torch.enable_grad():
        out = _one_by_one(ctx.call, x, tensors)
    wanted = [tensor for tensor, is_asked in zip(given, asked, strict=True) if is_asked]
    found = iter(torch.autograd.grad(out, wanted, grad, create_graph=True, allow_unused=True))
    return [next(found) if is_asked else None for is_asked in asked]
