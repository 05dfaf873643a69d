"""What is left of a benchmark: tables on the terminal, a JSON file, and a plot beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from subtree_attention.runs.folder import write_json

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
    scaled = "axes" in result
    tables = _scaling_tables(result) if scaled else [_table(part, result) for part in PARTS]
    for table in tables:
        console.print(table)
    for line in notes(result):
        console.print(line, soft_wrap=True, markup=False)
    write_json(path, result)
    console.print(f"written to {path}", soft_wrap=True, markup=False)
    console.print(_plot(result, path.with_suffix(".png")), soft_wrap=True, markup=False)
    refused = _refused_points(result) if scaled else _refused_versions(result)
    if refused:
        raise Refused("not reported: " + "; ".join(refused))


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


def _table(part: str, result: dict[str, Any]) -> Table:
    """Versions of one part on every graph, ours first."""
    from rich.table import Table

    columns = [*COLUMNS, "of copy"] if part == "operator" else list(COLUMNS)
    table = Table(title=PARTS[part])
    for column in columns[:2]:
        table.add_column(column)
    for column in columns[2:]:
        table.add_column(column, justify="right", no_wrap=True)
    for name, graph in result["graphs"].items():
        table.add_section()
        if graph[part]["problem"]:
            table.add_row(name, "-", graph[part]["problem"])
        for version, measured in graph[part]["versions"].items():
            table.add_row(name, version, *_cells(measured)[: len(columns) - 2])
            name = ""  # once is enough
    means = result["mean_ratio"][part]
    if len(result["graphs"]) > 1 and means:
        table.add_section()
        for version, mean in means.items():
            table.add_row("mean", version, "", f"{mean:.2f}")
    return table


def _cells(measured: dict[str, Any]) -> list[str]:
    """Time, ratio, peak, error and share of the copy bandwidth; a dash for what is not known."""
    if measured["problem"]:
        return [measured["problem"].split(":")[0], "-", "-", "-", "-"]
    return [
        _shown(measured["median"], "{:.3g}" if measured["median"] < 100 else "{:.0f}"),
        _shown(measured["ratio"], "{:.2f}"),
        _shown(measured["peak_bytes"] and measured["peak_bytes"] / 1e6, "{:,.1f}"),
        _shown(measured["relative_error"], "{:.0e}"),
        _shown(measured.get("copy_share"), "{:.0%}"),
    ]


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _scaling_tables(result: dict[str, Any]) -> list[Table]:
    """A table for each axis."""
    from rich.table import Table

    tables = []
    for axis, points in result["axes"].items():
        table = Table(title=f"our operator over {axis}, forward and backward")
        for column in (*SIZES, "ms", "peak MB", "error"):
            table.add_column(column, justify="right")
        for point in points:
            time, _, peak, error, _ = _cells({**point, "ratio": None})
            table.add_row(*(f"{point[size]:,}" for size in SIZES), time, peak, error)
        tables.append(table)
    return tables


# -------------------------------------------------------------------------------- what is refused


def _refused_versions(result: dict[str, Any]) -> list[str]:
    """What was refused on which graph, in words."""
    return [
        f"{version} ({part}) on {name}: {measured['problem']}"
        for name, graph in result["graphs"].items()
        for part in PARTS
        for version, measured in graph[part]["versions"].items()
        if measured["refused"]
    ]


def _refused_points(result: dict[str, Any]) -> list[str]:
    return [
        f"ours at {axis} = {point[axis]:,}: {point['problem']}"
        for axis, points in result["axes"].items()
        for point in points
        if point["refused"]
    ]


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
