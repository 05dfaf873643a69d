r"""From a model, a graph and a root to an `Explanation`.

Given the attention weights, STA's output is linear in the values, whatever the read-out makes of
the denominators, so the parts add up to the logit. Row i of A^k is found by k steps from the root,
over the reached nodes only: O(K E).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .. import _check, feature_maps, ops
from ..graph import Graph
from ..nn import STAGNN, HeadMix, KnownLabels, NodeNetwork, STAConv, STAFormer
from ..nn.everywhere import check_batch, count_graphs
from ..nn.features import Features, as_features
from ..nn.models import evaluating
from .attribution import Attributor
from .changes import NOTHING, Changes
from .columns import Way
from .explanation import GLOBAL, REFERENCE, RESIDUAL, Explanation, Level, select
from .walks import Reach, Walks


def explainer_of(
    model: Any,
    x: Features,
    *given: Any,
    labels: KnownLabels | None = None,
    offset: Tensor | None = None,
    beside: Mapping[str, Tensor] | None = None,
    **more: Any,
) -> Explainer | Attributor:
    """What explains any root of a graph: exactly, if the model is linear given its attention.

    Args:
        model: see :func:`explain`, like all that follow; or a :class:`NodeNetwork` around one.
        labels, offset: what such a network is shown, and what it stands on.
        beside: `[N, C]` by name, what else is added to the logits.
    """
    beside = dict(beside or {})
    if isinstance(model, NodeNetwork):
        with evaluating(model), torch.no_grad():
            added, x = model.added(offset), model.features(x, labels)
        beside = beside if added is None else {REFERENCE: added, **beside}
        model = model.model
    for known in (STAGNN, STAFormer, STAConv):
        if isinstance(model, known) and type(model).forward is not known.forward:
            raise TypeError(
                f"{type(model).__name__} has a forward of its own, and an explanation knows that "
                f"of {known.__name__} only: explain the {known.__name__} inside"
            )
    given, more = (x, *given), {**more, "beside": beside}
    if isinstance(model, STAFormer) and not _is_linear(model):
        return Attributor(model, *given, **more)
    return Explainer(model, *given, **more)


def explain(
    model: STAGNN | STAFormer | STAConv,
    x: Features,
    edge_index: Any,
    root: int,
    edge_weight: Tensor | None = None,
    batch: Tensor | None = None,
    edge_attr: Tensor | None = None,
    without: Iterable[int] = (),
    cut: Iterable[tuple[int, int]] = (),
    values: Mapping[int, float] | None = None,
) -> Explanation:
    """What the logits of one root are made of, without dropout; also on a changed graph.

    It is exact where the output is linear given the attention: of an :class:`STAGNN`, an
    :class:`STAConv`, and an :class:`STAFormer` of one block that neither normalises nor has an
    activation or a feed-forward part. Of any other STAFormer it is an :class:`Attribution`, which
    says by how much its parts do not add up.

    Args:
        model: an STAGNN or STAFormer, or an STAConv whose output is to be explained.
        x: `[N, in_channels]`
        edge_index: any adjacency that :class:`Graph` takes, or a Graph.
        root: the node whose logits are explained.
        edge_weight: `[E]`, with an edge_index only.
        batch: `[N]`, the graph of each node, for global attention.
        edge_attr: `[E, edge_dim]`, for a layer whose edges have gates.
        without: nodes that are left out: neither they nor their edges are in the graph.
        cut: edges (source, target) that are; of an undirected graph in both directions.
        values: other values of the root's own features, by their column.

    To explain several roots, or one after several changes, make one :class:`Explainer` (or
    `Attributor`): this makes one for every call.
    """
    explainer = explainer_of(model, x, edge_index, edge_weight, batch, edge_attr)
    return explainer(root, Changes.of(explainer.graph, without, cut, values))


class _Nodes(NamedTuple):
    """What is known of nodes; heads first, so that what is read of one head lies together.

    Shapes: phi(q), phi(k) [H, n, d], v [H, n, c]; [n, width] what is added beside the heads.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    added: Tensor | None

    def with_row(self, node: int, row: _Nodes) -> _Nodes:
        """The same with another row for one node."""
        pairs, place = zip(self, row, strict=True), torch.tensor([node])

        def put(of_all: Tensor | None, own: Tensor | None) -> Any:
            if of_all is None or own is None:
                return None
            return of_all.index_copy(of_all.dim() - 2, place, own)

        return _Nodes(*(put(*pair) for pair in pairs))


