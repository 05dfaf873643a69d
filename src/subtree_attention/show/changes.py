"""Changes of a what-if as texts: on the command line, in addresses and on chips.

node:ID              a node is left out; its id alone says the same
edge:ID>ID           an edge is cut
word:COLUMN:WORD     a word, tag or category that the root has is left out
column:NAME=VALUE    another value of a column of the root; none: it is missing
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .. import _check
from ..datasets import Dataset
from ..datasets.inputs import Inputs
from ..datasets.joining import numbers_of
from ..runs import SavedRun

KINDS = ("node", "edge", "word", "column")


def parse(run: SavedRun, texts: Iterable[str]) -> dict[str, Any]:
    """What `SavedRun.what_if` takes, by name, of changes as texts.

    Ids and names may hold the signs between them: what is there decides.
    """
    made: dict[str, Any] = {"without": [], "cut": [], "values": {}, "words": []}
    known = numbers_of(run.dataset)
    for text in texts:
        kind, _, rest = _check.kind("a change", text, str, "a text").partition(":")
        if text in known or kind not in KINDS:
            made["without"].append(text)
        elif kind == "node":
            made["without"].append(rest)
        elif kind == "edge":
            ends = [pair for pair in _splits(rest, ">") if pair[0] in known and pair[1] in known]
            made["cut"].append(
                ends[0] if ends else _first(rest, ">", "is no edge: write edge:ID>ID")
            )
        elif kind == "word":
            made["words"].append(
                _named(run.dataset, rest, ":", "names no word: write word:COLUMN:WORD")
            )
        else:
            name, value = _named(run.dataset, rest, "=", f"sets no value: write {rest}=VALUE")
            made["values"][name] = value
    return made


def _splits(text: str, sign: str) -> Iterator[tuple[str, str]]:
    """All ways to take a text apart at a sign."""
    for place in (at for at, here in enumerate(text) if here == sign):
        yield text[:place], text[place + 1 :]


def _first(text: str, sign: str, wrong: str) -> tuple[str, str]:
    pair = next(_splits(text, sign), None)
    if pair is None:
        raise ValueError(f"'{text}' {wrong}")
    return pair


def _named(dataset: Dataset, text: str, sign: str, wrong: str) -> tuple[str, str]:
    """A column and the rest; the longest name that there is."""
    names = {each.name for each in Inputs(dataset)}
    found = [pair for pair in _splits(text, sign) if pair[0] in names]
    return found[-1] if found else _first(text, sign, wrong)
