"""Node features as layers take them: dense, or sparse and then never made dense."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from .. import _check
from .._tracing import exporting
from ..compressed import CSR, index_dtype, transposed
from ..ops import backends
from ..ops.dropout import Rows, drop

if TYPE_CHECKING:
    import scipy.sparse


class SparseFeatures:
    """Features [N, channels] that are mostly zeros, ready to be multiplied by weights.

    A `torch.sparse_csr` x is taken wherever a dense one is. But the gradient of a weight needs the
    transpose of x, which a plain tensor brings to every step anew: whoever keeps x for many steps,
    as training does, makes this of it once. It shares the values of x.

    Args:
        x: `[N, channels]`, `torch.sparse_csr`.
        both: also prepare the transpose, for gradients.

    Attributes:
        tensor: x itself, for layers that know tensors only.
        starts: `[N]`, on a part of a graph: the number of each row's first entry in the whole x,
            see `nn.parallel.number_entries`.
    """

    starts: Tensor | None = None

    def __init__(self, x: Tensor, both: bool = True) -> None:
        _check.floating("x", x)
        if x.layout != torch.sparse_csr or x.dim() != 2:
            raise ValueError(f"x must be torch.sparse_csr [N, channels], got {x.layout}")
        self.tensor, self.shape, self.dtype, self.device = x, x.shape, x.dtype, x.device
        index = index_dtype(*x.shape, x.values().numel())
        csr = x.crow_indices().to(index), x.col_indices().to(index), x.values().detach()
        self.matrix = backends.prepared(CSR(*csr))
        self._transpose = self._transposed() if _check.flag("both", both) else None

    def size(self, dim: int) -> int:
        return self.shape[dim]

    def times(self, dense: Tensor, dropout: float = 0.0) -> Tensor:
        """x times [channels, c], of whose non-zeros a share is dropped: -> [N, c].

        Zeros stay zero either way, so this is dropout on x.
        """
        values = self.matrix.weight.to(dense.dtype)  # autocast lets them differ
        values = drop(values, dropout, rows=self._rows())
        matrix = self.matrix._replace(weight=values)
        if not torch.is_grad_enabled():
            return backends.product(matrix, dense)
        transpose, order = self._transpose or self._transposed()
        return SparseProduct.apply(dense, matrix, transpose._replace(weight=values[order]))

    def dense(self) -> Tensor:
        """All of it, zeros too: [N, channels]."""
        return self.times(torch.eye(self.size(1), dtype=self.dtype, device=self.device))

    def csr_rows(self, nodes: Tensor) -> scipy.sparse.csr_array:
        """Some rows of it, on the CPU: [n] -> [n, channels]."""
        import scipy.sparse

        rowptr, col, weight = (part.cpu().numpy() for part in self.matrix[:3])
        return scipy.sparse.csr_array((weight, col, rowptr), self.shape)[nodes.cpu().numpy()]

    def dropped(self, share: float) -> SparseFeatures:
        """Without a share of the non-zeros, the others scaled up; `tensor` stays what it was."""
        other = copy(self)
        other.matrix = self.matrix._replace(
            weight=drop(self.matrix.weight, share, rows=self._rows())
        )
        return other

    def _rows(self) -> Rows | None:
        """Which entries of the whole x these are, if they are some of it."""
        return None if self.starts is None else Rows(self.matrix.rowptr.long(), self.starts)

    def _transposed(self) -> tuple[backends.Matrix, Tensor]:
        """The transpose, and where its entries stand in the matrix."""
        rowptr, col, weight = self.matrix[:3]
        starts, rows, order = transposed(rowptr, col, self.shape[1])
        return backends.prepared(CSR(starts, rows, weight[order])), order


Features: TypeAlias = Tensor | SparseFeatures


def as_features(x: Any) -> Features:
    """x for a layer: as it is, or prepared if it is sparse; what no layer can take is refused."""
    if isinstance(x, SparseFeatures):
        return x
    if isinstance(x, tuple | list):
        raise ValueError(
            "bipartite inputs (a pair of feature matrices) are not supported: subtree attention "
            "walks within one set of nodes, so pass a single x"
        )
    _check.floating("x", x)
    if x.dim() != 2:
        raise ValueError(f"x must have shape [N, channels], got {_check.shape(x)}")
    if x.layout == torch.strided:
        return x
    if exporting():
        raise TypeError(f"torch.export takes dense features only, got {x.layout}: use x.to_dense()")
    if x.layout != torch.sparse_csr:
        raise ValueError(
            f"x must be dense or torch.sparse_csr, got {x.layout}: use x.to_sparse_csr()"
        )
    if x.requires_grad:
        raise ValueError("sparse x gets no gradient, since features are data: pass x.detach()")
    return SparseFeatures(x, both=torch.is_grad_enabled())


def rows_of(x: Features, nodes: Tensor) -> Tensor:
    """Some rows of x, dense: [n] -> [n, channels]."""
    if isinstance(x, Tensor):
        return x.index_select(0, nodes)
    return torch.from_numpy(x.csr_rows(nodes).toarray()).to(x.device, x.dtype)


def dropped(x: Features, share: float, training: bool) -> Features:
    """Dropout on x, whatever it is: [N, channels] -> [N, channels]."""
    if isinstance(x, Tensor):
        return drop(x, share, training)
    return x.dropped(share) if share and training else x


class SparseProduct(torch.autograd.Function):
    """CSR times dense with a gradient for the dense factor: the features are data."""

    @staticmethod
    def forward(
        ctx: Any, dense: Tensor, matrix: backends.Matrix, transpose: backends.Matrix
    ) -> Tensor:
        ctx.transpose = transpose
        return backends.product(matrix, dense)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return backends.product(ctx.transpose, grad.contiguous()), None, None
