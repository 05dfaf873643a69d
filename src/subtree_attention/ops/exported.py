"""The operator in plain index_select and index_add, without a kernel of ours.

What `torch.export` writes runs where this package is not installed, on graphs that nobody has seen
yet: there is nothing here but torch's own operators, and nothing looks at values. `torch.func`
(vmap, jvp, hessian) and forward-mode derivatives know these too, and not our kernels. One hop holds
a message for each edge, E H d (c + 1) numbers, which the kernels do without.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import feature_maps
from .._tracing import exporting
from ..adjacency import from_edge_index
from ..compressed import CSR
from ..graph import Graph
from . import recurrence


def asked_for() -> bool:
    """Whether somebody needs torch's own operators: an export, or more than gradients."""
    if torch.compiler.is_compiling():
        return exporting()
    if torch._C._get_tracing_state() is not None:
        raise TypeError(
            "torch.jit.trace would write down the sizes of one graph as those of all: use "
            "torch.export.export"
        )
    return feature_maps.transformed()


class Edges(NamedTuple):
    """A transition matrix by its entries: `source` [E], `target` [E], and `weight` [E], or
    [E, H, 1, 1] where heads have their own."""

    source: Tensor
    target: Tensor
    weight: Tensor


class TracedGraph(Graph):
    """A Graph of an edge_index that comes when the exported program runs.

    Its edges stay in the order in which they come, and their values are not checked.

    Args:
        edge_index: `[2, E]`, as all that follows as in :class:`Graph`.
        num_nodes: N.
        edge_weight: `[E]` or None.
        transition: see :class:`Graph`.
        self_loops: see :class:`Graph`; here each node gets one, of weight 0 where it has its own,
            since a program cannot know how many are missing.
    """

    def __init__(
        self,
        edge_index: Any,
        num_nodes: int,
        edge_weight: Tensor | None,
        transition: str | None,
        self_loops: bool,
    ) -> None:
        if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
            kind = getattr(edge_index, "layout", type(edge_index).__name__)
            raise TypeError(
                "torch.export takes an edge_index [2, E], or a Graph that the model holds, "
                f"got {kind}"
            )
        (source, target), weight, _ = from_edge_index(edge_index, edge_weight)
        weight = torch.ones_like(source) if weight is None else weight.detach()
        self.num_nodes, self.transition, self.self_loops = num_nodes, transition, self_loops
        self._given = source.numel()
        self._edges = Edges(source, target, weight.double())
        if self_loops:
            self._edges = self._with_loops(*self._edges)

    @property
    def num_edges(self) -> int:
        return self._edges.source.numel()

    @property
    def device(self) -> torch.device:
        return self._edges.source.device

    @property
    def edge_index(self) -> Tensor:
        """`[2, E]`, as it came."""
        return torch.stack(self._edges[:2])

    @property
    def edge_order(self) -> Tensor:
        """`[E]`, see :attr:`Graph.edge_order`: loops come last."""
        return torch.arange(self.num_edges, device=self.device).clamp_(max=self._given)

    @property
    def is_weighted(self) -> bool:
        """It has what weights there are."""
        return True

    def entries(
        self, dtype: torch.dtype = torch.float32, edge_weight: Tensor | None = None
    ) -> Tensor:
        """`[E]`, see :meth:`Graph.entries`; weights are those that it was made of."""
        return self.edges(dtype).weight

    def matrix(self, dtype: torch.dtype = torch.float32) -> CSR:
        raise TypeError(
            "what needs the edges in order, as attention weights along edges do, cannot be "
            "exported with an edge_index: let the model hold a Graph"
        )

    def edges(self, dtype: torch.dtype) -> Edges:
        """The transition matrix, its entries rounded once from float64."""
        source, target, weight = self._edges
        if self.transition in ("rw", "sym"):
            weight = weight * self._share(source)
        if self.transition in ("mean", "sym"):
            weight = weight * self._share(target)
        return Edges(source, target, weight.to(dtype))

    def with_self_loops(self) -> Graph:
        """See :meth:`Graph.with_self_loops`."""
        if self.self_loops:
            return self
        weight = self._edges.weight
        return TracedGraph(self.edge_index, self.num_nodes, weight, self.transition, True)

    def _with_loops(self, source: Tensor, target: Tensor, weight: Tensor) -> Edges:
        node = torch.arange(self.num_nodes, device=source.device)
        missing = self._sum(source, (source == target).double()) == 0
        ends = torch.cat([source, node]), torch.cat([target, node])
        return Edges(*ends, torch.cat([weight, missing.double()]))

    def _share(self, node: Tensor) -> Tensor:
        """What a transition multiplies each edge by, of the node at one end of it, [E]."""
        degree = self._sum(node, self._edges.weight)
        share = recurrence.divide(torch.ones_like(degree), degree)
        return (share.sqrt() if self.transition == "sym" else share).index_select(0, node)

    def _sum(self, node: Tensor, weight: Tensor) -> Tensor:
        """[E] -> [N]."""
        return weight.new_zeros(self.num_nodes).index_add(0, node, weight)


def walk(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    graph: Graph,
    hops: int,
    eps: float,
    beta: Tensor | None = None,
    entries: Tensor | None = None,
) -> Tensor:
    """All levels [K + 1, N, H, c], or their weighted sum [N, H, c]; shapes as in `Operands`.

    `entries` [E, H], or [E, 1] for all heads, take the place of the transition's.
    """
    edges = _edges(graph, value.dtype)
    if entries is not None:
        edges = edges._replace(weight=entries[:, :, None, None])
    state, levels = recurrence.first_state(key, value), [value]
    for hop in range(hops):
        state, power = _step(edges, state), None if beta is None else beta[hop]
        levels.append(recurrence.quotient(recurrence.read(query, state), eps, power))
    out = torch.stack(levels)
    return out if hop_weights is None else (out * hop_weights[:, None, :, None]).sum(0)


def step(x: Tensor, graph: Graph, entries: Tensor | None = None) -> Tensor:
    """One step along the graph's transition, or along other entries [E]: [N, c] -> [N, c]."""
    edges = _edges(graph, x.dtype)
    if entries is not None:
        edges = edges._replace(weight=entries)
    return _step(edges, x[:, None, None])[:, 0, 0]


def _step(edges: Edges, state: Tensor) -> Tensor:
    """One step of the walk, A S: [N, H, d, c + 1]."""
    weight = edges.weight if edges.weight.dim() > 1 else edges.weight[:, None, None, None]
    sent = state.index_select(0, edges.source) * weight
    return torch.zeros_like(state).index_add(0, edges.target, sent)


def _edges(graph: Graph, dtype: torch.dtype) -> Edges:
    if isinstance(graph, TracedGraph):
        return graph.edges(dtype)
    return graph.cached(("edges", dtype), partial(_edges_of, dtype=dtype))


def _edges_of(graph: Graph, dtype: torch.dtype) -> Edges:
    source, target = graph.edge_index
    # By themselves: a file keeps what is cut from one tensor together, and warns of it.
    return Edges(source.clone(), target.clone(), graph.matrix(dtype).weight)
