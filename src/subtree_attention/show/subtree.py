"""Which nodes of a rooted subtree are drawn, and the parts of a logit as a short list.

Whatever is left out is summed up, so that everything told still adds up to the logit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..explanations.explanation import Explanation, Level
from ..runs import SavedRun
from .explanation import Output, brief

NODES = 60
"""Nodes that are drawn on the page, in all levels together, unless more of one are asked for."""

STEP = 30
"""So many more are drawn of a level whose rest is opened."""

MOST = 240
"""Nodes that are drawn of one level at most: a ring of more is not to be read."""

SOURCES = 10
"""Nodes in the list of sources."""


@dataclass(frozen=True)
class Choice:
    """What is looked at.

    Attributes:
        hops: levels up to this one are drawn, and that of global attention.
        head: a head, or None for all.
        by: "attention" or "contribution", which decides what nodes are drawn.
        cls: the class whose logit is taken apart.
        rather: a class that it might be rather: then it is the difference of their two logits.
        opened: how many nodes of a level are drawn, by its hop, where more were asked for.
    """

    hops: int
    head: int | None
    by: str
    cls: int
    rather: int | None = None
    opened: Mapping[int | str, int] = field(default_factory=dict)

    @property
    def heads(self) -> slice | list[int]:
        return slice(None) if self.head is None else [self.head]

    def shows(self, level: Level) -> bool:
        return isinstance(level.hop, str) or level.hop <= self.hops

    def of(self, logits: Tensor) -> Tensor:
        """Of what belongs to each class, [..., C], that of the class or the difference, [...]."""
        own = logits[..., self.cls]
        return own if self.rather is None else own - logits[..., self.rather]

    def total(self, level: Level) -> float:
        """What a level adds to the logit."""
        return float(self.of(level.total)[self.heads].sum())

    def counts(self, parts: list[Part], most: int) -> list[int]:
        """How many nodes of each level are drawn, if no more are asked for at most so many."""
        sizes = [len(part.nodes) for part in parts]
        asked = [min(self.opened.get(part.level.hop, 0), MOST) for part in parts]
        drawn = zip(share_out(sizes, most), asked, sizes, strict=True)
        return [min(max(count, more), size) for count, more, size in drawn]


class Part(NamedTuple):
    """A level that is drawn: its nodes, their shares (of all heads the mean) and what they add."""

    level: Level
    nodes: Tensor
    shares: Tensor
    added: Tensor

    @classmethod
    def of(cls, level: Level, choice: Choice) -> Part:
        shares = level.shares[:, choice.heads].mean(1)
        added = level.contributions(choice.cls, choice.rather)[:, choice.heads].sum(1)
        return cls(level, level.nodes, shares, added)


def take_apart(explanation: Explanation, choice: Choice, most: int = NODES) -> dict[str, Any]:
    """The levels, the nodes to draw, at most so many, and the parts of the logit. Nodes are
    numbers."""
    parts = [Part.of(level, choice) for level in explanation.levels if choice.shows(level)]
    drawn = [_drawn(*pair, choice) for pair in zip(parts, choice.counts(parts, most), strict=True)]
    nodes = [node for chosen, _ in drawn for node in chosen]
    rests = {part.level.hop: rest for part, (_, rest) in zip(parts, drawn, strict=True)}
    _link(nodes, explanation)
    levels = [
        {
            "hop": level.hop,
            "nodes": len(level.nodes),
            "heads": choice.of(level.total).tolist(),
            "contribution": choice.total(level),
            "rest": rests.get(level.hop),  # None where the level is not drawn
        }
        for level in explanation.levels
    ]
    return {"levels": levels, "nodes": nodes, "parts": _sum(explanation, parts, choice)}


def of_run(run: SavedRun, explanation: Explanation, choice: Choice, most: int) -> dict[str, Any]:
    """The same with what is known of each node: see `brief`; and its picture, if it has one."""
    apart = take_apart(explanation, choice, most)
    for node in apart["nodes"]:
        picture, told = run.dataset.picture(node["node"]), brief(run, node.pop("node"))
        node |= {"id": told.pop("node"), **told, "picture": picture}
    return apart


class Strongest(NamedTuple):
    """The nodes that add most to an output, and the others as one: together with what belongs to no
    node the output. With a class that it might be rather, every amount is a pair: to the output,
    and to how far it is above that class.

    Attributes:
        sources: nodes and what each adds over all hops and heads, the strongest first.
        others: how many more are reached.
        others_add: what these add.
        parts: by name, what belongs to no node.
        whole: the output.
    """

    sources: list[tuple[int, list[float]]]
    others: int
    others_add: list[float]
    parts: dict[str, list[float]]
    whole: list[float]


def strongest(
    explanation: Explanation,
    about: Output,
    count: int,
    sign: int | None = None,
    rather: int | None = None,
) -> Strongest:
    """The nodes that add most, of either sign; with a sign, only those that add in its way."""
    cls, reached = about.index, torch.cat([level.nodes for level in explanation.levels]).unique()
    asked = [(cls, None)] if rather is None else [(cls, None), (cls, rather)]
    added = torch.stack([explanation.importance(*one)[reached].double() for one in asked], 1)
    added *= about.scale  # [n, 1 or 2]
    first = (added[:, 0].abs() if sign is None else sign * added[:, 0]).topk(min(count, len(added)))
    named = first.indices[first.values > 0]

    def told(logits: Tensor, center: float = 0.0) -> list[float]:
        """Of logits [C]."""
        alone = about.scale * float(logits[cls]) + center
        return [alone] if rather is None else [alone, float(logits[cls] - logits[rather])]

    parts = {name: told(add) for name, add in explanation.beside.items()}
    parts["bias"] = told(explanation.bias, about.center)
    if not explanation.exact:
        parts["missing"] = [about.scale * explanation.residual(cls)]
    return Strongest(
        sources=list(zip(reached[named].tolist(), added[named].tolist(), strict=True)),
        others=len(reached) - len(named),
        others_add=(added.sum(0) - added[named].sum(0)).tolist(),
        parts=parts,
        whole=told(explanation.logits, about.center),
    )


def share_out(sizes: list[int], total: int) -> list[int]:
    """How many nodes of each level are drawn: small levels whole, the others alike."""
    counts, left = [0] * len(sizes), total
    ascending = sorted(range(len(sizes)), key=sizes.__getitem__)
    for done, place in enumerate(ascending):
        counts[place] = min(sizes[place], max(1, left // (len(sizes) - done)))
        left -= counts[place]
    return counts


def _drawn(part: Part, count: int, choice: Choice) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The nodes of a level that matter most, and the others as one.

    "opened" is how many are drawn once the others are opened, None where no more are.
    """
    top = (part.shares if choice.by == "attention" else part.added.abs()).topk(count).indices
    shares, added = part.shares[top], part.added[top]
    rows = zip(part.nodes[top].tolist(), shares.tolist(), added.tolist(), strict=True)
    names = ("node", "attention", "contribution")
    drawn = [{"hop": part.level.hop, **dict(zip(names, row, strict=True))} for row in rows]
    whole = len(part.nodes)
    rest = {
        "nodes": whole - count,
        "attention": max(0.0, float(part.shares.sum() - shares.sum())) if count < whole else 0.0,
        "contribution": choice.total(part.level) - float(added.sum()),
        "opened": min(count + STEP, whole, MOST) if count < min(whole, MOST) else None,
    }
    return drawn, rest


