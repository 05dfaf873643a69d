"""Tables of many graphs: which node is in which, whose names may repeat from graph to graph.

A column of the nodes names the graph of each. A table of graphs has a row for each, with the target
and columns of its own. Where ids of nodes repeat in different graphs, edges name their graph too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .edges import BETWEEN, Ends, end_nodes
from .lazy import pl
from .names import Names
from .table import Table, TableError, counted, positions


@dataclass(frozen=True)
class Graphs:
    """Many graphs.

    Attributes:
        table: a row for each; None if there is no such table.
        id: its column of ids; None likewise.
        ids: the names of the graphs, [G].
        batch: the graph of each node, [N], ascending.
    """

    table: Table | None
    id: str | None
    ids: pl.Series
    batch: np.ndarray


def find_id(table: Table, column: str) -> str:
    """Which column of a table of graphs names them: that of the nodes' name, 'id' or the first."""
    names = table.frame.columns
    return next((name for name in (column, "id") if name in names), names[0])


def sort_nodes(
    nodes: Table, column: str, table: Table | None, id: str | None, ids: pl.Series | None
) -> tuple[Table, Graphs]:
    """The nodes, those of a graph together, and which graph each is in.

    `ids` [G] are those of the column `id` of the table of graphs; without it, graphs come in the
    order of the nodes.
    """
    texts = nodes.texts(column, "--graph-column")
    if (row := nodes.first(texts.is_null())) is not None:
        raise TableError(
            f"{nodes.place(row)}: column '{column}' (--graph-column) is empty: every node is in a "
            f"graph ({counted(texts.null_count(), 'such row')})"
        )
    if ids is None:
        ids = texts.unique(maintain_order=True)
    batch = positions(texts, ids)
    if (batch < 0).any():
        row = int(np.argmax(batch < 0))
        raise TableError(
            f"{nodes.place(row)}: the graph '{texts[row]}' (--graph-column {column}) is not in the "
            f"table of graphs ({counted(int((batch < 0).sum()), 'such node')})"
        )
    sizes = np.bincount(batch, minlength=len(ids))
    if not sizes.all():
        row = int(np.argmin(sizes))
        where = "" if table is None else f"{table.place(row)}: "
        raise TableError(
            f"{where}the graph '{ids[row]}' has no nodes in {nodes.name} "
            f"({counted(int((sizes == 0).sum()), 'such graph')}): leave it out, or add its nodes"
        )
    order = np.argsort(batch, kind="stable")
    rows = order if nodes.rows is None else nodes.rows[order]
    nodes = replace(nodes, frame=nodes.frame[order], rows=rows)
    return nodes, Graphs(table, id, ids, batch[order])


def whole_ids(table: Table, column: str, graph: str, option: str) -> pl.Series:
    """Ids of nodes with the name of their graph before them: 'm1/a'."""
    texts, graphs = table.texts(column, option), table.texts(graph, "--graph-column")
    return graphs + BETWEEN + texts  # null if either is


def node_ids(nodes: Table, column: str, graph: str, named: bool) -> Table:
    """The table of nodes with ids that differ in all graphs.

    They are whole ones where edges are named by graph and node (`named`), or else must differ.
    """
    texts = nodes.texts(column, "--id")
    if not named and (row := nodes.first(texts.is_duplicated())) is not None:
        twice = (texts == texts[row]).arg_true()
        graphs = nodes.texts(graph, "--graph-column")
        if graphs[int(twice[0])] != graphs[int(twice[1])]:
            raise TableError(
                f"{nodes.place(int(twice[1]))}: the id '{texts[row]}' is that of "
                f"{nodes.place(int(twice[0]))} in another graph too, so the table of edges must "
                f"say which graph is meant: give it the column '{graph}'"
            )
    if not named:
        return nodes
    ids = whole_ids(nodes, column, graph, "--id").alias(column)
    return replace(nodes, frame=nodes.frame.with_columns(ids))


def edge_ends(edges: Table, ends: Ends, graph: str) -> Table:
    """The table of edges with whole ids, where it has the column of the graph."""
    if graph not in edges.frame.columns:
        return edges
    if (row := edges.first(edges.texts(graph, "--graph-column").is_null())) is not None:
        raise TableError(f"{edges.place(row)}: column '{graph}' is empty: an edge is in a graph")
    columns = [
        whole_ids(edges, name, graph, "an end of the edges").alias(name)
        for name in (ends.source, ends.dest)
    ]
    return replace(edges, frame=edges.frame.with_columns(columns).drop(graph))


def refuse_crossing(edges: Table, ends: Ends, names: Names, graphs: Graphs) -> None:
    """Refuse a row of the edges that is between two graphs, whose nodes are given by names."""
    source, dest = end_nodes(edges, ends, names, may_lack=True)  # which others speak of
    start, end = graphs.batch[source], graphs.batch[dest]
    crossing = (source >= 0) & (dest >= 0) & (start != end)
    if crossing.any():
        row = int(np.argmax(crossing))
        pair = " -> ".join(names.ids[int(nodes[row])] for nodes in (source, dest))
        one, other = (graphs.ids[int(many[row])] for many in (start, end))
        raise TableError(
            f"{edges.place(row)}: the edge {pair} is between the graphs '{one}' and '{other}' "
            f"({counted(int(crossing.sum()), 'such edge')}): graphs have no edges between them"
        )
