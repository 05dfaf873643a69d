r"""The Laplacian positional encoding: eigenvectors that tell a node where in the graph it stands.

Let $L = I - D^{-1/2} A D^{-1/2}$, with $A$ symmetrised, unweighted and without self-loops. Every
connected component has its own spectrum: the known vector $D^{1/2} 1$ at eigenvalue 0, which says
nothing beyond the degree, and eigenvectors at eigenvalues above 0. The encoding holds the m
eigenvectors with the smallest eigenvalues above 0 over all components.

Solving component by component is what makes this well defined on a disconnected graph: there,
eigenvalue 0 has one vector for each component, and a solver returns an arbitrary mixture of them.
What stays open: where an eigenvalue repeats within one component (a square grid), any rotation of
its eigenvectors is as good; the one returned is the same every time on one machine, but may differ
between machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse
import torch
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh, splu
from threadpoolctl import threadpool_limits
from torch import Tensor

from .. import _check
from ..io import FileError, read_tensors, write_tensors
from .features import append_columns, crc32

if TYPE_CHECKING:
    from torch_geometric.data import Data

# Components up to this size are solved densely, many at a time; ARPACK is for the large ones.
DENSE_UP_TO = 256
# Entries of the dense blocks that are solved at a time: 32 MB.
BLOCK_ENTRIES = 2**22
# Bound on the residual relative to the eigenvalue 2 - lambda; far below float32's resolution.
TOLERANCE = 1e-9
LOOSE_TOLERANCE = 1e-5
# More Lanczos vectors than ARPACK's default: fewer restarts where eigenvalues crowd near 0.
LANCZOS_VECTORS = 64
RESTARTS = 25
# Keeps L + shift invertible; small beside the first eigenvalue of a path of 10,000 nodes.
SHIFT = 1e-8

Operator = Callable[[np.ndarray], np.ndarray]  # from [n] to [n], symmetric
Pair = tuple[float, np.ndarray, np.ndarray]  # eigenvalue, nodes [n], vector [n]

FORMAT = 3
"""Of kept eigenvectors; it goes up when other ones are computed."""


class LaplacianEncoding:
    """Append m Laplacian eigenvectors to the features, and keep them as `laplacian_encoding`.

    A transform of PyG: it takes a `Data` and returns a shallow copy. Each column has unit norm and
    is zero outside one component; its sign is fixed by making its largest entry positive. Isolated
    nodes get zeros; columns that a small graph lacks are zero.

    Args:
        m: number of eigenvectors, at most 1,000.

    Shapes:
        x: [N, F] -> [N, F + m], dense or CSR as it was; absent -> [N, m].
        laplacian_encoding: [N, m], float32.
    """

    def __init__(self, m: int = 3) -> None:
        self.m = check_number(m)

    def __call__(self, data: Data) -> Data:
        edges, nodes = getattr(data, "edge_index", None), getattr(data, "num_nodes", None)
        if edges is None or nodes is None or not hasattr(data, "x"):
            raise ValueError("the Laplacian encoding needs a graph with edge_index and num_nodes")
        data, encoding = copy(data), encoding_of(data.edge_index, data.num_nodes, self.m)
        data.laplacian_encoding = encoding
        data.x = encoding if data.x is None else append_columns(data.x, encoding)
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}(m={self.m})"


def check_number(m: int) -> int:
    """Return `m` if so many eigenvectors can be asked for."""
    return _check.integer("m, the number of eigenvectors,", m, 0, _check.MOST_EIGENVECTORS)


def encoding_of(edge_index: Tensor, num_nodes: int, m: int, kept: Path | None = None) -> Tensor:
    """The encoding of a graph [N, m], float32, on the device of its edges [2, E].

    A file `kept` holds it from its second use on.
    """
    header = {"format": FORMAT, "nodes": num_nodes, "edges": crc32(edge_index)}
    if kept is not None:
        with suppress(FileError, KeyError):  # it is not there or damaged
            tensors, found = read_tensors(kept)
            encoding = tensors["encoding"]
            if found == header and encoding.shape == (num_nodes, m):
                return encoding.to(edge_index.device)
    vectors, _ = laplacian_eigenvectors(edge_index, num_nodes, m)
    encoding = torch.from_numpy(vectors).to(torch.float32)
    if kept is not None:
        with suppress(OSError):  # it only costs time at the next use
            write_tensors(kept, {"encoding": encoding}, header)
    return encoding.to(edge_index.device)


def laplacian_eigenvectors(
    edge_index: Tensor, num_nodes: int, m: int
) -> tuple[np.ndarray, np.ndarray]:
    """The m eigenvectors of the normalised Laplacian with the smallest eigenvalues above 0.

    Args:
        edge_index: [2, E]; directions, duplicates and self-loops make no difference.
        num_nodes: N.
        m: number of eigenvectors.

    Returns:
        Vectors [N, m] and eigenvalues [m], float64; columns that do not exist are 0 and NaN.
    """
    num_nodes, m = _check.integer("num_nodes", num_nodes, 0), check_number(m)
    with _check.fits(f"an encoding of {m:,} eigenvectors for {num_nodes:,} nodes"):
        vectors = np.zeros((num_nodes, m))
    values = np.full(m, np.nan)
    if m == 0:
        return vectors, values
    transition = _symmetric_transition(edge_index, num_nodes)
    # One BLAS thread: sums in another order would change the last bits.
    with threadpool_limits(limits=1, user_api="blas"):
        found = [pair for part in _components(transition) for pair in _solve(transition, *part, m)]
    # Rounded, so that equal components come in the order of their first nodes, not of noise.
    found.sort(key=lambda pair: (round(pair[0], 9), int(pair[1][0])))
    for column, (value, nodes, vector) in enumerate(found[:m]):
        # The largest entry is positive: the first of those that rounding cannot tell apart.
        size = np.abs(vector)
        first = vector[int(np.argmax(size >= size.max() * (1 - 1e-6)))]
        vectors[nodes, column] = vector if first > 0 else -vector
        values[column] = value
    return vectors, values


def _symmetric_transition(edge_index: Tensor, num_nodes: int) -> scipy.sparse.csr_matrix:
    """D^-1/2 A D^-1/2 [N, N] in float64, of the simple undirected graph."""
    source, target = edge_index.cpu().numpy()
    other = source != target
    entries = (np.ones(int(other.sum())), (source[other], target[other]))
    directed = scipy.sparse.csr_matrix(entries, shape=(num_nodes, num_nodes))
    adjacency = directed + directed.T
    adjacency.data[:] = 1
    degree = np.diff(adjacency.indptr)
    scale = scipy.sparse.diags_array(1 / np.sqrt(np.maximum(degree, 1)))
    return scipy.sparse.csr_matrix(scale @ adjacency @ scale)


def _components(transition: scipy.sparse.csr_matrix) -> Iterator[tuple[int, np.ndarray]]:
    """The components with at least one edge: (n, nodes [G, n]), those of one size together."""
    count, label = connected_components(transition, directed=False)
    size = np.bincount(label, minlength=count)
    order = np.argsort(label, kind="stable")
    start = np.cumsum(size) - size
    for n in np.unique(size[size > 1]):
        of_this_size = np.flatnonzero(size == n)
        yield int(n), order[start[of_this_size, None] + np.arange(n)]


def _solve(
    transition: scipy.sparse.csr_matrix, n: int, groups: np.ndarray, m: int
) -> Iterator[Pair]:
    """The first m eigenpairs above 0 of every component in groups [G, n]."""
    if n > DENSE_UP_TO and n > 4 * m:
        for nodes in groups:
            values, vectors = _solve_large(transition[nodes][:, nodes], m)
            for value, vector in zip(values, vectors.T, strict=True):
                yield float(value), nodes, vector
        return
    at_a_time = max(1, BLOCK_ENTRIES // n**2)
    for some in np.split(groups, range(at_a_time, len(groups), at_a_time)):
        blocks = np.eye(n) - _dense_blocks(transition, some)
        values, vectors = np.linalg.eigh(blocks)  # ascending; the first is the known one at 0
        for nodes, value, vector in zip(some, values, vectors, strict=True):
            for k in range(1, min(m + 1, n)):
                yield float(value[k]), nodes, vector[:, k]


def _dense_blocks(transition: scipy.sparse.csr_matrix, groups: np.ndarray) -> np.ndarray:
    """The components groups [G, n] as dense matrices [G, n, n]."""
    count, n = groups.shape
    rows = transition[groups.ravel()].tocoo()  # G * n rows; columns are still nodes of the graph
    place = np.empty(transition.shape[0], dtype=np.int64)
    place[groups] = np.arange(n)
    blocks = np.zeros((count, n, n))
    blocks[rows.row // n, rows.row % n, place[rows.col]] = rows.data
    return blocks


def _solve_large(transition: scipy.sparse.csr_matrix, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The first k eigenpairs above 0 of one component: values [k], vectors [n, k].

    The smallest eigenvalues of L are the largest of I + A_sym, which ARPACK finds without solving
    linear systems. On long thin graphs they crowd so close to 0 that this does not converge; those
    are the graphs whose L factorises with little fill-in, so there the inverse of L is used.
    """
    known = np.sqrt(np.diff(transition.indptr))[:, None]
    known /= np.linalg.norm(known)

    def operator(v: np.ndarray) -> np.ndarray:
        return v + transition @ v

    with suppress(ArpackNoConvergence):
        return _smallest(transition, operator, known, k, RESTARTS)
    thin = transition.nnz <= 6 * transition.shape[0]  # a planar graph has at most 3 n edges
    patient = _inverse_laplacian(transition) if thin else operator
    try:
        return _smallest(transition, patient, known, k, 40 * RESTARTS)
    except ArpackNoConvergence:
        raise RuntimeError(
            f"the Laplacian eigenvectors of a component of {len(known):,} nodes did not converge; "
            "train without the positional encoding (m=0)"
        ) from None


