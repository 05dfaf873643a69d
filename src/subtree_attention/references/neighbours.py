"""The graph as references see it: means over neighbours, degrees, and shares of shown labels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse

from .aims import Shown

if TYPE_CHECKING:
    from ..datasets import Dataset

SHARE_FOLDS = 10
"""Into which training nodes are put for their shares over two hops."""


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Who is next to whom, whichever way edges lead, without self-loops.

    Attributes:
        links: [N, N], CSR; edge weights have a mean of 1.
        directed: [N, 2], what enters and what leaves a node, where edges have a direction.
    """

    links: scipy.sparse.csr_matrix
    directed: np.ndarray | None

    @classmethod
    def of(cls, dataset: Dataset) -> Neighbours:
        source, target = dataset.edge_index.cpu().numpy()
        weight: np.ndarray = np.ones(len(source), dtype=np.float32)
        if dataset.edge_weight is not None and len(weight):
            given = dataset.edge_weight.cpu().numpy()
            weight = given / (given.mean() or 1)
        other, n = source != target, dataset.num_nodes
        parts = (weight[other], (source[other], target[other]))
        one_way = scipy.sparse.csr_matrix(parts, shape=(n, n), dtype=np.float32)
        back = one_way.T.tocsr()
        directed = None
        if (one_way != back).nnz:
            ways = [np.asarray(some.sum(1)).ravel() for some in (back, one_way)]
            directed = np.stack(ways, 1)
        return cls(one_way.maximum(back).tocsr(), directed)

    @cached_property
    def degrees(self) -> np.ndarray:
        """Sums of the weights of edges, [N]."""
        return np.asarray(self.links.sum(1)).ravel()

    @cached_property
    def mean(self) -> scipy.sparse.csr_matrix:
        """[N, N]: its product with columns [N, F] is their mean over neighbours, 0 of no one."""
        share = 1 / np.where(self.degrees > 0, self.degrees, 1)
        return (scipy.sparse.diags(share.astype(np.float32)) @ self.links).tocsr()

    @cached_property
    def way_back(self) -> np.ndarray:
        """How much of the second step of `two_hops` ends where the first one began, [N]."""
        return np.asarray(self.links.multiply(self.mean.T).sum(1)).ravel()

    def two_hops(self, columns: np.ndarray) -> np.ndarray:
        """Sum over neighbours of the means over theirs: [N, C] -> [N, C]."""
        return self.links @ (self.mean @ columns)

    def degree_columns(self) -> np.ndarray:
        """Logarithms of degrees, own and of neighbours; and of either direction: [N, 2 or 4]."""
        own = np.log1p(self.degrees)[:, None]
        columns = [own, self.mean @ own]
        if self.directed is not None:
            columns.append(np.log1p(self.directed))
        return np.concatenate(columns, 1).astype(np.float32)


def label_shares(
    graph: Neighbours,
    shown: Shown,
    folds: np.ndarray | None = None,
    prior: np.ndarray | None = None,
) -> np.ndarray:
    """Means of what is shown over one and two hops: [N, 2 C].

    A node's own label is in neither of its rows. One hop does not reach it. The second hop leads
    back to it, so that way is taken out.

    Where a model is fitted to the rows of shown nodes, taking out just that way is not enough:
    the leaves of a hub would have the same sum less each its own label, from which a tree reads
    it off. With `folds`, a node sees none of the labels of its fold over two hops, so that rows of
    a fold do not differ by their own labels.

    Args:
        graph: who is next to whom.
        shown: the labels to see.
        folds: [N], the fold of each shown node, and -1 of others; None where nothing is fitted to
            rows of shown nodes.
        prior: [C], what is usual, which stands for one neighbour more; by default the mean of
            what is shown. It is the same in all rows: the mean without a node's fold would say of
            nodes with few neighbours what their own label is not.
    """
    one = graph.links @ shown.values, graph.links @ shown.weight
    two = graph.two_hops(shown.values), graph.two_hops(shown.weight)
    usual = shown.prior if prior is None else prior
    if folds is None:
        back = graph.way_back[:, None]
        two = two[0] - back * shown.values, two[1] - back * shown.weight
    else:
        for fold in range(int(folds.max(initial=-1)) + 1):
            rows = folds == fold
            mates = shown.only(rows)
            for sums, columns in zip(two, (mates.values, mates.weight), strict=True):
                sums[rows] -= graph.links[rows] @ (graph.mean @ columns)
    shares = [(sums + usual) / (np.maximum(weights, 0) + 1) for sums, weights in (one, two)]
    return np.concatenate(shares, 1).astype(np.float32)


def drawn_folds(rows: np.ndarray, num_nodes: int, folds: int, seed: int) -> np.ndarray:
    """A fold for each of some rows, at random, and -1 for all others: [N].

    It goes by the seed alone, not by labels: else a label could decide who sees it.
    """
    found = np.full(num_nodes, -1)
    order = np.random.default_rng(seed).permutation(len(rows))
    found[rows[order]] = np.arange(len(rows)) % folds
    return found
