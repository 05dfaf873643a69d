"""How tables became a graph: what is kept with a model, so that other tables become one alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from ..._check import said
from .. import targets
from ..features import SPARSE_BELOW, from_scipy
from . import ranks
from .columns import Column, from_dict, to_dict
from .edges import Ends
from .labels import AS_IT_IS, Cells
from .readings import Reading
from .table import Table
from .values import Encoded


@dataclass(frozen=True, repr=False)
class TableSchema:
    """The columns of two tables and what each is for.

    Attributes:
        id, target: columns of the nodes.
        target_kind: what the target is: a "class", "labels" or a "number".
        ends: columns of the edges; None for a graph that did not come from a table of edges.
        directed: whether an edge leads one way only.
        columns: the features.
        left_out: columns of the nodes that are no features, and why.
        graph: column of the nodes that names the graph of each, if there are many.
        graphs: the columns of the table of graphs, if there is one; its features are those of all
            nodes of a graph.
        cells: how the cells of the target are read.
        weights: how the weights of the edges are read; None where they are no texts.
    """

    id: str
    target: str | None
    ends: Ends | None
    directed: bool
    columns: tuple[Column, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    graph: str | None = None
    graphs: TableSchema | None = None
    target_kind: str = "class"
    cells: Cells = AS_IT_IS
    weights: Reading | None = None

    @property
    def width(self) -> int:
        """Columns of x."""
        own = sum(column.width for column in self.columns)
        return own + (0 if self.graphs is None else self.graphs.width)

    def __repr__(self) -> str:
        return f"TableSchema({len(self.columns)} columns, {self.width} features)"

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        columns = [to_dict(column) for column in self.columns]
        ends = self.ends and self.ends._asdict()
        content = {**vars(self), "ends": ends, "columns": columns}
        content["graphs"] = self.graphs and self.graphs.to_dict()
        later = {"graph", "graphs"} if self.graph is None else set()  # as files were before them
        later |= {"target_kind"} if self.target_kind == "class" else set()
        later |= {"cells"} if self.cells == AS_IT_IS else set()
        later |= {"weights"} if self.weights is None else set()
        content["cells"] = self.cells.to_dict()
        content["weights"] = self.weights and self.weights.to_dict()
        return {name: value for name, value in content.items() if name not in later}

    @classmethod
    def from_dict(cls, content: Any) -> TableSchema:
        """The inverse of `to_dict`; what does not fit is a `ValueError`."""
        if not isinstance(content, dict) or not isinstance(content.get("columns"), list):
            raise ValueError(f"no schema of tables: {said(content)}")
        try:
            columns = tuple(from_dict(column) for column in content["columns"])
            ends = None if content["ends"] is None else Ends(**content["ends"])
            graphs = content.get("graphs")
            graphs = None if graphs is None else cls.from_dict(graphs)
            weights = content.get("weights")
            weights = None if weights is None else Reading.from_dict(weights)
            cells = Cells.from_dict(content.get("cells", {}))
            parts = {"ends": ends, "columns": columns, "graphs": graphs}
            schema = cls(**{**content, **parts, "cells": cells, "weights": weights})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"no schema of tables: {error!r}") from None
        if not isinstance(schema.directed, bool):
            raise ValueError("no schema of tables: 'directed' is true or false")
        if schema.target_kind not in targets.KINDS:
            raise ValueError(f"no schema of tables: the target is {said(schema.target_kind)}")
        texts = [schema.id, schema.target or "", schema.graph, *(ends or ())]
        if not all(isinstance(text, str | None) for text in texts):
            raise ValueError("no schema of tables: the name of a column is no text")
        return schema


@dataclass(frozen=True)
class ColumnLine:
    """What became of a column."""

    name: str
    kind: str
    width: int
    missing: int
    unseen: int = 0
    note: str = ""


@dataclass(repr=False)
class TableNotes:
    """What was done with two tables: a line for each column, and the rest in words.

    `warnings` are what a person should look at before training, see `advice`.
    """

    columns: list[ColumnLine] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"TableNotes({len(self.columns)} columns, {len(self.words)} lines)"

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        content = asdict(self)
        if not self.warnings:  # as files were before them
            del content["warnings"]
        return content

    @classmethod
    def from_dict(cls, content: Any) -> TableNotes:
        """The inverse of `to_dict`; what does not fit is a `ValueError`."""
        if not isinstance(content, dict) or not isinstance(content.get("columns"), list):
            raise ValueError(f"no notes of tables: {said(content)}")
        try:
            columns = [ColumnLine(**line) for line in content["columns"]]
            lines = content["words"], content.get("warnings", [])
            return cls(columns, *([str(line) for line in some] for some in lines))
        except (TypeError, KeyError) as error:
            raise ValueError(f"no notes of tables: {error!r}") from None


def encode(schema: TableSchema, table: Table) -> tuple[Tensor, list[ColumnLine]]:
    """The features x [N, F] of a table of nodes, and a line about each column."""
    blocks, lacks = encode_columns(schema, table)
    lines = describe(schema, table, ranks.added(lacks))
    return _matrix(blocks, len(table), sum(column.width for column in schema.columns)), lines


def encode_columns(schema: TableSchema, table: Table) -> tuple[list[Encoded], np.ndarray]:
    """The features of each column; and how many values were missing and not known in each, and in
    those that are left out, [columns, 2]."""
    blocks = [column.encode(table) for column in schema.columns]
    rest = [name if name in table.frame.columns else None for name in schema.left_out]
    lacks = [(part.missing, part.unseen) for part in blocks]
    lacks += [(0 if name is None else table.frame[name].null_count(), 0) for name in rest]
    return blocks, np.array(lacks, np.int64).reshape(-1, 2)


def describe(schema: TableSchema, table: Table, lacks: np.ndarray) -> list[ColumnLine]:
    """A line about each column, with what all of its rows lack: see `encode_columns`."""
    lines, (of_columns, of_others) = [], np.split(lacks, [len(schema.columns)])
    for column, (missing, unseen) in zip(schema.columns, of_columns.tolist(), strict=True):
        note = "; ".join(filter(None, (column.note, column.remark(table))))
        lines.append(ColumnLine(column.name, column.kind, column.width, missing, unseen, note))
    for (name, why), (missing, _) in zip(schema.left_out.items(), of_others.tolist(), strict=True):
        lines.append(ColumnLine(name, "left out", 0, missing, note=why))
    return lines


def _matrix(blocks: Sequence[Encoded], num_rows: int, width: int) -> Tensor:
    """Blocks side by side as float32: CSR if few entries are non-zero, else dense."""
    stored, rows = ranks.added(np.array([sum(part.block.size for part in blocks), num_rows]))
    if width and stored <= SPARSE_BELOW * rows * width:
        return from_scipy(scipy.sparse.hstack([part.block for part in blocks], format="csr"))
    x = torch.zeros(num_rows, width)
    widths = [part.block.shape[1] for part in blocks]
    for part, columns in zip(blocks, x.split(widths, dim=1), strict=True):
        whole = part.block if isinstance(part.block, np.ndarray) else part.block.toarray()
        columns.copy_(torch.from_numpy(whole))
    return x
