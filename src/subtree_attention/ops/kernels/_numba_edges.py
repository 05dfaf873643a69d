# mypy: ignore-errors
# (the types in here are Numba's)
"""Loops of the CPU backend along edges with entries of their own: see `edges.py`.

As in `_numba_kernels.py`, a row belongs to one thread and all arrays are flat. `shape` is
(H / g, e, d): what a row of a matrix of heads apart holds.
"""

from __future__ import annotations

import numpy as np

from ._numba_kernels import read
from ._numba_rows import LOT, combine, dots, gather, inline, kernel, outer, place, take
from ._numba_vectors import (
    get,
    half,
    line,
    load_half,
    load_line,
    multiply,
    multiply_add,
    store,
    sum_lanes,
    zeros_line,
)

MADE_OF = "0a392b586fcd"
"""Of the files that this one imports for its loops: Numba keeps what it compiled until this file
changes, and theirs is compiled into it. A test says what has to stand here."""


@inline
def _dot(a, i, b, j, size):
    """a[i:] times b[j:], [size]."""
    lanes, few, x = line(a), half(a), 0
    lines = zeros_line(a)
    while x + lanes <= size:
        lines = multiply_add(load_line(a, i + x), load_line(b, j + x), lines)
        x += lanes
    total = sum_lanes(lines) if x else a.dtype.type(0)
    if x + few <= size:
        total += sum_lanes(multiply(load_half(a, i + x), load_half(b, j + x)))
        x += few
    while x < size:
        total += get(a, i + x) * get(b, j + x)
        x += 1
    return total


@kernel
def multiply_rows(worker, counter, width, rowptr, col, weight, dense, out, totals):
    """out = A dense, [N, width]."""
    nodes = len(rowptr) - 1
    first = take(counter)
    while first < nodes:
        for row in range(first, min(first + LOT, nodes)):
            gather(rowptr, col, weight, dense, row, width, out, row * width, totals, worker)
        first = take(counter)


@kernel
def walk_and_read_out(
    worker, counter, shape, rowptr, col, weight, old, new, totals, query, readout
):
    """new = A old, readout = q new."""
    nodes, total = len(rowptr) - 1, shape[0] * shape[1] * shape[2]
    first = take(counter)
    while first < nodes:
        for row in range(first, min(first + LOT, nodes)):
            gather(rowptr, col, weight, old, row, total, new, row * total, totals, worker)
            read(shape, query, new, row, row, readout)
        first = take(counter)


@inline
def _add_products(rowptr, col, old, state, row, width, products):
    """products += <old[column], state[row]> of the edges of a row."""
    for edge in range(np.int64(get(rowptr, row)), np.int64(get(rowptr, row + 1))):
        product = _dot(old, place(col, edge, width), state, row * width, width)
        store(products, edge, get(products, edge) + product)


@inline
def _add_ends(shape, row, add, new, state, query, grad_readout, grad_query):
    """new (+)= q (x) dR, grad_query += state dR, of one row."""
    heads, width, size = shape
    for at in range(row * heads, (row + 1) * heads):
        q, r, s = at * size, at * width, at * width * size
        outer(grad_readout, r, query, q, width, size, add, new, s)
        combine(grad_readout, r, state, s, width, size, grad_query, q)


@kernel
def turn_back(worker, counter, shape, rowptr, col, new, state, query, grad_readout, grad_query):
    """new = q (x) dR, grad_query += state dR."""
    nodes = len(rowptr) - 1
    first = take(counter)
    while first < nodes:
        for row in range(first, min(first + LOT, nodes)):
            _add_ends(shape, row, False, new, state, query, grad_readout, grad_query)
        first = take(counter)


@kernel
def walk_back_along(
    worker, counter, shape, rowptr, col, weight, old, new, totals,
    state, products, query, grad_readout, grad_query,
):  # fmt: skip
    """new = A^T old + q (x) dR, products += <old[column], state[row]>, grad_query += state dR."""
    nodes, total = len(rowptr) - 1, shape[0] * shape[1] * shape[2]
    first = take(counter)
    while first < nodes:
        for row in range(first, min(first + LOT, nodes)):
            _add_products(rowptr, col, old, state, row, total, products)
            gather(rowptr, col, weight, old, row, total, new, row * total, totals, worker)
            _add_ends(shape, row, True, new, state, query, grad_readout, grad_query)
        first = take(counter)


@kernel
def walk_home_along(
    worker, counter, shape, rowptr, col, weight, old, lanes, totals,
    state, products, key, ones, grad_key, grad_ones,
):  # fmt: skip
    """A^T old, a row at a time in `lanes` [workers, ...]: grad_key += [v | 1] of it, grad_ones = k
    of it; and products += <old[column], state[row]>."""
    heads, width, size = shape
    nodes, total = len(rowptr) - 1, heads * width * size
    first = take(counter)
    while first < nodes:
        for row in range(first, min(first + LOT, nodes)):
            _add_products(rowptr, col, old, state, row, total, products)
            gather(rowptr, col, weight, old, row, total, lanes, worker * total, totals, worker)
            for h in range(heads):
                at, s = row * heads + h, (worker * heads + h) * width * size
                combine(ones, at * width, lanes, s, width, size, grad_key, at * size)
                dots(key, at * size, lanes, s, width, size, grad_ones, at * width)
        first = take(counter)


@kernel
def sum_along_edges(
    worker, counter, shape, rowptr, col, weight, left, right, dense, products, weighted, out, totals
):
    """products = <left[row], right[column]>, weighted = weight products, out = weighted dense.

    `shape` is the width of left and right, and that of dense and out.
    """
    (width, wide), nodes = shape, len(rowptr) - 1
    first = take(counter)
    while first < nodes:
        for row in range(first, min(first + LOT, nodes)):
            for edge in range(np.int64(get(rowptr, row)), np.int64(get(rowptr, row + 1))):
                product = _dot(left, row * width, right, place(col, edge, width), width)
                store(products, edge, product)
                store(weighted, edge, get(weight, edge) * product)
            gather(rowptr, col, weighted, dense, row, wide, out, row * wide, totals, worker)
        first = take(counter)
