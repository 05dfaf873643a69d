# mypy: ignore-errors
# (the types in here are Numba's)
"""The loops of the CPU backend, compiled by Numba. Imported only when that backend runs.

A row of the state belongs to one thread from the gather to the read-out, so it is used while it is
in cache, and every sum has a fixed order: the result does not depend on the number of threads.
Each kernel is one parallel pass over the rows, one step of the walk with all that is done to a
node's state on the way. Rows are handed out in small lots, so that a thread that finds its core
taken does not hold up the others.

All arrays are flat: a view of a row costs more than the few numbers in it. `shape` is (H, e, d)
with e = c + 1. Behind the flat arrays are states [N, H, e, d] (the sums over key channels are then
contiguous), q and k [N, H, d], values and their gradients [N, H, c], read-outs [N, H, e], products
[N, H], hop weights of one hop [H]. `hop` is a tuple: query, gradient of the level, eps, hop
weights, room for read-outs and for dR, products, and the gradient of the query.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange, types
from numba.extending import intrinsic

from ._numba_vectors import (
    HALF_BYTES,
    LINE_BYTES,
    load_half,
    load_line,
    multiply,
    multiply_add,
    prefetch,
    store,
    sum_lanes,
    zeros_half,
)

# FMA and vector sums are allowed, NaN and infinity stay what they are.
_FASTMATH = {"contract", "reassoc", "nsz"}
_parallel = njit(parallel=True, fastmath=_FASTMATH, cache=True, error_model="numpy", nogil=True)
_inline = njit(fastmath=_FASTMATH, error_model="numpy", nogil=True, forceinline=True)

LOT = 64
"""Rows that a thread takes at a time."""

SPAN = 256
"""Edges that are added up in the numbers' own precision. The spans of a longer row are added up in
float64: one after the other in float32, the 100,000 neighbours of a hub lose four digits."""

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


@_inline
def _place(col, edge, width):
    """Where the state of an edge's neighbour starts; of the last edge's, beyond the end."""
    return np.int64(col[min(edge, col.size - 1)]) * width if col.size else 0


@_inline
def _for_size(do, size, *arguments):
    """do(size, ...): for the usual numbers of key channels with loops of known length."""
    if size == 8:
        do(8, *arguments)
    elif size == 16:
        do(16, *arguments)
    else:
        do(size, *arguments)


@_inline
def _gather(rowptr, col, weight, state, row, width, out, to, totals, worker):
    """out[to:] = sum of the row's neighbours in `state` [N, width]; `totals` [workers, width]."""
    start, stop = np.int64(rowptr[row]), np.int64(rowptr[row + 1])
    at = np.int64(worker) * width
    for first in range(start, max(stop, start + 1), SPAN):
        _gather_span(col, weight, state, first, min(first + SPAN, stop), width, out, to)
        if stop - start > SPAN:
            for x in range(width):
                totals[at + x] = out[to + x] + (totals[at + x] if first > start else 0)
    if stop - start > SPAN:
        for x in range(width):
            out[to + x] = totals[at + x]


