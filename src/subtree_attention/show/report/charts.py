"""Small line charts as SVG. They hold numbers and words of ours only: no text of the user's.

Colours are CSS variables of the page, so that charts follow its light and dark looks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH, HEIGHT = 400, 240
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 10, 34
Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A named line; `color` is a CSS variable of the page, `dots` marks its points."""

    name: str
    color: str
    points: Sequence[Point]
    dots: bool = False


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
    scale = _Scale(x, y)
    parts = [_grid(scale, x_title)]
    if diagonal:
        parts.append(_segment("diagonal", scale(x[0], x[0]), scale(x[1], x[1])))
    if mark is not None:
        parts.append(_segment("mark", scale(mark, y[0]), scale(mark, y[1])))
    parts += [_drawn(line, scale) for line in lines]
    head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">')
    return head.format(WIDTH, HEIGHT, label) + Markup("").join(parts) + Markup("</svg>")


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


class _Scale:
    """From numbers to places on the drawing."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float]) -> None:
        self.x, self.y = x, y

    def __call__(self, x: float, y: float) -> Point:
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        return round(LEFT + across * width, 1), round(TOP + (1 - up) * height, 1)


def _grid(scale: _Scale, x_title: str) -> Markup:
    parts = []
    for value in ticks(*scale.y):
        left, place = scale(scale.x[0], value)
        parts.append(_segment("grid", (left, place), (WIDTH - RIGHT, place)))
        parts.append(_text(f"{value:g}", left - 6, place + 4, "end"))
    for value in ticks(*scale.x):
        place, bottom = scale(value, scale.y[0])
        parts.append(_text(f"{value:,g}", place, bottom + 15))
    parts.append(_text(x_title, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4))
    return Markup("").join(parts)


def _text(text: str, x: float, y: float, anchor: str = "middle") -> Markup:
    return Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(x, y, anchor, text)


def _segment(kind: str, start: Point, end: Point) -> Markup:
    line = Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>')
    return line.format(kind, *start, *end)


def _drawn(line: Line, scale: _Scale) -> Markup:
    places = [scale(*point) for point in line.points]
    path = " ".join(f"{x},{y}" for x, y in places)
    drawn = Markup('<polyline style="stroke: var({})" points="{}"><title>{}</title></polyline>')
    out = drawn.format(line.color, path, line.name)
    if line.dots or len(places) == 1:  # a line of one point would not be seen
        dot = Markup('<circle style="fill: var({})" cx="{}" cy="{}" r="3.5"/>')
        out += Markup("").join(dot.format(line.color, x, y) for x, y in places)
    return out
