"""Graphs that are made up, of any size: power-law degrees, and classes that can be learnt.

A degree-corrected planted partition. Each node has a weight, whose distribution has the tail of a
power law, and a group; the ends of an edge are drawn by weight, the second within the group of the
first or outside it. A node's group is its class but for a few strangers, and its features are the
centre of its class among noise: neighbours mislead about some nodes and features about others, so
that both together tell more than either.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import _check
from .dataset import Dataset
from .splits import own_codes, random_split
from .store import Store
from .tables.columns import Matrix
from .tables.schema import ColumnLine, TableNotes, TableSchema

AT_A_TIME = 1 << 22
"""Edges that are drawn at a time, and rows times columns of features."""
ROUNDS = 40
"""After which it is given up to find edges that are not there yet."""


class Shape(NamedTuple):
    """How large a graph is; edges are counted once, not in both directions."""

    nodes: int
    edges: int
    classes: int
    features: int


SHAPES = {
    "arxiv": Shape(169_343, 1_166_243, 40, 128),
    "products": Shape(2_449_029, 61_859_140, 47, 100),
}
"""Sizes of graphs that are often measured on (ogbn-arxiv, ogbn-products)."""


def planted(
    nodes: int | str,
    edges: int | None = None,
    classes: int | None = None,
    features: int | None = None,
    *,
    homophily: float = 0.6,
    strangers: float = 0.15,
    signal: float = 2.0,
    exponent: float = 2.5,
    seed: int = 0,
    folder: str | Path | None = None,
) -> Dataset:
    """A made-up graph with power-law degrees and planted classes, the same for the same arguments.

    Takes O(E) time, and memory for about two of the result; in a store, for its edges.

    Args:
        nodes: N; or "arxiv" or "products", whose sizes stand for those that are not given.
        edges: pairs of different nodes that are joined, each in both directions: the graph has
            twice as many. At most a quarter of all pairs.
        classes: C, from 2 to N.
        features: columns of x.
        homophily: share of edges that stay within a group.
        strangers: share of nodes that are of the group of another class than their own.
        signal: how far the centres of classes are from the origin; the noise in each column is 1.
        exponent: of the power law of degrees, at least 2; real graphs have 2 to 3.
        seed: of all that is random.
        folder: of a store that it is written into, and lies in: for graphs that do not fit memory.

    Returns:
        Features float32, and a random split of its own of 60, 20 and 20 per cent.
    """
    shape = _shape(nodes, edges, classes, features)
    homophily, strangers = _share("homophily", homophily), _share("strangers", strangers)
    signal, exponent = _check.number("signal", signal), _check.number("exponent", exponent, 2.0)
    seed = _check.integer("seed", seed, 0, _check.MOST_SEED)
    generator = np.random.default_rng(seed)
    y = _classes(shape, generator)
    others = (y + generator.integers(1, shape.classes, shape.nodes)) % shape.classes
    groups = np.where(generator.random(shape.nodes) < strangers, others, y)
    words = "a graph of {:,} nodes, {:,} edges and {:,} features"
    with _check.fits(words, shape.nodes, shape.edges, shape.features):
        ends = _Ends.of(groups, _weights(shape, exponent, generator), shape.classes)
        keys = _keys(shape, ends, homophily, generator)
        if folder is None:
            both, x = _both(keys, shape.nodes), _features(shape, y, signal, generator)
    split = random_split(shape.nodes, "B", seed)
    line = f"made up: {shape.nodes:,} nodes, {shape.edges:,} edges in both directions, seed {seed}"
    about: dict[str, Any] = {
        "y": torch.from_numpy(y),
        "name": nodes if isinstance(nodes, str) else "planted",
        "splits": {"own": own_codes(*split)},
        "schema": TableSchema("id", None, None, True, (Matrix("x", shape.features),)),
        "notes": TableNotes([ColumnLine("x", "matrix", shape.features, 0)], [line]),
        "source": "the planted graph",
    }
    if folder is None:
        return Dataset(torch.from_numpy(x), torch.from_numpy(both), **about)
    some = (keys[start : start + AT_A_TIME] for start in range(0, len(keys), AT_A_TIME))
    pairs = (torch.from_numpy(_both(part, shape.nodes)) for part in some)
    blocks = _feature_blocks(shape, y, signal, generator)
    return Store.create(folder, blocks, pairs, **about).dataset


def _shape(nodes: int | str, edges: int | None, classes: int | None, features: int | None) -> Shape:
    """The sizes, those of a name unless they are given."""
    given = {"edges": edges, "classes": classes, "features": features}
    if isinstance(nodes, str):
        known = SHAPES[_check.known("shape", nodes, SHAPES)]._asdict()
        nodes = known["nodes"]
        given = {name: known[name] if size is None else size for name, size in given.items()}
    nodes = _check.integer("nodes", nodes, 2)
    lacking = [name for name, value in given.items() if value is None]
    if lacking:
        raise TypeError(f"planted needs {', '.join(lacking)} beside the number of nodes")
    pairs = nodes * (nodes - 1) // 2
    count = _check.integer("edges", given["edges"], 0)
    if count > max(pairs // 4, 1):
        raise ValueError(
            f"edges must be at most a quarter of the {pairs:,} pairs of {nodes:,} nodes, "
            f"got {count:,}"
        )
    classes = _check.integer("classes", given["classes"], 2, nodes)
    return Shape(nodes, count, classes, _check.integer("features", given["features"], 1))


def _share(what: str, value: float) -> float:
    if _check.number(what, value) > 1:
        raise ValueError(f"{what} must be at most 1, got {_check.said(value)}")
    return float(value)


def _classes(shape: Shape, generator: np.random.Generator) -> np.ndarray:
    """The class of each node, [N]: some are larger than others, and none is empty."""
    sizes = 1 / np.sqrt(np.arange(1, shape.classes + 1))
    rest = generator.choice(shape.classes, shape.nodes - shape.classes, p=sizes / sizes.sum())
    return generator.permutation(np.concatenate([np.arange(shape.classes), rest]))


def _weights(shape: Shape, exponent: float, generator: np.random.Generator) -> np.ndarray:
    """What degrees are proportional to, [N]: of a Pareto distribution, cut off.

    Two nodes whose degrees are the root of all degrees together are joined about once; above it
    edges would be drawn again and again that are there already.
    """
    weights = (1 - generator.random(shape.nodes)) ** (-1 / (exponent - 1))
    mean = 2 * shape.edges / shape.nodes
    most = np.sqrt(2 * shape.edges) / max(mean, 1e-9) * weights.mean()
    return np.minimum(weights, max(most, 1.0))


@dataclass(frozen=True)
class _Ends:
    """Where ends of edges are drawn from: the nodes, group by group, on a line of their weights."""

    nodes: np.ndarray
    upto: np.ndarray
    """[N]: where each node's piece of the line ends."""
    group: np.ndarray
    """[N]: of each of `nodes`."""
    bounds: np.ndarray
    """[C + 1]: where each group's piece begins and ends."""
    guide: np.ndarray
    """[2 N]: which node lies at each of so many places, evenly spaced: a search begins there."""

    @classmethod
    def of(cls, groups: np.ndarray, weights: np.ndarray, classes: int) -> _Ends:
        nodes = np.argsort(groups, kind="stable")
        upto = np.cumsum(weights[nodes])
        ends = np.cumsum(np.bincount(groups, minlength=classes))
        bounds = np.concatenate([[0.0], upto])[np.concatenate([[0], ends])]
        places = np.arange(2 * len(nodes)) * (upto[-1] / (2 * len(nodes)))
        return cls(nodes, upto, groups[nodes], bounds, np.searchsorted(upto, places, "right"))

    def _at(self, places: np.ndarray) -> np.ndarray:
        """Which of `nodes` lie at places of the line: a step or two from where the guide says."""
        last = len(self.nodes) - 1
        spots = (places * (len(self.guide) / self.upto[-1])).astype(np.int64)
        found = self.guide[np.minimum(spots, len(self.guide) - 1)]
        behind = np.flatnonzero((self.upto[found] <= places) & (found < last))
        while len(behind):
            found[behind] += 1
            further = (self.upto[found[behind]] <= places[behind]) & (found[behind] < last)
            behind = behind[further]
        return found

    def pairs(self, count: int, homophily: float, generator: np.random.Generator) -> np.ndarray:
        """So many edges, but for loops, as `low * N + high`; some may be there twice."""
        line = self.upto[-1]
        first = self._at(generator.random(count) * line)
        start, end = self.bounds[self.group[first]], self.bounds[self.group[first] + 1]
        within, place = generator.random(count) < homophily, generator.random(count)
        inside = start + place * (end - start)
        outside = place * (line - (end - start))
        outside += np.where(outside >= start, end - start, 0)  # past its own group
        a, b = self.nodes[first], self.nodes[self._at(np.where(within, inside, outside))]
        keys = np.minimum(a, b) * len(self.nodes) + np.maximum(a, b)
        return keys[a != b]


