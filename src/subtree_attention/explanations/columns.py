r"""Which columns of the features made a logit: from values back through the input layer.

A logit is a sum over values, V = H W_V, and H = relu(X W + b). Given which units are active, that
is linear in X, so that the columns of each node and the biases add up:

.. math::
    \mathrm{added}_{jf} = x_{jf} \sum_u G_{ju} [h_{ju} > 0] W_{fu}, \qquad
    G_j = \sum_{k, h} a^h_k[j] \, (M^h_k)_c W^h_V

As everywhere, attention is taken as it is. Where no activation lies between, nothing else is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _check
from ..graph import Graph
from ..nn import STAGNN, STAConv
from ..nn.features import Features, rows_of
from ..nn.smoothing import smoothed


class Slopes(NamedTuple):
    """By how much a logit rises with the values of some nodes.

    Attributes:
        nodes: `[n]`, ascending.
        slopes: `[H, n, c]`
        is_residual: whether the values are what a block adds of its input, beside its heads: an
            equal part of it by each.
    """

    nodes: Tensor
    slopes: Tensor
    is_residual: bool


class Term(NamedTuple):
    """What some nodes add through one linear map of their features.

    Shapes: `nodes` [n], ascending; `slope` [n, u], of the logit for each unit of the map; `weight`
    [u, F].
    """

    nodes: Tensor
    slope: Tensor
    weight: Tensor


@dataclass(frozen=True, eq=False)
class Columns:
    """What columns of the features add to a logit, or to the difference of two.

    Attributes:
        linear: whether values are linear in the features; else it is so given which units of the
            hidden layer are active.
        whole: the logit, without what stands beside the model: columns and `bias` add up to it.
    """

    linear: bool
    whole: float
    _x: Features
    _terms: list[Term]

    @cached_property
    def total(self) -> Tensor:
        """What each column adds over all nodes, `[F]`, signed; float64."""
        added = (
            (_product(_rows(self._x, nodes).T, slope) * weight.t()).double().sum(1)
            for nodes, slope, weight in self._terms
        )
        return torch.stack([*added]).sum(0)

    @property
    def bias(self) -> float:
        """What belongs to no column: the biases of all maps."""
        return self.whole - float(self.total.sum())

    def of(self, node: int) -> Tensor:
        """What each column of one node adds, `[F]`; all of 0 where it adds nothing."""
        _check.index("node", node, self._x.size(0))
        own = rows_of(self._x, torch.tensor([node], device=self._x.device))[0].cpu().double()
        slopes = (slope[nodes == node].sum(0) @ weight for nodes, slope, weight in self._terms)
        return own * torch.stack([*slopes]).sum(0).double()


class Way:
    """The way of features to values in a model, and back.

    Args:
        model: an STAGNN, an STAConv, or an STAFormer that is linear given its attention; frozen.
        conv: its layer.
        x: `[N, F]`
        graph, edge_weight: what a hidden layer is smoothed over.
    """

    def __init__(
        self, model: Any, conv: STAConv, x: Features, graph: Graph, edge_weight: Tensor | None
    ) -> None:
        self.model, self.conv, self.x, self.graph = model, conv, x, graph
        self.first: Any = model.lin if isinstance(model, STAGNN) else getattr(model, "lin_in", None)
        self.edge_weight = edge_weight

    @torch.no_grad()
    def back(self, slopes: Sequence[Slopes], whole: float) -> Columns:
        """What columns add to a logit, whose slopes for all values are these."""
        terms = [self._of_inputs(*each) for each in slopes]
        if self.first is not None:
            terms = [self._through_first(term) for term in terms]
        return Columns(self.first is None, whole, self.x, terms)

    def _of_inputs(self, nodes: Tensor, slopes: Tensor, is_residual: bool) -> Term:
        """By inputs of the layer."""
        if is_residual:
            return Term(nodes, slopes.sum(0), self._residual())
        by_value = slopes.transpose(0, 1).flatten(1)
        return Term(nodes, by_value, self.conv.lin_value.weight.detach().cpu().to(slopes))

    def _residual(self) -> Tensor:
        """The map from the input of a block to what it adds of that, [width, channels]."""
        block = self.model.blocks[0]
        weight = block.conv.lin_value.weight
        unit = torch.eye(weight.size(1), dtype=weight.dtype, device=weight.device)
        return (block.residual(unit) - block.residual(torch.zeros_like(unit[:1]))).t().cpu()

    def _through_first(self, term: Term) -> Term:
        """The same by units of the first map, as far as they are active."""
        nodes, slope = term.nodes, term.slope @ term.weight
        weight = self.first.weight.detach().cpu().to(slope)
        if getattr(self.model, "smoothing", 0):
            return Term(*self._through_smoothing(nodes, slope), weight)
        units = _product(_rows(self.x, nodes), weight.t())
        if self.first.bias is not None:
            units += self.first.bias.detach().cpu()
        return Term(nodes, slope.where(units > 0, 0.0), weight)

    def _through_smoothing(self, nodes: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
        """Back over the steps that the hidden layer is spread by: other nodes have a part in it."""
        units = self.first(self.x).detach().requires_grad_()
        with torch.enable_grad():
            spread = smoothed(units, self.graph, self.model.smoothing, self.edge_weight)
        whole = torch.zeros_like(spread)
        whole[nodes.to(spread.device)] = slope.to(spread)
        (back,) = torch.autograd.grad(spread, units, whole.where(spread > 0, 0.0))
        there = back.any(1).nonzero().flatten()
        return there.cpu(), back[there].cpu()


def _rows(x: Features, nodes: Tensor) -> Any:
    """Some rows of x on the CPU, a tensor or a sparse array of scipy as it is: [n, F]."""
    if isinstance(x, Tensor):
        return (x if len(nodes) == len(x) else x[nodes.to(x.device)]).detach().cpu()
    return x.csr_rows(nodes.to(x.device))


def _product(one: Any, other: Tensor) -> Tensor:
    """A tensor or a sparse array times a tensor."""
    if isinstance(one, Tensor):
        return one.to(other) @ other
    return torch.from_numpy(one @ other.numpy())
