"""Charts of single results, from the committed files alone: `python -m experiments charts`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.reproduce.drawing import (
    SHADE,
    SOFT,
    STEPS,
    canvas,
    finish,
    logarithmic,
    look,
)
from experiments.reproduce.records import OURS, title
from subtree_attention.io import read_json

RESULTS = Path("results")
WAYS = {"whole": ("the whole graph", STEPS[0]), "sampled": ("samples", look(OURS).colour)}


def draw(results: Path = RESULTS) -> list[Path]:
    """Write all charts into `results`/charts; -> the files."""
    return [
        file
        for name, (source, chart) in CHARTS.items()
        for file in chart(read_json(results / source), results / "charts" / name)
    ]


def _epochs(found: dict[str, Any], path: Path) -> list[Path]:
    """An epoch of ours and of PyG's GCN: two marks a graph, the slowest GCN on top."""
    rows = sorted(found["graphs"].items(), key=lambda row: -row[1]["PyG GCN"]["median"])
    with canvas(6.4, 0.3 * len(rows) + 1.3) as figure:
        panel = figure.subplots()
        for place, (_, row) in enumerate(rows):
            ends = [row[name]["median"] for name in ("ours", "PyG GCN")]
            panel.plot(ends, [place, place], color=SHADE, linewidth=3, zorder=1)
        for name, model in (("ours", OURS), ("PyG GCN", "GCN")):
            style: dict[str, Any] = {"color": look(model).colour, "marker": look(model).marker}
            times = [row[name]["median"] for _, row in rows]
            panel.plot(times, range(len(rows)), linestyle="none", label=name, **style)
        logarithmic(panel, "x")
        panel.set_xlabel("ms an epoch, training step and evaluation")
        panel.set_yticks(range(len(rows)), [title(name) for name, _ in rows])
        panel.set_ylim(len(rows) - 0.5, -0.5)
        about = f"two cores; medians of {found['rounds']} rounds, in turns"
        return finish(figure, path, about, ["ours", "PyG GCN"])


def _sampled(found: dict[str, Any], path: Path) -> list[Path]:
    """Validation score over seconds, a panel for each graph."""
    names = {"planted": "made up, $10^6$ nodes"}
    with canvas(2.4 * len(found["graphs"]), 2.9) as figure:
        for place, (graph, each) in enumerate(found["graphs"].items(), start=1):
            panel = figure.add_subplot(1, len(found["graphs"]), place)
            for way, (label, colour) in WAYS.items():
                seconds = [point["seconds"] for point in each["curves"][way]]
                scores = [100 * point["val"] for point in each["curves"][way]]
                panel.plot(seconds, scores, color=colour, label=label, linewidth=1.6)
            panel.set_title(names.get(graph) or title(graph))
            panel.set_xlabel("seconds")
            panel.grid(color=SHADE)
            if place == 1:
                panel.set_ylabel("validation score, %")
        order = [label for label, _ in WAYS.values()]
        return finish(figure, path, "after every epoch; one run each, two cores", order)


def _estimate(found: dict[str, Any], path: Path) -> list[Path]:
    """What was said before training against what it was: seconds and memory."""
    parts = {"seconds": "seconds of an epoch", "mib": "memory, MiB"}
    models = {"stagnn": OURS, "staformer": "GraphGPS"}
    with canvas(6.4, 3.5) as figure:
        for panel, (part, words) in zip(figure.subplots(1, 2), parts.items(), strict=True):
            rows = [(name.split()[-1], row[part]) for name, row in found["found"].items()]
            numbers = [row[end] for _, row in rows for end in ("said", "taken")]
            ends = [min(numbers) / 1.5, max(numbers) * 1.5]
            panel.fill_between(ends, [e / 2 for e in ends], [2 * e for e in ends], color=SHADE)
            panel.plot(ends, ends, color=SOFT, linewidth=0.8)
            for model, style in models.items():
                here = [(row["said"], row["taken"]) for name, row in rows if name == model]
                mark: dict[str, Any] = {"marker": look(style).marker, "color": look(style).colour}
                places = zip(*here, strict=True)
                panel.plot(
                    *places,
                    linestyle="none",
                    label=model.upper().replace("FORMER", "Former"),
                    **mark,
                )
            for name in "xy":
                logarithmic(panel, name)
            panel.set_xlim(*ends)
            panel.set_ylim(*ends)
            panel.set_title(words)
            panel.set_xlabel("said before")
            panel.set_ylabel("taken")
        return finish(figure, path, "grey ground: within a factor of two", ["STAGNN", "STAFormer"])


Chart = Callable[[dict[str, Any], Path], list[Path]]
CHARTS: dict[str, tuple[str, Chart]] = {
    "epochs": ("epochs-cpu.json", _epochs),
    "sampled": ("sampled-cpu.json", _sampled),
    "estimate": ("estimate-cpu.json", _estimate),
}
"""Name -> the file in `results` that it shows, and what draws it."""
