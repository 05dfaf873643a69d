"""From tables of nodes and edges, or a graph of networkx, to a `Dataset`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from .. import _check
from .dataset import Dataset
from .features import from_scipy, is_csr, to_scipy
from .splits import own_codes
from .tables.edges import Edges, different_columns, find_ends, read_edges, simple
from .tables.infer import fit_columns
from .tables.labels import find_classes, rare, read_labels, read_split
from .tables.lazy import pl
from .tables.read import Table, TableError, counted, read_table
from .tables.schema import TableNotes, TableSchema, encode


def from_tables(
    nodes: Any,
    edges: Any,
    target: str | None = None,
    *,
    id: str | None = None,
    source: str | None = None,
    dest: str | None = None,
    weight: str | None = None,
    features: Sequence[str] | None = None,
    directed: bool = False,
    split_column: str | None = None,
    unknown_ends: str = "error",
) -> Dataset:
    """A graph from a table of nodes and a table of edges.

    >>> nodes = {"id": ["a", "b", "c"], "age": [30, 40, None], "label": ["x", "y", "x"]}
    >>> data = from_tables(nodes, {"source": ["a", "b"], "target": ["b", "c"]}, target="label")
    >>> data.x.shape, data.classes
    (torch.Size([3, 2]), ('x', 'y'))

    Args:
        nodes: path (.csv, .tsv, .parquet), polars or pandas frame, or a dictionary of columns.
        edges: likewise.
        target: column of the labels; empty where the label is to be predicted.
        id: column of the ids; by default 'id', else the first.
        source: column where an edge starts; by default by its usual names.
        dest: column where it ends, likewise.
        weight: column of the weights of the edges, none by default. Those of duplicates add up;
            without weights, duplicates are one edge.
        features: columns to use, as 'age' or with the kind as 'zip:category'; by default all.
        directed: keep the directions; by default an edge leads both ways, and its reverse is a
            duplicate of it.
        split_column: column that holds train, val, test or nothing.
        unknown_ends: 'error', or 'drop' for edges that end at no node of the table.

    Returns:
        A graph whose `schema` says how columns became features, and whose `notes` say what was
        done; y is -1 where the label is not known.
    """
    directed = _check.flag("directed", directed)
    people, links = read_table(nodes, "nodes"), read_table(edges, "edges")
    if id is None:
        id = "id" if "id" in people.frame.columns else people.frame.columns[0]
    taken = different_columns(id=id, target=target, split_column=split_column)
    ids = read_ids(people, id)
    ends = find_ends(links, source, dest, weight)
    classes = [] if target is None else find_classes(people, target)
    columns, left_out = fit_columns(people, features, taken)
    schema = TableSchema(id, target, ends, directed, tuple(columns), left_out)
    found = read_edges(links, ends, ids, directed, unknown_ends)
    data = _assemble(schema, classes, people, ids, found)
    assert data.notes is not None
    if target is not None:
        data.notes.words += rare(data.y.numpy(), classes)
    if split_column is None:
        return data
    masks, words = read_split(people, split_column, data.y.numpy())
    data.notes.words += words
    return replace(data, splits={"own": own_codes(*map(torch.from_numpy, masks.values()))})


def apply_schema(dataset: Dataset, nodes: Any, edges: Any, unknown_ends: str = "error") -> Dataset:
    """Other tables with the same columns as a graph, by what was learnt from its own tables."""
    schema, people, ids, found = _other_tables(dataset, nodes, edges, unknown_ends)
    return _assemble(schema, dataset.classes, people, ids, found)


def join_tables(dataset: Dataset, nodes: Any, edges: Any, unknown_ends: str = "error") -> Dataset:
    """A graph with new nodes, whose edges may end at each other and at nodes that were there.

    The new nodes are the last ones; there is no split.
    """
    _check.kind("dataset", dataset, Dataset, "a Dataset")
    old = pl.Series(dataset.node_ids, dtype=pl.String)
    schema, people, ids, found = _other_tables(dataset, nodes, edges, unknown_ends, old)
    x, y, notes = _nodes(schema, dataset.classes, people, found)
    index = np.concatenate([dataset.edge_index.numpy(), found.index], axis=1)
    weight = None
    if found.weight is not None and dataset.edge_weight is not None:
        weight = np.concatenate([dataset.edge_weight.numpy(), found.weight])
    index, weight, _ = simple(index[0], index[1], weight, len(ids), directed=True)
    return replace(
        dataset,
        x=_stack(dataset.x, x),
        y=torch.cat([dataset.y, y]),
        **_edges(index, weight),
        ids=ids.to_list(),
        splits={},
        notes=notes,
        encoding=None,
    )


def from_networkx(graph: Any, target: str | None = None, **options: Any) -> Dataset:
    """A graph of networkx: attributes of its nodes are columns; directions are kept if it has them.

    Args:
        graph: `networkx.Graph` or `DiGraph`.
        target: attribute that holds the label.
        options: as in `from_tables`: weight (an attribute of edges), features, split_column.
    """
    if not hasattr(graph, "nodes") or not callable(getattr(graph, "is_directed", None)):
        raise TypeError(f"graph must be a graph of networkx, got {_check.said(graph)}")
    nodes, edges = list(graph.nodes(data=True)), list(graph.edges(data=True))
    people = _attributes(nodes, {"id": [str(node) for node, _ in nodes]})
    ends = {"source": [str(edge[0]) for edge in edges], "target": [str(edge[1]) for edge in edges]}
    options = {"directed": graph.is_directed(), **options}
    return from_tables(
        people, _attributes(edges, ends), target, id="id", source="source", dest="target", **options
    )


def _attributes(items: list[Any], start: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The attributes of nodes or edges as columns; an attribute that one lacks is missing there."""
    names = dict.fromkeys(name for item in items for name in item[-1])
    for name in names:
        if str(name) in start:
            raise TableError(
                f"the attribute '{name}' has the name of a column that we make: rename"
            )
    return start | {str(name): [item[-1].get(name) for item in items] for name in names}


