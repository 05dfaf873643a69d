"""Seconds of a step and memory of a device over the number of devices, each way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.reproduce.drawing import PAPER, SOFT, canvas, finish
from experiments.scale.machines import DEVICES, GB
from experiments.scale.plan import FAMILIES
from experiments.scale.render import SHOWN

LOOKS: dict[str, dict[str, Any]] = {
    "one device, full batch": {"color": "#848484", "marker": "x", "linestyle": "none"},
    "one device, memory budget": {"color": "#009E73", "marker": "D", "linestyle": "none"},
    "heads and columns": {"color": "#C27800", "marker": "s", "linestyle": "--"},
    "nodes": {"color": "#1A7CBF", "marker": "o", "linestyle": "-"},
    "mesh": {"color": "#DE5E0A", "marker": "^", "linestyle": "-."},
}
NOTE = "by the formulas, not measured; hollow or a cross: does not fit into the memory of a device"


def draw(rows: list[dict[str, Any]], path: Path) -> list[Path]:
    """Write `path`.svg and `path`.png."""
    rows = [row for row in rows if row["machine"] == SHOWN and row["family"] == FAMILIES[0]]
    panels = list(dict.fromkeys((row["graph"], row["model"]) for row in rows))
    with canvas(2.4 * len(panels), 5.2) as figure:
        grid = figure.subplots(2, len(panels), sharex=True, sharey="row")
        for place, (graph, model) in enumerate(panels):
            here = [row for row in rows if (row["graph"], row["model"]) == (graph, model)]
            grid[0, place].set_title(f"{graph}\n{model.partition(',')[0].partition(':')[0]}")
            for panel, name, scale in zip(
                grid[:, place], ("seconds", "bytes"), (1, GB), strict=True
            ):
                _panel(panel, here, name, scale)
            grid[1, place].axhline(DEVICES[SHOWN].memory / GB, color=SOFT, linewidth=0.8)
            grid[1, place].set_xlabel(f"{SHOWN}s")
        grid[0, 0].set_ylabel("seconds a step")
        grid[1, 0].set_ylabel("GB of a device")
        return finish(figure, path, NOTE, list(LOOKS))


def _panel(panel: Any, rows: list[dict[str, Any]], name: str, scale: float) -> None:
    for way, look in LOOKS.items():
        here = [row for row in rows if row["way"] == way and row[name] is not None]
        places, heights = [r["devices"] for r in here], [r[name] / scale for r in here]
        panel.plot(places, heights, label=way, markersize=5, linewidth=1.2, **look)
        for row, height in zip(here, heights, strict=True):
            if not row["fits"] and look["marker"] != "x":
                look_of = {"marker": look["marker"], "color": look["color"]}
                panel.plot(row["devices"], height, markersize=5, markerfacecolor=PAPER, **look_of)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks([1, 8, 64, 512], ["1", "8", "64", "512"])