@_inline
def _gather_span(col, weight, state, start, stop, width, out, to):
    """out[to:] = sum of the neighbours at some edges, four at a time."""
    lanes = LINE_BYTES // state.itemsize
    whole, lead = width - width % lanes, (stop - start) % 4
    a, b, c = (
        _place(col, start, width),
        _place(col, start + 1, width),
        _place(col, start + 2, width),
    )
    if lead == 0:
        for x in range(to, to + width):
            out[x] = 0
    elif lead == 1:
        wa = weight[start]
        for x in range(0, whole, lanes):
            store(out, to + x, multiply(wa, load_line(state, a + x)))
        for x in range(whole, width):
            out[to + x] = wa * state[a + x]
    elif lead == 2:
        wa, wb = weight[start], weight[start + 1]
        for x in range(0, whole, lanes):
            total = multiply(wa, load_line(state, a + x))
            store(out, to + x, multiply_add(wb, load_line(state, b + x), total))
        for x in range(whole, width):
            out[to + x] = wa * state[a + x] + wb * state[b + x]
    else:
        wa, wb, wc = weight[start], weight[start + 1], weight[start + 2]
        for x in range(0, whole, lanes):
            total = multiply(wa, load_line(state, a + x))
            total = multiply_add(wb, load_line(state, b + x), total)
            store(out, to + x, multiply_add(wc, load_line(state, c + x), total))
        for x in range(whole, width):
            out[to + x] = wa * state[a + x] + wb * state[b + x] + wc * state[c + x]
    for edge in range(start + lead, stop, 4):
        wa, wb, wc, wd = weight[edge], weight[edge + 1], weight[edge + 2], weight[edge + 3]
        a, b = _place(col, edge, width), _place(col, edge + 1, width)
        c, d = _place(col, edge + 2, width), _place(col, edge + 3, width)
        later = edge + _AHEAD
        next_a, next_b = _place(col, later, width), _place(col, later + 1, width)
        next_c, next_d = _place(col, later + 2, width), _place(col, later + 3, width)
        for x in range(0, whole, lanes):
            prefetch(state, next_a + x)
            prefetch(state, next_b + x)
            prefetch(state, next_c + x)
            prefetch(state, next_d + x)
            total = multiply_add(wa, load_line(state, a + x), load_line(out, to + x))
            total = multiply_add(wb, load_line(state, b + x), total)
            total = multiply_add(wc, load_line(state, c + x), total)
            store(out, to + x, multiply_add(wd, load_line(state, d + x), total))
        for x in range(whole, width):
            out[to + x] += wa * state[a + x] + wb * state[b + x]
            out[to + x] += wc * state[c + x] + wd * state[d + x]


@_inline
def _dot(a, i, b, j, size):
    """sum a[i:] b[j:] over `size` numbers."""
    lanes = HALF_BYTES // a.itemsize
    whole = size - size % lanes
    part = zeros_half(a)
    for x in range(0, whole, lanes):
        part = multiply_add(load_half(a, i + x), load_half(b, j + x), part)
    total = sum_lanes(part)
    for x in range(whole, size):
        total += a[i + x] * b[j + x]
    return total


@_inline
def _put_scaled(scale, a, i, size, add, out, to):
    """out[to:] (+)= scale a[i:] over `size` numbers."""
    lanes = HALF_BYTES // a.itemsize
    whole = size - size % lanes
    for x in range(0, whole, lanes):
        part = load_half(a, i + x)
        before = load_half(out, to + x) if add else zeros_half(a)
        store(out, to + x, multiply_add(scale, part, before))
    for x in range(whole, size):
        out[to + x] = scale * a[i + x] + (out[to + x] if add else 0)


@_inline
def _add_rows(scales, i, rows, j, count, size, out, to):
    """out[to:] += sum of scales[i:] times rows[j:]: [count], [count, size] -> [size]."""
    lanes = HALF_BYTES // rows.itemsize
    whole = size - size % lanes
    for x in range(0, whole, lanes):
        total = load_half(out, to + x)
        for e in range(count):
            total = multiply_add(scales[i + e], load_half(rows, j + e * size + x), total)
        store(out, to + x, total)
    for e in range(count):
        for x in range(whole, size):
            out[to + x] += scales[i + e] * rows[j + e * size + x]


@_inline
def _read(size, heads, width, query, state, row, slot, readout):
    """readout = q S of node `row`, whose state is at `slot`."""
    for h in range(heads):
        q, to = (row * heads + h) * size, (row * heads + h) * width
        for e in range(width):
            readout[to + e] = _dot(query, q, state, ((slot * heads + h) * width + e) * size, size)


@_inline
def _share(scale, denominator):
    """scale / denominator, and 0 where no walk arrives."""
    return scale / denominator if denominator != 0 else 0 * denominator


@_inline
def _put_level(heads, width, readout, eps, scale, row, add, out):
    """out (+)= scale * numerator / (denominator + eps) of node `row`."""
    for h in range(heads):
        r, o = (row * heads + h) * width, (row * heads + h) * (width - 1)
        denominator = readout[r + width - 1] + eps
        share = _share(scale[h], denominator)
        overflows = np.isinf(share)  # which the level itself need not do
        for e in range(width - 1):
            level = readout[r + e] * share
            if overflows:
                level = scale[h] * (readout[r + e] / denominator)
            out[o + e] = out[o + e] + level if add else level


