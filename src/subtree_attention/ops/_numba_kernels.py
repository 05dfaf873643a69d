"""The loops of the CPU backend, compiled by Numba. Imported only when that backend runs.

A row of the state belongs to one thread from the gather to the read-out, so it is used while it is
in cache, and every sum has a fixed order: the result does not depend on the number of threads.
Each kernel is one parallel pass over the rows, one step of the walk with all that is done to a
node's state on the way. Shapes: states [N, H, e, d] with e = c + 1 (the sums over key channels are
then contiguous), q and k [N, H, d], values and their gradients [N, H, c], read-outs [N, H, e],
products [N, H], hop weights of one hop [H].
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

# FMA and vector sums are allowed, NaN and infinity stay what they are.
_FASTMATH = {"contract", "reassoc", "nsz"}
_parallel = njit(parallel=True, fastmath=_FASTMATH, cache=True, error_model="numpy", nogil=True)
_inline = njit(fastmath=_FASTMATH, cache=True, error_model="numpy", nogil=True)

LOT = 64
"""Rows that a thread takes at a time."""

_AHEAD = 8
"""Neighbours between the one that is added and the one that is fetched from memory."""

_LINE_BYTES = 64
"""A cache line: what one prefetch brings."""


@intrinsic  # type: ignore[misc]
def _prefetch(context, array, row, column):  # type: ignore[no-untyped-def]
    """Ask for the cache line of array[row, column], and go on."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        kind = signature.args[0]
        struct = context.make_array(kind)(context, builder, arguments[0])
        index = [
            context.cast(builder, argument, given, types.intp)
            for argument, given in zip(arguments[1:], signature.args[1:], strict=True)
        ]
        item = cgutils.get_item_pointer(context, builder, kind, struct, index)
        address, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        fetch = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [address, flag, flag, flag]),
            "llvm.prefetch.p0",
        )
        # to read, into all but the nearest cache, data
        builder.call(fetch, [builder.bitcast(item, address), flag(0), flag(2), flag(1)])
        return context.get_dummy_value()

    return types.void(array, row, column), generate


@intrinsic  # type: ignore[misc]
def _take(context, counter):  # type: ignore[no-untyped-def]
    """The counter [1] before LOT is added to it: threads that ask get different lots."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        struct = context.make_array(signature.args[0])(context, builder, arguments[0])
        lot = context.get_constant(types.int64, LOT)
        return builder.atomic_rmw("add", struct.data, lot, "monotonic")

    return types.int64(counter), generate


@_inline
def _fetch_ahead(col, state, edge):  # type: ignore[no-untyped-def]
    """Fetch the rows of `state` [N, W] that the four edges from `edge` on will read."""
    line = _LINE_BYTES // state.itemsize
    for later in range(edge, min(edge + 4, col.size)):
        for x in range(0, state.shape[1], line):
            _prefetch(state, col[later], x)


@_inline
def _gather(rowptr, col, weight, state, row, out):  # type: ignore[no-untyped-def]
    """out = sum of the row's neighbours in `state` [N, W], four at a time to spare stores."""
    start, stop, width = rowptr[row], rowptr[row + 1], out.size
    lead = (stop - start) % 4
    if lead == 0:
        for x in range(width):
            out[x] = 0
    elif lead == 1:
        a, wa = state[col[start]], weight[start]
        for x in range(width):
            out[x] = wa * a[x]
    elif lead == 2:
        a, wa = state[col[start]], weight[start]
        b, wb = state[col[start + 1]], weight[start + 1]
        for x in range(width):
            out[x] = wa * a[x] + wb * b[x]
    else:
        a, wa = state[col[start]], weight[start]
        b, wb = state[col[start + 1]], weight[start + 1]
        c, wc = state[col[start + 2]], weight[start + 2]
        for x in range(width):
            out[x] = wa * a[x] + wb * b[x] + wc * c[x]
    for edge in range(start + lead, stop, 4):
        _fetch_ahead(col, state, edge + _AHEAD)
        a, wa = state[col[edge]], weight[edge]
        b, wb = state[col[edge + 1]], weight[edge + 1]
        c, wc = state[col[edge + 2]], weight[edge + 2]
        d, wd = state[col[edge + 3]], weight[edge + 3]
        for x in range(width):
            out[x] += wa * a[x] + wb * b[x] + wc * c[x] + wd * d[x]


