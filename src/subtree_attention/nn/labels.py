"""What a network knows of nodes besides their features: labels, and what a reference says.

A label that is shown is a feature of its node. No path may lead it to that node's own loss, so in a
step of training only some labels are shown, others in every step, and the loss is on the nodes
whose labels are hidden in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..graph import Graph
from ..ops.dropout import drop
from ..partition import HERE, PartGraph
from .features import Features, SparseFeatures, as_features
from .parts import reset_children

if TYPE_CHECKING:
    import scipy.sparse


@dataclass(frozen=True, eq=False)
class KnownLabels:
    """The classes that may be shown.

    Attributes:
        classes: `[N]`, the class of each node; -1 where it may not be shown.
        share: of those that are known, what a step of training shows.
    """

    classes: Tensor
    share: float

    def to(self, device: torch.device) -> KnownLabels:
        return replace(self, classes=self.classes.to(device))

    @cached_property
    def known(self) -> Tensor:
        """Nodes whose class is known, `[n]`."""
        return (self.classes >= 0).nonzero().flatten()

    @property
    def shown(self) -> int:
        """How many a step of training shows: at least one is shown, and one hidden."""
        return self._shown_of(len(self.known))

    def _shown_of(self, n: int) -> int:
        return min(max(1, round(self.share * n)), n - 1)

    def draw(self) -> tuple[Tensor, Tensor]:
        """The classes that a step of training shows, `[N]`, -1 where hidden; and the nodes that are
        hidden from it although they are known, bool `[N]`. Nothing waits for the host."""
        if HERE.part is not None:
            return self._draw_on(HERE.part)
        order = torch.rand(len(self.known), device=self.classes.device).argsort(stable=True)
        drawn = self.known[order]
        hidden = torch.zeros_like(self.classes, dtype=torch.bool)
        hidden = hidden.index_fill(0, drawn[self.shown :], True)
        return torch.where(hidden, -1, self.classes), hidden

    def _draw_on(self, part: PartGraph) -> tuple[Tensor, Tensor]:
        """The same on a part of a graph: all ranks draw for all that is known, and take theirs."""
        place, count = self._among_all(part)
        order = torch.rand(count, device=self.classes.device).argsort(stable=True)
        turn = order.argsort()
        later = turn[place] >= self._shown_of(count)
        hidden = torch.zeros_like(self.classes, dtype=torch.bool)
        hidden = hidden.index_copy(0, self.known, later)
        return torch.where(hidden, -1, self.classes), hidden

    def _among_all(self, part: PartGraph) -> tuple[Tensor, int]:
        """Which of all known nodes those of a part are, `[n]`, and how many there are; every rank
        asks, once."""
        found = self.__dict__.get("_placed")
        if found is None or found[0] is not part:
            known = torch.zeros(part.partition.num_nodes, dtype=torch.long, device=part.device)
            known = part.shared.mesh.nodes.summed(known.index_fill_(0, part.nodes[self.known], 1))
            place = (known.cumsum(0) - 1)[part.nodes[self.known]]
            found = self.__dict__["_placed"] = part, place, int(known.sum())
        return found[1:]


class Labelled(SparseFeatures):
    """Features with C + 1 columns more: the class of a node that is shown, and that it is shown.

    Dropout is on the features alone: labels are hidden otherwise.

    Args:
        x: `[N, channels]`, dense or sparse.
        shown: `[N]`, the class of each node that is shown, -1 where it is hidden.
        classes: C.
    """

    def __init__(self, x: Any, shown: Tensor, classes: int) -> None:
        x = as_features(x)
        self.x, self.shown, self.classes = x, shown, classes
        self.shape = torch.Size([x.size(0), x.size(1) + classes + 1])
        self.dtype, self.device = x.dtype, x.device

    @property
    def tensor(self) -> Tensor:  # type: ignore[override]
        """All columns, dense, for layers that know tensors only."""
        return self.dense()

    def times(self, dense: Tensor, dropout: float = 0.0) -> Tensor:
        """Times [channels + C + 1, c]: -> [N, c]."""
        own, of_class, is_shown = dense.split([self.x.size(1), self.classes, 1])
        x = self.x
        if isinstance(x, Tensor):
            out = drop(x, dropout) @ own
        else:
            out = x.times(own.contiguous(), dropout)
        # Rows as those of an embedding: their gradients are added up in one order everywhere.
        rows = F.embedding(self.shown.clamp(min=0), of_class + is_shown)
        return out + torch.where(self.shown[:, None] >= 0, rows, 0.0)

    def csr_rows(self, nodes: Tensor) -> scipy.sparse.csr_array:
        import scipy.sparse

        x, shown = self.x, self.shown[nodes].cpu()
        own = x[nodes].cpu().numpy() if isinstance(x, Tensor) else x.csr_rows(nodes)
        there = (shown >= 0)[:, None]
        labels = F.one_hot(shown.clamp(min=0), self.classes) * there
        marks = torch.cat([labels, there], 1).to(self.dtype).numpy()
        parts = [scipy.sparse.csr_array(part) for part in (own, marks)]
        return scipy.sparse.hstack(parts, format="csr")

    def dropped(self, share: float) -> Labelled:
        other = copy(self)
        other.x = drop(self.x, share) if isinstance(self.x, Tensor) else self.x.dropped(share)
        return other


def unwrapped(model: nn.Module) -> nn.Module:
    """The model that a network stands around, or itself."""
    return model.model if isinstance(model, NodeNetwork) else model


class NodeNetwork(nn.Module):
    """A model of nodes that is shown labels, or stands on what a reference says, or both.

    Args:
        model: gives `[N, C]` as `model(x, graph)`; its `in_channels` are C + 1 more than x has
            where it is shown labels.
        classes: C.
        shows: whether it is shown labels.
        leans: whether an offset is added to its logits, times a learned number that starts at 1.

    Attributes:
        asked: bool `[N]`, after a step of training: the nodes that its loss may count.
        scale: `[]`, that number; None without an offset.
    """

    asked: Tensor
    scale: nn.Parameter | None

    def __init__(
        self, model: nn.Module, classes: int, shows: bool = True, leans: bool = False
    ) -> None:
        super().__init__()
        self.model, self.classes, self.shows = model, classes, shows
        self.register_parameter("scale", nn.Parameter(torch.ones(())) if leans else None)

    def reset_parameters(self) -> None:
        """Back to fresh initial values."""
        reset_children(self)
        if self.scale is not None:
            nn.init.ones_(self.scale)

    def no_weight_decay(self) -> Iterator[nn.Parameter]:
        """Those of the model, and the number before the offset."""
        yield from getattr(self.model, "no_weight_decay", list)()
        if self.scale is not None:
            yield self.scale

    def fills_gpu(self, graph: Graph) -> bool:
        """Whether the model fills a GPU: then nothing gains by running beside it."""
        return getattr(self.model, "fills_gpu", lambda _: False)(graph)

    def features(self, x: Features, labels: KnownLabels | None) -> Features:
        """What the model sees; in evaluation all labels that are known."""
        if not self.shows:
            return x
        if labels is None:
            raise ValueError("this model sees labels: say which by labels=KnownLabels(...)")
        shown = labels.classes
        if self.training:
            shown, self.asked = labels.draw()
        return Labelled(x, shown, self.classes)

    def added(self, offset: Tensor | None) -> Tensor | None:
        """What stands beside the model's own logits, `[N, C]`; None if nothing does."""
        if self.scale is None:
            return None
        if offset is None:
            raise ValueError("this model stands on a reference: give its logarithms by offset=")
        return self.scale * offset.to(self.scale.dtype)

    def forward(
        self,
        x: Features,
        edge_index: Any,
        labels: KnownLabels | None = None,
        offset: Tensor | None = None,
    ) -> Tensor:
        """Logits `[N, C]`.

        Args:
            x: `[N, channels]`
            edge_index: as the model takes it.
            labels: what may be shown. In training a part of it is, and `asked` are the others.
            offset: `[N, C]`, logarithms of probabilities; no node's own label has entered them.
        """
        out = self.model(self.features(x, labels), edge_index)
        beside = self.added(offset)
        return out if beside is None else out + beside
