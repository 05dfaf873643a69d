"""STAConv, the STA layer: queries, keys and values from x, subtree attention, heads mixed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import reset

from .. import _check, feature_maps, ops
from ..feature_maps import FeatureMap
from ..graph import TRANSITIONS, Graph
from .aggregation import GPR
from .aggregation import build as build_aggregation
from .everywhere import GlobalAttention
from .everywhere import global_attention as attend_globally
from .head_mix import HEAD_MIXES, HeadMix
from .linear import (
    SparseLinear,
    apply_together,
    check_dropout,
    check_features,
    check_in_channels,
)

GLOBAL_ATTENTION = ("beside", "only")


class STAConv(nn.Module):
    r"""The subtree attention layer of `"Tailoring Self-Attention for Graph via Rooted Subtrees"
    <https://arxiv.org/abs/2310.05296>`_.

    .. math::
        \mathrm{head}^h_k = \hat g^h_k \, \mathrm{STA}_k(X W^h_Q, X W^h_K, X W^h_V), \qquad
        O = \Big[\sum_k \alpha_k \mathrm{head}^1_k, \ldots, \sum_k \alpha_k \mathrm{head}^H_k\Big]
            W_O

    One layer reads K hops. With one head and value channels as wide as the output there is neither
    gate nor :math:`W_O`.

    Args:
        in_channels: columns of x; -1 takes them from the first x that comes.
        out_channels: columns of the result, after the heads are mixed.
        hops: K, the height of the subtree.
        heads: H.
        key_channels: channels of a query or key, per head (default `out_channels // heads`).
        value_channels: channels of a value, per head (default `out_channels // heads`, or
            `out_channels` when heads are summed).
        feature_map: name, module or non-negative function; see `subtree_attention.feature_maps`.
        similarity: `"softmax"` for the exact softmax similarity instead of a feature map.
        transition: `"rw"`, `"sym"`, `"mean"` or None; `"auto"` is `"rw"`, or that of the
            :class:`Graph` passed to `forward`.
        self_loops: add a loop of weight 1 to every node that has none.
        aggregation: over hops: `"gpr"`, `"sum"`, `"concat"` or `"attention"`.
        gate: over heads at each hop: `"softmax"`, `"plain"` or `"none"`.
        head_mix: `"linear"` (:math:`W_O` over the concatenated heads) or `"sum"`.
        global_attention: `"beside"` adds :math:`\alpha_T \mathrm{SA}` with a learned
            :math:`\alpha_T`; `"only"` replaces STA by SA; None for neither.
        dropout: on the concatenated heads before :math:`W_O`.
        eps: added to every denominator.
        bias: whether the linear maps learn a bias.
        cached: keep the Graph of the first call for all later ones, as in `GCNConv`.
        backend: see :func:`subtree_attention.subtree_attention`.

    Shapes:
        - x: `[N, in_channels]`, dense or `torch.sparse_csr`; edge_index: any adjacency that
          :class:`Graph` takes, or a Graph, which saves building it at every call
        - result: `[N, out_channels]`

    As the `conv` of PyG's `GPSConv` it gets no `batch`: STA itself stays within connected
    components, but global attention would then reach across the graphs of a mini-batch.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hops: int = 3,
        heads: int = 4,
        key_channels: int | None = None,
        value_channels: int | None = None,
        feature_map: str | FeatureMap = "elu",
        similarity: str | None = None,
        transition: str | None = "auto",
        self_loops: bool = False,
        aggregation: str = "gpr",
        gate: str = "softmax",
        head_mix: str = "linear",
        global_attention: str | None = None,
        dropout: float = 0.0,
        eps: float = 1e-6,
        bias: bool = True,
        cached: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.in_channels = check_in_channels(in_channels)
        self.out_channels = _check.integer("out_channels", out_channels, 1)
        self.hops = _check.integer("hops", hops, 0)
        self.heads = _check.integer("heads", heads, 1)
        _check.known("head_mix", head_mix, HEAD_MIXES)
        self.key_channels = _per_head("key_channels", key_channels, out_channels, heads)
        if value_channels is None and head_mix == "sum":
            value_channels = out_channels
        self.value_channels = _per_head("value_channels", value_channels, out_channels, heads)
        if similarity is not None:
            _check.known("similarity", similarity, ops.SIMILARITIES)
        if transition is not None:
            _check.known("transition", transition, ["auto", *TRANSITIONS])
        if global_attention is not None:
            _check.known("global_attention", global_attention, GLOBAL_ATTENTION)
        self.similarity, self.transition, self.self_loops = similarity, transition, self_loops
        self.global_attention = global_attention
        self.eps, self.cached = ops.check_eps(eps), cached
        self.backend = _check.known("backend", backend, ["auto", *ops.backends.BACKENDS])

        self.feature_map = feature_maps.build(feature_map, self.key_channels)
        self.lin_query = SparseLinear(in_channels, heads * self.key_channels, bias)
        self.lin_key = SparseLinear(in_channels, heads * self.key_channels, bias)
        self.lin_value = SparseLinear(in_channels, heads * self.value_channels, bias)
        if global_attention == "only":  # SA is one level, so there is nothing to aggregate
            aggregation, gate, levels = "sum", "none", 0
        else:
            levels = hops
        channels = self.value_channels
        self.aggregation, self.gate = build_aggregation(aggregation, gate, levels, heads, channels)
        width, dropout = self.aggregation.width, check_dropout(dropout)
        self.head_mix = HeadMix(head_mix, heads, width, out_channels, dropout, bias)
        self.beside: GlobalAttention | None = None
        if global_attention == "beside":
            self.beside = GlobalAttention(channels, out_channels)
        self._graph: Graph | None = None

    def reset_parameters(self) -> None:
        """Back to fresh initial values; forgets a cached graph."""
        for module in self.children():
            reset(module)  # also a user's feature map, which may have nothing to reset
        self._graph = None

    def no_weight_decay(self) -> Iterator[nn.Parameter]:
        """Hop weights, gates and the weight of global attention: not to be decayed."""
        if isinstance(self.aggregation, GPR):
            yield self.aggregation.alpha
        yield from self.gate.parameters()
        if self.beside is not None:
            yield self.beside.weight

    def forward(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        return_attention_weights: bool | None = None,
        batch_size: int | None = None,
    ) -> Any:
        """Run the layer.

        Args:
            x: `[N, in_channels]`, dense or `torch.sparse_csr`.
            edge_index: any adjacency that :class:`Graph` takes, or a Graph.
            edge_weight: `[E]`, with an edge_index only.
            batch: `[N]`, the graph of each node, for global attention; without it all nodes
                attend to each other. STA itself never leaves a connected component.
            return_attention_weights: also return `(edge_index, weights [E, H])`, the attention of
                every target on its sources at the first hop. :meth:`attention` has every hop.
            batch_size: number of graphs in `batch`; saves looking for its maximum.
        """
        check_features(x)
        graph = self._as_graph(edge_index, edge_weight, x)
        query, key, value = self._project(x)
        if self.global_attention is not None:
            everywhere = attend_globally(
                query,
                key,
                value,
                batch,
                self.feature_map,
                self.similarity,
                self.eps,
                batch_size,
            )
        if self.global_attention == "only":
            out = self.head_mix(everywhere, value.dtype)
        else:
            out = self.head_mix(self._attend_subtree(query, key, value, graph), value.dtype)
        if self.beside is not None:
            out = out + self.beside(everywhere).to(out.dtype)
        if return_attention_weights:
            return out, (graph.edge_index, self._edge_attention(query, key, graph))
        return out

    @torch.no_grad()
    def attention(
        self, x: Tensor, edge_index: Any, root: int, hop: int, edge_weight: Tensor | None = None
    ) -> Tensor:
        """The exact attention of `root` over level `hop` of its subtree, [N, H], in O(hop E)."""
        _check.integer("hop", hop, 0)
        if self.global_attention == "only" or hop > self.hops:
            reads = "global attention only" if self.global_attention == "only" else self.hops
            raise ValueError(f"this layer has no hop {hop} to explain: hops read: {reads}")
        check_features(x)
        graph = self._as_graph(edge_index, edge_weight, x)
        query, key, _ = self._project(x)
        return ops.attention(
            query, key, graph, root, hop, self.similarity or self.feature_map, self.eps
        )

    def hop_weights(self) -> Tensor | None:
        """How much each hop of each head counts, [K + 1, H]; None if AGGR is no weighted sum."""
        weights = self.aggregation.hop_weights()
        return None if weights is None else weights * self.gate()

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys [N, H, d], values [N, H, c]."""
        query, key, value = apply_together(x, self.lin_query, self.lin_key, self.lin_value)
        return (
            query.view(-1, self.heads, self.key_channels),
            key.view(-1, self.heads, self.key_channels),
            value.view(-1, self.heads, self.value_channels),
        )

    def _attend_subtree(self, query: Tensor, key: Tensor, value: Tensor, graph: Graph) -> Tensor:
        """STA aggregated over hops, [N, H, width]."""
        weights = self.hop_weights()
        out = ops.subtree_attention(
            query,
            key,
            value,
            graph,
            self.hops,
            weights,
            feature_map=self.similarity or self.feature_map,
            eps=self.eps,
            backend=self.backend,
        )
        if weights is not None:
            return out
        return self.aggregation(out * self.gate()[:, None, :, None])

    def _edge_attention(self, query: Tensor, key: Tensor, graph: Graph) -> Tensor:
        """The attention along every edge at hop 1, [E, H]."""
        if self.global_attention == "only" or self.hops == 0:
            raise ValueError("this layer has no first hop, so no attention weights along edges")
        source, target = graph.edge_index
        mass, similarity = graph.matrix(torch.float64).weight, self.similarity or self.feature_map
        return ops.roots.attention_of_pairs(query, key, target, source, mass, similarity, self.eps)

    def _as_graph(self, adjacency: Any, edge_weight: Tensor | None, x: Tensor) -> Graph:
        """The Graph to walk on: the one given, the cached one, or a new one."""
        if isinstance(adjacency, Graph):
            self._check_given_graph(adjacency, edge_weight)
            graph = adjacency
        elif self._graph is not None:
            graph = self._graph = self._graph.to(x.device)
        else:
            transition = "rw" if self.transition == "auto" else self.transition
            graph = Graph(adjacency, x.size(0), edge_weight, transition, self.self_loops)
            if self.cached:
                self._graph = graph
        if graph.num_nodes != x.size(0):
            raise ValueError(f"x has {x.size(0)} rows, but the graph has {graph.num_nodes} nodes")
        return graph

    def _check_given_graph(self, graph: Graph, edge_weight: Tensor | None) -> None:
        if edge_weight is not None:
            raise ValueError("a Graph has its weights already: leave edge_weight out")
        if self.transition not in ("auto", graph.transition):
            raise ValueError(
                f"this layer was made with transition={self.transition!r}, but the Graph has "
                f"transition={graph.transition!r}: leave one of them out"
            )
        if self.self_loops and not graph.self_loops:
            raise ValueError(
                "this layer was made with self_loops=True, but the Graph without: "
                "make the Graph with self_loops=True"
            )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.lin_query.in_channels}, {self.out_channels}, "
            f"hops={self.hops}, heads={self.heads})"
        )


def _per_head(name: str, channels: int | None, out_channels: int, heads: int) -> int:
    """The width of a head: as given, or out_channels // heads."""
    if channels is not None:
        return _check.integer(name, channels, 1)
    if heads > out_channels:
        raise ValueError(
            f"heads={heads} is more than out_channels={out_channels}, which leaves no channel for "
            f"a head: use fewer heads or set {name}"
        )
    return out_channels // heads
