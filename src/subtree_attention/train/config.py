"""A run is one typed configuration; everything that decides its numbers is in it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from .. import _check
from ..feature_maps import FEATURE_MAPS
from ..graph import TRANSITIONS
from ..nn.aggregation import AGGREGATIONS
from ..nn.heads import GATES, HEAD_MIXES
from ..nn.linear import check_dropout
from ..nn.models import key_channels
from ..ops import SIMILARITIES
from ..tasks.metrics import LOSSES, METRICS


@dataclass(frozen=True)
class Config:
    """STAGNN on a graph: `recipe(graph)` gives the paper's, `replace` changes it.

    Attributes:
        graph: name in `subtree_attention.datasets`.
        runs: number of runs, each on a split and a seed of its own (`seed`, `seed + 1`, ...).
        split: "A" (50/25/25), "B" (60/20/20), "own" or "fixed"; see `datasets.load`.
        encoding: m, Laplacian eigenvectors that are appended to the features.
        hidden_channels .. eps: the model; see :class:`subtree_attention.STAGNN`.
        epochs: most epochs of a run.
        patience: epochs without a better validation score after which a run stops.
        metric, loss: names in `train.metrics`.
    """

    graph: str
    runs: int = 1
    seed: int = 0
    split: str = "B"
    encoding: int = 3

    hidden_channels: int = 64
    hops: int = 3
    heads: int = 4
    dropout: float = 0.0
    feature_map: str = "elu"
    similarity: str | None = None
    transition: str = "rw"
    aggregation: str = "gpr"
    gate: str = "softmax"
    head_mix: str = "linear"
    global_attention: str | None = None
    eps: float = 1e-5

    lr: float = 0.01
    weight_decay: float = 5e-4
    epochs: int = 3000
    patience: int = 200
    metric: str = "accuracy"
    loss: str = "cross_entropy"

    def __post_init__(self) -> None:
        least = {"runs": 1, "seed": 0, "encoding": 0, "hops": 0, "epochs": 1, "patience": 1}
        for name, low in least.items():
            _check.integer(name, getattr(self, name), low)
        for name, table in _NAMES.items():
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                _check.known(name, value, table)
        key_channels(self.hidden_channels, self.heads)
        check_dropout(self.dropout)
        for name in ("lr", "weight_decay", "eps"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON can hold them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> Config:
        """The inverse of `to_dict`; a setting that does not exist is an error."""
        if not isinstance(settings, dict) or "graph" not in settings:
            raise ValueError("a configuration is a table of settings, 'graph' among them")
        for name in settings:
            _check.known("setting", name, [field.name for field in fields(cls)])
        return cls(**settings)

    def replace(self, **changes: Any) -> Config:
        """This configuration with some settings changed."""
        for name in changes:
            _check.known("setting", name, [field.name for field in fields(self)])
        return replace(self, **changes)

    def model_settings(self) -> dict[str, Any]:
        """The part that STAGNN is built from, without its sizes."""
        if self.global_attention == "only":
            raise ValueError("global attention alone is no STAGNN")
        settings = {name: getattr(self, name) for name in _MODEL}
        settings["global_attention"] = self.global_attention == "beside"
        if settings.pop("similarity"):
            settings["feature_map"] = "softmax"
        return settings


_NAMES: dict[str, Any] = {
    "split": ("A", "B", "own", "fixed"),
    "feature_map": FEATURE_MAPS,
    "similarity": SIMILARITIES,
    "transition": TRANSITIONS,
    "aggregation": AGGREGATIONS,
    "gate": GATES,
    "head_mix": HEAD_MIXES,
    "global_attention": ("beside", "only"),
    "metric": METRICS,
    "loss": LOSSES,
}
_OPTIONAL = ("similarity", "global_attention")
_MODEL = (
    "hidden_channels",
    "hops",
    "heads",
    "dropout",
    "feature_map",
    "similarity",
    "transition",
    "aggregation",
    "gate",
    "head_mix",
    "global_attention",
    "eps",
)
