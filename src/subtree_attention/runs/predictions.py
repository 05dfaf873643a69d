"""What a trained model predicts for nodes, and how far that can be trusted; also as a file."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from .. import io
from ..datasets.tables.cells import escaped
from ..datasets.tables.lazy import pl
from ..datasets.tables.schema import TableNotes
from ..nn import set_memory
from ..tasks.answers import Answers
from ..tasks.calibration import Calibration, Intervals
from ..tasks.deciding import Asked, Decided, refuse
from .predicted import Predicted
from .saved import Folder, SavedRun, open

OWN_COLUMNS = ("id", "prediction", "known")
"""Of a file of predictions; probabilities or the ends of intervals follow."""
LARGE = 1e6
"""Numbers from that size on may differ in their tenth digit."""


@dataclass(frozen=True)
class Predictions(Predicted):
    """What a model says of some nodes, or graphs, of which it also says how sure it is.

    Attributes:
        calibration: how far that can be trusted.
        run: the folder of the run whose model it is.
        notes: what was done with new tables, if any.
        unit: what is predicted: "node" or "graph".
        decided: what a threshold, a rejection or sets do on validation and test, where asked for.
    """

    calibration: Calibration | Intervals
    run: Path
    notes: TableNotes | None = None
    unit: str = "node"
    decided: Decided | None = None


def predict(
    folder: Folder,
    nodes: Any = None,
    edges: Any = None,
    *,
    join: bool = False,
    unknown_ends: str = "error",
    graphs: Any = None,
    threshold: float | None = None,
    cls: str | None = None,
    reject: float | None = None,
    coverage: float | None = None,
    memory: str | int | None = None,
    device: str = "auto",
) -> Predictions:
    """Predict every node of a run's graph, or the nodes of new tables; nothing is trained.

    A model of graphs predicts every graph of its collection, or those of new tables. Pairs of nodes
    are predicted by `predict_links`.

    Args:
        folder: what `sta train` wrote; of several runs, the one with the best validation score.
        nodes: a new table with the columns that the model was trained on; see `from_tables`.
        edges: its edges.
        join: the new nodes join the graph of the run: edges may end at nodes of both.
        unknown_ends: see `from_tables`.
        graphs: the table of new graphs, for a model of graphs.
        threshold: the probability above which one of two classes, or a label, is the answer.
        cls: which of the two; by default the rarer one.
        reject: the share of nodes that get no answer, None, because the model is least sure; how
            sure is sure enough is found on the validation nodes, so a single new node may be one.
        coverage: how often a set of classes shall hold the true one, or the interval of a number
            the true number; also found there. At most one of these three.
        memory: a bound for what the model takes: "8GB", a number of bytes, or "free"; see `STAGNN`.
        device: see `fit`.
    """
    wanted = Asked(threshold, cls, reject, coverage)
    run = asked = open(folder, device=device)
    refuse_pairs(run)
    if memory is not None:
        set_memory(run.model, memory)
    if wanted:
        refuse(wanted, run.task.kind, run.task.names(run.dataset))  # before tables are read
        run = asked = run.deciding(wanted)
    start, notes = 0, None
    if nodes is not None or edges is not None or graphs is not None:
        dataset, start = run.read_tables(nodes, edges, join, unknown_ends, graphs)
        asked, notes = run.on(dataset, join), dataset.notes
    return Predictions(
        ids=asked.unit_ids[start:],
        answers=asked.answers.part(start),
        calibration=run.calibration,
        run=run.folder,
        notes=notes,
        unit=run.task.unit,
        decided=run.decided,
    )


def refuse_pairs(run: SavedRun) -> None:
    """A model of links has a question of its own."""
    if run.task.unit == "pair":
        raise ValueError(
            f"the model of {run.folder} is for pairs of nodes: ask predict_links, or sta predict "
            "with --pairs or --top"
        )


def check_target(path: Path, force: bool) -> None:
    """Refuse a file that cannot or must not be written, before any work is done."""
    io.check_target(path, (".csv", ".parquet"), "predictions are", force)
    if path.suffix.lower() == ".parquet":
        pl.DataFrame  # noqa: B018 - says here that polars is missing, not after the work


def write(predictions: Predictions, path: Path, force: bool = False) -> None:
    """Write id, prediction, what is known, and numbers that say how sure it is, all or nothing.

    Where that was asked for, also whether the answer was rejected, or the set of classes that are
    possible. The numbers are a probability for each class or label, or the ends of the interval of
    a number.

    In CSV a text that a spreadsheet would take for a formula gets an apostrophe before it.
    """
    write_answers(predictions.ids, predictions.answers, path, force)


def write_answers(ids: list[str], answers: Answers, path: Path, force: bool = False) -> None:
    """See `write`."""
    own = dict(zip(OWN_COLUMNS, (ids, answers.predicted, answers.known), strict=True))
    kinds: dict[str, type] = {"prediction": answers.cell, "known": answers.cell}
    for name, (kind, said) in answers.more.items():
        own[name], kinds[name] = said, kind
    numbers = answers.columns
    shares = dict(zip(_column_names(numbers, own), numbers.values(), strict=True))
    write_columns(path, own, shares, force, kinds)


def write_columns(
    path: Path,
    own: dict[str, list[Any]],
    shares: dict[str, np.ndarray],
    force: bool,
    kinds: dict[str, type],
) -> None:
    """Write columns of what is said, and then of numbers, all or nothing; `kinds` are of cells."""
    check_target(path, force)
    if path.suffix.lower() == ".parquet":
        of: dict[type, Any] = {str: pl.String, list: pl.List(pl.String), float: pl.Float64}
        frame = pl.DataFrame(own | shares, schema_overrides={n: of[k] for n, k in kinds.items()})
        content = BytesIO()
        frame.write_parquet(content)
        io.write_bytes(path, content.getvalue())
        return
    lines = _Lines()
    writer = csv.writer(lines)
    writer.writerow(map(escaped, [*own, *shares]))
    told = _number if kinds.get("prediction") is float else "{:.6g}".format
    for *row, numbers in zip(*own.values(), np.stack([*shares.values()], 1), strict=True):
        writer.writerow([*map(_cell, row), *map(told, numbers.tolist())])
    io.write_bytes(path, "".join(lines).encode())


def _cell(value: Any) -> str | None:
    """A prediction, or what is known, as CSV has it: labels are a JSON list."""
    if value is None:
        return None
    if isinstance(value, float):
        return _number(value)
    return escaped(json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value)


def _number(value: float) -> str:
    """One that is predicted or known: ten digits, and of large ones, such as times, fifteen."""
    return f"{value:.{10 if abs(value) < LARGE else 15}g}"


class _Lines(list[str]):
    """What csv writes, with "\\n" at the ends of lines.

    It thinks that they end with "\\r\\n", so it quotes a text with either: some readers, and
    spreadsheets, begin a line at each.
    """

    def write(self, line: str) -> None:
        self.append(line.removesuffix("\r\n") + "\n")


def _column_names(names: Iterable[str], own: Iterable[str]) -> Iterator[str]:
    """The classes; one that is called as another column gets 'class' before its name."""
    taken = set(own)
    for name in names:
        while name in taken:
            name = f"class {name}"
        taken.add(name)
        yield name
