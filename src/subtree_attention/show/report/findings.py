"""What a report tells, read from a run folder and computed from its best model; no markup here."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from ...datasets.tables.schema import TableNotes
from ...explanations import Explainer
from ...graph import Graph
from ...nn import STAGNN
from ...runs import folder as store
from ...runs.evaluate import load_data
from ...runs.folder import RunFolderError
from ...runs.predict import logits_of
from ...tasks.calibration import Bin, Calibration, calibrate, reliability, softmax
from ...tasks.quality import Quality, quality
from ...train.config import Config
from ...train.loop import choose_device
from ...train.run import Epoch
from ..explanation import Names

MISTAKES = 10
SOURCES = 5
"""Nodes that are named for each mistake."""


@dataclass(frozen=True)
class RunLine:
    """A run: its scores at its best epoch."""

    run: int
    seed: int
    train: float
    val: float
    test: float
    best_epoch: int
    epochs: int
    seconds: float


@dataclass(frozen=True)
class Mistake:
    """A test node that the model is wrong about, and the nodes that spoke most for its answer.

    Attributes:
        sources: id, label, split and what each adds to the logit of the predicted class.
    """

    id: str
    true: str
    predicted: str
    probability: float
    sources: list[dict[str, Any]]


@dataclass(frozen=True)
class Findings:
    """All of a report.

    Attributes:
        sizes: nodes, edges, features, classes, and nodes with a label.
        runs: every finished run.
        best: the run with the best validation score; what follows is about it alone.
        curves: its epochs.
        quality: of its test nodes, as are calibration, bins and mistakes.
        bins: confidence against accuracy, before and after the temperature.
        hop_weights: [K + 1, 1 or H], where the aggregation over hops has them.
        gates: [K + 1, H], where heads are gated.
        table: what was done with the columns of the user's own tables.
    """

    config: Config
    environment: dict[str, Any]
    sizes: dict[str, int]
    runs: list[RunLine]
    best: RunLine
    curves: list[Epoch]
    classes: list[str]
    quality: Quality
    calibration: Calibration
    bins: tuple[list[Bin], list[Bin]]
    hop_weights: np.ndarray | None
    gates: np.ndarray | None
    table: TableNotes | None
    mistakes: list[Mistake]
    wrong: int

    def summary(self, name: str) -> tuple[float, float | None]:
        """Mean and sample standard deviation of a score over the runs; no deviation of one run."""
        values = [getattr(run, name) for run in self.runs]
        return mean(values), stdev(values) if len(values) > 1 else None


def gather(
    folder: str | Path,
    *,
    device: str = "auto",
    data_dir: str | Path | None = None,
    mirror: str | Path | None = None,
) -> Findings:
    """Read a run folder and ask its best model about its graph; nothing is trained."""
    paths, place = store.finished_runs(Path(folder)), choose_device(device)
    curves = {path: read_curves(path) for path in paths}
    lines = {path: _line(path, curves[path]) for path in paths}
    path = store.best_run(Path(folder))
    config, model = store.config_of(path), store.load(path, place)
    data = load_data(path, data_dir=data_dir, mirror=mirror)
    logits = logits_of(model, data, config, place)
    names = Names(data, logits.shape[1])
    labels, test = data.y.numpy(), data.test_mask.numpy()
    if not test.any():
        raise RunFolderError(f"{folder}: no node is in the test split, so there is no report")
    calibration = calibrate(logits, labels, data.val_mask.numpy(), test)
    both = (softmax(logits[test]), calibration.probabilities(logits[test]))
    wrong = _most_confident_mistakes(calibration.probabilities(logits), labels, test)
    weights, gates = _levels(model)
    return Findings(
        config=config,
        environment=_environment(store.folder_of(path)),
        sizes=_sizes(data, logits.shape[1]),
        runs=list(lines.values()),
        best=lines[path],
        curves=curves[path],
        classes=names.classes,
        quality=quality(logits[test], labels[test]),
        calibration=calibration,
        bins=(reliability(both[0], labels[test]), reliability(both[1], labels[test])),
        hop_weights=weights,
        gates=gates,
        table=data.get("report"),
        mistakes=_mistakes(wrong[:MISTAKES], model.cpu(), data, config, calibration, logits, names),
        wrong=len(wrong),
    )


def read_curves(run: Path) -> list[Epoch]:
    """The epochs of a run, from metrics.jsonl."""
    path = run / "metrics.jsonl"
    try:
        epochs = [Epoch(**json.loads(line)) for line in path.read_text().splitlines()]
    except FileNotFoundError:
        raise RunFolderError(f"{path} is missing: it has the epochs of the run") from None
    except (TypeError, ValueError) as error:
        raise RunFolderError(f"{path} cannot be read: {error}") from None
    if not all(_is_epoch(epoch) for epoch in epochs):
        raise RunFolderError(f"{path} cannot be read: an epoch is not made of finite numbers")
    return epochs


def _is_epoch(epoch: Epoch) -> bool:
    numbers = (epoch.epoch, epoch.loss, epoch.train, epoch.val, epoch.test)
    return all(isinstance(number, int | float) and math.isfinite(number) for number in numbers)


def _line(run: Path, curves: list[Epoch]) -> RunLine:
    summary = store.read_summary(run)
    train = {epoch.epoch: epoch.train for epoch in curves}.get(summary["best_epoch"])
    if train is None:
        best = summary["best_epoch"]
        raise RunFolderError(f"{run / 'metrics.jsonl'} does not have the best epoch, {best}")
    names = ("run", "seed", "val", "test", "best_epoch", "epochs", "seconds")
    return RunLine(train=train, **{name: summary[name] for name in names})


def _environment(folder: Path) -> dict[str, Any]:
    """Where and when it was trained; an old or copied folder may not say."""
    path = folder / "environment.json"
    content = store.read_json(path) if path.exists() else {}
    return content if isinstance(content, dict) else {}


def _sizes(data: Data, classes: int) -> dict[str, int]:
    return {
        "nodes": int(data.num_nodes or 0),
        "edges": data.edge_index.size(1),
        "features": data.x.size(1),
        "classes": classes,
        "labelled": int((data.y >= 0).sum()),
    }


def _levels(model: STAGNN) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Learned weights of the hops and of the heads at each hop, as far as the model has them."""
    conv = model.conv
    learned = any(True for _ in conv.aggregation.parameters())
    weights = conv.aggregation.hop_weights() if learned else None
    gated = any(True for _ in conv.gate.parameters())
    return _array(weights), _array(conv.gate() if gated else None)


