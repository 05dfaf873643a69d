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
_kernel = njit(cache=True, **_HOW)
_INLINE = {"forceinline": True, "no_cpython_wrapper": True, **_HOW}
_inline = njit(**_INLINE)

LOT = 64
"""Rows that a thread takes at a time."""

DROP_LOT = 128 * LOT
"""Numbers that a thread takes at a time where there are no rows."""

SPAN = 256
"""Edges that are added up in the numbers' own precision. The spans of a longer row are added up in
float64: one after the other in float32, the 100,000 neighbours of a hub lose four digits."""

_DRAWS = 4
"""Draws of 16 bits in 64."""

_GROUP = 6
"""Neighbours that are gone through for four lines of the sum before the next four lines: with more,
a long row is read in pieces that are too far apart for the processor to read ahead."""

_FACTOR_GROUP = 16
"""The same of factors, whose rows are short."""

_AHEAD = 8
"""Neighbours between the one that is added and the one that is fetched from memory."""


@intrinsic
def _take(context, counter):
    """The counter [1] before LOT is added to it: threads that ask get different lots."""

    def generate(context, builder, signature, arguments):
        struct = context.make_array(signature.args[0])(context, builder, arguments[0])
        lot = context.get_constant(types.int64, LOT)
        return builder.atomic_rmw("add", struct.data, lot, "monotonic")

    return types.int64(counter), generate


# ------------------------------------------------------------------------------------- the walk


@_inline
def _place(col, edge, width):
    """Where the state of an edge's neighbour starts."""
    return np.int64(get(col, edge)) * width


@_inline
def _gather(rowptr, col, weight, state, row, width, out, to, totals, worker):
    """out[to:] = sum of the row's neighbours in `state` [N, width]; `totals` [workers, width]."""
    start, stop = np.int64(get(rowptr, row)), np.int64(get(rowptr, row + 1))
    for first in range(start, stop, SPAN):
        last = min(first + SPAN, stop)
        for edge in range(first, last, _GROUP):
            end = min(edge + _GROUP, last)
            _gather_group(col, weight, state, edge, end, width, edge > first, out, to)
        _end_span(start, first, stop, width, out, to, totals, worker)
    _end_row(start, stop, width, out, to)


def _arrive(shape, source, row, out, to, totals, worker):
    """out[to:] = the sum of what comes to a row from its neighbours. Which of these it is lies in
    the type of `source`: with both in one kernel, either would be slower."""


@overload(_arrive, jit_options=_INLINE)
def _arrive_of(shape, source, row, out, to, totals, worker):
    if len(source) == len(("rowptr", "col", "weight", "states")):
        return _gather_states
    return _gather_factors


def _gather_states(shape, source, row, out, to, totals, worker):
    rowptr, col, weight, states = source
    width = shape[0] * shape[1] * shape[2]
    _gather(rowptr, col, weight, states, row, width, out, to, totals, worker)


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


@_inline
def _end_span(start, first, stop, width, out, to, totals, worker):
    """The sum of a span, in out[to:], goes to the total of a row that has more of them."""
    if stop - start > SPAN:
        at = np.int64(worker) * width
        for x in range(width):
            before = get(totals, at + x) if first > start else 0.0
            store(totals, at + x, before + get(out, to + x))
            if first + SPAN >= stop:
                store(out, to + x, get(totals, at + x))


@_inline
def _end_row(start, stop, width, out, to):
    """Where no neighbour is, the sum is 0."""
    if start == stop:
        for x in range(width):
            store(out, to + x, 0)


@_inline
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
            w, at = get(weight, edge), _place(col, edge, width)
            then = _place(col, min(edge + _AHEAD, final), width)
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
            w, at = get(weight, edge), _place(col, edge, width)
            then = _place(col, min(edge + _AHEAD, final), width)
            prefetch(state, then + x)
            prefetch(state, then + y)
            a = multiply_add(w, load_line(state, at + x), a)
            b = multiply_add(w, load_line(state, at + y), b)
        store(out, to + x, a)
        store(out, to + y, b)
    for x in range(twos, whole, lanes):
        a = load_line(out, to + x) if add else zeros_line(state)
        for edge in range(start, stop):
            prefetch(state, _place(col, min(edge + _AHEAD, final), width) + x)
            a = multiply_add(get(weight, edge), load_line(state, _place(col, edge, width) + x), a)
        store(out, to + x, a)
    for x in range(whole, width):
        total = get(out, to + x) if add else state.dtype.type(0)
        for edge in range(start, stop):
            total += get(weight, edge) * get(state, _place(col, edge, width) + x)
        store(out, to + x, total)


