"""A graph as tables in parts, as Spark writes them: a folder of Parquet files of nodes, and one of
edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import Tensor

from .. import _check
from ..io import new_folder
from . import targets
from .dataset import Dataset
from .features import is_csr, to_scipy
from .splits import Split
from .tables.lazy import pl

MOST_PARTS = 10_000
ID, VECTOR, SPLIT, ENDS, WEIGHT = "id", "x", "split", ("source", "target"), "weight"
"""Columns, beside that of the target, which is called what it is: class, labels or number."""


def write_tables(dataset: Dataset, out: str | Path, parts: int = 8) -> Path:
    """Write a graph as `OUT/nodes/part-*.parquet` and `OUT/edges/part-*.parquet`.

    The nodes have an id, their features as one vector, their target and, if the graph has a split
    of its own, the part that they are in. An edge that leads both ways is one row; where not all
    do, each is a row, to be read with `directed`. The folder is there whole or not at all.

    Args:
        dataset: one graph.
        out: a folder that is not there yet.
        parts: files of nodes, and of edges.
    """
    if _check.kind("dataset", dataset, Dataset, "a Dataset").batch is not None:
        raise ValueError("a collection of graphs is not written as tables: write one graph")
    parts, path = _check.integer("parts", parts, 1, MOST_PARTS), _check.path("out", out)
    rows = _once(dataset)
    with new_folder(path) as folder:
        for number, some in enumerate(_cuts(dataset.num_nodes, parts)):
            _write(_nodes(dataset, some), folder / "nodes", number)
        for number, some in enumerate(_cuts(len(rows), parts)):
            _write(_edges(dataset, rows[some]), folder / "edges", number)
    return path


def _cuts(count: int, parts: int) -> list[slice]:
    """So many rows in parts of about as many."""
    ends = [count * part // parts for part in range(parts + 1)]
    return [slice(*ends[part : part + 2]) for part in range(parts)]


def _write(frame: pl.DataFrame, folder: Path, number: int) -> None:
    folder.mkdir(exist_ok=True)
    frame.write_parquet(folder / f"part-{number:05}.parquet")


def _nodes(dataset: Dataset, some: slice) -> pl.DataFrame:
    """The rows of some nodes."""
    numbers = range(*some.indices(dataset.num_nodes))
    ids = numbers if dataset.ids is None else dataset.ids[some]
    x = _rows(dataset.x, numbers)
    columns = {ID: pl.Series(ids, dtype=pl.Int64 if dataset.ids is None else pl.String)}
    if x.shape[1]:
        columns[VECTOR] = pl.Series(x, dtype=pl.Array(pl.Float32, x.shape[1]))
    columns[dataset.target] = _target(dataset, some)
    if "own" in dataset.splits:
        split = Split.from_codes(dataset.splits["own"][some, 0])
        columns[SPLIT] = _names([mask.numpy() for mask in split], Split._fields)
    return pl.DataFrame(columns)


def _rows(x: Tensor, numbers: range) -> np.ndarray:
    """Some rows of dense or CSR features, dense."""
    if is_csr(x):
        return to_scipy(x)[numbers.start : numbers.stop].toarray()
    found: np.ndarray = x[numbers.start : numbers.stop].numpy()
    return found


def _target(dataset: Dataset, some: slice) -> pl.Series:
    """The names of classes, lists of labels, or numbers; null where they are not known."""
    y = dataset.y[some]
    if dataset.target == "class":
        names = pl.Series([*dataset.classes, None], dtype=pl.String)
        return names[y.numpy()]  # -1 is the last
    values = [targets.value(y, unit, dataset.classes) for unit in range(len(y))]
    number = dataset.target == "number"
    return pl.Series(values, dtype=pl.Float64 if number else pl.List(pl.String))


def _names(masks: list[np.ndarray], names: tuple[str, ...]) -> pl.Series:
    """The name of the mask that each row is in; null if it is in none."""
    number = np.select(masks, range(len(masks)), -1)
    return pl.Series([*names, None], dtype=pl.String)[number]


def _once(dataset: Dataset) -> np.ndarray:
    """The edges [R] that are written: of those that lead both ways one direction, if all do."""
    (source, dest), nodes = dataset.edge_index.numpy(), dataset.num_nodes
    weight = dataset.edge_weight
    there, back = (
        np.argsort(a * nodes + b, kind="stable") for a, b in ((source, dest), (dest, source))
    )
    same = bool((source[there] == dest[back]).all() and (dest[there] == source[back]).all())
    if weight is not None:
        same = same and bool((weight.numpy()[there] == weight.numpy()[back]).all())
    return np.flatnonzero(source <= dest) if same else np.arange(len(source))


def _edges(dataset: Dataset, rows: np.ndarray) -> pl.DataFrame:
    """Some edges, by the ids of their ends."""
    ends = dataset.edge_index.numpy()[:, rows]
    columns = dict(zip(ENDS, (pl.Series(end) for end in ends), strict=True))
    if dataset.ids is not None:
        ids = pl.Series(dataset.ids, dtype=pl.String)
        columns = {name: ids[end.to_numpy()] for name, end in columns.items()}
    if dataset.edge_weight is not None:
        columns[WEIGHT] = pl.Series(dataset.edge_weight.numpy()[rows])
    return pl.DataFrame(columns)
