"""What a logit of one root is made of: levels of its subtree, heads and source nodes.

`Explanation` holds factors (attention, values, maps) and multiplies them out for what is asked,
so it is small even where a root reaches a large graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

import subtree_attention as sta  # what shows it stands above, and is called by its public name

from .. import _check
from ..ops.recurrence import divide
from .columns import Columns, Slopes, Way
from .flows import Flows, flows
from .walks import Reach, Walk, Walks

ORDERS = ("share", "contribution")
GLOBAL = "global"
"""The name of global attention's level, which has no hop."""
RESIDUAL = "residual"
"""The name of what a block adds of its input, beside its heads."""
REFERENCE, CORRECTION = "reference", "correction"
"""The names of what stands beside the model: what a reference says, and what labels of training
nodes add once training has ended."""


class Source(NamedTuple):
    """A node of a level: its share of each head's attention [H], see `Level.shares`, and what it
    adds to each logit [H, C]."""

    node: int
    attention: Tensor
    contribution: Tensor


class Rest(NamedTuple):
    """The nodes of a level that are not shown, as one: how many, and their sums [H], [H, C]."""

    nodes: int
    attention: Tensor
    contribution: Tensor


class Portion(ABC):
    """Nodes that are told together, and what they add to the logits of a root through H heads."""

    hop: int | str
    nodes: Any
    classes: Any
    is_mean = True

    @property
    @abstractmethod
    def shares(self) -> Tensor | None:
        """The share of each node in the weights of each head, [n, H], if there are weights."""

    @abstractmethod
    def contributions(self, cls: int, rather: int | None = None) -> Tensor:
        """What each node adds to the logit of a class through each head, [n, H], signed; with
        `rather`, by how much more than to the logit of that class."""

    @abstractmethod
    def totals(self, classes: Sequence[int] | None = None) -> Tensor:
        """What all of them add to the logits of m classes through each head, [H, m]; None: all."""

    @abstractmethod
    def _parts(self, chosen: Tensor, classes: Sequence[int] | None) -> Tensor:
        """What some of them add: [p] -> [p, H, m]."""

    def top(
        self,
        count: int,
        by: str = "share",
        cls: int | None = None,
        classes: Sequence[int] | None = None,
        rather: int | None = None,
    ) -> tuple[list[Source], Rest]:
        """The nodes that matter most, and the others added up.

        Args:
            count: how many nodes.
            by: `"share"`, that of the attention, over all heads, or `"contribution"`, the absolute
                contribution to the logit of `cls`. Where there is no attention it is always that.
            cls: a class, for `"contribution"`.
            classes: to which contributions are told; by default all.
            rather: another class, for `"contribution"`: then it is how far a node puts `cls`
                before that one.
        """
        _check.integer("count", count, 0)
        _check.known("order", by, ORDERS)
        if cls is not None:
            self._check_class(cls, rather)
        shares = self.shares
        if by == "share" and shares is not None:
            key = shares.sum(1)
        elif cls is None:
            raise ValueError("contributions are to a class: say which by cls=")
        else:
            key = self.contributions(cls, rather).sum(1).abs()
        attention = key.new_zeros(len(key), 0) if shares is None else shares
        chosen = key.topk(min(count, len(key))).indices
        parts, named = self._parts(chosen, classes), attention[chosen]
        nodes = self.nodes[chosen].tolist()
        sources = [Source(*source) for source in zip(nodes, named, parts, strict=True)]
        others = len(key) - len(chosen)
        # By subtraction, so that shown and not shown are the whole to the last digit.
        left, added = attention.sum(0) - named.sum(0), self.totals(classes) - parts.sum(0)
        if not others:
            left, added = torch.zeros_like(left), torch.zeros_like(added)
        return sources, Rest(others, left, added)

    def _check_class(self, cls: int, rather: int | None = None) -> None:
        for each in (cls,) if rather is None else (cls, rather):
            if _check.integer("class", each, 0) >= self.classes:
                last = self.classes - 1
                raise ValueError(f"there is no class {each}: the model has classes 0 to {last}")


