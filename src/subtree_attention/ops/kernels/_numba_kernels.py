# mypy: ignore-errors
# (the types in here are Numba's)
"""The loops of the CPU backend, compiled by Numba. Imported only when that backend runs.

A row of the state belongs to one thread from the gather to the read-out, so it is used while it is
in cache, and every sum has a fixed order: the result does not depend on the number of threads.
Each kernel is one pass over the rows, one step of the walk with all that is done to a node's state
on the way. Every thread calls it with a number of its own, `worker`; they share `counter` [1] and
take rows from it in small lots, so that a thread that finds its core taken does not hold up the
others.

All arrays are flat: a view of a row costs more than the few numbers in it. `shape` is (H, e, d)
with e = c + 1. Behind the flat arrays are states [N, H, e, d] (the sums over key channels are then
contiguous), q and k [N, H, d], values and their gradients [N, H, c], values with a column of ones
and read-outs [N, H, e], products [N, H], hop weights of one hop [H], powers of its denominators
[H], or [0] where there are none. `source` is what a hop gathers: row pointers, columns and weights
of the matrix, and the states or what makes them up, `left` [N, H, d] and `right` [N, H, e].
`hop` is a tuple: query, gradient of the level, eps, hop weights, read-outs, room for dR, products,
the gradient of the query, powers, and what their gradients are the sums of [N, H], or [0].
"""

from __future__ import annotations

import numpy as np

from ._numba_rows import LOT, arrive, combine, dots, inline, kernel, outer, take
from ._numba_vectors import get, store

MADE_OF = "f76ceda2eb0f"
"""Of the files that this one imports for its loops: Numba keeps what it compiled until this file
changes, and theirs is compiled into it. A test says what has to stand here."""

DROP_LOT = 128 * LOT
"""Numbers that a thread takes at a time where there are no rows."""

_DRAWS = 4
"""Draws of 16 bits in 64."""


# ------------------------------------------------------------------------ read-outs and quotients


@inline
def read(shape, query, state, row, slot, readout):
    """readout = q S of node `row`, whose state is at `slot`."""
    heads, width, size = shape
    for h in range(heads):
        at, there = row * heads + h, slot * heads + h
        dots(query, at * size, state, there * width * size, width, size, readout, at * width)


@inline
def _share(scale, denominator):
    """scale / denominator, and 0 where no walk arrives."""
    return scale / denominator if denominator != 0 else 0 * denominator


@inline
def _raised(denominator, beta, head):
    """|denominator|^beta with its sign, as `recurrence.raised`; itself where there is no beta."""
    if len(beta) == 0 or denominator == 0:
        return denominator
    power = abs(denominator) ** get(beta, head)
    return -power if denominator < 0 and get(beta, head) != 0 else power


@inline
def _put_level(heads, width, readout, eps, scale, beta, row, add, out):
    """out (+)= scale * numerator / (denominator + eps)^beta of node `row`."""
    for h in range(heads):
        r, o = (row * heads + h) * width, (row * heads + h) * (width - 1)
        denominator = _raised(get(readout, r + width - 1) + eps, beta, h)
        share = _share(get(scale, h), denominator)
        overflows = np.isinf(share)  # which the level itself need not do
        for e in range(width - 1):
            level = get(readout, r + e) * share
            if overflows:
                level = get(scale, h) * (get(readout, r + e) / denominator)
            store(out, o + e, get(out, o + e) + level if add else level)


@inline
def _quotient_backward(heads, width, row, hop):
    """dR of node `row` by the quotient rule for scale * grad, and products = <grad, level>; with
    powers, also what their gradients are the sums of."""
    _, grad, eps, scale, readout, grad_readout, products, _, beta, beta_products = hop
    for h in range(heads):
        r, g = (row * heads + h) * width, (row * heads + h) * (width - 1)
        denominator = get(readout, r + width - 1) + eps
        share = _share(1, _raised(denominator, beta, h))
        product = 0 * share
        # Two loops: in one, whether the sum is vectorised, and so in which order it adds, would
        # hang on where the arrays happen to lie.
        for e in range(width - 1):
            product += get(grad, g + e) * (get(readout, r + e) * share)
        for e in range(width - 1):
            store(grad_readout, r + e, get(scale, h) * get(grad, g + e) * share)
        slope = share
        if len(beta):
            slope = get(beta, h) * _share(1, denominator)
            size = np.log(abs(denominator)) if denominator != 0 else 0 * denominator
            store(beta_products, row * heads + h, -get(scale, h) * product * size)
        store(grad_readout, r + width - 1, -get(scale, h) * product * slope)
        store(products, row * heads + h, product)


@inline
def _add_grad_query(shape, state, slot, row, hop):
    """grad_query += S dR of node `row`, whose state is at `slot`."""
    heads, width, size = shape
    grad_readout, grad_query = hop[5], hop[7]
    for h in range(heads):
        at, there = row * heads + h, (slot * heads + h) * width * size
        combine(grad_readout, at * width, state, there, width, size, grad_query, at * size)


# -------------------------------------------------------------------------------------- kernels


@inline
def _random(seed, index):
    """64 random bits, those of an index: SplitMix64, which needs none of those before."""
    z = seed + np.uint64(index + 1) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inline
def _drop(bits, draw, least, scale, x, at, out):
    """out = scale x of one entry, or 0: by one of the draws in some bits."""
    stays = (bits >> np.uint64(16 * draw)) & np.uint64(0xFFFF) >= least
    store(out, at, scale * get(x, at) if stays else x.dtype.type(0))


