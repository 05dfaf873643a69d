"""A table as data, and the same table as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

Row = tuple["Cell", ...]

LATEX_WIDE = 8  # from this many columns on, a table is scaled to the width of the text


@dataclass(frozen=True)
class Cell:
    """What a cell shows, and the numbers behind it where there are any (in percent)."""

    text: str
    bold: bool = False
    mean: float | None = None
    std: float | None = None
    runs: int | None = None


def texts(*words: str) -> Row:
    """Cells that show no numbers."""
    return tuple(Cell(text) for text in words)


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        name: of its file, and its label in LaTeX.
        rules: indices of the rows that have a line above them.
        notes: sentences that belong below it.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    rules: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"row {number} of '{self.name}' has {len(row)} cells for "
                    f"{len(self.columns)} columns"
                )

    @classmethod
    def of_groups(
        cls,
        name: str,
        title: str,
        columns: tuple[str, ...],
        groups: Sequence[Sequence[Row]],
        notes: tuple[str, ...],
    ) -> Table:
        """A table with a line between groups of rows."""
        starts = list(accumulate(len(group) for group in groups))[:-1]
        rows = tuple(row for group in groups for row in group)
        return cls(name, title, columns, rows, notes, tuple(starts))


def render_markdown(table: Table) -> str:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    def shown(cell: Cell) -> str:
        text = cell.text.replace("|", "\\|")
        return f"**{text}**" if cell.bold else text

    lines = [f"### {table.title}", ""]
    lines.append(line([column.replace("|", "\\|") for column in table.columns]))
    lines.append(line(["---"] * len(table.columns)))
    lines += [line([shown(cell) for cell in row]) for row in table.rows]
    if table.notes:
        lines += ["", *(f"- {note}" for note in table.notes)]
    return "\n".join(lines) + "\n"


def render_latex(table: Table) -> str:
    """A `table` with booktabs' rules; a wide one also needs graphicx."""
    wide = len(table.columns) >= LATEX_WIDE
    numbers = [_holds_numbers(table, place) for place in range(len(table.columns))]
    lines = [
        r"% \usepackage{booktabs}" + (r" \usepackage{graphicx}" if wide else ""),
        r"\begin{table}[t]",
        r"\centering\small",
        rf"\caption{{{escape_latex(table.title)}}}",
        rf"\label{{tab:{table.name}}}",
    ]
    if wide:
        lines.append(r"\resizebox{\textwidth}{!}{%")
    lines += [
        rf"\begin{{tabular}}{{{''.join('r' if number else 'l' for number in numbers)}}}",
        r"\toprule",
        " & ".join(escape_latex(column) for column in table.columns) + r" \\",
        r"\midrule",
    ]
    for number, row in enumerate(table.rows):
        if number in table.rules:
            lines.append(r"\midrule")
        lines.append(" & ".join(_latex_cell(cell) for cell in row) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}" + ("}" if wide else "")]
    lines += [rf"\par\smallskip{{\footnotesize {escape_latex(note)}\par}}" for note in table.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def escape_latex(text: str) -> str:
    """Text in which LaTeX sees no commands."""
    words = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    words |= {sign: rf"\{sign}" for sign in "&%$#_{}"}
    return re.sub(r"[\\~^&%$#_{}]", lambda found: words[found[0]], text)


def _latex_cell(cell: Cell) -> str:
    text = escape_latex(cell.text)
    return rf"\textbf{{{text}}}" if cell.bold else text


def render_csv(table: Table) -> str:
    """Columns of scores become three, to reckon with: mean, standard deviation, runs.

    Where there is no score, the first of the three says why.
    """
    columns = [[row[place] for row in table.rows] for place in range(len(table.columns))]
    scores = [any(cell.mean is not None for cell in column) for column in columns]
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    header: list[str] = []
    for column, score in zip(table.columns, scores, strict=True):
        header += [column, f"{column} std", f"{column} runs"] if score else [column]
    writer.writerow(header)
    for row in table.rows:
        line: list[str] = []
        for cell, score in zip(row, scores, strict=True):
            line += _csv_score(cell) if score else [cell.text]
        writer.writerow(line)
    return written.getvalue()


def _csv_score(cell: Cell) -> list[str]:
    if cell.mean is None:
        return [cell.text, "", ""]
    std = "" if cell.std is None else f"{cell.std:.6g}"
    return [f"{cell.mean:.6g}", std, "" if cell.runs is None else str(cell.runs)]


def _holds_numbers(table: Table, place: int) -> bool:
    return any(re.match(r"[+-]?\d", row[place].text) for row in table.rows) and place > 0


RENDERERS = {".md": render_markdown, ".tex": render_latex, ".csv": render_csv}
"""Suffix of a file -> what writes a table into it."""
