"""Scores and predictions as a person reads them, on a console of rich."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from ..io import write_bytes
from ..runs import Predictions, SavedRun, Scores
from ..runs.folder import read_curves
from ..runs.saved import best
from ..tasks import of as task_of
from ..tasks.answers import OfClasses, OfNames, OfNumbers
from ..tasks.calibration import Calibration, Intervals
from ..tasks.quality import LabelQuality, Quality, most_confused
from ..train.fit import Result, few_in_words
from . import confusion, references
from .decided import show_choices
from .tables import numbers
from .text import (
    calibrated_by,
    counted,
    intervals_in_words,
    labels_in_words,
    percent,
    plain,
    wilson,
)

LABELS_SHOWN = 30
CLASSES_SHOWN = 15
"""Classes up to which the confusion matrix is a table; of more, the worst pairs are listed."""


def show_result(result: Result, console: Console) -> None:
    """The runs of a configuration, their mean and their deviation."""
    metric, runs = task_of(result.config.task).metric, result.runs
    title = f"{result.config.model.title} on {plain(result.config.data.graph)}: test {metric.label}"
    headings = ("run", "test", "validation", "best epoch", "epochs", "seconds")
    forms = (metric.show, metric.show, "{:.0f}".format, "{:.0f}".format, "{:.1f}".format)
    values = [(run.test, run.val, run.best_epoch, run.epochs, run.seconds) for run in runs]

    def row(name: Any, values: Iterable[float]) -> list[str]:
        return [str(name), *(form(value) for form, value in zip(forms, values, strict=True))]

    table = _table(headings, map(row, (run.run for run in runs), values), title)
    table.add_section()
    name, test, *others = row("mean", map(mean, zip(*values, strict=True)))
    table.add_row(name, f"[bold]{test}[/bold]", *others)
    if result.std is not None:
        table.add_row("std", metric.show(result.std), "", "", "", "")
    console.print(table)
    for line in _beside(result):
        console.print(line, soft_wrap=True, markup=False)
    if result.references is not None:
        unit = task_of(result.config.task).unit
        words = references.verdict(result.references, metric, runs[0].val, runs[0].test, unit)
        console.print(words, soft_wrap=True, markup=False)
    console.print(f"saved in {result.folder}", soft_wrap=True, markup=False)


def _beside(result: Result) -> Iterator[str]:
    """How sure the scores of run 0 are; and whether known labels correct the runs."""
    task, first = task_of(result.config.task), result.runs[0]
    if result.units is not None:
        if task.metric.name == "accuracy":
            parts = zip(("validation", "test"), (first.val, first.test), result.units, strict=True)
            yield "95 % intervals of run 0: " + ", ".join(
                f"{part} {' to '.join(map(task.metric.show, wilson(score, count)))} "
                f"({counted(count, task.unit)})"
                for part, score, count in parts
            )
        if few := few_in_words(result.units[0], task.unit):
            yield few
    if getattr(result.config.task, "correct", False):
        yield from _corrections(result)


def _corrections(result: Result) -> Iterator[str]:
    """Whether correct and smooth was kept, run by run."""
    show = task_of(result.config.task).metric.show
    gains = []
    for run in result.runs:
        if run.correct_reach is not None or run.smooth_reach is not None:
            curves = read_curves(result.folder / f"run-{run.run}")
            before = next(epoch.val for epoch in curves if epoch.epoch == run.best_epoch)
            gains.append(f"run {run.run}: {show(before)} to {show(run.val)} on validation")
    kept = f"kept in {len(gains)} of {counted(len(result.runs), 'run')} ({'; '.join(gains)})"
    yield f"correct and smooth: {kept if gains else 'tried, not kept: no gain beyond chance'}"


def show_next(result: Result, console: Console) -> None:
    """What to do with a model that was trained just now."""
    task, folder = task_of(result.config.task), result.folder
    commands = [f"sta predict {folder}", f"sta report {folder}"]
    if task.unit != "pair":  # which are not explained
        commands.insert(1, f"sta explain {folder} ID")
    if task.unit == "node" and task.kind == "class":
        commands.append(f"sta explore {folder}")
    best, by = max(result.runs, key=lambda run: task.metric.sign * run.val), ""
    if len(result.runs) > 1:
        by = f" (by run {best.run}, the best on validation)"
    console.print(f"what next: {', '.join(commands)}{by}", soft_wrap=True, markup=False)
    found = result.references and result.references.best(task.metric)
    if found and task.metric.sign * (found.val - result.runs[0].val) > 0:
        longer = "a search of settings may find a better model: the same command with --tune 10m"
        if result.portfolio is None:
            longer = "another model may be better: see 'sta train --help'"
        elif result.portfolio.budget is not None:
            longer = "a longer search may find a better model: --tune with more time"
        words = f"{longer}; or use {found.words} instead, which is simpler"
        console.print(words, soft_wrap=True, markup=False)


def show_scores(scores: list[Scores], console: Console) -> None:
    """The metric of each run, now and when it was trained."""
    run, metric = scores[0].run, scores[0].run.task.metric
    headings = ("run", "train", "validation", "test", "test when trained")
    rows = (
        (one.run.result.run, *map(metric.show, (one.train, one.val, one.test, one.run.result.test)))
        for one in scores
    )
    console.print(_table(headings, rows, f"{plain(run.config.data.graph)}: {metric.label}"))
    if run.config.fit.precision != "full":
        rounded = f"trained with {run.config.fit.words('precision')}"
        may = f"which may change a few {run.task.unit}s"
        console.print(f"{rounded}; scored now without rounding, {may}")
    for line in labels_in_words([one.run for one in scores]):
        console.print(line)


def show_references(scores: list[Scores], console: Console) -> None:
    """What references reached on the split of run 0, if that was asked for."""
    for one in scores:
        if one.run.references is not None:
            metric = one.run.task.metric
            ours = one.val, one.test
            references.show(one.run.references, metric, console, ours, one.run.task.unit)


def show_ogb(scores: list[Scores], console: Console) -> None:
    """What OGB's own evaluators say, of runs on its graphs; a line for each run."""
    from ..datasets.ogb import ogb_scores
    from ..datasets.registry import is_ogb

    for run in (score.run for score in scores):
        if not is_ogb(run.config.data.graph):
            return
        parts = {"validation": run.split.val.numpy(), "test": run.split.test.numpy()}
        told = {
            part: ogb_scores(run.config.data.graph, run.target[some], run.logits[some])
            for part, some in parts.items()
        }
        words = (f"{part} {n} {value:.4f}" for part, s in told.items() for n, value in s.items())
        console.print(f"OGB's evaluator, run {run.result.run}: {', '.join(words)}")