@kernel
def drop(worker, counter, seed, least, scale, x, out):
    """out = scale x where 16 random bits of the entry are `least` or more, and 0 elsewhere."""
    whole, lots = len(x) - len(x) % _DRAWS, DROP_LOT // LOT
    first = take(counter) * lots
    while first < len(x):
        for start in range(first, min(first + DROP_LOT, whole), _DRAWS):
            bits = _random(seed, start)
            for draw in range(_DRAWS):
                _drop(bits, draw, least, scale, x, start + draw, out)
        if first + DROP_LOT >= len(x):
            for draw in range(len(x) - whole):
                _drop(_random(seed, whole), draw, least, scale, x, whole + draw, out)
        first = take(counter) * lots


@kernel
def drop_rows(worker, counter, seed, least, scale, rowptr, first_entry, x, out):
    """`drop` of rows that are some of a larger matrix: entries of a row have numbers from its first
    one on, and draw as they would there."""
    rows = len(first_entry)
    first = take(counter)
    while first < rows:
        for row in range(first, min(first + LOT, rows)):
            for at in range(rowptr[row], rowptr[row + 1]):
                number = first_entry[row] + at - rowptr[row]
                draw = number % _DRAWS
                _drop(_random(seed, number - draw), draw, least, scale, x, at, out)
        first = take(counter)


@kernel
def begin(worker, counter, shape, left, right, state):
    """state = right (x) left: of `left` [N, H, d], `right` [N, H, e]."""
    heads, width, size = shape
    nodes = len(left) // (heads * size)
    first = take(counter)
    while first < nodes:
        for at in range(first * heads, min(first + LOT, nodes) * heads):
            outer(right, at * width, left, at * size, width, size, False, state, at * width * size)
        first = take(counter)


@kernel
def walk_and_read(
    worker, counter, shape, source, new, totals, query, eps, scale, beta, add, readout, out
):
    """new = A S, readout = q new, out (+)= the hop's level times scale."""
    heads, width, size = shape
    nodes, total = len(source[0]) - 1, heads * width * size
    each = len(new) == nodes * total  # room for the state of every row, or of one per thread
    first = take(counter)
    while first < nodes:
        for row in range(first, min(first + LOT, nodes)):
            slot = row if each else worker
            arrive(shape, source, row, new, slot * total, totals, worker)
            read(shape, query, new, row, slot, readout)
            _put_level(heads, width, readout, eps, scale, beta, row, add, out)
        first = take(counter)


@kernel
def walk_for_query(worker, counter, shape, source, new, totals, unread, hop):
    """new = A S, grad_query += new dR; and first readout = q new, if it is `unread`."""
    nodes, total = len(source[0]) - 1, shape[0] * shape[1] * shape[2]
    each = len(new) == nodes * total  # as in `walk_and_read`
    first = take(counter)
    while first < nodes:
        for row in range(first, min(first + LOT, nodes)):
            slot = row if each else worker
            arrive(shape, source, row, new, slot * total, totals, worker)
            if unread:
                read(shape, hop[0], new, row, slot, hop[4])
            _quotient_backward(shape[0], shape[1], row, hop)
            _add_grad_query(shape, new, slot, row, hop)
        first = take(counter)


@kernel
def turn_back(worker, counter, shape, nodes, kept, hop):
    """dR of the last hop; and grad_query += S dR if its states are `kept`."""
    first = take(counter)
    while first < nodes:
        for row in range(first, min(first + LOT, nodes)):
            _quotient_backward(shape[0], shape[1], row, hop)
            if len(kept):
                _add_grad_query(shape, kept, row, row, hop)
        first = take(counter)


@kernel
def walk_back(worker, counter, shape, source, kept, new, totals, hop):
    """new = A^T G + q (x) dR; and grad_query += S dR if the states of the hop are `kept`."""
    heads, width, size = shape
    nodes, total, query, grad_readout = len(source[0]) - 1, heads * width * size, hop[0], hop[5]
    first = take(counter)
    while first < nodes:
        for row in range(first, min(first + LOT, nodes)):
            _quotient_backward(heads, width, row, hop)
            if len(kept):
                _add_grad_query(shape, kept, row, row, hop)
            arrive(shape, source, row, new, row * total, totals, worker)
            for at in range(row * heads, (row + 1) * heads):
                outer(
                    grad_readout, at * width, query, at * size, width, size, True,
                    new, at * width * size,
                )  # fmt: skip
        first = take(counter)


@kernel
def walk_home(
    worker, counter, shape, source, new, totals,
    key, ones, grad, scale, products, grad_key, grad_value,
):  # fmt: skip
    """new = A^T G; grad_key += new [v | 1], grad_value = (k new)[:c] + scale grad of hop 0."""
    heads, width, size = shape
    nodes, total, channels = len(source[0]) - 1, heads * width * size, width - 1
    first = take(counter)
    while first < nodes:
        for row in range(first, min(first + LOT, nodes)):
            arrive(shape, source, row, new, worker * total, totals, worker)
            for h in range(heads):
                at, there = row * heads + h, (worker * heads + h) * width * size
                v, w = at * channels, at * width
                combine(ones, w, new, there, width, size, grad_key, at * size)
                dots(key, at * size, new, there, channels, size, grad_value, v)
                product = 0 * get(scale, h)
                for e in range(channels):
                    product += get(grad, v + e) * get(ones, w + e)
                for e in range(v, v + channels):
                    store(grad_value, e, get(grad_value, e) + get(scale, h) * get(grad, e))
                store(products, at, product)
        first = take(counter)
