"""Findings as one HTML file. Whatever comes from the user's data is escaped by the template."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ... import __version__
from ...runs import folder as store
from ...tasks.quality import most_confused
from . import words
from .charts import Line, chart, spread
from .findings import Findings

CLASSES_SHOWN = 30
"""Classes up to which the confusion matrix is a table; of more, the worst pairs are listed."""
PAIRS_SHOWN = 20
COLUMNS_SHOWN = 200


def check_target(path: Path, force: bool) -> None:
    """Refuse a file that cannot or must not be written, before any work is done."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{path}: a report is written as .html")
    store.check_free(path, force)


def write(findings: Findings, path: Path, force: bool = False) -> None:
    """Write the page, all or nothing."""
    check_target(path, force)
    store.write_bytes(path, render(findings).encode())


def render(findings: Findings) -> str:
    """The page."""
    environment = Environment(
        loader=PackageLoader("subtree_attention", "show/report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": _percent, "signed": _signed, "heat": _heat}
    metric = words.METRICS[findings.config.metric]
    return environment.get_template("template.html").render(
        found=findings,
        words=words.describe(findings.config, findings.sizes),
        metric=metric,
        title=metric[0].upper() + metric[1:],
        curves=_curves(findings),
        reliability=_reliability(findings),
        confusion=_confusion(findings),
        hop_weights=_scaled(findings.hop_weights),
        gates=_scaled(findings.gates),
        columns_shown=COLUMNS_SHOWN,
        version=__version__,
    )


# ------------------------------------------------------------------------------ numbers and text


def _visible(value: Any) -> Any:
    """Text without what cannot be seen: it could turn a line round or hide a part of it."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in value)


def _percent(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{100 * value:.2f}"


def _signed(value: float) -> str:
    return f"{value:+.3f}"


def _heat(share: float) -> int:
    """0 .. 1 as the percentage of colour in a cell; text stays legible on the fullest."""
    return round(60 * min(max(share, 0.0), 1.0))


# ---------------------------------------------------------------------------- charts and tables


def _curves(findings: Findings) -> dict[str, Markup]:
    epochs = findings.curves
    x = (min(epochs[0].epoch, 1), max(epochs[-1].epoch, 2))
    best = findings.best.best_epoch
    losses = [(epoch.epoch, epoch.loss) for epoch in epochs]
    scores = [
        Line(name, f"--{name}", [(epoch.epoch, getattr(epoch, name)) for epoch in epochs])
        for name in ("train", "val", "test")
    ]
    seen = [value for line in scores for _, value in line.points]
    return {
        "loss": chart(
            "training loss by epoch",
            [Line("loss", "--train", losses)],
            x,
            spread([loss for _, loss in losses]),
            "epoch",
            mark=best,
        ),
        "scores": chart(
            "scores by epoch", scores, x, spread(seen), "epoch", percent=True, mark=best
        ),
    }


def _reliability(findings: Findings) -> Markup:
    lines = [
        Line(name, color, [(100 * bin.confidence, 100 * bin.accuracy) for bin in bins], dots=True)
        for name, color, bins in zip(
            ("before", "after"), ("--before", "--after"), findings.bins, strict=True
        )
    ]
    return chart(
        "accuracy by confidence, before and after the temperature",
        lines,
        (0, 100),
        (0, 100),
        "confidence (%)",
        diagonal=True,
    )


def _confusion(findings: Findings) -> dict[str, Any]:
    """Counts with the share of their row; or the worst pairs where there are many classes."""
    counts, classes = findings.quality.confusion, findings.classes
    if len(classes) > CLASSES_SHOWN:
        pairs = most_confused(counts, PAIRS_SHOWN)
        return {"pairs": [(classes[i], classes[j], nodes) for i, j, nodes in pairs]}
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    rows = [list(zip(*both, strict=True)) for both in zip(counts.tolist(), shares, strict=True)]
    return {"rows": list(zip(classes, rows, strict=True))}


def _scaled(table: np.ndarray | None) -> list[list[tuple[float, float]]] | None:
    """(value, share of the largest) of each hop and head."""
    if table is None:
        return None
    shares = np.abs(table) / (np.abs(table).max() or 1.0)
    return [list(zip(*both, strict=True)) for both in zip(table.tolist(), shares, strict=True)]
