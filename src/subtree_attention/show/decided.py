"""Thresholds, rejections and sets of classes: what they do, as a person reads it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console

from ..runs import SavedRun
from ..tasks import deciding
from ..tasks.answers import OfClasses
from ..tasks.deciding import Answered, Decided, Flagged, Held
from .tables import numbers
from .text import percent, visible

REJECTED = (0.0, 0.1, 0.2, 0.3, 0.5)
"""Shares of rejected units that are listed."""
NAMED = 5
"""Classes that are named in a sentence; of more their number is said."""

FLAGGED = ("have it", "given", "precision (%)", "recall (%)")
ANSWERED = ("answered (%)", "right of these (%)", "right of all (%)")
PARTS, SHORT = ("val.", "test"), ("given", "prec.", "recall")
HELD = ("held (%)", "worst class (%)", "classes in a set", "one class only (%)")


def row_of(does: Flagged | Answered | Held) -> tuple[Any, ...]:
    """Under the headings above."""
    if isinstance(does, Flagged):
        return does.have, does.given, percent(does.precision), percent(does.recall)
    if isinstance(does, Answered):
        return percent(does.share), percent(does.right), percent(does.all_right)
    size = f"{does.size:.2f}"
    return percent(does.coverage), percent(does.worst_coverage), size, percent(does.single)


def in_words(decided: Decided, unit: str = "node") -> str:
    """What was asked, what was found on the validation units, and what that promises."""
    asked = decided.asked
    if asked.threshold:
        what = f"class '{decided.cls}'" if decided.cls else "a label"
        return f"{what} is the answer where its probability is above {_share(asked.threshold)}"
    if asked.reject:
        return (
            f"no answer where the model is less sure than {_share(decided.least)}, which is so for "
            f"{_share(asked.reject)} of the validation {unit}s"
        )
    assert asked.coverage is not None
    level = _share(asked.coverage)
    if not decided.promises:
        return (
            f"sets go as far as the validation {unit}s need: these are too few to promise {level}"
        )
    whom = f"the {unit}s of each class"
    if len(decided.small) > 1:
        listed = ", ".join(f"'{name}'" for name in decided.small)
        named = listed if len(decided.small) <= NAMED else f"{len(decided.small):,} classes"
        whom += f" ({named}, of which validation has few, count as one)"
    if decided.together:
        whom = f"the {unit}s of all classes together, not of each class"
    return (
        f"sets hold the true class for {level} of {whom}, as far as {unit}s are like the "
        f"validation {unit}s; these have also chosen the epoch and the temperature, so expect "
        "slightly less"
    )


def _share(value: float) -> str:
    return f"{100 * value:.3g} %"


def show_decided(decided: Decided, console: Console, unit: str = "node") -> None:
    """What was asked for does on the validation and on the test units."""
    console.print(visible(in_words(decided, unit)), markup=False)
    headings = FLAGGED if isinstance(decided.val, Flagged) else ANSWERED
    headings = HELD if isinstance(decided.val, Held) else headings
    rows = [
        (name, part.units, *row_of(part))
        for name, part in (("validation", decided.val), ("test", decided.test))
    ]
    console.print(_table(("", f"{unit}s", *headings), rows))
    if isinstance(decided.test, Held) and decided.test.worst:
        worst = f"class '{visible(decided.test.worst)}'"
        console.print(f"of the test {unit}s, those of {worst} are held least", markup=False)


def choices(run: SavedRun) -> list[dict[str, Any]]:
    """What a person may choose besides the most probable class, as tables of the test units: each
    with its words, headings and rows."""
    answers, units = run.answers, f"{run.task.unit}s"
    parts = (run.split.val, run.split.test)
    if run.task.unit == "pair" or not all(bool(mask.any()) for mask in parts):
        return []
    if not isinstance(answers, OfClasses):
        return []
    tables = [
        {
            "option": "reject",
            "words": f"Without the test {units} that the model is least sure of (--reject)",
            "headings": ("asked for (%)", *ANSWERED[:2]),
            "rows": [
                (f"{100 * share:.0f}", *row_of(found)[:2])
                for share, found in deciding.rejections(answers, run.split, REJECTED)
            ],
        },
        {
            "option": "coverage",
            "words": f"How often sets hold the true class of the test {units} (--coverage)",
            "headings": ("asked for (%)", *HELD),
            "rows": [
                (f"{100 * level:.0f}", *row_of(found))
                for level, found in deciding.coverages(answers, run.split)
            ],
        },
    ]
    if len(answers.names) == 2:
        positive = run.found.get("positive", 1)
        found = deciding.thresholds(answers, positive, run.split)
        tables.append(
            {
                "option": "threshold",
                "words": f"Class '{answers.names[positive]}' above a probability (--threshold): "
                f"{units} that are given it, and precision and recall in percent",
                "headings": ("above (%)", *(f"{part} {n}" for part in PARTS for n in SHORT)),
                "rows": [
                    (f"{100 * value:.0f}", *row_of(val)[1:], *row_of(test)[1:])
                    for value, val, test in found
                ],
            }
        )
    return tables


def show_choices(run: SavedRun, console: Console) -> None:
    """The tables of `choices`."""
    for table in choices(run):
        console.print(visible(f"{table['words']}, run {run.result.run}"), markup=False)
        console.print(_table(table["headings"], table["rows"]))


def _table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> Any:
    return numbers(headings, rows, texts=headings[:1], box=SIMPLE)
