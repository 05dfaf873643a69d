"""From records to figures, each written as SVG and PNG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.reproduce.drawing import (
    INK,
    SOFT,
    STEPS,
    band,
    canvas,
    finish,
    head,
    line,
    logarithmic,
    look,
)
from experiments.reproduce.records import (
    OURS,
    Record,
    graphs_in_order,
    grouped,
    models_in_order,
    on,
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

# Not models but ways of one: STAGNN's colour, told apart by how full of it they are.
AGGREGATION_LOOKS = {
    "gpr": (look(OURS).colour, ""),
    "sum": (f"{look(OURS).colour}80", ""),
    "concat": ("none", "///"),
    "attention": ("none", "..."),
}
ROW_HEIGHT = 0.26  # of a hop in the heat maps, in inches
HOP_MARKS = (0, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500)
BANDS = "lines: mean over runs; bands: one sample standard deviation"


class NothingToDraw(ValueError):
    """The records that a figure needs are not there; the message says which."""


def draw_hops(records: Sequence[Record], path: str | Path) -> list[Path]:
    """Grouped bars: ways to aggregate over hops, for each graph."""
    _needed(select(records, "hops"), "of the experiment 'hops': its runs are missing")
    graphs, measured = hop_aggregations(records)
    with canvas(1.9 * len(graphs) + 0.6, 3.2) as figure:
        # A panel of its own for each graph: the scores lie far apart, the differences do not.
        for graph, panel in _columns(figure, graphs):
            here = {name: on(found, graph) for name, found in measured.items()}
            _bars(panel, here)
            head(panel, graph, [record for found in here.values() for record in found])
        figure.axes[0].set_ylabel("test score, %")
        note = "bars: mean over runs; lines: one sample standard deviation; axes cut"
        return finish(figure, path, note)


def _needed(records: Sized, what: str) -> None:
    """Refuse to draw without any."""
    if not records:
        raise NothingToDraw(f"no records {what}")


def _columns(
    figure: Figure, graphs: Sequence[str], rows: int = 1, row: int = 0
) -> Iterator[tuple[str, Axes]]:
    """A panel in a row of the figure for each graph."""
    for place, graph in enumerate(graphs, start=row * len(graphs) + 1):
        yield graph, figure.add_subplot(rows, len(graphs), place)


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
        colour, hatch = AGGREGATION_LOOKS.get(name, ("none", "xx"))
        edge: dict[str, Any] = {"edgecolor": look(OURS).colour, "linewidth": 0.8, "hatch": hatch}
        edge["error_kw"] = {"elinewidth": 1.2}
        panel.bar(place, mean, 0.74, color=colour, yerr=std, capsize=3, ecolor=INK, **edge)
        above: dict[str, Any] = {"xytext": (0, 2), "textcoords": "offset points", "ha": "center"}
        panel.annotate(f"{mean:.1f}", (place, mean + std), fontsize=8, **above)
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


def draw_deep(records: Sequence[Record], path: str | Path) -> list[Path]:
    """Score over K above, peak memory below; a column for each graph."""
    own = [record for record in select(records, "deep") if record.at is not None]
    _needed(own, "of the experiment 'deep' (with K in 'at') are there")
    graphs = graphs_in_order(("cora", "actor"), own)
    with canvas(3.6 * len(graphs) + 0.4, 5.4) as figure:
        rows = (_columns(figure, graphs, 2, row) for row in (0, 1))
        for (graph, score), (_, memory) in zip(*rows, strict=True):
            here = on(own, graph)
            _score_lines(score, here)
            head(score, graph, here)
            _memory_lines(memory, here)
            depths = sorted({record.at for record in here if record.at is not None})
            for panel in (score, memory):
                panel.set_xscale("log")
                panel.set_xticks(depths, [f"{depth:g}" for depth in depths], minor=False)
                panel.minorticks_off()
            memory.set_xlabel("K")
        for panel, label in zip(figure.axes, ("test score, %", "peak memory, MB"), strict=False):
            panel.set_ylabel(label)
        return finish(figure, path, BANDS, models_in_order(own))


def draw_robustness(records: Sequence[Record], path: str | Path) -> list[Path]:
    """Score over the share of what was changed: a row for each graph, a column for each kind."""
    own = with_untouched(select(records, "robustness"))
    own = [record for record in own if record.at is not None and record.kind is not None]
    _needed(own, "of the experiment 'robustness' (with 'kind' and 'at') are there")
    graphs, kinds = graphs_in_order((), own), list(dict.fromkeys(str(r.kind) for r in own))
    with canvas(2.9 * len(kinds) + 0.4, 2.4 * len(graphs) + 0.9) as figure:
        for row, graph in enumerate(graphs):
            first: Axes | None = None
            for place, kind in enumerate(kinds, start=row * len(kinds) + 1):
                # The same height in a row: kinds can be compared by eye.
                panel = figure.add_subplot(len(graphs), len(kinds), place, sharey=first)
                here = [record for record in on(own, graph) if record.kind == kind]
                _score_lines(panel, here)
                head(panel, graph, here, f": {kind}")
                shares = sorted({record.at or 0.0 for record in here})
                panel.set_xticks(shares, [f"{share:g}" for share in shares])
                if row == len(graphs) - 1:
                    panel.set_xlabel("share")
                if first is None:
                    panel.set_ylabel("test score, %")
                first = first or panel
        return finish(figure, path, BANDS, models_in_order(own))


def draw_gpr(records: Sequence[Record], path: str | Path) -> list[Path]:
    """Learned hop weights alpha_k over k: a panel for each graph, a line for each K."""
    deep = select(records, "deep")
    own = [record for record in deep if record.label == OURS and record.hop_weights is not None]
    _needed(own, "of the experiment 'deep' with STAGNN's hop weights ('hop_weights')")
    graphs = graphs_in_order(("cora", "actor"), own)
    depths = sorted({_hops_of(record) for record in own})
    with canvas(3.8 * len(graphs) + 0.4, 3.7) as figure:
        for graph, panel in _columns(figure, graphs):
            here = on(own, graph)
            _weight_lines(panel, here, depths)
            head(panel, graph, here)
            panel.set_xlabel("hop k")
        figure.axes[0].set_ylabel(r"hop weight $\alpha_k$")
        names = [f"K={hops}" for hops in depths]
        return finish(figure, path, f"{BANDS}; dashed: 1, the start", names)


def _hops_of(record: Record) -> int:
    return len(record.hop_weights or ()) - 1


def _weight_lines(panel: Axes, here: Sequence[Record], depths: Sequence[int]) -> None:
    """A line for each K."""
    import numpy as np

    for hops, found in sorted(grouped(here, _hops_of).items()):
        place = depths.index(hops)
        colour = STEPS[place % len(STEPS)]
        weights = np.asarray([record.hop_weights for record in found], dtype=float)
        mean = weights.mean(0).tolist()
        std = (weights.std(0, ddof=1) if len(found) > 1 else np.zeros(hops + 1)).tolist()
        steps = list(range(hops + 1))
        look: dict[str, Any] = {"color": colour, "markersize": 4, "linewidth": 1.4}
        look["marker"] = "osD^vPX*"[place % 8]
        look["markevery"] = [k for k in HOP_MARKS if k < hops] + [hops]
        panel.plot(steps, mean, label=f"K={hops}", **look)
        band(panel, steps, mean, std, colour, alpha=0.08)
    panel.axhline(1, color=SOFT, linewidth=0.8, linestyle="--", zorder=0)
    # K = 3 and K = 100 in one panel: logarithmic, but with a hop 0.
    panel.set_xscale("function", functions=(np.log1p, np.expm1))
    marks = [k for k in HOP_MARKS if k <= max(depths)]
    panel.set_xticks(marks, [str(k) for k in marks])
    panel.set_xlim(-0.1, max(depths) * 1.1)
    panel.grid(alpha=0.3)


def draw_gates(records: Sequence[Record], path: str | Path) -> list[Path]:
    """Heat map of the softmax gates, hop by head: a panel for each graph.

    Heads have no order of their own, so a mean over runs would wash them out: one run is shown,
    that of the lowest seed.
    """
    own = _gated(records)
    _needed(own, "of STAGNN in 'table1' or 'table3' with its gates ('gates')")
    from matplotlib.colors import TwoSlopeNorm

    graphs = [graph for graph in graphs_in_order(data.names(), own.values()) if graph in own]
    # The middle is 1, where all heads count the same; above it as far as the gates go.
    gates = {graph: [list(row) for row in own[graph].gates or ()] for graph in graphs}
    shares = [len(row) * gate for rows in gates.values() for row in rows[1:] for gate in row]
    shade = TwoSlopeNorm(1, vmin=0, vmax=max(2, *shares))
    per_line = min(5, len(graphs))
    lines = -(-len(graphs) // per_line)
    tallest = [
        max(len(gates[graph]) for graph in graphs[start : start + per_line])
        for start in range(0, len(graphs), per_line)
    ]
    size = (1.9 * per_line + 0.9, sum(ROW_HEIGHT * rows + 0.8 for rows in tallest) + 0.4)
    with canvas(*size) as figure:
        panels = []
        grid = figure.add_gridspec(lines, per_line, height_ratios=[rows + 3 for rows in tallest])
        for place, graph in enumerate(graphs):
            panel = figure.add_subplot(grid[place // per_line, place % per_line])
            image = _gate_map(panel, gates[graph], shade)
            panel.set_title(f"{title(graph)}, seed {own[graph].seed}")
            panel.set_xlabel("head")
            if place % per_line == 0:
                panel.set_ylabel("hop")
            panels.append(panel)
        bar = figure.colorbar(image, ax=panels, shrink=0.8, pad=0.02, panchor=False)
        bar.set_label("gate times number of heads")
        note = "1: all heads count the same; hop 0 has no gate; one run, heads unordered"
        return finish(figure, path, note)


def _gated(records: Sequence[Record]) -> dict[str, Record]:
    """Graph -> the run with softmax gates of the lowest seed, from Table 1 or else Table 3."""
    chosen: dict[str, Record] = {}
    runs = [*select(records, "table1"), *select(records, "table3")]
    for record in sorted(runs, key=lambda record: (record.experiment, record.seed)):
        softmax = record.model == OURS and record.variant.lower() in ("", "gate softmax")
        if softmax and record.gates and len(record.gates) > 1:
            chosen.setdefault(record.graph, record)
    return chosen


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


def _by_model(here: Sequence[Record]) -> Iterator[tuple[str, dict[float, list[Record]]]]:
    """Every model, and its runs by `at`, ascending."""
    for label in models_in_order(here):
        own = grouped((r for r in here if r.label == label), lambda record: record.at or 0.0)
        yield label, dict(sorted(own.items()))


def _score_lines(panel: Axes, here: Sequence[Record]) -> None:
    """Mean test score over `at`, a line with its band for each model."""
    for label, by_place in _by_model(here):
        summaries = {place: summarise(runs) for place, runs in by_place.items()}
        found = {place: summary for place, summary in summaries.items() if summary}
        mean = [100 * summary.mean for summary in found.values()]
        std = [100 * (summary.std or 0) for summary in found.values()]
        line(panel, list(found), mean, label)
        band(panel, list(found), mean, std, look(label).colour)
    panel.grid(alpha=0.3)


def _memory_lines(panel: Axes, here: Sequence[Record]) -> None:
    """The typical peak of the runs over K, on two logarithmic axes."""
    known = [record for record in here if record.peak_bytes]
    for label, by_place in _by_model(known):
        peaks = [(typical_peak(runs) or 0) / 1e6 for runs in by_place.values()]
        line(panel, list(by_place), peaks, label)
    if known:
        logarithmic(panel, "y")
    else:
        middle: dict[str, Any] = {"ha": "center", "va": "center", "transform": panel.transAxes}
        panel.text(0.5, 0.5, "no memory was recorded", **middle)
    panel.grid(alpha=0.3)
