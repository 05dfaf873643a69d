"""What references reach beside a run: scores that are kept with it and shown."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from .. import _check

if TYPE_CHECKING:
    from ..tasks.metrics import Metric


@dataclass(frozen=True)
class Reference:
    """A simple model on the split of a run, and its scores in the metric of the task.

    Attributes:
        name: what the settings and files call it.
        words: what people call it.
        val, test: scores of validation and test units.
        seconds: how long it took.
        note: what else is to be said of it, if anything.
        ended: whether its fit came to its end. One that the time limit stopped is another on a
            busier machine: only one that ended may be stood on.
    """

    name: str
    words: str
    val: float
    test: float
    seconds: float
    note: str = ""
    ended: bool = True


@dataclass(frozen=True)
class Comparison:
    """All references of a split, the cheap ones first; and those left out, each with a reason."""

    references: list[Reference]
    left_out: dict[str, str] = field(default_factory=dict)

    def best(
        self, metric: Metric, able: Callable[[Reference], bool] = lambda one: True
    ) -> Reference | None:
        """The one with the best validation score, of those that are able; None if there is none."""
        rated = filter(able, self.references)
        return max(rated, key=lambda one: metric.sign * one.val, default=None)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Any) -> Comparison:
        """The inverse of `to_dict`; what does not fit is a `ValueError`."""
        if not isinstance(content, dict) or not isinstance(content.get("references"), list):
            raise ValueError("it must be a table with a list of references")
        left_out = content.get("left_out", {})
        if not isinstance(left_out, dict) or not all(
            isinstance(text, str) for pair in left_out.items() for text in pair
        ):
            raise ValueError("left_out must say a reason for each name")
        return cls([_reference(one) for one in content["references"]], left_out)


def _reference(content: Any) -> Reference:
    found = content if isinstance(content, dict) else {}
    values: dict[str, Any] = {}
    for about in fields(Reference):
        value = found.get(about.name, None if about.default is MISSING else about.default)
        if about.type == "str":
            values[about.name] = _check.kind(about.name, value, str, "a text")
        elif about.type == "bool":
            values[about.name] = _check.flag(about.name, value)
        else:
            values[about.name] = _check.number(about.name, value, -math.inf)
    return Reference(**values)