class Explainer:
    """Explains any root of a graph: what does not depend on the root is computed once.

    Args:
        model: see :func:`explain`, like all that follow; one that is linear given its attention.
            Later changes of it are not seen.
        beside: `[N, C]` by name, what is added to the logits beside the model.

    Example:
        >>> explainer = Explainer(model, x, graph)  # doctest: +SKIP
        >>> explainer(7).logits  # doctest: +SKIP
    """

    exact = True

    @torch.no_grad()
    def __init__(
        self,
        model: STAGNN | STAFormer | STAConv,
        x: Features,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        edge_attr: Tensor | None = None,
        beside: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._beside_model = {name: added.cpu() for name, added in (beside or {}).items()}
        _around(model)  # or a refusal, before anything is copied
        self._model: Any = copy.deepcopy(model).eval().requires_grad_(False)
        self._conv, after = _around(self._model)
        self._x, self._of_edges = as_features(x), (edge_weight, edge_attr)
        self._set: tuple[int, Changes] | None = None
        hidden = _inputs(self._model, self._x, edge_index, edge_weight)
        self.graph = self._conv.as_graph(edge_index, edge_weight, hidden)
        self._walks, self._nodes = self._walks_on(self.graph), self._project(hidden)
        value = self._nodes.value.transpose(0, 1)[:0].to(self.graph.device)
        with ops.full_precision(value):
            # What stands between a head's values and the logits.
            self._mix, self._bias = _linear(self._conv.head_mix, value, after)
            attention = self._conv.beside
            self._beside = None if attention is None else _linear(attention, value, after)[0]
        if self._nodes.added is not None:
            self._after: Tensor = after.weight.cpu()
            self._bias = self._bias + self._after @ self._constant(hidden).cpu()
        if batch is not None:
            batch = check_batch(batch, self.graph.num_nodes).cpu()
            count_graphs(batch)  # refuses values that name none
        conv, self._batch = self._conv, batch
        self.num_nodes, self.hops, self.heads = self.graph.num_nodes, conv.hops, conv.heads
        self._softmax, self._eps = feature_maps.is_softmax(conv.feature_map), conv.eps
        self._gate, beta = conv.gate().to(self._nodes.value), conv.readout()
        self._beta = None if beta is None else beta.to("cpu", torch.float64)
        self._aggregation = copy.deepcopy(conv.aggregation).cpu()

    def _walks_on(self, graph: Graph) -> Walks:
        return Walks(graph, self._conv.entries(graph, *self._of_edges, torch.float64))

    def _project(self, hidden: Features) -> _Nodes:
        """What is known of nodes whose inputs of the layer these are, [n, width]."""
        query, key, value = self._conv.project(hidden)
        query, key, value, _ = ops.one_dtype(query, key, value, None)
        with ops.full_precision(query):
            query, key = ops.map_features(self._conv.feature_map, query, key)
        added, residual = None, self._residual
        if residual is not None:
            # Of sparse inputs too: a residual of them is a map, never they themselves.
            added = (residual(hidden) - self._constant(hidden)).cpu()
        query, key, value = (t.cpu().transpose(0, 1).contiguous() for t in (query, key, value))
        return _Nodes(query, key, value, added)

    @property
    def _residual(self) -> Any:
        """What a block adds of its input, beside its heads."""
        return self._model.blocks[0].residual if isinstance(self._model, STAFormer) else None

    def _constant(self, inputs: Features) -> Tensor:
        """What it adds where that is 0, [hidden]."""
        nothing = torch.zeros(1, inputs.size(1), dtype=inputs.dtype, device=inputs.device)
        return self._residual(nothing)[0]

    @torch.no_grad()
    def __call__(self, root: int, changes: Changes = NOTHING) -> Explanation:
        """The explanation of a root; with changes, on the graph so changed."""
        if _check.integer("root", root, 0) >= self.num_nodes:
            raise ValueError(f"root {root} is not a node: the graph has {self.num_nodes} nodes")
        if changes:
            return self._changed(root, changes)(root)
        reached = self._walks.reach(root, self.hops)
        levels = self._subtree(root, reached)
        if self._beside is not None:
            levels.append(self._everywhere(root, self._beside))
        if self._nodes.added is not None:
            levels.append(self._beside_heads(root, self._nodes.added, self._after))
        beside = {name: added[root].to(self._bias) for name, added in self._beside_model.items()}
        about = self.num_nodes, self._walks, reached
        return Explanation(root, levels, self._bias, *about, beside=beside, _way=self._way)

    def _way(self) -> Way:
        """How features become values."""
        return Way(self._model, self._conv, self._features(), self.graph, self._of_edges[0])

    def _features(self) -> Features:
        """`[N, channels]`, with those of a changed root."""
        return self._x if self._set is None else self._set[1].features(self._x, self._set[0])

    def _changed(self, root: int, changes: Changes) -> Explainer:
        """What explains this root on the graph so changed: all else is taken over.

        Keys and values are of single nodes, so those of others are what they were; only where the
        hidden layer is smoothed they are found anew.
        """
        changes.check(root, self.num_nodes, self._x.size(1))
        other = copy.copy(self)
        other._set = root, changes
        other._batch = changes.batch(self._batch, self.num_nodes)
        if changes.of_graph:
            other.graph = changes.graph(self.graph)
            other._walks = self._walks_on(other.graph)
        if getattr(self._model, "smoothing", 0):
            hidden = _inputs(self._model, other._features(), other.graph, self._of_edges[0])
            other._nodes = self._project(hidden)
        elif changes.columns:
            hidden = _inputs(self._model, changes.row(self._x, root), None, None)
            other._nodes = self._nodes.with_row(root, self._project(hidden))
        return other

    def _subtree(self, root: int, rows: list[Reach]) -> list[Level]:
        """Levels 0 .. K."""
        seen = torch.zeros(self.num_nodes, dtype=torch.bool)
        for row in rows:
            seen[torch.from_numpy(row.nodes)] = True
        if 2 * int(seen.sum()) > self.num_nodes:
            seen.fill_(True)  # then keys and values are used where they lie, instead of copied
        union, place_of = seen.nonzero().flatten(), seen.cumsum(0) - 1
        places = [place_of[torch.from_numpy(row.nodes)] for row in rows]
        values, scores = select(self._nodes.value, union), self._scores(root, union)
        attention = values.new_zeros(self.heads, len(rows), len(union))  # [H, K + 1, n]
        attention[:, 0, places[0]] = 1  # at hop 0 a root attends to itself
        for hop in range(1, len(rows)):
            mass = torch.from_numpy(rows[hop].mass)
            how = self._eps, None if self._beta is None else self._beta[hop - 1]
            weights = self._weights(mass, select(scores, places[hop]), *how)
            attention[:, hop].index_copy_(1, places[hop], weights)
        sums = torch.bmm(attention, values).transpose(0, 1)  # STA_0 .. STA_K: [K + 1, H, c]
        gate = self._gate[..., None]
        maps = gate[..., None] * self._aggregation.per_level(self._mix, gate * sums).to(sums)
        totals = (maps @ sums[..., None]).squeeze(-1)  # [K + 1, H, C]
        levels = zip(maps, totals, attention.unbind(1), places, strict=True)
        rest, is_mean = (union, values), self._beta is None
        return [Level(hop, *level, *rest, is_mean or hop == 0) for hop, level in enumerate(levels)]

    def _everywhere(self, root: int, output_map: Tensor) -> Level:
        """Global attention: every node of the root's graph."""
        nodes = torch.arange(self.num_nodes)
        if self._batch is not None:
            nodes = nodes[self._batch == self._batch[root]]
        eps = 0.0 if self._softmax else self._eps  # softmax has none here
        mass = torch.ones(len(nodes), dtype=torch.float64)
        attention = self._weights(mass, self._scores(root, nodes), eps)
        values, places = select(self._nodes.value, nodes), torch.arange(len(nodes))
        total = (output_map @ torch.bmm(attention.unsqueeze(1), values).mT).squeeze(-1)
        return Level(GLOBAL, output_map, total, attention, places, nodes, values)

    def _beside_heads(self, root: int, added: Tensor, output_map: Tensor) -> Level:
        """The residual, which belongs to no head: an equal part of it to each."""
        values = added[root].expand(self.heads, 1, -1)
        maps = (output_map / self.heads).expand(self.heads, -1, -1)
        total, here = (maps @ values.mT).squeeze(-1), torch.zeros(1, dtype=torch.long)
        weights, reached = values.new_ones(self.heads, 1), torch.tensor([root])
        return Level(RESIDUAL, maps, total, weights, here, reached, values)

    def _scores(self, root: int, nodes: Tensor) -> Tensor:
        """q.k of the root and n nodes (over sqrt(d) for softmax), [H, n], in float64."""
        query = self._nodes.query[:, root, :, None]
        scores = torch.bmm(select(self._nodes.key, nodes), query).squeeze(-1).double()
        return scores / math.sqrt(query.size(1)) if self._softmax else scores

    def _weights(
        self, mass: Tensor, scores: Tensor, eps: float, beta: Tensor | None = None
    ) -> Tensor:
        """Attention from what arrives [n], the scores [H, n] and powers [H]: -> [H, n]."""
        weights = ops.roots.shares(mass, scores.t(), eps, self._softmax, beta=beta)
        return weights.t().to(self._nodes.value)


def _is_linear(model: STAFormer) -> bool:
    """Whether the output is linear in the values, given the attention."""
    block = model.blocks[0]
    alone = len(model.blocks) == 1 and block.feed_forward is None
    return alone and isinstance(block.norm, nn.Identity) and block.activation == "none"


def _around(model: Any) -> tuple[STAConv, Any]:
    """The layer of a model whose parts are told, and what comes after it; or a refusal."""
    if isinstance(model, STAGNN | STAConv):
        return model.conv if isinstance(model, STAGNN) else model, nn.Identity()
    if not isinstance(model, STAFormer):
        said = type(model).__name__
        raise TypeError(f"only STAGNN, STAFormer and STAConv are explained, got {said}")
    if not _is_linear(model):
        raise ValueError(
            "this STAFormer is not linear given its attention, so its parts do not add up: "
            "explain(model, ...) gives an attribution"
        )
    return model.blocks[0].conv, model.lin_out


def _inputs(model: Any, x: Features, edge_index: Any, edge_weight: Tensor | None) -> Features:
    """What the layer of a model sees."""
    if isinstance(model, STAGNN):
        return model.hidden(x, edge_index, edge_weight)
    return model.inputs(x) if isinstance(model, STAFormer) else as_features(x)


def _linear(mix: HeadMix, value: Tensor, after: nn.Module) -> tuple[Tensor, Tensor]:
    """The map [H, C, width] and the constant [C] that a mix of heads and what follows it are."""
    zeros = value.new_zeros(1, mix.heads, mix.width)

    def mixed(heads: Tensor) -> Tensor:
        return after(mix(heads))

    derivative = torch.autograd.functional.jacobian(mixed, zeros)[0, :, 0]  # [C, H, width]
    return derivative.transpose(0, 1).cpu(), mixed(zeros)[0].to(zeros).cpu()
