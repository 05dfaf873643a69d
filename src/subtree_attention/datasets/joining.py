"""New nodes that join a graph, a few at a time and often: what depends on the graph is made once.

`tabular.join_tables` makes the whole graph that comes of it; here is only what is new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from .. import _check
from .dataset import Dataset
from .tables.columns import Matrix
from .tables.edges import Edges, end_nodes, read_edges
from .tables.lazy import pl
from .tables.names import Names, read_names
from .tables.read import read_table
from .tables.schema import TableNotes, TableSchema
from .tables.table import Table, TableError
from .tabular import check_columns, encode_nodes

USUAL = ("source", "target", "weight")
"""What the columns of an edge may always be called, whatever the tables of the run call them."""


class New(NamedTuple):
    """Nodes that join a graph of N nodes; their numbers are N, N + 1, ...

    Attributes:
        ids: m.
        x, y: features [m, F] and target [m, ...], as those of the graph.
        source, target: int64 [x], edges in every direction in which they are walked, each once.
        weight: float64 [x]; None where the graph has none.
        notes: what was done with the tables.
    """

    ids: list[str]
    x: Tensor
    y: Tensor
    source: np.ndarray
    target: np.ndarray
    weight: np.ndarray | None
    notes: TableNotes


class Joining:
    """A graph that nodes join.

    Args:
        dataset: made of a table of nodes and one of edges.
    """

    def __init__(self, dataset: Dataset) -> None:
        refuse(dataset)
        assert dataset.schema is not None
        assert dataset.schema.ends is not None
        self.dataset, self.schema, self.ends = dataset, dataset.schema, dataset.schema.ends
        self.numbers = numbers_of(dataset)

    def read(self, nodes: Any, edges: Any = None, unknown_ends: str = "error") -> New:
        """What tables of new nodes and of their edges say.

        Args:
            nodes: as in `from_tables`, or a list of dictionaries, a node each.
            edges: likewise; their ends are new nodes or those of the graph. None or an empty list
                where the nodes have none.
            unknown_ends: as in `from_tables`.
        """
        people = read_table(self._named(nodes, {"id": self.schema.id}), "nodes")
        names = self._names(people)
        if edges is None or (isinstance(edges, list | tuple) and not edges):
            check_columns(self.schema, people, None)
            weighted = self.dataset.edge_weight is not None
            found = Edges(np.zeros((2, 0), np.int64), np.zeros(0) if weighted else None, [], 0)
        else:
            usual = {known: own for known, own in zip(USUAL, self.ends, strict=True) if own}
            links = read_table(self._named(edges, usual), "edges")
            check_columns(self.schema, people, links)
            how = self.schema.directed, unknown_ends, self.schema.weights
            try:
                found = read_edges(links, self.ends, names, *how)
            except TableError:
                self._refuse_unknown(links, names)
                raise
        x, y, notes = encode_nodes(self.schema, self.dataset.classes, people, found)
        source, target = found.index
        return New(names.ids.to_list(), x, y, source, target, found.weight, notes)

    def _names(self, people: Table) -> _Both:
        """The ids of new nodes, of which none is in the graph, beside those of the graph."""
        people.column(self.schema.id, "the id, as in the tables of the run")
        ids = read_names(people, self.schema.id).ids
        count, before = self.dataset.num_nodes, self.numbers
        for row, id in enumerate(ids.to_list()):
            if id in before:
                raise TableError(
                    f"{people.place(row)}: the node '{id}' is in the graph of the run already"
                )
        new = {id: count + row for row, id in enumerate(ids.to_list())}
        return _Both(ids, count, count + len(ids), None, before, new)

    def _named(self, rows: Any, usual: Mapping[str, str]) -> Any:
        """Columns of a list of rows; other tables are as they are. A column that has its usual
        name, and not the one of the run, gets that."""
        if not isinstance(rows, list | tuple):
            return rows
        columns = as_columns(rows)
        for known, own in usual.items():
            if own not in columns and known in columns:
                columns[own] = columns.pop(known)
        return columns

    def _refuse_unknown(self, links: Table, names: _Both) -> None:
        """An edge that ends nowhere, in words that fit a join."""
        columns = self.ends.source, self.ends.dest
        for column, ends in zip(columns, end_nodes(links, self.ends, names, False), strict=True):
            if (row := links.first(pl.Series(ends < 0))) is not None:
                id = links.frame[column][row]
                raise UnknownEnd(
                    f"{links.place(row)}: an edge ends at {_check.said(id)}, which is neither a "
                    "node of the graph nor a new one"
                )


class UnknownEnd(TableError):
    """An edge that ends at no node."""


@dataclass(frozen=True)
class _Both(Names):
    """Names of new nodes, and of those that they join."""

    before: Mapping[str, int]
    new: Mapping[str, int]

    def find(self, texts: pl.Series) -> np.ndarray:
        found = [self.new.get(text, self.before.get(text, -1)) for text in texts.to_list()]
        return np.array(found, np.int64)


class _Numbers(Mapping[str, int]):
    """Ids that are the numbers of their nodes."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __getitem__(self, id: str) -> int:
        plain = isinstance(id, str) and id.isascii() and id.isdecimal() and len(id) < 20
        if not plain or str(int(id)) != id or int(id) >= self._count:
            raise KeyError(id)
        return int(id)

    def __iter__(self) -> Any:
        return map(str, range(self._count))

    def __len__(self) -> int:
        return self._count


def numbers_of(dataset: Dataset) -> Mapping[str, int]:
    """The number of each node by its id."""
    if dataset.ids is None:
        return _Numbers(dataset.num_nodes)
    return {id: number for number, id in enumerate(dataset.ids)}


def refuse(dataset: Dataset) -> None:
    """Refuse a graph that no new nodes join."""
    schema: TableSchema | None = dataset.schema
    if dataset.batch is not None:
        raise TableError("new nodes do not join a collection of graphs")
    matrix = schema is not None and any(column.kind == Matrix.kind for column in schema.columns)
    if not dataset.own or schema is None or schema.ends is None or matrix:
        raise TableError(
            "new nodes join a graph that came from a table of nodes and one of edges, which says "
            "what their columns are: the model was not trained on such (sta train --nodes ...)"
        )


def as_columns(rows: Sequence[Any]) -> dict[str, list[Any]]:
    """Rows, a dictionary each, as columns; what a row has not is missing there."""
    for row in rows:
        _check.kind("a row", row, dict, "a dictionary of columns and values")
    names = dict.fromkeys(name for row in rows for name in row)
    return {str(name): [row.get(name) for row in rows] for name in names}
