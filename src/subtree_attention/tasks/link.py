"""Link prediction: which pairs of nodes are linked.

The links of a graph are split; those of training are walked on. To every link belongs a random
pair of nodes that is none: those of validation and test are fixed by the seed, those of training
are drawn anew in every step. So a unit is a pair, and its class is "no link" or "link".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..datasets import Split
from ..nn import LinkNetwork, build
from ..nn.decoder import Masked
from ..nn.parts import takes
from .calibration import calibration_error, softmax
from .classification import Classification
from .graphs import width_of
from .metrics import LINK_METRICS, Loss, cross_entropy
from .quality import LinkQuality, all_scores
from .ranking import too_few
from .task import Problem, parts

if TYPE_CHECKING:
    from ..datasets import Dataset

LEAST_LINKS = 10
"""Fewer cannot be split into three parts of which anything could be said."""
FEW_PAIRS = 1_000_000
"""Up to so many are listed to draw from; of more it is tried until enough are found."""


class LinkPrediction(Classification):
    """Which pairs of nodes are linked."""

    unit = "pair"
    metrics = LINK_METRICS

    def accept(self, dataset: Dataset) -> None:
        if dataset.batch is not None:
            raise ValueError(
                "links are predicted within one graph, and this is a collection of graphs: use "
                "--task graph-classification"
            )
        links = Links.of(dataset)
        count = len(links.keys)
        if count < LEAST_LINKS:
            raise ValueError(
                f"the graph has {count} links, too few to split into training, validation and "
                f"test: {LEAST_LINKS} are needed at least"
            )
        if self.settings.decoder == "directed" and not links.directed:
            raise ValueError(
                "decoder 'directed' tells a pair from its reverse, and here every edge leads both "
                "ways: use mlp or dot, or keep the directions of your tables (--directed)"
            )

    def check(self, target: Tensor, split: Split, names: Sequence[str] = ()) -> None:
        super().check(target, split, names)
        name, _, k = self.metric.name.partition("@")
        for part, mask in parts(split):
            others = int(((target == 0) & mask).sum())
            if name == "hits" and too_few(others, int(k)):
                raise ValueError(
                    f"{self.metric.title} needs more than {k} random pairs in each part, and "
                    f"{part} has {others}: use --metric roc_auc or mrr"
                )

    def outputs(self, dataset: Dataset) -> int:
        """Two logits for each pair."""
        return 2

    def names(self, dataset: Dataset) -> tuple[str, ...]:
        return ("no link", "link")

    def unit_ids(self, problem: Problem) -> list[str]:
        names = problem.dataset.node_ids
        return [
            f"{names[one]} - {names[other]}" for one, other in problem.inputs["pairs"].T.tolist()
        ]

    def quality(
        self, outputs: np.ndarray, target: np.ndarray, found: Mapping[str, Any]
    ) -> LinkQuality:
        """More scores of some pairs: logits [n, 2], target [n]."""
        logits = self.calibrated(outputs, found)
        error = calibration_error(softmax(logits), target)
        return LinkQuality(all_scores(self.metrics, logits, target), error)

    def network(self, settings: Any, in_channels: int, out_channels: int) -> nn.Module:
        width, dropout = width_of(settings), getattr(settings, "dropout", 0.0)
        encoder = build(settings, in_channels, width)
        if self.settings.mask and not takes(encoder.forward, "edge_weight"):
            raise ValueError(
                f"mask needs a model that weighs edges, and {settings.name} does not: use hide"
            )
        return LinkNetwork(encoder, width, self.settings.decoder, dropout)

    def loss(self, model: nn.Module, target: Tensor, mask: Tensor, outputs: int) -> Loss:
        """Binary cross-entropy of logits [P, 2], each pair alike that a step asks about."""
        loss = cross_entropy(target, mask, outputs)
        if not self.settings.mask:
            return loss
        walked = (1 - self.settings.mask) * (mask & (target == 1)).sum()  # which are certain
        scale = mask.sum() / (mask.sum() - walked)
        return lambda logits: loss(logits) * scale

    def inputs(self, dataset: Dataset, known: Tensor | None = None) -> dict[str, Any]:
        """Of a graph that nothing is learnt from: no pair."""
        return {"pairs": torch.zeros(2, 0, dtype=torch.long)}

    def target(self, dataset: Dataset) -> Tensor:
        """Of a graph that nothing is learnt from: no pair."""
        return torch.zeros(0, dtype=torch.long)

    def problem(self, dataset: Dataset, kind: str, seed: int) -> Problem:
        links, settings, generator = Links.of(dataset), self.settings, np.random.default_rng(seed)
        train, *others = links.split(generator, settings.val_share, settings.test_share)
        hidden = train[: int(len(train) * settings.hide)]
        learnt = hidden if len(hidden) else train
        asked = len(learnt) * (settings.mask or 1.0)  # of the links that a step learns from
        many = max(1, round(asked * settings.negatives))
        negatives = links.none(generator, [many, *map(len, others)])
        keys = [part for two in zip([learnt, *others], negatives, strict=True) for part in two]
        part = torch.arange(6).repeat_interleave(torch.tensor([len(some) for some in keys]))
        inputs: dict[str, Any] = {
            "pairs": torch.from_numpy(links.ends(np.concatenate(keys))),
            "fresh": part == 1,
        }
        seen = links.walked(dataset, train)
        if settings.mask:
            inputs["masked"] = Masked(
                settings.mask, len(train), links.places(seen, train), seen.edge_weight
            )
            seen = seen._with(edge_weight=None)
        return Problem(
            seen,
            1 - part % 2,
            Split(*(part // 2 == number for number in range(3))),
            inputs,
            walked=links.walked(dataset, train[len(hidden) :]) if len(hidden) else None,
        )


class Links(NamedTuple):
    """The links of a graph as numbers: source * N + target, each once, without self-loops.

    Where every edge has its reverse, both are one link, from the smaller to the larger node.
    """

    keys: np.ndarray
    num_nodes: int
    directed: bool

    @classmethod
    def of(cls, dataset: Dataset) -> Links:
        source, target = dataset.edge_index.cpu().numpy()
        n, other = dataset.num_nodes, source != target
        source, target = source[other], target[other]
        keys, reverse = np.unique(source * n + target), np.unique(target * n + source)
        directed = not np.array_equal(keys, reverse)
        links = cls(keys, n, directed)
        return links if directed else links._replace(keys=keys[keys // n < keys % n])

    def key(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """The numbers of pairs of nodes."""
        if not self.directed:
            source, target = np.minimum(source, target), np.maximum(source, target)
        return source * self.num_nodes + target

    def ends(self, keys: np.ndarray) -> np.ndarray:
        """The nodes of pairs: [P] -> [2, P]."""
        return np.stack(np.divmod(keys, self.num_nodes))

    def known(self, keys: np.ndarray) -> np.ndarray:
        """Which pairs are links: [P] -> bool [P]."""
        if not len(self.keys):
            return np.zeros(len(keys), dtype=bool)
        places = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        return self.keys[places] == keys

    def split(
        self, generator: np.random.Generator, val_share: float, test_share: float
    ) -> list[np.ndarray]:
        """Links for training, validation and test, at random."""
        count = len(self.keys)
        val, test = (max(1, int(count * share)) for share in (val_share, test_share))
        return np.split(generator.permutation(self.keys), [count - val - test, count - test])

    def none(self, generator: np.random.Generator, counts: list[int]) -> list[np.ndarray]:
        """Random pairs that are no links, for each part; those of validation and test differ."""
        pairs = self.num_nodes * (self.num_nodes - 1) // (1 if self.directed else 2)
        first, *others = counts
        if pairs - len(self.keys) < max(1, sum(others)):
            raise ValueError(
                f"{pairs - len(self.keys):,} pairs of nodes are not linked, too few to compare "
                f"{sum(others):,} links of validation and test with: the graph is too dense"
            )
        apart = self._draw(generator, sum(others), pairs)
        again = self._draw(generator, min(first, pairs - len(self.keys)), pairs)
        return [np.resize(again, first), *np.split(apart, np.cumsum(others)[:-1])]

    def _draw(self, generator: np.random.Generator, count: int, pairs: int) -> np.ndarray:
        """So many different pairs that are no links."""
        if pairs <= FEW_PAIRS:  # also of a graph where nearly every pair is linked
            nodes = np.arange(self.num_nodes)
            keys = np.unique(self.key(*np.meshgrid(nodes, nodes)))
            free = keys[(keys // self.num_nodes != keys % self.num_nodes) & ~self.known(keys)]
            return generator.permutation(free)[:count]
        found = np.zeros(0, dtype=np.int64)
        while len(found) < count:
            source, target = generator.integers(self.num_nodes, size=(2, count - len(found) + 100))
            keys = self.key(source, target)
            found = np.concatenate([found, keys[(source != target) & ~self.known(keys)]])
            found = found[np.sort(np.unique(found, return_index=True)[1])]  # each once, in order
        return found[:count]

    def places(self, dataset: Dataset, keys: np.ndarray) -> Tensor:
        """Which of some links [L] each edge is, [E]; L for a self-loop."""
        source, target = dataset.edge_index.cpu().numpy()
        order = np.argsort(keys)
        found = order[
            np.searchsorted(keys[order], self.key(source, target)).clip(max=len(keys) - 1)
        ]
        return torch.from_numpy(np.where(source == target, len(keys), found))

    def walked(self, dataset: Dataset, keys: np.ndarray) -> Dataset:
        """The graph with these links alone, and its self-loops; its encoding knows no other."""
        source, target = dataset.edge_index.cpu().numpy()
        kept = np.isin(self.key(source, target), keys) | (source == target)
        mask, weight = torch.from_numpy(kept), dataset.edge_weight
        seen = dataset._with(
            edge_index=dataset.edge_index[:, mask],
            edge_weight=None if weight is None else weight[mask],
            encoding=None,
            kept_in=None,
        )
        return seen.encoded(0 if dataset.encoding is None else dataset.encoding.size(1))
