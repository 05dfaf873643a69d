# mypy: ignore-errors
# (the types in here are Numba's)
"""Loops that draw in-edges, compiled by Numba. Imported only when a sample is drawn.

A hop is four passes: `plan` looks how long rows are, `draw` draws their edges, `number` gives
senders that are new their numbers, one after the other, and `arrange` sorts rows by these. As in
`_numba_kernels.py` threads take rows in lots; what a row draws depends on its node alone.

`edges` is a tuple: row pointers [N + 1], senders [E], weights [E], scales by receiver [N] and by
sender [N], sums of blocks; what there is not has length 0. `rows` is what `plan` finds of m rows:
where each starts, how many edges it has that are no loops, where its loops begin, how many they
are, and where its slots begin [m + 1]. `found` is what is in the slots: the place of an edge in
`col`, or for a loop that was added -1, and in the end E; its sender; and its estimated entry.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ._numba_rows import LOT, take
from ._numba_vectors import get, prefetch, store

MADE_OF = "f76ceda2eb0f"
"""Of the files that this one imports for its loops: Numba keeps what it compiled until this file
changes, and theirs is compiled into it. A test says what has to stand here."""

# No fastmath: entries are to have the bits that torch gives them. And nobody counts who holds the
# arrays: nothing is made in here, and counting took ten times as long as all else.
_HOW = {"error_model": "numpy", "nogil": True, "no_cfunc_wrapper": True, "_nrt": False}
_kernel = njit(cache=True, **_HOW)
_inline = njit(forceinline=True, no_cpython_wrapper=True, **_HOW)
_function = njit(no_cpython_wrapper=True, **_HOW)

BLOCK = 64
"""Edges whose entries are added up beforehand, for draws by the walk."""

LONG = 4 * BLOCK
"""From so many edges on a row is gone through by blocks."""

_FEW = 32
"""Up to so many draws each is held against those before it; also what insertion sorts well."""

_SHORT = 12
"""Up to so many edges a row is ranked, not sorted."""

_AHEAD = 24
"""Senders between the one that is numbered and the one that is fetched from memory."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_UNIT = 2.0**-53


# ------------------------------------------------------------------------------ random numbers


@_inline
def _mixed(bits):
    """splitmix64: see `plain_sampling.mixed`."""
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    return bits ^ (bits >> np.uint64(31))


@_inline
def _stream(key, node):
    """Where the draws of a node begin."""
    return _mixed(np.uint64(node) * _GOLDEN + key)


@_inline
def _uniform(stream, number):
    """The draw of that number, from [0, 1)."""
    bits = _mixed(stream + np.uint64(number + 1) * _GOLDEN)
    return np.float64(np.int64(bits >> np.uint64(11))) * _UNIT


# --------------------------------------------------------------------------------------- edges


@_inline
def _entry(edges, node, at):
    """The transition's entry of an edge of a row, float64."""
    value = np.float64(get(edges[2], at)) if len(edges[2]) else 1.0
    return _scaled(edges, node, np.int64(get(edges[1], at)), value)


@_inline
def _scaled(edges, node, sender, value):
    """A weight times what the transition multiplies it by."""
    if len(edges[3]):
        value *= get(edges[3], node)
    if len(edges[4]):
        value *= get(edges[4], sender)
    return value


@_inline
def _bisected(col, low, high, node):
    """The first place from low to high at which `col` is not below the node."""
    while low < high:
        middle = (low + high) // 2
        if np.int64(get(col, middle)) < node:
            low = middle + 1
        else:
            high = middle
    return low


