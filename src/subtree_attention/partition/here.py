"""The part of a graph that a model is being run on.

Dropout and batch norm know rows, not whose they are: while a model runs on a part, they find here
which nodes these are and who has the others.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .graph import PartGraph


class _Here(threading.local):
    """In this thread."""

    part: PartGraph | None = None


HERE = _Here()


@contextmanager
def running_on(part: PartGraph) -> Iterator[None]:
    """Around a model that runs on this part."""
    before, HERE.part = HERE.part, part
    try:
        yield
    finally:
        HERE.part = before
