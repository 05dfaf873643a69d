"""The figure of Theorem 1."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.reproduce.drawing import INK, PAPER, SOFT, STEPS, STYLE, canvas, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TRAINED_HOPS = (3, 10)
"""The smallest and the largest K of the paper's recipes."""


def draw(records: list[dict[str, Any]], path: str | Path) -> list[Path]:
    """Draw the distances against k, with the bounds' K marked; -> the SVG and the PNG."""
    records = sorted(records, key=lambda record: record["gap"])
    with canvas(14, 5.4, STYLE | {"font.size": 10}) as figure:
        colours = [STEPS[rank % len(STEPS)] for rank in range(len(records))]
        panels = figure.subplots(1, 3, sharex=True)
        for panel, (title, part, curve, quantity) in zip(panels, _PANELS, strict=True):
            for record, colour in zip(records, colours, strict=True):
                _draw_curve(panel, record, part, curve, quantity, colour)
            _dress(panel, title, part, records)
        handles, labels = _legend(records, colours)
        look = {"ncols": 6, "frameon": False, "fontsize": 9}
        figure.legend(handles, labels, loc="outside lower center", **look)
        return save(figure, path)


_PANELS = (
    (r"walk: largest $\Sigma_i\, |A^k_{ij} - \pi_i|$", "epsilon", "walk", "sum"),
    (r"walk: largest $|A^k_{ij} - \pi_i| \,/\, \pi_i$", "eta", "walk", "relative"),
    (r"attention: $\eta$ of $\mathrm{STA}_k / \mathrm{SA}$", "eta", "attention", "largest"),
)  # title, bound, curve, quantity


def _draw_curve(
    panel: Axes, record: dict[str, Any], part: str, curve: str, quantity: str, colour: Any
) -> None:
    """One graph in one panel: its distances, and a mark at the bound for each tolerance."""
    found = record["curves"][curve]
    panel.plot(found["hops"], found[quantity], color=colour, lw=1.7)
    if "median" in found:
        panel.plot(found["hops"], found["median"], color=colour, lw=0.9, ls=(0, (3, 2)), alpha=0.8)
    for tolerance, bounds in record[part].items():
        if bounds["bound"]:
            panel.plot(bounds["bound"], float(tolerance), "|", color=colour, ms=15, mew=2, zorder=3)


def _dress(panel: Axes, title: str, part: str, records: list[dict[str, Any]]) -> None:
    """Axes, grid, and a line at each tolerance."""
    tolerances = [float(tolerance) for tolerance in records[0][part]] if records else []
    symbol = {"epsilon": r"\epsilon", "eta": r"\eta"}[part]
    panel.set(xscale="log", yscale="log", xlabel="hop k")
    panel.set_ylim(bottom=min(tolerances, default=0.01) / 5)
    panel.set_title(title, color=INK, fontsize=11, loc="left")
    for tolerance in tolerances:
        panel.axhline(tolerance, color=SOFT, lw=0.9, ls=(0, (4, 3)), zorder=0)
        look: dict[str, Any] = {"color": INK, "fontsize": 9, "va": "bottom"}
        look["transform"] = panel.get_yaxis_transform()
        text = panel.text(0.01, tolerance, f"${symbol} = {tolerance:g}$", **look)
        text.set_bbox({"facecolor": PAPER, "alpha": 0.85, "edgecolor": "none", "pad": 0.8})
    panel.axvspan(*TRAINED_HOPS, color=SOFT, alpha=0.18, lw=0, zorder=0)
    panel.grid(alpha=0.2)
    panel.spines[["top", "right"]].set_visible(False)


def _legend(records: list[dict[str, Any]], colours: list[Any]) -> tuple[list[Any], list[str]]:
    """A line for each graph with its gap, and what the marks are."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    lines: list[Any] = [Line2D([], [], color=colour, lw=2) for colour in colours]
    labels = [f"{record['graph']}, gap {record['gap']:.2g}" for record in records]
    marks = {
        "the paper's bounds K0 and K1": Line2D([], [], color=INK, marker="|", ls="", ms=13, mew=2),
        "median over nodes and channels": Line2D([], [], color=INK, lw=0.9, ls=(0, (3, 2))),
        "K of the paper's recipes": Patch(color=SOFT, alpha=0.3, lw=0),
    }
    return [*lines, *marks.values()], [*labels, *marks]
