"""Cells that hold lists: `["a", "b"]` as JSON and Python write them, `[0.1 2.5]` as numpy does, or
with a sign between, `a;b;c`. Nothing is evaluated: what is no list is named."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np

from . import ranks
from .lazy import pl

SIGNS = (";", "|", ",")
"""What may stand between the words of a list without brackets; a comma only where it is asked."""

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_NOTHING = r"(?i:nan|none|null)"
_VALUE = rf"(?:{_NUMBER}|{_NOTHING})"
_NUMBERS = rf"^\[\s*(?:{_VALUE}(?:(?:\s*,\s*|\s+){_VALUE})*\s*,?)?\s*\]$"
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_ITEM = rf"(?:{_QUOTED}|{_VALUE}|[Tt]rue|[Ff]alse)"
_ITEMS = rf"^\[\s*(?:{_ITEM}(?:(?:\s*,\s*|\s+){_ITEM})*\s*,?)?\s*\]$"
_SCALAR = r"np\.(?:float|int|uint|bool|str)\w*\(([^()]*)\)"
"""As numpy writes its numbers where they stand in a list."""
_ESCAPE = r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)"
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0"}


def bracketed(texts: pl.Series) -> pl.Series:
    """A mask of texts that stand in brackets."""
    return texts.str.contains(r"(?s)^\[.*\]$")


def are_numbers(texts: pl.Series, between: str) -> bool:
    """Whether all texts are lists of numbers, with a sign between or ("") in brackets."""
    for some in (ranks.head(texts, 100), texts):
        if not ranks.all_of(_plain(some).str.contains(_in_row(between))):
            return False
    return True


def numbers(texts: pl.Series, between: str) -> pl.Series:
    """Lists of float64 from texts; null where one is no list of numbers."""
    texts = _plain(texts)
    right = texts.set(~texts.str.contains(_in_row(between)), None)
    found = right.str.extract_all(_VALUE).list.eval(
        pl.element().cast(pl.Float64, strict=False).fill_nan(None)
    )
    return found.set(right.is_null(), None)


def words(texts: pl.Series, between: str) -> pl.Series:
    """Lists of texts; null where one is no list, of which lists of lists are some."""
    if between:
        none = texts.str.contains(r"^\[\s*\]$")  # as it is written in brackets
        return texts.set(none, "").str.split(between)
    if (decoded := _from_json(texts)) is not None:
        return decoded
    texts = _plain(texts)
    right = texts.set(~texts.str.contains(_ITEMS), None)
    item = pl.element()
    nothing = item.str.contains(rf"^{_NOTHING}$")
    item = pl.when(nothing).then(None).otherwise(item)
    quoted = item.str.contains(r"""(?s)^(?:'.*'|".*")$""")
    bare = pl.when(quoted).then(item.str.slice(1, item.str.len_chars() - 2)).otherwise(item)
    found = right.str.extract_all(_ITEM).list.eval(bare)
    found = found.set(right.is_null(), None)
    return _unescaped(found) if texts.str.contains("\\", literal=True).any() else found


def _from_json(texts: pl.Series) -> pl.Series | None:
    """Lists of texts, if all are JSON; else they are as Python writes them."""
    try:
        found = texts.str.json_decode(pl.List(pl.String))
    except pl.exceptions.PolarsError:
        found = None
    return None if ranks.any_of(np.array([found is None])) else found


def is_nested(text: str) -> bool:
    """Whether a text is a JSON list that holds lists or tables."""
    try:
        return any(isinstance(item, list | dict) for item in json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return False


def from_cells(values: list[Any]) -> list[Any] | None:
    """Cells of which each is a list, a tuple, an array of numpy or None, as lists of one type.

    Whole numbers among others become floats. None if there are other cells, or other lists.
    """
    cells = [value.tolist() if hasattr(value, "dtype") else value for value in values]
    if not all(cell is None or isinstance(cell, list | tuple) for cell in cells):
        return None
    kinds = {type(item) for cell in cells if cell is not None for item in cell}
    if not kinds or not kinds <= {int, float, bool, type(None)}:
        return None
    return [None if cell is None else [_float(item) for item in cell] for cell in cells]


def _float(item: Any) -> float | None:
    try:
        return None if item is None else float(item)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf


def _plain(texts: pl.Series) -> pl.Series:
    """Lists without the names of numpy's types."""
    if not texts.str.contains("np.", literal=True).any():  # as good as always
        return texts
    return texts.str.replace_all(_SCALAR, "${1}")


def _in_row(between: str) -> str:
    if not between:
        return _NUMBERS
    sign = re.escape(between)
    return rf"^{_VALUE}(?:\s*{sign}\s*{_VALUE})*$"


def _unescaped(lists: pl.Series) -> pl.Series:
    """Lists with what stands behind backslashes in place of them."""
    cells = [
        None if cell is None else [item and re.sub(_ESCAPE, _sign, item) for item in cell]
        for cell in lists.to_list()
    ]
    return pl.Series(lists.name, cells, dtype=pl.List(pl.String))


def _sign(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) == 1:
        return _ESCAPES.get(code, code)
    number = int(code[1:], 16)
    return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