@_kernel
def plan(worker, counter, edges, nodes, added, has_loops, fanout, again, rows, room):
    """What there is of each row, and how many slots it takes: room [m]."""
    rowptr, col = edges[0], edges[1]
    start, degree, loop_at, loops, _ = rows
    first = take(counter)
    while first < len(nodes):
        last = min(first + LOT, len(nodes))
        for row in range(first, last):
            prefetch(rowptr, get(nodes, row))
        for row in range(first, last):
            node = get(nodes, row)
            low, high = np.int64(get(rowptr, node)), np.int64(get(rowptr, node + 1))
            begin = end = high
            if has_loops:
                begin = _bisected(col, low, high, node)
                end = begin
                while end < high and get(col, end) == node:
                    end += 1
            others = high - low - (end - begin)
            store(start, row, low)
            store(degree, row, others)
            store(loop_at, row, begin)
            store(loops, row, end - begin)
            taken = others
            if fanout >= 0 and (others > fanout or (again and others > 0)):
                taken = fanout
            own = np.int64(get(added, node)) if len(added) else 0
            store(room, row, taken + end - begin + own)
        first = take(counter)


@_kernel
def draw(worker, counter, edges, nodes, added, how, rows, targets, found, length):
    """The slots of each row: loops, and of the other edges those that are drawn.

    A lot is gone through three times, and what the next time reads is asked for meanwhile: every
    edge lies somewhere else in memory, and so does its sender.
    """
    slots = rows[4]
    first = take(counter)
    while first < len(nodes):
        last = min(first + LOT, len(nodes))
        for row in range(first, last):
            count = _pick(worker, edges, nodes, added, how, rows, targets, found, row)
            store(length, row, count)
            for slot in range(get(slots, row), get(slots, row) + count):
                prefetch(edges[1], max(get(found[0], slot), 0))
        for row in range(first, last):
            for slot in range(get(slots, row), get(slots, row) + get(length, row)):
                at = get(found[0], slot)
                sender = np.int64(get(edges[1], at)) if at >= 0 else get(nodes, row)
                store(found[1], slot, sender)
                prefetch(edges[4], sender)
        for row in range(first, last):
            _weigh(edges, get(nodes, row), added, how, rows, found, length, row)
        first = take(counter)


@_inline
def _pick(worker, edges, nodes, added, how, rows, targets, found, row):
    """Places of a row's edges, into its slots, and how many; of walked ones the entries too."""
    key, fanout, again, walk = how
    node, slot, low = get(nodes, row), get(rows[4], row), get(rows[0], row)
    others, begin, skipped = get(rows[1], row), get(rows[2], row), get(rows[3], row)
    start = slot
    for at in range(begin, begin + skipped):
        store(found[0], slot, at)
        slot += 1
    if len(added) and get(added, node) != 0:
        store(found[0], slot, -1)
        slot += 1
    if _whole(others, fanout, again):
        for at in range(low, low + others + skipped):
            if at < begin or at >= begin + skipped:
                store(found[0], slot, at)
                slot += 1
    elif walk:
        span = low, low + others + skipped, begin, skipped
        slot = _walk(edges, node, span, key, fanout, worker, targets, found, slot)
    else:
        _choose(_stream(key, node), others, fanout, again, found[0], slot)
        for each in range(slot, slot + fanout):
            at = low + get(found[0], each)
            store(found[0], each, at + skipped if at >= begin else at)
        slot += fanout
    return slot - start


@_inline
def _whole(others, fanout, again):
    """Whether a row gives all that it has."""
    return fanout < 0 or others == 0 or (others <= fanout and not again)


@_inline
def _weigh(edges, node, added, how, rows, found, length, row):
    """The entries of a row's edges."""
    _, fanout, again, walk = how
    slot, others = get(rows[4], row), get(rows[1], row)
    stop, kept = slot + get(length, row), slot + get(rows[3], row)
    _weigh_some(edges, node, slot, kept, 1.0, found)
    if len(added) and get(added, node) != 0:
        store(found[0], kept, len(edges[1]))
        store(found[2], kept, np.float32(_scaled(edges, node, node, 1.0)))
        kept += 1
    whole = _whole(others, fanout, again)
    if whole or not walk:
        _weigh_some(edges, node, kept, stop, 1.0 if whole else others / fanout, found)


@_inline
def _weigh_some(edges, node, slot, stop, factor, found):
    for each in range(slot, stop):
        value = np.float64(get(edges[2], get(found[0], each))) if len(edges[2]) else 1.0
        value = _scaled(edges, node, get(found[1], each), value)
        store(found[2], each, np.float32(value * factor))


