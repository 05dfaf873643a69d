"""From two tables to a graph: a PyG `Data` that knows its ids, its classes and its columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from torch_geometric.data import Data

from ..features import from_scipy, is_csr, to_scipy
from .edges import Edges, find_ends, read_edges, simple
from .infer import fit_columns
from .labels import find_classes, rare, read_labels, read_split
from .lazy import pl
from .read import Table, TableError, counted, read_table
from .schema import TableNotes, TableSchema, encode


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
) -> Data:
    """A graph from a table of nodes and a table of edges.

    >>> nodes = {"id": ["a", "b", "c"], "age": [30, 40, None], "label": ["x", "y", "x"]}
    >>> data = from_tables(nodes, {"source": ["a", "b"], "target": ["b", "c"]}, target="label")
    >>> data.x.shape, data.classes
    (torch.Size([3, 2]), ['x', 'y'])

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
        Data with x [N, F] (dense or CSR), edge_index [2, E], edge_weight [E] if there is one,
        y [N] (-1 where unknown), train_mask, val_mask and test_mask with a split column, and
        ids, classes, recipe (how columns became features) and report (what was done).
    """
    people, links = read_table(nodes, "nodes"), read_table(edges, "edges")
    id = id or ("id" if "id" in people.frame.columns else people.frame.columns[0])
    ids = read_ids(people, id)
    taken = {name for name in (id, target, split_column) if name is not None}
    ends = find_ends(links, source, dest, weight)
    classes = [] if target is None else find_classes(people, target)
    columns, left_out = fit_columns(people, features, taken)
    recipe = TableSchema(id, target, ends, directed, tuple(columns), left_out)
    data = _assemble(
        recipe, classes, people, ids, read_edges(links, ends, ids, directed, unknown_ends)
    )
    if target is not None:
        data.report.words += rare(data.y.numpy(), classes)
    if split_column is not None:
        masks, notes = read_split(people, split_column, data.y.numpy())
        data.report.words += notes
        for part, mask in masks.items():
            data[f"{part}_mask"] = torch.from_numpy(mask)
    return data


def apply_recipe(
    recipe: TableSchema, classes: list[str], nodes: Any, edges: Any, unknown_ends: str = "error"
) -> Data:
    """Other tables with the same columns as a graph, by what was learnt from the first ones."""
    people, links, ids = _other_tables(recipe, nodes, edges)
    assert recipe.ends is not None  # _other_tables refuses
    found = read_edges(links, recipe.ends, ids, recipe.directed, unknown_ends)
    return _assemble(recipe, classes, people, ids, found)


def join_tables(data: Data, nodes: Any, edges: Any, unknown_ends: str = "error") -> Data:
    """A graph with new nodes, whose edges may end at each other and at nodes that were there.

    Returns:
        Data of all nodes, the new ones last.
    """
    people, links, new = _other_tables(data.recipe, nodes, edges)
    old = pl.Series(data.ids, dtype=pl.String)
    again = new.is_in(old.implode())
    if again.any():
        row = people.first(again)
        raise TableError(
            f"{people.place(row)}: the node '{new[row]}' is in the graph of the run already "
            f"({int(again.sum()):,} such nodes)"
        )
    found = read_edges(
        links, data.recipe.ends, pl.concat([old, new]), data.recipe.directed, unknown_ends
    )
    joined = _assemble(data.recipe, data.classes, people, new, found)
    joined.x = _stack(data.x, joined.x)
    index = np.concatenate([data.edge_index.numpy(), found.index], axis=1)
    weight = None
    if found.weight is not None:
        weight = np.concatenate([data.edge_weight.numpy(), found.weight])
    index, weight, _ = simple(index[0], index[1], weight, len(old) + len(new), directed=True)
    _set_edges(joined, index, weight)
    joined.y = torch.cat([data.y, joined.y])
    joined.ids = data.ids + joined.ids
    return joined


def read_ids(table: Table, column: str) -> pl.Series:
    """The ids as text [N], each there once."""
    ids = table.texts(column, "--id")
    if ids.null_count():
        row = table.first(ids.is_null())
        raise TableError(f"{table.place(row)}: the id (column '{column}') is empty")
    twice = ids.is_duplicated()
    if twice.any():
        value = ids[table.first(twice)]
        first, second = (ids == value).arg_true()[:2]
        raise TableError(
            f"{table.place(second)}: the id '{value}' is that of {table.place(first)} too; ids "
            f"must be different ({int(twice.sum()):,} rows share theirs; another column: --id)"
        )
    return ids


def _other_tables(recipe: TableSchema, nodes: Any, edges: Any) -> tuple[Table, Table, pl.Series]:
    """The tables and the ids, if all columns are there that the recipe needs."""
    if recipe.ends is None:
        raise TableError("this model was not trained on a table of edges: predict from Python")
    people, links = read_table(nodes, "nodes"), read_table(edges, "edges")
    people.column(recipe.id, "the id, as in the tables of the run")
    for column in recipe.columns:
        people.column(column.name, "a feature of the model")
    for name in filter(None, vars(recipe.ends).values()):
        links.column(name, "as in the tables of the run")
    return people, links, read_ids(people, recipe.id)


def _assemble(
    recipe: TableSchema, classes: list[str], people: Table, ids: pl.Series, edges: Edges
) -> Data:
    x, lines = encode(recipe, people)
    if recipe.target is not None and recipe.target in people.frame.columns:
        labels, notes = read_labels(people, recipe.target, classes)
    else:
        labels, notes = np.full(len(people), -1), [f"{people.name}: {counted(len(people), 'node')}"]
    data = Data(x=x, y=torch.from_numpy(labels))
    _set_edges(data, edges.index, edges.weight)
    notes.insert(0, _which_columns(recipe))
    return describe(data, ids.to_list(), classes, recipe, TableNotes(lines, notes + edges.notes))


def _which_columns(recipe: TableSchema) -> str:
    """Which columns hold the graph: they may have been guessed."""
    assert recipe.ends is not None  # there are tables
    source, dest = recipe.ends.source, recipe.ends.dest
    return f"a node is named by '{recipe.id}', an edge goes from '{source}' to '{dest}'"


def _set_edges(data: Data, index: np.ndarray, weight: np.ndarray | None) -> None:
    data.edge_index = torch.from_numpy(index)
    if weight is not None:
        data.edge_weight = torch.from_numpy(weight.astype(np.float32))


def describe(
    data: Data, ids: list[str], classes: list[str], recipe: TableSchema, report: TableNotes
) -> Data:
    """A graph with what tells people what its numbers are."""
    data.ids, data.classes, data.recipe, data.report = ids, classes, recipe, report
    return data


def _stack(first: Tensor, second: Tensor) -> Tensor:
    """Features of two graphs, one below the other, in the layout of the first."""
    if not is_csr(first):
        return torch.cat([first, second.to_dense() if is_csr(second) else second])
    below = to_scipy(second) if is_csr(second) else second.numpy()
    return from_scipy(scipy.sparse.vstack([to_scipy(first), scipy.sparse.csr_matrix(below)]))
