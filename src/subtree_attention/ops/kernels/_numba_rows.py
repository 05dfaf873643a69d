# mypy: ignore-errors
# (the types in here are Numba's)
"""What a thread does with a row of a state, compiled into the kernels that call it.

It gathers neighbours' states, or the factors that these are made of, and multiplies a vector [d]
with the rows of a head [e, d]. The arrays are those of `_numba_kernels.py`.

Compiling is what the first call waits for, and what LLVM is given to read is most of it. So there
is one loop for every number of channels, over vectors as wide as fit, and none for special sizes;
and numbers are read and written by `get` and `store`: brackets would look for indices below 0.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import intrinsic, overload

from ._numba_vectors import (
    get,
    half,
    line,
    load_half,
    load_line,
    multiply,
    multiply_add,
    prefetch,
    store,
    sum_lanes,
    zeros_half,
    zeros_line,
)

# FMA and vector sums are allowed, NaN and infinity stay what they are.
_FASTMATH = {"contract", "reassoc", "nsz"}
_HOW = {"fastmath": _FASTMATH, "error_model": "numpy", "nogil": True, "no_cfunc_wrapper": True}
kernel = njit(cache=True, **_HOW)
_INLINE = {"forceinline": True, "no_cpython_wrapper": True, **_HOW}
inline = njit(**_INLINE)

LOT = 64
"""Rows that a thread takes at a time."""

SPAN = 256
"""Edges that are added up in the numbers' own precision. The spans of a longer row are added up in
float64: one after the other in float32, the 100,000 neighbours of a hub lose four digits."""

_GROUP = 6
"""Neighbours that are gone through for four lines of the sum before the next four lines: with more,
a long row is read in pieces that are too far apart for the processor to read ahead."""

_FACTOR_GROUP = 16
"""The same of factors, whose rows are short."""

_AHEAD = 8
"""Neighbours between the one that is added and the one that is fetched from memory."""


@intrinsic
def take(context, counter):
    """The counter [1] before LOT is added to it: threads that ask get different lots."""

    def generate(context, builder, signature, arguments):
        struct = context.make_array(signature.args[0])(context, builder, arguments[0])
        lot = context.get_constant(types.int64, LOT)
        return builder.atomic_rmw("add", struct.data, lot, "monotonic")

    return types.int64(counter), generate


# ------------------------------------------------------------------------------------- the walk


@inline
def place(col, edge, width):
    """Where the state of an edge's neighbour starts."""
    return np.int64(get(col, edge)) * width


@inline
def gather(rowptr, col, weight, state, row, width, out, to, totals, worker):
    """out[to:] = sum of the row's neighbours in `state` [N, width]; `totals` [workers, width]."""
    start, stop = np.int64(get(rowptr, row)), np.int64(get(rowptr, row + 1))
    for first in range(start, stop, SPAN):
        last = min(first + SPAN, stop)
        for edge in range(first, last, _GROUP):
            end = min(edge + _GROUP, last)
            _gather_group(col, weight, state, edge, end, width, edge > first, out, to)
        _end_span(start, first, stop, width, out, to, totals, worker)
    _end_row(start, stop, width, out, to)


def arrive(shape, source, row, out, to, totals, worker):
    """out[to:] = the sum of what comes to a row from its neighbours. Which of these it is lies in
    the type of `source`: with both in one kernel, either would be slower."""


@overload(arrive, jit_options=_INLINE)
def _arrive_of(shape, source, row, out, to, totals, worker):
    if len(source) == len(("rowptr", "col", "weight", "states")):
        return _gather_states
    return _gather_factors


def _gather_states(shape, source, row, out, to, totals, worker):
    rowptr, col, weight, states = source
    width = shape[0] * shape[1] * shape[2]
    gather(rowptr, col, weight, states, row, width, out, to, totals, worker)


