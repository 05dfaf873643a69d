"""What references see of whole graphs: sizes, and columns pooled over their nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse

from ..datasets.features import is_csr, to_scipy
from .linear import Block
from .neighbours import Neighbours

if TYPE_CHECKING:
    from ..datasets import Dataset


def blocks(dataset: Dataset) -> list[Block]:
    """Sizes [G, ...] first; and means and sums of x, if it has columns: [G, F] each."""
    batch, count = _batch(dataset), dataset.num_units
    nodes = np.bincount(batch, minlength=count)
    degrees = Neighbours.of(dataset).degrees
    edges = np.bincount(batch, degrees, minlength=count) / 2
    squares = np.bincount(batch, degrees**2, minlength=count)
    some = np.maximum(nodes, 1)
    shape = [np.log1p(nodes), np.log1p(edges), edges / some, squares / some, edges / some**2]
    found: list[Block] = [_standard(np.stack(shape, 1))]
    if dataset.x.size(1):
        parts = (np.ones(len(batch), dtype=np.float32), (batch, np.arange(len(batch))))
        pool = scipy.sparse.csr_matrix(parts, shape=(count, len(batch)))
        x = dataset.x.cpu()
        sums = pool @ (to_scipy(x) if is_csr(x) else x.numpy())
        sums = sums.toarray() if scipy.sparse.issparse(sums) else sums
        found += [_standard(sums / some[:, None]), _standard(sums)]
    return found


def _batch(dataset: Dataset) -> np.ndarray:
    assert dataset.batch is not None  # tasks of graphs accept nothing else
    return dataset.batch.cpu().numpy()


def _standard(block: np.ndarray) -> np.ndarray:
    """Columns with a mean of 0, rows with a mean square norm of 1."""
    spread = block.std(0)
    scaled = (block - block.mean(0)) / np.where(spread > 0, spread, 1)
    return (scaled / np.sqrt(block.shape[1])).astype(np.float32)
