"""What references reach beside a model, as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import NamedTuple

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from ..references import Comparison
from ..tasks.metrics import Metric
from .tables import numbers
from .text import counted

OURS = "this model"


def table(comparison: Comparison, metric: Metric, ours: tuple[float, float] | None = None) -> Table:
    """A line for each reference; and, if there are any, the scores of our model below them."""
    headings = ("reference", "validation", "test", "seconds", "")
    rows = [
        (one.words, metric.show(one.val), metric.show(one.test), f"{one.seconds:.1f}", one.note)
        for one in comparison.references
    ]
    if ours is not None:
        rows.append((OURS, metric.show(ours[0]), metric.show(ours[1]), "", ""))
    title = f"references on the split of run 0: {metric.label}"
    look = {"texts": (headings[0], ""), "title": title, "box": SIMPLE, "title_justify": "left"}
    return numbers(headings, rows, **look)  # type: ignore[arg-type]


def left_out(comparison: Comparison) -> Iterator[str]:
    """Who is not in the table, and why."""
    for words, why in comparison.left_out.items():
        yield f"{words} is left out: {why}"


def as_text(comparison: Comparison, metric: Metric) -> str:
    """The table for a log."""
    console = Console(file=StringIO(), width=120, highlight=False)
    show(comparison, metric, console)
    return console.file.getvalue().rstrip()  # type: ignore[attr-defined]


def show(
    comparison: Comparison,
    metric: Metric,
    console: Console,
    ours: tuple[float, float] | None = None,
    unit: str = "node",
) -> None:
    """The table, who is left out, and with our scores (validation, test) who is better."""
    console.print(table(comparison, metric, ours))
    for line in left_out(comparison):
        console.print(line, soft_wrap=True, markup=False)
    if ours is not None:
        console.print(verdict(comparison, metric, *ours, unit), soft_wrap=True, markup=False)


def verdict(
    comparison: Comparison, metric: Metric, val: float, test: float, unit: str = "node"
) -> str:
    """Who is ahead, our model or the best reference by validation scores, on either part."""
    best = comparison.best(metric)
    if best is None:
        return "no reference could be computed"
    level = sum(one.val == best.val for one in comparison.references) - 1
    others = f" and {counted(level, 'other')}" * (level > 0)
    theirs = _Side(best.words + others, best.words, best.val, best.test)
    ours = _Side(OURS, OURS, val, test)
    ahead, tested = metric.sign * (val - best.val), metric.sign * (test - best.test)
    where = f"on the same test {unit}s"
    if not ahead:
        numbers = f"{best.words} {metric.show(best.test)}, {OURS} {metric.show(test)}"
        both = f"{theirs.all} {theirs.verb} as good as {OURS} on validation ({metric.show(val)})"
        return f"{both}; {where}: {numbers}"
    first, second = (ours, theirs) if ahead > 0 else (theirs, ours)
    words = (
        f"{first.all} {first.verb} ahead of {second.all} on validation "
        f"({metric.show(first.val)} against {metric.show(second.val)})"
    )
    if not tested:
        return f"{words}, and {where} both have {metric.show(test)}"
    if tested * ahead > 0:
        also = f"and {where}" if not level else f"and {first.one} {where}"
        return f"{words}, {also} ({metric.show(first.test)} against {metric.show(second.test)})"
    numbers = f"({metric.show(second.test)} against {metric.show(first.test)})"
    return f"{words}, but {where} {second.one} {_verb(second.one)} ahead {numbers}"


class _Side(NamedTuple):
    """One of two who are compared: with all that are level with it, and alone; and its scores."""

    all: str
    one: str
    val: float
    test: float

    @property
    def verb(self) -> str:
        return _verb(self.all)


def _verb(words: str) -> str:
    return "are" if "trees" in words or " and " in words else "is"
