"""Colours of what is drawn: by name, light or dark, from the style sheet that the page has too."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

SHEET = Path(__file__).parent / "explore" / "static" / "colours.css"
CLASSES = 10
"""Colours of classes; the next classes have the same again, and another shape."""


@cache
def sheet() -> str:
    """The style sheet, whose variables are the colours."""
    return SHEET.read_text(encoding="utf-8")


@cache
def literal() -> dict[str, tuple[str, str]]:
    """Name -> the colour in light and in dark, as #rrggbb."""
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", sheet())
    return {name: (light, dark) for name, light, dark in found}
