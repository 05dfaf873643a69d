"""The models of a run folder, scored again on the splits that they were trained on."""

from __future__ import annotations

from dataclasses import dataclass

from ..tasks.quality import Quality
from .saved import Folder, SavedRun, open_all


@dataclass(frozen=True)
class Scores:
    """Scores of one run now, and more scores of its test nodes."""

    run: SavedRun
    train: float
    val: float
    test: float
    quality: Quality


def score(run: SavedRun) -> Scores:
    """A run on the split that it was trained on, by its calibrated probabilities."""
    test, y = run.split.test.numpy(), run.dataset.y.numpy()
    found = run.task.quality(run.logits[test] / run.temperature, y[test])
    return Scores(run, *run.scores(), found)


def evaluate(folder: Folder, *, device: str = "auto") -> list[Scores]:
    """Every finished run below a folder, or the one run that the folder is."""
    runs = open_all(folder, device=device)
    for run in runs[1:]:  # they have one graph: it is read once
        run.__dict__ |= {"dataset": runs[0].dataset, "graph": runs[0].graph}
    return [score(run) for run in runs]
