"""What the benchmark runs on: graphs of the registry, and random graphs of a given shape.

A shape stands in for a graph that is not at hand: as many nodes, edges, features and classes, but
the edges are drawn uniformly. Real graphs have hubs, which are harder on some versions and keep
caches warmer for others, so a shape is no forecast of the real graph's time; the figures published
for such shapes were taken on uniform graphs as well.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from subtree_attention import _check, datasets
from subtree_attention.config import Config
from subtree_attention.datasets import Dataset, Split, random_split
from subtree_attention.datasets.features import from_scipy
from subtree_attention.datasets.folders import data_folder, mirror_folder, missing_files
from subtree_attention.graph import Graph
from subtree_attention.nn.features import Features, as_features
from subtree_attention.nn.heads import per_head
from subtree_attention.train.recipes import recipe

T = TypeVar("T")


@dataclass(frozen=True)
class Case:
    """One graph, on the device, with the settings that it is measured under.

    Attributes:
        note: what a reader should know about it.
        config: the paper's settings for the graph; for a shape, 4 heads and 3 hops.
        data: features [N, F] (dense or CSR), edge_index [2, E], y [N].
        split: training, validation and test nodes, [N] each.
        graph: the prepared walk.
        preparation: seconds that each part of making it took, on the CPU.
    """

    note: str
    config: Config
    data: Dataset
    split: Split
    graph: Graph
    preparation: dict[str, float]

    def to(self, device: torch.device) -> Case:
        """All on the device, with the walk's weights at hand: they are inputs of every version."""
        graph = self.graph.to(device)
        graph.matrix(), graph.transpose()
        return replace(self, data=self.data.to(device), split=self.split.to(device), graph=graph)

    @cached_property
    def x(self) -> Features:
        """The features as our layers keep them."""
        return as_features(self.data.features)

    @property
    def name(self) -> str:
        """As it is reported."""
        return self.config.data.graph

    @property
    def classes(self) -> int:
        return self.data.num_classes

    @property
    def key_channels(self) -> int:
        """d, the channels of a head's queries and keys."""
        model = self.config.model
        return per_head("hidden_channels", model.hidden_channels, model.heads)

    def to_dict(self) -> dict[str, Any]:
        """As the results file holds it."""
        return {
            "note": self.note,
            "nodes": self.graph.num_nodes,
            "edges": self.graph.num_edges,
            "features": self.data.num_features,
            "classes": self.classes,
            "config": self.config.to_dict(),
            "preparation_seconds": self.preparation,
        }


# ---------------------------------------------------------------------- graphs of the registry


def from_registry(name: str, device: torch.device) -> Case:
    """A graph by its recipe, prepared from the raw files as at its first use."""
    config, seconds = recipe(name), dict[str, float]()
    source, data = _timed(seconds, "load", partial(_load_cold, config.data.graph))
    if config.data.encoding:
        data = replace(data, kept_in=None)  # computed anew
        data = _timed(seconds, "encoding", partial(data.encoded, config.data.encoding))
    transition = config.model.transition
    build = partial(Graph, data.edge_index, data.num_nodes, transition=transition)
    graph, split = _timed(seconds, "graph", build), data.split(config.data.split)
    return Case(f"read from {source}", config, data, split, graph, seconds).to(device)


def _load_cold(name: str) -> tuple[str, Dataset]:
    """The graph from its raw files, without what an earlier use left behind; and from what."""
    info = datasets.info(name)
    if not info.raw_files:
        return "an installed package", datasets.load(name)
    if datasets.where(name).status == "download":
        datasets.load(name)  # the network is not measured
    places = (data_folder(), mirror_folder())
    raw = next((place for place in places if place and not missing_files(info, place)), None)
    if raw is None:
        return "the cache", datasets.load(name)
    with tempfile.TemporaryDirectory() as empty:
        return "raw files", datasets.load(name, data_dir=empty, mirror=raw)


# ----------------------------------------------------------------------------- random shapes


@dataclass(frozen=True)
class Shape:
    """Sizes of a random graph; `density` is the share of non-zero features (1: dense)."""

    nodes: int
    edges: int
    features: int
    classes: int
    density: float = 1.0


WORDS = 1000
"""From so many features on, a shape's features are taken to be a bag of words."""

WORD_DENSITY = 0.0065

SHAPES = {
    "corafull": Shape(19_793, 126_720, 8_710, 70, WORD_DENSITY),
    "arxiv": Shape(169_343, 2_314_735, 128, 40),
}


def parse_shape(text: str) -> Shape:
    """A name of `SHAPES`, or "NODES,EDGES,FEATURES,CLASSES"."""
    if "," not in text:
        try:
            return SHAPES[_check.known("shape", text, SHAPES)]
        except ValueError as error:
            raise ValueError(f"{error}, or NODES,EDGES,FEATURES,CLASSES") from None
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 4:
        raise ValueError(
            f"a shape is four whole numbers NODES,EDGES,FEATURES,CLASSES such as "
            f"10000,50000,128,10; got '{text}'"
        )
    least = {"NODES": 4, "EDGES": 1, "FEATURES": 1, "CLASSES": 2}
    for (what, bound), number in zip(least.items(), numbers, strict=True):
        _check.integer(f"{what} of a shape", number, bound)
    nodes, edges, features, classes = numbers
    return Shape(nodes, edges, features, classes, WORD_DENSITY if features >= WORDS else 1.0)


def from_shape(text: str, device: torch.device) -> Case:
    """A uniform random graph with random features and classes; the same for the same sizes."""
    shape, seconds = parse_shape(text), dict[str, float]()
    edge_index = random_edges(shape.nodes, shape.edges)
    graph = _timed(seconds, "graph", partial(Graph, edge_index, shape.nodes))
    generator = np.random.default_rng(0)
    labels = torch.from_numpy(generator.integers(shape.classes, size=shape.nodes))
    classes = tuple(map(str, range(shape.classes)))
    data = Dataset(_random_features(shape, generator), edge_index, labels, classes=classes)
    config = Config.of(f"{text} shape", split="A", encoding=0, hops=3, heads=4, dropout=0.5)
    split = random_split(shape.nodes, config.data.split, 0)
    note = "uniform random graph: no hubs, no communities"
    return Case(note, config, data, split, graph, seconds).to(device)


def random_edges(nodes: int, edges: int) -> Tensor:
    """So many directed edges [2, E], each drawn uniformly, none from a node to itself."""
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(nodes, (edges,), generator=generator)
    step = torch.randint(1, nodes, (edges,), generator=generator)
    return torch.stack([source, (source + step) % nodes])


def _random_features(shape: Shape, generator: np.random.Generator) -> Tensor:
    """x [N, F]: normal numbers, or a bag of words of the given density whose rows sum to 1."""
    if shape.density == 1:
        return torch.from_numpy(
            generator.standard_normal((shape.nodes, shape.features), dtype=np.float32)
        )
    words = max(1, round(shape.density * shape.features))  # of each node
    columns = generator.integers(shape.features, size=shape.nodes * words)
    starts = np.arange(0, shape.nodes * words + 1, words)
    values = np.full(columns.size, 1 / words, dtype=np.float32)
    size = (shape.nodes, shape.features)
    return from_scipy(scipy.sparse.csr_matrix((values, columns, starts), size))


def _timed(seconds: dict[str, float], name: str, call: Callable[[], T]) -> T:
    """`call()`, noting how long it took."""
    start = time.perf_counter()
    result = call()
    seconds[name] = round(time.perf_counter() - start, 4)
    return result
