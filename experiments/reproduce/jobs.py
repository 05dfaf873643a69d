"""A job: one training run that shall be made, and the name of its record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from subtree_attention import datasets
from subtree_attention.config import Config
from subtree_attention.datasets import Dataset
from subtree_attention.train.fit import can_capture
from subtree_attention.train.run import Material

Source = tuple[str, str, int]
"""A graph, the kind of its split, and how many columns its encoding has."""


class Direct(NamedTuple):
    """What a model reaches that is not trained epoch by epoch: scores of the best of its stages."""

    train: float
    val: float
    test: float
    best_epoch: int
    epochs: int


@dataclass(frozen=True)
class Job:
    """One run: a model on one split of a graph.

    Attributes:
        experiment, graph: where its record goes.
        model: what tables call it.
        variant: what is special about it, in words; the empty string for the recipe itself.
        seed: of split and weights.
        config: data, split, training, and the settings of the model.
        at: a number for a figure's axis.
        kind: what was done to the graph.
        alone: not beside other runs, because its memory is measured.
    """

    experiment: str
    graph: str
    model: str
    variant: str
    seed: int
    config: Config
    at: float | None = None
    kind: str | None = None
    alone: bool = False

    @property
    def key(self) -> tuple[str, str, int]:
        return self.model, self.variant, self.seed

    @property
    def all_settings(self) -> dict[str, Any]:
        """Those that stand in no configuration."""
        return {}

    @property
    def training(self) -> Config:
        """What it trains by."""
        return self.config

    @property
    def capturable(self) -> bool:
        """Whether its epochs can be replayed as a CUDA graph."""
        return can_capture(self.config)

    @property
    def title(self) -> str:
        """What is run, without the seed."""
        return " ".join(part for part in (self.model, self.variant, "on", self.graph) if part)

    def __str__(self) -> str:
        return f"{self.title}, seed {self.seed}"

    @property
    def source(self) -> Source:
        """What it needs prepared; jobs of the same source share it."""
        return self.graph, self.config.data.split, self.config.data.encoding

    @property
    def at_hand(self) -> bool:
        """Whether its graph need not be downloaded first."""
        return datasets.where(self.graph).status != "download"

    def load(self) -> Dataset:
        """The graph, with its encoding."""
        data = datasets.load(self.graph, split=self.config.data.split)
        return data.encoded(self.config.data.encoding)

    def changed(self, data: Dataset) -> Dataset:
        """The graph that it runs on, made of the one as it is."""
        return data

    @property
    def direct(self) -> bool:
        """Whether its model is no network, and `fit` finds out what it reaches."""
        return False

    def fit(self, data: Dataset) -> Direct:
        """What a model reaches that no trainer is for."""
        raise NotImplementedError

    def build(self, material: Material) -> nn.Module:
        """What is trained, with the weights of its seed."""
        torch.manual_seed(self.seed)
        return self._network(material)

    def _network(self, material: Material) -> nn.Module:
        return material.network()
