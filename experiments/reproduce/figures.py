"""From records to figures, each written as SVG and PNG.

A model has one colour, marker and line everywhere (`look`), and differs from the others in all
three, so that a figure can be read in grey too. matplotlib is an extra and is imported on use.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.reproduce.published import GRAPHS_A
from experiments.reproduce.records import (
    OURS,
    Record,
    divergence,
    graphs_in_order,
    grouped,
    models_in_order,
    planned_runs,
    run_count,
    select,
    summarise,
    title,
    typical_peak,
)
from experiments.reproduce.tables import hop_aggregations, with_untouched
from subtree_attention import datasets as data

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure


class NothingToDraw(ValueError):
    """The records that a figure needs are not there; the message says which."""


# ------------------------------------------------------------------------------------------ looks


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

# Not models but ways of one: shades of STAGNN's colour, told apart by lightness and hatching.
AGGREGATION_LOOKS = {
    "gpr": ("#0072B2", ""),
    "sum": ("#8FC1E3", ""),
    "concat": ("#E3EFF8", "///"),
    "attention": ("#FFFFFF", "..."),
}

ROW_HEIGHT = 0.26  # of a hop in the heat maps, in inches
HOP_MARKS = (0, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500)

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


# ---------------------------------------------------------------------------------------- figures


def draw_hops(records: Iterable[Record], path: str | Path, runs: int | None = None) -> list[Path]:
    """Grouped bars: ways to aggregate over hops, for each graph."""
    records = list(records)
    own = select(records, "hops")
    if not own:
        raise NothingToDraw("no records of the experiment 'hops': its runs are missing")
    measured = hop_aggregations(records)
    graphs = graphs_in_order(GRAPHS_A, own)
    with _canvas(1.9 * len(graphs) + 0.6, 3.2) as figure:
        for place, graph in enumerate(graphs, start=1):
            # A panel of its own for each graph: the scores lie far apart, the differences do not.
            panel = figure.add_subplot(1, len(graphs), place)
            here = {
                name: [record for record in found if record.graph == graph]
                for name, found in measured.items()
            }
            _bars(panel, here)
            _head(panel, graph, [r for found in here.values() for r in found], runs)
            if place == 1:
                panel.set_ylabel("test score, %")
        _footnote(figure, "bars: mean over runs; lines: one sample standard deviation; axes cut")
        return _save(figure, path)


def _bars(panel: Axes, here: dict[str, list[Record]]) -> None:
    """A bar for each way, on an axis that starts a little below the lowest of them."""
    ends = []
    for place, (name, found) in enumerate(here.items()):
        summary = summarise(found) if found else None
        if summary is None:
            reason = "no scores" if found else "no runs"
            panel.text(place, 0, reason, rotation=90, ha="center", va="bottom", fontsize=8)
            continue
        mean, std = 100 * summary.mean, 100 * (summary.std or 0)
        ends += [mean - std, mean + std]
        colour, hatch = AGGREGATION_LOOKS.get(name, ("#BBBBBB", "xx"))
        edge: dict[str, Any] = {"edgecolor": "#00405F", "linewidth": 0.8, "hatch": hatch}
        edge["error_kw"] = {"elinewidth": 1.2}
        panel.bar(place, mean, 0.74, color=colour, yerr=std, capsize=3, ecolor="#222222", **edge)
        panel.annotate(
            f"{mean:.1f}",
            (place, mean + std),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    names = ["GPR" if name == "gpr" else name for name in here]
    panel.set_xticks(range(len(names)), names, rotation=35, ha="right", rotation_mode="anchor")
    panel.set_xlim(-0.6, len(names) - 0.4)
    panel.grid(axis="y", alpha=0.3)
    panel.set_axisbelow(True)
    if not ends:
        panel.set_yticks([])
        return
    room = max(max(ends) - min(ends), 1.0)
    low, high = max(0.0, min(ends) - 0.6 * room), max(ends) + 0.25 * room
    panel.set_ylim(low, high)
    for text in panel.texts:
        if text.get_text() in ("no runs", "no scores"):
            text.set_y(low + 0.03 * (high - low))


def draw_deep(records: Iterable[Record], path: str | Path, runs: int | None = None) -> list[Path]:
    """Score over K above, peak memory below; a column for each graph."""
    own = [record for record in select(records, "deep") if record.at is not None]
    if not own:
        raise NothingToDraw("no records of the experiment 'deep' (with K in 'at') are there")
    graphs = graphs_in_order(("cora", "actor"), own)
    with _canvas(3.6 * len(graphs) + 0.4, 5.4) as figure:
        for column, graph in enumerate(graphs, start=1):
            here = [record for record in own if record.graph == graph]
            score = figure.add_subplot(2, len(graphs), column)
            _score_lines(score, here)
            _head(score, graph, here, runs)
            memory = figure.add_subplot(2, len(graphs), len(graphs) + column)
            _memory_lines(memory, here)
            depths = sorted({record.at for record in here if record.at is not None})
            for panel in (score, memory):
                panel.set_xscale("log")
                panel.set_xticks(depths, [f"{depth:g}" for depth in depths], minor=False)
                panel.minorticks_off()
            memory.set_xlabel("K")
            if column == 1:
                score.set_ylabel("test score, %")
                memory.set_ylabel("peak memory, MB")
        _legend(figure, models_in_order(own))
        _footnote(figure, "lines: mean over runs; bands: one sample standard deviation")
        return _save(figure, path)


def draw_robustness(
    records: Iterable[Record], path: str | Path, runs: int | None = None
) -> list[Path]:
    """Score over the share of what was changed: a row for each graph, a column for each kind."""
    own = with_untouched(select(records, "robustness"))
    own = [record for record in own if record.at is not None and record.kind is not None]
    if not own:
        raise NothingToDraw(
            "no records of the experiment 'robustness' (with 'kind' and 'at') are there"
        )
    graphs = graphs_in_order((), own)
    kinds = list(dict.fromkeys(str(record.kind) for record in own))
    with _canvas(2.9 * len(kinds) + 0.4, 2.4 * len(graphs) + 0.9) as figure:
        for row, graph in enumerate(graphs):
            first: Axes | None = None
            for column, kind in enumerate(kinds, start=1):
                place = row * len(kinds) + column
                # The same height in a row: kinds can be compared by eye.
                panel = figure.add_subplot(len(graphs), len(kinds), place, sharey=first)
                first = first or panel
                here = [record for record in own if (record.graph, record.kind) == (graph, kind)]
                _score_lines(panel, here)
                _head(panel, graph, here, runs, f"{title(graph)}: {kind}")
                shares = sorted({record.at or 0.0 for record in here})
                panel.set_xticks(shares, [f"{share:g}" for share in shares])
                if row == len(graphs) - 1:
                    panel.set_xlabel("share")
                if column == 1:
                    panel.set_ylabel("test score, %")
        _legend(figure, models_in_order(own))
        _footnote(figure, "lines: mean over runs; bands: one sample standard deviation")
        return _save(figure, path)


def draw_gpr(records: Iterable[Record], path: str | Path, runs: int | None = None) -> list[Path]:
    """Learned hop weights alpha_k over k: a panel for each graph, a line for each K."""
    own = [
        record
        for record in select(records, "deep")
        if record.label == OURS and record.hop_weights is not None
    ]
    if not own:
        raise NothingToDraw(
            "no records of the experiment 'deep' with STAGNN's hop weights ('hop_weights')"
        )
    graphs = graphs_in_order(("cora", "actor"), own)
    depths = sorted({_hops_of(record) for record in own})
    with _canvas(3.8 * len(graphs) + 0.4, 3.7) as figure:
        for place, graph in enumerate(graphs, start=1):
            panel = figure.add_subplot(1, len(graphs), place)
            here = [record for record in own if record.graph == graph]
            _weight_lines(panel, here, depths)
            _head(panel, graph, here, runs, title(graph))
            panel.set_xlabel("hop k")
            if place == 1:
                panel.set_ylabel(r"hop weight $\alpha_k$")
        _legend(figure, [f"K={hops}" for hops in depths])
        _footnote(
            figure,
            "lines: mean over runs; bands: one sample standard deviation; dashed: 1, the start",
        )
        return _save(figure, path)


def _hops_of(record: Record) -> int:
    return len(record.hop_weights or ()) - 1


def _weight_lines(panel: Axes, here: Sequence[Record], depths: Sequence[int]) -> None:
    """A line for each K; the larger K, the darker."""
    import numpy as np
    from matplotlib import colormaps

    for hops, found in sorted(grouped(here, _hops_of).items()):
        place = depths.index(hops)
        colour = colormaps["cividis"](0.85 * (1 - place / max(1, len(depths) - 1)))
        mean, std = _mean_and_std([list(record.hop_weights or ()) for record in found])
        steps = list(range(hops + 1))
        panel.plot(
            steps,
            mean,
            color=colour,
            marker="osD^vPX*"[place % 8],
            markersize=4,
            markevery=[k for k in HOP_MARKS if k < hops] + [hops],
            linewidth=1.4,
            label=f"K={hops}",
        )
        _band(panel, steps, mean, std, colour, alpha=0.08)
    panel.axhline(1, color="#777777", linewidth=0.8, linestyle="--", zorder=0)
    # K = 3 and K = 100 in one panel: logarithmic, but with a hop 0.
    panel.set_xscale("function", functions=(np.log1p, np.expm1))
    marks = [k for k in HOP_MARKS if k <= max(depths)]
    panel.set_xticks(marks, [str(k) for k in marks])
    panel.set_xlim(-0.1, max(depths) * 1.1)
    panel.grid(alpha=0.3)


def draw_gates(records: Iterable[Record], path: str | Path) -> list[Path]:
    """Heat map of the softmax gates, hop by head: a panel for each graph.

    Heads have no order of their own, so a mean over runs would wash them out: one run is shown,
    that of the lowest seed.
    """
    own = _gated(list(records))
    if not own:
        raise NothingToDraw("no records of STAGNN in 'table1' or 'table3' with its gates ('gates')")
    from matplotlib.colors import TwoSlopeNorm

    graphs = [graph for graph in graphs_in_order(data.names(), own.values()) if graph in own]
    # The middle is 1, where all heads count the same; above it as far as the gates go.
    shares = [len(row) * gate for run in own.values() for row in _rows_of(run)[1:] for gate in row]
    shade = TwoSlopeNorm(1, vmin=0, vmax=max(2, *shares))
    per_line = min(5, len(graphs))
    lines = -(-len(graphs) // per_line)
    tallest = [
        max(len(_rows_of(own[graph])) for graph in graphs[start : start + per_line])
        for start in range(0, len(graphs), per_line)
    ]
    size = (1.9 * per_line + 0.9, sum(ROW_HEIGHT * rows + 0.8 for rows in tallest) + 0.4)
    with _canvas(*size) as figure:
        panels = []
        grid = figure.add_gridspec(lines, per_line, height_ratios=[rows + 3 for rows in tallest])
        for place, graph in enumerate(graphs):
            panel = figure.add_subplot(grid[place // per_line, place % per_line])
            image = _gate_map(panel, _rows_of(own[graph]), shade)
            panel.set_title(f"{title(graph)}, seed {own[graph].seed}")
            panel.set_xlabel("head")
            if place % per_line == 0:
                panel.set_ylabel("hop")
            panels.append(panel)
        bar = figure.colorbar(image, ax=panels, shrink=0.8, pad=0.02, panchor=False)
        bar.set_label("gate times number of heads")
        _footnote(
            figure, "1: all heads count the same; hop 0 has no gate; one run, heads unordered"
        )
        return _save(figure, path)


def _gated(records: list[Record]) -> dict[str, Record]:
    """Graph -> the run with softmax gates of the lowest seed, from Table 1 or else Table 3."""
    chosen: dict[str, Record] = {}
    runs = [*select(records, "table1"), *select(records, "table3")]
    for record in sorted(runs, key=lambda record: (record.experiment, record.seed)):
        softmax = record.model == OURS and record.variant.lower() in ("", "gate softmax")
        if softmax and record.gates and len(record.gates) > 1:
            chosen.setdefault(record.graph, record)
    return chosen


def _rows_of(record: Record) -> list[list[float]]:
    return [list(row) for row in record.gates or ()]


def _gate_map(panel: Axes, gates: list[list[float]], shade: Normalize) -> Any:
    """The gates of one run: [K + 1][H]. Hop 0 has none, whatever stands there."""
    from matplotlib import colormaps

    heads = len(gates[1])
    shares = [[float("nan")] * heads, *([heads * gate for gate in row] for row in gates[1:])]
    shades = colormaps["cividis"].with_extremes(bad="#EEEEEE")
    image = panel.imshow(shares, cmap=shades, norm=shade, aspect="auto")
    panel.text((heads - 1) / 2, 0, "no gate", ha="center", va="center", fontsize=8, color="#555555")
    if heads <= 4:  # with more, the numbers would not fit
        for hop, row in enumerate(shares[1:], start=1):
            for head, share in enumerate(row):
                colour = "black" if shade(share) > 0.55 else "white"
                panel.text(
                    head, hop, f"{share:.2f}", ha="center", va="center", fontsize=8, color=colour
                )
    panel.set_xticks(range(heads), [str(head + 1) for head in range(heads)])
    step = 1 if len(gates) <= 12 else 10
    panel.set_yticks(range(0, len(gates), step))
    panel.spines[:].set_visible(False)
    panel.set_box_aspect(ROW_HEIGHT * len(gates) / 1.6)  # a hop is as high in every panel
    panel.set_anchor("N")
    return image


FIGURES = {
    "hops": draw_hops,
    "deep": draw_deep,
    "gpr": draw_gpr,
    "gates": draw_gates,
    "robustness": draw_robustness,
}
"""Name -> the function that draws it."""


# ---------------------------------------------------------------------------------- shared strokes


def _score_lines(panel: Axes, here: Sequence[Record]) -> None:
    """Mean test score over `at`, a line with its band for each model."""
    for label in models_in_order(here):
        by_place = grouped(
            (record for record in here if record.label == label), lambda record: record.at or 0.0
        )
        summaries = {place: summarise(by_place[place]) for place in sorted(by_place)}
        found = {place: summary for place, summary in summaries.items() if summary}
        places = list(found)
        mean = [100 * summary.mean for summary in found.values()]
        std = [100 * (summary.std or 0) for summary in found.values()]
        _line(panel, places, mean, label)
        _band(panel, places, mean, std, look(label).colour)
    panel.grid(alpha=0.3)


def _memory_lines(panel: Axes, here: Sequence[Record]) -> None:
    """The typical peak of the runs over K, on two logarithmic axes."""
    from matplotlib.ticker import LogLocator, NullLocator

    known = [record for record in here if record.peak_bytes]
    for label in models_in_order(known):
        by_place = grouped(
            (record for record in known if record.label == label), lambda record: record.at or 0.0
        )
        places = sorted(by_place)
        peaks = [(typical_peak(by_place[place]) or 0) / 1e6 for place in places]
        _line(panel, places, peaks, label)
    if known:
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter("{x:,g}")
        panel.yaxis.set_minor_locator(NullLocator())
    else:
        panel.text(
            0.5, 0.5, "no memory was recorded", ha="center", va="center", transform=panel.transAxes
        )
    panel.grid(alpha=0.3)


def _line(panel: Axes, places: Sequence[float], heights: Sequence[float], label: str) -> None:
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


def _band(
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


def _mean_and_std(rows: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    """Over runs: [R][n] -> [n], [n]."""
    import numpy as np

    values = np.asarray(rows, dtype=float)
    std = values.std(0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
    return values.mean(0).tolist(), std.tolist()


def _head(
    panel: Axes, graph: str, here: Sequence[Record], runs: int | None, text: str | None = None
) -> None:
    """Title of a panel; below it how many runs there are if some are missing, or diverged."""
    text = text or title(graph)
    if any(record.metric == "roc_auc" for record in here):
        text += " (ROC-AUC)"
    notes = [note for note in (_runs_note(graph, here, runs), divergence(here)) if note]
    panel.set_title("\n".join([text, *notes]))


def _runs_note(graph: str, here: Sequence[Record], runs: int | None) -> str:
    """Fewest and most runs behind a point, where that is not what was planned; else "".

    A point that one model has and another has not counts as one with no runs.
    """
    if not here:
        return "no runs"
    points = grouped(here, lambda record: (record.label, record.at))
    labels, places = {label for label, _ in points}, {at for _, at in points}
    counts = sorted({len(points.get((x, y), [])) for x in labels for y in places})
    planned = planned_runs(graph, runs)
    if counts == [planned]:
        return ""
    if len(counts) == 1:
        return run_count(counts[0], planned)
    return f"{counts[0]} to {counts[-1]}" + (f" of {planned} runs" if planned else " runs")


def _legend(figure: Figure, order: Sequence[str]) -> None:
    """One for all panels, above them."""
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


def _footnote(figure: Figure, text: str) -> None:
    figure.supxlabel(text, fontsize=8, color="#555555")


@contextmanager
def _canvas(width: float, height: float) -> Iterator[Figure]:
    """An empty figure in the style of the house; size in inches."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise ModuleNotFoundError(
            "figures need matplotlib, which is not installed: pip install 'subtree-attention[plot]'"
        ) from None
    with rc_context(STYLE):
        yield Figure(figsize=(width, height), layout="constrained")


def _save(figure: Figure, path: str | Path) -> list[Path]:
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
