"""The data of a saved run, and its models scored again on the splits that they were trained on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from torch_geometric.data import Data

from .. import data as datasets
from ..graph import Graph
from . import folder as store
from .config import Config
from .loop import choose_device, evaluate, prepare


@dataclass(frozen=True)
class Scores:
    """Scores of one run now, and the test score that was stored when it was trained."""

    graph: str
    metric: str
    run: int
    train: float
    val: float
    test: float
    stored_test: float


def load_data(
    folder: str | os.PathLike[str],
    *,
    data_dir: str | Path | None = None,
    mirror: str | Path | None = None,
) -> Data:
    """The graph of a run as its model takes it: with the encoding, and the masks of its split.

    >>> model, data = load("runs/mine"), load_data("runs/mine")  # doctest: +SKIP
    >>> logits = model(data.x, data.edge_index)  # doctest: +SKIP

    Args:
        folder: as for `load`; of several runs both take the one with the best validation score.
        data_dir: see `datasets.load`.
        mirror: see `datasets.load`.
    """
    run = store.best_run(Path(folder))
    config, seed = _config_of(run), store.read_json(run / "summary.json")["seed"]
    data = prepare(config, data_dir, mirror)
    return datasets.apply_split(data, config.split, seed=seed, data_dir=data_dir, mirror=mirror)


def _config_of(run: Path) -> Config:
    _, header = store.read_tensors(run / "model.safetensors")
    return Config.from_dict(header["config"])


def evaluate_folder(
    folder: str | Path,
    *,
    device: str = "auto",
    data_dir: str | Path | None = None,
    mirror: str | Path | None = None,
) -> list[Scores]:
    """Every finished run below a folder, or the one run that the folder is."""
    runs, place = store.finished_runs(Path(folder)), choose_device(device)
    config = _config_of(runs[0])
    data = prepare(config, data_dir, mirror).to(str(place))
    graph = Graph(data.edge_index, data.num_nodes, transition=config.transition)

    scores = []
    for run in runs:
        summary = store.read_json(run / "summary.json")
        split = datasets.apply_split(
            data, config.split, seed=summary["seed"], data_dir=data_dir, mirror=mirror
        ).to(str(place))
        train, val, test = evaluate(store.load(run, place), split, graph, config.metric)
        scores.append(
            Scores(config.graph, config.metric, summary["run"], train, val, test, summary["test"])
        )
    return scores
