r"""Attribution for networks that are not linear given their attention: integrated gradients.

The input of every node is brought up from 0 to what it is, all at the same time, and the logit
follows; what each node has of its way is integrated. With z what the first block sees and F a
logit,

.. math::
    \mathrm{added}_j = \int_0^1 \frac{\partial F(t z)}{\partial z_j} \cdot z_j \, dt, \qquad
    \sum_j \mathrm{added}_j = F(z) - F(0)

The integral is a sum over a few steps, so the parts add up nearly; by how much they do not is said.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import _check
from ..nn import STAFormer
from ..nn.features import Features, SparseFeatures, as_features
from ..nn.norms import looks_at_all
from .changes import NOTHING, Changes
from .columns import Columns, Term
from .explanation import GLOBAL, Explanation, Portion
from .flows import Flows
from .walks import Reach, Walks

STEPS = (32, 64, 128)
"""Points of the integral: more are taken as long as the parts do not add up."""

ENOUGH = 0.01
"""They do if what is missing is at most this share of all parts, without their signs."""


@dataclass(frozen=True)
class Ring(Portion):
    """The nodes of one distance from the root, or those that only global attention reaches.

    Attributes:
        hop: steps of the shortest walk to the root, or "global".
        nodes: `[n]`, ascending.
        classes: C.
    """

    hop: int | str
    nodes: Tensor
    classes: int
    _added: Callable[[int], Tensor]  # of a class, by all nodes: [N]

    @property
    def shares(self) -> None:
        """There are no weights that a node would have a share in."""
        return None

    def contributions(self, cls: int, rather: int | None = None) -> Tensor:
        """What is attributed to each node for the logit of a class, [n, 1], signed; or for how far
        that is before the logit of another."""
        self._check_class(cls, rather)
        own = self._added(cls)[self.nodes, None]
        return own if rather is None else own - self._added(rather)[self.nodes, None]

    def totals(self, classes: Sequence[int] | None = None) -> Tensor:
        classes = range(self.classes) if classes is None else classes
        return torch.stack([self.contributions(cls).sum(0) for cls in classes], dim=-1)

    def _parts(self, chosen: Tensor, classes: Sequence[int] | None) -> Tensor:
        classes = range(self.classes) if classes is None else classes
        return torch.stack([self.contributions(cls)[chosen] for cls in classes], dim=-1)


@dataclass(repr=False, eq=False)
class Attribution(Explanation):
    """What the logits of a root are attributed to: integrated gradients, not an exact sum.

    Levels are distances from the root; there are no heads (each table has one column). A class
    costs some dozen passes over the graph when it is first asked for.

    Attributes:
        bias: `[C]`, the logits where the input of all nodes is 0.
        outputs: `[C]`, what the model says.
    """

    exact: ClassVar[bool] = False
    outputs: Tensor
    _x: Features
    _parts: Callable[[int], list[_Part]]

    @cached_property
    def logits(self) -> Tensor:
        """[C], what the model says; the parts add up to it less :meth:`residual`."""
        return self.outputs

    def residual(self, cls: int) -> float:
        """What is missing: the logit less its parts."""
        parts = float(self.importance(cls).double().sum()) + float(self.bias[cls])
        parts += sum(float(added[cls]) for added in self.beside.values())
        return float(self.outputs[cls]) - parts

    def edges(self, cls: int, rather: int | None = None) -> Flows:
        """Refused: what is attributed to a node came by no walks that could be told apart."""
        raise ValueError(
            "an attribution is to nodes, not to edges: only of a model that is linear given its "
            "attention, such as STAGNN, is it known over which edges a logit came"
        )

    def columns(self, cls: int, rather: int | None = None) -> Columns:
        """What is attributed to each column of the features, over all nodes and of each one: what
        is attributed to a node, told apart by its columns. The bias has what is missing, too.
        """
        parts = [part.term() for part in self._parts(cls)]
        model = self.logits - sum(self.beside.values())
        whole = float(model[cls])
        if rather is not None:
            others = (part.term() for part in self._parts(rather))
            parts += [term._replace(slope=-term.slope) for term in others]
            whole -= float(model[rather])
        return Columns(False, whole, self._x, parts)


class Attributor:
    """Attributes the logits of any root of a graph to nodes: for an :class:`STAFormer`.

    Args:
        model: see :func:`explain`, like all that follow. Later changes of it are not seen.
    """

    exact = False
    heads = 1

    def __init__(
        self,
        model: STAFormer,
        x: Features,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        edge_attr: Tensor | None = None,
        beside: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._beside_model = {name: added.cpu() for name, added in (beside or {}).items()}
        self._model = copy.deepcopy(model).eval().requires_grad_(False)
        self._x = as_features(x)
        with torch.no_grad():
            self._inputs: Any = self._model.inputs(self._x)
            graph = self._model.blocks[0].conv.as_graph(edge_index, edge_weight, self._inputs)
        if graph.is_weighted:
            edge_weight = None  # they are in the Graph
        more: Any = {"edge_weight": edge_weight, "batch": batch, "edge_attr": edge_attr}
        self._more = {name: tensor for name, tensor in more.items() if tensor is not None}
        self._outputs: Any = partial(self._model.through, edge_index=graph, **self._more)
        self.graph = graph
        self.num_nodes, self.hops = graph.num_nodes, sum(b.conv.hops for b in model.blocks)
        self._everywhere = any(block.conv.beside is not None for block in model.blocks)
        self._walks, self._device = Walks(graph), graph.device
        self._ends = [self._at(share).cpu() for share in (0.0, 1.0)]

    def __call__(self, root: int, changes: Changes = NOTHING) -> Attribution:
        """The attribution of a root; with changes, on the graph so changed, which is run anew."""
        if _check.integer("root", root, 0) >= self.num_nodes:
            raise ValueError(f"root {root} is not a node: the graph has {self.num_nodes} nodes")
        if changes:
            return self._changed(root, changes)(root)
        start, end = (outputs[root] for outputs in self._ends)

        @cache
        def parts(cls: int) -> list[_Part]:
            return self._integrated(root, cls, float(end[cls] - start[cls]))

        @cache
        def added(cls: int) -> Tensor:
            return _added(parts(cls)).to(end)

        reached = self._walks.reach(root, self.hops)
        rings = [
            Ring(hop, torch.from_numpy(nodes), len(end), added)
            for hop, nodes in self._distances(root, reached)
        ]
        about = self.num_nodes, self._walks, reached
        beside = {name: added[root].to(end) for name, added in self._beside_model.items()}
        said = end + sum(beside.values())
        return Attribution(root, rings, start, *about, said, self._x, parts, beside=beside)

    def _changed(self, root: int, changes: Changes) -> Attributor:
        changes.check(root, self.num_nodes, self._x.size(1))
        if changes.nodes and looks_at_all(self._model):
            raise ValueError("its batch norm looks at all nodes, so that none can be left out")
        more = dict(self._more)
        if self._everywhere:
            batch = changes.batch(more.get("batch"), self.num_nodes)
            more |= {} if batch is None else {"batch": batch.to(self._device)}
        x, graph = changes.features(self._x, root), changes.graph(self.graph)
        return Attributor(self._model, x, graph, **more, beside=self._beside_model)

    def _distances(self, root: int, reached: list[Reach]) -> list[tuple[int | str, np.ndarray]]:
        """The nodes at each distance, as far as there are any; and those that no walk brings."""
        seen, rings = np.zeros(self.num_nodes, bool), list[tuple[int | str, np.ndarray]]()
        for hop, (nodes, _) in enumerate(reached):
            new = nodes[~seen[nodes]]
            seen[new] = True
            if len(new):
                rings.append((hop, new))
        batch = self._more.get("batch", torch.zeros(self.num_nodes)).cpu().numpy()
        others = np.flatnonzero(~seen & (batch == batch[root]))
        if self._everywhere and len(others):
            rings.append((GLOBAL, others))
        return rings

    def _integrated(self, root: int, cls: int, wanted: float) -> list[_Part]:
        """What a logit of the root is attributed to, with as many steps as it takes."""
        for steps in STEPS:
            parts: list[_Part] = []
            for share, weight in zip(*_points(steps), strict=True):
                step = self._slopes(share, root, cls)
                parts = parts or [
                    part._replace(slope=torch.zeros_like(part.slope)) for part in step
                ]
                for part, now in zip(parts, step, strict=True):
                    part.slope.add_(now.slope, alpha=weight)
            added = _added(parts)
            if abs(wanted - float(added.sum())) <= ENOUGH * float(added.abs().sum()):
                break
        return parts

    def _slopes(self, share: float, root: int, cls: int) -> list[_Part]:
        """Those of a logit where all inputs are multiplied by a share, above 0."""
        first, x = self._model.lin_in, self._inputs
        if first is not None:  # what the hidden units stand for, as far as they are active
            given = (share * x).requires_grad_()
            with torch.enable_grad():
                logit = self._outputs(given)[root, cls]
            (slope,) = torch.autograd.grad(logit, given)
            return [_Part(slope.where(x > 0, 0.0), x, first.weight)]
        tapped = _Tapped(x, share)
        with torch.enable_grad():
            logit = self._outputs(tapped)[root, cls]
        products, maps = zip(*tapped.taps, strict=True)
        slopes = torch.autograd.grad(logit, products, allow_unused=True, materialize_grads=True)
        each = zip(slopes, products, maps, strict=True)
        return [_Part(slope, product.detach() / share, map.t()) for slope, product, map in each]

    def _at(self, share: float) -> Tensor:
        """The outputs [N, C] where all inputs are multiplied by a share."""
        x = self._inputs
        with torch.no_grad():
            return self._outputs(share * x if isinstance(x, Tensor) else _Tapped(x, share))


class _Part(NamedTuple):
    """What is attributed to units of one of the first maps of a network.

    Shapes: `slope` [N, u], of the logit, its mean on the way from 0; `units` [N, u], what the map
    gives, and what is attributed is their product; `weight` [u, F].
    """

    slope: Tensor
    units: Tensor
    weight: Tensor

    def term(self) -> Term:
        """By columns of the features."""
        nodes = self.slope.any(1).nonzero().flatten()
        return Term(nodes.cpu(), self.slope[nodes].cpu(), self.weight.detach().cpu())


def _added(parts: list[_Part]) -> Tensor:
    """What is attributed to each node, [N], in float64."""
    return torch.stack([(part.slope * part.units).double().sum(1) for part in parts]).sum(0).cpu()


class _Tapped(SparseFeatures):
    """Features times a share, whose products with maps may be asked for slopes.

    Attributes:
        taps: products `[N, c]`, which begin a graph of gradients, and their maps `[F, c]`.
    """

    def __init__(self, x: Features, share: float) -> None:
        self.shape, self.dtype, self.device = x.shape, x.dtype, x.device
        self.x, self.share, self.taps = x, share, list[tuple[Tensor, Tensor]]()

    def times(self, dense: Tensor, dropout: float = 0.0) -> Tensor:
        x = self.x
        with torch.no_grad():
            out = self.share * (x @ dense if isinstance(x, Tensor) else x.times(dense, dropout))
        if torch.is_grad_enabled():
            self.taps.append((out.requires_grad_(), dense.detach()))
        return out


def _points(steps: int) -> tuple[list[float], list[float]]:
    """Where a function on 0 to 1 is looked at, and what counts how much (Gauss and Legendre)."""
    places, weights = np.polynomial.legendre.leggauss(steps)
    return ((places + 1) / 2).tolist(), (weights / 2).tolist()
