"""Checks of what a user passes in, and the words in which a refusal is put; without torch."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

MOST = 2**31 - 1
"""Of any count. Where no tensor proves how many there are, the lower ceilings below hold: in calls,
in configurations and in files alike, so that a number alone cannot ask for all memory."""
MOST_HOPS = 10_000
MOST_EIGENVECTORS = 1_000
MOST_RUNS = 10_000
MOST_SEED = 2**53 - 1  # JSON holds it exactly, whoever reads it


def known(what: str, name: Any, allowed: Iterable[str]) -> str:
    """Return `name` if it is one of `allowed`; otherwise a ValueError with a suggestion."""
    allowed = list(allowed)
    if not isinstance(name, str):
        raise TypeError(f"{what} must be one of {', '.join(allowed)}, got {said(name)}")
    if name not in allowed:
        close = get_close_matches(name.lower(), allowed, n=1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise ValueError(f"unknown {what} '{name}'.{hint} Known: {', '.join(allowed)}")
    return name


def said(value: Any) -> str:
    """A value as an error names it: in one short line, whatever it is."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # Python does not write integers of thousands of digits, for one
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:60]}... ({type(value).__name__})"


def integer(what: str, value: Any, least: int, most: int = MOST) -> int:
    """Return `value` if it is a whole number from `least` to `most`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{what} must be an integer, got {said(value)}")
    try:
        value = operator.index(value)  # numpy's integers too
    except (TypeError, ValueError, RuntimeError):  # an array or a tensor of something else
        raise TypeError(f"{what} must be an integer, got {said(value)}") from None
    if value < least:
        raise ValueError(f"{what} must be at least {least:,}, got {said(value)}")
    if value > most:
        raise ValueError(f"{what} must be at most {most:,}, got {said(value)}")
    return value


def finite(what: str, values: Tensor) -> None:
    """Refuse NaN and infinity. It looks at values, so it belongs where data enters only."""
    if values.is_floating_point() and not bool(values.isfinite().all()):
        bad = int((~values.isfinite()).sum())
        raise ValueError(f"{what} must be finite, but {bad} of {values.numel()} values are not")


def floating(what: str, values: Any) -> None:
    """Refuse whatever is not a tensor of floating-point numbers."""
    if not hasattr(values, "is_floating_point"):  # a tensor, without importing torch
        raise TypeError(f"{what} must be a torch.Tensor, got {type(values).__name__}")
    if not values.is_floating_point():
        raise TypeError(f"{what} must hold floating-point numbers, got {values.dtype}")


def shape(values: Tensor) -> str:
    """The shape of a tensor as people write it: [3, 4]."""
    return str(list(values.shape))


def number(what: str, value: Any, least: float = 0.0, below: float = math.inf) -> float:
    """Return `value` if it is a finite number of at least `least` and below `below`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{what} must be a number, got {said(value)}")
    try:
        number = float(value)
    except OverflowError:  # an integer that no float reaches
        number = math.inf
    if not least <= number < below:
        bounds = f"a finite number of at least {least:g}"
        if below < math.inf:
            bounds = f"at least {least:g} and below {below:g}"
        raise ValueError(f"{what} must be {bounds}, got {said(value)}")
    return number
