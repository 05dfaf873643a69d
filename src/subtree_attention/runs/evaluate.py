"""The data of a saved run, and its models scored again on the splits that they were trained on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch_geometric.data import Data

from .. import datasets
from ..tasks.quality import Quality, quality
from ..train.loop import choose_device, prepare, score
from . import folder as store
from .predict import logits_of, names_of


@dataclass(frozen=True)
class Scores:
    """Scores of one run now, and the test score that was stored when it was trained.

    `quality` has more scores of the test nodes, and `classes` the names of its rows.
    """

    graph: str
    metric: str
    run: int
    train: float
    val: float
    test: float
    stored_test: float
    classes: list[str]
    quality: Quality


def load_data(
    folder: str | os.PathLike[str],
    *,
    data_dir: str | Path | None = None,
    mirror: str | Path | None = None,
) -> Data:
    """The graph of a run as its model takes it: with the encoding, and the masks of its split.

    >>> model, data = load("runs/mine"), load_data("runs/mine")  # doctest: +SKIP
    >>> logits = model(data.x, data.edge_index, data.get("edge_weight"))  # doctest: +SKIP

    That of a run on one's own tables also has `ids`, `classes`, `recipe` and `report`.

    Args:
        folder: as for `load`; of several runs both take the one with the best validation score.
        data_dir: see `datasets.load`.
        mirror: see `datasets.load`.
    """
    run = store.best_run(Path(folder))
    config, seed = store.config_of(run), store.read_summary(run)["seed"]
    data = prepare(config, data_dir, mirror, store.folder_of(run))
    return datasets.apply_split(data, config.split, seed=seed, data_dir=data_dir, mirror=mirror)


def evaluate_folder(
    folder: str | Path,
    *,
    device: str = "auto",
    data_dir: str | Path | None = None,
    mirror: str | Path | None = None,
) -> list[Scores]:
    """Every finished run below a folder, or the one run that the folder is."""
    runs, place = store.finished_runs(Path(folder)), choose_device(device)
    config = store.config_of(runs[0])
    data = prepare(config, data_dir, mirror, store.folder_of(runs[0]))
    scores = []
    for run in runs:
        summary = store.read_summary(run)
        split = datasets.apply_split(
            data, config.split, seed=summary["seed"], data_dir=data_dir, mirror=mirror
        )
        logits = logits_of(store.load(run, place), data, config, place)
        train, val, test = score(torch.from_numpy(logits), split, config.metric)
        of_test = split.test_mask.numpy()
        scores.append(
            Scores(
                config.graph,
                config.metric,
                summary["run"],
                train,
                val,
                test,
                summary["test"],
                names_of(data, logits.shape[1])[1],
                quality(logits[of_test], split.y.numpy()[of_test]),
            )
        )
    return scores
