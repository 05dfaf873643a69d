"""The loops of the CPU backend, compiled by Numba. Imported only when that backend runs.

A row of the state belongs to one thread from the gather to the read-out, so it is used while it is
in cache, and every sum has a fixed order: the result does not depend on the number of threads.
Shapes: states [N, H, e, d] with e = c + 1 (the sums over key channels are then contiguous), q and k
[N, H, d], read-outs [N, H, e].
"""

from __future__ import annotations

from numba import njit, prange

# FMA and vector sums are allowed, NaN and infinity stay what they are.
_FASTMATH = {"contract", "reassoc", "nsz"}
_parallel = njit(parallel=True, fastmath=_FASTMATH, cache=True, error_model="numpy", nogil=True)
_inline = njit(fastmath=_FASTMATH, cache=True, error_model="numpy", nogil=True)


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


@_parallel
def outer(left, right, state):  # type: ignore[no-untyped-def]
    """state = left (x) right: [N, H, d], [N, H, e] -> [N, H, e, d]."""
    nodes, heads, width, channels = state.shape
    for row in prange(nodes):
        for h in range(heads):
            for e in range(width):
                for d in range(channels):
                    state[row, h, e, d] = right[row, h, e] * left[row, h, d]


@_parallel
def walk_and_read(rowptr, col, weight, old, new, query, readout):  # type: ignore[no-untyped-def]
    """new = A old, readout = q new."""
    nodes, heads, width, _ = old.shape
    flat_old, flat_new = old.reshape(nodes, -1), new.reshape(nodes, -1)
    for row in prange(nodes):
        _gather(rowptr, col, weight, flat_old, row, flat_new[row])
        for h in range(heads):
            for e in range(width):
                readout[row, h, e] = _dot(query[row, h], new[row, h, e])


@_parallel
def quotient(readout, eps, scale, add, out):  # type: ignore[no-untyped-def]
    """out (+)= scale * numerator / (denominator + eps); 0 where the denominator is 0."""
    nodes, heads, channels = out.shape
    for row in prange(nodes):
        for h in range(heads):
            denominator = readout[row, h, channels] + eps
            share = scale[h] / denominator if denominator != 0 else 0 * denominator
            for e in range(channels):
                level = readout[row, h, e] * share
                out[row, h, e] = out[row, h, e] + level if add else level


@_parallel
def quotient_backward(grad, readout, eps, scale, grad_readout, products):  # type: ignore[no-untyped-def]
    """The quotient rule for scale * grad, and products = <grad, level> for the hop weights."""
    nodes, heads, channels = grad.shape
    for row in prange(nodes):
        for h in range(heads):
            denominator = readout[row, h, channels] + eps
            share = 1 / denominator if denominator != 0 else 0 * denominator
            product = 0 * denominator
            for e in range(channels):
                product += grad[row, h, e] * (readout[row, h, e] * share)
                grad_readout[row, h, e] = scale[h] * grad[row, h, e] * share
            grad_readout[row, h, channels] = -scale[h] * product * share
            products[row, h] = product


@_parallel
def walk_for_query(rowptr, col, weight, old, new, grad_readout, grad_query):  # type: ignore[no-untyped-def]
    """new = A old, grad_query += new grad_readout."""
    nodes, heads, width, _ = old.shape
    flat_old, flat_new = old.reshape(nodes, -1), new.reshape(nodes, -1)
    for row in prange(nodes):
        _gather(rowptr, col, weight, flat_old, row, flat_new[row])
        for h in range(heads):
            for e in range(width):
                _add_scaled(grad_readout[row, h, e], new[row, h, e], grad_query[row, h])


@_parallel
def walk_back(rowptr, col, weight, old, new, query, grad_readout):  # type: ignore[no-untyped-def]
    """new = A^T old + q (x) grad_readout."""
    nodes, heads, width, _ = old.shape
    flat_old, flat_new = old.reshape(nodes, -1), new.reshape(nodes, -1)
    for row in prange(nodes):
        _gather(rowptr, col, weight, flat_old, row, flat_new[row])
        for h in range(heads):
            for e in range(width):
                _add_scaled(grad_readout[row, h, e], query[row, h], new[row, h, e])


@_parallel
def walk_home(rowptr, col, weight, old, new, key, ones_value, grad_key, grad_value):  # type: ignore[no-untyped-def]
    """new = A^T old; grad_key = new [value | 1], grad_value += (k new) without its last column."""
    nodes, heads, width, _ = old.shape
    flat_old, flat_new = old.reshape(nodes, -1), new.reshape(nodes, -1)
    for row in prange(nodes):
        _gather(rowptr, col, weight, flat_old, row, flat_new[row])
        for h in range(heads):
            for e in range(width):
                _add_scaled(ones_value[row, h, e], new[row, h, e], grad_key[row, h])
            for e in range(width - 1):
                grad_value[row, h, e] += _dot(key[row, h], new[row, h, e])