@_inline
def _dot(a, b):  # type: ignore[no-untyped-def]
    """sum a b over [d]."""
    total = 0 * a[0]
    for d in range(a.size):
        total += a[d] * b[d]
    return total


@_inline
def _add_scaled(scale, a, out):  # type: ignore[no-untyped-def]
    """out += scale a over [d]."""
    for d in range(out.size):
        out[d] += scale * a[d]


@_inline
def _read(query, state, readout):  # type: ignore[no-untyped-def]
    """readout = q S of one node: [H, d], [H, e, d] -> [H, e]."""
    for h in range(state.shape[0]):
        for e in range(state.shape[1]):
            readout[h, e] = _dot(query[h], state[h, e])


@_inline
def _share(scale, denominator):  # type: ignore[no-untyped-def]
    """scale / denominator, and 0 where no walk arrives."""
    return scale / denominator if denominator != 0 else 0 * denominator


@_inline
def _put_level(readout, eps, scale, add, out):  # type: ignore[no-untyped-def]
    """out (+)= scale * numerator / (denominator + eps) of one node: [H, e] -> [H, c]."""
    heads, channels = out.shape
    for h in range(heads):
        share = _share(scale[h], readout[h, channels] + eps)
        for e in range(channels):
            level = readout[h, e] * share
            out[h, e] = out[h, e] + level if add else level


@_inline
def _quotient_backward(grad, readout, eps, scale, grad_readout, products):  # type: ignore[no-untyped-def]
    """dR of one node by the quotient rule for scale * grad, and products = <grad, level>."""
    heads, channels = grad.shape
    for h in range(heads):
        share = _share(1, readout[h, channels] + eps)
        product = 0 * share
        for e in range(channels):
            product += grad[h, e] * (readout[h, e] * share)
            grad_readout[h, e] = scale[h] * grad[h, e] * share
        grad_readout[h, channels] = -scale[h] * product * share
        products[h] = product


@_inline
def _add_outer(query, grad_readout, state):  # type: ignore[no-untyped-def]
    """state += q (x) dR of one node: [H, d], [H, e] -> [H, e, d]."""
    for h in range(state.shape[0]):
        for e in range(state.shape[1]):
            _add_scaled(grad_readout[h, e], query[h], state[h, e])


def _turn(kept, query, grad, eps, scale, readout, grad_readout, products, grad_query):  # type: ignore[no-untyped-def]
    """dR of one node from what is kept of a hop: its read-out [H, e] or its state [H, e, d].

    From the state comes the hop's part of the gradient of the query as well; `readout` is room.
    """
    raise NotImplementedError("called from compiled code only")


@overload(_turn, jit_options={"fastmath": _FASTMATH, "error_model": "numpy"})
def _(kept, query, grad, eps, scale, readout, grad_readout, products, grad_query):  # type: ignore[no-untyped-def]
    def from_readout(  # type: ignore[no-untyped-def]
        kept, query, grad, eps, scale, readout, grad_readout, products, grad_query
    ):
        _quotient_backward(grad, kept, eps, scale, grad_readout, products)

    def from_state(  # type: ignore[no-untyped-def]
        kept, query, grad, eps, scale, readout, grad_readout, products, grad_query
    ):
        _read(query, kept, readout)
        _quotient_backward(grad, readout, eps, scale, grad_readout, products)
        for h in range(kept.shape[0]):
            for e in range(kept.shape[1]):
                _add_scaled(grad_readout[h, e], kept[h, e], grad_query[h])

    return from_readout if kept.ndim == 2 else from_state


@_parallel
def scale(value, scales, out):  # type: ignore[no-untyped-def]
    """out = scales v, hop 0 of the output."""
    nodes, heads, channels = value.shape
    for row in prange(nodes):
        for h in range(heads):
            for e in range(channels):
                out[row, h, e] = scales[h] * value[row, h, e]


@_parallel
def first_state(key, value, state):  # type: ignore[no-untyped-def]
    """state = k (x) [v | 1]."""
    nodes, heads, width, channels = state.shape
    for row in prange(nodes):
        for h in range(heads):
            for e in range(width - 1):
                for d in range(channels):
                    state[row, h, e, d] = value[row, h, e] * key[row, h, d]
            for d in range(channels):
                state[row, h, width - 1, d] = key[row, h, d]