def _gather_factors(shape, source, row, out, to, totals, worker):
    """Of states that are not there: those of rank one, right (x) left of each node, with `left`
    [N, H, d] and `right` [N, H, e]. d fills whole vectors."""
    rowptr, col, weight, left, right = source
    width = shape[0] * shape[1] * shape[2]
    start, stop = np.int64(get(rowptr, row)), np.int64(get(rowptr, row + 1))
    for first in range(start, stop, SPAN):
        last = min(first + SPAN, stop)
        for edge in range(first, last, _FACTOR_GROUP):
            end = min(edge + _FACTOR_GROUP, last)
            _gather_outer(shape, col, weight, left, right, edge, end, edge > first, out, to)
        _end_span(start, first, stop, width, out, to, totals, worker)
    _end_row(start, stop, width, out, to)


@inline
def _end_span(start, first, stop, width, out, to, totals, worker):
    """The sum of a span, in out[to:], goes to the total of a row that has more of them."""
    if stop - start > SPAN:
        at = np.int64(worker) * width
        for x in range(width):
            before = get(totals, at + x) if first > start else 0.0
            store(totals, at + x, before + get(out, to + x))
            if first + SPAN >= stop:
                store(out, to + x, get(totals, at + x))


@inline
def _end_row(start, stop, width, out, to):
    """Where no neighbour is, the sum is 0."""
    if start == stop:
        for x in range(width):
            store(out, to + x, 0)


@inline
def _gather_group(col, weight, state, start, stop, width, add, out, to):
    """out[to:] (+)= sum of the neighbours at some edges, four lines at a time in registers, and two
    of those that are left."""
    lanes = line(state)
    fours, twos = width - width % (4 * lanes), width - width % (2 * lanes)
    whole, final = width - width % lanes, col.size - 1
    for x in range(0, fours, 4 * lanes):
        y, z, u = x + lanes, x + 2 * lanes, x + 3 * lanes
        a, b, c, d = zeros_line(state), zeros_line(state), zeros_line(state), zeros_line(state)
        if add:
            a, b = load_line(out, to + x), load_line(out, to + y)
            c, d = load_line(out, to + z), load_line(out, to + u)
        for edge in range(start, stop):
            w, at = get(weight, edge), place(col, edge, width)
            then = place(col, min(edge + _AHEAD, final), width)
            prefetch(state, then + x)
            prefetch(state, then + y)
            prefetch(state, then + z)
            prefetch(state, then + u)
            a = multiply_add(w, load_line(state, at + x), a)
            b = multiply_add(w, load_line(state, at + y), b)
            c = multiply_add(w, load_line(state, at + z), c)
            d = multiply_add(w, load_line(state, at + u), d)
        store(out, to + x, a)
        store(out, to + y, b)
        store(out, to + z, c)
        store(out, to + u, d)
    for x in range(fours, twos, 2 * lanes):
        y = x + lanes
        a, b = zeros_line(state), zeros_line(state)
        if add:
            a, b = load_line(out, to + x), load_line(out, to + y)
        for edge in range(start, stop):
            w, at = get(weight, edge), place(col, edge, width)
            then = place(col, min(edge + _AHEAD, final), width)
            prefetch(state, then + x)
            prefetch(state, then + y)
            a = multiply_add(w, load_line(state, at + x), a)
            b = multiply_add(w, load_line(state, at + y), b)
        store(out, to + x, a)
        store(out, to + y, b)
    for x in range(twos, whole, lanes):
        a = load_line(out, to + x) if add else zeros_line(state)
        for edge in range(start, stop):
            prefetch(state, place(col, min(edge + _AHEAD, final), width) + x)
            a = multiply_add(get(weight, edge), load_line(state, place(col, edge, width) + x), a)
        store(out, to + x, a)
    for x in range(whole, width):
        total = get(out, to + x) if add else state.dtype.type(0)
        for edge in range(start, stop):
            total += get(weight, edge) * get(state, place(col, edge, width) + x)
        store(out, to + x, total)


