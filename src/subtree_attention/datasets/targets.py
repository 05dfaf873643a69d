"""What is to be learnt of nodes or graphs: a class, labels or a number of each.

class    int64 [U], -1 where it is not known
labels   float [U, C], 1 for a label that a unit has, 0 for one that it has not, NaN where that
         is not known
number   float [U], NaN where it is not known
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

KINDS = {"class": "a class", "labels": "labels", "number": "a number"}
"""Of targets, and what each unit has then."""


def kind_of(y: Tensor) -> str:
    """Which of `KINDS` a target is, by its type and shape."""
    if y.dim() == 2:
        return "labels"
    return "number" if y.is_floating_point() else "class"


def unknown(kind: str, units: int, labels: int) -> Tensor:
    """A target of which nothing is known."""
    if kind == "class":
        return torch.full((units,), -1)
    shape = (units, labels) if kind == "labels" else (units,)
    return torch.full(shape, torch.nan, dtype=torch.float32 if kind == "labels" else torch.float64)


def only(y: Tensor, mask: Tensor) -> Tensor:
    """A target of which nothing is known but what is in a mask [U]."""
    nothing = unknown(kind_of(y), len(y), y.size(-1))
    mask = mask if y.dim() == 1 else mask[:, None]
    return torch.where(mask, y, nothing.to(y))


def known(y: Tensor) -> Tensor:
    """Units whose target is known: a mask [U]."""
    if not y.is_floating_point():
        return y >= 0
    return ~y.isnan() if y.dim() == 1 else (~y.isnan()).any(1)


def groups(y: Tensor) -> Tensor:
    """What a random split keeps together in proportion: classes; else all that is known, [U]."""
    return torch.where(known(y), 0, -1) if y.is_floating_point() else y


def value(y: Tensor, unit: int, names: Sequence[str]) -> str | list[str] | float | None:
    """What is known of a unit: the name of its class, those of its labels, or its number."""
    if not bool(known(y[unit : unit + 1])):
        return None
    match kind_of(y):
        case "class":
            return names[int(y[unit])]
        case "labels":
            return [names[number] for number in (y[unit] == 1).nonzero().flatten().tolist()]
        case _:
            return float(y[unit])


def in_words(value: Any) -> str:
    """A class, labels or a number as a text."""
    if isinstance(value, list):
        return ", ".join(value) or "none"
    if isinstance(value, str):
        return value
    return f"{value:.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:.6g}"


def requirements(
    y: Tensor, units: int, unit: str, names: Sequence[str], own: bool
) -> Iterator[tuple[bool, str]]:
    """Whether a target fits, and in words what it must be: see `Dataset`."""
    count = len(names)
    if y.is_floating_point() and own:
        yield from _floating(y, units, unit, count)
    else:
        whole = y.shape == (units,) and y.dtype == torch.int64
        yield whole, f"y must be a whole number for each of {units} {unit}s"
        least, others = (-1, "-1 where it is not known") if own else (0, "no other")
        inside = not y.numel() or (int(y.min()) >= least and int(y.max()) < count)
        yield inside, f"y must be one of {count} classes from 0, and {others}"
        yield count != 1, "y holds 1 class: two are needed"
    yield len(set(names)) == count, "the names of the classes must be different"


def _floating(y: Tensor, units: int, unit: str, count: int) -> Iterator[tuple[bool, str]]:
    yield y.dtype in (torch.float32, torch.float64), f"y must be float32 or float64, got {y.dtype}"
    if kind_of(y) == "number":
        yield y.shape == (units,), f"y must be a number for each of {units} {unit}s"
        yield not bool(y.isinf().any()), "y must be finite, and NaN where it is not known"
        yield not count, "y holds numbers, which have no classes"
    else:
        got = f"{list(y.shape)} and {count} names"
        yield (
            y.shape == (units, count),
            f"y must be [{units}, labels], each with a name, got {got}",
        )
        yield count > 0, "y has no label"
        inside = (y == 0) | (y == 1) | y.isnan()
        yield bool(inside.all()), "y of labels must be 0 or 1, and NaN where it is not known"