@_inline
def _quotient_backward(heads, width, grad, readout, eps, scale, row, grad_readout, products):
    """dR of node `row` by the quotient rule for scale * grad, and products = <grad, level>."""
    for h in range(heads):
        r, g = (row * heads + h) * width, (row * heads + h) * (width - 1)
        share = _share(1, readout[r + width - 1] + eps)
        product = 0 * share
        if (width - 1) * grad.itemsize < LINE_BYTES:
            for e in range(width - 1):
                product += grad[g + e] * (readout[r + e] * share)
                grad_readout[r + e] = scale[h] * grad[g + e] * share
        else:  # In one loop, whether the sum is vectorised, and so in which order it adds, would
            # hang on where the arrays happen to lie.
            for e in range(width - 1):
                product += grad[g + e] * (readout[r + e] * share)
            for e in range(width - 1):
                grad_readout[r + e] = scale[h] * grad[g + e] * share
        grad_readout[r + width - 1] = -scale[h] * product * share
        products[row * heads + h] = product


@_inline
def _add_grad_query(size, heads, width, state, row, slot, grad_readout, grad_query):
    """grad_query += S dR of node `row`, whose state is at `slot`."""
    for h in range(heads):
        s, r = (slot * heads + h) * width * size, (row * heads + h) * width
        _add_rows(grad_readout, r, state, s, width, size, grad_query, (row * heads + h) * size)


@_inline
def _put_outer(size, heads, width, query, grad_readout, row, add, state):
    """state (+)= q (x) dR of node `row`."""
    for h in range(heads):
        q = (row * heads + h) * size
        for e in range(width):
            at = (row * heads + h) * width + e
            _put_scaled(grad_readout[at], query, q, size, add, state, at * size)


@_inline
def _turn(shape, state, slot, row, hop):
    """dR of node `row` from its state at `slot`, and the hop's part of the query's gradient."""
    heads, width, size = shape
    query, grad, eps, scale, readout, grad_readout, products, grad_query = hop
    _for_size(_read, size, heads, width, query, state, row, slot, readout)
    _quotient_backward(heads, width, grad, readout, eps, scale, row, grad_readout, products)
    _for_size(_add_grad_query, size, heads, width, state, row, slot, grad_readout, grad_query)


@_inline
def _begin(size, heads, width, key, value, scale, row, state, out):
    """state = k (x) [v | 1] and out = scale v of node `row`."""
    channels = width - 1
    for h in range(heads):
        at = row * heads + h
        for e in range(channels):
            v = value[at * channels + e]
            out[at * channels + e] = scale[h] * v
            _put_scaled(v, key, at * size, size, False, state, (at * width + e) * size)
        _put_scaled(1, key, at * size, size, False, state, (at * width + channels) * size)


@_inline
def _home(
    size, heads, width, state, key, value, grad, scale, row, slot, products, grad_key, grad_value
):
    """The gradients of key and value of node `row` from dS_0 at `slot`."""
    channels = width - 1
    for h in range(heads):
        at, s = row * heads + h, (slot * heads + h) * width * size
        k, v = at * size, at * channels
        _put_scaled(1, state, s + channels * size, size, False, grad_key, k)
        _add_rows(value, v, state, s, channels, size, grad_key, k)
        product = 0 * scale[h]
        for e in range(channels):
            level = _dot(key, k, state, s + e * size, size)
            grad_value[v + e] = level + scale[h] * grad[v + e]
            product += grad[v + e] * value[v + e]
        products[at] = product


@_parallel
def begin(workers, shape, key, value, scale, state, out):
    """state = k (x) [v | 1], and hop 0 of the output: out = scale v."""
    heads, width, size = shape
    nodes, counter = len(key) // (heads * size), np.zeros(1, np.int64)
    for _ in prange(workers):
        first = _take(counter)
        while first < nodes:
            for row in range(first, min(first + LOT, nodes)):
                _for_size(_begin, size, heads, width, key, value, scale, row, state, out)
            first = _take(counter)


