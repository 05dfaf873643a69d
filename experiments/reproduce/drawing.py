"""What the figures share: looks, canvas, lines with bands, titles, legend, and the two files.

A model has one colour, marker and line everywhere (`look`), and differs from the others in all
three, so that a figure can be read in grey too. An SVG has no paper of its own: marks stand out on
white and on dark pages, and what is written turns light where the reader's page is dark.
matplotlib is an extra and is imported on use.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.reproduce.records import (
    OURS,
    Record,
    divergence,
    grouped,
    planned_runs,
    run_count,
    title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Look:
    """How a model is drawn."""

    colour: str
    marker: str
    line: str | tuple[int, tuple[int, ...]]


DOTS = (0, (1, 1))
LONG = (0, (6, 2))
MIXED = (0, (4, 1, 1, 1, 1, 1))
# Hues of Okabe and Ito and of Tol, as light or dark as it takes for 3:1 on white and on dark pages.
LOOKS = {
    OURS: Look("#1A7CBF", "o", "-"),
    "STAGNN edge-wise": Look("#6B8FC0", "o", DOTS),
    "GCN": Look("#C27800", "s", "--"),
    "GAT": Look("#DE5E0A", "^", "-."),
    "APPNP": Look("#009E73", "D", LONG),
    "GPRGNN": Look("#C9619B", "v", MIXED),
    "MLP": Look("#848484", "x", DOTS),
    "JKNet": Look("#C0456A", "P", "--"),
    "MixHop": Look("#8C8B2B", "*", "-."),
    "GraphGPS": Look("#7A6FDB", "X", LONG),
    "SGFormer": Look("#3E9344", "<", MIXED),
    "Polynormer": Look("#B457B4", ">", DOTS),
    "GraphSAGE": Look("#9A7355", "p", "--"),
}
_SPARE = ("#3A9C8F", "#B5635B", "#5E8C8A", "#909090", "#A98A2E", "#BC6390")
_SPARE_MARKERS = ("h", "H", "d", "1", "2", "+")
STEPS = (
    *("#C27800", "#8C8B2B", "#3E9344", "#3A9C8F", "#1A7CBF"),
    *("#7A6FDB", "#B457B4", "#C0456A", "#9A7355", "#848484"),
)
"""Colours of what is no model: in an order, or of other things that are told apart."""

INK, SOFT, SHADE, PAPER = "#22252f", "#5c6270", "#eceef1", "#fffffe"
DARK = {INK: "#e6e9ef", SOFT: "#b3bac4", SHADE: "#3a4047", PAPER: "#212529"}
"""Texts, what is less important, grounds, and what covers; and what they are on a dark page."""

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "white",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("axes.edgecolor", "grid.color"), SOFT),
    "svg.hashsalt": "subtree-attention",  # the same records, the same file
}


def look(label: str) -> Look:
    """Colour, marker and line of a model; one that is not in `LOOKS` gets its own by its name."""
    if label in LOOKS:
        return LOOKS[label]
    number = zlib.crc32(label.encode())  # not `hash`, which changes from process to process
    line = (DOTS, LONG, MIXED)[number % 3]
    return Look(_SPARE[number % len(_SPARE)], _SPARE_MARKERS[number // 7 % 6], line)


@contextmanager
def canvas(width: float, height: float, style: dict[Any, Any] | None = None) -> Iterator[Figure]:
    """An empty figure in the style of the house; size in inches."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise ModuleNotFoundError(
            "figures need matplotlib, which is not installed: pip install 'subtree-attention[plot]'"
        ) from None
    with rc_context(STYLE if style is None else style):
        yield Figure(figsize=(width, height), layout="constrained")


def finish(
    figure: Figure, path: str | Path, footnote: str, legend: Sequence[str] | None = None
) -> list[Path]:
    """One legend above all panels, in this order, a line below them, and the files."""
    if legend is not None:
        _legend(figure, legend)
    figure.supxlabel(footnote, fontsize=8, color=SOFT)
    return save(figure, path)


