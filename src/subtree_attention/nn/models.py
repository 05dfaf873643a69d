"""STAGNN, the paper's model: an MLP, then one STA layer whose values are logits; models by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import _check
from ..graph import Graph
from ..ops.dropout import drop
from ..ops.kernels.cuda import fills_gpu
from . import memory as memory_of
from .conv import STAConv
from .features import Features, as_features
from .former import STAFormer
from .heads import per_head
from .linear import Linear
from .parts import parameter_groups, reset_children
from .smoothing import smoothed


class STAGNN(nn.Module):
    r"""STAGNN of `"Tailoring Self-Attention for Graph via Rooted Subtrees"
    <https://arxiv.org/abs/2310.05296>`_: returns logits.

    .. math::
        O = \sum_{k=0}^K \alpha_k \mathrm{STA}_k(H W_Q, H W_K, H W_V), \qquad H = \mathrm{MLP}(X)

    The MLP is one linear map with ReLU, between which the hidden layer may be smoothed over the
    graph (not in the paper); each head's values have as many channels as there are
    classes. Dropout acts on x, on H, and on the concatenated heads.

    Args:
        in_channels: columns of x; -1 takes them from the first x that comes.
        hidden_channels: width of H; a head's queries and keys have `hidden_channels // heads`.
        out_channels: number of classes.
        hops: K, the height of the subtree, 0 to 10,000.
        heads: number of attention heads.
        dropout: share dropped, the same in all three places.
        eps: added to every denominator.
        smoothing: steps of the walk's transition, with a loop at every node, that the hidden layer
            takes before ReLU: H = relu(A^s (X W + b)).
        memory: a bound for all that a call takes, backward pass included, beside x, its Graph and
            the weights, as in :class:`STAConv`; :meth:`memory_plan` says what is done.
        options: any other of :class:`STAConv`, such as `feature_map`, `gate` or `states`.

    Shapes:
        - x: `[N, in_channels]`, dense or sparse (`torch.sparse_csr`, :class:`SparseFeatures`)
        - result: `[N, out_channels]` logits
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        hops: int = 3,
        heads: int = 4,
        dropout: float = 0.0,
        eps: float = 1e-5,
        smoothing: int = 0,
        memory: str | int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        _check.integer("hidden_channels", hidden_channels, 1)
        self.lin = Linear(in_channels, hidden_channels, dropout=dropout)
        self.dropout = self.lin.dropout
        self.smoothing = _check.integer("smoothing", smoothing, 0, _check.MOST_HOPS)
        self.conv = STAConv(
            hidden_channels,
            out_channels,
            hops,
            heads,
            key_channels=per_head("hidden_channels", hidden_channels, heads),
            value_channels=out_channels,
            dropout=dropout,
            eps=eps,
            **options,
        )
        self.budget = memory_of.check(memory, self.conv.feature_map, self.conv.edge_dim)

    def reset_parameters(self) -> None:
        """Back to fresh initial values."""
        reset_children(self)

    def no_weight_decay(self) -> Iterator[nn.Parameter]:
        """The parameters that the paper does not decay: alpha, gates and alpha_T."""
        yield from self.conv.no_weight_decay()

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Two groups for an optimiser: decayed, and not."""
        return parameter_groups(self, weight_decay)

    def fills_gpu(self, graph: Graph) -> bool:
        """Whether a hop over this graph fills a GPU: then nothing gains by running beside it."""
        return fills_gpu(graph.num_edges, self.lin.out_channels, self.conv.out_channels)

    def hidden(
        self, x: Features, edge_index: Any = None, edge_weight: Tensor | None = None
    ) -> Tensor:
        """H = MLP(X): [N, in_channels] -> [N, hidden_channels]; the edges are for smoothing."""
        h = self.lin(as_features(x))
        if self.smoothing:
            graph = self.conv.as_graph(edge_index, edge_weight, h)
            weight = self.conv.edge_weight(graph, edge_weight)
            h = smoothed(h, graph, self.smoothing, weight)
        return drop(F.relu(h), self.dropout, self.training)

    def forward(
        self,
        x: Features,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Logits [N, out_channels]; arguments as in :meth:`STAConv.forward`."""
        more = {"batch_size": batch_size, "edge_attr": edge_attr}
        if self.budget is not None:
            x = as_features(x)
            graph = self.conv.as_graph(edge_index, edge_weight, x)
            self.budget.settle(self, x, graph, batch is not None)
        hidden = self.hidden(x, edge_index, edge_weight)
        return self.conv(hidden, edge_index, edge_weight, batch, **more)

    def memory_plan(self, x: Features, edge_index: Any) -> memory_of.Plan:
        """What a call with this x does to keep to `memory`; printed, it is a line of words."""
        x = as_features(x)
        return memory_of.plan(self, x, self.conv.as_graph(edge_index, None, x))

    @torch.no_grad()
    def attention(
        self,
        x: Features,
        edge_index: Any,
        root: int,
        hop: int,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """The exact attention of `root` over level `hop` of its subtree, [N, H]; no dropout."""
        with evaluating(self):
            given = edge_index, root, hop, edge_weight, edge_attr
            return self.conv.attention(self.hidden(x, edge_index, edge_weight), *given)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.lin.in_channels}, {self.lin.out_channels}, "
            f"{self.conv.out_channels}, hops={self.conv.hops}, heads={self.conv.heads})"
        )


BUILDERS: dict[str, Callable[..., nn.Module]] = {"stagnn": STAGNN, "staformer": STAFormer}
"""Models by the name that a configuration gives them."""


def build(settings: Any, in_channels: int, out_channels: int) -> nn.Module:
    """The model that a configuration names, with fresh weights.

    Args:
        settings: a dataclass whose class has the `name` of a model; its fields are the options.
        in_channels: columns of x.
        out_channels: number of logits.
    """
    builder = BUILDERS[_check.known("model", getattr(settings, "name", settings), BUILDERS)]
    if not is_dataclass(settings):
        raise TypeError(f"settings must be those of a model, got {_check.said(settings)}")
    return builder(in_channels=in_channels, out_channels=out_channels, **vars(settings))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode; afterwards every part of it is as it was."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def set_states(model: nn.Module, states: str) -> None:
    """Let all STA layers of a model have states of this precision: see :class:`STAConv`."""
    for module in model.modules():
        if isinstance(module, STAConv):
            module.states = states


def set_memory(model: nn.Module, memory: str | int | None) -> None:
    """Let a model, or the one inside it, keep to a budget: see :class:`STAGNN`."""
    for module in model.modules():
        if isinstance(module, STAGNN | STAFormer):
            layer = next(part for part in module.modules() if isinstance(part, STAConv))
            module.budget = memory_of.check(memory, layer.feature_map, layer.edge_dim)


@contextmanager
def keeping_to(model: nn.Module, memory: str | int | None) -> Iterator[None]:
    """For a while a model keeps to a budget, if there is one; then it walks as before."""
    if memory is None:
        yield
        return
    kept: Any = [(part, part.budget) for part in model.modules() if hasattr(part, "budget")]
    ways = [(part, part.way) for part in model.modules() if isinstance(part, STAConv)]
    set_memory(model, memory)
    try:
        with memory_of.as_before():
            yield
    finally:
        for part, its_budget in kept:
            part.budget = its_budget
        for layer, way in ways:
            layer.way = way
