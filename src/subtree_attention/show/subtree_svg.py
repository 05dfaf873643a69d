"""A rooted subtree as one small picture: an SVG that stands still and needs nothing else.

It is what the page draws: the root in the middle, its levels on rings, one walk per node. Only
presentation attributes are used, no style sheet and no script, so that it is shown wherever SVG is.
Names and classes are the user's: they become text.
"""

from __future__ import annotations

import base64
import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from .colours import CLASSES, literal
from .explanation import NAMES
from .layout import Hop, Node, Spot, place
from .text import counted, percent, short, signed, visible

SMALLEST, LARGEST = 10.0, 44.0
"""Diameters of nodes."""
NAMED = 8
"""Nodes that are named, if their names find room."""
TEXT, SMALL = 12.0, 11.0
"""Sizes of texts: of names, and of captions and the key."""
LETTERS, FEWER = 18, 10
"""Of a name, and where it finds no room else; the whole is said where the node is pointed at."""
PICTURED = 16.0
"""The least diameter of a node that shows its picture: in a smaller one nothing would be seen."""
PADDING = 6.0
ROOMY, LARGER = 360.0, 1.5
"""The width of a picture whose texts are as large as that; and how much larger they are at most."""
SHAPES: tuple[tuple[float, ...], ...] = (  # angles of corners and how far these are from the middle
    (),
    (45, 1.1, 135, 1.1, 225, 1.1, 315, 1.1),
    (0, 1, 60, 1, 120, 1, 180, 1, 240, 1, 300, 1),
    (0, 1.2, 120, 1.2, 240, 1.2),
    tuple(x for step in range(10) for x in (36.0 * step, 0.55 if step % 2 else 1.2)),
)
"""Of classes: a circle, a square, a hexagon, a triangle and a star."""
DIAMOND = (0, 1.15, 90, 1.15, 180, 1.15, 270, 1.15)
Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def subtree_svg(
    told: Mapping[str, Any],
    *,
    classes: Sequence[str] = (),
    by: str = "attention",
    look: str | None = None,
    label: str = "",
) -> Markup:
    """Draw a subtree that was taken apart.

    Args:
        told: "nodes" and "levels" of `subtree.take_apart`, with "id" in each node, and as far as
            they are known "name", "predicted", "label" and "picture", a PNG.
        classes: all of them, in order: colour and shape are by the predicted one.
        by: what areas show. With "contribution", nodes are coloured by whether they add or take
            away; so they are where there are no classes.
        look: None for the colours of the page that it stands in, by CSS variables; "light" or
            "dark" for a picture that stands alone, on a paper of its own.
        label: what a screen reader says of it.
    """
    drawn = _Drawing(told, list(classes), by, look, label)
    first = drawn.svg()
    if drawn.width > ROOMY:  # it is shown smaller, so its texts are larger
        drawn = _Drawing(told, list(classes), by, look, label, min(drawn.width / ROOMY, LARGER))
        return drawn.svg()
    return first


@dataclass
class _Mark:
    """What stands at a spot: a node, or the rest of a level."""

    told: Mapping[str, Any]
    size: float
    rest: bool = False