@inline
def _gather_outer(shape, col, weight, left, right, start, stop, add, out, to):
    """out[to:] (+)= sum of weight right (x) left of the neighbours at some edges; of each head some
    columns at a time in registers."""
    heads, width, size = shape
    lanes, few = line(out), half(out)
    fours, eights = width - width % 4, width - width % 8
    for h in range(heads):
        base, x = to + h * width * size, 0
        while x + lanes <= size:
            for e in range(0, fours, 4):
                at, place = base + e * size + x, (h, e, x)
                _four_lines(shape, place, col, weight, left, right, start, stop, add, out, at)
            for e in range(fours, width):
                at, place = base + e * size + x, (h, e, x)
                _one_line(shape, place, col, weight, left, right, start, stop, add, out, at)
            x += lanes
        if x + few <= size:
            for e in range(0, eights, 8):
                at, place = base + e * size + x, (h, e, x)
                _eight_halves(shape, place, col, weight, left, right, start, stop, add, out, at)
            for e in range(eights, width):
                at, place = base + e * size + x, (h, e, x)
                _one_half(shape, place, col, weight, left, right, start, stop, add, out, at)


@inline
def _factors_at(shape, place, col, edge):
    """Where the factors of an edge's neighbour are, and those to be fetched."""
    heads, width, size = shape
    h, e, x = place
    row = np.int64(get(col, edge)) * heads + h
    then = np.int64(get(col, min(edge + _AHEAD, col.size - 1))) * heads + h
    return row * size + x, row * width + e, then * width + e


@inline
def _four_lines(shape, place, col, weight, left, right, start, stop, add, out, to):
    """Four columns of a head, from column e and channel x on: `place` is (h, e, x)."""
    size = shape[2]
    y, z, u = to + size, to + 2 * size, to + 3 * size
    a, b, c, d = zeros_line(out), zeros_line(out), zeros_line(out), zeros_line(out)
    if add:
        a, b, c, d = load_line(out, to), load_line(out, y), load_line(out, z), load_line(out, u)
    for edge in range(start, stop):
        i, j, then = _factors_at(shape, place, col, edge)
        prefetch(right, then)
        part = multiply(get(weight, edge), load_line(left, i))
        a = multiply_add(get(right, j), part, a)
        b = multiply_add(get(right, j + 1), part, b)
        c = multiply_add(get(right, j + 2), part, c)
        d = multiply_add(get(right, j + 3), part, d)
    store(out, to, a)
    store(out, y, b)
    store(out, z, c)
    store(out, u, d)


@inline
def _one_line(shape, place, col, weight, left, right, start, stop, add, out, to):
    """A column of a head, likewise."""
    a = load_line(out, to) if add else zeros_line(out)
    for edge in range(start, stop):
        i, j, _ = _factors_at(shape, place, col, edge)
        a = multiply_add(get(right, j), multiply(get(weight, edge), load_line(left, i)), a)
    store(out, to, a)


@inline
def _eight_halves(shape, place, col, weight, left, right, start, stop, add, out, to):
    """Eight columns of a head, likewise: as many registers."""
    size = shape[2]
    a, b, c, d = zeros_half(out), zeros_half(out), zeros_half(out), zeros_half(out)
    p, q, r, s = zeros_half(out), zeros_half(out), zeros_half(out), zeros_half(out)
    if add:
        a, b = load_half(out, to), load_half(out, to + size)
        c, d = load_half(out, to + 2 * size), load_half(out, to + 3 * size)
        p, q = load_half(out, to + 4 * size), load_half(out, to + 5 * size)
        r, s = load_half(out, to + 6 * size), load_half(out, to + 7 * size)
    for edge in range(start, stop):
        i, j, then = _factors_at(shape, place, col, edge)
        prefetch(right, then)
        part = multiply(get(weight, edge), load_half(left, i))
        a = multiply_add(get(right, j), part, a)
        b = multiply_add(get(right, j + 1), part, b)
        c = multiply_add(get(right, j + 2), part, c)
        d = multiply_add(get(right, j + 3), part, d)
        p = multiply_add(get(right, j + 4), part, p)
        q = multiply_add(get(right, j + 5), part, q)
        r = multiply_add(get(right, j + 6), part, r)
        s = multiply_add(get(right, j + 7), part, s)
    store(out, to, a)
    store(out, to + size, b)
    store(out, to + 2 * size, c)
    store(out, to + 3 * size, d)
    store(out, to + 4 * size, p)
    store(out, to + 5 * size, q)
    store(out, to + 6 * size, r)
    store(out, to + 7 * size, s)