# ----------------------------------------------------------------------------------- every alike


@_function
def _choose(stream, count, fanout, again, numbers, slot):
    """Numbers below `count`, into `fanout` slots: different ones, unless they may come again."""
    if again:
        for s in range(fanout):
            store(numbers, slot + s, np.int64(_uniform(stream, s) * count))
    elif count <= 64:
        _choose_bits(stream, count, fanout, numbers, slot)
    elif fanout <= _FEW or count > 16 * fanout:
        _choose_few(stream, count, fanout, numbers, slot)
    else:
        _choose_many(stream, count, fanout, numbers, slot)


@_inline
def _choose_few(stream, count, fanout, numbers, slot):
    """The s-th number is drawn from the first count - fanout + s + 1 ones, and is the last of these
    if it is there already: every set of numbers is as likely."""
    for s in range(fanout):
        last = count - fanout + s
        number = np.int64(_uniform(stream, s) * (last + 1))
        for before in range(slot, slot + s):
            if get(numbers, before) == number:
                number = last
                break
        store(numbers, slot + s, number)


@_inline
def _choose_bits(stream, count, fanout, numbers, slot):
    """The same of a short row: which numbers are there already is a bit for each."""
    taken, one = np.uint64(0), np.uint64(1)
    for s in range(fanout):
        last = count - fanout + s
        number = np.int64(_uniform(stream, s) * (last + 1))
        if (taken >> np.uint64(number)) & one:
            number = last
        taken |= one << np.uint64(number)
        store(numbers, slot + s, number)


@_inline
def _choose_many(stream, count, fanout, numbers, slot):
    """Each number in turn, with the chance that is left: so many are wanted of so many to come."""
    wanted = fanout
    for number in range(count):
        if _uniform(stream, number) * (count - number) < wanted:
            store(numbers, slot + fanout - wanted, number)
            wanted -= 1
            if wanted == 0:
                break


# ----------------------------------------------------------------------------------- by the walk


@_kernel
def add_blocks(worker, counter, edges, sums):
    """The entries' sizes of every BLOCK edges, added up, if all of them are of one long row."""
    rowptr, col = edges[0], edges[1]
    first = take(counter)
    while first < len(sums):
        for block in range(first, min(first + LOT, len(sums))):
            low = block * BLOCK
            high = low + BLOCK
            node = _bisected(rowptr, np.int64(0), np.int64(len(rowptr)), low + 1) - 1
            total = 0.0
            if rowptr[node + 1] >= high and rowptr[node + 1] - rowptr[node] >= LONG:
                for at in range(low, high):
                    if col[at] != node:
                        total += abs(_entry(edges, node, at))
            sums[block] = total
        first = take(counter)


@_inline
def _size(edges, node, at, begin, skipped):
    """An entry's size; a loop has none, for it is not drawn."""
    if begin <= at < begin + skipped:
        return 0.0
    return abs(_entry(edges, node, at))