@_inline
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


@_inline
def _factors_at(shape, place, col, edge):
    """Where the factors of an edge's neighbour are, and those to be fetched."""
    heads, width, size = shape
    h, e, x = place
    row = np.int64(get(col, edge)) * heads + h
    then = np.int64(get(col, min(edge + _AHEAD, col.size - 1))) * heads + h
    return row * size + x, row * width + e, then * width + e


@_inline
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


@_inline
def _one_line(shape, place, col, weight, left, right, start, stop, add, out, to):
    """A column of a head, likewise."""
    a = load_line(out, to) if add else zeros_line(out)
    for edge in range(start, stop):
        i, j, _ = _factors_at(shape, place, col, edge)
        a = multiply_add(get(right, j), multiply(get(weight, edge), load_line(left, i)), a)
    store(out, to, a)


@_inline
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


@_inline
def _one_half(shape, place, col, weight, left, right, start, stop, add, out, to):
    """A column of a head, likewise."""
    a = load_half(out, to) if add else zeros_half(out)
    for edge in range(start, stop):
        i, j, _ = _factors_at(shape, place, col, edge)
        a = multiply_add(get(right, j), multiply(get(weight, edge), load_half(left, i)), a)
    store(out, to, a)


# ------------------------------------------------------- a vector [d] and the rows of a head [e, d]


@_inline
def _dots(a, i, rows, j, count, size, out, to):
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


@_inline
def _combine(scales, i, rows, j, count, size, out, to):
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


@_inline
def _outer(scales, i, a, j, count, size, add, rows, to):
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


# ------------------------------------------------------------------------ read-outs and quotients


@_inline
def _read(shape, query, state, row, slot, readout):
    """readout = q S of node `row`, whose state is at `slot`."""
    heads, width, size = shape
    for h in range(heads):
        at, there = row * heads + h, slot * heads + h
        _dots(query, at * size, state, there * width * size, width, size, readout, at * width)


@_inline
def _share(scale, denominator):
    """scale / denominator, and 0 where no walk arrives."""
    return scale / denominator if denominator != 0 else 0 * denominator


@_inline
def _raised(denominator, beta, head):
    """|denominator|^beta with its sign, as `recurrence.raised`; itself where there is no beta."""
    if len(beta) == 0 or denominator == 0:
        return denominator
    power = abs(denominator) ** get(beta, head)
    return -power if denominator < 0 and get(beta, head) != 0 else power


@_inline
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


@_inline
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


@_inline
def _add_grad_query(shape, state, slot, row, hop):
    """grad_query += S dR of node `row`, whose state is at `slot`."""
    heads, width, size = shape
    grad_readout, grad_query = hop[5], hop[7]
    for h in range(heads):
        at, there = row * heads + h, (slot * heads + h) * width * size
        _combine(grad_readout, at * width, state, there, width, size, grad_query, at * size)


# -------------------------------------------------------------------------------------- kernels


@_inline
def _random(seed, index):
    """64 random bits, those of an index: SplitMix64, which needs none of those before."""
    z = seed + np.uint64(index + 1) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@_inline
def _drop(bits, draw, least, scale, x, at, out):
    """out = scale x of one entry, or 0: by one of the draws in some bits."""
    stays = (bits >> np.uint64(16 * draw)) & np.uint64(0xFFFF) >= least
    store(out, at, scale * get(x, at) if stays else x.dtype.type(0))


@_kernel
def drop(worker, counter, seed, least, scale, x, out):
    """out = scale x where 16 random bits of the entry are `least` or more, and 0 elsewhere."""
    whole, lots = len(x) - len(x) % _DRAWS, DROP_LOT // LOT
    first = _take(counter) * lots
    while first < len(x):
        for start in range(first, min(first + DROP_LOT, whole), _DRAWS):
            bits = _random(seed, start)
            for draw in range(_DRAWS):
                _drop(bits, draw, least, scale, x, start + draw, out)
        if first + DROP_LOT >= len(x):
            for draw in range(len(x) - whole):
                _drop(_random(seed, whole), draw, least, scale, x, whole + draw, out)
        first = _take(counter) * lots


@_kernel
def drop_rows(worker, counter, seed, least, scale, rowptr, first_entry, x, out):
    """`drop` of rows that are some of a larger matrix: entries of a row have numbers from its first
    one on, and draw as they would there."""
    rows = len(first_entry)
    first = _take(counter)
    while first < rows:
        for row in range(first, min(first + LOT, rows)):
            for at in range(rowptr[row], rowptr[row + 1]):
                number = first_entry[row] + at - rowptr[row]
                draw = number % _DRAWS
                _drop(_random(seed, number - draw), draw, least, scale, x, at, out)
        first = _take(counter)


