"""Runs of several folders side by side, on the same test nodes: `sta report A B`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from rich.console import Console
from scipy.stats import t as student

from ...config import Config
from ...runs import SavedRun, open_all
from ...runs.saved import score, share_graph
from ...tasks.answers import OfNames, OfNumbers
from ...tasks.metrics import Metric
from ...tasks.quality import AnyQuality, LabelQuality, Quality
from ..explanation import brief
from ..tables import numbers
from ..text import counted, listed, percent, plain, visible
from .page import parted, rendered

COMPARISON = "subtree-attention: comparison"
"""The mark of a page that compares."""
LEVEL = 0.95
"""Of the intervals."""
LISTED = 20
"""Units that are listed on either side."""
SURE_OF = 1.96
"""Deviations of a normal number that hold 95 %."""


@dataclass(frozen=True)
class Difference:
    """How much better the other is: the mean over pairs of runs, and between what it lies with 95 %
    certainty, if that can be said.

    Attributes:
        mean: in the metric's own scale; above 0 where the other is better.
        low, high: None of a single pair whose units are not simply right or wrong.
        over: what it varies over, in words.
    """

    mean: float
    low: float | None
    high: float | None
    over: str

    @property
    def none(self) -> bool:
        """Whether every pair has the same score."""
        return self.mean == self.low == self.high == 0

    @property
    def verdict(self) -> str:
        if self.low is None or self.high is None:
            return "one pair of runs does not say whether that is chance"
        if self.low > 0 or self.high < 0:
            return "more than chance"
        return "it may be chance"


@dataclass(frozen=True)
class Pairing:
    """One folder against the first.

    Attributes:
        names: of both folders.
        pairs: runs with the same test units, of the first and of the other.
        left: runs that have no partner, in words.
        difference: of the test scores.
        settings: (name, of the first, of the other) that are not alike.
        classes: (class or label, test units, score of the first, of the other) over all pairs.
        shown: the pair whose units are listed: that with the best validation scores.
        only: units that only the first, and that only the other gets right, or is nearer to; how
            many there are, and the first of them, see `_unit`.
    """

    names: tuple[str, str]
    pairs: list[tuple[SavedRun, SavedRun]]
    left: list[str]
    difference: Difference
    settings: list[tuple[str, Any, Any]]
    classes: list[tuple[str, int, float, float]]
    shown: tuple[SavedRun, SavedRun]
    only: list[tuple[int, list[dict[str, Any]]]]


@dataclass(frozen=True)
class Comparison:
    """All of a page: the runs of each folder by its name, the others paired with the first."""

    metric: Metric
    sides: dict[str, list[SavedRun]]
    pairings: list[Pairing]

    @property
    def first(self) -> SavedRun:
        return next(iter(self.sides.values()))[0]


def compare(folders: Sequence[Path], *, device: str = "auto") -> Comparison:
    """Hold the runs of several folders against those of the first, split by split."""
    if any(one.resolve() == other.resolve() for one, other in combinations(folders, 2)):
        raise ValueError("a folder was named twice: a run is compared with others")
    sides = {str(folder): open_all(folder, device=device) for folder in folders}
    for runs in sides.values():
        share_graph(runs)
    (name, first), *others = sides.items()
    for other, runs in others:
        _check_alike(name, first[0], other, runs[0])
    pairings = [_pairing((name, other), first, runs) for other, runs in others]
    return Comparison(first[0].task.metric, sides, pairings)


def _check_alike(name: str, first: SavedRun, other: str, run: SavedRun) -> None:
    """Refuse what has no units in common, or no score."""
    if "pair" in (first.task.unit, run.task.unit):
        raise ValueError(
            "runs on links cannot be compared side by side: 'sta report RUN' shows each of them"
        )
    kinds = [(one.task.kind, one.task.unit) for one in (first, run)]
    if kinds[0] != kinds[1]:
        words = [f"the {kind} of {unit}s" for kind, unit in kinds]
        raise ValueError(f"{name} has learnt {words[0]}, and {other} {words[1]}: not to compare")
    reason = ""
    if first.unit_ids != run.unit_ids:
        reason = f"they have other {first.task.unit}s"
    elif list(first.task.names(first.dataset)) != list(run.task.names(run.dataset)):
        reason = "they have other classes"
    elif not np.array_equal(first.target, run.target, equal_nan=first.target.dtype.kind == "f"):
        reason = "what is to be learnt is not the same"
    if reason:
        raise ValueError(
            f"{name} and {other} are not on the same graph: {reason}. Only runs on the same "
            f"{first.task.unit}s can be compared"
        )
    if first.task.metric.name != run.task.metric.name:
        titles = first.task.metric.title, run.task.metric.title
        raise ValueError(
            f"{name} is scored by {titles[0]}, and {other} by {titles[1]}: train one of them again "
            "with the --metric of the other"
        )


def _pairing(names: tuple[str, str], first: list[SavedRun], runs: list[SavedRun]) -> Pairing:
    pairs, left = [], list(runs)
    for one in first:
        found = next((run for run in left if torch.equal(one.split.test, run.split.test)), None)
        if found is not None:
            pairs.append((one, found))
            left.remove(found)
    if not pairs:
        unit = first[0].task.unit
        raise ValueError(
            f"no run of {names[0]} has the same test {unit}s as one of {names[1]}: train both with "
            "the same --split and --seed"
        )
    alone = [one for one in first if not any(one is paired for paired, _ in pairs)]
    unpaired = [
        f"{listed([f'run {run.result.run}' for run in some])} of {name} "
        f"{'has' if len(some) == 1 else 'have'} no partner with the same test split"
        for name, some in zip(names, (alone, left), strict=True)
        if some
    ]
    sign = first[0].task.metric.sign
    shown = max(pairs, key=lambda pair: sign * (pair[0].result.val + pair[1].result.val))
    return Pairing(
        names=names,
        pairs=pairs,
        left=unpaired,
        difference=_difference(pairs),
        settings=_settings(first, runs),
        classes=_classes(pairs),
        shown=shown,
        only=_only(*shown),
    )


def _difference(pairs: list[tuple[SavedRun, SavedRun]]) -> Difference:
    """The mean of the differences of test scores, with its interval: by Student's t over runs, or
    of one pair by its units, where the score is their share that is right."""
    one, other = pairs[0]
    metric = one.task.metric
    gains = [metric.sign * (b.result.test - a.result.test) for a, b in pairs]
    if len(gains) > 1:
        reach = float(student.ppf((1 + LEVEL) / 2, len(gains) - 1))
        reach *= stdev(gains) / math.sqrt(len(gains))
        return Difference(mean(gains), *_around(mean(gains), reach), f"{len(gains)} pairs of runs")
    if metric.name != "accuracy" or not isinstance(one.answers, OfNames):
        return Difference(gains[0], None, None, "1 pair of runs")
    test = one.split.test.numpy()
    assert isinstance(other.answers, OfNames)
    apart = other.answers.right[test].astype(float) - one.answers.right[test]
    reach = SURE_OF * float(apart.std()) / math.sqrt(len(apart))
    over = counted(len(apart), f"test {one.task.unit}")
    return Difference(gains[0], *_around(gains[0], reach), over)


def _around(middle: float, reach: float) -> tuple[float, float]:
    return middle - reach, middle + reach


def _settings(runs: list[SavedRun], others: list[SavedRun]) -> list[tuple[str, Any, Any]]:
    """What is not alike, from the configuration to the graph."""
    first, other = runs[0], others[0]

    def told(config: Config) -> dict[str, Any]:
        return {"model": config.model.name, "task": config.task.name, **config.flat()}

    ours, theirs = told(first.config), told(other.config)
    found = [
        (name, _tried(name, ours.get(name), runs), _tried(name, theirs.get(name), others))
        for name in dict.fromkeys([*ours, *theirs])
        if ours.get(name) != theirs.get(name) and name not in ("runs", "graph")
    ]
    for name in ("num_edges", "num_features"):
        mine, its = getattr(first.dataset, name), getattr(other.dataset, name)
        if mine != its:
            found.append((name.removeprefix("num_"), f"{mine:,}", f"{its:,}"))
    return found


def _tried(name: str, value: Any, runs: list[SavedRun]) -> Any:
    """A setting; of correct and smooth also whether it came to nothing."""
    tried = name == "correct" and value and not any(run.corrects for run in runs)
    return "tried, not kept" if tried else value


def _classes(pairs: list[tuple[SavedRun, SavedRun]]) -> list[tuple[str, int, float, float]]:
    """How well each class or label is told, over all pairs: the share of a class that is right, the
    F1 of a label; those that differ most first."""
    names = list(pairs[0][0].task.names(pairs[0][0].dataset))
    (units, ours), (_, theirs) = (
        _each_class([score(run).quality for run in runs]) for runs in zip(*pairs, strict=True)
    )
    rows = [row for row in zip(names, units, ours, theirs, strict=False) if row[1]]
    return sorted(rows, key=lambda row: -abs(row[3] - row[2]))


def _each_class(found: list[AnyQuality]) -> tuple[list[int], list[float]]:
    """Units and the score of each class or label over several runs; of numbers there are none."""
    classes = [one.confusion for one in found if isinstance(one, Quality)]
    if classes:
        counts = np.sum(classes, axis=0)
        sizes = counts.sum(1)
        return sizes.tolist(), (counts.diagonal() / np.maximum(sizes, 1)).tolist()
    labels = [one.labels for one in found if isinstance(one, LabelQuality)]
    each = list(zip(*labels, strict=True))
    return [sum(one.units for one in some) for some in each], [
        mean(one.f1 for one in some) for some in each
    ]


# -------------------------------------------------------------------------- units that are apart


def _only(one: SavedRun, other: SavedRun) -> list[tuple[int, list[dict[str, Any]]]]:
    """Test units that only one side gets right, those first of which the two are surest in their
    ways; or numbers to which one side is nearer, by how much."""
    test, sides = one.split.test.numpy(), (one.answers, other.answers)
    if isinstance(sides[0], OfNumbers) and isinstance(sides[1], OfNumbers):
        ahead = np.abs(sides[1].errors) - np.abs(sides[0].errors)
        found = [np.flatnonzero(test & (sign * ahead > 0)) for sign in (1, -1)]
        weights = np.abs(ahead)
    else:
        assert isinstance(sides[0], OfNames)
        assert isinstance(sides[1], OfNames)
        right = sides[0].right, sides[1].right
        found = [np.flatnonzero(test & right[a] & ~right[1 - a]) for a in (0, 1)]
        weights = sides[0].sureness + sides[1].sureness
    ordered = [some[np.argsort(-weights[some], kind="stable")] for some in found]
    return [
        (len(some), [_unit(one, other, int(unit)) for unit in some[:LISTED]]) for some in ordered
    ]


def _unit(one: SavedRun, other: SavedRun, unit: int) -> dict[str, Any]:
    """A unit, what both sides say of it and how probable they find that."""
    second = brief(other, unit)
    both = ("predicted", "probability")
    return {**brief(one, unit), **{f"other_{name}": second[name] for name in both}}


# --------------------------------------------------------------------------------- how it is told


def gain(metric: Metric, value: float | None) -> str:
    """A difference of scores, signed, as better (+) or worse (-)."""
    return "-" if value is None else format(metric.scale * value, f"+{metric.form}")


def summary(comparison: Comparison, pairing: Pairing) -> str:
    """Who is better, by how much, and how sure that is."""
    metric, found = comparison.metric, pairing.difference
    way = "better" if found.mean > 0 else "worse"
    by = format(abs(metric.scale * found.mean), metric.form)
    if float(by) == 0:
        lead = f"{pairing.names[1]} is as good as {pairing.names[0]}"
        if found.none:
            return f"{lead}: test {metric.title} is the same, over {found.over}"
    else:
        unit = " points" if metric.unit == "%" else f" {metric.unit}" * bool(metric.unit)
        lead = f"{pairing.names[1]} is {way} than {pairing.names[0]} by {by}{unit}"
    if found.low is None:
        return f"{lead} of test {metric.title}; {found.verdict}"
    ends = f"{gain(metric, found.low)} to {gain(metric, found.high)}"
    return (
        f"{lead} of test {metric.title} (95 % interval {ends}, over {found.over}): {found.verdict}"
    )


def render_comparison(comparison: Comparison) -> str:
    """The page."""
    metric, unit = comparison.metric, comparison.first.task.unit
    rows = []
    for name, runs in comparison.sides.items():
        tests = [run.result.test for run in runs]
        std = metric.show(stdev(tests)) if tests[1:] else "-"
        title, score = runs[0].config.model.title, metric.show(mean(tests))
        rows.append((parted(name), title, len(runs), score, std))
    kind = comparison.first.task.kind
    return rendered(
        "compare.html",
        COMPARISON,
        graph=comparison.first.config.data.graph,
        label=metric.label,
        unit=unit,
        kind=kind,
        scores=rows,
        pairings=[
            {
                "told": pairing,
                "summary": summary(comparison, pairing),
                "pairs": [_pair(metric, *pair) for pair in pairing.pairs],
                "classes": [
                    (name, f"{units:,}", percent(a, 1), percent(b, 1), f"{100 * (b - a):+.1f}")
                    for name, units, a, b in pairing.classes
                ],
                "runs": tuple(run.result.run for run in pairing.shown),
            }
            for pairing in comparison.pairings
        ],
    )


def _pair(metric: Metric, one: SavedRun, other: SavedRun) -> tuple[Any, ...]:
    """A row: both runs, their test scores and how much better the other is."""
    tests = one.result.test, other.result.test
    better = gain(metric, metric.sign * (tests[1] - tests[0]))
    return one.result.run, other.result.run, *map(metric.show, tests), better


def show_comparison(comparison: Comparison, console: Console) -> None:
    """The short of it, on a terminal."""
    unit = comparison.first.task.unit
    for pairing in comparison.pairings:
        console.print(visible(summary(comparison, pairing)), soft_wrap=True, markup=False)
        for words in pairing.left:
            console.print(visible(words), soft_wrap=True, markup=False)
        if pairing.settings:
            names = ("setting", *pairing.names)
            rows = [tuple(plain(_said(cell)) for cell in row) for row in pairing.settings]
            console.print(numbers([plain(name) for name in names], rows, texts=names, box=None))
        nearer = "is nearer to" if comparison.first.task.kind == "number" else "alone gets right"
        runs = " and ".join(str(run.result.run) for run in pairing.shown)
        counts = [
            f"{name} {nearer} {counted(count, f'test {unit}')}"
            for name, (count, _) in zip(pairing.names, pairing.only, strict=True)
        ]
        console.print(visible(f"{listed(counts)} (runs {runs})"), soft_wrap=True, markup=False)


def _said(value: Any) -> str:
    return "-" if value is None else str(value)
