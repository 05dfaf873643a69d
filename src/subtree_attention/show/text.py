"""Numbers and texts as people read them, on a terminal and in a report alike."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..runs import SavedRun
    from ..tasks.calibration import Calibration, Intervals


def percent(share: float | None, digits: int = 2) -> str:
    """A share in per cent, without its unit."""
    return "-" if share is None or math.isnan(share) else f"{100 * share:.{digits}f}"


def calibrated_by(calibration: Calibration, unit: str = "node") -> str:
    """What makes probabilities as sure as they are right, and where it was found."""
    heat = f"temperature {calibration.temperature:.3f}"
    if calibration.weighted:
        return (
            f"{heat} and without the class weights, both found on the validation {unit}s: a "
            "probability is that among units as they are, an answer the class that the weights "
            "decide for"
        )
    return f"{heat}, which was found on the validation {unit}s"


def intervals_in_words(intervals: Intervals, unit: str = "node") -> str:
    """How far an interval reaches, and why."""
    width, level = intervals.half_width, f"{100 * intervals.level:.0f} %"
    reach = f"{width:.4g} to either side of a prediction"
    if intervals.of_logarithm:
        factor = math.exp(min(width, 700))
        reach = f"from 1/{factor:.4g} to {factor:.4g} times a prediction"
    if not intervals.promises:
        few = counted(intervals.val.nodes, f"validation {unit}")
        return f"intervals reach {reach}, as far as {few} are off: too few to promise {level}"
    return f"intervals reach {reach}, where the numbers of {level} of the validation {unit}s are"


def wilson(share: float, count: int) -> tuple[float, float]:
    """Where a share of so many lies with 95 % certainty, as Wilson has it."""
    square = 1.96**2 / count
    middle, reach = share + square / 2, math.sqrt(square * (share * (1 - share) + square / 4))
    low, high = ((middle + sign * reach) / (1 + square) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)


def signed(value: float) -> str:
    """What is added or taken away."""
    return f"{value:+.3f}"


def counted(number: int, word: str = "node") -> str:
    """1 node, 2,000 nodes."""
    return f"{number:,} {word}" + "s" * (number != 1)


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def short(text: str, most: int = 12) -> str:
    """A name for a narrow column; it stands whole elsewhere."""
    return text if len(text) <= most else text[: most - 1] + "…"


def visible(text: str) -> str:
    """Text without what cannot be seen: a terminal would obey it, or a line be turned round."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def plain(text: str) -> str:
    """A user's text for a terminal: what is in it is never markup."""
    from rich.markup import escape

    return escape(visible(text))


def labels_in_words(runs: list[SavedRun]) -> Iterator[str]:
    """What labels of training nodes do besides being learnt from, if anything."""
    show, corrected = runs[0].task.metric.show, [run for run in runs if run.corrects]
    for run in corrected:
        before = next(epoch.val for epoch in run.curves if epoch.epoch == run.result.best_epoch)
        yield (
            f"run {run.result.run} is corrected by labels of training nodes (correct and smooth): "
            f"validation {show(before)} without, {show(run.result.val)} with it"
        )
    if corrected or getattr(runs[0].config.task, "show_labels", 0.0) > 0:
        yield "training nodes see their own labels here, so their score says little"
