"""What references see of nodes: own columns; and what neighbours have, in the mean.

Sparse columns stay sparse. Means over two hops would be dense, and so would those over one hop of
nodes with many neighbours: these are of a truncated SVD of the columns instead, whose means are
the same as the SVD of the means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse
from threadpoolctl import threadpool_limits

from ..datasets.features import is_csr, to_scipy
from .aims import Shown
from .linear import Block
from .neighbours import Neighbours, label_shares

if TYPE_CHECKING:
    from ..datasets import Dataset

WIDE = 256
"""Columns of which means are taken as they are; of more, of a truncated SVD."""
RANK = 96
"""Columns of that SVD: for linear models; trees take the first `FOR_TREES`."""
FOR_TREES = 48
MOST_ENTRIES = 4_000_000
"""Of means over one hop that stay sparse."""


class View:
    """A graph, and what is computed from it once for all references.

    Args:
        dataset: with x [N, F], dense or CSR; an encoding is left out.
        basis, center: [F, r] and [F], those of an earlier graph; by default its own are found.
        sparse: how columns are laid out; by default as they are.
    """

    def __init__(
        self,
        dataset: Dataset,
        basis: np.ndarray | None = None,
        center: np.ndarray | None = None,
        sparse: bool | None = None,
    ) -> None:
        x = dataset.x.cpu()
        self.x: Block = _laid_out(to_scipy(x) if is_csr(x) else x.numpy(), sparse)
        self.dataset, self._basis = dataset, basis
        self._center = center if center is not None or self.sparse else self.x.mean(0)

    @property
    def sparse(self) -> bool:
        return scipy.sparse.issparse(self.x)

    @cached_property
    def graph(self) -> Neighbours:
        return Neighbours.of(self.dataset)

    @property
    def reduced(self) -> bool:
        """Whether means are of an SVD."""
        return self.x.shape[1] > WIDE

    @cached_property
    def basis(self) -> np.ndarray | None:
        """Of the SVD, [F, r]; None where columns are few."""
        if self._basis is not None or not self.reduced:
            return self._basis
        from sklearn.utils.extmath import randomized_svd

        rank = min(RANK, *self.x.shape)
        with threadpool_limits(1):  # thin products, in which threads mostly wait
            _, _, rows = randomized_svd(self._centered, rank, n_iter=2, random_state=0)
        return rows.T.astype(np.float32)

    @property
    def _centered(self) -> Block:
        """So that whoever has no neighbours is average; of sparse columns most are 0 anyway."""
        return self.x if self.sparse else self.x - self._center

    @cached_property
    def _narrow(self) -> np.ndarray:
        """What means are taken of: columns, or their SVD, [N, r]."""
        columns = self._centered
        if self.basis is not None:
            return np.asarray(columns @ self.basis)
        return columns.toarray() if self.sparse else columns

    @cached_property
    def one_hop(self) -> np.ndarray:
        """[N, r]."""
        return self.graph.mean @ self._narrow

    @cached_property
    def two_hops(self) -> np.ndarray:
        """[N, r]."""
        return self.graph.mean @ self.one_hop

    @cached_property
    def sparse_hop(self) -> scipy.sparse.csr_matrix:
        """Means over one hop, [N, F], CSR."""
        return (self.graph.mean @ self.x).tocsr()

    @cached_property
    def stays_sparse(self) -> bool:
        """Whether means over one hop have few entries, by what they have at most."""
        if not self.sparse or not self.reduced:
            return False
        own = np.diff(self.x.indptr).astype(np.float32)
        links = self.graph.links
        pattern = scipy.sparse.csr_matrix((np.ones_like(links.data), links.indices, links.indptr))
        most = np.minimum(pattern @ own[: pattern.shape[1]], self.x.shape[1]).sum()
        return bool(most <= MOST_ENTRIES)


@dataclass(frozen=True, eq=False)
class Columns:
    """How the columns of a model are made, so that they can be made again of another graph.

    Attributes:
        kind: "own", "linear" or "trees": own columns alone, or with those of neighbours as either
            likes them.
        width: F, the columns of x.
        basis: [F, r] of means, or None.
        stays_sparse: whether means over one hop are sparse.
        prior: [C], what is usual among the shown labels.
        scales: of each block by name, what is taken away from a column and what it is then
            multiplied with, [2, w]; all of a sparse block are multiplied alike, [1].
    """

    kind: str
    width: int
    basis: np.ndarray | None
    stays_sparse: bool
    prior: np.ndarray
    scales: Mapping[str, np.ndarray]

    @classmethod
    def fit(
        cls, kind: str, view: View, shown: Shown, folds: np.ndarray
    ) -> tuple[Columns, list[Block]]:
        """Scales that make the blocks weigh alike; and the blocks themselves, [N, ...] each.

        `folds` is for the shares of nodes that are shown, see `label_shares`.
        """
        sparse = kind == "linear" and view.stays_sparse
        basis = None if kind == "own" else view.basis
        raw = _raw(kind, sparse, view, lambda: label_shares(view.graph, shown, folds))
        scales = {name: _scale(block) for name, block in raw.items()}
        columns = cls(kind, view.x.shape[1], basis, sparse, shown.prior, scales)
        return columns, _scaled(raw, scales)

    @property
    def sparse(self) -> bool:
        """How the own columns were laid out, which their scales tell."""
        return "own" in self.scales and self.scales["own"].ndim == 1

    def blocks(self, dataset: Dataset, shown: Shown) -> list[Block]:
        """The same columns of another graph, [N, ...] each; nothing is fitted to them.

        Tables of the same columns may be dense or sparse, by how much is in them: they are laid
        out as those that the model was fitted to.
        """
        dense = "own" in self.scales and not self.sparse
        center = self.scales["own"][0] if dense else None
        view = View(dataset, self.basis, center, self.sparse)

        def shares() -> np.ndarray:
            return label_shares(view.graph, shown, prior=self.prior)

        return _scaled(_raw(self.kind, self.stays_sparse, view, shares), self.scales)


def _laid_out(x: Block, sparse: bool | None) -> Block:
    if sparse is None or sparse == scipy.sparse.issparse(x):
        return x
    return scipy.sparse.csr_matrix(x) if sparse else x.toarray()


def _raw(kind: str, sparse: bool, view: View, shares: Callable[[], np.ndarray]) -> dict[str, Block]:
    blocks: dict[str, Block] = {"own": view.x} if view.x.shape[1] else {}
    if kind == "own":
        return blocks
    if blocks:
        rank = FOR_TREES if kind == "trees" and view.reduced else None
        blocks["one"] = view.sparse_hop if sparse else view.one_hop[:, :rank]
        blocks["two"] = view.two_hops[:, :rank]
    blocks["degrees"] = view.graph.degree_columns()
    blocks["shares"] = shares()
    return blocks


def _scale(block: Block) -> np.ndarray:
    """So that the columns of a dense block have a mean of 0, and rows of any block a mean square
    norm of 1."""
    if scipy.sparse.issparse(block):
        square = float(block.multiply(block).sum()) / block.shape[0]
        return np.array([1 / np.sqrt(square) if square else 1.0], dtype=np.float32)
    center, spread = block.mean(0, dtype=np.float64), block.std(0, dtype=np.float64)
    constant = spread <= 1e-6 * np.maximum(np.abs(center), 1e-6)
    factor = np.where(constant, 0, 1 / np.where(constant, 1, spread)) / np.sqrt(block.shape[1])
    return np.stack([center, factor]).astype(np.float32)


def _scaled(blocks: Mapping[str, Block], scales: Mapping[str, np.ndarray]) -> list[Block]:
    found = []
    for name, block in blocks.items():
        scale = scales[name]
        sparse = scipy.sparse.issparse(block)
        found.append(block * scale[0] if sparse else (block - scale[0]) * scale[1])
    return found
