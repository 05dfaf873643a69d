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
from ..config import LinkPrediction, task_named
from . import targets
from .dataset import Dataset
from .features import append_columns, from_scipy, is_csr, to_scipy
from .splits import own_codes
from .tables.edges import Edges, Ends, different_columns, find_ends, read_edges, simple
from .tables.graphs import Graphs, edge_ends, find_id, node_ids, refuse_crossing, sort_nodes
from .tables.infer import fit_columns
from .tables.labels import find_names, rare, read_split, read_target
from .tables.lazy import pl
from .tables.read import Table, TableError, counted, read_table
from .tables.schema import ColumnLine, TableNotes, TableSchema, encode


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
    graph_column: str | None = None,
    graphs: Any = None,
    task: str = "classification",
) -> Dataset:
    """A graph from a table of nodes and a table of edges; or many graphs, with a table of them.

    >>> nodes = {"id": ["a", "b", "c"], "age": [30, 40, None], "label": ["x", "y", "x"]}
    >>> data = from_tables(nodes, {"source": ["a", "b"], "target": ["b", "c"]}, target="label")
    >>> data.x.shape, data.classes
    (torch.Size([3, 2]), ('x', 'y'))

    Args:
        nodes: path (.csv, .tsv, .parquet), polars or pandas frame, or a dictionary of columns.
        edges: likewise.
        target: column of the classes, labels or numbers; empty where they are to be predicted.
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
        graph_column: column of the nodes that names the graph of each: the target is then that of
            each graph. Where ids of nodes repeat in different graphs, the edges have it too.
        graphs: table of the graphs, with their target, split and columns of their own, which are
            features of all nodes of a graph.
        task: what the target is for: 'classification' (a class of each node), 'multilabel' (a list
            of labels of each, in CSV as JSON), 'regression' (a number), or another of `config`.

    Returns:
        A graph whose `schema` says how columns became features, and whose `notes` say what was
        done; y is -1 where a class, and NaN where labels or a number are not known.
    """
    kind, of_links = task_named(task).target or "class", task_named(task) is LinkPrediction
    if of_links and split_column is not None:
        raise TableError(
            f"a split column is not for links, which are split at random by the seed: leave out "
            f"--split-column {split_column}"
        )
    directed = _check.flag("directed", directed)
    people, links = read_table(nodes, "nodes"), read_table(edges, "edges")
    if graphs is not None and graph_column is None:
        graph_column = "graph"
    if id is None:
        others = [name for name in people.frame.columns if name != graph_column]
        id = next((name for name in ("id", *others) if name in people.frame.columns), "id")
    ends = find_ends(_without(links, graph_column), source, dest, weight)
    many = None
    if graph_column is not None:
        if target is not None and graphs is None:
            raise TableError(
                f"the target '{target}' is that of each graph: name the table of graphs (--graphs)"
            )
        table = None if graphs is None else read_table(graphs, "graphs")
        people, links, many = _side_by_side(people, links, table, id, graph_column, ends)
    told = people if many is None or many.table is None else many.table  # who has the target
    of_units = {"target": target, "split_column": split_column}
    of_nodes = {"id": id, "graph_column": graph_column, **(of_units if told is people else {})}
    taken = different_columns(**of_nodes)
    ids = read_ids(people, id)
    classes = [] if target is None else find_names(kind, told, target)
    columns, left_out = fit_columns(people, features, taken)
    schema = TableSchema(id, target, ends, directed, tuple(columns), left_out, graph_column)
    schema = replace(schema, target_kind=kind)
    if many is not None and many.table is not None:
        schema = replace(schema, graphs=_graph_schema(many, **of_units))
    if many is not None:
        refuse_crossing(links, ends, ids, many)
    found = read_edges(links, ends, ids, directed, unknown_ends)
    data = _assemble(schema, classes, people, ids, found, many)
    assert data.notes is not None
    if target is not None and kind == "class":
        data.notes.words += rare(data.y.numpy(), classes, told.unit)
    if target is not None and of_links:
        data.notes.words.append(
            f"links have no target: column '{target}' (--target) is kept out of the features, and "
            "nothing is learnt from it"
        )
    if split_column is None:
        return data
    masks, words = read_split(told, split_column, data.known.numpy())
    data.notes.words += words
    return replace(data, splits={"own": own_codes(*map(torch.from_numpy, masks.values()))})


def apply_schema(
    dataset: Dataset, nodes: Any, edges: Any, unknown_ends: str = "error", graphs: Any = None
) -> Dataset:
    """Other tables with the same columns as a graph, by what was learnt from its own tables.

    Of many graphs, `graphs` is the table of the new ones; it may lack if it has no features.
    """
    schema, people, ids, found, many = _other_tables(dataset, nodes, edges, unknown_ends, graphs)
    return _assemble(schema, dataset.classes, people, ids, found, many)


def join_tables(dataset: Dataset, nodes: Any, edges: Any, unknown_ends: str = "error") -> Dataset:
    """A graph with new nodes, whose edges may end at each other and at nodes that were there.

    The new nodes are the last ones; there is no split.
    """
    if _check.kind("dataset", dataset, Dataset, "a Dataset").batch is not None:
        raise TableError("new nodes do not join a collection of graphs: leave out --join")
    old = pl.Series(dataset.node_ids, dtype=pl.String)
    schema, people, ids, found, _ = _other_tables(dataset, nodes, edges, unknown_ends, old=old)
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


def read_ids(table: Table, column: str, option: str = "; another column: --id") -> pl.Series:
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
            f"must be different ({int(twice.sum()):,} rows share theirs{option})"
        )
    return ids


def _without(table: Table, column: str | None) -> Table:
    """The table without a column, if it has it."""
    if column is None or column not in table.frame.columns:
        return table
    return replace(table, frame=table.frame.drop(column))


