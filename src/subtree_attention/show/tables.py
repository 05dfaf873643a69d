"""What was done with the tables, as a person reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..datasets.tables.schema import TableNotes

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = 40
"""Columns that are listed; the rest is counted."""


def show(report: TableNotes, console: Console) -> None:
    """Print a line for each column, and the notes."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="columns of the nodes")
    for heading in ("column", "kind"):
        table.add_column(heading)
    for heading in ("width", "missing", "unseen"):
        table.add_column(heading, justify="right")
    table.add_column("note")
    for line in report.columns[:SHOWN]:
        numbers = (line.width, line.missing, line.unseen)
        table.add_row(escape(line.name), line.kind, *(f"{n:,}" for n in numbers), escape(line.note))
    console.print(table)
    if len(report.columns) > SHOWN:
        console.print(f"and {len(report.columns) - SHOWN:,} columns more")
    for note in report.words:
        console.print(note, soft_wrap=True, markup=False)