def save(figure: Figure, path: str | Path) -> list[Path]:
    """Write `path`.svg, for light and dark pages, and `path`.png on white; -> both."""
    # Not with_suffix, which would take "deep.v2" apart.
    svg, png = Path(f"{path}.svg"), Path(f"{path}.png")
    svg.parent.mkdir(parents=True, exist_ok=True)
    # Without a date, so that the same records give the same file.
    figure.savefig(svg, metadata={"Date": None}, transparent=True)
    svg.write_text(_for_dark_pages(svg.read_text(encoding="utf-8")), encoding="utf-8")
    figure.savefig(png, dpi=150)
    return [svg, png]


def _for_dark_pages(svg: str) -> str:
    """The SVG with rules that a browser follows where the page around it is dark."""
    rules = "".join(
        f'[style*="{name}: {light}"] {{{name}: {dark} !important}}'
        for light, dark in DARK.items()
        for name in ("fill", "stroke")
    )
    return svg.replace("</style>", f"@media (prefers-color-scheme: dark) {{{rules}}}</style>", 1)


def _legend(figure: Figure, order: Sequence[str]) -> None:
    handles: dict[str, Any] = {}
    for panel in figure.axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    labels = [label for label in order if label in handles]
    longest = max(map(len, labels), default=0)
    columns = int(figure.get_figwidth() / (0.75 + 0.075 * longest))  # inches: line and letters
    figure.legend(
        [handles[label] for label in labels],
        labels,
        loc="outside upper center",
        ncols=min(len(labels), columns),
        frameon=False,
        handlelength=3.2,
    )


# ------------------------------------------------------------------------------------- in a panel


def logarithmic(panel: Axes, name: str) -> None:
    """Make axis "x" or "y" of what is drawn logarithmic, with few ticks, in plain numbers."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis: Axis = {"x": panel.xaxis, "y": panel.yaxis}[name]
    low, high = sorted(axis.get_data_interval())
    span = high / low if low > 0 else 1.0
    steps: Sequence[float] = (1,)
    if span < (300 if high < 1000 else 60):  # longer numbers need more room
        steps = (1, 2, 5) if span > 4 else (1, 1.2, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 8)
    panel.set(**{f"{name}scale": "log"})
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter("{x:,g}" if high < 1e6 else _power)
    axis.set_minor_locator(NullLocator())


def _power(value: float, _: float) -> str:
    return f"$10^{{{math.log10(value):.0f}}}$"


def line(panel: Axes, places: Sequence[float], heights: Sequence[float], label: str) -> None:
    style = look(label)
    panel.plot(
        places,
        heights,
        color=style.colour,
        marker=style.marker,
        linestyle=style.line,
        markersize=4.5,
        linewidth=2.0 if label == OURS else 1.4,
        zorder=3 if label == OURS else 2,
        label=label,
    )


def band(
    panel: Axes,
    places: Sequence[float],
    mean: Sequence[float],
    std: Sequence[float],
    colour: Any,
    alpha: float = 0.15,
) -> None:
    low = [m - s for m, s in zip(mean, std, strict=True)]
    high = [m + s for m, s in zip(mean, std, strict=True)]
    panel.fill_between(places, low, high, color=colour, alpha=alpha, linewidth=0)


def head(panel: Axes, graph: str, here: Sequence[Record], more: str = "") -> None:
    """Title of a panel; below it how many runs there are if some are missing, or diverged."""
    text = title(graph) + more
    if any(record.metric == "roc_auc" for record in here):
        text += " (ROC-AUC)"
    notes = [note for note in (_runs_note(graph, here), divergence(here)) if note]
    panel.set_title("\n".join([text, *notes]))


def _runs_note(graph: str, here: Sequence[Record]) -> str:
    """Fewest and most runs behind a point, where that is not what was planned; else "".

    A point that one model has and another has not counts as one with no runs.
    """
    if not here:
        return "no runs"
    points = grouped(here, lambda record: (record.label, record.at))
    labels, places = {label for label, _ in points}, {at for _, at in points}
    counts = sorted({len(points.get((x, y), [])) for x in labels for y in places})
    planned = planned_runs(graph)
    if counts == [planned]:
        return ""
    if len(counts) == 1:
        return run_count(counts[0], planned)
    return f"{counts[0]} to {counts[-1]}" + (f" of {planned} runs" if planned else " runs")
