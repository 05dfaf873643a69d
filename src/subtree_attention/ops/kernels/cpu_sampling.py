"""A hop of a sample by Numba: see `_numba_sampling.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from . import workers
from .plain_sampling import mixed
from .sampling import Draw, Hop

if TYPE_CHECKING:
    from ..in_edges import InEdges

_NO_FLOATS, _NO_MASK = np.empty(0), np.empty(0, np.uint8)


def hop(graph: InEdges, nodes: Tensor, draw: Draw, place: Tensor, known: int) -> Hop:
    """See `sampling.HopFunction`."""
    from . import _numba_sampling as kernels

    walk = draw.by == "walk"
    edges = *graph.made("arrays", _arrays), graph.made("blocks", _blocks) if walk else _NO_FLOATS
    rows, room, loops = nodes.numpy(), np.empty(len(nodes), np.int64), graph.added_loops
    added = _NO_MASK if loops is None else loops.numpy().view(np.uint8)
    again = draw.replace and not walk
    about = *(np.empty(len(rows), np.int64) for _ in range(4)), np.zeros(len(rows) + 1, np.int64)
    plan = edges, rows, added, graph.has_loops, draw.fanout, again, about, room
    threads = _run(kernels.plan, len(rows), *plan)
    slots = int(np.cumsum(room, out=about[-1][1:])[-1]) if len(rows) else 0
    found = np.empty(slots, np.int64), np.empty(slots, np.int64), np.empty(slots, np.float32)
    how = np.uint64(mixed(draw.key)), draw.fanout, again, walk
    targets = np.empty(threads * draw.fanout if walk and draw.fanout > 0 else 0)
    _run(kernels.draw, len(rows), edges, rows, added, how, about, targets, found, room)
    keys, new = np.empty(slots, np.int64), np.empty(slots, np.int64)
    senders = about[-1], room, found[1], place.numpy()
    count = kernels.number(*senders, known, keys, new)
    starts = np.cumsum(room) - room
    total = int(starts[-1] + room[-1]) if len(rows) else 0
    out = np.empty(total, np.int32), np.empty(total, np.int64), np.empty(total, np.float32)
    _run(kernels.arrange, len(rows), about[-1], room, starts, keys, found, out)
    col, at, entries = map(torch.from_numpy, out)
    return Hop(torch.from_numpy(room), col, at, entries, torch.from_numpy(new[:count].copy()))


def _run(kernel: Any, rows: int, *arguments: Any) -> int:
    """Run a kernel over so many rows, on as many threads as they are worth, and say how many."""
    from ._numba_rows import LOT

    threads = min(torch.get_num_threads(), -(-rows // LOT)) or 1
    workers.run(kernel, threads, np.zeros(1, np.int64), *arguments)
    return threads


def _arrays(graph: InEdges) -> tuple[np.ndarray, ...]:
    """The first of `edges` of the kernels."""
    given = graph.edge_weight, graph.row_scale, graph.col_scale
    factors = (_NO_FLOATS if part is None else part.detach().numpy() for part in given)
    return graph.rowptr.numpy(), graph.col.numpy(), *factors


def _blocks(graph: InEdges) -> np.ndarray:
    """The sums of blocks of entries, made once for a graph."""
    from . import _numba_sampling as kernels

    sums = np.zeros(graph.num_edges // kernels.BLOCK)
    _run(kernels.add_blocks, len(sums), (*graph.made("arrays", _arrays), _NO_FLOATS), sums)
    return sums