def show_quality(scores: list[Scores], console: Console) -> None:
    """More scores of the test nodes, a line for each run."""
    quality = scores[0].quality
    unit = f" ({quality.unit})" if quality.unit else ""
    console.print(f"\ntest {scores[0].run.task.unit}s{unit}")
    rows = ((one.run.result.run, *one.quality.told().values()) for one in scores)
    console.print(_table(("run", *quality.told()), rows))


def show_details(scores: list[Scores], folder: Path, console: Console) -> None:
    """What the scores of the run with the best validation score hide: which classes are taken for
    which (also as a picture), how well each label is told, or how far numbers are off."""
    run = best([score.run for score in scores])
    quality = next(score.quality for score in scores if score.run is run)
    if isinstance(quality, Quality):
        show_choices(run, console)
        show_confusion(run, quality.confusion, folder, console)
    elif isinstance(quality, LabelQuality):
        console.print(f"test {run.task.unit}s of run {run.result.run}: each label (scores in %)")
        console.print(labels_table(quality, run.task.names(run.dataset)))
    else:
        show_calibration(run.calibration, console, run.task.unit)


def show_confusion(run: SavedRun, counts: np.ndarray, folder: Path, console: Console) -> None:
    """The confusion matrix [C, C] of a run's test nodes; and as a picture."""
    classes = run.task.names(run.dataset)
    names, nodes = (
        [plain(name) for name in classes],
        f"test {run.task.unit}s of run {run.result.run}",
    )
    if len(classes) <= CLASSES_SHOWN:
        console.print(f"{nodes}: true class in rows, predicted in columns")
        table = _matrix(names, names, counts)
        anyhow = console.options.update(max_width=10_000)
        if console.measure(table, options=anyhow).maximum > console.width:  # names would be cut
            rows = [f"{number}: {name}" for number, name in enumerate(names)]
            table = _matrix(rows, [str(number) for number in range(len(names))], counts)
    else:
        console.print(f"{nodes}: what is taken for what most often")
        pairs = ((names[i], names[j], count) for i, j, count in most_confused(counts, 10))
        table = _table(("true", "predicted", f"{run.task.unit}s"), pairs)
    console.print(table)
    path = folder / "confusion.png"
    picture = confusion.draw(counts, classes, f"{run.config.data.graph}, {nodes}")
    try:
        if picture is None:
            raise ImportError('it needs matplotlib, pip install "subtree-attention[plot]"')
        write_bytes(path, picture)
        line = f"drawn in {path}"
    except (ImportError, OSError) as error:  # or a folder that is only read
        line = f"no picture: {error}"
    console.print(line, soft_wrap=True, markup=False)


