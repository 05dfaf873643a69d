"""Findings as one HTML file. Whatever comes from the user's data is escaped by the template."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ... import __version__, io
from ...runs import SavedRun
from ...tasks.answers import OfClasses, OfNumbers
from ...tasks.calibration import Intervals
from ...tasks.deciding import rejections
from ...tasks.quality import AnyQuality, LabelQuality, Quality, most_confused
from .. import portfolio
from ..colours import sheet
from ..confusion import shares
from ..decided import choices
from ..references import OURS, left_out, verdict
from ..subtree_svg import subtree_svg
from ..text import (
    calibrated_by,
    intervals_in_words,
    labels_in_words,
    percent,
    signed,
    visible,
)
from . import words
from .charts import Line, chart, spread
from .findings import Findings

REPORT = "subtree-attention: report"
"""The mark of a report."""
CLASSES_SHOWN = 30
CLASSES_ON_A_PHONE = 12
"""Classes up to which the confusion matrix is a table; of more, the worst pairs are listed."""
PAIRS_SHOWN = 20
COLUMNS_SHOWN = 200
LABELS_SHOWN = 50
DOTS = 1000
"""Nodes that are drawn: so many are enough to see where they lie."""


def check_target(path: Path, force: bool, mark: str | None = None) -> None:
    """Refuse a file that cannot or must not be written, before any work is done; a page with this
    mark may be written anew."""
    anew = mark is not None and has_mark(path, mark)
    io.check_target(path, (".html", ".htm"), "a report is", force or anew)


def has_mark(path: Path, mark: str) -> bool:
    """Whether a file is a page of ours of this kind."""
    try:
        with io.open_regular(path) as file:
            return f'name="generator" content="{mark}"'.encode() in file.read(1000)
    except (OSError, io.FileError):
        return False


def write(page: str, path: Path) -> None:
    """Write a page, all or nothing."""
    io.write_bytes(path, page.encode())


def rendered(template: str, mark: str, **told: Any) -> str:
    """A page of one file; the mark says that it is ours, and of what kind."""
    environment = Environment(
        loader=PackageLoader("subtree_attention", "show/report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "signed": signed, "thousands": "{:,}".format}
    environment.filters["parted"] = parted
    environment.globals |= {"version": __version__, "colours": Markup(sheet())}
    return environment.get_template(template).render(told, mark=mark)


def parted(text: Any) -> Markup:
    """A text that may be broken behind a slash: a folder."""
    return Markup("/<wbr>").join(str(text).split("/"))


def render(findings: Findings) -> str:
    """The page."""
    run, metric = findings.run, findings.run.task.metric
    told = {name: run.environment.get(name) for name in ("time", "command", "device", "commit")}
    origin = [(name.capitalize(), value) for name, value in told.items() if value]
    return rendered(
        "report.html",
        REPORT,
        found=replace(findings, mistakes=[_drawn(mistake, run) for mistake in findings.mistakes]),
        run=run,
        best=run.result,
        words=[*words.describe(run.config, run.dataset), *_labels_seen(run), *origin],
        metric=metric,
        label=metric.label[0].upper() + metric.label[1:],
        scores=_scores(findings),
        references=_references(findings),
        portfolio=_portfolio(run),
        curves=_curves(findings),
        tested=int(run.split.test.sum()),
        unit=run.task.unit,
        trust=_trust(run),
        reliability=_reliability(findings) if findings.bins else None,
        answers=f"{run.task.unit}s" if run.task.kind == "class" else "labels",
        bins=[
            (percent(one.confidence, 1), percent(one.accuracy, 1), f"{one.nodes:,}")
            for one in (findings.bins[1] if findings.bins else ())
        ],
        confusion=_confusion(findings.quality, run.task.names(run.dataset)),
        labels=_labels(findings.quality, run.task.names(run.dataset)),
        scatter=_scatter(findings),
        choices=choices(run),
        rejection=_rejection(run),
        levels=_levels(findings),
        columns=[
            (line.name, line.kind, f"{line.width:,}", f"{line.missing:,}", line.note)
            for line in (run.dataset.notes.columns[:COLUMNS_SHOWN] if run.dataset.notes else ())
        ],
    )


def _drawn(mistake: dict[str, Any], run: SavedRun) -> dict[str, Any]:
    """With its picture, if there is one."""
    told = mistake.get("subtree")
    if told is None:
        return mistake
    classes = run.dataset.classes if isinstance(run.answers, OfClasses) else ()
    label = f"the subtree of {mistake['node']}"
    return {**mistake, "drawn": subtree_svg(told, classes=classes, by=told["by"], label=label)}


def _visible(value: Any) -> Any:
    """Only what can be seen of a text; markup is ours."""
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return visible(value) if is_text else value


# ----------------------------------------------------------------------------------------- tables


def _labels_seen(run: SavedRun) -> list[tuple[str, str]]:
    """What labels of training nodes do besides being learnt from, if anything."""
    told = "; ".join(labels_in_words([run]))
    return [("Labels", told)] if told else []


def _scores(findings: Findings) -> dict[str, list[tuple[Any, ...]]]:
    """A row for each run; below several, mean and standard deviation."""
    show, names = findings.run.task.metric.show, ("train", "val", "test")
    rows: list[tuple[Any, ...]] = []
    for line in findings.lines:
        scores = (show(getattr(line, name)) for name in names)
        spent = (line.best_epoch, line.epochs, f"{line.seconds:.1f}")
        rows.append((line.run, line.seed, *scores, *spent))
    sums = zip(("mean", "std"), zip(*map(findings.summary, names), strict=True), strict=True)
    foot = [(name, "", *map(show, values), "", "", "") for name, values in sums if rows[1:]]
    return {"rows": rows, "foot": foot}


def _portfolio(run: SavedRun) -> dict[str, Any] | None:
    """What competed before, if anything did."""
    if run.portfolio is None:
        return None
    rows = portfolio.cells(run.portfolio)
    return {"headings": portfolio.HEADINGS, "rows": rows, "lines": portfolio.lines(run.portfolio)}


def _references(findings: Findings) -> dict[str, Any] | None:
    """A row for each reference, and for our run 0 on the same split; who is better."""
    found, metric = findings.references, findings.run.task.metric
    if found is None:
        return None
    first = next(line for line in findings.lines if line.run == 0)
    scores = [(one.words, one.val, one.test, one.seconds, one.note) for one in found.references]
    scores.append((OURS, first.val, first.test, first.seconds, ""))
    scores.sort(key=lambda row: metric.sign * row[1])
    rows = [
        (words, metric.show(val), metric.show(test), f"{seconds:.1f}", note)
        for words, val, test, seconds, note in scores
    ]
    return {
        "rows": rows,
        "verdict": verdict(found, metric, first.val, first.test, findings.run.task.unit),
        "left_out": list(left_out(found)),
    }


def _heat(
    headings: Sequence[str], names: Iterable[Any], values: np.ndarray, shades: np.ndarray, form: str
) -> dict[str, Any]:
    """A table whose cells are coloured: values [n, m], shades of colour from 0 to 1 [n, m]."""

    def cell(value: float, shade: float) -> dict[str, Any]:
        # Text stays legible on the fullest.
        return {"text": format(value, form), "shade": round(60 * shade), "minus": value < 0}

    pairs = zip(names, values.tolist(), shades.tolist(), strict=True)
    return {"headings": headings, "rows": [(name, *map(cell, *both)) for name, *both in pairs]}


def _trust(run: SavedRun) -> dict[str, Any]:
    """How far probabilities, or intervals, hold on the validation and test nodes."""
    calibration, units = run.calibration, f"{run.task.unit}s"
    answers = units if run.task.kind == "class" else "labels"
    parts: Any = (("validation", calibration.val), ("test", calibration.test))
    if isinstance(calibration, Intervals):
        rows = [(name, f"{part.nodes:,}", percent(part.share)) for name, part in parts]
        headings: tuple[str, ...] = ("", units, "in the interval (%)")
        words = intervals_in_words(calibration, run.task.unit)
        return {"words": words, "headings": headings, "rows": rows}
    return {
        "words": f"Probabilities are calibrated by {calibrated_by(calibration, run.task.unit)}. "
        "ECE is the expected calibration error in percent, NLL the negative log-likelihood.",
        "headings": ("", answers, "ECE", "after", "NLL", "after"),
        "rows": [
            (name, f"{part.nodes:,}", *map(percent, part.ece), *(f"{nll:.4f}" for nll in part.nll))
            for name, part in parts
        ],
    }


def _labels(quality: AnyQuality, names: Sequence[str]) -> list[tuple[str, ...]]:
    """How well each label is told, the most frequent first."""
    if not isinstance(quality, LabelQuality):
        return []
    each = sorted(zip(quality.labels, names, strict=True), key=lambda pair: -pair[0].units)
    return [
        (name, f"{found.units:,}", f"{found.given:,}", *map(percent, found.shares))
        for found, name in each[:LABELS_SHOWN]
    ]


def _confusion(quality: AnyQuality, classes: Sequence[str]) -> dict[str, Any] | None:
    """Counts, coloured by the share of their row; of many classes the pairs that are worst."""
    if not isinstance(quality, Quality):
        return None
    counts = quality.confusion
    told: dict[str, Any] = {}
    if len(classes) <= CLASSES_SHOWN:
        headings = ("true \\ predicted", *classes)
        told["matrix"] = _heat(headings, classes, counts, shares(counts), ",d")
    if len(classes) > min(CLASSES_SHOWN, CLASSES_ON_A_PHONE):
        worst = most_confused(counts, PAIRS_SHOWN)
        told["pairs"] = [(classes[i], classes[j], f"{nodes:,}") for i, j, nodes in worst]
    return told


def _levels(findings: Findings) -> list[dict[str, Any]]:
    """What each hop and head has learned, coloured by the share of the largest."""
    found = (  # the powers begin with hop 1
        ("Hop weights alpha", 0, findings.hop_weights),
        ("Gates over heads", 0, findings.gates),
        ("Powers of denominators beta: 1 is a mean, 0 a sum", 1, findings.powers),
    )
    tables = []
    for title, first, values in found:
        if values is not None and len(values):
            heads = [f"head {head}" for head in range(1, values.shape[1] + 1)]
            headings = ("hop", *(heads if heads[1:] else ["all heads"]))
            sizes = np.abs(values) / (np.abs(values).max() or 1.0)
            hops = range(first, first + len(values))
            table = _heat(headings, hops, values, sizes, ".3f")
            tables.append({**table, "title": title})
    return tables


# ----------------------------------------------------------------------------------------- charts


def _curves(findings: Findings) -> dict[str, Markup]:
    epochs, best = findings.run.curves, findings.run.result.best_epoch

    def drawn(label: str, scale: float, **colors: str) -> Markup:
        lines = [
            Line(name, color, [(epoch.epoch, scale * getattr(epoch, name)) for epoch in epochs])
            for name, color in colors.items()
        ]
        x = (min(epochs[0].epoch, 1), max(epochs[-1].epoch, 2))
        y = spread([value for line in lines for _, value in line.points])
        return chart(label, lines, x, y, "epoch", mark=best)

    scale, colors = findings.run.task.metric.scale, {n: f"--{n}" for n in ("train", "val", "test")}
    return {
        "loss": drawn("training loss by epoch", 1, loss="--train"),
        "scores": drawn("scores by epoch", scale, **colors),
    }


def _scatter(findings: Findings) -> Markup | None:
    """Predicted against true numbers of test nodes, on the scale that was learnt."""
    run = findings.run
    if not isinstance(run.answers, OfNumbers):
        return None
    nodes = np.flatnonzero(run.split.test.numpy())
    some = nodes[:: max(1, math.ceil(len(nodes) / DOTS))]
    truth = run.target[some]
    given = truth + run.answers.errors[some]
    across = spread([*truth, *given])
    points = [(float(x), float(y)) for x, y in zip(truth, given, strict=True)]
    dots = Line("test nodes", "--test", points, dots=True, joined=False)
    title = f"true {'logarithm' if run.config.task.log_target else 'number'}"
    return chart("predicted against true number", [dots], across, across, title, diagonal=True)


def _rejection(run: SavedRun) -> Markup | None:
    """Accuracy of the test nodes that are answered, by the share of those that are not."""
    if not isinstance(run.answers, OfClasses) or run.task.unit == "pair":
        return None
    found = (each for _, each in rejections(run.answers, run.split))
    points = [(100 - 100 * each.share, 100 * each.right) for each in found if each.share > 0]
    line = Line("test nodes", "--test", points, dots=True)
    across = (0, max(100, *(x for x, _ in points)))
    up = (min(y for _, y in points), 100)
    label = "accuracy of the answered by the share of the rejected"
    return chart(label, [line], across, spread(up), "rejected (%)")


def _reliability(findings: Findings) -> Markup:
    most = max(b.nodes for bins in findings.bins for b in bins)
    lines = [
        Line(
            name,
            f"--{name}",
            [(100 * b.confidence, 100 * b.accuracy) for b in bins],
            dots=True,
            sizes=[b.nodes / most for b in bins],
        )
        for name, bins in zip(("before", "after"), findings.bins, strict=True)
    ]
    label = "accuracy by confidence, before and after calibration"
    return chart(label, lines, (0, 100), (0, 100), "confidence (%)", diagonal=True)
