# mypy: ignore-errors
# (the types in here are Numba's)
"""The subtree of one root, read out level by level; compiled by Numba, without Python's lock.

Row i of A^k is a vector that is not 0 at the reached nodes only. A step goes over the edges that
end at them and moves one number along each; a level then takes one product of query and key for
each node that is reached. So a root costs the edges of its own subtree, whatever the graph has.
Where the states of one hop are kept, the last step is not walked: they are read at the nodes before
it, and what a change adds to them is read beside.

All arrays are flat. Behind them are rows [N, H, d + c] (key and value of each head side by side:
both are wanted at once), states [N, H, c + 1, d], the query [H, d] of the root and the read-outs
[K, H, c + 1]. An array without numbers stands for ones; without states, none are kept.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ._numba_vectors import get, prefetch, store

MADE_OF = "567a8a23e38f"
"""Of the files that this one imports for its loops: Numba keeps what it compiled until this file
changes, and theirs is compiled into it. A test says what has to stand here."""

_HOW = {
    "fastmath": {"contract", "reassoc", "nsz"},
    "error_model": "numpy",
    "nogil": True,
    "no_cfunc_wrapper": True,
}
_kernel = njit(cache=True, **_HOW)
_inline = njit(forceinline=True, no_cpython_wrapper=True, **_HOW)

_AHEAD = 8
"""Nodes between the one that is read out and the one that is fetched from memory."""
_NEAR = 2
"""The same where states are read, which are long."""
_LINE = 16
"""Numbers of a row that one prefetch brings."""


@_inline
def _arrive(total, source, mass, found, nodes):
    """Let some mass arrive at a node, which is noted down when it is the first; who cancels to 0
    and comes again is there twice, and `_level` takes it once."""
    if mass == 0:
        return found
    before = get(total, source)
    if before == 0:
        store(nodes, found, source)
        found += 1
    store(total, source, before + mass)
    return found


@_inline
def _step(
    matrix,
    change,
    count,
    num_nodes,
    nodes,
    mass,
    total,
    reached,
):
    """From the mass of nodes that receive to what arrives at their senders; how many there are."""
    rowptr, col, weight, _, by_target = matrix
    _, at, ptr, more_col, more_weight, _, change_target = change
    found = 0
    for place in range(count):
        node, here = np.int64(get(nodes, place)), get(mass, place)
        if here == 0:
            continue
        changed = get(at, node)
        if changed >= 0:
            here *= get(change_target, changed)
        elif by_target.size:
            here *= get(by_target, node)
        if node < num_nodes:
            first, last = get(rowptr, node), get(rowptr, node + 1)
            if weight.size:
                for edge in range(first, last):
                    found = _arrive(total, get(col, edge), here * get(weight, edge), found, reached)
            else:
                for edge in range(first, last):
                    found = _arrive(total, get(col, edge), here, found, reached)
        if changed >= 0:
            for edge in range(get(ptr, changed), get(ptr, changed + 1)):
                more = here * get(more_weight, edge)
                found = _arrive(total, get(more_col, edge), more, found, reached)
    return found


@_inline
def _level(
    matrix, change, count, num_nodes, nodes, mass, total, query, rows, new_rows, shape, out, to
):
    """Take what has arrived, and read the level out: out[to:] [H, c + 1]."""
    by_source, (_, at, _, _, _, change_source, _) = matrix[3], change
    heads, d, c = shape
    width = heads * (d + c)
    for place in range(count):
        if place + _AHEAD < count:
            later = get(nodes, place + _AHEAD)
            if later < num_nodes:
                for x in range(0, width, _LINE):
                    prefetch(rows, np.int64(later) * width + x)
        node = np.int64(get(nodes, place))
        here = get(total, node)
        store(total, node, 0.0)
        changed = get(at, node)
        if changed >= 0:
            here *= get(change_source, changed)
        elif by_source.size:
            here *= get(by_source, node)
        store(mass, place, here)
        if here == 0:
            continue
        if node < num_nodes:
            _add(query, rows, node * width, here, shape, out, to)
        else:
            _add(query, new_rows, (node - num_nodes) * width, here, shape, out, to)


@_inline
def _add(query, rows, start, mass, shape, out, to):
    """What one node adds to a level."""
    heads, d, c = shape
    for head in range(heads):
        key, value, asked = start + head * (d + c), start + head * (d + c) + d, head * d
        score = get(query, asked) * get(rows, key)
        for x in range(1, d):
            score += get(query, asked + x) * get(rows, key + x)
        share = mass * score
        place = to + head * (c + 1)
        for x in range(c):
            store(out, place + x, get(out, place + x) + share * get(rows, value + x))
        store(out, place + c, get(out, place + c) + share)


@_inline
def _last(
    matrix,
    sends,
    change,
    count,
    num_nodes,
    nodes,
    mass,
    total,
    query,
    rows,
    new_rows,
    states,
    shape,
    out,
    to,
):
    """The last level from the states of one hop: out[to:] [H, c + 1]; `sends` are the edges by
    their source, which say where a sender arrives whose scale has changed."""
    _, _, _, by_source, by_target = matrix
    out_ptr, out_col, out_weight = sends
    changed_nodes, at, ptr, more_col, more_weight, change_source, change_target = change
    heads, d, c = shape
    width, wide = heads * (d + c), heads * (c + 1) * d
    for place in range(count):
        if place + _NEAR < count:
            later = get(nodes, place + _NEAR)
            if later < num_nodes:
                for x in range(0, wide, _LINE):
                    prefetch(states, np.int64(later) * wide + x)
        node, here = np.int64(get(nodes, place)), get(mass, place)
        if here == 0:
            continue
        changed = get(at, node)
        if changed >= 0:
            here *= get(change_target, changed)
        elif by_target.size:
            here *= get(by_target, node)
        store(total, node, here)
        if node < num_nodes:
            for head in range(heads):
                for column in range(c + 1):
                    start, asked = node * wide + (head * (c + 1) + column) * d, head * d
                    read = get(query, asked) * get(states, start)
                    for x in range(1, d):
                        read += get(query, asked + x) * get(states, start + x)
                    spot = to + head * (c + 1) + column
                    store(out, spot, get(out, spot) + here * read)
        if changed >= 0:
            for edge in range(get(ptr, changed), get(ptr, changed + 1)):
                sender = get(more_col, edge)
                scale = get(change_source, get(at, sender))
                more = here * get(more_weight, edge) * scale
                if sender < num_nodes:
                    _add(query, rows, sender * width, more, shape, out, to)
                else:
                    _add(query, new_rows, (sender - num_nodes) * width, more, shape, out, to)
    for changed in range(changed_nodes.size):
        sender = get(changed_nodes, changed)
        if sender >= num_nodes or not by_source.size:
            continue
        arrived = 0.0
        for edge in range(get(out_ptr, sender), get(out_ptr, sender + 1)):
            at_target = get(total, get(out_col, edge))
            arrived += at_target * (get(out_weight, edge) if out_weight.size else 1.0)
        if arrived != 0:
            other = get(change_source, changed) - get(by_source, sender)
            _add(query, rows, sender * width, arrived * other, shape, out, to)
    for place in range(count):
        store(total, get(nodes, place), 0.0)


@_kernel
def read_subtree(
    matrix,
    sends,
    change,
    num_nodes,
    root,
    hops,
    query,
    rows,
    new_rows,
    states,
    shape,
    total,
    lists,
    masses,
    out,
):
    """Read-outs of the levels 1 .. K of a root; -> nodes that were reached, level by level.

    Args:
        matrix: rowptr, col, weights of the edges, and what the transition multiplies them by, by
            source and by target.
        sends: rowptr, col and weights of the edges by their source; only with states and a change.
        change: the nodes that are changed; at [N + m], -1 or which of them a node is; row pointers,
            columns and weights of the edges that they receive more; and their scales by source and
            by target.
        num_nodes: N; those from N on are new.
        total: [N + m] zeros, and zeros again afterwards.
        lists, masses: two each [N + m], room for the reached nodes.
        out: [K, H, c + 1] zeros, float64.
    """
    heads, _, c = shape
    level = heads * (c + 1)
    old, new = lists
    mass, new_mass = masses
    store(old, 0, root)
    store(mass, 0, 1.0)
    count, seen = 1, 0
    kept = states.size > 0
    for hop in range(hops - kept):
        count = _step(matrix, change, count, num_nodes, old, mass, total, new)
        _level(
            matrix,
            change,
            count,
            num_nodes,
            new,
            new_mass,
            total,
            query,
            rows,
            new_rows,
            shape,
            out,
            hop * level,
        )
        old, new = new, old
        mass, new_mass = new_mass, mass
        seen += count
    if kept and hops > 0:
        _last(
            matrix,
            sends,
            change,
            count,
            num_nodes,
            old,
            mass,
            total,
            query,
            rows,
            new_rows,
            states,
            shape,
            out,
            (hops - 1) * level,
        )
    return seen


@_kernel
def first_states(rowptr, col, weight, by_source, rows, shape, start, stop, room, states):
    """The states of one hop, without the scale of the target, of rows start .. stop - 1.

    Added up in `room` [H, c + 1, d], float64, since a hub has many neighbours.
    """
    heads, d, c = shape
    width, wide = heads * (d + c), heads * (c + 1) * d
    for row in range(start, stop):
        for x in range(wide):
            store(room, x, 0.0)
        for edge in range(get(rowptr, row), get(rowptr, row + 1)):
            sender = np.int64(get(col, edge))
            scale = 1.0
            if weight.size:
                scale *= get(weight, edge)
            if by_source.size:
                scale *= get(by_source, sender)
            for head in range(heads):
                key, value = sender * width + head * (d + c), sender * width + head * (d + c) + d
                for column in range(c + 1):
                    spot, times = (head * (c + 1) + column) * d, scale
                    if column < c:
                        times *= get(rows, value + column)
                    for x in range(d):
                        store(room, spot + x, get(room, spot + x) + times * get(rows, key + x))
        for x in range(wide):
            store(states, np.int64(row) * wide + x, get(room, x))
