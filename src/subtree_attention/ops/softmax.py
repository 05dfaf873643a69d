r"""Softmax similarity :math:`\exp(q \cdot k / \sqrt d)`, exactly, on the pattern of powers of A.

The softmax kernel has no finite feature map, so nothing can walk; instead the powers of A are
formed, sparse, and the similarity is evaluated where they are not zero. That fits small or
shallow graphs only: beyond `MAX_ENTRIES` it refuses with the size it would need. Positive random
features (`feature_maps.SoftmaxFeatures`) approximate it at the cost of a walk.

Shares are of exponentials over the root's largest, which do not overflow. With beta the level is
the numerator over denominator^beta of the plain exponentials, so the largest comes back as
exp(largest (1 - beta)): where scores are large, a sum overflows though the mean does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .._tracing import exporting, uncompiled
from ..compressed import CSR, csr_rows
from ..graph import Graph
from . import recurrence, roots

if TYPE_CHECKING:
    import scipy.sparse as sp

MAX_ENTRIES = 50_000_000
"""Most non-zeros that the powers of A may have in all (16 bytes each)."""

BLOCK_ENTRIES = 2**18
"""Entries whose similarities are evaluated at a time: bounds the gathered queries and keys."""


def softmax_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    graph: Graph,
    hops: int,
    eps: float,
    beta: Tensor | None = None,
) -> Tensor:
    """STA_0 .. STA_K with softmax similarity; shapes as in `walk.forward`."""
    if exporting():
        raise ValueError(
            "the exact softmax similarity cannot be exported: it forms powers of the transition "
            "matrix outside torch. The feature map SoftmaxFeatures approximates it"
        )
    attend = _attention_uncompiled if torch.compiler.is_compiling() else _attention
    return attend(query, key, value, hop_weights, graph, hops, eps, beta)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor | None,
    graph: Graph,
    hops: int,
    eps: float,
    beta: Tensor | None,
) -> Tensor:
    levels = _levels(query, key, value, graph, hops, eps, beta)
    if hop_weights is None:
        return torch.stack(list(levels))
    out = next(levels) * hop_weights[0, :, None]
    for hop, level in enumerate(levels, start=1):
        out = out + level * hop_weights[hop, :, None]
    return out


_attention_uncompiled = uncompiled(
    _attention, "the exact softmax similarity forms powers of the transition matrix outside torch"
)


def _levels(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    graph: Graph,
    hops: int,
    eps: float,
    beta: Tensor | None,
) -> Iterator[Tensor]:
    """STA_0 .. STA_K, [N, H, c] each, one after the other."""
    yield value
    for hop, walked in enumerate([power(graph, hop, hops) for hop in range(1, hops + 1)]):
        arrays = (walked.indptr, walked.indices, walked.data)
        rowptr, col, weight = (torch.from_numpy(array).to(graph.device) for array in arrays)
        how = eps, None if beta is None else beta[hop]
        yield _level(query, key, value, CSR(rowptr, col, weight.to(value)), *how)


def power(graph: Graph, hop: int, hops: int) -> sp.csr_array:
    """A^hop in float64 on the CPU, built once per graph; `hops` are those that are asked for."""
    return graph.cached(("power", hop), partial(_power, hop=hop, hops=hops))


def _power(graph: Graph, hop: int, hops: int) -> sp.csr_array:
    if hop == 1:
        first = graph.to_scipy()
        _refuse_beyond_budget(first.nnz, 1, hops)
        return first
    lower = [power(graph, below, hops) for below in range(1, hop)]
    return _next_power(lower[0], lower[-1], sum(p.nnz for p in lower), hop, hops)


def _next_power(
    first: sp.csr_array, last: sp.csr_array, used: int, hop: int, hops: int
) -> sp.csr_array:
    """first @ last by blocks of rows, so that a refusal comes before the memory is full."""
    reach = first.astype(bool).astype(np.int64) @ np.diff(last.indptr)  # most entries of each row
    import scipy.sparse as sp

    blocks, entries, start = [], used, 0
    for stop in _blocks(np.minimum(reach, last.shape[1]), BLOCK_ENTRIES * 16):
        blocks.append(first[start:stop] @ last)
        entries += blocks[-1].nnz
        start = stop
        if entries > MAX_ENTRIES:
            needed = used + (entries - used) * last.shape[0] // stop
            _refuse_beyond_budget(needed, hop, hops)
    product = sp.csr_array(sp.vstack(blocks, format="csr")) if blocks else last.copy()
    product.sort_indices()
    return product


def _refuse_beyond_budget(entries: int, hop: int, hops: int) -> None:
    if entries > MAX_ENTRIES:
        raise ValueError(
            f"exact softmax similarity needs the non-zeros of A^1..A^{hops}: already up to "
            f"A^{hop} that is about {entries:,} entries ({entries * 16 / 1e9:.1f} GB), more than "
            f"the budget of {MAX_ENTRIES:,}. Use fewer hops, or approximate it with the feature "
            "map SoftmaxFeatures"
        )


def _blocks(sizes: np.ndarray, limit: int) -> list[int]:
    """Ends of consecutive row blocks, each of at most `limit` entries (or of one row)."""
    ends, total = [], 0
    for row, size in enumerate(sizes.tolist()):
        if total and total + size > limit:
            ends.append(row)
            total = 0
        total += size
    return [*ends, len(sizes)] if len(sizes) else []


def _level(
    query: Tensor, key: Tensor, value: Tensor, power: CSR, eps: float, beta: Tensor | None
) -> Tensor:
    """One level of the subtree for all roots, a block of rows at a time: -> [N, H, c]."""
    counts = np.diff(power.rowptr.cpu().numpy())
    rows, out, start = csr_rows(power.rowptr, power.col.numel()), [], 0
    for stop in _blocks(counts, BLOCK_ENTRIES):
        entries = slice(int(power.rowptr[start]), int(power.rowptr[stop]))
        block = (rows[entries].long() - start, power.col[entries].long(), power.weight[entries])
        # Recomputed in the backward pass: what is gathered for one block is never kept.
        args = (query[start:stop], key, value, *block, eps, beta)
        out.append(checkpoint(_attend, *args, use_reentrant=False))
        start = stop
    return torch.cat(out) if out else torch.zeros_like(value)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    row: Tensor,
    col: Tensor,
    mask: Tensor,
    eps: float,
    beta: Tensor | None,
) -> Tensor:
    """Attention of B roots over E masked-in pairs: [B, H, d], [N, H, c] -> [B, H, c]."""
    scores = roots.pair_scores(query, key, row, col, softmax=True)
    weights, total = roots.weigh(mask, scores, eps, True, row, len(query), beta)
    sums = value.new_zeros(*query.shape[:2], value.size(-1))
    sums = sums.index_add(0, row, weights[..., None] * value[col])
    return recurrence.divide(sums, total[..., None])