@_kernel
def begin(worker, counter, shape, left, right, state):
    """state = right (x) left: of `left` [N, H, d], `right` [N, H, e]."""
    heads, width, size = shape
    nodes = len(left) // (heads * size)
    first = _take(counter)
    while first < nodes:
        for at in range(first * heads, min(first + LOT, nodes) * heads):
            _outer(right, at * width, left, at * size, width, size, False, state, at * width * size)
        first = _take(counter)


@_kernel
def walk_and_read(
    worker, counter, shape, source, new, totals, query, eps, scale, beta, add, readout, out
):
    """new = A S, readout = q new, out (+)= the hop's level times scale."""
    heads, width, size = shape
    nodes, total = len(source[0]) - 1, heads * width * size
    each = len(new) == nodes * total  # room for the state of every row, or of one per thread
    first = _take(counter)
    while first < nodes:
        for row in range(first, min(first + LOT, nodes)):
            slot = row if each else worker
            _arrive(shape, source, row, new, slot * total, totals, worker)
            _read(shape, query, new, row, slot, readout)
            _put_level(heads, width, readout, eps, scale, beta, row, add, out)
        first = _take(counter)


@_kernel
def walk_for_query(worker, counter, shape, source, new, totals, unread, hop):
    """new = A S, grad_query += new dR; and first readout = q new, if it is `unread`."""
    nodes, total = len(source[0]) - 1, shape[0] * shape[1] * shape[2]
    each = len(new) == nodes * total  # as in `walk_and_read`
    first = _take(counter)
    while first < nodes:
        for row in range(first, min(first + LOT, nodes)):
            slot = row if each else worker
            _arrive(shape, source, row, new, slot * total, totals, worker)
            if unread:
                _read(shape, hop[0], new, row, slot, hop[4])
            _quotient_backward(shape[0], shape[1], row, hop)
            _add_grad_query(shape, new, slot, row, hop)
        first = _take(counter)


@_kernel
def turn_back(worker, counter, shape, nodes, kept, hop):
    """dR of the last hop; and grad_query += S dR if its states are `kept`."""
    first = _take(counter)
    while first < nodes:
        for row in range(first, min(first + LOT, nodes)):
            _quotient_backward(shape[0], shape[1], row, hop)
            if len(kept):
                _add_grad_query(shape, kept, row, row, hop)
        first = _take(counter)


@_kernel
def walk_back(worker, counter, shape, source, kept, new, totals, hop):
    """new = A^T G + q (x) dR; and grad_query += S dR if the states of the hop are `kept`."""
    heads, width, size = shape
    nodes, total, query, grad_readout = len(source[0]) - 1, heads * width * size, hop[0], hop[5]
    first = _take(counter)
    while first < nodes:
        for row in range(first, min(first + LOT, nodes)):
            _quotient_backward(heads, width, row, hop)
            if len(kept):
                _add_grad_query(shape, kept, row, row, hop)
            _arrive(shape, source, row, new, row * total, totals, worker)
            for at in range(row * heads, (row + 1) * heads):
                _outer(
                    grad_readout, at * width, query, at * size, width, size, True,
                    new, at * width * size,
                )  # fmt: skip
        first = _take(counter)


@_kernel
def walk_home(
    worker, counter, shape, source, new, totals,
    key, ones, grad, scale, products, grad_key, grad_value,
):  # fmt: skip
    """new = A^T G; grad_key += new [v | 1], grad_value = (k new)[:c] + scale grad of hop 0."""
    heads, width, size = shape
    nodes, total, channels = len(source[0]) - 1, heads * width * size, width - 1
    first = _take(counter)
    while first < nodes:
        for row in range(first, min(first + LOT, nodes)):
            _arrive(shape, source, row, new, worker * total, totals, worker)
            for h in range(heads):
                at, there = row * heads + h, (worker * heads + h) * width * size
                v, w = at * channels, at * width
                _combine(ones, w, new, there, width, size, grad_key, at * size)
                _dots(key, at * size, new, there, channels, size, grad_value, v)
                product = 0 * get(scale, h)
                for e in range(channels):
                    product += get(grad, v + e) * get(ones, w + e)
                for e in range(v, v + channels):
                    store(grad_value, e, get(grad_value, e) + get(scale, h) * get(grad, e))
                store(products, at, product)
        first = _take(counter)
