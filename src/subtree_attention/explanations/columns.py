r"""Which columns of the features made a logit: from values back through the input layer.

A logit is a sum over values, V = H W_V, and H = relu(X W + b). Given which units are active, that
is linear in X, so that the columns of each node and the biases add up:

.. math::
    \mathrm{added}_{jf} = x_{jf} \sum_u G_{ju} [h_{ju} > 0] W_{fu}, \qquad
    G_j = \sum_{k, h} a^h_k[j] \, (M^h_k)_c W^h_V

As everywhere, attention is taken as it is. Where no activation lies between, nothing else is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import _check
from ..graph import Graph
from ..nn import STAGNN, STAConv
from ..nn.features import Features
from ..nn.smoothing import smoothed


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
        sums = []
        for nodes, slope, weight in self._terms:
            along = _rows(self._x, nodes).T @ slope.numpy()  # [F, u]
            sums.append(torch.from_numpy(along).mul_(weight.t()).sum(1))
        return torch.stack(sums).sum(0)

    @property
    def bias(self) -> float:
        """What belongs to no column: the biases of all maps."""
        return self.whole - float(self.total.sum())

    def of(self, node: int) -> Tensor:
        """What each column of one node adds, `[F]`; all of 0 where it adds nothing."""
        _check.index("node", node, self._x.size(0))
        own = _rows(self._x, torch.tensor([node]))
        slopes = [slope[nodes == node].sum(0) @ weight for nodes, slope, weight in self._terms]
        own = own if isinstance(own, np.ndarray) else own.toarray()
        return torch.from_numpy(own[0]) * torch.stack(slopes).sum(0)


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
    def back(
        self, nodes: Tensor, slopes: Tensor, root: int, *beside: Tensor, whole: float
    ) -> Columns:
        """What columns add to a logit.

        Args:
            nodes: `[n]`, ascending.
            slopes: `[n, H c]`, of the logit for each of their values.
            root: one of them.
            beside: `[width]`, of the logit for what is added of the root beside its heads, if
                anything is.
            whole: the logit.
        """
        terms = [Term(nodes, slopes, _double(self.conv.lin_value.weight))]
        terms += [Term(torch.tensor([root]), own[None], self._residual()) for own in beside]
        if self.first is None:
            return Columns(True, whole, self.x, terms)
        return Columns(False, whole, self.x, [self._through_first(terms)])

    def _residual(self) -> Tensor:
        """The map from the input of a block to what it adds of that, [width, channels]."""
        block = self.model.blocks[0]
        weight = block.conv.lin_value.weight
        unit = torch.eye(weight.size(1), dtype=weight.dtype, device=weight.device)
        return _double(block.residual(unit) - block.residual(torch.zeros_like(unit[:1]))).t()

    def _through_first(self, terms: list[Term]) -> Term:
        """The same by units of the first map, as far as they are active."""
        nodes = terms[0].nodes
        slope = torch.zeros(len(nodes), self.first.out_channels, dtype=torch.float64)
        for of, own, weight in terms:
            slope.index_add_(0, torch.searchsorted(nodes, of), own @ weight)
        weight = _double(self.first.weight)
        if getattr(self.model, "smoothing", 0):
            return Term(*self._through_smoothing(nodes, slope), weight)
        bias = 0.0 if self.first.bias is None else _double(self.first.bias).numpy()
        units = torch.from_numpy(_rows(self.x, nodes) @ weight.t().numpy() + bias)
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
        return there.cpu(), _double(back[there])


def _double(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().double()


def _rows(x: Features, nodes: Tensor) -> Any:
    """Some rows of x on the CPU in float64, dense or sparse as it is: [n, F]."""
    if isinstance(x, Tensor):
        return _double(x[nodes.to(x.device)]).numpy()
    return x.csr_rows(nodes.to(x.device)).astype(np.float64)