def _matrix(names: list[str], columns: list[str], counts: np.ndarray) -> Table:
    rows = ((name, *row) for name, row in zip(names, counts.tolist(), strict=True))
    return _table(("", *columns), rows)


def labels_table(quality: LabelQuality, names: Sequence[str]) -> Table:
    """How well each label is told, the most frequent first."""
    each = sorted(zip(quality.labels, names, strict=True), key=lambda pair: -pair[0].units)
    rows: Iterable[Sequence[Any]] = (
        (plain(name), found.units, found.given, *map(percent, found.shares))
        for found, name in each[:LABELS_SHOWN]
    )
    table = _table(("label", "have it", "given", "precision", "recall", "F1", "ROC-AUC"), rows)
    if len(each) > LABELS_SHOWN:
        table.caption = f"and {len(each) - LABELS_SHOWN:,} labels more"
    return table


def show_calibration(
    calibration: Calibration | Intervals,
    console: Console,
    unit: str = "node",
    answers: str = "",
) -> None:
    """What the temperature does to the probabilities, or how often intervals hold; `answers` is
    what is counted, if not units."""
    if isinstance(calibration, Intervals):
        console.print(intervals_in_words(calibration, unit))
        parts = (("validation", calibration.val), ("test", calibration.test))
        shares = ((name, part.nodes, percent(part.share)) for name, part in parts)
        console.print(_table(("", f"{unit}s", "in the interval (%)"), shares))
        return
    console.print(
        f"probabilities are calibrated by {calibrated_by(calibration, unit)} (NLL: negative "
        "log-likelihood, ECE: expected calibration error in %)"
    )
    rows = (
        (name, part.nodes, *map("{:.4f}".format, part.nll), *map(percent, part.ece))
        for name, part in (("validation", calibration.val), ("test", calibration.test))
    )
    headings = ("", answers or f"{unit}s", "NLL", "calibrated", "ECE", "calibrated")
    console.print(_table(headings, rows))


def known_labels(predictions: Predictions) -> str | None:
    """How well those of new nodes are predicted whose class, labels or number is known, if any."""
    answers = predictions.answers
    known = np.array([value is not None for value in answers.known])
    count = int(known.sum())
    if not count:
        return None
    if isinstance(answers, OfNumbers):
        off = np.abs(answers.values - answers.target)[known].mean()
        inside = (answers.low <= answers.target) & (answers.target <= answers.high)
        return (
            f"{counted(count, predictions.unit)} with a number: off by {off:.4g} on average, "
            f"{percent(inside[known].mean(), 1)}% in the interval"
        )
    assert isinstance(answers, OfNames)
    said = int((known & answers.said).sum())
    right = said - len(answers.mistakes(known))
    exactly = "" if isinstance(answers, OfClasses) else ", in all their labels"
    share = percent(right / said if said else None, 1)
    units = f"{predictions.unit}s with a label"
    silent = f"; {count - said:,} more got no answer" if said < count else ""
    return f"{right:,} of {said:,} {units} are right ({share}%){exactly}{silent}"


def _table(
    headings: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None
) -> Table:
    """A frame for what has a title; else columns of numbers behind one of names."""
    if title:
        return numbers(headings, rows, title=title)
    return numbers(headings, rows, texts=headings[:1], box=SIMPLE)
