"""From nodes to pairs of nodes: decoders, and a network with a logit for each pair.

A pair is scored from what the encoder gives for its two ends, so nothing of size N^2 is needed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import _check
from ..graph import Graph
from ..ops.dropout import drop
from .features import Features
from .linear import Linear
from .parts import Part, reset_children


class PairDecoder(Part):
    """Scores pairs of nodes: z [N, width] and pairs [2, P] -> logits [P].

    One of your own is a subclass with `score`, and an instance of it is passed to
    :class:`LinkNetwork`.
    """

    sizes: ClassVar[tuple[str, ...]] = ("width",)
    width: int

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__(width)
        self.dropout = _check.number("dropout", dropout, below=1)

    def prepare(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """What a node is where a pair starts, and where it ends: [N, width] each."""
        return z, z

    @abstractmethod
    def score(self, start: Tensor, end: Tensor) -> Tensor:
        """[..., width] of both ends -> logits [...]."""

    def forward(self, z: Tensor, pairs: Tensor) -> Tensor:
        start, end = self.prepare(z)
        # Rows as those of an embedding, whose gradients are added up in one order: those of an
        # index are not on a CPU, and those of index_select not on a GPU.
        return self.score(F.embedding(pairs[0], start), F.embedding(pairs[1], end))


class DotDecoder(PairDecoder):
    """The inner product of both ends, and a learned bias: nothing else to learn."""

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__(width, dropout)
        self.bias = nn.Parameter(torch.zeros(()))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.bias)

    def score(self, start: Tensor, end: Tensor) -> Tensor:
        return (start * end).sum(-1) + self.bias


class MLPDecoder(PairDecoder):
    """An MLP on the product of both ends, channel by channel: the same both ways."""

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__(width, dropout)
        self.lin, self.out = Linear(width, width), Linear(width, 1)

    def score(self, start: Tensor, end: Tensor) -> Tensor:
        hidden = drop(F.relu(self.lin(start * end)), self.dropout, self.training)
        return self.out(hidden).squeeze(-1)


class DirectedDecoder(MLPDecoder):
    """As :class:`MLPDecoder`, after a linear map for either end: a pair and its reverse differ."""

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__(width, dropout)
        self.start, self.end = Linear(width, width), Linear(width, width)

    def prepare(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return self.start(z), self.end(z)


CERTAIN = 30.0
"""A logit of which the loss is 0 in float32."""

DECODERS: dict[str, type[PairDecoder]] = {
    "mlp": MLPDecoder,
    "dot": DotDecoder,
    "directed": DirectedDecoder,
}


class LinkNetwork(nn.Module):
    """A model of nodes and a decoder of pairs: two logits for each pair, "no link" and "link".

    Args:
        encoder: gives z `[N, width]` as `encoder(x, graph)`.
        width: columns of z.
        decoder: "mlp", "dot", "directed", or a :class:`PairDecoder`.
        dropout: that of a decoder by name.

    Shapes:
        - x: `[N, in_channels]`; `pairs`: `[2, P]`
        - result: `[P, 2]`; the first column is 0
    """

    def __init__(
        self,
        encoder: nn.Module,
        width: int,
        decoder: str | PairDecoder = "mlp",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = PairDecoder.pick("decoder", decoder, DECODERS, width, dropout=dropout)

    def reset_parameters(self) -> None:
        """Back to fresh initial values."""
        reset_children(self)

    def no_weight_decay(self) -> Iterator[nn.Parameter]:
        """Those of the encoder."""
        yield from getattr(self.encoder, "no_weight_decay", list)()

    def fills_gpu(self, graph: Graph) -> bool:
        """Whether the encoder fills a GPU: then nothing gains by running beside it."""
        return getattr(self.encoder, "fills_gpu", lambda _: False)(graph)

    def forward(
        self,
        x: Features,
        edge_index: Any,
        pairs: Tensor,
        fresh: Tensor | None = None,
        masked: Masked | None = None,
    ) -> Tensor:
        """Logits `[P, 2]`.

        Args:
            x: `[N, in_channels]`
            edge_index: as the encoder takes it.
            pairs: `[2, P]`
            fresh: `[P]`, pairs that are drawn anew in training, at random. A pair that is drawn
                may be a link by accident: of a sparse graph that is rare, and no test of it is
                worth its time.
            masked: links that a step of training does not walk on, drawn anew too: see
                :class:`Masked`.
        """
        if not self.training:
            link = self.decoder(self.encoder(x, edge_index, **_weights(masked)), pairs)
            return torch.stack([torch.zeros_like(link), link], 1)
        hidden = None if masked is None else masked.draw()
        z = self.encoder(x, edge_index, **_weights(masked, hidden))
        if fresh is not None:
            drawn = torch.randint(z.size(0), pairs.shape, device=pairs.device)
            pairs = torch.where(fresh, drawn, pairs)
        link = self.decoder(z, pairs)
        if hidden is not None:  # what is walked on is not asked: as good as certain
            asked = F.pad(hidden, (0, len(link) - len(hidden)), value=True)
            link = torch.where(asked, link, CERTAIN)
        return torch.stack([torch.zeros_like(link), link], 1)


@dataclass(frozen=True, eq=False)
class Masked:
    """Links that are left out of the walk at random, which are the first of the pairs.

    Attributes:
        share: of the links.
        links: how many there are, L.
        link_of: `[E]`, the link that each edge is of, in the order in which edges came; L for one
            that always stays, as a self-loop does.
        weight: `[E]`, the weights of the edges; None if all are 1. The graph has none then.
    """

    share: float
    links: int
    link_of: Tensor
    weight: Tensor | None = None

    def to(self, device: torch.device) -> Masked:
        weight = None if self.weight is None else self.weight.to(device)
        return replace(self, link_of=self.link_of.to(device), weight=weight)

    def draw(self) -> Tensor:
        """Which links are left out of a step: bool [L]."""
        return torch.rand(self.links, device=self.link_of.device) < self.share

    def weights(self, hidden: Tensor) -> Tensor:
        """What edges weigh then, [E]."""
        kept = F.pad(~hidden, (0, 1), value=True)[self.link_of].float()
        return kept if self.weight is None else kept * self.weight


def _weights(masked: Masked | None, hidden: Tensor | None = None) -> dict[str, Tensor]:
    """What an encoder is told of the weights of edges."""
    if masked is None or (hidden is None and masked.weight is None):
        return {}
    weight = masked.weight if hidden is None else masked.weights(hidden)
    assert weight is not None
    return {"edge_weight": weight}
