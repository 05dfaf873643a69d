"""A graph that is not quite right: edges added or removed, features noisy."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from subtree_attention import _check
from subtree_attention.datasets import Dataset
from subtree_attention.datasets.features import csr_tensor, is_csr

KINDS = ("edges added", "edges removed", "noisy features")


def corrupt(data: Dataset, kind: str, share: float, seed: int) -> Dataset:
    """The graph with `share` of its edges or features changed; the same for the same seed.

    Edges are changed in pairs, so that an undirected graph stays one.
    """
    _check.known("kind of corruption", kind, KINDS)
    if not 0 <= share < 1:
        raise ValueError(f"the share must be at least 0 and below 1, got {share}")
    generator = torch.Generator().manual_seed(seed)
    if kind == "noisy features":  # the encoding is one of them
        return replace(data, x=_noisy(data.features, share, generator), encoding=None)
    pairs = data.edge_index[:, data.edge_index[0] <= data.edge_index[1]]
    count = round(share * pairs.size(1))
    if kind == "edges added":
        new = torch.randint(data.num_nodes, (2, count), generator=generator)
        new = new[:, new[0] != new[1]]
        return replace(data, edge_index=torch.cat([data.edge_index, new, new.flip(0)], dim=1))
    kept = pairs[:, torch.randperm(pairs.size(1), generator=generator)[count:]]
    loops = kept[0] == kept[1]
    return replace(data, edge_index=torch.cat([kept, kept[:, ~loops].flip(0)], dim=1))


def _noisy(x: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Some entries of each column in other rows: a word moves to a document that it is not in.

    Of sparse x that share of the non-zeros moves; of dense x, that share of the rows of each column
    is shuffled among themselves. Columns keep their sums.
    """
    if is_csr(x):
        values, columns = x.values(), x.col_indices()
        rows = torch.repeat_interleave(x.crow_indices().diff())
        moves = torch.rand(values.numel(), generator=generator) < share
        rows = torch.where(moves, torch.randint(x.size(0), rows.shape, generator=generator), rows)
        order = torch.argsort(rows * x.size(1) + columns, stable=True)
        starts = torch.nn.functional.pad(
            torch.bincount(rows, minlength=x.size(0)).cumsum(0), (1, 0)
        )
        return csr_tensor(starts, columns[order], values[order], (x.size(0), x.size(1)))
    noisy = x.clone()
    for column in range(x.size(1)):
        rows = (torch.rand(x.size(0), generator=generator) < share).nonzero().flatten()
        noisy[rows, column] = x[rows[torch.randperm(rows.numel(), generator=generator)], column]
    return noisy