def _keys(
    shape: Shape, ends: _Ends, homophily: float, generator: np.random.Generator
) -> np.ndarray:
    """[E], ascending, as `low * N + high`: drawn until there are enough different ones."""
    keys = np.empty(0, np.int64)
    for _ in range(ROUNDS):
        lacking = shape.edges - len(keys)
        if lacking <= 0:
            break
        counts = [AT_A_TIME] * (lacking // AT_A_TIME) + [lacking % AT_A_TIME + 64]
        keys = np.concatenate([keys, *(ends.pairs(n, homophily, generator) for n in counts)])
        keys.sort()  # and each once: NumPy's `unique` takes ten times as long
        once = np.ones(len(keys), bool)
        np.not_equal(keys[1:], keys[:-1], out=once[1:])
        keys = keys[once]
    if len(keys) < shape.edges:
        raise ValueError(
            f"only {len(keys):,} of {shape.edges:,} edges were found with homophily {homophily:g}: "
            "take fewer edges, more nodes or fewer classes"
        )
    if len(keys) > shape.edges:
        kept = np.ones(len(keys), bool)
        kept[generator.choice(len(keys), len(keys) - shape.edges, replace=False)] = False
        keys = keys[kept]
    return keys


def _both(keys: np.ndarray, nodes: int) -> np.ndarray:
    """Edges `low * N + high`, [E], in both directions: [2, 2E]."""
    both = np.empty((2, 2 * len(keys)), np.int64)
    low, high = both[:, : len(keys)]
    np.floor_divide(keys, nodes, out=low)
    np.subtract(keys, low * nodes, out=high)
    both[0, len(keys) :], both[1, len(keys) :] = high, low
    return both


def _features(
    shape: Shape, y: np.ndarray, signal: float, generator: np.random.Generator
) -> np.ndarray:
    """[N, F], float32: the centre of the class, and noise."""
    x = generator.standard_normal((shape.nodes, shape.features), np.float32)
    centres, rows = _centres(shape, signal, generator), max(AT_A_TIME // shape.features, 1)
    for start in range(0, shape.nodes, rows):
        x[start : start + rows] += centres[y[start : start + rows]]
    return x


def _feature_blocks(
    shape: Shape, y: np.ndarray, signal: float, generator: np.random.Generator
) -> Iterator[Tensor]:
    """`_features`, some rows after the other.

    The centres are drawn after all noise, so the noise is drawn twice: once to get there.
    """
    again, rows = deepcopy(generator), max(AT_A_TIME // shape.features, 1)

    def noise(drawn: np.random.Generator) -> Iterator[np.ndarray]:
        for start in range(0, shape.nodes, rows):
            some = min(rows, shape.nodes - start)
            yield drawn.standard_normal((some, shape.features), np.float32)

    for _ in noise(generator):
        pass
    centres = _centres(shape, signal, generator)
    for number, block in enumerate(noise(again)):
        block += centres[y[number * rows : number * rows + len(block)]]
        yield torch.from_numpy(block)


def _centres(shape: Shape, signal: float, generator: np.random.Generator) -> np.ndarray:
    """[C, F]: where the classes are."""
    centres = generator.standard_normal((shape.classes, shape.features))
    centres *= signal / np.linalg.norm(centres, axis=1, keepdims=True)
    return centres
