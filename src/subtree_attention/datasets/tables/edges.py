"""The table of edges as indices of nodes and weights; whatever is done to them is counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ... import _check
from ...graph import MOST_WEIGHT
from .lazy import pl
from .read import Table, TableError, counted, positions, without_point
from .values import as_numbers

SOURCES = ("source", "src", "from")
DESTS = ("target", "dest", "dst", "to")
"""Names that the ends of an edge go by; else they are the first two columns."""

UNKNOWN_ENDS = ("error", "drop")
LEAST = 1e-45
"""A weight below it is 0 in float32, and its edge would be gone."""


class Ends(NamedTuple):
    """Which columns of the edges are what."""

    source: str
    dest: str
    weight: str | None = None


@dataclass(frozen=True)
class Edges:
    """Edges as the walk takes them."""

    index: np.ndarray  # [2, E], both directions unless directed, each edge once
    weight: np.ndarray | None  # [E]
    notes: list[str]  # what was done, in words


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
            table.column(name, f"--{option}")
    different_columns(**ends._asdict())  # what was found too
    return ends


def read_edges(
    table: Table, ends: Ends, ids: pl.Series, directed: bool, unknown_ends: str = "error"
) -> Edges:
    """The edges between nodes, which are given by their ids [N]."""
    _check.known("way with unknown ends", unknown_ends, UNKNOWN_ENDS)
    may_lack = unknown_ends == "drop"
    source, dest = end_nodes(table, ends, ids, may_lack)
    weight = None if ends.weight is None else _weights(table, ends.weight)
    notes = [f"{table.name}: {counted(len(table), 'row')}"]
    inside = (source >= 0) & (dest >= 0)
    if not inside.all():
        notes.append(_unknown(table, ends, inside, ids, unknown_ends))
        source, dest = source[inside], dest[inside]
        weight = None if weight is None else weight[inside]
    index, weight, merged = simple(source, dest, weight, len(ids), directed)
    loops = int((index[0] == index[1]).sum())
    way = "directed" if directed else "both directions"
    notes[0] += f", {counted(index.shape[1], 'edge')} ({way})"
    if merged:
        what = "merged into one" if weight is None else "merged, their weights added up"
        notes.append(f"{counted(merged, 'duplicate edge')}, {what}")
    if loops:
        notes.append(f"{counted(loops, 'self-loop')}, kept")
    unused = [name for name in table.frame.columns if name not in ends]
    if unused:
        hint = "; --weight takes weights" if weight is None else ""
        notes.append(f"columns of the edges that are not used: {', '.join(unused)}{hint}")
    return Edges(index, weight, notes)


def end_nodes(
    table: Table, ends: Ends, ids: pl.Series, may_lack: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The nodes [R] where the edges of a table start and end; -1 where that is no node."""
    source, dest = (_end(table, name, ids, may_lack) for name in (ends.source, ends.dest))
    return source, dest


def _end(table: Table, name: str, ids: pl.Series, may_lack: bool) -> np.ndarray:
    texts = table.written(name, "an end of the edges")
    if not may_lack and (row := table.first(texts.is_null())) is not None:
        raise TableError(
            f"{table.place(row)}: column '{name}' is empty: an edge has two ends "
            f"({counted(texts.null_count(), 'such row')})"
        )
    found = positions(texts, ids)
    return found if (found >= 0).all() else positions(without_point(texts), ids)


def _weights(table: Table, name: str) -> np.ndarray:
    values = table.column(name, "--weight")
    numbers, wrong = as_numbers(values)
    wrong = wrong | numbers.is_null()
    if (row := table.first(wrong)) is not None:
        held = "is empty" if values[row] is None else f"holds {_check.said(values[row])}"
        raise TableError(
            f"{table.place(row)}: column '{name}' (--weight) {held}, not a finite number "
            f"({counted(int(wrong.sum()), 'such row')})"
        )
    if (row := table.first(numbers < 0)) is not None:
        raise TableError(
            f"{table.place(row)}: the weight {numbers[row]:g} is negative, but a walk needs at "
            f"least 0 ({counted(int((numbers < 0).sum()), 'such row')})"
        )
    if (row := table.first((numbers > 0) & (numbers < LEAST))) is not None:
        raise TableError(
            f"{table.place(row)}: the weight {numbers[row]:g} is too small for float32: scale them"
        )
    if not (total := float(numbers.sum())) <= MOST_WEIGHT:
        raise TableError(
            f"{table.name}: the weights in column '{name}' (--weight) add up to {total:g}, which "
            "is too large for float32: scale them"
        )
    return numbers.to_numpy(writable=True)


def _unknown(
    table: Table, ends: Ends, inside: np.ndarray, ids: pl.Series, unknown_ends: str
) -> str:
    """What to say of edges that lead out of the table of nodes; an error unless they may go."""
    count, row = int((~inside).sum()), int(np.argmin(inside))
    pair = " -> ".join(str(table.frame[name][row]) for name in (ends.source, ends.dest))
    if not inside.any():
        raise TableError(
            f"{table.name}: no edge is between two nodes of the table (the first: {pair}); are "
            f"'{ends.source}' and '{ends.dest}' the ends, and do they hold ids as they are "
            f"written there, such as '{ids[0]}'?"
        )
    if unknown_ends == "drop":
        return f"{counted(count, 'edge')} to unknown nodes, dropped (the first: {pair})"
    raise TableError(
        f"{table.place(row)}: the edge {pair} ends at a node that is not in the table of nodes "
        f"({counted(count, 'such edge')}); add the nodes, or leave such edges out with "
        "--unknown-ends drop; if they are nodes of the graph of a run, join it (sta predict --join)"
    )


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
