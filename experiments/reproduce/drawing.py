"""What the figures share: looks, canvas, lines with bands, titles, legend, and the two files.

A model has one colour, marker and line everywhere (`look`), and differs from the others in all
three, so that a figure can be read in grey too. matplotlib is an extra and is imported on use.
"""

from __future__ import annotations

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
# The first six are colours of Okabe and Ito, those after MLP of Tol's "muted": made to be told
# apart by colour-blind people.
LOOKS = {
    OURS: Look("#0072B2", "o", "-"),
    "STAGNN edge-wise": Look("#56B4E9", "o", DOTS),
    "GCN": Look("#E69F00", "s", "--"),
    "GAT": Look("#D55E00", "^", "-."),
    "APPNP": Look("#009E73", "D", LONG),
    "GPRGNN": Look("#CC79A7", "v", MIXED),
    "MLP": Look("#555555", "x", DOTS),
    "JKNet": Look("#882255", "P", "--"),
    "MixHop": Look("#999933", "*", "-."),
    "GraphGPS": Look("#332288", "X", LONG),
    "SGFormer": Look("#117733", "<", MIXED),
    "Polynormer": Look("#AA4499", ">", DOTS),
}
_SPARE = ("#44AA99", "#661100", "#6699CC", "#888888", "#DDCC77", "#AA4466")
_SPARE_MARKERS = ("h", "p", "d", "1", "2", "+")

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
    figure.supxlabel(footnote, fontsize=8, color="#555555")
    return save(figure, path)


def save(figure: Figure, path: str | Path) -> list[Path]:
    """Write `path`.svg and `path`.png; -> both."""
    written = []
    for suffix in (".svg", ".png"):
        # Not with_suffix, which would take "deep.v2" apart.
        file = Path(f"{path}{suffix}")
        file.parent.mkdir(parents=True, exist_ok=True)
        # Without a date, so that the same records give the same file.
        figure.savefig(file, dpi=150, metadata={"Date": None} if suffix == ".svg" else None)
        written.append(file)
    return written


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
