"""From tables of nodes and edges, or a graph of networkx, to a `Dataset`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from .. import _check
from ..config import LinkPrediction, task_named
from ..io import FileError
from . import targets
from .advice import advise, isolated, set_apart
from .dataset import Dataset
from .features import append_columns, from_scipy, is_csr, to_scipy
from .splits import Split, own_codes
from .tables.edges import (
    Edges,
    Ends,
    different_columns,
    find_ends,
    find_weights,
    read_edges,
    simple,
)
from .tables.graphs import Graphs, edge_ends, find_id, node_ids, refuse_crossing, sort_nodes
from .tables.infer import fit_columns
from .tables.labels import AS_IT_IS, find_cells, find_names, rare, read_split, read_target
from .tables.lazy import pl
from .tables.names import Names, read_names
from .tables.read import read_table
from .tables.readings import Reading
from .tables.schema import ColumnLine, TableNotes, TableSchema, encode
from .tables.table import Table, TableError, counted
from .tables.telling import NO_NAME, Shown, folder_of, holds_paths, picture_column, tell
from .told import Told


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
    leave_out: Sequence[str] = (),
    directed: bool = False,
    split_column: str | None = None,
    unknown_ends: str = "error",
    graph_column: str | None = None,
    graphs: Any = None,
    task: str = "classification",
    name: str | None = None,
    picture: str | None = None,
) -> Dataset:
    """A graph from a table of nodes and a table of edges; or many graphs, with a table of them.

    >>> nodes = {"id": ["a", "b", "c"], "age": [30, 40, None], "label": ["x", "y", "x"]}
    >>> data = from_tables(nodes, {"source": ["a", "b"], "target": ["b", "c"]}, target="label")
    >>> data.x.shape, data.classes
    (torch.Size([3, 2]), ('x', 'y'))

    Args:
        nodes: path of a file (CSV, JSON lines, Parquet, Excel), of a folder or a pattern of parts,
            a `Query` of a database, a polars or pandas frame, or a dictionary of columns.
        edges: likewise.
        target: column of the classes, labels or numbers; empty where they are to be predicted.
        id: column of the ids; by default 'id', else the first.
        source: column where an edge starts; by default by its usual names.
        dest: column where it ends, likewise.
        weight: column of the weights of the edges, none by default. Those of duplicates add up;
            without weights, duplicates are one edge.
        features: columns to use, as 'age' or with the kind as 'zip:category'; by default all. In
            place of a kind also how it is read: 'date', 'day-first', 'month-first',
            'decimal-comma' or 'decimal-point'.
        leave_out: columns not to use, where all others are.
        directed: keep the directions; by default an edge leads both ways, and its reverse is a
            duplicate of it.
        split_column: column that holds train, val, test or nothing.
        unknown_ends: 'error', or 'drop' for edges that end at no node of the table.
        graph_column: column of the nodes that names the graph of each: the target is then that of
            each graph. Where ids of nodes repeat in different graphs, the edges have it too.
        graphs: table of the graphs, with their target, split and columns of their own, which are
            features of all nodes of a graph.
        task: what the target is for: 'classification' (a class of each node), 'multilabel' (a list
            of labels of each, in CSV as JSON or as a;b), 'regression' (a number), or another of
            `config`.
        name: column that says what nodes are called, where they are shown: by default one such as
            'name' or 'title', if most nodes have one of their own; 'none' for none.
        picture: column of a small picture of each node: paths of files, from the folder of the
            table on, or rows of pixels, of a square or with their size behind it: 'scan:8x12'.

    Returns:
        A graph whose `schema` says how columns became features, and whose `notes` say what was
        done, and in `warnings` what to look at before training; y is -1 where a class, and NaN
        where labels or a number are not known.
    """
    asked = Asked(
        target,
        id,
        source,
        dest,
        weight,
        features,
        leave_out,
        directed,
        split_column,
        unknown_ends,
        graph_column,
        graphs,
        task,
        name,
        picture,
    )
    read = read_tables(nodes, edges, asked)
    return Dataset(
        x=read.x,
        y=read.y,
        **edge_parts(read.edges),
        classes=read.classes,
        ids=read.names.ids.to_list(),
        splits={} if read.split is None else {"own": own_codes(*read.split)},
        schema=read.schema,
        notes=read.notes,
        source=read.source,
        batch=read.batch,
        graph_ids=None if read.many is None else read.many.ids.to_list(),
        told=read.told,
    )


class Asked(NamedTuple):
    """What is asked of tables: see `from_tables`."""

    target: str | None = None
    id: str | None = None
    source: str | None = None
    dest: str | None = None
    weight: str | None = None
    features: Sequence[str] | None = None
    leave_out: Sequence[str] = ()
    directed: bool = False
    split_column: str | None = None
    unknown_ends: str = "error"
    graph_column: str | None = None
    graphs: Any = None
    task: str = "classification"
    name: str | None = None
    picture: str | None = None


@dataclass(frozen=True)
class Read:
    """What tables say; where several ranks read them, what the rows of this one do.

    Attributes:
        x, y: features and target of its nodes, or of many graphs the targets of these.
        edges: some of the edges, by the numbers of their ends.
        names: the ids.
        split: masks, if there is a split column.
        many: the graphs, if there are many.
        files: what this rank has read of, where there are several.
        told: the table of the nodes as it was written, where it is kept.
    """

    x: Tensor
    y: Tensor
    edges: Edges
    names: Names
    classes: tuple[str, ...]
    schema: TableSchema
    notes: TableNotes
    source: str
    split: Split | None
    many: Graphs | None
    files: tuple[str, ...]
    told: Told | None = None

    @property
    def edge_index(self) -> Tensor:
        return torch.from_numpy(self.edges.index)

    @property
    def linked(self) -> np.ndarray | None:
        """Which nodes have an edge to another, [N], where the edges are not here."""
        return self.edges.linked

    @property
    def batch(self) -> Tensor | None:
        return None if self.many is None else torch.from_numpy(self.many.batch)

    @property
    def num_nodes(self) -> int:
        """Of all ranks."""
        return self.names.count

    @property
    def num_units(self) -> int:
        return self.y.size(0)

    @property
    def unit(self) -> str:
        return "node" if self.many is None else "graph"

    @property
    def target(self) -> str:
        return targets.kind_of(self.y)

    @property
    def known(self) -> Tensor:
        return targets.known(self.y)


class Sink:
    """Where edges and features go as they are read: into memory."""

    def edges(
        self,
        table: Table,
        ends: Ends,
        names: Names,
        directed: bool,
        unknown_ends: str,
        reading: Reading | None,
    ) -> Edges:
        """See `read_edges`."""
        return read_edges(table, ends, names, directed, unknown_ends, reading)

    def features(self, schema: TableSchema, table: Table) -> tuple[Tensor, list[ColumnLine]]:
        """See `encode`."""
        return encode(schema, table)


def read_tables(nodes: Any, edges: Any, asked: Asked, sink: Sink | None = None) -> Read:
    """What two tables say: see `from_tables`."""
    sink = Sink() if sink is None else sink
    target, features, graph_column = asked.target, asked.features, asked.graph_column
    kind = task_named(asked.task).target or "class"
    of_links = task_named(asked.task) is LinkPrediction
    if of_links and asked.split_column is not None:
        raise TableError(
            f"a split column is not for links, which are split at random by the seed: leave out "
            f"--split-column {asked.split_column}"
        )
    directed = _check.flag("directed", asked.directed)
    people, links = read_table(nodes, "nodes"), read_table(edges, "edges")
    if asked.graphs is not None and graph_column is None:
        graph_column = "graph"
    id = asked.id
    if id is None:
        others = [name for name in people.frame.columns if name != graph_column]
        id = next((name for name in ("id", *others) if name in people.frame.columns), "id")
    ends = find_ends(_without(links, graph_column), asked.source, asked.dest, asked.weight)
    many = None
    if graph_column is not None:
        if target is not None and asked.graphs is None:
            raise TableError(
                f"the target '{target}' is that of each graph: name the table of graphs (--graphs)"
            )
        table = None if asked.graphs is None else read_table(asked.graphs, "graphs")
        people, links, many = _side_by_side(people, links, table, id, graph_column, ends)
    told = people if many is None or many.table is None else many.table  # who has the target
    of_units = {"target": target, "split_column": asked.split_column}
    of_nodes = {"id": id, "graph_column": graph_column, **(of_units if told is people else {})}
    taken = different_columns(**of_nodes)
    names = read_names(people, id)
    for what in ("name", "picture"):
        given = getattr(asked, what)
        _check.kind(what, given, (str, type(None)), "the name of a column")
    shown = Shown(asked.name, asked.picture, folder_of(nodes))
    written, about_told = tell(people, id, shown, taken)
    cells = AS_IT_IS if target is None else find_cells(kind, told, target)
    classes = [] if target is None else find_names(kind, told, target, cells)
    unwanted = _unwanted(asked.leave_out, people, many)
    apart = _set_apart(people, features, taken, unwanted, of_links)
    apart |= _pictures_apart(people, features, taken, asked.picture)
    columns, left_out = fit_columns(people, features, taken | apart.keys())
    left_out = left_out | apart
    schema = TableSchema(id, target, ends, directed, tuple(columns), left_out, graph_column)
    schema = replace(schema, target_kind=kind, cells=cells, weights=find_weights(links, ends))
    if many is not None and many.table is not None:
        schema = replace(schema, graphs=_graph_schema(many, asked.leave_out, **of_units))
    if many is not None:
        refuse_crossing(links, ends, names, many)
    found = sink.edges(links, ends, names, directed, asked.unknown_ends, schema.weights)
    x, y, notes = encode_nodes(schema, classes, people, found, many, sink)
    files = (*people.files, *links.files)
    about = tuple(classes), schema, notes, people.name
    notes.words += about_told
    read = Read(x, y, found, names, *about, None, many, files, written)
    if target is not None and kind == "class":
        notes.words += rare(y.numpy(), classes, told.unit)
    if target is not None and of_links:
        notes.words.append(
            f"links have no target: column '{target}' (--target) is kept out of the features, and "
            "nothing is learnt from it"
        )
    tables = [people] if many is None or many.table is None else [people, many.table]
    named = {name.rpartition(":")[0] for name in features or () if name not in people.frame.columns}
    notes.warnings += advise(read, tables, settled=named)
    if asked.split_column is None:
        return read
    masks, words = read_split(told, asked.split_column, read.known.numpy())
    notes.words += words
    return replace(read, split=Split(*map(torch.from_numpy, masks.values())))


def apply_schema(
    dataset: Dataset, nodes: Any, edges: Any, unknown_ends: str = "error", graphs: Any = None
) -> Dataset:
    """Other tables with the same columns as a graph, by what was learnt from its own tables.

    Of many graphs, `graphs` is the table of the new ones; it may lack if it has no features.
    """
    schema, people, ids, found, many = _other_tables(dataset, nodes, edges, unknown_ends, graphs)
    data = _assemble(schema, dataset.classes, people, ids, found, many)
    data = data._with(told=_told_like(dataset, people, schema))
    assert data.notes is not None
    data.notes.warnings += isolated(data)
    return data


def join_tables(dataset: Dataset, nodes: Any, edges: Any, unknown_ends: str = "error") -> Dataset:
    """A graph with new nodes, whose edges may end at each other and at nodes that were there.

    The new nodes are the last ones; there is no split.
    """
    if _check.kind("dataset", dataset, Dataset, "a Dataset").batch is not None:
        raise TableError("new nodes do not join a collection of graphs: leave out --join")
    old = pl.Series(dataset.node_ids, dtype=pl.String)
    schema, people, ids, found, _ = _other_tables(dataset, nodes, edges, unknown_ends, old=old)
    x, y, notes = encode_nodes(schema, dataset.classes, people, found)
    index = np.concatenate([dataset.edge_index.numpy(), found.index], axis=1)
    weight = None
    if found.weight is not None and dataset.edge_weight is not None:
        weight = np.concatenate([dataset.edge_weight.numpy(), found.weight])
    index, weight, _ = simple(index[0], index[1], weight, len(ids), directed=True)
    joint = replace(found, index=index, weight=weight)
    joined = replace(
        dataset,
        x=stacked(dataset.x, x),
        y=torch.cat([dataset.y, y]),
        **edge_parts(joint),
        ids=ids.to_list(),
        splits={},
        notes=notes,
        encoding=None,
        told=(dataset.told or Told()).joined(
            dataset.num_nodes, _told_like(dataset, people, schema), len(people)
        ),
    )
    notes.warnings += isolated(joined, first=dataset.num_nodes)
    return joined


def _told_like(dataset: Dataset, people: Table, schema: TableSchema) -> Told | None:
    """What another table of nodes says, which are called by the same column as those of a graph."""
    name = None
    with suppress(FileError):  # what is damaged is named where it is shown
        name = None if dataset.told is None else dataset.told.name
    there = name is not None and name in people.frame.columns
    return tell(people, schema.id, Shown(name if there else NO_NAME))[0]


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
    names = None if table is None or key is None else read_names(table, key, "").ids
    people, many = sort_nodes(people, column, table, key, names)
    people = node_ids(people, id, column, named=column in links.frame.columns)
    return people, edge_ends(links, ends, column), many


def _unwanted(leave_out: Any, people: Table, many: Graphs | None) -> list[str]:
    """The columns that are not wanted, if there are such of nodes or graphs."""
    if not isinstance(leave_out, list | tuple) or not all(isinstance(n, str) for n in leave_out):
        raise TypeError(f"leave_out must be a list of columns, got {_check.said(leave_out)}")
    of_graphs = [] if many is None or many.table is None else many.table.frame.columns
    for name in leave_out:
        if name not in of_graphs:
            people.column(name, "--leave-out")
    return list(leave_out)


def _set_apart(
    table: Table, features: Any, taken: set[str], unwanted: Sequence[str], links: bool = False
) -> dict[str, str]:
    """Columns that are no features, and why: as asked, or unless features are named, of no use."""
    for name in unwanted:
        if name in taken:
            raise TableError(
                f"column '{name}' (--leave-out) is the id, the label or the split, and no feature"
            )
        if isinstance(features, list | tuple) and name in [str(f).split(":")[0] for f in features]:
            raise TableError(f"column '{name}' cannot be both in --features and in --leave-out")
    asked = {name: "as asked (--leave-out)" for name in unwanted if name in table.frame.columns}
    found = {} if features is not None else set_apart(table, taken | asked.keys(), links)
    return asked | found


def _pictures_apart(
    table: Table, features: Any, taken: set[str], picture: str | None
) -> dict[str, str]:
    """The column of paths of pictures, if there is one, which says nothing by its words."""
    if picture is None or features is not None:
        return {}
    column, _ = picture_column(table, picture)
    if column in taken or not holds_paths(table, column):
        return {}
    return {column: "the pictures (--picture)"}


def _graph_schema(
    many: Graphs, unwanted: Sequence[str], target: str | None, split_column: str | None
) -> TableSchema:
    """How the columns of a table of graphs become features."""
    assert many.table is not None
    assert many.id is not None
    taken = different_columns(id=many.id, target=target, split_column=split_column)
    for name in taken - {many.id}:
        many.table.column(name, "--target" if name == target else "--split-column")
    apart = _set_apart(many.table, None, taken, unwanted)
    columns, left_out = fit_columns(many.table, None, taken | apart.keys())
    return TableSchema(many.id, target, None, True, tuple(columns), left_out | apart)


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
    check_columns(schema, people, links)
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
    known = read_names(people, schema.id)
    if old is not None:
        ids = known.ids
        again = ids.is_in(old.implode())
        if (row := people.first(again)) is not None:
            raise TableError(
                f"{people.place(row)}: the node '{ids[row]}' is in the graph of the run already "
                f"({counted(int(again.sum()), 'such node')})"
            )
        known = Names.of(pl.concat([old, ids]))
    if many is not None:
        refuse_crossing(links, schema.ends, known, many)
    read_as = schema.weights
    found = read_edges(links, schema.ends, known, schema.directed, unknown_ends, read_as)
    return schema, people, known.ids, found, many


def check_columns(schema: TableSchema, people: Table, links: Table | None) -> None:
    """Refuse tables of nodes and edges that have not the columns of the run's."""
    people.column(schema.id, "the id, as in the tables of the run")
    for column in schema.columns:
        people.column(column.name, "a feature of the model")
    for name in filter(None, schema.ends or ()):
        if links is not None:
            links.column(name, "as in the tables of the run")


