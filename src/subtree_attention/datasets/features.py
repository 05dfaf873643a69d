"""Node features as tensors: dense, or sparse CSR where nearly every entry is zero.

The only place that makes CSR tensors, because PyTorch warns about them in two ways.
"""

import warnings
import zlib

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

# Above this share of non-zero entries a dense matrix is smaller and faster than a CSR one.
SPARSE_BELOW = 0.10


def csr_tensor(
    row_starts: Tensor,
    columns: Tensor,
    values: Tensor,
    shape: tuple[int, int],
    trusted: bool = True,
) -> Tensor:
    """A `torch.sparse_csr` matrix from its parts, without PyTorch's two warnings.

    Args:
        row_starts, columns, values: [N + 1] and [nnz], int64, ascending within each row; [nnz].
        shape: (N, F).
        trusted: whether the parts are known to fit; otherwise those that do not are a
            `RuntimeError`.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
        return torch.sparse_csr_tensor(
            row_starts, columns, values, shape, check_invariants=not trusted
        )


def rows_of(x: Tensor, rows: Tensor) -> Tensor:
    """Some rows of features: [N, F] -> [n, F], dense or CSR as they are."""
    if not x.is_sparse_csr:
        return x.index_select(0, rows)  # five times as fast as x[rows]
    starts = x.crow_indices()
    lengths = starts[rows + 1] - starts[rows]
    ends = lengths.cumsum(0)
    inside = torch.arange(int(lengths.sum())) - (ends - lengths).repeat_interleave(lengths)
    entries = starts[rows].repeat_interleave(lengths) + inside
    kept = torch.cat([ends.new_zeros(1), ends])
    return csr_tensor(kept, x.col_indices()[entries], x.values()[entries], (len(rows), x.size(1)))


def named_parts(x: Tensor) -> dict[str, Tensor]:
    """Features as the strided tensors of a file: x itself, or what its CSR form is made of."""
    if not is_csr(x):
        return {"x": x}
    parts = (x.values(), x.col_indices(), x.crow_indices())
    return dict(zip(("x_values", "x_columns", "x_row_starts"), parts, strict=True))


def from_named_parts(tensors: dict[str, Tensor], shape: tuple[int, int]) -> Tensor:
    """The inverse of `named_parts`; parts that do not fit are a `RuntimeError`."""
    if "x" in tensors:
        return tensors["x"]
    parts = (tensors["x_row_starts"], tensors["x_columns"], tensors["x_values"])
    return csr_tensor(*parts, shape, trusted=False)


def crc32(tensor: Tensor, start: int = 0) -> int:
    """The CRC-32 of a dense tensor's bytes, after what `start` is that of."""
    return zlib.crc32(tensor.detach().cpu().contiguous().numpy().tobytes(), start)


def from_scipy(matrix: scipy.sparse.csr_matrix) -> Tensor:
    """A scipy matrix [N, F] as a float32 CSR tensor without stored zeros or duplicates."""
    if matrix.dtype.kind not in "biuf":
        raise TypeError(f"x must hold real numbers, got {matrix.dtype}")
    matrix = scipy.sparse.csr_matrix(matrix, dtype=np.float32)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    arrays = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data)
    row_starts, columns, values = map(torch.from_numpy, arrays)
    return csr_tensor(row_starts, columns, values, matrix.shape)


def to_scipy(x: Tensor) -> scipy.sparse.csr_matrix:
    """A CSR tensor [N, F] as a scipy matrix that shares its memory."""
    parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
    return scipy.sparse.csr_matrix(parts, shape=tuple(x.shape))


def is_csr(x: Tensor) -> bool:
    return x.layout == torch.sparse_csr


def values_of(x: Tensor) -> Tensor:
    """The stored entries of dense or CSR features."""
    return x.values() if is_csr(x) else x


def float32(what: str, values: Tensor) -> Tensor:
    """Real numbers as float32; one that is too large for it is named with its place."""
    if values.is_complex():
        raise TypeError(f"{what} must hold real numbers, got {values.dtype}")
    rounded = values.to(torch.float32)
    if values.dtype == torch.float64:
        wrong = (rounded.isinf() & values.isfinite()).nonzero()
        if len(wrong):
            place = wrong[0].tolist()
            names = ("row", "column") if len(place) == 2 else ("entry",) * len(place)
            where = ", ".join(f"{name} {i}" for name, i in zip(names, place, strict=True))
            raise ValueError(
                f"{what} holds {float(values[tuple(place)]):g} in {where}, which is too large for "
                f"float32 ({len(wrong):,} such values): scale it"
            )
    return rounded


def compact(x: Tensor) -> Tensor:
    """Float32 features [N, F]: CSR if few entries are non-zero (`SPARSE_BELOW`), else dense."""
    if is_csr(x):
        return x
    if x.layout != torch.strided:
        raise ValueError(f"x must be dense or CSR, got {x.layout}: use x.to_sparse_csr()")
    x = float32("x", x)
    if int(torch.count_nonzero(x)) > SPARSE_BELOW * x.numel():
        return x.contiguous()
    # Block by block: the temporaries of a whole matrix would be as large as the matrix.
    blocks = [scipy.sparse.csr_matrix(block.numpy()) for block in x.split(4096)]
    return from_scipy(scipy.sparse.vstack(blocks, format="csr"))


def normalise_rows(x: Tensor) -> Tensor:
    """Scale every row of dense or CSR features [N, F] to sum 1; all-zero rows stay zero."""
    if not is_csr(x):
        total = x.sum(dim=1, keepdim=True)
        return x / torch.where(total == 0, torch.ones_like(total), total)
    matrix = to_scipy(x).copy()
    sums = np.asarray(matrix.sum(axis=1, dtype=np.float64)).ravel()
    sums[sums == 0] = 1
    matrix.data = (matrix.data / np.repeat(sums, np.diff(matrix.indptr))).astype(np.float32)
    return from_scipy(matrix)


def append_columns(x: Tensor, columns: Tensor) -> Tensor:
    """Features [N, F] and dense columns [N, m] side by side: [N, F + m], in the layout of `x`."""
    if not is_csr(x):
        return torch.cat([x, columns.to(x.dtype)], dim=1)
    wide = scipy.sparse.hstack([to_scipy(x.cpu()), columns.cpu().numpy()], format="csr")
    return from_scipy(wide).to(x.device)
