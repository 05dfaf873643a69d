"""The picture of the README: what a handwritten digit attends to, level by level.

    sta train digits --runs 1 --out runs/picture
    python examples/picture.py runs/picture docs/assets/subtree

writes subtree-light.png and subtree-dark.png. Each row is a level of the rooted subtree; a digit's
size is the attention it gets (mean over heads), its colour its class. Lines are edges of the
nearest-neighbour graph.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from scipy.ndimage import zoom
from sklearn.datasets import load_digits
from torch import Tensor

import subtree_attention as sta
from subtree_attention.show import colours

HOPS, WIDTH = 3, 15  # levels below the root, digits in a row
LEFT = -WIDTH / 2 - 2  # where texts begin
MODES = ("light", "dark")


@dataclass(frozen=True)
class Pens:
    """The colours of a light or dark page."""

    mode: str

    def __getitem__(self, name: str) -> tuple[float, float, float]:
        return to_rgb(colours.literal()[name][MODES.index(self.mode)])

    def of_classes(self, labels: set[int]) -> dict[int, tuple[float, float, float]]:
        """A colour for each class that is to be seen."""
        return {
            label: self[f"class-{number % colours.CLASSES}"]
            for number, label in enumerate(sorted(labels))
        }


def mixed_neighbourhood(logits: Tensor, data: sta.Dataset) -> int:
    """A digit that is recognised although most of its neighbours belong to other classes."""
    source, target = data.edge_index
    same = (data.y[source] == data.y[target]).float()
    degree = torch.zeros(data.num_nodes).index_add(0, target, torch.ones_like(same))
    alike = torch.zeros(data.num_nodes).index_add(0, target, same) / degree
    right = logits.argmax(-1) == data.y
    return int(torch.where(right & (degree >= WIDTH), alike, torch.inf).argmin())


def place(levels: list[Tensor]) -> dict[tuple[int, int], float]:
    """(level, node) -> x; the most attended node of a level stands in the middle."""
    places = {}
    for level, weights in enumerate(levels):
        top = weights.topk(WIDTH if level else 1).indices.tolist()
        for rank, node in enumerate(node for node in top if weights[node] > 0):
            places[level, node] = (rank + 1) // 2 * (-1.0 if rank % 2 else 1.0)
    return places


def tinted(image: np.ndarray, colour: tuple[float, float, float]) -> np.ndarray:
    """A scan [8, 8] as RGBA: ink in the colour of its class, on transparent paper."""
    ink = np.clip((zoom(image, 8, order=3) / 16 - 0.3) * 2, 0, 1)
    return np.dstack([*(np.full_like(ink, channel) for channel in colour), ink])


def draw(
    root: int, levels: list[Tensor], sentence: str, data: sta.Dataset, pens: Pens, out: Path
) -> None:
    """Draw the levels below the root; `levels` are weights [N] each."""
    labels, places = data.y.tolist(), place(levels)
    inks = pens.of_classes({labels[node] for _, node in places})
    figure, axes = plt.subplots(figsize=(12.5, 7))
    axes.set(xlim=(LEFT - 0.1, WIDTH / 2), ylim=(-HOPS - 0.95, 0.75))
    axes.axis("off")
    axes.text(LEFT, 0.62, sentence, color=pens["ink"], fontsize=13, va="top", linespacing=1.5)

    edges = set(map(tuple, data.edge_index.t().tolist()))
    for (level, node), x in places.items():
        for (below, other), x_other in places.items():
            if below == level + 1 and (other, node) in edges:
                share = float(levels[below][other] / levels[below].max())
                stroke = {"color": inks[labels[other]], "alpha": 0.08 + 0.3 * share}
                axes.plot([x, x_other], [-level, -below], lw=1.2, zorder=1, **stroke)
    for (level, node), x in places.items():
        share = float(levels[level][node] / levels[level].max())
        size = 0.85 if level == 0 else size_of(share)
        digit(axes, (x, -level), node, inks[labels[node]], size)
    for level, weights in enumerate(levels[1:], start=1):
        shown = float(weights.topk(WIDTH).values.sum())
        axes.text(LEFT, 0.06 - level, f"hop {level}", color=pens["ink"], fontsize=13, weight="bold")
        note = f"{int((weights > 0).sum())} digits reached;\nthese get {shown:.0%} of it"
        axes.text(LEFT, 0.01 - level, note, color=pens["quiet"], fontsize=9, va="top")
    key(axes, root, inks, pens)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110, bbox_inches="tight", transparent=True)
    plt.close(figure)
    print(f"root {root}, written to {out}")


def size_of(share: float) -> float:
    """How large a digit is that gets this share of what the first of its level gets."""
    return 0.25 + 0.42 * share


def digit(
    axes: Axes, at: tuple[float, float], node: int, colour: tuple[float, ...], size: float
) -> None:
    image = OffsetImage(tinted(load_digits().images[node], colour), zoom=size)
    axes.add_artist(AnnotationBbox(image, at, frameon=False))


def key(axes: Axes, root: int, inks: dict[int, tuple[float, ...]], pens: Pens) -> None:
    """What colour, size, rows and lines mean."""
    height, text = -HOPS - 0.75, {"color": pens["ink"], "fontsize": 11, "va": "center"}
    axes.axhline(height + 0.28, color=pens["line"], lw=1)
    axes.text(LEFT, height, "colour: class", **text)
    for column, (label, ink) in enumerate(inks.items()):
        at = LEFT + 2.4 + 0.65 * column
        axes.plot(at, height, "o", color=ink, markersize=11)
        axes.text(at + 0.2, height, str(label), **text)
    middle = LEFT + 3.0 + 0.65 * len(inks)
    axes.text(middle, height, "size: attention", **text)
    for column, share in enumerate((0.0, 0.5, 1.0)):
        digit(axes, (middle + 2.6 + 0.65 * column, height), root, pens["quiet"], size_of(share))
    axes.text(middle + 4.6, height, "rows: hops from the root;  lines: edges", **text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--root", type=int)
    arguments = parser.parse_args()
    run = sta.open(arguments.run, device="cpu")
    model, graph, data = run.model, run.graph, run.dataset
    logits = torch.as_tensor(run.logits)
    root = mixed_neighbourhood(logits, data) if arguments.root is None else arguments.root
    levels = [model.attention(data.features, graph, root, hop).mean(1) for hop in range(HOPS + 1)]
    label, guess = int(data.y[root]), int(logits[root].argmax())
    confidence = float(logits[root].softmax(-1)[guess])
    sentence = (
        f"A handwritten {label} and its rooted subtree.\nSTAGNN says {guess} ({confidence:.0%})."
    )
    for mode in MODES:
        out = arguments.out.with_name(f"{arguments.out.name}-{mode}.png")
        draw(root, levels, sentence, data, Pens(mode), out)


if __name__ == "__main__":
    main()