def _assemble(
    schema: TableSchema,
    classes: Sequence[str],
    people: Table,
    ids: pl.Series,
    edges: Edges,
    many: Graphs | None = None,
) -> Dataset:
    x, y, notes = encode_nodes(schema, classes, people, edges, many)
    return Dataset(
        x=x,
        y=y,
        **edge_parts(edges),
        classes=tuple(classes),
        ids=ids.to_list(),
        schema=schema,
        notes=notes,
        source=people.name,
        batch=None if many is None else torch.from_numpy(many.batch),
        graph_ids=None if many is None else many.ids.to_list(),
    )


def edge_parts(edges: Edges) -> dict[str, Any]:
    """The parts of a `Dataset` that edges are: edge_index [2, E] and edge_weight [E]."""
    weight = edges.weight
    weights = None if weight is None else torch.from_numpy(weight.astype(np.float32))
    return {"edge_index": torch.from_numpy(edges.index), "edge_weight": weights}


def encode_nodes(
    schema: TableSchema,
    classes: Sequence[str],
    people: Table,
    edges: Edges,
    many: Graphs | None = None,
    sink: Sink | None = None,
) -> tuple[Tensor, Tensor, TableNotes]:
    """The features x [N, F] and labels y [N] or [G] of tables, and notes on them."""
    assert schema.ends is not None  # there are tables
    x, lines = (sink or Sink()).features(schema, people)
    told: Table | None = people
    if many is not None:
        told = many.table
        x, lines = _beside(x, lines, schema, many)
    units, words = len(people) if many is None else len(many.ids), list[str]()
    if told is not people:
        words.append(f"{people.name}: {counted(len(people), 'node')} of {counted(units, 'graph')}")
    if told is not None and schema.target is not None and schema.target in told.frame.columns:
        of_target = schema.target_kind, told, schema.target, list(classes), schema.cells
        labels, more = read_target(*of_target)
    else:
        labels = targets.unknown(schema.target_kind, units, len(classes)).numpy()
        more = [f"{people.name}: {counted(people.count, 'node')}"] if told is people else []
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


def stacked(first: Tensor, second: Tensor) -> Tensor:
    """Features of two graphs, one below the other, in the layout of the first."""
    if not is_csr(first):
        return torch.cat([first, second.to_dense()])
    below = to_scipy(second) if is_csr(second) else second.numpy()
    return from_scipy(scipy.sparse.vstack([to_scipy(first), scipy.sparse.csr_matrix(below)]))
