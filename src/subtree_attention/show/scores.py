"""Scores and predictions as a person reads them, on a console of rich."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from ..io import write_bytes
from ..runs import Predictions, Scores
from ..runs.saved import best
from ..tasks import of as task_of
from ..tasks.calibration import Calibration
from ..tasks.quality import most_confused
from ..train.fit import Result
from . import confusion
from .tables import numbers
from .text import percent, plain

CLASSES_SHOWN = 15
"""Classes up to which the confusion matrix is a table; of more, the worst pairs are listed."""


def show_result(result: Result, console: Console) -> None:
    """The runs of a configuration, their mean and their deviation."""
    metric = task_of(result.config.task).metric
    title = f"{result.config.model.title} on {plain(result.config.data.graph)}: test {metric.label}"
    headings = ("run", "test", "validation", "best epoch", "epochs", "seconds")
    table, runs = _table(*headings, title=title), result.runs
    for run in runs:
        numbers = (str(run.run), metric.show(run.test), metric.show(run.val))
        table.add_row(*numbers, str(run.best_epoch), str(run.epochs), f"{run.seconds:.1f}")
    table.add_section()
    table.add_row(
        "mean",
        f"[bold]{metric.show(result.mean)}[/bold]",
        metric.show(mean(run.val for run in runs)),
        f"{mean(run.best_epoch for run in runs):.0f}",
        f"{mean(run.epochs for run in runs):.0f}",
        f"{mean(run.seconds for run in runs):.1f}",
    )
    if result.std is not None:
        table.add_row("std", metric.show(result.std), "", "", "", "")
    console.print(table)
    console.print(f"saved in {result.folder}", soft_wrap=True, markup=False)


def show_scores(scores: list[Scores], console: Console) -> None:
    """The metric of each run, now and when it was trained."""
    run = scores[0].run
    metric = run.task.metric
    headings = ("run", "train", "validation", "test", "test when trained")
    table = _table(*headings, title=f"{plain(run.config.data.graph)}: {metric.label}")
    for score in scores:
        values = (score.train, score.val, score.test, score.run.result.test)
        table.add_row(str(score.run.result.run), *map(metric.show, values))
    console.print(table)


def show_quality(scores: list[Scores], console: Console) -> None:
    """More scores of the test nodes, a line for each run."""
    console.print("\ntest nodes (%)")
    table = _table("run", *scores[0].quality.named())
    for score in scores:
        table.add_row(str(score.run.result.run), *map(percent, score.quality.named().values()))
    console.print(table)


def show_confusion(scores: list[Scores], folder: Path, console: Console) -> None:
    """The confusion matrix of the run with the best validation score; and as a picture."""
    run = best([score.run for score in scores])
    counts = next(score.quality.confusion for score in scores if score.run is run)
    number, classes = run.result.run, run.dataset.classes
    names = [plain(name) for name in classes]
    if len(classes) <= CLASSES_SHOWN:
        console.print(f"test nodes of run {number}: true class in rows, predicted in columns")
        table = _matrix(names, names, counts)
        anyhow = console.options.update(max_width=10_000)
        if console.measure(table, options=anyhow).maximum > console.width:  # names would be cut
            numbers = [str(number) for number in range(len(names))]
            rows = [f"{number}: {name}" for number, name in enumerate(names)]
            table = _matrix(rows, numbers, counts)
    else:
        console.print(f"test nodes of run {number}: what is taken for what most often")
        table = _table("true", "predicted", "nodes")
        for true, predicted, count in most_confused(counts, 10):
            table.add_row(names[true], names[predicted], f"{count:,}")
    console.print(table)
    title = f"{run.config.data.graph}, test nodes of run {number}"
    picture = confusion.draw(counts, classes, title)
    if picture is None:
        line = 'no picture: it needs matplotlib, pip install "subtree-attention[plot]"'
    else:
        line = _draw(folder / "confusion.png", picture)
    console.print(line, soft_wrap=True, markup=False)


def _matrix(rows: list[str], columns: list[str], counts: np.ndarray) -> Table:
    table = _table("", *columns)
    for name, row in zip(rows, counts, strict=True):
        table.add_row(name, *(f"{count:,}" for count in row))
    return table


def _draw(path: Path, picture: bytes) -> str:
    try:
        write_bytes(path, picture)
    except OSError as error:  # a folder that is only read; the scores are printed already
        return f"no picture: {error}"
    return f"drawn in {path}"


def show_calibration(calibration: Calibration, console: Console) -> None:
    """What the temperature does to the probabilities."""
    console.print(
        f"probabilities are calibrated by temperature {calibration.temperature:.3f}, which was "
        "found on the validation nodes (NLL: negative log-likelihood, ECE: expected calibration "
        "error in %)"
    )
    table = _table("", "nodes", "NLL", "calibrated", "ECE", "calibrated")
    for name, trust in (("validation", calibration.val), ("test", calibration.test)):
        nll, ece = (f"{value:.4f}" for value in trust.nll), map(percent, trust.ece)
        table.add_row(name, f"{trust.nodes:,}", *nll, *ece)
    console.print(table)


def known_labels(predictions: Predictions) -> str | None:
    """How many of new nodes with a label are right, if any has one."""
    known = predictions.labels >= 0
    if not known.any():
        return None
    right = predictions.probabilities.argmax(1)[known] == predictions.labels[known]
    share = percent(right.mean(), 1)
    return f"{int(right.sum()):,} of {len(right):,} nodes with a label are right ({share}%)"


def _table(*headings: str, title: str | None = None) -> Table:
    """A frame for what has a title; else columns of numbers behind one of names."""
    if title:
        return numbers(*headings, title=title)
    return numbers(*headings, texts=headings[:1], box=SIMPLE)