@dataclass(frozen=True)
class Level(Portion):
    """A level of a rooted subtree, or all nodes for global attention.

    The levels of a root share what they know of all nodes that it reaches, so that none copies it.

    Attributes:
        hop: k, "global", or "residual": what a model adds of the root itself, beside its heads.
        output_map: `[H, C, c]`, from a head's values to logits: hop weight, gate and W_O.
        total: `[H, C]`, what the level adds to each logit through each head.
        is_mean: whether the weights of a head are shares already: they are where the read-out is a
            mean, as in the paper.
    """

    hop: int | str
    output_map: Tensor
    total: Tensor
    _weights: Tensor  # [H, reached], 0 for nodes of other levels only
    _places: Tensor  # of this level's nodes among those reached
    _reached: Tensor  # nodes of any level, ascending
    _values: Tensor  # [H, reached, c]
    is_mean: bool = True

    @property
    def nodes(self) -> Tensor:
        """The nodes of the level, ascending, [n]."""
        return select(self._reached, self._places)

    @property
    def classes(self) -> int:
        return self.output_map.size(1)

    @property
    def attention(self) -> Tensor:
        """The weight of each node, [n, H], which its values are multiplied by.

        Where the read-out is a mean those of a head sum to 1, less what eps takes; with other
        powers of the denominator they sum to something else, and say how much is heard at all.
        """
        return select(self._weights, self._places).t()

    @property
    def shares(self) -> Tensor:
        """The share of each node in the weights of each head, [n, H]; 0 where all of them are."""
        weights = self.attention
        return weights if self.is_mean else divide(weights, weights.sum(0, keepdim=True))

    def contributions(self, cls: int, rather: int | None = None) -> Tensor:
        """What each node adds to the logit of a class through each head, [n, H], signed; with
        `rather`, by how much more than to the logit of that class."""
        return self._contributions(self._places, self.map_to(cls, rather))[..., 0].t()

    def map_to(self, cls: int, rather: int | None = None) -> Tensor:
        """The map from a head's values to the logit of a class, [H, 1, c], or to how far that is
        before the logit of another."""
        self._check_class(cls, rather)
        own = self.output_map[:, [cls]]
        return own if rather is None else own - self.output_map[:, [rather]]

    def totals(self, classes: Sequence[int] | None = None) -> Tensor:
        return self.total if classes is None else self.total[:, [*classes]]

    def _parts(self, chosen: Tensor, classes: Sequence[int] | None) -> Tensor:
        maps = self.output_map if classes is None else self.output_map[:, [*classes]]
        return self._contributions(self._places[chosen], maps).transpose(0, 1)

    def _contributions(self, places: Tensor, maps: Tensor) -> Tensor:
        """Of some nodes to some classes: [p], [H, m, c] -> [H, p, m]."""
        values, weights = select(self._values, places), select(self._weights, places)
        return weights[..., None] * torch.bmm(values, maps.transpose(1, 2))


def select(tensor: Tensor, places: Tensor) -> Tensor:
    """Places of the axis of nodes, which is the first of [n] and the second of [H, n, ...]."""
    axis = min(tensor.dim() - 1, 1)
    # Places ascend and are distinct, or are a few: as many as there are nodes means all of them.
    if len(places) == tensor.size(axis) and bool((places[1:] > places[:-1]).all()):
        return tensor
    return tensor.index_select(axis, places)


