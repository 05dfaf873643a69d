"""What is searched: settings of `Config`, and the values that each may take."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from typing import TYPE_CHECKING, Any

from .. import _check
from ..config import STAGNNSettings

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


@dataclass(frozen=True)
class Range:
    """A number between two ends, both included; whole if the ends are."""

    low: float
    high: float
    step: int = 1
    log: bool = False


Space = Mapping[str, tuple[Any, ...] | Range]
"""For each setting the values to choose from, or a range of them."""


def _all_of(name: str) -> tuple[str, ...]:
    """Every value that an option of the model may have."""
    return tuple(STAGNNSettings.__dataclass_fields__[name].metadata["words"])


SPACES: dict[str, Space] = {
    "paper": {
        "lr": (0.001, 0.01),
        "dropout": (0.0, 0.2, 0.4, 0.6),
        "weight_decay": (1e-4, 5e-4, 1e-3, 5e-3),
        "hops": (3, 5, 10),
        "heads": (1, 2, 4, 6, 8),
    },
    "wide": {
        "lr": Range(3e-4, 3e-2, log=True),
        "dropout": Range(0.0, 0.8),
        "weight_decay": Range(1e-6, 1e-1, log=True),
        "hops": Range(1, 20),
        "heads": Range(1, 8),
        "hidden_channels": Range(32, 128, step=16),
        "head_mix": _all_of("head_mix"),
        "aggregation": _all_of("aggregation"),
        "gate": _all_of("gate"),
        "transition": _all_of("transition"),
        "encoding": Range(0, 8),
    },
}


def space_of(name: str) -> Space:
    """The space of a name; an unknown one gets a suggestion."""
    return SPACES[_check.known("space", name, SPACES)]


def grid(space: Space, seed: int = 0) -> list[dict[str, Any]]:
    """Every point of a space of choices; shuffled, so that a part of it is a fair sample.

    A space with ranges has no grid: the list is empty.
    """
    choices = [values for values in space.values() if not isinstance(values, Range)]
    if len(choices) < len(space):
        return []
    points = [dict(zip(space, values, strict=True)) for values in product(*choices)]
    random.Random(seed).shuffle(points)
    return points


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """The space in Optuna's words."""
    from optuna import distributions as kinds

    def distribution(values: tuple[Any, ...] | Range) -> BaseDistribution:
        if not isinstance(values, Range):
            return kinds.CategoricalDistribution(values)
        if isinstance(values.low, int) and isinstance(values.high, int):
            return kinds.IntDistribution(values.low, values.high, step=values.step)
        return kinds.FloatDistribution(values.low, values.high, log=values.log)

    return {name: distribution(values) for name, values in space.items()}


def settings(point: Mapping[str, Any]) -> dict[str, Any]:
    """What is trained at a point: three digits of a number, so that the recipe can be written."""
    return {
        name: float(f"{value:.3g}") if isinstance(value, float) else value
        for name, value in point.items()
    }


def key(point: Mapping[str, Any]) -> str:
    """A short name of what is trained at a point: the same for the same settings."""
    return sha256(json.dumps(settings(point), sort_keys=True).encode()).hexdigest()[:12]
