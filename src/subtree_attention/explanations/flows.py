r"""Over which edges a logit came: what every walk to the root brings, summed by edge.

What a source adds at a level is shared out among its walks by the products of their transitions,
which is how the attention counts them. With r_t the root's row of A^t, and x_t[j] what level t adds
at node j for each unit of its mass r_t[j],

.. math::
    S_t = x_t + A S_{t+1}, \qquad \mathrm{flow}_t(j \to i) = r_{t-1}[i] \, A_{ij} \, S_t[j]

S_t is what a unit of mass t steps from the root stands for: the node itself, and all that walks on
to it from behind. So all walks are counted in one pass back over the levels, O(K E), exactly.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from .walks import Reach, Walks


class Flows(NamedTuple):
    """Edges that walks to a root take, and what comes over each.

    Attributes:
        edge_index: `[2, m]`, sources and targets; parallel edges are one. Where the model adds
            loops, they are edges, too.
        added: `[m]`, signed. A walk counts at each of its steps, so that flows into the root by
            last steps sum to what levels 1 to K add, and all of them to more.
    """

    edge_index: Tensor
    added: Tensor

    def of(self, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """What comes over edges that are given, `[2, E]` -> `[E]`, 0 where no walk does.

        Parallel ones share by their weights `[E]`, equally if there are none.
        """
        both = torch.cat([edge_index.cpu(), self.edge_index], 1)
        numbers = both[0] * (1 + both.max() if both.numel() else 1) + both[1]
        asked, known = numbers.tensor_split([edge_index.size(1)])
        pairs, place = asked.unique(return_inverse=True)
        found = torch.isin(known, pairs)
        flow = self.added.new_zeros(len(pairs))
        flow[torch.searchsorted(pairs, known[found])] = self.added[found]
        weight = torch.ones(len(asked)) if edge_weight is None else edge_weight.detach().cpu()
        weight = weight.to(flow)
        together = torch.zeros_like(flow).index_add_(0, place, weight)[place]
        return torch.where(together > 0, flow[place] * weight / together, 0)


def flows(walks: Walks, reached: list[Reach], added: Sequence[np.ndarray]) -> Flows:
    """What comes to a root over each edge.

    Args:
        walks: those of the graph.
        reached: of the root, for hops 0 to K.
        added: `[n, H]` for each hop, what the nodes that it reaches add through each head.
    """
    near = [nodes for nodes, _ in reached[:-1]]  # at the deepest level walks only begin
    targets = np.unique(np.concatenate([np.empty(0, np.int64), *near]))
    own_matrices = len(walks.matrices) > 1
    total = sp.csr_array((len(targets), walks.num_nodes))
    for head, matrix in enumerate(walks.matrices):
        of_head = slice(head, head + 1) if own_matrices else slice(None)  # else all walk alike
        levels = [
            _Level(nodes, mass[:, head] if mass.ndim > 1 else mass, part[:, of_head].sum(1))
            for (nodes, mass), part in zip(reached, added, strict=True)
        ]
        total = total + _over_edges(matrix[targets], targets, levels)
    edges = total.tocoo()
    index = np.stack([edges.coords[1], targets[edges.coords[0]]])
    return Flows(torch.from_numpy(index).long(), torch.from_numpy(edges.data))


class _Level(NamedTuple):
    """Nodes that reach the root in so many steps [n], their mass [n] and what they add [n]."""

    nodes: np.ndarray
    mass: np.ndarray
    added: np.ndarray

    def spread(self, values: np.ndarray, size: int) -> np.ndarray:
        """[n] -> [N]"""
        out = np.zeros(size)
        out[self.nodes] = values
        return out

    @property
    def per_mass(self) -> np.ndarray:
        nothing = np.zeros(len(self.mass))
        return np.divide(self.added, self.mass, nothing, where=self.mass != 0)


def _over_edges(matrix: sp.csr_array, targets: np.ndarray, levels: list[_Level]) -> sp.csr_array:
    """What comes over each entry of the rows of `targets`, [targets, N]."""
    size, counts = matrix.shape[1], np.diff(matrix.indptr)
    flow, stands_for = np.zeros(len(matrix.data)), np.zeros(size)
    for nearer, level in reversed(list(itertools.pairwise(levels))):
        stands_for += level.spread(level.per_mass, size)
        arrives = nearer.spread(nearer.mass, size)[targets]
        flow += np.repeat(arrives, counts) * matrix.data * stands_for[matrix.indices]
        behind = matrix @ stands_for
        stands_for = np.zeros(size)
        stands_for[targets] = behind
    return sp.csr_array((flow, matrix.indices, matrix.indptr), matrix.shape)
