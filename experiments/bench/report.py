"""What is left of a benchmark: tables on the terminal, a JSON file, and a picture beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.reproduce.drawing import SHADE, canvas, finish, line, logarithmic, look
from experiments.reproduce.records import OURS
from subtree_attention.io import write_json

if TYPE_CHECKING:
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
    for text in [*notes(result), f"written to {path}", _drawn(result, path)]:
        console.print(text, soft_wrap=True, markup=False)
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


def _drawn(result: dict[str, Any], path: Path) -> str:
    """Draw the result; -> what became of it."""
    try:
        return f"drawn in {' and '.join(map(str, draw(result, path)))}"
    except ModuleNotFoundError as missing:
        return f"no plot: {missing}"


def draw(result: dict[str, Any], path: Path) -> list[Path]:
    """Draw a result of `compare` or `scale` beside the file `path`: as SVG and as PNG."""
    about = f"{result['environment']['device']}; medians of {result['rounds']} rounds"
    drawn = _draw_scaling if "axes" in result else _draw_versions
    return drawn(result, path.with_suffix(""), about)


def _draw_versions(result: dict[str, Any], path: Path, about: str) -> list[Path]:
    """A panel for each part, in it a row for each graph and a mark for each version."""
    graphs = result["graphs"]
    names = dict.fromkeys(v for g in graphs.values() for part in PARTS for v in g[part]["versions"])
    with canvas(7.2, 0.36 * len(graphs) + 2.4) as figure:
        panels = figure.subplots(1, len(PARTS), sharey=True)
        for panel, part in zip(panels, PARTS, strict=True):
            for name in names:
                found = [graph[part]["versions"].get(name, {}) for graph in graphs.values()]
                marks = [
                    (each["median"], row) for row, each in enumerate(found) if each.get("median")
                ]
                if marks:
                    panel.plot(*zip(*marks, strict=True), label=name, **_look(name))
            logarithmic(panel, "x")
            panel.set_title("\n".join(PARTS[part].split(": " if ":" in PARTS[part] else ", ")))
            panel.set_xlabel("ms")
            panel.grid(axis="x", color=SHADE)
            for row in range(len(graphs)):
                panel.axhline(row, color=SHADE, linewidth=0.8, zorder=0)
        panels[0].set_yticks(range(len(graphs)), list(graphs))
        panels[0].set_ylim(len(graphs) - 0.5, -0.5)  # the first on top
        return finish(figure, path, about, list(names))


MODELS = {"ours": OURS, "edge-wise": "STAGNN edge-wise", "GCN on our parts": "GCN"}
"""Whose colour a version has, where that is not its name."""
WAYS = {"captured": "D", "bfloat16 states": "s", "at once": "*", "torch": "X", "numba": "P"}
"""How the name of another way to run a model ends, and its mark: hollow."""


def _look(version: str) -> dict[str, Any]:
    name = version.replace("backend", "ours, backend").removeprefix("PyG ")
    model = name.partition(",")[0]
    style = look(MODELS.get(model, model))
    mark: dict[str, Any] = {"marker": style.marker, "color": style.colour, "linestyle": "none"}
    mark |= {"markersize": 6.5, "markeredgewidth": 1.3}
    for ending, marker in WAYS.items():
        if name.endswith(ending):
            mark |= {"marker": marker, "markerfacecolor": "none"}
    return mark


def _draw_scaling(result: dict[str, Any], path: Path, about: str) -> list[Path]:
    """A column for each axis, time above and memory below."""
    axes = result["axes"]
    rows = (("median", 1, "ms"), ("peak_bytes", 1e6, "peak MB"))
    with canvas(2.4 * len(axes), 4.6) as figure:
        for row, (quantity, unit, label) in enumerate(rows):
            for column, (axis, points) in enumerate(axes.items(), start=1):
                panel = figure.add_subplot(len(rows), len(axes), row * len(axes) + column)
                done = [point for point in points if point[quantity]]
                line(
                    panel,
                    [point[axis] for point in done],
                    [point[quantity] / unit for point in done],
                    OURS,
                )
                for name in "xy":
                    logarithmic(panel, name)
                panel.set_xlabel(axis)
                panel.grid(color=SHADE)
                if column == 1:
                    panel.set_ylabel(label)
        return finish(figure, path, about)
