"""The picture of the README: what a handwritten digit attends to, level by level.

    sta train digits --runs 1 --out runs/picture
    python examples/picture.py runs/picture docs/assets/subtree.png

Each row is a level of the rooted subtree; a digit's size is the attention it gets (mean over
heads), its colour its class. Lines are edges of the nearest-neighbour graph.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from scipy.ndimage import zoom
from sklearn.datasets import load_digits
from torch import Tensor
from torch_geometric.data import Data

import subtree_attention as sta

HOPS, WIDTH = 3, 15  # levels below the root, digits in a row
INK, PAPER = "#22252f", "#fbfaf7"
COLOURS = plt.get_cmap("tab10").colors


def mixed_neighbourhood(logits: Tensor, data: Data) -> int:
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


def draw(root: int, levels: list[Tensor], sentence: str, data: Data, out: Path) -> None:
    """Draw the levels below the root; `levels` are weights [N] each."""
    images, labels, places = load_digits().images, data.y.tolist(), place(levels)
    figure, axes = plt.subplots(figsize=(12.5, 6.6), facecolor=PAPER)
    axes.set(xlim=(-WIDTH / 2 - 2.1, WIDTH / 2), ylim=(-HOPS - 0.45, 0.75))
    axes.axis("off")
    axes.text(-WIDTH / 2 - 2, 0.62, sentence, color=INK, fontsize=13, va="top", linespacing=1.5)

    edges = set(map(tuple, data.edge_index.t().tolist()))
    for (level, node), x in places.items():
        for (below, other), x_other in places.items():
            if below == level + 1 and (other, node) in edges:
                share = float(levels[below][other] / levels[below].max())
                colour, alpha = COLOURS[labels[other]], 0.05 + 0.3 * share
                axes.plot(
                    [x, x_other], [-level, -below], color=colour, alpha=alpha, lw=1.2, zorder=1
                )
    for (level, node), x in places.items():
        share = float(levels[level][node] / levels[level].max())
        size = 0.85 if level == 0 else 0.25 + 0.42 * share
        scan = tinted(images[node], COLOURS[labels[node]])
        image = OffsetImage(scan, zoom=size)
        axes.add_artist(AnnotationBbox(image, (x, -level), frameon=False))
    for level, weights in enumerate(levels[1:], start=1):
        shown = float(weights.topk(WIDTH).values.sum())
        left = -WIDTH / 2 - 2
        axes.text(left, 0.06 - level, f"hop {level}", color=INK, fontsize=13, weight="bold")
        note = f"{int((weights > 0).sum())} digits reached;\nthese get {shown:.0%} of it"
        axes.text(left, 0.01 - level, note, color=INK, alpha=0.7, fontsize=9, va="top")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110, bbox_inches="tight", facecolor=PAPER)
    print(f"root {root}, written to {out}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--root", type=int)
    arguments = parser.parse_args()
    model, data = sta.load(arguments.run), sta.load_data(arguments.run)
    graph = sta.Graph(data.edge_index, data.num_nodes)
    with torch.no_grad():
        logits = model(data.x, graph)
    root = mixed_neighbourhood(logits, data) if arguments.root is None else arguments.root
    levels = [model.attention(data.x, graph, root, hop).mean(1) for hop in range(HOPS + 1)]
    label, guess = int(data.y[root]), int(logits[root].argmax())
    confidence = float(logits[root].softmax(-1)[guess])
    sentence = (
        f"A handwritten {label} and its rooted subtree.\nSize is attention, colour is the class.\n"
        f"STAGNN says {guess} ({confidence:.0%})."
    )
    draw(root, levels, sentence, data, arguments.out)


if __name__ == "__main__":
    main()
