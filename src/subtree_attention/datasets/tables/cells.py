"""Text in the cells of a CSV file, so that no spreadsheet takes it for a formula.

A cell that begins with one of `STARTS` and is no number gets an apostrophe before it, which
spreadsheets read as "this is text", and our reader takes off again. What begins with apostrophes
and then so gets one more: no two texts are written alike, and each comes back as it was.
"""

from __future__ import annotations

import re

from .lazy import pl

STARTS = r"=+\-@\t\r\n"
_FORMULA = rf"^'*[{STARTS}]"
_NUMBER = r"^'*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def escaped(text: str) -> str:
    """A text as it is written into a cell."""
    number = re.match(_NUMBER, text) and not text.endswith("\n")  # before which `$` matches too
    return f"'{text}" if re.match(_FORMULA, text) and not number else text


def unescaped(cells: pl.Series) -> pl.Series:
    """The inverse of `escaped`, for the cells of a column."""
    if not cells.str.starts_with("'").any():  # as good as always
        return cells
    bare = cells.str.strip_prefix("'")
    taken = cells.str.starts_with("'") & bare.str.contains(_FORMULA) & ~bare.str.contains(_NUMBER)
    return bare.zip_with(taken.fill_null(False), cells)
