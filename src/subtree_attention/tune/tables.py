"""What `sta train --nodes ...` does before it trains: a name, and settings found by a search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from .. import datasets
from ..runs.bundle import fingerprint
from ..train.config import Config
from . import Task, search
from .space import space_of
from .study import Study

TUNE_RUNS = 3
"""Splits per trial, or fewer where the settings say so."""


def name_of(nodes: Path) -> str:
    """What to call a graph: the name of its file, which is never that of the registry."""
    name = nodes.stem
    return f"{name}-table" if name in datasets.names() else name


def refuse_fixed(changes: dict[str, Any]) -> None:
    """A setting cannot be given and searched at once."""
    searched = sorted(changes.keys() & space_of("paper").keys())
    if searched:
        raise ValueError(f"{', '.join(searched)}: given, and searched by --tune; leave one out")


def tune(config: Config, data: Data, folder: Path, seconds: float, **how: Any) -> Study:
    """Search settings on a graph of one's own for some time; goes on with what is in the folder."""
    runs = min(TUNE_RUNS, config.runs)
    # Trials on two graphs cannot be compared.
    same = fingerprint(data)
    task = Task(config.graph, runs=runs, seed=config.seed, base=config.to_dict(), data=same)
    return search(task, folder, budget=seconds, data=data, **how)


def best(study: Study, budget: str) -> Config:
    """The settings of the best trial."""
    if not study.done():
        raise ValueError(
            f"no trial was done within {budget}: give --tune more time, or train without it"
        )
    return study.task.protocol(study.done()[0].params)
