"""Ours minus every rival as a picture: a panel for each table."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.field.render import Difference, Rows, differences
from experiments.field.spaces import OURS
from experiments.field.studies import Study
from experiments.reproduce.drawing import SHADE, SOFT, canvas, finish
from experiments.reproduce.records import title
from experiments.reproduce.store import Store

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"ahead": "#1A7CBF", "level": "#848484", "behind": "#DE5E0A"}
WIDTH, LINE, HEAD = 6.5, 0.19, 0.6  # inches: of the picture, of a rival, of a panel's title
NOTE = (
    "points: mean over pairs; lines: two standard errors; grey ground: 0.3 points\n"
    "blue: ahead, orange: behind, grey: level"
)


def draw(studies: Iterable[Study], store: Store, paper: Store, path: Path) -> list[Path]:
    """Write `path`.svg and `path`.png of the tables in which ours has runs; -> both, or nothing."""
    panels = []
    for study in studies:
        found = [each for each in differences(Rows(study, store, paper)) if _has_error(each)]
        if found:
            panels.append((study, found))
    if not panels:
        return []
    heights = [HEAD + LINE * len(found) for _, found in panels]
    with canvas(WIDTH, sum(heights) + HEAD) as figure:
        grid = figure.subplots(len(panels), squeeze=False, height_ratios=heights)
        for panel, (study, found) in zip(grid[:, 0], panels, strict=True):
            _panel(panel, found)
            panel.set_title(study.title)
            panel.set_xlabel(f"{OURS} minus rival, points")
        return finish(figure, path, NOTE)


def _has_error(each: Difference) -> bool:
    return each.pair is not None and each.pair.error is not None


def _panel(panel: Axes, found: list[Difference]) -> None:
    panel.axvspan(-0.3, 0.3, color=SHADE, linewidth=0)
    panel.axvline(0, color=SOFT, linewidth=0.8)
    for place, each in enumerate(found):
        if each.pair is None or each.pair.error is None:
            continue
        mean, error = 100 * each.pair.mean, 200 * each.pair.error
        style: dict[str, Any] = {
            "color": COLOURS[each.verdict.word],
            "marker": "o",
            "markersize": 4.5,
        }
        panel.errorbar(mean, place, xerr=error, linestyle="none", **style)
    labels = [f"{title(each.graph)}, {each.rival}" for each in found]
    panel.set_yticks(range(len(found)), labels)
    panel.set_ylim(len(found) - 0.5, -0.5)  # the first on top, none on the edge
