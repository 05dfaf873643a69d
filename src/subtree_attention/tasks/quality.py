"""How good a finished model is on some nodes, as a person asks: scores and the confusion matrix."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from .calibration import calibration_error, softmax


@dataclass(frozen=True)
class Quality:
    """Scores on some nodes, between 0 and 1.

    Attributes:
        accuracy: share of nodes whose class is right.
        macro_f1: mean over classes of the harmonic mean of precision and recall.
        roc_auc: of the second of two classes; of more, the mean of each against the rest, over
            classes that occur. NaN where no class can be told from another.
        calibration_error: how far confidence is from accuracy, see `calibration`.
        confusion: [C, C], nodes by true class (rows) and predicted class.
    """

    accuracy: float
    macro_f1: float
    roc_auc: float
    calibration_error: float
    confusion: np.ndarray


def quality(logits: np.ndarray, labels: np.ndarray) -> Quality:
    """The scores of logits [n, C] of nodes with labels [n]."""
    from sklearn.metrics import confusion_matrix, f1_score  # here: a second of every start

    probabilities, predicted = softmax(logits), logits.argmax(1)
    classes = np.arange(logits.shape[1])
    return Quality(
        accuracy=float((predicted == labels).mean()),
        macro_f1=float(f1_score(labels, predicted, average="macro", zero_division=0)),
        roc_auc=_roc_auc(probabilities, labels),
        calibration_error=calibration_error(probabilities, labels),
        confusion=confusion_matrix(labels, predicted, labels=classes),
    )


def _roc_auc(probabilities: np.ndarray, labels: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    columns = [1] if probabilities.shape[1] == 2 else np.unique(labels).tolist()
    areas = [
        roc_auc_score(labels == column, probabilities[:, column])
        for column in columns
        if 0 < (labels == column).sum() < len(labels)
    ]
    return float(np.mean(areas)) if areas else float("nan")


def most_confused(confusion: np.ndarray, count: int) -> list[tuple[int, int, int]]:
    """(true class, predicted class, nodes) of the most frequent mistakes."""
    wrong = confusion.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:count]
    pairs = zip(*np.unravel_index(order, wrong.shape), strict=True)
    return [(int(i), int(j), int(wrong[i, j])) for i, j in pairs if wrong[i, j]]


def draw_confusion(confusion: np.ndarray, classes: list[str], title: str) -> bytes | None:
    """The confusion matrix as a PNG, rows scaled to shares; None without matplotlib."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as plt
    except ImportError:
        return None
    from io import BytesIO

    share = confusion / np.maximum(confusion.sum(1, keepdims=True), 1)
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
