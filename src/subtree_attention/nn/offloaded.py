"""Features that stay on disk or in the host's memory, and come to the layers in blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import _check
from ..graph import as_device
from ..ops import backends
from ..ops.kernels import cpu
from .features import SparseFeatures

if TYPE_CHECKING:
    import scipy.sparse

BLOCK_BYTES = 2**25
"""Of the rows that are there at a time, unless the user says how many."""


class _Dropped(NamedTuple):
    """What is dropped: a share, and the seed of which entries."""

    share: float
    seed: int


class OffloadedFeatures(SparseFeatures):
    """Dense features [N, channels] of which some rows at a time are where they are multiplied.

    For features that are larger than the memory of the device, or of the machine: the first linear
    map reads them in blocks of rows, and its gradient reads them once more. They get no gradient.
    On a CPU, what dropout drops is the same as of features in memory (with Numba).

    Args:
        x: `[N, channels]`, floating: a `numpy.memmap`, a NumPy array, or a tensor on the CPU, which
            is pinned for a GPU if it can be.
        device: where the rows are brought.
        rows: how many at a time; by default 32 MiB of them.
    """

    def __init__(
        self, x: np.ndarray | Tensor, device: str | torch.device = "cpu", rows: int | None = None
    ) -> None:
        if not isinstance(x, np.ndarray):
            x = _check.plain("x", x).detach()
            if x.device.type != "cpu":
                raise ValueError(f"x is on {x.device}: features that are offloaded are on the CPU")
        kind = _dtype(x)
        if x.ndim != 2 or not kind.is_floating_point:
            raise ValueError(f"x must be [N, channels], floating, got {kind} {[*x.shape]}")
        self.source, self.shape, self.dtype = x, torch.Size(x.shape), kind
        self.device = as_device(device)
        if self.device.type == "cuda" and isinstance(x, Tensor):
            self.source = x.pin_memory()
        if rows is None:
            rows = max(BLOCK_BYTES // max(x.shape[1] * kind.itemsize, 1), 1)
        # A multiple of 4, which the random numbers of dropout come in.
        self.rows = -(-_check.integer("rows", rows, 1) // 4) * 4
        self.how: _Dropped | None = None

    @property
    def tensor(self) -> Tensor:  # type: ignore[override]
        """All of it, for layers that know tensors only."""
        return self.dense()

    def times(self, dense: Tensor, dropout: float = 0.0) -> Tensor:
        """x times [channels, c], of whose entries a share is dropped: -> [N, c]."""
        x = self.dropped(dropout) if dropout else self
        return _Product.apply(dense, x)

    def dropped(self, share: float) -> OffloadedFeatures:
        """Without a share of the entries, the others scaled up."""
        if self.how is not None:
            raise ValueError("these features are dropped already: use dropout in one place only")
        other = copy(self)
        other.how = _Dropped(share, int(torch.empty((), dtype=torch.int64).random_()))
        return other

    def dense(self) -> Tensor:
        """All of it: [N, channels]."""
        return torch.cat([block for _, block in self.blocks(self.dtype)])

    def csr_rows(self, nodes: Tensor) -> scipy.sparse.csr_array:
        import scipy.sparse

        some = torch.as_tensor(self.source[nodes.cpu().numpy()])  # an array or a tensor
        return scipy.sparse.csr_array(some.numpy())

    def blocks(self, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor]]:
        """Rows after rows, on the device; the last block may be shorter."""
        for start in range(0, max(self.shape[0], 1), self.rows):
            rows = slice(start, min(start + self.rows, self.shape[0]))
            block: Any = self.source[rows]
            block = torch.from_numpy(np.array(block)) if _is_array(block) else block
            block = block.to(self.device, dtype, non_blocking=True)
            yield rows, block if self.how is None else self._drop(block, start * self.shape[1])

    def _drop(self, block: Tensor, first: int) -> Tensor:
        """Dropout on entries, of which so many came before."""
        share, seed = self.how or (0.0, 0)
        if backends.choose("auto", block.device, block.dtype) == "numba":
            return cpu.dropped(block, share, cpu.seed_at(seed, first))
        generator = torch.Generator(block.device).manual_seed((seed + first) % 2**63)
        stays = torch.empty_like(block).bernoulli_(1 - share, generator=generator)
        return block * stays / (1 - share)


def _is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray)


def _dtype(x: Any) -> torch.dtype:
    """As torch calls it."""
    if not _is_array(x):
        return x.dtype
    try:
        return torch.from_numpy(np.empty(0, x.dtype)).dtype
    except TypeError:
        raise ValueError(
            f"x must hold floating-point numbers that torch has, got {x.dtype}"
        ) from None


class _Product(torch.autograd.Function):
    """Features times dense with a gradient for the dense factor: the features are data."""

    @staticmethod
    def forward(ctx: Any, dense: Tensor, x: OffloadedFeatures) -> Tensor:
        ctx.x = x
        out = dense.new_empty(x.size(0), dense.size(1))
        for rows, block in x.blocks(dense.dtype):
            torch.mm(block, dense, out=out[rows])
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        found = grad.new_zeros(ctx.x.size(1), grad.size(1))
        for rows, block in ctx.x.blocks(grad.dtype):
            found.addmm_(block.t(), grad[rows])
        return found, None