def _side_by_side(
    people: Table, links: Table, table: Table | None, id: str, column: str, ends: Ends
) -> tuple[Table, Table, Graphs]:
    """Nodes, those of a graph together, and edges, both by ids that differ; and the graphs."""
    people.column(column, "--graph-column")
    key = None if table is None else find_id(table, column)
    names = None if table is None or key is None else read_ids(table, key, "")
    people, many = sort_nodes(people, column, table, key, names)
    people = node_ids(people, id, column, named=column in links.frame.columns)
    return people, edge_ends(links, ends, column), many


def _graph_schema(many: Graphs, target: str | None, split_column: str | None) -> TableSchema:
    """How the columns of a table of graphs become features."""
    assert many.table is not None
    assert many.id is not None
    taken = different_columns(id=many.id, target=target, split_column=split_column)
    for name in taken - {many.id}:
        many.table.column(name, "--target" if name == target else "--split-column")
    columns, left_out = fit_columns(many.table, None, taken)
    return TableSchema(many.id, target, None, True, tuple(columns), left_out)


def _other_tables(
    dataset: Dataset,
    nodes: Any,
    edges: Any,
    unknown_ends: str,
    graphs: Any = None,
    old: pl.Series | None = None,
) -> tuple[TableSchema, Table, pl.Series, Edges, Graphs | None]:
    """The schema, the nodes, all ids (`old` ones first), the edges between them, and the graphs.

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
    many = None
    if schema.graph is not None:
        table = None if graphs is None else read_table(graphs, "graphs")
        for column in schema.graphs.columns if schema.graphs else ():
            if table is None:
                raise TableError(
                    f"the model knows graphs by '{column.name}': name the table of the new ones "
                    "(--graphs)"
                )
            table.column(column.name, "a feature of the model")
        parts = people, links, table, schema.id, schema.graph, schema.ends
        people, links, many = _side_by_side(*parts)
    elif graphs is not None:
        raise TableError("the model was trained on one graph: --graphs is for many")
    ids = read_ids(people, schema.id)
    if old is not None:
        again = ids.is_in(old.implode())
        if (row := people.first(again)) is not None:
            raise TableError(
                f"{people.place(row)}: the node '{ids[row]}' is in the graph of the run already "
                f"({counted(int(again.sum()), 'such node')})"
            )
        ids = pl.concat([old, ids])
    if many is not None:
        refuse_crossing(links, schema.ends, ids, many)
    found = read_edges(links, schema.ends, ids, schema.directed, unknown_ends)
    return schema, people, ids, found, many


def _assemble(
    schema: TableSchema,
    classes: Sequence[str],
    people: Table,
    ids: pl.Series,
    edges: Edges,
    many: Graphs | None = None,
) -> Dataset:
    x, y, notes = _nodes(schema, classes, people, edges, many)
    return Dataset(
        x=x,
        y=y,
        **_edges(edges.index, edges.weight),
        classes=tuple(classes),
        ids=ids.to_list(),
        schema=schema,
        notes=notes,
        source=people.name,
        batch=None if many is None else torch.from_numpy(many.batch),
        graph_ids=None if many is None else many.ids.to_list(),
    )


def _edges(index: np.ndarray, weight: np.ndarray | None) -> dict[str, Any]:
    """The parts of a `Dataset` that edges are: edge_index [2, E] and edge_weight [E]."""
    weights = None if weight is None else torch.from_numpy(weight.astype(np.float32))
    return {"edge_index": torch.from_numpy(index), "edge_weight": weights}


def _nodes(
    schema: TableSchema,
    classes: Sequence[str],
    people: Table,
    edges: Edges,
    many: Graphs | None = None,
) -> tuple[Tensor, Tensor, TableNotes]:
    """The features x [N, F] and labels y [N] or [G] of tables, and notes on them."""
    assert schema.ends is not None  # there are tables
    x, lines = encode(schema, people)
    told: Table | None = people
    if many is not None:
        told = many.table
        x, lines = _beside(x, lines, schema, many)
    units, words = len(people) if many is None else len(many.ids), list[str]()
    if told is not people:
        words.append(f"{people.name}: {counted(len(people), 'node')} of {counted(units, 'graph')}")
    if told is not None and schema.target is not None and schema.target in told.frame.columns:
        labels, more = read_target(schema.target_kind, told, schema.target, list(classes))
    else:
        labels = targets.unknown(schema.target_kind, units, len(classes)).numpy()
        more = [f"{people.name}: {counted(len(people), 'node')}"] if told is people else []
    words += more
    # Which columns hold the graph, since they may have been guessed.
    ends = f"an edge goes from '{schema.ends.source}' to '{schema.ends.dest}'"
    words = [f"a node is named by '{schema.id}', {ends}", *words, *edges.notes]
    return x, torch.from_numpy(labels), TableNotes(lines, words)


def _beside(
    x: Tensor, lines: list[ColumnLine], schema: TableSchema, many: Graphs
) -> tuple[Tensor, list[ColumnLine]]:
    """The features of nodes with those of their graphs beside them, and a line for each column."""
    if schema.graphs is None or many.table is None:
        return x, lines
    own, more = encode(schema.graphs, many.table)
    if not own.size(1):
        return x, lines + more
    return append_columns(x, own.to_dense()[torch.from_numpy(many.batch)]), lines + more


def _stack(first: Tensor, second: Tensor) -> Tensor:
    """Features of two graphs, one below the other, in the layout of the first."""
    if not is_csr(first):
        return torch.cat([first, second.to_dense()])
    below = to_scipy(second) if is_csr(second) else second.numpy()
    return from_scipy(scipy.sparse.vstack([to_scipy(first), scipy.sparse.csr_matrix(below)]))
