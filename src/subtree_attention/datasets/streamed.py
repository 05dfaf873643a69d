"""From tables that do not fit memory to a store: a part of them at a time.

Columns are looked at one after the other, as `from_tables` does, and so become the same features;
rows are encoded, and edges sorted, some at a time.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from .. import _check
from .disk import EdgeSorter, mapped, merged
from .features import SPARSE_BELOW, from_scipy
from .splits import own_codes
from .store import SPARSE, Store, StoreWriter, features_of
from .tables import spool
from .tables.columns import Number, Vector
from .tables.edges import (
    UNKNOWN_ENDS,
    Changed,
    Edges,
    Ends,
    check_total,
    edge_notes,
    end_nodes,
    read_weights,
    unknown,
)
from .tables.names import Names
from .tables.readings import Reading
from .tables.schema import ColumnLine, TableSchema, describe, encode_columns
from .tables.table import Table, TableError
from .tabular import Asked, Sink, read_tables

EDGES = 2**21
"""Rows of a table of edges that are read together."""


def store_tables(
    nodes: Any,
    edges: Any,
    target: str | None,
    folder: str | Path,
    *,
    id: str | None = None,
    source: str | None = None,
    dest: str | None = None,
    weight: str | None = None,
    features: Sequence[str] | None = None,
    leave_out: Sequence[str] = (),
    directed: bool = False,
    split_column: str | None = None,
    unknown_ends: str = "error",
    graph_column: str | None = None,
    graphs: Any = None,
    task: str = "classification",
    name: str | None = None,
    picture: str | None = None,
) -> Store:
    """Write the graph of two tables into a store; of the tables, a part is in memory at a time.

    Features, labels, classes, schema and notes are those of `from_tables`; edges stand in the order
    of their ends. Read in parts are Parquet, some rows at a time, and CSV and JSON, a file at a
    time: a folder or a pattern of files. Other tables are read as a whole. Meanwhile there is a
    copy of the tables beside the folder.

    Args:
        nodes, edges, target: as in `from_tables`.
        folder: of the store; it must not be there yet, and stands at its place when all is written.
        id, source, dest, weight, features, leave_out, directed, split_column: as in `from_tables`.
        unknown_ends, task, name, picture: as in `from_tables`.
        graph_column, graphs: many graphs are not read in parts.
    """
    if graph_column is not None or graphs is not None:
        raise TableError(
            "many graphs (--graph-column, --graphs) are not read in parts: use from_tables, and "
            "Store.write"
        )
    columns = target, id, source, dest, weight, features, leave_out
    asked = Asked(*columns, directed, split_column, unknown_ends, None, None, task, name, picture)
    with StoreWriter.new(folder, 0) as writer:
        copies = writer.folder / ".tables.tmp"
        copies.mkdir()
        with spool.into(copies):
            read = read_tables(nodes, edges, asked, _Stored(writer))
        shutil.rmtree(copies)
        writer.array("y", read.y)
        if read.split is not None:
            writer.array("split_own", own_codes(*read.split))
        ids = read.names.ids
        writer.names("ids", (ids.slice(a, EDGES).to_list() for a in range(0, len(ids), EDGES)))
        if read.told is not None:
            read.told.write(writer.folder)
        words: dict[str, Any] = {"schema": read.schema, "notes": read.notes, "source": read.source}
        writer.finish(classes=read.classes, name="graph", own=True, named=True, **words)
    return Store.open(folder)


class _Stored(Sink):
    """Edges and features that go into a store."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer

    def edges(
        self,
        table: Table,
        ends: Ends,
        names: Names,
        directed: bool,
        unknown_ends: str,
        reading: Reading | None,
    ) -> Edges:
        """As `read_edges`, with the same notes."""
        _check.known("way with unknown ends", unknown_ends, UNKNOWN_ENDS)
        self._writer.num_nodes = names.count
        sorter = self._writer.sorter(ends.weight is not None)
        rows, inside, total = 0, [np.zeros(0, bool)], 0.0
        for some in table.blocks(EDGES):
            start, end = end_nodes(some, ends, names, unknown_ends == "drop")
            weight = None if ends.weight is None else read_weights(some, ends.weight, reading)
            total += 0.0 if weight is None else float(weight.sum())
            there = (start >= 0) & (end >= 0)
            inside.append(there)
            rows += int(there.sum())
            sorter.add(start[there], end[there], None if weight is None else weight[there])
            if not directed:
                back = there & (start != end)  # a loop leads both ways already
                sorter.add(end[back], start[back], None if weight is None else weight[back])
        if ends.weight is not None:
            check_total(table, ends.weight, total)
        known, dropped = np.concatenate(inside), list[str]()
        if not known.all():
            dropped.append(unknown(table, ends, known, names, unknown_ends))
        found, loops, linked = self._sorted(sorter, names.count)
        pairs = found if directed else (found - loops) // 2 + loops
        changed = Changed(found, rows - pairs, loops, dropped)
        notes = edge_notes(table, ends, names, directed, reading, changed)
        return Edges(np.zeros((2, 0), np.int64), None, notes, found, linked)

    def _sorted(self, sorter: EdgeSorter, num_nodes: int) -> tuple[int, int, np.ndarray]:
        """Each edge once in the files; how many there are, how many are loops, and which nodes have
        an edge to another, [N]."""
        rows = self._writer.rows(sorter)
        found, loops, linked = 0, 0, np.zeros(num_nodes, bool)
        for keys, weights in sorter.sorted():
            keys, weights = merged(keys, weights)
            rows.add(keys, weights)
            dest, source = np.divmod(keys, max(num_nodes, 1))
            others = dest != source
            linked[dest[others]] = True
            linked[source[others]] = True
            found, loops = found + len(keys), loops + int((~others).sum())
        sorter.close()
        self._writer.files |= rows.close()
        return found, loops, linked

    def features(self, schema: TableSchema, table: Table) -> tuple[Tensor, list[ColumnLine]]:
        """As `encode`; where some entries are zeros, they are written as sparse ones first."""
        counts = _Counts(schema)
        dense = all(isinstance(column, Number | Vector) for column in schema.columns)
        self._writer.features(counts.encoded(table, dense))
        if not dense and counts.stored > SPARSE_BELOW * len(table) * schema.width:
            self._make_dense(schema.width)
        files = {name: self._path(name) for name in self._writer.files if name.startswith("x")}
        tensors = {name: mapped(path, self._writer.files[name]) for name, path in files.items()}
        x = features_of(tensors, (len(table), schema.width))
        return x, describe(schema, table, counts.lacks)

    def _make_dense(self, width: int) -> None:
        """Write sparse features once more, with all of their zeros."""
        about = {name: self._writer.files.pop(name) for name in SPARSE}
        values, columns, starts = (mapped(self._path(n), about[n]).numpy() for n in SPARSE)

        def rows() -> Iterator[Tensor]:
            each = max(1, EDGES // max(width, 1))
            for first in range(0, len(starts) - 1, each):
                cut = starts[first : first + each + 1]
                some = slice(int(cut[0]), int(cut[-1]))
                parts = values[some], columns[some], cut - cut[0]
                shape = (len(cut) - 1, width)
                yield torch.from_numpy(scipy.sparse.csr_matrix(parts, shape=shape).toarray())

        self._writer.features(rows())
        for name in SPARSE:
            self._path(name).unlink()

    def _path(self, name: str) -> Path:
        return self._writer.folder / f"{name}.npy"


class _Counts:
    """What is counted of the rows of a table while they are encoded.

    Attributes:
        lacks: [columns, 2], see `encode_columns`.
        stored: how many entries the features have, zeros of dense columns among them.
    """

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self.lacks = np.zeros((len(schema.columns) + len(schema.left_out), 2), np.int64)
        self.stored = 0

    def encoded(self, table: Table, dense: bool) -> Iterator[Tensor]:
        """The features of some rows after the other, dense or CSR."""
        for some in table.blocks():
            blocks, lacks = encode_columns(self._schema, some)
            self.lacks += lacks
            self.stored += sum(part.block.size for part in blocks)
            parts = [np.zeros((len(some), 0), np.float32), *(part.block for part in blocks)]
            if dense:
                yield torch.from_numpy(np.concatenate(parts, axis=1, dtype=np.float32))
            else:
                yield from_scipy(scipy.sparse.hstack(parts, format="csr"))
