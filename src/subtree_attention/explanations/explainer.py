r"""From a model, a graph and a root to an `Explanation`.

Given the attention weights, STA's output is linear in the values, whatever the read-out makes of
the denominators, so the parts add up to the logit. Row i of A^k is found by k steps from the root,
over the reached nodes only: O(K E).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .. import _check, feature_maps, ops
from ..nn import STAGNN, HeadMix, KnownLabels, NodeNetwork, STAConv, STAFormer
from ..nn.everywhere import check_batch, count_graphs
from ..nn.features import Features, as_features
from ..nn.models import evaluating
from .attribution import Attributor
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
) -> Explanation:
    """What the logits of one root are made of, without dropout.

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

    To explain several roots, make one :class:`Explainer` (or `Attributor`): this makes one for
    every call.
    """
    return explainer_of(model, x, edge_index, edge_weight, batch, edge_attr)(root)


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
        conv, after = _around(model)
        with evaluating(model):
            hidden = _inputs(model, x, edge_index, edge_weight)
            graph = conv.as_graph(edge_index, edge_weight, hidden)
            entries = conv.entries(graph, edge_weight, edge_attr, torch.float64)
            query, key, value = conv.project(hidden)
            query, key, value, _ = ops.one_dtype(query, key, value, None)
            with ops.full_precision(query):
                query, key = ops.map_features(conv.feature_map, query, key)
                # What stands between a head's values and the logits, like what follows copied.
                self._mix, self._bias = _linear(conv.head_mix, value, after)
                attention = conv.beside
                self._beside = None if attention is None else _linear(attention, value, after)[0]
                self._residual: tuple[Tensor, Tensor] | None = None
                if isinstance(model, STAFormer):
                    self._keep_residual(model, hidden)
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

    def _keep_residual(self, model: STAFormer, inputs: Features) -> None:
        """What a block adds of its input [N, hidden], and the map from there to logits."""
        residual, weight = model.blocks[0].residual, model.lin_out.weight
        if residual is None:
            return
        nothing: Any = torch.zeros(1, inputs.size(1), dtype=inputs.dtype, device=inputs.device)
        constant = residual(nothing)[0]
        self._bias = self._bias + (weight @ constant).cpu()
        # Of sparse inputs too: a residual of them is a map, never they themselves.
        self._residual = (residual(inputs) - constant).cpu(), weight.cpu()

    @torch.no_grad()
    def __call__(self, root: int) -> Explanation:
        """The explanation of a root."""
        if _check.integer("root", root, 0) >= self.num_nodes:
            raise ValueError(f"root {root} is not a node: the graph has {self.num_nodes} nodes")
        reached = self._walks.reach(root, self.hops)
        levels = self._subtree(root, reached)
        if self._beside is not None:
            levels.append(self._everywhere(root, self._beside))
        if self._residual is not None:
            levels.append(self._beside_heads(root, *self._residual))
        beside = {name: added[root].to(self._bias) for name, added in self._beside_model.items()}
        about = self.num_nodes, self._walks, reached
        return Explanation(root, levels, self._bias, *about, beside=beside)

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

    def _beside_heads(self, root: int, added: Tensor, output_map: Tensor) -> Level:
        """The residual, which belongs to no head: an equal part of it to each."""
        values = added[root].expand(self.heads, 1, -1)
        maps = (output_map / self.heads).expand(self.heads, -1, -1)
        total, here = (maps @ values.mT).squeeze(-1), torch.zeros(1, dtype=torch.long)
        weights, reached = values.new_ones(self.heads, 1), torch.tensor([root])
        return Level(RESIDUAL, maps, total, weights, here, reached, values)

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


def _is_linear(model: STAFormer) -> bool:
    """Whether the output is linear in the values, given the attention."""
    block = model.blocks[0]
    alone = len(model.blocks) == 1 and block.feed_forward is None
    return alone and isinstance(block.norm, nn.Identity) and block.activation == "none"


def _around(model: Any) -> tuple[STAConv, nn.Module]:
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
