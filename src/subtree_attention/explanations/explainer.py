r"""From a model, a graph and a root to an `Explanation`.

Given the attention weights, STA's output is linear in the values, whatever the read-out makes of
the denominators, so the parts add up to the logit. Row i of A^k is found by k steps from the root,
over the reached nodes only: O(K E).
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor

from .. import _check, feature_maps, ops
from ..nn import STAGNN, HeadMix, STAConv
from ..nn.everywhere import check_batch, count_graphs
from ..nn.features import Features, as_features
from ..nn.models import evaluating
from .explanation import GLOBAL, Explanation, Level, select
from .walks import Reach, Walks


def explain(
    model: STAGNN | STAConv,
    x: Features,
    edge_index: Any,
    root: int,
    edge_weight: Tensor | None = None,
    batch: Tensor | None = None,
    edge_attr: Tensor | None = None,
) -> Explanation:
    """What the logits of one root are made of; exact, and without dropout.

    Args:
        model: an :class:`STAGNN`, or an :class:`STAConv` whose output is to be explained.
        x: `[N, in_channels]`
        edge_index: any adjacency that :class:`Graph` takes, or a Graph.
        root: the node whose logits are explained.
        edge_weight: `[E]`, with an edge_index only.
        batch: `[N]`, the graph of each node, for global attention.
        edge_attr: `[E, edge_dim]`, for a layer whose edges have gates.

    To explain several roots, make one :class:`Explainer`: this makes one for every call.
    """
    return Explainer(model, x, edge_index, edge_weight, batch, edge_attr)(root)


class Explainer:
    """Explains any root of a graph: what does not depend on the root is computed once.

    Args:
        model: see :func:`explain`, like all that follow. Later changes of it are not seen.

    Example:
        >>> explainer = Explainer(model, x, graph)  # doctest: +SKIP
        >>> explainer(7).logits  # doctest: +SKIP
    """

    @torch.no_grad()
    def __init__(
        self,
        model: STAGNN | STAConv,
        x: Features,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> None:
        if not isinstance(model, STAGNN | STAConv):
            raise TypeError(f"only STAGNN and STAConv are explained, got {type(model).__name__}")
        conv = model.conv if isinstance(model, STAGNN) else model
        with evaluating(model):
            hidden = model.hidden(x) if isinstance(model, STAGNN) else as_features(x)
            graph = conv.as_graph(edge_index, edge_weight, hidden)
            entries = conv.entries(graph, edge_weight, edge_attr, torch.float64)
            query, key, value = conv.project(hidden)
            query, key, value, _ = ops.one_dtype(query, key, value, None)
            with ops.full_precision(query):
                query, key = ops.map_features(conv.feature_map, query, key)
                # What stands between a head's values and the logits, like what follows copied.
                self._mix, self._bias = _linear(conv.head_mix, value)
                beside = conv.beside
                self._beside = None if beside is None else _linear(beside, value)[0]
        if batch is not None:
            batch = check_batch(batch, graph.num_nodes)
            count_graphs(batch)  # refuses values that name none
        self.num_nodes, self.hops, self.heads = graph.num_nodes, conv.hops, conv.heads
        self._softmax, self._eps = feature_maps.is_softmax(conv.feature_map), conv.eps
        self._batch = None if batch is None else batch.cpu()
        self._walks = Walks(graph, entries)
        # Heads first, [H, N, .]: what is read of one head lies together.
        heads_first = (t.cpu().transpose(0, 1).contiguous() for t in (query, key, value))
        self._query, self._key, self._value = heads_first
        self._gate = conv.gate().to(self._value, copy=True)
        beta = conv.readout()
        self._beta = None if beta is None else beta.to("cpu", torch.float64, copy=True)
        self._aggregation = copy.deepcopy(conv.aggregation).cpu()

    @torch.no_grad()
    def __call__(self, root: int) -> Explanation:
        """The explanation of a root."""
        if _check.integer("root", root, 0) >= self.num_nodes:
            raise ValueError(f"root {root} is not a node: the graph has {self.num_nodes} nodes")
        reached = self._walks.reach(root, self.hops)
        levels = self._subtree(root, reached)
        if self._beside is not None:
            levels.append(self._everywhere(root, self._beside))
        return Explanation(root, levels, self._bias, self.num_nodes, self._walks, reached)

    def _subtree(self, root: int, rows: list[Reach]) -> list[Level]:
        """Levels 0 .. K."""
        seen = torch.zeros(self.num_nodes, dtype=torch.bool)
        for row in rows:
            seen[torch.from_numpy(row.nodes)] = True
        if 2 * int(seen.sum()) > self.num_nodes:
            seen.fill_(True)  # then keys and values are used where they lie, instead of copied
        union, place_of = seen.nonzero().flatten(), seen.cumsum(0) - 1
        places = [place_of[torch.from_numpy(row.nodes)] for row in rows]
        values, scores = select(self._value, union), self._scores(root, union)
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
        values, places = select(self._value, nodes), torch.arange(len(nodes))
        total = (output_map @ torch.bmm(attention.unsqueeze(1), values).mT).squeeze(-1)
        return Level(GLOBAL, output_map, total, attention, places, nodes, values)

    def _scores(self, root: int, nodes: Tensor) -> Tensor:
        """q.k of the root and n nodes (over sqrt(d) for softmax), [H, n], in float64."""
        query = self._query[:, root, :, None]
        scores = torch.bmm(select(self._key, nodes), query).squeeze(-1).double()
        return scores / math.sqrt(query.size(1)) if self._softmax else scores

    def _weights(
        self, mass: Tensor, scores: Tensor, eps: float, beta: Tensor | None = None
    ) -> Tensor:
        """Attention from what arrives [n], the scores [H, n] and powers [H]: -> [H, n]."""
        weights = ops.roots.shares(mass, scores.t(), eps, self._softmax, beta=beta)
        return weights.t().to(self._value)


def _linear(mix: HeadMix, value: Tensor) -> tuple[Tensor, Tensor]:
    """The map [H, C, width] and the constant [C] that a mix of heads is, as it is linear."""
    zeros = value.new_zeros(1, mix.heads, mix.width)
    derivative = torch.autograd.functional.jacobian(mix, zeros)[0, :, 0]  # [C, H, width]
    return derivative.transpose(0, 1).cpu(), mix(zeros)[0].to(zeros).cpu()