@_function
def _total(edges, node, span):
    """The sizes of a row's entries, added up."""
    low, high, begin, skipped = span
    total, at, sums = 0.0, low, edges[5]
    long = high - low >= LONG
    while at < high:
        if long and at % BLOCK == 0 and at + BLOCK <= high:
            total += get(sums, at // BLOCK)
            at += BLOCK
        else:
            total += _size(edges, node, at, begin, skipped)
            at += 1
    return total


@_function
def _walk(edges, node, span, key, fanout, worker, targets, found, slot):
    """Edges that a walk comes along, each once with the sum of its draws; the slot after them."""
    low, high, begin, skipped = span
    total, stream, room = _total(edges, node, span), _stream(key, node), worker * fanout
    share = total / fanout
    for s in range(fanout):
        store(targets, room + s, _uniform(stream, s) * total)
    _sort(targets, room, fanout)
    reached, at, drawn, last = 0.0, low, 0, low
    while drawn < fanout and at < high:
        block = high - low >= LONG and at % BLOCK == 0 and at + BLOCK <= high
        if block and reached + get(edges[5], at // BLOCK) <= get(targets, room + drawn):
            reached += get(edges[5], at // BLOCK)
            at += BLOCK
            continue
        size, count = _size(edges, node, at, begin, skipped), 0
        reached += size
        if size > 0:
            last = at
            while drawn < fanout and get(targets, room + drawn) < reached:
                drawn += 1
                count += 1
        if count:
            _put_drawn(edges, node, at, share * count, found, slot)
            slot += 1
        at += 1
    if drawn < fanout and total > 0:  # what rounding left over
        _put_drawn(edges, node, last, share * (fanout - drawn), found, slot)
        slot += 1
    return slot


@_inline
def _put_drawn(edges, node, at, size, found, slot):
    """An estimate of that size, with the sign of the entry."""
    store(found[0], slot, at)
    store(found[2], slot, np.float32(size if _entry(edges, node, at) > 0 else -size))


# ------------------------------------------------------------------------------------ the matrix


@_kernel
def number(slots, length, senders, place, known, keys, new):
    """Number senders in `place` [N], those that are new from `known` on: how many, in `new`.

    A key is a sender's number and, for what is drawn of it, the slot within the row.
    """
    count = 0
    for row in range(len(length)):
        low = np.int64(get(slots, row))
        for slot in range(low, low + get(length, row)):
            prefetch(place, get(senders, min(slot + _AHEAD, len(senders) - 1)))
            sender = get(senders, slot)
            local = np.int64(get(place, sender))
            if local < 0:
                local = known + count
                store(place, sender, local)
                store(new, count, sender)
                count += 1
            store(keys, slot, (local << 32) | (slot - low))
    return count


@_kernel
def arrange(worker, counter, slots, length, starts, keys, found, out):
    """Rows one after the other, sorted by their keys: senders, places of edges, entries."""
    first = take(counter)
    while first < len(length):
        for row in range(first, min(first + LOT, len(length))):
            low, to, count = np.int64(get(slots, row)), get(starts, row), get(length, row)
            if count > _SHORT:
                _sort(keys, low, count)
            for s in range(count):
                key = get(keys, low + s)
                slot = low + (key & 0xFFFFFFFF)
                rank = s if count > _SHORT else _rank(keys, low, count, key)
                store(out[0], to + rank, np.int32(key >> 32))
                store(out[1], to + rank, get(found[0], slot))
                store(out[2], to + rank, get(found[2], slot))
        first = take(counter)


@_inline
def _rank(keys, low, count, key):
    """How many of a row's keys are below one. Of a short row that is found sooner for each than a
    sort is done, whose comparisons nobody can foresee."""
    rank = 0
    for each in range(low, low + count):
        rank += 1 if get(keys, each) < key else 0
    return rank


@_function
def _sort(values, low, count):
    """values[low:low + count], ascending, in place."""
    if count > _FEW:
        _heap_sort(values, low, count)
        return
    for i in range(low + 1, low + count):
        value, j = get(values, i), i
        while j > low and get(values, j - 1) > value:
            store(values, j, get(values, j - 1))
            j -= 1
        store(values, j, value)


@_function
def _heap_sort(values, low, count):
    for root in range(count // 2 - 1, -1, -1):
        _sift(values, low, root, count)
    for end in range(count - 1, 0, -1):
        largest = get(values, low)
        store(values, low, get(values, low + end))
        store(values, low + end, largest)
        _sift(values, low, 0, end)


@_inline
def _sift(values, low, root, count):
    """Let what is at the root sink until it is no smaller than what is below it."""
    value = get(values, low + root)
    child = 2 * root + 1
    while child < count:
        if child + 1 < count and get(values, low + child + 1) > get(values, low + child):
            child += 1
        if get(values, low + child) <= value:
            break
        store(values, low + root, get(values, low + child))
        root = child
        child = 2 * root + 1
    store(values, low + root, value)