@dataclass(repr=False, eq=False)
class Explanation:
    r"""Why a root has its logits: an exact sum, nothing estimated.

    .. math::
        \mathrm{logit}_c = b_c + \sum_k \sum_h \sum_j
            a^h_k[j] \, (M^h_k V^h_j)_c

    a is the attention of the root over level k, M the weight of the hop, the gate and W_O. With
    the attention over hops, its weights are taken as they are at this root; so are the denominators
    and their powers, where the read-out of a level is no mean.

    Attributes:
        root: the node explained.
        levels: hop 0 (the root itself) to K, then global attention and what is added of the root
            beside its heads, as far as the model has them.
        bias: `[C]`, what belongs to no node.
        beside: `[C]` by name, what is added to the logits beside the model, such as "correction".
        num_nodes: N of the graph.
        exact: whether the parts add up; an :class:`Attribution` says by how much they do not.
        run: the run that it is of, see `SavedRun.explain`; None of a bare model.
    """

    exact: ClassVar[bool] = True

    root: int
    levels: list[Any]
    bias: Tensor
    num_nodes: int
    _walks: Walks
    _reached: list[Reach]
    _best: list[np.ndarray] = field(default_factory=list, init=False)
    beside: dict[str, Tensor] = field(default_factory=dict, kw_only=True)
    _way: Callable[[], Way] | None = field(default=None, kw_only=True)
    run: Any = field(default=None, kw_only=True)

    @cached_property
    def totals(self) -> Tensor:
        """What each level adds to each logit through each head, [L, H, C]."""
        return torch.stack([level.totals() for level in self.levels])

    @cached_property
    def logits(self) -> Tensor:
        """[C], the sum of all parts: what the model says, to rounding."""
        return self.bias + self.totals.sum((0, 1)) + sum(self.beside.values())

    @property
    def predicted(self) -> int:
        """The class with the largest logit."""
        return int(self.logits.argmax())

    def rival(self, cls: int) -> int | None:
        """The class with the largest logit besides `cls`; None if there is no other."""
        order = self.logits.sort(descending=True, stable=True).indices.tolist()
        return next((other for other in order if other != cls), None)

    def residual(self, cls: int) -> float:
        """What is missing of a logit: nothing, but for rounding."""
        return 0.0

    def level(self, hop: int | str) -> Any:
        """The level of a hop, or `"global"`."""
        found = {level.hop: level for level in self.levels}
        if isinstance(hop, int | str) and not isinstance(hop, bool) and hop in found:
            return found[hop]
        hops = ", ".join(map(str, found))
        raise ValueError(f"there is no hop {_check.said(hop)} to explain: this model reads {hops}")

    def importance(self, cls: int, rather: int | None = None) -> Tensor:
        """What each node adds to the logit of a class over all hops and heads, [N], signed.

        With `rather`, what it adds to the difference of two logits: why this class rather than that
        one. The difference of two sums is a sum too, and as exact.
        """
        out = self.bias.new_zeros(self.num_nodes)
        for level in self.levels:  # nodes of a level are distinct: no sum in chance order
            out[level.nodes] += level.contributions(cls, rather).sum(1)
        return out

    def edges(self, cls: int, rather: int | None = None) -> Flows:
        """What comes to the logit of a class over each edge, exactly; or to its difference from
        that of a class which it might be rather.

        What a source adds at a hop is shared out among its walks by their probabilities, and an
        edge has what all walks over it bring. Hop 0 and global attention walk over no edge.
        """
        hops = self.levels[: len(self._reached)]
        parts = [level.contributions(cls, rather).double().numpy() for level in hops]
        return flows(self._walks, self._reached, parts)

    def columns(self, cls: int, rather: int | None = None) -> Columns:
        """What each column of the features adds to the logit of a class, over all nodes and of each
        one; or to its difference from that of a class which it might be rather.

        Exact where values are linear in the features, as in an STAConv. A hidden layer with ReLU
        between is taken as it is: columns add up exactly, given which of its units are active.
        """
        assert self._way is not None  # but of an Attribution, which has no such way
        alike: dict[int, list[Level]] = {}
        for level in self.levels:  # those of the subtree share what they reach
            alike.setdefault(id(level._reached), []).append(level)
        slopes = []
        for levels in alike.values():
            weights = torch.stack([level._weights for level in levels], -1)  # [H, n, L]
            maps = torch.stack([level.map_to(cls, rather)[:, 0] for level in levels], 1)
            of_values = torch.bmm(weights, maps)  # [H, n, c]
            is_residual = levels[0].hop == RESIDUAL
            slopes.append(Slopes(levels[0]._reached, of_values, is_residual))
        model = self.logits - sum(self.beside.values())
        whole = float(model[cls]) - (0.0 if rather is None else float(model[rather]))
        return self._way().back(slopes, whole)

    def walk(self, hop: int, source: int) -> Walk:
        """The most probable walk of `hop` steps from a source to the root.

        The product of the transition probabilities along it is the largest; with a transition
        matrix that has negative entries, that of their absolute values. It says through whom a
        source is seen: all walks together are what the attention counts.
        """
        self.level(_check.integer("hop", hop, 0, _check.MOST_HOPS))  # or there is no such hop
        if _check.index("source", source, self.num_nodes) not in self._reached[hop].nodes:
            raise ValueError(f"no walk of {hop} steps leads from node {source} to {self.root}")
        if hop >= len(self._best):  # deeper levels cost most, and few ask for them
            self._best = self._walks.best(self._reached[: hop + 1])
        return self._walks.trace(self._reached, self._best, hop, source)

    def show(self) -> str:
        """Open the page of `sta explore` at this root, in the browser; returns its address.

        It is served as long as this process runs. Only of a run: see `SavedRun.explain`.
        """
        if self.run is None:
            raise ValueError(
                "this explanation is of a bare model, and the page is of a run: train one by "
                "sta.fit or 'sta train', then sta.open(folder).explain(node).show()"
            )
        return sta.explore(self.run, self.run.dataset.id(self.root))

    def _repr_html_(self) -> str:
        """What a notebook shows: the subtree and a short table, without scripts."""
        return sta.as_html(self)

    def __repr__(self) -> str:
        hops = ", ".join(f"{level.hop}: {len(level.nodes)}" for level in self.levels)
        root, predicted = str(self.root), str(self.predicted)
        if self.run is not None:
            id, title = (of(self.root) for of in (self.run.dataset.id, self.run.dataset.title))
            root = repr(id) + f" ({title!r})" * (title != id)
            predicted = repr(self.run.answers.told(self.root))
        return f"Explanation(root={root}, predicted={predicted}, nodes={{{hops}}})"
