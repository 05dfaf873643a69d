"""The largest component of a graph, and the eigenvalues that decide how fast walks mix there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor
from torch_geometric.utils import is_undirected, subgraph

from subtree_attention.graph import Graph

DENSE_UP_TO = 256
LANCZOS_VECTORS, RESTARTS, EIGEN_TOLERANCE = 64, 4000, 1e-10
"""As for the Laplacian encoding: dense up to so many nodes, ARPACK with so many vectors beyond."""


def largest_component(edge_index: Tensor, num_nodes: int) -> tuple[Graph, int]:
    """The walk on the largest connected component, and how many components there are."""
    if not is_undirected(edge_index, num_nodes=num_nodes):
        raise ValueError("Theorem 1 is about undirected graphs: make it one with to_undirected")
    source, target = edge_index.cpu().numpy()
    count, label = _components(source, target, num_nodes)
    nodes = np.flatnonzero(label == np.bincount(label).argmax()) if num_nodes else label
    if len(nodes) < 2:
        raise ValueError(f"the graph has no edge between two of its {num_nodes} nodes")
    inside, _ = subgraph(
        torch.from_numpy(nodes), edge_index.cpu(), relabel_nodes=True, num_nodes=num_nodes
    )
    return Graph(inside, len(nodes)), count


def two_colourable(component: Graph) -> bool:
    """Whether a connected graph is bipartite.

    In its double cover every edge (i, j) leads from i to the copy of j and from the copy of i to j.
    Walks of even and of odd length meet in some node, and so the cover is connected, exactly if
    the graph has an odd cycle; otherwise its two halves are the two colourings.
    """
    source, target = component.edge_index.numpy()
    n = component.num_nodes
    return _components(np.r_[source, source + n], np.r_[target + n, target], 2 * n)[0] == 2


def _components(source: np.ndarray, target: np.ndarray, n: int) -> tuple[int, np.ndarray]:
    """How many connected components there are, and the one of each node, [N]."""
    edges = scipy.sparse.coo_array((np.ones(len(source), np.int8), (source, target)), (n, n))
    return connected_components(edges, directed=False)


def stationary(component: Graph) -> Tensor:
    """pi, [N]: degree over the sum of degrees."""
    degree = component.matrix(torch.float64).rowptr.diff().double()
    return degree / degree.sum()


# ------------------------------------------------------------------------------------ eigenvalues


@dataclass(frozen=True)
class Spectrum:
    """The eigenvalues of A_rw that decide how fast it mixes, with vectors of A_sym, [N] each."""

    lambda_2: float
    lambda_N: float  # noqa: N815
    vector_2: np.ndarray
    vector_N: np.ndarray  # noqa: N815
    residual: float  # the larger |A_sym v - lambda v|: no eigenvalue is farther off than this


def extreme_eigenvalues(component: Graph) -> Spectrum:
    """lambda_2 and lambda_N of A_sym, which has the eigenvalues of A_rw."""
    from threadpoolctl import threadpool_limits

    matrix = Graph(component.edge_index, component.num_nodes, transition="sym").to_scipy()
    with threadpool_limits(limits=1, user_api="blas"):  # the same sums in the same order
        if component.num_nodes <= DENSE_UP_TO:
            values, vectors = np.linalg.eigh(matrix.toarray())  # ascending
            pairs = [(float(values[place]), vectors[:, place]) for place in (-2, 0)]
        else:
            pairs = _solve_sparse(matrix, stationary(component).sqrt().numpy())
    residuals = [float(np.linalg.norm(matrix @ v - value * v)) for value, v in pairs]
    (lambda_2, vector_2), (lambda_N, vector_N) = pairs
    return Spectrum(lambda_2, lambda_N, vector_2, vector_N, max(residuals))


def _solve_sparse(
    matrix: scipy.sparse.csr_array, known: np.ndarray
) -> list[tuple[float, np.ndarray]]:
    """lambda_2 and lambda_N with their vectors; `known` [N] is lambda_1's, of norm 1."""

    def without_first(v: np.ndarray) -> np.ndarray:
        """A_sym with lambda_1 moved from 1 to -2, out of lambda_2's way."""
        v = v.ravel()
        return matrix @ v - 3 * known * (known @ v)

    operator = LinearOperator(matrix.shape, matvec=without_first, dtype=np.float64)
    return [_extreme(operator, "LA"), _extreme(matrix, "SA")]


def _extreme(operator: Any, which: str) -> tuple[float, np.ndarray]:
    """The largest ("LA") or smallest ("SA") eigenvalue and its vector, by ARPACK."""
    n = operator.shape[0]
    values, vectors = eigsh(
        operator,
        k=1,
        which=which,
        v0=np.random.RandomState(0).standard_normal(n),
        ncv=min(n, LANCZOS_VECTORS),
        tol=EIGEN_TOLERANCE,
        maxiter=RESTARTS,
    )
    return float(values[0]), vectors[:, 0]


def spectral_gap(spectrum: Spectrum, bipartite: bool) -> float:
    """1 - max(lambda_2, |lambda_N|), and 0 for a bipartite graph, where lambda_N = -1.

    Raises:
        RuntimeError: the eigenvalues are too inexact to tell, or contradict the colouring.
    """
    accurate = max(10 * spectrum.residual, 1e-10)
    if bipartite:
        if abs(1 + spectrum.lambda_N) > accurate:
            raise RuntimeError(f"bipartite, but lambda_N = {spectrum.lambda_N}, which is not -1")
        return 0.0
    gap = 1 - max(spectrum.lambda_2, abs(spectrum.lambda_N))
    if gap < 100 * spectrum.residual or gap <= 0:
        raise RuntimeError(f"gap {gap:.2g}, but eigenvalues only to {spectrum.residual:.2g}")
    return gap
