"""The tables and the picture of what `faithfulness.py` measured, from its files.

    python -m experiments.benchmarks.faithfulness_picture results --out results/faithfulness

It reads `faithfulness-*.json` in that folder, prints tables in Markdown, and writes the picture as
.svg and .png.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.benchmarks.faithfulness import ENDINGS, OCCLUSION
from experiments.benchmarks.rankings import KINDS
from experiments.benchmarks.script import parser
from experiments.reproduce.drawing import INK, PAPER, SHADE, SOFT, canvas, finish, look
from experiments.reproduce.records import OURS, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, LINE, HEAD = 8.5, 0.2, 0.7  # inches: of the picture, of a method, of a panel's title
MARKERS = ("o", "D")
NOTE = (
    "filled: by labels, hollow: by probabilities; blue: ours, * chosen on validation nodes\n"
    "line: occlusion by labels; at the right, seconds of one core for an explanation (median)"
)


def main() -> None:
    arguments = parser(__doc__, "folder").parse_args()
    files = sorted(Path(arguments.folder).glob("faithfulness-*.json"), reverse=True)  # Cora first
    given = [json.loads(file.read_text()) for file in files]
    results = {kind: [each for each in given if each["kind"] == kind] for kind in KINDS}
    for kind in KINDS:
        print("\n".join(table(results[kind])), end="\n\n")
    for path in draw(results, arguments.out):
        print(f"written to {path}")


def table(results: list[dict[str, Any]]) -> list[str]:
    """A row for each method, the best first, in Markdown."""
    heads = "".join(f" {title(result['graph'])} | by probability | seconds |" for result in results)
    lines = [f"| {results[0]['kind']} |{heads}", "|---|" + "---|" * 3 * len(results)]
    for name in ordered(results):
        cells = ""
        for result in results:
            row, bold = result["methods"][name], result["chosen"] == name
            plus, minus, score = (row[key] for key in ("fid+", "fid-", "characterisation"))
            said = f"**{score:.2f}**" if bold else f"{score:.2f}"
            cells += f" {said} ({plus:.2f}, {minus:.2f}) |"
            took = seconds(row["seconds"])
            if name == OCCLUSION:
                took += f" (by passes {seconds(result['occlusion_by_passes']['seconds'])})"
            cells += f" {row['characterisation_probability']:.2f} | {took} |"
        lines.append(f"| {name} |{cells}")
    return lines


def ordered(results: list[dict[str, Any]]) -> list[str]:
    """The methods, by the mean of all their characterisations."""

    def mean(name: str) -> float:
        rows = (result["methods"][name] for result in results)
        return sum(row[f"characterisation{ending}"] for row in rows for ending in ENDINGS)

    return sorted(results[0]["methods"], key=mean, reverse=True)


def seconds(value: float) -> str:
    return f"{1e3 * value:.2g} ms" if value < 0.0995 else f"{value:.2g} s"


def is_ours(name: str) -> bool:
    return name.startswith(("Flows", "Contributions"))


def draw(results: dict[str, list[dict[str, Any]]], path: Path) -> list[Path]:
    """A row of panels for each kind, a panel for each graph; -> the files."""
    heights = [HEAD + LINE * len(results[kind][0]["methods"]) for kind in KINDS]
    columns = len(results[KINDS[0]])
    with canvas(WIDTH, sum(heights) + HEAD) as figure:
        grid = figure.subplots(len(KINDS), columns, squeeze=False, height_ratios=heights)
        for row, kind in zip(grid, KINDS, strict=True):
            names = ordered(results[kind])
            for place, (panel, result) in enumerate(zip(row, results[kind], strict=True)):
                _panel(panel, names, result)
                panel.set_title(f"{title(result['graph'])}, {result['top']} {kind}")
                panel.set_xlabel("characterisation")
                panel.set_yticks(range(len(names)), names if not place else [""] * len(names))
        return finish(figure, path, NOTE)


def _panel(panel: Axes, names: list[str], result: dict[str, Any]) -> None:
    bar = result["methods"][OCCLUSION]["characterisation"]
    panel.axvline(bar, color=SOFT, linewidth=0.8, linestyle="--", zorder=0)
    for place, name in enumerate(names):
        row, ours = result["methods"][name], is_ours(name)
        colour = look(OURS).colour if ours else SOFT
        values = [row[f"characterisation{ending}"] for ending in ENDINGS]
        panel.plot(values, [place, place], color=colour, linewidth=0.8)
        for value, marker, fill in zip(values, MARKERS, (colour, PAPER), strict=True):
            style: Any = {"markerfacecolor": fill, "markeredgecolor": colour, "markersize": 5}
            panel.plot([value], [place], marker, **style)
        star = " *" if name == result["chosen"] else ""
        right: Any = {"transform": panel.get_yaxis_transform(), "ha": "left", "va": "center"}
        ink, took = INK if ours else SOFT, seconds(row["seconds"]) + star
        panel.text(1.01, place, took, color=ink, fontsize=8, **right)
    panel.set_ylim(len(names) - 0.5, -0.5)  # the first on top
    panel.set_xlim(left=0)
    panel.grid(axis="x", color=SHADE, linewidth=0.8)
    panel.set_axisbelow(True)


if __name__ == "__main__":
    main()
