"""What is left of a benchmark: tables on the terminal, a JSON file, and a plot beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subtree_attention.io import write_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import Console
    from rich.table import Table

PARTS = {
    "operator": "operator, forward and backward",
    "epoch": "epoch: training step and evaluation",
}
COLUMNS = ("graph", "version", "ms", "x ours", "peak MB", "error")
SIZES = ("edges", "nodes", "hops", "heads", "classes")


class Refused(RuntimeError):
    """A version broke or computed something else than it should, and was not reported."""


def publish(result: dict[str, Any], path: Path, console: Console) -> None:
    """Print a result of `compare` or `scale`, write it to `path`, and draw it beside that.

    Raises:
        Refused: after all that, if a version was refused; it names them.
    """
    for table in _scaling_tables(result) if "axes" in result else _version_tables(result):
        console.print(table)
    write_json(path, result)
    drawn = _plot(result, path.with_suffix(".png"))
    for line in [*notes(result), f"written to {path}", drawn]:
        console.print(line, soft_wrap=True, markup=False)
    refused = [f"{what}: {found['problem']}" for what, found in _all(result) if found["refused"]]
    if refused:
        raise Refused("not reported: " + "; ".join(refused))


def _all(result: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every measurement, and what of, in words."""
    for axis, points in result.get("axes", {}).items():
        yield from ((f"ours at {axis} = {point[axis]:,}", point) for point in points)
    for name, graph in result.get("graphs", {}).items():
        for part in PARTS:
            for version, measured in graph[part]["versions"].items():
                yield f"{version} ({part}) on {name}", measured


def notes(result: dict[str, Any]) -> list[str]:
    """What the tables leave out: preparation, bandwidth, where the graphs come from."""
    about = f"{result['environment']['device']}; ours: backend '{result['backend']}'; "
    about += f"medians of {result['rounds']} rounds"
    if "axes" in result:
        return [about]
    lines = [
        about + ", all versions in turns",
        f"copy bandwidth: {result['copy_bytes_per_second'] / 1e9:.0f} GB/s, read and written",
        "peak: beyond features, graph and masks; our epoch includes its metrics",
    ]
    for name, graph in result["graphs"].items():
        parts = graph["preparation_seconds"]
        spent = ", ".join(f"{part} {seconds:.2f} s" for part, seconds in parts.items())
        lines.append(f"{name}: prepared in {sum(parts.values()):.2f} s ({spent}); {graph['note']}")
    return lines


def _version_tables(result: dict[str, Any]) -> Iterator[Table]:
    """Versions of each part on every graph, ours first."""
    for part, title in PARTS.items():
        columns = [*COLUMNS, "of copy"] if part == "operator" else COLUMNS
        table = _table(title, columns, words=2)
        for name, graph in result["graphs"].items():
            table.add_section()
            if graph[part]["problem"]:
                table.add_row(name, "-", graph[part]["problem"])
            for version, measured in graph[part]["versions"].items():
                table.add_row(name, version, *_cells(measured)[: len(columns) - 2])
                name = ""  # once is enough
        if len(result["graphs"]) > 1:
            table.add_section()
            for version, mean in result["mean_ratio"][part].items():
                table.add_row("mean", version, "", f"{mean:.2f}")
        yield table


def _scaling_tables(result: dict[str, Any]) -> Iterator[Table]:
    """A table for each axis."""
    for axis, points in result["axes"].items():
        title = f"our operator over {axis}, forward and backward"
        table = _table(title, (*SIZES, "ms", "peak MB", "error"))
        for point in points:
            time, _, peak, error, _ = _cells(point)
            table.add_row(*(f"{point[size]:,}" for size in SIZES), time, peak, error)
        yield table


def _table(title: str, columns: Sequence[str], words: int = 0) -> Table:
    """An empty table whose first columns hold words, the others numbers."""
    from rich.table import Table

    table = Table(title=title)
    for place, column in enumerate(columns):
        number = place >= words
        table.add_column(column, justify="right" if number else "left", no_wrap=number)
    return table


def _cells(measured: dict[str, Any]) -> list[str]:
    """Time, ratio, peak, error and share of the copy bandwidth; a dash for what is not known."""
    if measured["problem"]:
        return [measured["problem"].split(":")[0], "-", "-", "-", "-"]
    return [
        _shown(measured["median"], "{:.3g}" if measured["median"] < 100 else "{:.0f}"),
        _shown(measured.get("ratio"), "{:.2f}"),
        _shown(measured["peak_bytes"] and measured["peak_bytes"] / 1e6, "{:,.1f}"),
        _shown(measured["relative_error"], "{:.0e}"),
        _shown(measured.get("copy_share"), "{:.0%}"),
    ]


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


# ------------------------------------------------------------------------------------------ plots


def _plot(result: dict[str, Any], path: Path) -> str:
    """Draw the result; -> what became of it."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "no plot: matplotlib is not installed (pip install 'subtree-attention[plot]')"
    if "axes" in result:
        figure = Figure(figsize=(3.6 * len(result["axes"]), 6), layout="constrained")
        _draw_scaling(figure, result["axes"])
    else:
        width = max(8.0, 2.2 * len(result["graphs"]))
        figure = Figure(figsize=(width, 8), layout="constrained")
        colours: dict[str, Any] = {}  # a version has the same in both panels
        for place, part in enumerate(PARTS, start=1):
            _draw_bars(figure.add_subplot(2, 1, place), part, result["graphs"], colours)
    figure.savefig(path, dpi=150)
    return f"drawn in {path}"


def _draw_bars(panel: Axes, part: str, graphs: dict[str, Any], colours: dict[str, Any]) -> None:
    """A group of bars for each graph; versions without a colour get the next one."""
    from matplotlib import colormaps

    names = list(dict.fromkeys(v for graph in graphs.values() for v in graph[part]["versions"]))
    width = 0.8 / max(1, len(names))
    for index, name in enumerate(names):
        found = [graph[part]["versions"].get(name, {}).get("median") for graph in graphs.values()]
        bars = [(place, median) for place, median in enumerate(found) if median]
        places = [place + (index - (len(names) - 1) / 2) * width for place, _ in bars]
        colour = colours.setdefault(name, colormaps["tab20"](len(colours) % 20))
        panel.bar(places, [median for _, median in bars], width, label=name, color=colour)
    panel.set_yscale("log")
    panel.set_ylabel("ms")
    panel.set_title(PARTS[part])
    panel.set_xticks(range(len(graphs)), list(graphs))
    if names:
        panel.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    panel.grid(axis="y", alpha=0.3)


def _draw_scaling(figure: Figure, axes: dict[str, Any]) -> None:
    """A column for each axis, time above and memory below."""
    rows = (("median", 1, "ms"), ("peak_bytes", 1e6, "peak MB"))
    for row, (quantity, unit, label) in enumerate(rows):
        for column, (axis, points) in enumerate(axes.items(), start=1):
            panel = figure.add_subplot(2, len(axes), row * len(axes) + column)
            done = [point for point in points if point[quantity]]
            heights = [point[quantity] / unit for point in done]
            panel.loglog([point[axis] for point in done], heights, "o-")
            panel.set_xlabel(axis)
            panel.set_ylabel(label)
            panel.grid(alpha=0.3)