@_parallel
def walk_and_read(
    workers, shape, rowptr, col, weight, old, new, totals, query, eps, scale, add, readout, out
):
    """new = A old, readout = q new, out (+)= the hop's level times scale."""
    heads, width, size = shape
    nodes, total, counter = len(rowptr) - 1, heads * width * size, np.zeros(1, np.int64)
    each = len(new) == nodes * total  # room for the state of every row, or of one per thread
    for worker in prange(workers):
        first = _take(counter)
        while first < nodes:
            for row in range(first, min(first + LOT, nodes)):
                slot = row if each else np.int64(worker)
                _gather(rowptr, col, weight, old, row, total, new, slot * total, totals, worker)
                _for_size(_read, size, heads, width, query, new, row, slot, readout)
                _put_level(heads, width, readout, eps, scale, row, add, out)
            first = _take(counter)


@_parallel
def walk_for_query(workers, shape, rowptr, col, weight, old, new, totals, hop):
    """new = A old, grad_query += new dR."""
    nodes, total, counter = len(rowptr) - 1, shape[0] * shape[1] * shape[2], np.zeros(1, np.int64)
    each = len(new) == nodes * total  # as in `walk_and_read`
    for worker in prange(workers):
        first = _take(counter)
        while first < nodes:
            for row in range(first, min(first + LOT, nodes)):
                slot = row if each else np.int64(worker)
                _gather(rowptr, col, weight, old, row, total, new, slot * total, totals, worker)
                _turn(shape, new, slot, row, hop)
            first = _take(counter)


@_parallel
def last_gradient(workers, shape, kept, has_states, new, hop):
    """new = q (x) dR, the gradient of the last state; `kept` as in `walk_back`."""
    heads, width, size = shape
    query, grad, eps, scale, _, grad_readout, products, _ = hop
    nodes, counter = len(products) // heads, np.zeros(1, np.int64)
    for _ in prange(workers):
        first = _take(counter)
        while first < nodes:
            for row in range(first, min(first + LOT, nodes)):
                if has_states:
                    _turn(shape, kept, row, row, hop)
                else:
                    _quotient_backward(
                        heads, width, grad, kept, eps, scale, row, grad_readout, products
                    )
                _for_size(_put_outer, size, heads, width, query, grad_readout, row, False, new)
            first = _take(counter)


@_parallel
def walk_back(workers, shape, rowptr, col, weight, kept, has_states, old, new, totals, hop):
    """new = A^T old + q (x) dR; dR comes from what is kept of the hop, states or read-outs."""
    heads, width, size = shape
    query, grad, eps, scale, _, grad_readout, products, _ = hop
    nodes, total, counter = len(rowptr) - 1, heads * width * size, np.zeros(1, np.int64)
    for worker in prange(workers):
        first = _take(counter)
        while first < nodes:
            for row in range(first, min(first + LOT, nodes)):
                if has_states:
                    _turn(shape, kept, row, row, hop)
                else:
                    _quotient_backward(
                        heads, width, grad, kept, eps, scale, row, grad_readout, products
                    )
                _gather(rowptr, col, weight, old, row, total, new, row * total, totals, worker)
                _for_size(_put_outer, size, heads, width, query, grad_readout, row, True, new)
            first = _take(counter)


@_parallel
def walk_home(
    workers, shape, rowptr, col, weight, old, new, totals,
    key, value, grad, scale, products, grad_key, grad_value,
):  # fmt: skip
    """new = A^T old; grad_key = new [v | 1], grad_value = (k new)[:c] + scale grad of hop 0."""
    heads, width, size = shape
    nodes, total, counter = len(rowptr) - 1, heads * width * size, np.zeros(1, np.int64)
    for worker in prange(workers):
        first = _take(counter)
        while first < nodes:
            for row in range(first, min(first + LOT, nodes)):
                slot = np.int64(worker)
                _gather(rowptr, col, weight, old, row, total, new, slot * total, totals, worker)
                _for_size(
                    _home, size, heads, width, new, key, value, grad, scale, row, slot, products,
                    grad_key, grad_value,
                )  # fmt: skip
            first = _take(counter)
