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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from torch_geometric.data import Data

from subtree_attention import _check, datasets
from subtree_attention.datasets.features import from_scipy
from subtree_attention.datasets.folders import data_folder, mirror_folder, missing_files
from subtree_attention.graph import Graph
from subtree_attention.nn.models import key_channels
from subtree_attention.train.config import Config
from subtree_attention.train.recipes import recipe

T = TypeVar("T")


@dataclass(frozen=True)
class Case:
    """One graph, on the device, with the settings that it is measured under.

    Attributes:
        name: as it is reported.
        note: what a reader should know about it.
        config: the paper's settings for the graph; for a shape, 4 heads and 3 hops.
        data: x [N, F] (dense or CSR), edge_index [2, E], y [N] and the three masks [N].
        graph: the prepared walk.
        classes: C.
        preparation: seconds that each part of making it took, on the CPU.
    """

    name: str
    note: str
    config: Config
    data: Data
    graph: Graph
    classes: int
    preparation: dict[str, float]

    @property
    def key_channels(self) -> int:
        """d, the channels of a head's queries and keys."""
        return key_channels(self.config.hidden_channels, self.config.heads)

    def to_dict(self) -> dict[str, Any]:
        """As the results file holds it."""
        return {
            "note": self.note,
            "nodes": self.graph.num_nodes,
            "edges": self.graph.num_edges,
            "features": self.data.x.size(1),
            "classes": self.classes,
            "config": self.config.to_dict(),
            "preparation_seconds": self.preparation,
        }


# ---------------------------------------------------------------------- graphs of the registry


def from_registry(
    name: str, device: torch.device, data_dir: Path | None = None, mirror: Path | None = None
) -> Case:
    """A graph by its recipe, prepared from the raw files as at its first use."""
    config, seconds = recipe(name), dict[str, float]()
    source, data = _timed(seconds, "load", partial(_load_cold, config.graph, data_dir, mirror))
    if config.encoding:
        encode = datasets.LaplacianEncoding(config.encoding)
        data = _timed(seconds, "encoding", lambda: encode(data))
    build = partial(Graph, data.edge_index, data.num_nodes, transition=config.transition)
    graph, note = _timed(seconds, "graph", build), f"read from {source}"
    classes = datasets.info(name).num_classes
    return Case(config.graph, note, config, *_on(device, data, graph), classes, seconds)


def _load_cold(name: str, data_dir: Path | None, mirror: Path | None) -> tuple[str, Data]:
    """The graph from its raw files, without what an earlier use left behind; and from what."""
    info = datasets.info(name)
    if not info.raw_files:
        return "an installed package", datasets.load(name)
    if datasets.where(name, data_dir, mirror).status == "download":
        datasets.load(name, data_dir=data_dir, mirror=mirror)  # the network is not measured
    places = (data_folder(data_dir), mirror_folder(mirror))
    raw = next((place for place in places if place and not missing_files(info, place)), None)
    if raw is None:
        return "the cache", datasets.load(name, data_dir=data_dir, mirror=mirror)
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
    for what, number, least in zip(_PARTS, numbers, (4, 1, 1, 2), strict=True):
        _check.integer(f"{what} of a shape", number, least)
    nodes, edges, features, classes = numbers
    density = WORD_DENSITY if features >= WORDS else 1.0
    return Shape(nodes, edges, features, classes, density)


_PARTS = ("NODES", "EDGES", "FEATURES", "CLASSES")


def from_shape(text: str, device: torch.device) -> Case:
    """A uniform random graph with random features and classes; the same for the same sizes."""
    shape, seconds = parse_shape(text), dict[str, float]()
    edge_index = random_edges(shape.nodes, shape.edges)
    graph = _timed(seconds, "graph", partial(Graph, edge_index, shape.nodes))
    generator = np.random.default_rng(0)
    labels = torch.from_numpy(generator.integers(shape.classes, size=shape.nodes))
    data = Data(x=_random_features(shape, generator), edge_index=edge_index, y=labels)
    config = Config(f"{text} shape", split="A", encoding=0, hops=3, heads=4, dropout=0.5)
    data = datasets.apply_split(data, config.split)
    note = "uniform random graph: no hubs, no communities"
    return Case(config.graph, note, config, *_on(device, data, graph), shape.classes, seconds)


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


# ---------------------------------------------------------------------------------- both


def _on(device: torch.device, data: Data, graph: Graph) -> tuple[Data, Graph]:
    """Both on the device, with the walk's weights at hand: they are inputs of every version."""
    graph = graph.to(device)
    graph.matrix(), graph.transpose()
    return data.to(str(device)), graph


def _timed(seconds: dict[str, float], name: str, call: Callable[[], T]) -> T:
    """`call()`, noting how long it took."""
    start = time.perf_counter()
    result = call()
    seconds[name] = round(time.perf_counter() - start, 4)
    return result
