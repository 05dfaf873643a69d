"""The classes that a trained model gives to nodes, with calibrated probabilities, as a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from .. import datasets
from ..datasets.tables.build import apply_recipe, join_tables
from ..datasets.tables.lazy import pl
from ..datasets.tables.schema import TableNotes
from ..graph import Graph
from ..nn import STAGNN
from ..tasks.calibration import Calibration, calibrate
from ..train.config import Config
from ..train.loop import choose_device, prepare, with_encoding
from . import bundle
from . import folder as store
from .folder import RunFolderError

SUFFIXES = (".csv", ".parquet")
NODE_COLUMNS = ("id", "prediction", "known")
"""Of a file of predictions; probabilities follow."""


@dataclass(frozen=True)
class Predictions:
    """What a model says of some nodes.

    Attributes:
        ids: of the nodes, N.
        classes: the names of the classes, C.
        probabilities: [N, C], calibrated.
        labels: [N], the class where it is known, else -1.
        calibration: the temperature, and what it does.
        run: the folder of the run whose model it is.
        report: what was done with new tables, if any.
    """

    ids: list[str]
    classes: list[str]
    probabilities: np.ndarray
    labels: np.ndarray
    calibration: Calibration
    run: Path
    report: TableNotes | None = field(default=None)

    @property
    def predicted(self) -> list[str]:
        """The most probable class of each node."""
        return [self.classes[number] for number in self.probabilities.argmax(1)]

    @property
    def known(self) -> list[str | None]:
        """The class of each node where the table has it."""
        return [self.classes[number] if number >= 0 else None for number in self.labels]


def predict(
    folder: str | Path,
    nodes: Any = None,
    edges: Any = None,
    *,
    join: bool = False,
    unknown_ends: str = "error",
    device: str = "auto",
    data_dir: str | Path | None = None,
    mirror: str | Path | None = None,
) -> Predictions:
    """Predict every node of a run's graph, or the nodes of new tables; nothing is trained.

    Args:
        folder: what `sta train` wrote; of several runs, the one with the best validation score.
        nodes: a new table with the columns that the model was trained on; see `from_tables`.
        edges: its edges.
        join: the new nodes join the graph of the run: edges may end at nodes of both.
        unknown_ends: see `from_tables`.
        device: see `fit`, as all that follow.
    """
    run, place = store.best_run(Path(folder)), choose_device(device)
    config, seed = store.config_of(run), store.read_summary(run)["seed"]
    model = store.load(run, place)
    data = prepare(config, data_dir, mirror, store.folder_of(run))
    split = datasets.apply_split(data, config.split, seed=seed, data_dir=data_dir, mirror=mirror)
    logits = logits_of(model, data, config, place)
    masks = (split.val_mask.cpu().numpy(), split.test_mask.cpu().numpy())
    labels = data.y.cpu().numpy()
    calibration = calibrate(logits, labels, *masks)
    ids, classes = names_of(data, logits.shape[1])
    report = None
    if nodes is not None or edges is not None:
        new, start = new_graph(run, nodes, edges, join, unknown_ends)
        logits = logits_of(model, new, config, place)[start:]
        ids, labels, report = new.ids[start:], new.y.numpy()[start:], new.report
    probabilities = calibration.probabilities(logits)
    return Predictions(ids, classes, probabilities, labels, calibration, run, report)


def names_of(data: Data, num_classes: int) -> tuple[list[str], list[str]]:
    """The ids and the classes of a graph; of one of the registry they are numbers."""
    if bundle.is_own(data):
        return data.ids, data.classes
    return [str(i) for i in range(int(data.num_nodes or 0))], [str(i) for i in range(num_classes)]


@torch.no_grad()
def logits_of(model: STAGNN, data: Data, config: Config, place: torch.device) -> np.ndarray:
    """The logits of all nodes [N, C], in float64."""
    data = bundle.without_names(data).to(str(place))
    logits = model(data.x, graph_of(data, model, config)).double().cpu().numpy()
    if not np.isfinite(logits).all():
        raise RunFolderError("the model gives values that are not finite: it is broken")
    return logits


def graph_of(data: Data, model: STAGNN, config: Config) -> Graph:
    """The graph that the model of a run walks on, if the data is what it takes."""
    if data.x.size(1) != model.lin.in_channels:
        raise RunFolderError(
            f"the model takes {model.lin.in_channels} features, but the graph has {data.x.size(1)}"
        )
    return Graph.from_data(data, config.transition)


def new_graph(
    run: Path, nodes: Any, edges: Any, join: bool = False, unknown_ends: str = "error"
) -> tuple[Data, int]:
    """The graph of new tables as the model of a run takes it, and where its new nodes begin."""
    config = store.config_of(run)
    if nodes is None or edges is None:
        raise ValueError("new nodes need both tables: --nodes and --edges")
    if config.graph in datasets.names():
        raise ValueError(
            f"this model was trained on '{config.graph}' of the registry, which has no columns: "
            "new tables need a model that was trained on tables (sta train --nodes ...)"
        )
    old = bundle.read(store.folder_of(run))
    if join:
        data, start = join_tables(old, nodes, edges, unknown_ends), len(old.ids)
    else:
        data, start = apply_recipe(old.recipe, old.classes, nodes, edges, unknown_ends), 0
    if config.encoding:
        data.report.words.append(
            "the model uses Laplacian eigenvectors, which are others on another graph: "
            "trust its predictions there less than the calibration says"
        )
    return with_encoding(data, config.encoding), start


# ------------------------------------------------------------------------------------------- file


def check_target(path: Path, force: bool) -> None:
    """Refuse a file that cannot or must not be written, before any work is done."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path}: predictions are written as {' or '.join(SUFFIXES)}")
    store.check_free(path, force)
    if path.suffix.lower() == ".parquet":
        pl.DataFrame  # noqa: B018 - says here that polars is missing, not after the work


def write(predictions: Predictions, path: Path, force: bool = False) -> None:
    """Write id, prediction, the known class and a probability for each class, all or nothing."""
    check_target(path, force)
    nodes = (predictions.ids, predictions.predicted, predictions.known)
    classes = list(_column_names(predictions.classes))
    if path.suffix.lower() == ".parquet":
        columns = dict(zip(NODE_COLUMNS, nodes, strict=True))
        frame = pl.DataFrame(columns, schema_overrides={"known": pl.String})
        frame = frame.hstack(pl.DataFrame(predictions.probabilities, schema=classes))
        content = io.BytesIO()
        frame.write_parquet(content)
        store.write_bytes(path, content.getvalue())
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*NODE_COLUMNS, *classes])
    for *node, probabilities in zip(*nodes, predictions.probabilities, strict=True):
        writer.writerow([*node, *(f"{value:.6g}" for value in probabilities)])
    store.write_bytes(path, text.getvalue().encode())


def _column_names(classes: list[str]) -> Iterator[str]:
    """The classes; one that is called as another column gets 'class' before its name."""
    taken = set(NODE_COLUMNS)
    for name in classes:
        while name in taken:
            name = f"class {name}"
        taken.add(name)
        yield name