@_parallel
def walk_and_read(workers, rowptr, col, weight, old, new, query, eps, scale, add, readout, out):  # type: ignore[no-untyped-def]
    """new = A old, readout = q new, out (+)= the hop's level times scale."""
    nodes = old.shape[0]
    flat_old, flat_new = old.reshape(nodes, -1), new.reshape(len(new), -1)
    counter = np.zeros(1, np.int64)
    for worker in prange(workers):
        first = _take(counter)
        while first < nodes:
            for row in range(first, min(first + LOT, nodes)):
                slot = row if len(new) == nodes else np.int64(worker)
                _gather(rowptr, col, weight, flat_old, row, flat_new[slot])
                _read(query[row], new[slot], readout[row])
                _put_level(readout[row], eps, scale, add, out[row])
            first = _take(counter)


@_parallel
def walk_for_query(
    workers, rowptr, col, weight, old, new, query, grad, eps, scale,
    readout, grad_readout, products, grad_query,
):  # type: ignore[no-untyped-def]  # fmt: skip
    """new = A old, grad_query += new dR."""
    nodes = old.shape[0]
    flat_old, flat_new = old.reshape(nodes, -1), new.reshape(len(new), -1)
    counter = np.zeros(1, np.int64)
    for worker in prange(workers):
        first = _take(counter)
        while first < nodes:
            for row in range(first, min(first + LOT, nodes)):
                slot = row if len(new) == nodes else np.int64(worker)
                _gather(rowptr, col, weight, flat_old, row, flat_new[slot])
                _turn(new[slot], query[row], grad[row], eps, scale, readout[row],
                      grad_readout[row], products[row], grad_query[row])  # fmt: skip
            first = _take(counter)


@_parallel
def last_gradient(
    workers, kept, new, query, grad, eps, scale, readout, grad_readout, products, grad_query
):  # type: ignore[no-untyped-def]
    """new = q (x) dR, the gradient of the last state."""
    nodes = new.shape[0]
    counter = np.zeros(1, np.int64)
    for _ in prange(workers):
        first = _take(counter)
        while first < nodes:
            for row in range(first, min(first + LOT, nodes)):
                _turn(kept[row], query[row], grad[row], eps, scale, readout[row],
                      grad_readout[row], products[row], grad_query[row])  # fmt: skip
                new[row] = 0
                _add_outer(query[row], grad_readout[row], new[row])
            first = _take(counter)


@_parallel
def walk_back(
    workers, rowptr, col, weight, kept, old, new, query, grad, eps, scale,
    readout, grad_readout, products, grad_query,
):  # type: ignore[no-untyped-def]  # fmt: skip
    """new = A^T old + q (x) dR."""
    nodes = old.shape[0]
    flat_old, flat_new = old.reshape(nodes, -1), new.reshape(nodes, -1)
    counter = np.zeros(1, np.int64)
    for _ in prange(workers):
        first = _take(counter)
        while first < nodes:
            for row in range(first, min(first + LOT, nodes)):
                _turn(kept[row], query[row], grad[row], eps, scale, readout[row],
                      grad_readout[row], products[row], grad_query[row])  # fmt: skip
                _gather(rowptr, col, weight, flat_old, row, flat_new[row])
                _add_outer(query[row], grad_readout[row], new[row])
            first = _take(counter)


@_parallel
def walk_home(
    workers, rowptr, col, weight, old, new, key, value, grad, scale, products, grad_key, grad_value
):  # type: ignore[no-untyped-def]
    """new = A^T old; grad_key = new [v | 1], grad_value = (k new)[:c] + scale grad of hop 0."""
    nodes, heads, channels = value.shape
    flat_old, flat_new = old.reshape(nodes, -1), new.reshape(len(new), -1)
    counter = np.zeros(1, np.int64)
    for worker in prange(workers):
        first = _take(counter)
        while first < nodes:
            for row in range(first, min(first + LOT, nodes)):
                _gather(rowptr, col, weight, flat_old, row, flat_new[worker])
                for h in range(heads):
                    product = 0 * scale[h]
                    grad_key[row, h] = new[worker, h, channels]
                    for e in range(channels):
                        level = _dot(key[row, h], new[worker, h, e])
                        grad_value[row, h, e] = level + scale[h] * grad[row, h, e]
                        product += grad[row, h, e] * value[row, h, e]
                        _add_scaled(value[row, h, e], new[worker, h, e], grad_key[row, h])
                    products[row, h] = product
            first = _take(counter)