def _smallest(
    transition: scipy.sparse.csr_matrix,
    operator: Operator,
    known: np.ndarray,
    k: int,
    restarts: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Eigenpairs of L, ascending, from an operator that has them in descending order.

    A Krylov space holds one vector for each eigenvalue, so a repeated one can be passed over.
    Hence a second look, from another start, at what is orthogonal to all that was found.
    """
    vectors = _largest(operator, known, k, restarts, TOLERANCE)  # [n, k]
    for _ in range(k + 1):
        values = 1 - np.einsum("nk,nk->k", vectors, transition @ vectors)
        order = np.argsort(values, kind="stable")
        values, vectors = values[order], vectors[:, order]
        basis = np.hstack([known, vectors])
        glance = _largest(operator, basis, 1, restarts, LOOSE_TOLERANCE)
        passed_over = 1 - float(glance[:, 0] @ (transition @ glance[:, 0]))
        if passed_over > values[-1] * (1 - 1e-6):
            break
        vectors[:, -1:] = _largest(operator, basis, 1, restarts, TOLERANCE)
    return values, vectors


def _largest(
    operator: Operator, basis: np.ndarray, k: int, restarts: int, tolerance: float
) -> np.ndarray:
    """Eigenvectors [n, k] at the largest eigenvalues, orthogonal to the columns of basis [n, b]."""
    n, found = basis.shape

    def project(v: np.ndarray) -> np.ndarray:
        return v - basis @ (basis.T @ v)

    def deflated(v: np.ndarray) -> np.ndarray:
        return project(operator(project(v.ravel())))

    # RandomState's stream is frozen for good, unlike default_rng's.
    start = np.random.RandomState(found).standard_normal((n,))
    _, vectors = eigsh(
        LinearOperator((n, n), matvec=deflated, dtype=np.float64),
        k=k,
        which="LA",
        v0=project(start),
        ncv=min(n, max(2 * k + 1, LANCZOS_VECTORS)),
        tol=tolerance,
        maxiter=restarts,
    )
    return vectors


def _inverse_laplacian(transition: scipy.sparse.csr_matrix) -> Operator:
    identity = scipy.sparse.identity(transition.shape[0])
    shifted = scipy.sparse.csc_matrix((1 + SHIFT) * identity - transition)
    factors = splu(shifted, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})
    return factors.solve
