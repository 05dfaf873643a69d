"""STAConv, the STA layer: queries, keys and values from x, subtree attention, heads mixed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from .. import _check, feature_maps, ops
from .._tracing import exporting
from ..feature_maps import FeatureMap
from ..graph import Graph
from ..partition import HERE
from ..transition import TRANSITIONS
from . import memory as memory_of
from . import one_node
from .aggregation import HopAggregation
from .aggregation import build as build_aggregation
from .edges import EDGE_GATES, EdgeGate
from .everywhere import GlobalAttention, check_batch
from .everywhere import global_attention as attend_globally
from .features import Features, as_features
from .heads import HEAD_MIXES, HeadGate, HeadMix, SumMix, per_head
from .linear import Linear, project
from .parts import reset_children
from .readout import Readout
from .readout import build as build_readout


class STAConv(nn.Module):
    r"""The subtree attention layer of `"Tailoring Self-Attention for Graph via Rooted Subtrees"
    <https://arxiv.org/abs/2310.05296>`_.

    .. math::
        \mathrm{head}^h_k = \hat g^h_k \, \mathrm{STA}_k(X W^h_Q, X W^h_K, X W^h_V), \qquad
        O = \Big[\sum_k \alpha_k \mathrm{head}^1_k, \ldots, \sum_k \alpha_k \mathrm{head}^H_k\Big]
            W_O

    One layer reads K hops. A level of STA is a mean; `readout` makes it a sum, or something between
    that is learned. With one head and value channels as wide as the output there is neither
    gate nor :math:`W_O`; `repr` and the attributes `aggregation`, `gate`, `head_mix` and `readout`
    say what is there.

    Args:
        in_channels: columns of x; -1 takes them from the first x that comes.
        out_channels: columns of the result, after the heads are mixed.
        hops: K, the height of the subtree, 0 to 10,000.
        heads: H.
        key_channels: channels of a query or key, per head (default `out_channels // heads`).
        value_channels: channels of a value, per head (default `out_channels // heads`, or
            `out_channels` when heads are summed).
        feature_map: name, module or non-negative function, see `subtree_attention.feature_maps`;
            or `"softmax"`, the exact softmax similarity, which has no finite feature map.
        transition: `"rw"`, `"sym"`, `"mean"` or None; `"auto"` is `"rw"`, or that of the
            :class:`Graph` passed to `forward`.
        self_loops: add a loop of weight 1 to every node that has none.
        aggregation: over hops: `"gpr"`, `"sum"`, `"concat"`, `"attention"`, or a
            :class:`HopAggregation`.
        gate: over heads at each hop: `"softmax"`, `"plain"`, `"none"`, or a :class:`HeadGate`. By
            name, a single head has none, and `"plain"` takes the place of the alpha of `"gpr"`;
            modules are used as they are.
        head_mix: `"linear"` (:math:`W_O` over the concatenated heads), `"sum"`, or a
            :class:`HeadMix`, which then has its own dropout and bias.
        global_attention: add :math:`\alpha_T \mathrm{SA}` with a learned :math:`\alpha_T`.
        dropout: on the concatenated heads before :math:`W_O`.
        eps: added to every denominator.
        bias: whether the linear maps learn a bias.
        cached: keep the Graph of the first call for all later ones, as in `GCNConv`.
        backend: see :func:`subtree_attention.subtree_attention`, like the next two.
        states: `"full"`, or `"bfloat16"` on a GPU.
        state_bytes: a bound for the memory of states.
        memory: a bound for all that a call takes, backward pass included, beside x, its Graph and
            the result: `"8GB"`, `"512MiB"`, a number of bytes, or `"free"`, what is free at the
            first call. Heads and columns are then walked in parts and less is kept, as far as that
            asks for; results are the same to rounding. :meth:`memory_plan` says what is done.
        edge_dim: columns of `edge_attr`: then every edge has a gate for every head, computed once
            and walked over all hops. None: edges have no features.
        edge_gate: how: `"linear"`, `"mlp"`, or an :class:`EdgeGate`.
        readout: what a level is divided by: `"mean"`, its denominator; `"sum"`, nothing;
            `"power"`, the denominator to a learned power of the hop and head; or a
            :class:`Readout`. Global attention stays a mean.

    Shapes:
        - x: `[N, in_channels]`, dense, `torch.sparse_csr` or :class:`SparseFeatures`
        - edge_attr: `[E, edge_dim]`
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
        transition: str | None = "auto",
        self_loops: bool = False,
        aggregation: str | HopAggregation = "gpr",
        gate: str | HeadGate = "softmax",
        head_mix: str | HeadMix = "linear",
        global_attention: bool = False,
        dropout: float = 0.0,
        eps: float = 1e-6,
        bias: bool = True,
        cached: bool = False,
        backend: str = "auto",
        states: str = "full",
        state_bytes: int | None = None,
        edge_dim: int | None = None,
        edge_gate: str | EdgeGate = "linear",
        readout: str | Readout = "mean",
        memory: str | int | None = None,
    ) -> None:
        super().__init__()
        self.out_channels = _check.integer("out_channels", out_channels, 1)
        self.hops = _check.integer("hops", hops, 0, _check.MOST_HOPS)
        self.heads = _check.integer("heads", heads, 1)
        self.key_channels = _per_head("key_channels", key_channels, out_channels, heads)
        summed = isinstance(head_mix, SumMix) or (isinstance(head_mix, str) and head_mix == "sum")
        if value_channels is None and summed:
            value_channels = out_channels
        self.value_channels = _per_head("value_channels", value_channels, out_channels, heads)
        if transition is not None:
            _check.known("transition", transition, ["auto", *TRANSITIONS])
        global_attention = _check.flag("global_attention", global_attention)
        self.transition, self.cached = transition, _check.flag("cached", cached)
        self.self_loops = _check.flag("self_loops", self_loops)
        self.eps, dropout = ops.check_eps(eps), _check.number("dropout", dropout, below=1)
        self.backend = _check.known("backend", backend, ["auto", *ops.backends.BACKENDS])
        self.states = _check.known("states", states, ops.walk.STATES)
        self.state_bytes = ops.check_state_bytes(state_bytes)

        self.feature_map = feature_maps.build(feature_map, self.key_channels)
        self.lin_query = Linear(in_channels, heads * self.key_channels, bias)
        self.in_channels = self.lin_query.in_channels
        self.lin_key = Linear(in_channels, heads * self.key_channels, bias)
        self.lin_value = Linear(in_channels, heads * self.value_channels, bias)
        channels = self.value_channels
        self.aggregation, self.gate = build_aggregation(aggregation, gate, hops, heads, channels)
        self.readout = build_readout(readout, hops, heads)
        sizes = heads, self.aggregation.width, out_channels
        how = {"dropout": dropout, "bias": bias}
        self.head_mix = HeadMix.pick("head_mix", head_mix, HEAD_MIXES, *sizes, **how)
        self.beside = GlobalAttention(heads, channels, out_channels) if global_attention else None
        self.edge_dim = edge_dim
        self.edge_gate: EdgeGate | None = None
        if edge_dim is not None:
            _check.integer("edge_dim", edge_dim, 1)
            ops.edges.check_way(self.feature_map, states)
            self.edge_gate = EdgeGate.pick("edge_gate", edge_gate, EDGE_GATES, edge_dim, heads)
        elif isinstance(edge_gate, nn.Module):
            raise ValueError("an edge_gate is for edge features: say how many they are by edge_dim")
        else:
            _check.known("edge_gate", edge_gate, EDGE_GATES)
        self._graph: Graph | None = None
        self.budget = memory_of.check(memory, self.feature_map, edge_dim)
        self.way: memory_of.Way | None = None  # to walk; None: all at once

    def reset_parameters(self) -> None:
        """Back to fresh initial values; forgets a cached graph."""
        reset_children(self)
        self._graph = None

    def no_weight_decay(self) -> Iterator[nn.Parameter]:
        """Hop weights, gates, powers of denominators and the weight of global attention: not to be
        decayed."""
        yield from self.aggregation.no_weight_decay()
        yield from self.gate.parameters()
        yield from self.readout.parameters()
        if self.beside is not None:
            yield self.beside.weight

    def forward(
        self,
        x: Features,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        return_attention_weights: bool | None = None,
        batch_size: int | None = None,
        edge_attr: Tensor | None = None,
    ) -> Any:
        """Run the layer.

        Args:
            x: `[N, in_channels]`
            edge_index: any adjacency that :class:`Graph` takes, or a Graph, which saves time.
            edge_weight: `[E]`, of the edges in the order in which they come (or came to the
                Graph, if that has no weights of its own); they get gradients if they ask for them.
            batch: `[N]`, the graph of each node, for global attention; without it all nodes
                attend to each other. STA itself never leaves a connected component.
            return_attention_weights: also return `(edge_index, weights [E, H])`, the attention of
                every target on its sources at the first hop, which sum to 1 where the read-out is
                a mean. :meth:`attention` has every hop.
            batch_size: number of graphs in `batch`; saves looking for its maximum.
            edge_attr: `[E, edge_dim]`, in the order of `edge_weight`; with `edge_dim` only.
        """
        x = as_features(x)
        graph = self.as_graph(edge_index, edge_weight, x)
        entries = self.entries(graph, edge_weight, edge_attr, x.dtype)
        if batch is not None:
            batch = check_batch(batch, graph.num_nodes)
        if batch_size is not None:
            _check.integer("batch_size", batch_size, 0)
        if return_attention_weights is not None:
            _check.flag("return_attention_weights", return_attention_weights)
        if graph.shared is not None:
            self._check_part(batch, return_attention_weights)
        if self.budget is not None:
            self.budget.settle(self, x, graph, batch is not None)
        if self.way is not None:
            memory_of.refuse(along_edges=bool(return_attention_weights), entries=entries)
        plain = entries is None and self.beside is None and not return_attention_weights
        plain = plain and graph.shared is None
        if self.way is not None and self.way.again and isinstance(x, Tensor) and plain:
            self.lin_query.check(x)
            return memory_of.mixed_apart(self, x, graph, self.way).to(x.dtype)
        if type(self) is STAConv and plain:
            whole = one_node.run(self, x, graph) if isinstance(x, Tensor) else None
            if whole is not None:
                return whole
        query, key, value = self.project(x)
        beside = None
        if self.beside is not None:  # first, since gradients add up in the order of the calls
            beside = self.beside(
                attend_globally(query, key, value, batch, self.feature_map, self.eps, batch_size)
            )
        # An `attend` of somebody's own need not know of entries.
        along = {} if entries is None else {"entries": entries}
        # The operator gives float32 at least.
        out = self.head_mix(self.attend(query, key, value, graph, **along)).to(value.dtype)
        out = out if beside is None else out + beside.to(out.dtype)
        if not return_attention_weights:
            return out
        if self.hops == 0:
            raise ValueError("this layer has no first hop, so no attention weights along edges")
        source, target = graph.edge_index
        mass = graph.entries(torch.float64) if entries is None else entries
        how = self.feature_map, self.eps, self.power(1)
        weights = ops.roots.attention_of_pairs(query, key, target, source, mass, *how)
        return out, (graph.edge_index, weights)

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
        """The exact attention of `root` over level `hop` of its subtree, [N, H], in O(hop E)."""
        if _check.integer("hop", hop, 0, _check.MOST_HOPS) > self.hops:
            raise ValueError(f"this layer has no hop {hop} to explain: hops read: {self.hops}")
        x = as_features(x)
        graph = self.as_graph(edge_index, edge_weight, x)
        entries = self.entries(graph, edge_weight, edge_attr, x.dtype)
        (query, key, _), how = self.project(x), (self.feature_map, self.eps, self.power(hop))
        return ops.attention(query, key, graph, root, hop, *how, entries=entries)

    def memory_plan(self, x: Features, edge_index: Any) -> memory_of.Plan:
        """What a call with this x does to keep to `memory`; printed, it is a line of words."""
        return memory_of.plan(self, x, self.as_graph(edge_index, None, as_features(x)))

    def power(self, hop: int) -> Tensor | None:
        """The powers of the denominators at a hop, [H]; None, which is 1, where it is a mean."""
        beta = self.readout()
        return None if beta is None or hop == 0 else beta[hop - 1]

    def hop_weights(self) -> Tensor | None:
        """How much each hop of each head counts, [K + 1, H]; None if AGGR is no weighted sum."""
        weights = self.aggregation.hop_weights()
        return None if weights is None else weights * self.gate()

    def weighs_as_usual(self) -> bool:
        """Whether hop weights are the aggregation's times the gate: then a kernel may gate them."""
        own = type(self).hop_weights is STAConv.hop_weights and "hop_weights" not in vars(self)
        return own and "hop_weights" not in vars(self.aggregation)

    def attends_as_usual(self) -> bool:
        """Whether :meth:`project` and :meth:`attend` are nobody's own: then heads may be computed
        some at a time."""
        own = type(self).project is STAConv.project and type(self).attend is STAConv.attend
        return own and not {"project", "attend"} & vars(self).keys()

    def project(self, x: Features) -> list[Tensor]:
        """Queries and keys [N, H, d], before the feature map, and values [N, H, c]."""
        return project(x, self.heads, self.lin_query, self.lin_key, self.lin_value)

    def as_graph(self, adjacency: Any, edge_weight: Tensor | None, x: Features) -> Graph:
        """The Graph to walk on: the one given, the cached one, or that of these tensors."""
        if isinstance(adjacency, Graph):
            graph = adjacency
            if edge_weight is not None and graph.is_weighted:
                raise ValueError("this Graph has its weights already: leave edge_weight out")
            self._check_walks_on(graph)
        elif self._graph is not None:
            graph = self._graph = self._graph.to(x.device)
        else:
            transition = "rw" if self.transition == "auto" else self.transition
            constant = None if _learns(edge_weight) else edge_weight
            how = adjacency, x.size(0), constant, transition, self.self_loops
            if exporting():  # the edges come later
                return ops.exported.TracedGraph(*how)
            graph = Graph.of(*how)
            if self.cached:
                self._graph = graph
        if graph.num_nodes != x.size(0):
            raise ValueError(f"x has {x.size(0)} rows, but the graph has {graph.num_nodes} nodes")
        return graph

    def _check_walks_on(self, graph: Graph) -> None:
        """Refuse a Graph with another transition than the layer's, or without its loops."""
        transition, looped = graph.walks_by
        wanted = transition if self.transition == "auto" else self.transition
        if wanted != transition or (self.self_loops and not looped):
            loops_too = ", self_loops=True" if self.self_loops else ""
            raise ValueError(
                f"this layer walks with transition={wanted!r}{loops_too}, but the Graph was made "
                f"with transition={transition!r}, self_loops={looped}: make it as "
                f"Graph(edge_index, num_nodes, transition={wanted!r}{loops_too}), or pass the "
                "edge_index itself"
            )

    def _check_part(self, batch: Tensor | None, weights: bool | None) -> None:
        """Refuse what needs a whole graph, and a part of one without `parallelize`."""
        if HERE.part is None:
            raise RuntimeError(
                "a layer on a part of a graph needs the other ranks for more than the walk: call "
                "it through subtree_attention.parallelize(model, graph, mesh)"
            )
        ops.refuse_on_a_part(
            batch=batch is not None, along_edges=bool(weights), memory=self.budget is not None
        )

    def entries(
        self,
        graph: Graph,
        edge_weight: Tensor | None,
        edge_attr: Tensor | None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor | None:
        """What edges let through to each head, [E, H] or [E, 1]; None if that is the Graph's own.

        Args:
            graph: of :meth:`as_graph`.
            edge_weight: as in :meth:`forward`.
            edge_attr: as in :meth:`forward`.
            dtype: of the layer; the entries have float32 at least.
        """
        if (edge_attr is None) != (self.edge_gate is None):
            raise ValueError(
                "this layer takes no edge_attr: make it with edge_dim"
                if self.edge_gate is None
                else f"this layer was made with edge_dim={self.edge_dim}: it needs edge_attr"
            )
        edge_weight = self.edge_weight(graph, edge_weight)
        if edge_weight is None and self.edge_gate is None:
            return None
        dtype = torch.promote_types(dtype, torch.float32)
        entries = graph.entries(dtype, edge_weight)[:, None]
        if self.edge_gate is None or edge_attr is None:
            return entries
        return entries * self.edge_gate(edge_attr, graph).to(dtype)

    @staticmethod
    def edge_weight(graph: Graph, edge_weight: Tensor | None) -> Tensor | None:
        """The weights of a call that are not in its Graph, [E]; None if they are."""
        return None if graph.is_weighted and not _learns(edge_weight) else edge_weight

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        graph: Graph,
        entries: Tensor | None = None,
    ) -> Tensor:
        """STA aggregated over hops, [N, H, width]."""
        ops.check_on_graph("query", query, graph)
        gate = self.gate.as_softmax() if self.weighs_as_usual() else None
        weights = self.hop_weights() if gate is None else self.aggregation.hop_weights()
        gate = None if weights is None else gate
        bound = self.state_bytes if self.way is None else self.way.state_bytes
        how = self.feature_map, self.eps, self.backend, self.states, bound, gate
        given = query, key, value, graph, self.hops, weights
        keep = () if self.way is None else (self.way.keep,)
        out = ops.attend(*given, *how, self.readout(), entries, *keep)
        return out if weights is not None else self.aggregation(out * self.gate()[:, None, :, None])

    def __prepare_scriptable__(self) -> STAConv:
        """What `torch.jit.script` asks for first."""
        raise TypeError("torch.jit.script cannot read this layer: use torch.export.export")

    def __repr__(self) -> str:
        edges = "" if self.edge_gate is None else f", edge_gate={type(self.edge_gate).__name__}"
        return (
            f"{type(self).__name__}({self.lin_query.in_channels}, {self.out_channels}, "
            f"hops={self.hops}, heads={self.heads}, "
            f"aggregation={type(self.aggregation).__name__}, gate={type(self.gate).__name__}, "
            f"head_mix={type(self.head_mix).__name__}, readout={type(self.readout).__name__}"
            f"{edges})"
        )


def _learns(edge_weight: Any) -> bool:
    """Whether somebody may ask what becomes of changes in them."""
    if not isinstance(edge_weight, Tensor):
        return False
    return edge_weight.requires_grad or feature_maps.transformed()


def _per_head(name: str, channels: int | None, out_channels: int, heads: int) -> int:
    """The width of a head: as given, or out_channels // heads."""
    if channels is not None:
        return _check.integer(name, channels, 1)
    return per_head("out_channels", out_channels, heads, f": use fewer heads or set {name}")
