"""What was done with the tables, as a person reads it."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from ..datasets.tables.schema import TableNotes
from .text import plain, visible

SHOWN = 40
"""Columns that are listed; the rest is counted."""


def show(notes: TableNotes, console: Console) -> None:
    """Print a line for each column, and the notes."""
    table = Table(title="columns of the nodes")
    for heading in ("column", "kind", "width", "missing", "unseen", "note"):
        number = heading in ("width", "missing", "unseen")
        table.add_column(heading, justify="right" if number else "left")
    for line in notes.columns[:SHOWN]:
        numbers = (line.width, line.missing, line.unseen)
        table.add_row(plain(line.name), line.kind, *(f"{n:,}" for n in numbers), plain(line.note))
    console.print(table)
    if len(notes.columns) > SHOWN:
        console.print(f"and {len(notes.columns) - SHOWN:,} columns more")
    for note in notes.words:
        console.print(visible(note), soft_wrap=True, markup=False)
