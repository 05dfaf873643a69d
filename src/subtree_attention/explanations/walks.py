"""The walks that end in one root: how much of each source arrives, and along which way most.

Both look at the nodes that are reached only, so a root deep in a large graph costs no more than
its own subtree. On the CPU, in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from ..graph import Graph


class Reach(NamedTuple):
    """A row of a power of A: the nodes that reach the root, ascending [n], and their mass [n]; or
    [n, H], where each head has a matrix of its own."""

    nodes: np.ndarray
    mass: np.ndarray


class Walk(NamedTuple):
    """A walk from a source to the root, both included, and the product of its transitions."""

    nodes: list[int]
    probability: float


class Walks:
    """The walks of a graph; `matrices` are A, or that of each head, parallel edges added up and
    edges of weight 0 left out.

    Args:
        graph: the :class:`Graph` that the model walks on.
        entries: `[E, H]` or `[E, 1]`, in the place of those of the graph.
    """

    def __init__(self, graph: Graph, entries: Tensor | None = None) -> None:
        given = [None] if entries is None else entries.unbind(1)
        self.matrices = [graph.to_scipy(own) for own in given]
        for matrix in self.matrices:
            matrix.eliminate_zeros()
        self.num_nodes = graph.num_nodes

    @cached_property
    def _log_transpose(self) -> sp.csr_array:
        """log |A^T|, rows send. Logarithms, because a product of many small numbers may be 0.

        Where heads have matrices of their own, it is of the mean of their absolute values.
        """
        transpose = sp.csr_array(sum(abs(matrix) for matrix in self.matrices).T)
        transpose.data /= len(self.matrices)
        # An entry of 1 becomes 0, which is stored all the same.
        transpose.data = np.log(np.abs(transpose.data))
        return transpose

    def reach(self, root: int, hops: int) -> list[Reach]:
        """Row `root` of A^0 .. A^hops: O(edges of the reached nodes) a hop."""
        each = [self._rows(matrix, root, hops) for matrix in self.matrices]
        if len(each) == 1:
            return each[0]
        return [_together(of_heads) for of_heads in zip(*each, strict=True)]

    def _rows(self, matrix: sp.csr_array, root: int, hops: int) -> list[Reach]:
        row = sp.csr_array(([1.0], [root], [0, 1]), (1, self.num_nodes))
        rows = [row]
        for _ in range(hops):
            row = row @ matrix
            row.eliminate_zeros()
            row.sort_indices()
            rows.append(row)
        return [Reach(row.indices.astype(np.int64), row.data) for row in rows]

    def best(self, reached: list[Reach]) -> list[np.ndarray]:
        """The log-probability of the most probable walk from each reached node, [n] for each hop.

        With B_m[j] the best of the walks of m steps from j to the root,
        B_m[j] = max_i A[i, j] B_(m-1)[i].
        """
        best = [np.zeros(1)]
        for hop in range(1, len(reached)):
            before = np.full(self.num_nodes, -np.inf)
            before[reached[hop - 1].nodes] = best[-1]
            steps = self._log_transpose[reached[hop].nodes]  # every row has an entry
            candidates = steps.data + before[steps.indices]
            if len(candidates):  # reduceat needs a first entry
                candidates = np.maximum.reduceat(candidates, steps.indptr[:-1])
            best.append(candidates)
        return best

    def trace(self, reached: list[Reach], best: list[np.ndarray], hop: int, source: int) -> Walk:
        """The most probable walk of `hop` steps from a source; of equal ones the lowest nodes."""
        nodes, log_probability, steps = [source], 0.0, self._log_transpose
        for level in range(hop, 0, -1):
            row = slice(*steps.indptr[nodes[-1] : nodes[-1] + 2])
            there = reached[level - 1].nodes
            places = np.searchsorted(there, steps.indices[row]).clip(max=len(there) - 1)
            found = there[places] == steps.indices[row]
            targets, logs = steps.indices[row][found], steps.data[row][found]
            total = logs + best[level - 1][places[found]]
            # Entries of a row need not ascend, and the first of the largest would be by chance.
            chosen = np.lexsort((targets, -total))[0]
            log_probability += float(logs[chosen])
            nodes.append(int(targets[chosen]))
        return Walk(nodes, float(np.exp(log_probability)))


def _together(of_heads: Sequence[Reach]) -> Reach:
    """Who is reached through any head, and what arrives through each."""
    nodes = np.unique(np.concatenate([reach.nodes for reach in of_heads]))
    mass = np.zeros((len(nodes), len(of_heads)))
    for head, reach in enumerate(of_heads):
        mass[np.searchsorted(nodes, reach.nodes), head] = reach.mass
    return Reach(nodes, mass)
