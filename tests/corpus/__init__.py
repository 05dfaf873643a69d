"""Bad inputs, each with the answer that is expected: what somebody got wrong once stays here.

A line of `calls.txt`, `tables.txt`, `bundles.txt` and `commands.txt` is one of them:

    what is done -> the answer: a piece of its message

The answer to a call, to tables and to a bundle is the type of the exception, that to a command its
exit code. `given.py` has the good values that expressions are made of.
"""

from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    """A bad input: what is done, the answer and a piece of the message."""

    done: str
    answer: str
    piece: str


def entries(name: str) -> list[Entry]:
    """All lines of a file; those that begin with # are headings."""
    lines = Path(__file__).with_name(f"{name}.txt").read_text(encoding="utf-8").splitlines()
    cut = (line.partition(" -> ") for line in lines if line and not line.startswith("#"))
    return [Entry(done, *_answer(expected)) for done, _, expected in cut]


def _answer(expected: str) -> tuple[str, str]:
    answer, _, piece = expected.partition(": ")
    return answer, piece
