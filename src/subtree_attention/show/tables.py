"""Tables on a terminal; and what was done with those of the user's, as a person reads it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from ..datasets.tables.schema import TableNotes
from .text import plain, visible

SHOWN = 40
"""Columns that are listed; the rest is counted."""


def numbers(
    headings: Sequence[str],
    rows: Iterable[Sequence[Any]] = (),
    *,
    texts: Sequence[str] = (),
    no_wrap: bool = False,
    **look: Any,
) -> Table:
    """A table of numbers, at the right of their columns; those of these texts are at the left."""
    table = Table(**look)
    for heading in headings:
        number = heading not in texts
        table.add_column(heading, justify="right" if number else "left", no_wrap=no_wrap and number)
    for row in rows:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    return table


def show(notes: TableNotes, console: Console) -> None:
    """Print a line for each column, the notes, and apart what to look at before training."""
    headings = ("column", "kind", "width", "missing", "unseen", "note")
    rows = (
        (plain(line.name), line.kind, line.width, line.missing, line.unseen, plain(line.note))
        for line in notes.columns[:SHOWN]
    )
    texts, title = ("column", "kind", "note"), "columns of the nodes"
    console.print(numbers(headings, rows, texts=texts, title=title))
    if len(notes.columns) > SHOWN:
        console.print(f"and {len(notes.columns) - SHOWN:,} columns more")
    for note in notes.words:
        console.print(visible(note), soft_wrap=True, markup=False)
    if notes.warnings:
        console.print("\nto look at first:", style="bold yellow")
    for warning in notes.warnings:
        console.print(f"  - {visible(warning)}", soft_wrap=True, markup=False)
