"""The table of edges as indices of nodes and weights; whatever is done to them is counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ... import _check
from ...adjacency import MOST_WEIGHT
from . import ranks
from .lazy import pl
from .names import Names
from .readings import NUMBERS, Reading
from .table import Table, TableError, counted, text_of, without_point
from .values import as_numbers, find_reading

SOURCES = ("source", "src", "from")
DESTS = ("target", "dest", "dst", "to")
"""Names that the ends of an edge go by; else they are the first two columns."""

UNKNOWN_ENDS = ("error", "drop")
BETWEEN = "/"
"""Stands between the names of a graph and a node, where that of the node alone does not tell."""
LEAST = 1e-45
"""A weight below it is 0 in float32, and its edge would be gone."""


class Ends(NamedTuple):
    """Which columns of the edges are what."""

    source: str
    dest: str
    weight: str | None = None


@dataclass(frozen=True)
class Edges:
    """Edges as the walk takes them, on several ranks a share of them on each; of those that are in
    a store, none is here."""

    index: np.ndarray  # [2, E], both directions unless directed, each edge once
    weight: np.ndarray | None  # [E]
    notes: list[str]  # what was done, in words
    count: int  # on all ranks, or in the store
    linked: np.ndarray | None = None  # [N], whether a node has an edge to another, if in a store


@dataclass(frozen=True)
class Changed:
    """What became of the rows of a table of edges: how many edges there are, how many duplicates
    were merged into others, how many are loops; and what is said of those that were dropped."""

    count: int
    merged: int
    loops: int
    dropped: list[str]


def different_columns(**columns: str | None) -> set[str]:
    """The columns that are asked for by name: one column cannot be two things."""
    given = {what: name for what, name in columns.items() if name is not None}
    for what, name in given.items():
        if not isinstance(name, str) or not name:
            wrong = TableError if isinstance(name, str) else TypeError
            raise wrong(f"{what} must be the name of a column, got {_check.said(name)}")
        first = next(other for other in given if given[other] == name)
        if first != what:
            first, what = (f"--{each.replace('_', '-')}" for each in (first, what))
            raise TableError(f"column '{name}' cannot be both {first} and {what}: name another one")
    return set(given.values())


def find_ends(table: Table, source: str | None, dest: str | None, weight: str | None) -> Ends:
    """The columns as asked for, or else by their usual names."""
    names = table.frame.columns
    if len(names) < 2:
        raise TableError(f"{table.name} has one column, but an edge has two ends")
    different_columns(source=source, dest=dest, weight=weight)
    source = source or next((name for name in names if name.lower() in SOURCES), names[0])
    others = [name for name in names if name not in (source, weight)] or names
    dest = dest or next((name for name in others if name.lower() in DESTS), others[0])
    ends = Ends(source, dest, weight)
    for option, name in ends._asdict().items():
        if name is not None:
            table.check(name, f"--{option}")
    different_columns(**ends._asdict())  # what was found too
    return ends


def read_edges(
    table: Table,
    ends: Ends,
    names: Names,
    directed: bool,
    unknown_ends: str = "error",
    reading: Reading | None = None,
) -> Edges:
    """The edges between nodes, which are given by their names; weights by their reading."""
    _check.known("way with unknown ends", unknown_ends, UNKNOWN_ENDS)
    may_lack = unknown_ends == "drop"
    source, dest = end_nodes(table, ends, names, may_lack)
    weight = None if ends.weight is None else read_weights(table, ends.weight, reading)
    inside, dropped = (source >= 0) & (dest >= 0), list[str]()
    if ranks.any_of(~inside):
        dropped.append(unknown(table, ends, inside, names, unknown_ends))
        source, dest = source[inside], dest[inside]
        weight = None if weight is None else weight[inside]
    if not directed:
        source, dest = np.minimum(source, dest), np.maximum(source, dest)
    index, weight, merged = simple(*_met(source, dest, weight), names.count, directed)
    loops = int((index[0] == index[1]).sum())
    count, merged, loops = ranks.added(np.array([index.shape[1], merged, loops])).tolist()
    changed = Changed(count, merged, loops, dropped)
    return Edges(
        index, weight, edge_notes(table, ends, names, directed, reading, changed), changed.count
    )


def edge_notes(
    table: Table,
    ends: Ends,
    names: Names,
    directed: bool,
    reading: Reading | None,
    changed: Changed,
) -> list[str]:
    """What was done with a table of edges, in words."""
    way = "directed" if directed else "both directions"
    rows = f"{table.name}: {counted(table.count, 'row')}, {counted(changed.count, 'edge')} ({way})"
    notes = [rows, *changed.dropped]
    weighted = ends.weight is not None
    if changed.merged:
        what = "merged, their weights added up" if weighted else "merged into one"
        notes.append(f"{counted(changed.merged, 'duplicate edge')}, {what}")
    if reading is not None and (words := reading.words()):
        notes.append(f"the weights in '{ends.weight}' are {words}")
    notes += _zeros(names)
    if changed.loops:
        notes.append(f"{counted(changed.loops, 'self-loop')}, kept")
    unused = [name for name in table.frame.columns if name not in ends]
    if unused:
        hint = "" if weighted else "; --weight takes weights"
        notes.append(f"columns of the edges that are not used: {', '.join(unused)}{hint}")
    return notes


def _met(
    source: np.ndarray, dest: np.ndarray, weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Edges with all of their duplicates on one rank, in the order of the rows."""
    if ranks.size() == 1:
        return source, dest, weight
    columns = {"source": source, "dest": dest} | ({} if weight is None else {"weight": weight})
    met = ranks.route(pl.DataFrame(columns), _mixed(source, dest) % ranks.size())
    found = [met[name].to_numpy(writable=True) for name in columns]
    return found[0], found[1], found[2] if len(found) > 2 else None


