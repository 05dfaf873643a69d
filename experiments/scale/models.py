"""Graphs and models as their sizes, and what a training step of them is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.scale.seconds import Speeds
from experiments.scale.walk import ENTRY, FLOAT, Walk, peak_bytes

PASSED = 12
"""How often a step passes over what a node has between layers, forward and backward."""


@dataclass(frozen=True)
class Shape:
    """How large a graph is; edges are directed, both directions counted."""

    name: str
    nodes: float
    edges: float
    features: int
    classes: int

    @property
    def matrices(self) -> float:
        """Bytes of the matrix and its transpose."""
        return 2 * (self.edges + self.nodes) * ENTRY


@dataclass(frozen=True)
class Model:
    """A model as the sizes of its layers.

    Attributes:
        hidden: channels between layers.
        heads, hops: H and K of each layer.
        layers: how many walk.
        values: c of a head; None: as many as there are classes, as in STAGNN.
    """

    name: str
    hidden: int
    heads: int
    hops: int
    layers: int = 1
    values: int | None = None
    item: int = FLOAT

    def walk(self, shape: Shape) -> Walk:
        """What a layer walks over a whole graph."""
        values = shape.classes if self.values is None else self.values
        keys = self.hidden // self.heads
        return Walk(shape.nodes, shape.edges, self.heads, keys, values, self.hops, self.item)

    def numbers(self, shape: Shape) -> float:
        """Numbers a node that a layer leaves for the backward pass: hidden ones, queries and keys
        before and after their map, values, levels."""
        walk = self.walk(shape)
        keys, values = walk.heads * walk.keys, walk.heads * walk.values
        return 3 * self.hidden + 4 * keys + 2 * values + 2 * shape.classes / self.layers

    def products(self, shape: Shape) -> float:
        """Multiplications a node of a forward pass."""
        walk = self.walk(shape)
        out = shape.classes if self.values is None else self.hidden
        width = walk.heads * (2 * walk.keys + walk.values)
        layer = self.hidden * width + walk.heads * walk.values * out
        ends = shape.features * self.hidden + (0 if self.values is None else out * shape.classes)
        return self.layers * layer + ends

    def on_states(self, item: int) -> Model:
        return replace(self, item=item)


def step_seconds(model: Model, shape: Shape, speeds: Speeds) -> float:
    """A training step, full batch, on one device."""
    return model.layers * speeds.training(model.walk(shape)) + dense_seconds(model, shape, speeds)


def evaluation_seconds(model: Model, shape: Shape, speeds: Speeds) -> float:
    dense = speeds.dense(
        PASSED / 3 * model.layers * model.numbers(shape) * shape.nodes,
        model.products(shape) * shape.nodes,
        1,
    )
    return model.layers * speeds.forward(model.walk(shape)) + dense


def dense_seconds(model: Model, shape: Shape, speeds: Speeds) -> float:
    """What a step does at each node beside walking."""
    passed = PASSED * model.layers * model.numbers(shape) + 2 * shape.features
    products = 3 * model.products(shape)
    return speeds.dense(passed * shape.nodes, products * shape.nodes, 1)


def step_bytes(model: Model, shape: Shape) -> float:
    """Most memory of a step beyond features and matrices, on one device."""
    walk = model.walk(shape)
    dense = model.layers * model.numbers(shape) * FLOAT * shape.nodes
    kept = (model.layers - 1) * walk.hops * walk.readout * shape.nodes  # of the other layers
    return dense + kept + peak_bytes(walk)


PAPERS = Shape("ogbn-papers100M", 111_059_956, 2 * 1_615_685_872, 128, 172)
TEN = Shape("ten billion edges", 500e6, 10e9, 128, 100)
PRODUCTS = Shape("products shape", 2_449_029, 123_718_280, 100, 47)
SHAPES = (PAPERS, TEN)
STAGNN = Model("STAGNN, 64 channels, 4 heads, K = 3", 64, 4, 3)
DEEP = Model("deep: 3 layers of 64 channels, 4 heads, K = 2", 64, 4, 2, layers=3, values=16)
MODELS = (STAGNN, DEEP)