def _link(nodes: list[dict[str, Any]], explanation: Explanation) -> None:
    """The walk of each node to the root, and the first node on it that is drawn too.

    The walk of a node is one step and then the walk of the next node, so the links are a tree.
    """
    place = {(node["hop"], node["node"]): at for at, node in enumerate(nodes)}
    for node in reversed(nodes):  # the deepest walks first: they hold what the others need
        hop, walks = node["hop"], not isinstance(node["hop"], str) and node["hop"] > 0
        node["walk"] = explanation.walk(hop, node["node"]).nodes if walks else []
        way = [(hop - step, on_it) for step, on_it in enumerate(node["walk"])][1:]
        node["parent"] = next((place[spot] for spot in way if spot in place), None)


def _sum(explanation: Explanation, parts: list[Part], choice: Choice) -> dict[str, Any]:
    """The strongest sources and all that is not told of them: together the logit."""
    added = explanation.bias.new_zeros(explanation.num_nodes)
    most = torch.full_like(added, -1)  # that a node adds in one level, of either sign
    strongest = torch.zeros(len(added), dtype=torch.long)  # that level
    for place, part in enumerate(parts):
        added[part.nodes] += part.added
        stronger = part.added.abs() > most[part.nodes]
        nodes = part.nodes[stronger]
        most[nodes], strongest[nodes] = part.added.abs()[stronger], place
    reached = most >= 0
    count = int(reached.sum())
    top = torch.where(reached, added.abs(), -1.0).topk(min(SOURCES, count)).indices
    whole = choice.of(explanation.totals)
    in_head = float(whole[:, choice.heads].sum())
    in_levels = sum(choice.total(part.level) for part in parts)
    rows = zip(top.tolist(), strongest[top].tolist(), added[top].tolist(), strict=True)
    return {
        "sources": [
            {"node": node, "hop": parts[place].level.hop, "contribution": adds}
            for node, place, adds in rows
        ],
        "others": count - len(top),
        "others_contribution": in_levels - float(added[top].sum()),
        "beyond": in_head - in_levels,
        "other_heads": float(whole.sum()) - in_head,
        "bias": float(choice.of(explanation.bias)),
        "beside": {name: float(choice.of(part)) for name, part in explanation.beside.items()},
        "logit": float(choice.of(explanation.logits)),
    }
