"""Scores and predictions as a person reads them, on a console of rich."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from ..io import write_bytes
from ..runs import Predictions, Scores
from ..tasks import of as task_of
from ..tasks.calibration import Calibration
from ..tasks.quality import draw_confusion, most_confused
from ..train.fit import Result

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

CLASSES_SHOWN = 15
"""Classes up to which the confusion matrix is a table; of more, the worst pairs are listed."""


def show_result(result: Result, console: Console) -> None:
    """The runs of a configuration, their mean and their deviation."""
    from rich.table import Table

    metric = task_of(result.config.task).metric
    title = f"{result.config.model.title} on {result.config.data.graph}: test {metric.label}"
    table, runs = Table(title=title), result.runs
    for column in ("run", "test", "validation", "best epoch", "epochs", "seconds"):
        table.add_column(column, justify="right")
    for run in runs:
        scores = (metric.show(run.test), metric.show(run.val))
        table.add_row(
            str(run.run), *scores, str(run.best_epoch), str(run.epochs), f"{run.seconds:.1f}"
        )
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
    from rich.table import Table

    run = scores[0].run
    metric = run.task.metric
    table = Table(title=f"{run.config.data.graph}: {metric.label}")
    for column in ("run", "train", "validation", "test", "test when trained"):
        table.add_column(column, justify="right")
    for score in scores:
        values = (score.train, score.val, score.test, score.run.result.test)
        table.add_row(str(score.run.result.run), *map(metric.show, values))
    console.print(table)


def show_quality(scores: list[Scores], console: Console) -> None:
    """More scores of the test nodes, a line for each run."""
    console.print("\ntest nodes (%)")
    table = _plain("run", "accuracy", "macro F1", "ROC-AUC", "calibration error")
    for score in scores:
        found = score.quality
        values = (found.accuracy, found.macro_f1, found.roc_auc, found.calibration_error)
        table.add_row(str(score.run.result.run), *(_percent(value) for value in values))
    console.print(table)


def show_confusion(scores: list[Scores], folder: Path, console: Console) -> None:
    """The confusion matrix of the run with the best validation score; and as a picture."""
    from rich.markup import escape

    best = max(scores, key=lambda score: score.run.task.metric.sign * score.val)
    number, run = best.run.result.run, best.run
    confusion, classes = best.quality.confusion, list(run.dataset.classes)
    if len(classes) <= CLASSES_SHOWN:
        console.print(f"test nodes of run {number}: true class in rows, predicted in columns")
        table = _plain("", *(escape(name) for name in classes))
        for name, row in zip(classes, confusion, strict=True):
            table.add_row(escape(name), *(f"{count:,}" for count in row))
    else:
        console.print(f"test nodes of run {number}: what is taken for what most often")
        table = _plain("true", "predicted", "nodes")
        for true, predicted, count in most_confused(confusion, 10):
            table.add_row(escape(classes[true]), escape(classes[predicted]), f"{count:,}")
    console.print(table)
    picture = draw_confusion(
        confusion, classes, f"{run.config.data.graph}, test nodes of run {number}"
    )
    if picture is None:
        line = 'no picture: it needs matplotlib, pip install "subtree-attention[plot]"'
    else:
        line = _draw(folder / "confusion.png", picture)
    console.print(line, soft_wrap=True, markup=False)


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
    table = _plain("", "nodes", "NLL", "calibrated", "ECE", "calibrated")
    for name, trust in (("validation", calibration.val), ("test", calibration.test)):
        nll, ece = (f"{value:.4f}" for value in trust.nll), (_percent(v) for v in trust.ece)
        table.add_row(name, f"{trust.nodes:,}", *nll, *ece)
    console.print(table)


def known_labels(predictions: Predictions) -> str | None:
    """How many of new nodes with a label are right, if any has one."""
    known = predictions.labels >= 0
    if not known.any():
        return None
    right = predictions.probabilities.argmax(1)[known] == predictions.labels[known]
    return (
        f"{int(right.sum()):,} of {len(right):,} nodes with a label are right ({right.mean():.1%})"
    )


def _plain(*headings: str) -> Table:
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    return table


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.2f}"
