"""The classes that a trained model gives to nodes, with calibrated probabilities, as a file."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from .. import io
from ..datasets.tables.cells import escaped
from ..datasets.tables.lazy import pl
from ..datasets.tables.schema import TableNotes
from ..tasks.calibration import Calibration
from .saved import Folder, open

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
        notes: what was done with new tables, if any.
    """

    ids: list[str]
    classes: tuple[str, ...]
    probabilities: np.ndarray
    labels: np.ndarray
    calibration: Calibration
    run: Path
    notes: TableNotes | None = None

    @property
    def predicted(self) -> list[str]:
        """The most probable class of each node."""
        return [self.classes[number] for number in self.probabilities.argmax(1)]

    @property
    def known(self) -> list[str | None]:
        """The class of each node where the table has it."""
        return [self.classes[number] if number >= 0 else None for number in self.labels]


def predict(
    folder: Folder,
    nodes: Any = None,
    edges: Any = None,
    *,
    join: bool = False,
    unknown_ends: str = "error",
    device: str = "auto",
) -> Predictions:
    """Predict every node of a run's graph, or the nodes of new tables; nothing is trained.

    Args:
        folder: what `sta train` wrote; of several runs, the one with the best validation score.
        nodes: a new table with the columns that the model was trained on; see `from_tables`.
        edges: its edges.
        join: the new nodes join the graph of the run: edges may end at nodes of both.
        unknown_ends: see `from_tables`.
        device: see `fit`.
    """
    run = asked = open(folder, device=device)
    start, notes = 0, None
    if nodes is not None or edges is not None:
        dataset, start = run.read_tables(nodes, edges, join, unknown_ends)
        asked, notes = run.on(dataset), dataset.notes
    dataset = asked.dataset
    return Predictions(
        ids=dataset.node_ids[start:],
        classes=dataset.classes,
        probabilities=asked.probabilities[start:],
        labels=asked.target[start:],
        calibration=run.calibration,
        run=run.folder,
        notes=notes,
    )


def check_target(path: Path, force: bool) -> None:
    """Refuse a file that cannot or must not be written, before any work is done."""
    io.check_target(path, (".csv", ".parquet"), "predictions are", force)
    if path.suffix.lower() == ".parquet":
        pl.DataFrame  # noqa: B018 - says here that polars is missing, not after the work


def write(predictions: Predictions, path: Path, force: bool = False) -> None:
    """Write id, prediction, the known class and a probability for each class, all or nothing.

    In CSV a text that a spreadsheet would take for a formula gets an apostrophe before it.
    """
    check_target(path, force)
    nodes = (predictions.ids, predictions.predicted, predictions.known)
    classes = list(_column_names(predictions.classes))
    if path.suffix.lower() == ".parquet":
        columns = dict(zip(NODE_COLUMNS, nodes, strict=True))
        frame = pl.DataFrame(columns, schema_overrides={"known": pl.String})
        frame = frame.hstack(pl.DataFrame(predictions.probabilities, schema=classes))
        content = BytesIO()
        frame.write_parquet(content)
        io.write_bytes(path, content.getvalue())
        return
    lines = _Lines()
    writer = csv.writer(lines)
    writer.writerow(map(escaped, [*NODE_COLUMNS, *classes]))
    for *node, probabilities in zip(*nodes, predictions.probabilities, strict=True):
        texts = [name and escaped(name) for name in node]
        writer.writerow([*texts, *(f"{value:.6g}" for value in probabilities)])
    io.write_bytes(path, "".join(lines).encode())


class _Lines(list[str]):
    """What csv writes, with "\\n" at the ends of lines.

    It thinks that they end with "\\r\\n", so it quotes a text with either: some readers, and
    spreadsheets, begin a line at each.
    """

    def write(self, line: str) -> None:
        self.append(line.removesuffix("\r\n") + "\n")


def _column_names(classes: tuple[str, ...]) -> Iterator[str]:
    """The classes; one that is called as another column gets 'class' before its name."""
    taken = set(NODE_COLUMNS)
    for name in classes:
        while name in taken:
            name = f"class {name}"
        taken.add(name)
        yield name
