"""Which classes are taken for which, as a picture."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from io import BytesIO

import numpy as np


def shares(confusion: np.ndarray) -> np.ndarray:
    """Counts [C, C] as shares of their row, the true class."""
    return confusion / np.maximum(confusion.sum(1, keepdims=True), 1)


def draw(confusion: np.ndarray, classes: Sequence[str], title: str) -> bytes | None:
    """The confusion matrix as a PNG, rows scaled to shares; None without matplotlib."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as plt
    except ImportError:
        return None
    share = shares(confusion)
    size = 3 + 0.35 * min(len(classes), 40)
    with plt.style.context("default"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # names in any script
        figure, axes = plt.subplots(figsize=(size + 1, size), layout="constrained")
        image = axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
        figure.colorbar(image, label="share of the true class", shrink=0.8)
        axes.set(xlabel="predicted", ylabel="true", title=title)
        if len(classes) <= 40:
            names = [name if len(name) <= 20 else name[:19] + "…" for name in classes]
            names = [name.replace("$", r"\$") for name in names]  # no formula of ours
            axes.set_xticks(range(len(names)), names, rotation=90)
            axes.set_yticks(range(len(names)), names)
        if len(classes) <= 15:
            for (i, j), nodes in np.ndenumerate(confusion):
                ink = "white" if share[i, j] > 0.5 else "black"
                axes.text(j, i, f"{nodes:,}", ha="center", va="center", color=ink, fontsize=8)
        content = BytesIO()
        figure.savefig(content, format="png", dpi=120)
        plt.close(figure)
    return content.getvalue()
