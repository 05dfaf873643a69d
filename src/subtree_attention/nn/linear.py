"""A linear map that also takes sparse features: bag-of-words rows are never made dense.

Dropout belongs to it because on a sparse matrix it only needs to drop the non-zeros: zeros stay
zero either way, so this is the same thing.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.nn import Linear

from .. import _check
from ..graph import CSR, csr_rows, index_dtype, scheduled
from ..ops import backends


class SparseLinear(Linear):
    """x W^T + b, after dropout on x, for dense or CSR x.

    Args:
        in_channels: columns of x; -1 takes them from the first x that comes.
        out_channels: columns of the result.
        bias: whether to learn b.
        dropout: share of the entries of x to drop in training.
    """

    def __init__(
        self, in_channels: int, out_channels: int, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__(check_in_channels(in_channels), out_channels, bias=bias)
        self.dropout = check_dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[N, in_channels] -> [N, out_channels]."""
        self.check(x)
        if x.layout != torch.sparse_csr:
            return super().forward(F.dropout(x, self.dropout, self.training))
        matrix, transpose, order = _both_ways(x)
        values = matrix.weight.to(self.weight.dtype)  # autocast lets them differ
        values = F.dropout(values, self.dropout, self.training)
        matrix = matrix._replace(weight=values)
        if torch.is_grad_enabled():  # otherwise nobody will ask for it
            transpose = transpose._replace(weight=values[order])
        out = SparseProduct.apply(self.weight.t().contiguous(), matrix, transpose)
        return out if self.bias is None else out + self.bias

    def check(self, x: Tensor) -> None:
        """Refuse an x that does not fit."""
        if x.size(-1) != self.weight.size(-1):
            raise ValueError(
                f"x has {x.size(-1)} channels, this layer takes {self.weight.size(-1)}"
            )
        if x.dtype != self.weight.dtype and not torch.is_autocast_enabled(x.device.type):
            raise ValueError(f"x is {x.dtype}, but the layer is {self.weight.dtype}")
        if x.device != self.weight.device:
            raise ValueError(f"x is on {x.device}, but the layer is on {self.weight.device}")


def apply_together(x: Tensor, *lins: Any) -> tuple[Tensor, ...]:
    """Several linear maps of the same x: one product instead of several small ones, if x is dense.

    Maps that are more than a weight and a bias (lazy, hooked, dropping, replaced by the user) are
    called one by one.
    """
    if x.layout != torch.strided or not all(map(_is_plain, lins)):
        return tuple(lin(x) for lin in lins)
    lins[0].check(x)
    weight = torch.cat([lin.weight for lin in lins])
    bias = None if lins[0].bias is None else torch.cat([lin.bias for lin in lins])
    return F.linear(x, weight, bias).split([lin.out_channels for lin in lins], dim=-1)


def _is_plain(lin: Any) -> bool:
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return (
        type(lin) is SparseLinear
        and lin.in_channels > 0
        and not lin.dropout
        and not any(getattr(lin, name) for name in hooks)
    )


def check_in_channels(in_channels: Any) -> int:
    """Refuse what is neither a number of channels nor -1."""
    if isinstance(in_channels, tuple | list):
        raise ValueError(
            f"in_channels={in_channels!r}: bipartite layers are not supported, since subtree "
            "attention walks within one set of nodes"
        )
    if in_channels == -1:
        return -1
    return _check.integer("in_channels", in_channels, 1)


def check_features(x: Any) -> None:
    """Refuse what no layer can take as node features, in words."""
    if isinstance(x, tuple | list):
        raise ValueError(
            "bipartite inputs (a pair of feature matrices) are not supported: subtree attention "
            "walks within one set of nodes, so pass a single x"
        )
    _check.floating("x", x)
    if x.layout == torch.sparse_csr and x.requires_grad:
        raise ValueError("sparse x gets no gradient, since features are data: pass x.detach()")
    if x.dim() != 2:
        raise ValueError(f"x must have shape [N, channels], got {_check.shape(x)}")
    if x.layout not in (torch.strided, torch.sparse_csr):
        raise ValueError(
            f"x must be dense or torch.sparse_csr, got {x.layout}: use x.to_sparse_csr()"
        )


def check_dropout(dropout: float) -> float:
    """Refuse what is not a probability below 1."""
    if isinstance(dropout, bool) or not isinstance(dropout, int | float):
        raise TypeError(f"dropout must be a number, got {dropout!r}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")
    return float(dropout)


class SparseProduct(torch.autograd.Function):
    """CSR times dense with a gradient for the dense factor: the features are data."""

    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: CSR, transpose: CSR) -> Tensor:
        ctx.transpose = transpose
        return backends.product(matrix, dense)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return backends.product(ctx.transpose, grad.contiguous()), None, None


_TRANSPOSES = WeakIdKeyDictionary()  # x -> (matrix, transpose, order), as long as x lives


def _both_ways(x: Tensor) -> tuple[CSR, CSR, Tensor]:
    """A CSR matrix, its transpose, and where the transpose's entries stand in the matrix."""
    if x not in _TRANSPOSES:
        index = index_dtype(*x.shape, x.values().numel())
        csr = x.crow_indices().to(index), x.col_indices().to(index), x.values().detach()
        matrix = scheduled(*csr)
        order = torch.argsort(matrix.col, stable=True)
        counts = torch.bincount(matrix.col, minlength=x.size(1))
        rowptr = F.pad(counts.cumsum(0), (1, 0)).to(index)
        rows = csr_rows(matrix.rowptr, matrix.col.numel()).to(index)
        transpose = scheduled(rowptr, rows[order].contiguous(), matrix.weight[order])
        _TRANSPOSES[x] = (matrix, transpose, order)
    return _TRANSPOSES[x]