def read_ids(table: Table, column: str) -> pl.Series:
    """The ids as text [N], each there once."""
    ids = table.texts(column, "--id")
    if (row := table.first(ids.is_null())) is not None:
        raise TableError(f"{table.place(row)}: the id (column '{column}') is empty")
    twice = ids.is_duplicated()
    if (row := table.first(twice)) is not None:
        value = ids[row]
        first, second = (ids == value).arg_true()[:2]
        raise TableError(
            f"{table.place(second)}: the id '{value}' is that of {table.place(first)} too; ids "
            f"must be different ({int(twice.sum()):,} rows share theirs; another column: --id)"
        )
    return ids


def _other_tables(
    dataset: Dataset, nodes: Any, edges: Any, unknown_ends: str, old: pl.Series | None = None
) -> tuple[TableSchema, Table, pl.Series, Edges]:
    """The schema, the nodes, all ids (`old` ones first) and the edges between them.

    All columns must be there that the schema needs.
    """
    schema = _check.kind("dataset", dataset, Dataset, "a Dataset").schema
    if schema is None or schema.ends is None:
        raise TableError("this model was not trained on a table of edges: predict from Python")
    people, links = read_table(nodes, "nodes"), read_table(edges, "edges")
    people.column(schema.id, "the id, as in the tables of the run")
    for column in schema.columns:
        people.column(column.name, "a feature of the model")
    for name in filter(None, schema.ends):
        links.column(name, "as in the tables of the run")
    ids = read_ids(people, schema.id)
    if old is not None:
        again = ids.is_in(old.implode())
        if (row := people.first(again)) is not None:
            raise TableError(
                f"{people.place(row)}: the node '{ids[row]}' is in the graph of the run already "
                f"({int(again.sum()):,} such nodes)"
            )
        ids = pl.concat([old, ids])
    return schema, people, ids, read_edges(links, schema.ends, ids, schema.directed, unknown_ends)


def _assemble(
    schema: TableSchema, classes: Sequence[str], people: Table, ids: pl.Series, edges: Edges
) -> Dataset:
    x, y, notes = _nodes(schema, classes, people, edges)
    return Dataset(
        x=x,
        y=y,
        **_edges(edges.index, edges.weight),
        classes=tuple(classes),
        ids=ids.to_list(),
        schema=schema,
        notes=notes,
        source=people.name,
    )


def _edges(index: np.ndarray, weight: np.ndarray | None) -> dict[str, Any]:
    """The parts of a `Dataset` that edges are: edge_index [2, E] and edge_weight [E]."""
    weights = None if weight is None else torch.from_numpy(weight.astype(np.float32))
    return {"edge_index": torch.from_numpy(index), "edge_weight": weights}


def _nodes(
    schema: TableSchema, classes: Sequence[str], people: Table, edges: Edges
) -> tuple[Tensor, Tensor, TableNotes]:
    """The features x [N, F] and labels y [N] of a table of nodes, and notes on both tables."""
    assert schema.ends is not None  # there are tables
    x, lines = encode(schema, people)
    if schema.target is not None and schema.target in people.frame.columns:
        labels, words = read_labels(people, schema.target, list(classes))
    else:
        labels, words = np.full(len(people), -1), [f"{people.name}: {counted(len(people), 'node')}"]
    # Which columns hold the graph, since they may have been guessed.
    ends = f"an edge goes from '{schema.ends.source}' to '{schema.ends.dest}'"
    words = [f"a node is named by '{schema.id}', {ends}", *words, *edges.notes]
    return x, torch.from_numpy(labels), TableNotes(lines, words)


def _stack(first: Tensor, second: Tensor) -> Tensor:
    """Features of two graphs, one below the other, in the layout of the first."""
    if not is_csr(first):
        return torch.cat([first, second.to_dense()])
    below = to_scipy(second) if is_csr(second) else second.numpy()
    return from_scipy(scipy.sparse.vstack([to_scipy(first), scipy.sparse.csr_matrix(below)]))