def _array(tensor: torch.Tensor | None) -> np.ndarray | None:
    return None if tensor is None else tensor.detach().double().cpu().numpy()


def _most_confident_mistakes(
    probabilities: np.ndarray, labels: np.ndarray, test: np.ndarray
) -> list[int]:
    """All test nodes with another class than predicted, the most probable prediction first."""
    wrong = np.flatnonzero(test & (probabilities.argmax(1) != labels))
    order = np.argsort(-probabilities[wrong].max(1), kind="stable")
    return [int(node) for node in wrong[order]]


def _mistakes(
    nodes: list[int],
    model: STAGNN,
    data: Data,
    config: Config,
    calibration: Calibration,
    logits: np.ndarray,
    names: Names,
) -> list[Mistake]:
    if not nodes:
        return []
    explainer = Explainer(model, data.x, Graph.from_data(data, config.transition))
    found = []
    for node in nodes:
        probabilities = calibration.probabilities(logits[[node]])[0]
        predicted = int(probabilities.argmax())
        added = explainer(node).importance(predicted)
        first = added.topk(min(SOURCES, len(added)))
        pairs = zip(first.indices.tolist(), first.values.tolist(), strict=True)
        sources = [
            {**names.describe(source), "own": source == node, "adds": value}
            for source, value in pairs
            if value > 0
        ]
        true, taken_for = names.classes[int(data.y[node])], names.classes[predicted]
        probability = float(probabilities[predicted])
        found.append(Mistake(names.id(node), true, taken_for, probability, sources))
    return found