@inline
def _one_half(shape, place, col, weight, left, right, start, stop, add, out, to):
    """A column of a head, likewise."""
    a = load_half(out, to) if add else zeros_half(out)
    for edge in range(start, stop):
        i, j, _ = _factors_at(shape, place, col, edge)
        a = multiply_add(get(right, j), multiply(get(weight, edge), load_half(left, i)), a)
    store(out, to, a)


# ------------------------------------------------------- a vector [d] and the rows of a head [e, d]


@inline
def dots(a, i, rows, j, count, size, out, to):
    """out[to:] = rows[j:] times a[i:]: [count, size] x [size] -> [count]."""
    lanes, few = line(a), half(a)
    x = 0
    while x + lanes <= size:
        part = load_line(a, i + x)
        for e in range(count):
            total = sum_lanes(multiply(part, load_line(rows, j + e * size + x)))
            store(out, to + e, total + get(out, to + e) if x else total)
        x += lanes
    if x + few <= size:
        part = load_half(a, i + x)
        for e in range(count):
            total = sum_lanes(multiply(part, load_half(rows, j + e * size + x)))
            store(out, to + e, total + get(out, to + e) if x else total)
        x += few
    while x < size:
        part = get(a, i + x)
        for e in range(count):
            total = part * get(rows, j + e * size + x)
            store(out, to + e, total + get(out, to + e) if x else total)
        x += 1


@inline
def combine(scales, i, rows, j, count, size, out, to):
    """out[to:] += scales[i:] times rows[j:]: [count] x [count, size] -> [size]."""
    lanes, few = line(out), half(out)
    x = 0
    while x + lanes <= size:
        total = load_line(out, to + x)
        for e in range(count):
            total = multiply_add(get(scales, i + e), load_line(rows, j + e * size + x), total)
        store(out, to + x, total)
        x += lanes
    if x + few <= size:
        total = load_half(out, to + x)
        for e in range(count):
            total = multiply_add(get(scales, i + e), load_half(rows, j + e * size + x), total)
        store(out, to + x, total)
        x += few
    while x < size:
        number = get(out, to + x)
        for e in range(count):
            number += get(scales, i + e) * get(rows, j + e * size + x)
        store(out, to + x, number)
        x += 1


@inline
def outer(scales, i, a, j, count, size, add, rows, to):
    """rows[to:] (+)= scales[i:] (x) a[j:]: [count] x [size] -> [count, size]."""
    lanes, few = line(rows), half(rows)
    x = 0
    while x + lanes <= size:
        part = load_line(a, j + x)
        for e in range(count):
            at = to + e * size + x
            before = load_line(rows, at) if add else zeros_line(rows)
            store(rows, at, multiply_add(get(scales, i + e), part, before))
        x += lanes
    if x + few <= size:
        part = load_half(a, j + x)
        for e in range(count):
            at = to + e * size + x
            before = load_half(rows, at) if add else zeros_half(rows)
            store(rows, at, multiply_add(get(scales, i + e), part, before))
        x += few
    while x < size:
        number = get(a, j + x)
        for e in range(count):
            at = to + e * size + x
            product = get(scales, i + e) * number
            store(rows, at, product + get(rows, at) if add else product)
        x += 1
