"""Tables on a terminal; and what was done with those of the user's, as a person reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from ..datasets.tables.schema import TableNotes
from .text import plain, visible

SHOWN = 40
"""Columns that are listed; the rest is counted."""


def numbers(*headings: str, texts: Sequence[str] = (), no_wrap: bool = False, **look: Any) -> Table:
    """A table of numbers, at the right of their columns; those of these texts are at the left."""
    table = Table(**look)
    for heading in headings:
        number = heading not in texts
        table.add_column(heading, justify="right" if number else "left", no_wrap=no_wrap and number)
    return table


def show(notes: TableNotes, console: Console) -> None:
    """Print a line for each column, and the notes."""
    headings, texts = (
        ("column", "kind", "width", "missing", "unseen", "note"),
        ("column", "kind", "note"),
    )
    table = numbers(*headings, texts=texts, title="columns of the nodes")
    for line in notes.columns[:SHOWN]:
        sizes = (f"{size:,}" for size in (line.width, line.missing, line.unseen))
        table.add_row(plain(line.name), line.kind, *sizes, plain(line.note))
    console.print(table)
    if len(notes.columns) > SHOWN:
        console.print(f"and {len(notes.columns) - SHOWN:,} columns more")
    for note in notes.words:
        console.print(visible(note), soft_wrap=True, markup=False)