class _Drawing:
    width = 0.0  # once it is drawn

    def __init__(
        self,
        told: Mapping[str, Any],
        classes: list[str],
        by: str,
        look: str | None,
        label: str,
        larger: float = 1.0,
    ) -> None:
        self.classes, self.by, self.look, self.label = classes, by, look, label
        self.colour = _colours(look)
        self.levels = [level for level in told["levels"] if level["rest"] is not None]
        nodes = told["nodes"]
        rests = [(level["hop"], level["rest"]) for level in self.levels if level["rest"]["nodes"]]
        sizes = _sizes(nodes, by)
        self.marks = [_Mark(node, sizes(node)) for node in nodes]
        self.marks += [_Mark({**rest, "hop": hop}, sizes(rest), True) for hop, rest in rests]
        placed = [Node(node["hop"], node["parent"], sizes(node)) for node in nodes]
        placed += [
            Node(hop, None if isinstance(hop, str) else 0, sizes(rest)) for hop, rest in rests
        ]
        self.captions = {level["hop"]: self._caption(level) for level in self.levels}
        self.text, self.small = TEXT * larger, SMALL * larger
        widths = {hop: max(map(_wide, text)) * self.small for hop, text in self.captions.items()}
        self.spots, self.rings = place(placed, widths)
        self.boxes: list[Box] = []  # of what is drawn, which no name may cover

    def svg(self) -> Markup:
        spots = list(zip(self.marks, self.spots, strict=True))
        rings = [self._ring(hop, radius) for hop, radius in self.rings.items()]
        lines = [self._line(mark, spot) for mark, spot in spots if not mark.rest]
        nodes = [self._mark(mark, spot) for mark, spot in spots]
        self.boxes += [_around(spot, mark.size / 2 + 3) for mark, spot in spots]
        names = self._names()
        if not self.rings:
            names.append(self._alone())
        rings_whole = [_around(Spot(0, 0, 0), radius) for radius in self.rings.values()]
        left, top, right, bottom = _whole([*self.boxes, *rings_whole])
        key, bottom = self._key(left, right, bottom)
        frame = (left - PADDING, top - PADDING, right - left + 2 * PADDING)
        x, y, width, height = *frame, bottom - top + 2 * PADDING
        self.width = width
        paper = [] if self.look is None else [self._rect((x, y, x + width, y + height), 1)]
        return _tag(
            "svg",
            *paper,
            *rings,
            *lines,
            *nodes,
            *names,
            *key,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=" ".join(f"{number:g}" for number in map(_round, (x, y, width, height))),
            width=f"{_round(width):g}",
            height=f"{_round(height):g}",
            role="img",
            aria_label=visible(self.label or "the rooted subtree"),
            font_family="system-ui, sans-serif",
        )

    # ------------------------------------------------------------------------------ what is drawn

    def _caption(self, level: Mapping[str, Any]) -> tuple[str, str]:
        """hop 2; 29 of 168, 36 %."""
        hop, rest, nodes = level["hop"], level["rest"], level["nodes"]
        name = NAMES.get(hop) or f"hop {hop}"
        if not rest["nodes"]:
            return name, f"all {nodes:,}" if nodes > 1 else counted(nodes)
        share = f", {percent(min(1 - rest['attention'], 0.99), 0)} %" * (self.by == "attention")
        return name, f"{nodes - rest['nodes']:,} of {nodes:,}{share}"

    def _ring(self, hop: Hop, radius: float) -> Markup:
        circle = _tag("circle", r=_round(radius), fill="none", stroke=self.colour("line"))
        half = max(map(_wide, self.captions[hop])) * self.small / 2
        box = (-half, -radius - 1.2 * self.small, half, -radius + 1.2 * self.small)
        self.boxes.append(box)
        lines = zip(self.captions[hop], (-0.6, 0.6), strict=True)
        texts = [
            self._text(text, (0, -radius + up * self.small), "quiet", self.small)
            for text, up in lines
        ]
        return circle + self._rect(box, 1) + Markup("").join(texts)

    def _line(self, mark: _Mark, spot: Spot) -> Markup:
        parent = mark.told["parent"]
        if parent is None:
            return Markup("")
        to, hop = self.spots[parent], self.marks[parent].told["hop"]
        ends = dict(zip(("x1", "y1", "x2", "y2"), map(_round, (*spot[:2], *to[:2])), strict=True))
        dashed = {} if mark.told["hop"] - hop == 1 else {"stroke_dasharray": "4 3"}
        return _tag("line", **ends, stroke=self.colour("edge"), stroke_width=1, **dashed)

    def _mark(self, mark: _Mark, spot: Spot) -> Markup:
        radius, told = mark.size / 2, mark.told
        if mark.rest:
            return self._rest(mark, spot)
        colour, shape = self._look(told)
        drawn = _shape(shape, spot, radius, fill=self.colour(colour), stroke=self.colour("paper"))
        if isinstance(told.get("picture"), bytes) and mark.size >= PICTURED:
            drawn += _picture(told["picture"], spot, radius)
        if self._wrong(told):
            ring = {"fill": "none", "stroke": self.colour(self._truth(told)), "stroke_width": 2}
            drawn += _shape((), spot, radius * max(1, *shape[1::2], 1) + 3, **ring)
        return _tag("g", _tag("title", self._words(told)), drawn)

    def _rest(self, mark: _Mark, spot: Spot) -> Markup:
        """The nodes of a level that are not drawn, as one."""
        look = {"stroke": self.colour("edge"), "stroke_dasharray": "3 2"}
        drawn = _shape((), spot, mark.size / 2, fill=self.colour("paper"), **look)
        words = f"{counted(mark.told['nodes'], 'other')}: {self._amounts(mark.told)}"
        return _tag("g", _tag("title", words), drawn)

    def _look(self, told: Mapping[str, Any]) -> tuple[str, tuple[float, ...]]:
        """The name of the colour, and the shape."""
        if self.by == "contribution" or not self.classes:
            adds = told["contribution"] >= 0
            return ("plus", ()) if adds else ("minus", DIAMOND)
        return self._class(told["predicted"])

    def _class(self, name: str) -> tuple[str, tuple[float, ...]]:
        number = self.classes.index(name)
        return f"class-{number % CLASSES}", SHAPES[number // CLASSES % len(SHAPES)]

    def _wrong(self, told: Mapping[str, Any]) -> bool:
        """Whether the predicted class is known not to be the true one."""
        known = told.get("label") is not None and told.get("predicted") is not None
        return bool(self.classes) and known and told["label"] != told["predicted"]

    def _truth(self, told: Mapping[str, Any]) -> str:
        """The name of the colour of the true class."""
        return self._class(told["label"])[0] if told["label"] in self.classes else "wrong"

    def _words(self, told: Mapping[str, Any]) -> str:
        """What is said of a node where it is pointed at."""
        name = told.get("name")
        words = [f"{name} ({told['id']})" if name else told["id"]]
        if told.get("predicted") is not None:
            words.append(f"predicted {told['predicted']}")
        if told.get("label") is not None:
            words.append(f"it is {told['label']}")
        return visible(f"{', '.join(words)}: {self._amounts(told)}")

    def _amounts(self, told: Mapping[str, Any]) -> str:
        share = f"{percent(told['attention'], 1)} % of the attention, "
        return share + f"adds {signed(told['contribution'])}"

    # ------------------------------------------------------------------------------ names and key

    def _names(self) -> list[Markup]:
        """Those of the root and of the nodes that matter most, as far as there is room."""
        order = sorted(range(len(self.marks)), key=lambda at: (at > 0, -self.marks[at].size, at))
        named, drawn = 0, []
        for at in order:
            mark, spot = self.marks[at], self.spots[at]
            if mark.rest:
                texts = [f"+{mark.told['nodes']:,}"]
            elif named < NAMED:
                name = visible(mark.told.get("name") or mark.told["id"])
                texts = [short(name, LETTERS), short(name, FEWER)][: 1 if at == 0 else 2]
            else:
                continue
            away = mark.size / 2 + (7 if self._wrong(mark.told) else 4)
            tried = ((text, self._room(text, spot, away, at == 0)) for text in texts)
            text, box = next((found for found in tried if found[1]), ("", None))
            if box is None:
                continue
            named += not mark.rest
            self.boxes.append(box)
            bold = {"font_weight": "bold"} if at == 0 else {}
            middle = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
            ink = "quiet" if mark.rest else "ink"
            drawn.append(self._rect(box, 0.75) + self._text(text, middle, ink, self.text, **bold))
        return drawn

    def _room(self, text: str, spot: Spot, away: float, root: bool) -> Box | None:
        """A free place for a name beside a node: on the far side of the root, if there is one."""
        wide, high = _wide(text) * self.text / 2, self.text * 0.6
        aside, off = 0.7 * away + wide, 0.7 * away + high
        sides = {
            "right": (spot.x + away + wide, spot.y),
            "left": (spot.x - away - wide, spot.y),
            "top": (spot.x, spot.y - away - high),
            "bottom": (spot.x, spot.y + away + high),
            "top right": (spot.x + aside, spot.y - off),
            "bottom right": (spot.x + aside, spot.y + off),
            "top left": (spot.x - aside, spot.y - off),
            "bottom left": (spot.x - aside, spot.y + off),
        }
        across, up = math.sin(spot.angle), math.cos(spot.angle)
        out = ("right" if across > 0 else "left"), ("top" if up > 0 else "bottom")
        first = out if abs(across) > 0.4 else out[::-1]
        if root:
            first = ("bottom", "top")
        for side in dict.fromkeys((*first, *sides)):
            x, y = sides[side]
            box = (x - wide, y - high, x + wide, y + high)
            if not any(_meet(box, other) for other in self.boxes):
                return box
        if root:  # which is always named, if need be above the picture
            top = min(box[1] for box in self.boxes) - 0.4 * self.text
            return (-wide, top - 2 * high, wide, top)
        return None

    def _alone(self) -> Markup:
        """Of a node that no edge leads to."""
        text, low = "no edge leads here: all is the node's own", _whole(self.boxes)[3] + self.small
        half = _wide(text) * self.small / 2
        self.boxes.append((-half, low - self.small / 2, half, low + self.small / 2))
        return self._text(text, (0, low), "quiet", self.small)

    def _key(self, left: float, right: float, bottom: float) -> tuple[list[Markup], float]:
        """What colours, shapes and rings mean, in lines below the picture; and where they end."""
        x, y, drawn = left, bottom + 2.2 * self.small, []
        for text, entry in self._entries():
            width = _wide(text) * self.small + 2.6 * self.small
            if x > left and x + width > right:
                x, y = left, y + 1.6 * self.small
            drawn.append(entry(Spot(x + self.small / 2, y, 0)))
            start = (x + 1.4 * self.small, y)
            drawn.append(self._text(text, start, "quiet", self.small, text_anchor="start"))
            x += width
        return drawn, y + self.small / 2

    def _entries(self) -> list[tuple[str, Callable[[Spot], Markup]]]:
        def entry(text: str, shape: tuple[float, ...], size: float, **look: Any) -> Any:
            return text, lambda spot: _shape(shape, spot, size, **look)

        nodes = [mark.told for mark in self.marks if not mark.rest]
        if self.by == "contribution" or not self.classes:
            parts = (("adds", "plus", ()), ("takes away", "minus", DIAMOND))
            there = {self._look(told)[0] for told in nodes}
            entries = [
                entry(text, shape, self.small / 2, fill=self.colour(colour))
                for text, colour, shape in parts
                if colour in there
            ]
        else:
            there = {told["predicted"] for told in nodes}
            entries = [
                entry(
                    short(visible(name), 2 * LETTERS),
                    self._class(name)[1],
                    self.small / 2,
                    fill=self.colour(self._class(name)[0]),
                )
                for name in self.classes
                if name in there
            ]
        if any(map(self._wrong, nodes)):
            look = {"fill": "none", "stroke": self.colour("quiet"), "stroke_width": 2}
            entries.append(entry("wrong: ringed by what it is", (), self.small / 2, **look))
        if any(mark.rest for mark in self.marks):
            look = {"stroke": self.colour("edge"), "stroke_dasharray": "3 2"}
            entries.append(entry("others", (), self.small / 2, fill=self.colour("paper"), **look))
        return entries

    # ------------------------------------------------------------------------------------- pieces

    def _text(
        self, text: str, middle: tuple[float, float], ink: str, size: float, **more: Any
    ) -> Markup:
        x, y = _round(middle[0]), _round(middle[1] + 0.35 * size)
        look = {"text_anchor": "middle", "font_size": f"{size:g}", "fill": self.colour(ink)}
        return _tag("text", text, x=x, y=y, **{**look, **more})

    def _rect(self, box: Box, opacity: float) -> Markup:
        left, top, right, bottom = box
        x, y, width, height = map(_round, (left, top, right - left, bottom - top))
        look = {"fill": self.colour("paper")}
        if opacity < 1:
            look["fill_opacity"] = str(opacity)
        return _tag("rect", x=x, y=y, width=width, height=height, **look)


def _colours(look: str | None) -> Callable[[str], str]:
    if look is None:
        return "var(--{})".format
    way = ("light", "dark").index(look)
    return lambda name: literal()[name][way]


def _sizes(nodes: Sequence[Mapping[str, Any]], by: str) -> Callable[[Mapping[str, Any]], float]:
    """Diameters: areas go by what is shown. All the attention of hop 0 is the root's own, so others
    set the scale."""
    counted = [node for node in nodes if by == "contribution" or node["hop"] != 0]
    most = max((abs(node[by]) for node in counted), default=0.0) or 1.0
    return lambda of: SMALLEST + (LARGEST - SMALLEST) * math.sqrt(min(abs(of[by]) / most, 1.0))


def _shape(corners: tuple[float, ...], spot: Spot, radius: float, **look: Any) -> Markup:
    """A circle, or what has these corners."""
    if not corners:
        return _tag("circle", cx=_round(spot.x), cy=_round(spot.y), r=_round(radius), **look)
    points = []
    for angle, far in zip(corners[::2], corners[1::2], strict=True):
        turned = math.radians(angle)
        x = spot.x + far * radius * math.sin(turned)
        points.append(f"{_round(x):g},{_round(spot.y - far * radius * math.cos(turned)):g}")
    return _tag("polygon", points=" ".join(points), stroke_linejoin="round", **look)


def _picture(png: bytes, spot: Spot, radius: float) -> Markup:
    """The node's own picture, inside of its mark."""
    side = radius * 1.3
    x, y, side = _round(spot.x - side / 2), _round(spot.y - side / 2), _round(side)
    data = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return _tag("image", x=x, y=y, width=side, height=side, href=data)


def _wide(text: str) -> float:
    """About how wide a text of size 1 is: fonts differ, so rather too wide."""
    return sum(1.0 if unicodedata.east_asian_width(c) in "WF" else 0.58 for c in text) + 0.2


def _around(spot: Spot, radius: float) -> Box:
    return spot.x - radius, spot.y - radius, spot.x + radius, spot.y + radius


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _whole(boxes: Sequence[Box]) -> Box:
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def _round(number: float) -> float:
    return round(number, 1) + 0.0  # no -0


def _tag(name: str, *content: str, **attributes: Any) -> Markup:
    """An element; its texts and the values of its attributes are escaped."""
    given = (
        Markup(' {}="{}"').format(key if key == "viewBox" else key.replace("_", "-"), value)
        for key, value in attributes.items()
    )
    inside = Markup("").join(content)
    return Markup("<{0}{1}>{2}</{0}>").format(name, Markup("").join(given), inside)
