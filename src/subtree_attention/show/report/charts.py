"""Small line charts as SVG. They hold numbers and words of ours only: no text of the user's.

Colours are CSS variables of the page, so that charts follow its light and dark looks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

WIDTH, HEIGHT = 400, 240
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 10, 34
Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A named line; `color` is a CSS variable of the page, `dots` marks its points, which are not
    joined unless `joined`; `sizes` are the areas of the dots, from 0 to 1."""

    name: str
    color: str
    points: Sequence[Point]
    dots: bool = False
    joined: bool = True
    sizes: Sequence[float] | None = None


def chart(
    label: str,
    lines: Sequence[Line],
    x: tuple[float, float],
    y: tuple[float, float],
    x_title: str,
    *,
    mark: float | None = None,
    diagonal: bool = False,
) -> Markup:
    """Lines over axes from x[0] to x[1] and y[0] to y[1].

    Args:
        label: what a screen reader says.
        lines: what is drawn.
        x, y: the ranges.
        x_title: of the horizontal axis.
        mark: an x that is marked by a vertical line.
        diagonal: draw where y is x.
    """
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(across: float, up: float) -> Point:
        left, top = (across - x[0]) / (x[1] - x[0]), (y[1] - up) / (y[1] - y[0])
        return round(LEFT + left * width, 1), round(TOP + top * height, 1)

    parts = [_text(x_title, ((LEFT + WIDTH - RIGHT) / 2, HEIGHT), (0, -4))]
    for value in ticks(*y):
        parts.append(_segment("grid", at(x[0], value), at(x[1], value)))
        parts.append(_text(f"{value:g}", at(x[0], value), (-6, 4), "end"))
    parts += [_text(f"{value:,g}", at(value, y[0]), (0, 15)) for value in ticks(*x)]
    if diagonal:
        parts.append(_segment("diagonal", at(x[0], x[0]), at(x[1], x[1])))
    if mark is not None:
        parts.append(_segment("mark", at(mark, y[0]), at(mark, y[1])))
    for line in lines:
        places, color = [at(*point) for point in line.points], f"var({line.color})"
        path, title = " ".join(f"{x},{y}" for x, y in places), _tag("title", line.name)
        if line.joined:
            parts.append(_tag("polyline", title, style=f"stroke: {color}", points=path))
        if line.dots or len(places) == 1:  # a line of one point would not be seen
            style = f"fill: {color}" + "; opacity: 0.5" * (not line.joined)
            sizes = line.sizes and [1.5 + 5 * math.sqrt(area) for area in line.sizes]
            radii = sizes or [3.5 if line.joined else 2.5] * len(places)
            parts += [
                _tag("circle", style=style, cx=x, cy=y, r=round(radius, 1))
                for (x, y), radius in zip(places, radii, strict=True)
            ]
    frame = {"class": "chart", "viewBox": f"0 0 {WIDTH} {HEIGHT}"}
    frame |= {"role": "img", "aria-label": label}
    return _tag("svg", Markup("").join(parts), **frame)


def ticks(low: float, high: float) -> list[float]:
    """Three to seven round numbers from low to high."""
    rough = (high - low) / 4
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.99)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def spread(values: Sequence[float]) -> tuple[float, float]:
    """A range that holds all values and is not empty."""
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - room, high + room


def _tag(name: str, content: str = "", **attributes: Any) -> Markup:
    given = (Markup(' {}="{}"').format(*attribute) for attribute in attributes.items())
    return Markup("<{0}{1}>{2}</{0}>").format(name, Markup("").join(given), content)


def _text(text: str, place: Point, away: Point, anchor: str = "middle") -> Markup:
    x, y = place[0] + away[0], place[1] + away[1]
    return _tag("text", text, x=x, y=y, **{"text-anchor": anchor})


def _segment(kind: str, start: Point, end: Point) -> Markup:
    return _tag("line", **{"class": kind}, x1=start[0], y1=start[1], x2=end[0], y2=end[1])