def _mixed(source: np.ndarray, dest: np.ndarray) -> np.ndarray:
    """A number [E] of each pair that looks random, so that no rank has the edges of all hubs."""
    mixed = source.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) + dest.astype(np.uint64)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return (mixed >> np.uint64(33)).astype(np.int64)


def end_nodes(
    table: Table, ends: Ends, names: Names, may_lack: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The nodes [R] where the edges of a table start and end; -1 where that is no node."""
    source, dest = (_end(table, name, names, may_lack) for name in (ends.source, ends.dest))
    return source, dest


def _end(table: Table, name: str, names: Names, may_lack: bool) -> np.ndarray:
    values = table.column(name, "an end of the edges")
    if values.dtype.is_integer() and (at := _by_numbers(values, names)) is not None:
        return at
    texts = table.written(name, "an end of the edges")
    empty = ranks.nulls_of(texts)
    if not may_lack and (row := table.first(texts.is_null())) is not None:
        raise TableError(
            f"{table.place(row)}: column '{name}' is empty: an edge has two ends "
            f"({counted(empty, 'such row')})"
        )
    found = names.find(texts)
    return names.find(without_point(texts)) if ranks.any_of(found < 0) else found


def _by_numbers(values: pl.Series, names: Names) -> np.ndarray | None:
    """The nodes [R] that whole numbers name, if their ids are such: texts would take longer."""
    if type(names) is not Names:  # it may know others too
        return None
    numbers = values.cast(pl.Int64, strict=False)
    return None if numbers.has_nulls() else names.find_numbers(numbers.to_numpy())


def find_weights(table: Table, ends: Ends) -> Reading | None:
    """How the weights are read, if there are any and they are texts."""
    if ends.weight is None or table.frame.schema[ends.weight].is_numeric():
        return None
    return find_reading(table.column(ends.weight, "--weight"), NUMBERS)


def read_weights(table: Table, name: str, reading: Reading | None) -> np.ndarray:
    values = table.column(name, "--weight")
    numbers, wrong = as_numbers(values, reading)
    wrong = wrong | numbers.is_null()
    others, negative = ranks.count_of(wrong), ranks.count_of(numbers < 0)
    if (row := table.first(wrong)) is not None:
        held = "is empty" if values[row] is None else f"holds {_check.said(values[row])}"
        raise TableError(
            f"{table.place(row)}: column '{name}' (--weight) {held}, not a finite number "
            f"({counted(others, 'such row')})"
        )
    if (row := table.first(numbers < 0)) is not None:
        raise TableError(
            f"{table.place(row)}: the weight {numbers[row]:g} is negative, but a walk needs at "
            f"least 0 ({counted(negative, 'such row')})"
        )
    if (row := table.first((numbers > 0) & (numbers < LEAST))) is not None:
        raise TableError(
            f"{table.place(row)}: the weight {numbers[row]:g} is too small for float32: scale them"
        )
    check_total(table, name, sum(ranks.told(float(numbers.sum()))))
    return numbers.to_numpy(writable=True)


def check_total(table: Table, name: str, total: float) -> None:
    """Refuse weights that add up to more than a walk can take."""
    if not total <= MOST_WEIGHT:
        raise TableError(
            f"{table.name}: the weights in column '{name}' (--weight) add up to {total:g}, which "
            "is too large for float32: scale them"
        )


def unknown(table: Table, ends: Ends, inside: np.ndarray, names: Names, unknown_ends: str) -> str:
    """What to say of edges that lead out of the table of nodes; an error unless they may go."""
    count, outside = ranks.count_of(~inside), pl.Series(~inside)
    first = table.frame.filter(outside).head(1)
    pairs = [
        " -> ".join(_one_line(first[name][row]) for name in (ends.source, ends.dest))
        for row in range(len(first))
    ]
    pair = ranks.first_of(pl.Series(pairs, dtype=pl.String))
    alike, example = _alike(table, ends, outside, names), ranks.first_of(names.ids)
    more = f"; {alike}" if alike else ""
    if not ranks.any_of(inside):
        raise TableError(
            f"{table.name}: no edge is between two nodes of the table (the first: {pair}); are "
            f"'{ends.source}' and '{ends.dest}' the ends, and do they hold ids as they are "
            f"written there, such as {example!r}? New nodes of a run's graph join it by "
            f"'sta predict --join'.{more.replace(';', ' Note:', 1)}"
        )
    dropped = f"{counted(count, 'edge')} to unknown nodes, dropped (the first: {pair}){more}"
    if unknown_ends != "drop" and (row := table.first(outside)) is not None:
        raise TableError(
            f"{table.place(row)}: the edge {pair} ends at a node that is not in the table of nodes "
            f"({counted(count, 'such edge')}); add the nodes, or leave such edges out with "
            "--unknown-ends drop; if they are nodes of the graph of a run, join it (sta predict "
            f"--join){more}"
        )
    return dropped


def _one_line(value: object) -> str:
    return " ".join(str(value).split())


def _bare(ids: pl.Series) -> pl.Series:
    """Ids without leading zeros; that of a graph before them stays."""
    return ids.str.replace(rf"(^|{BETWEEN})0+(\d)", "${1}${2}")


def _alike(table: Table, ends: Ends, outside: pl.Series, names: Names) -> str:
    """How ends that are no nodes differ from those that are, if only by how they are written."""
    rows, before = ranks.total(len(table)), ranks.before(len(table))
    lost, order = table.frame.filter(outside), outside.arg_true().cast(pl.Int64) + before
    columns = [
        pl.DataFrame({"end": text_of(lost[name]), "order": order + rows * side})
        for side, name in enumerate((ends.source, ends.dest))
    ]
    found = pl.concat(columns).drop_nulls().unique("end", keep="first", maintain_order=True)
    found = found.filter(pl.Series(names.find(found["end"]) < 0))
    changes = {
        "leading zeros": _bare,
        "capital letters": lambda some: some.str.to_lowercase(),
        "blanks": lambda some: some.str.replace_all(r"\s+", ""),
    }
    for what, change in changes.items():
        ids = pl.DataFrame({"id": names.ids, "key": change(names.ids)})
        lacks = found.with_columns(key=change(found["end"]))
        lacks, ids = (ranks.route(each, ranks.bucket(each["key"])) for each in (lacks, ids))
        lacks = lacks.sort("order").unique("end", keep="first", maintain_order=True)
        pairs = lacks.join(ids, on="key", maintain_order="left_right")
        pairs = pairs.unique("end", keep="first", maintain_order=True)
        firsts = ranks.told(pairs.select("order", "end", "id").head(1).rows())
        if best := [row for some in firsts for row in some]:
            _, end, id = min(best)
            return (
                f"{end!r} of the edges and {id!r} of the nodes differ by {what} only "
                f"({counted(ranks.total(len(pairs)), 'such id')}): write them alike"
                + "; programs that read ids as numbers drop zeros"
                * (what == "leading zeros")
            )
    return ""


def _zeros(names: Names) -> list[str]:
    """What to say of nodes whose ids differ by leading zeros."""
    zeros = names.ids.filter(names.ids.str.contains(rf"(?:^|{BETWEEN})0\d"))
    if not ranks.size_of(zeros):
        return []
    both = zeros.filter(pl.Series(names.find(_bare(zeros)) >= 0))
    if not (count := ranks.size_of(both)):
        return []
    id = ranks.first_of(both)
    first = f"{id!r} and {_bare(pl.Series([id]))[0]!r}"
    return [f"{first} are ids of different nodes ({counted(count, 'such pair')})"]


def simple(
    source: np.ndarray,
    dest: np.ndarray,
    weight: np.ndarray | None,
    num_nodes: int,
    directed: bool,
) -> tuple[np.ndarray, np.ndarray | None, int]:
    """Each edge once, sorted; weights of duplicates added up; and how many duplicates there were.

    Without directions a row and its reverse are duplicates of each other.
    """
    if not directed:
        source, dest = np.minimum(source, dest), np.maximum(source, dest)
    key = source * num_nodes + dest
    if weight is None:
        key.sort()  # many times as fast as np.unique
    else:
        order = np.argsort(key, kind="stable")
        key, weight = key[order], weight[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))  # where another edge begins
    if weight is not None and len(key):
        weight = np.add.reduceat(weight, first)
    index = np.stack(np.divmod(key[first], num_nodes))
    if not directed:
        back = index[0] != index[1]
        index = np.concatenate([index, index[::-1, back]], axis=1)
        weight = None if weight is None else np.concatenate([weight, weight[back]])
    return index, weight, len(key) - len(first)
