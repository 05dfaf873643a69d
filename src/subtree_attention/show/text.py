"""Numbers and texts as people read them, on a terminal and in a report alike."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..tasks.calibration import Intervals


def percent(share: float | None, digits: int = 2) -> str:
    """A share in per cent, without its unit."""
    return "-" if share is None or math.isnan(share) else f"{100 * share:.{digits}f}"


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


def signed(value: float) -> str:
    """What is added or taken away."""
    return f"{value:+.3f}"


def counted(number: int, word: str = "node") -> str:
    """1 node, 2,000 nodes."""
    return f"{number:,} {word}" + "s" * (number != 1)


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
