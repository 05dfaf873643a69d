"""What if: a node is left out, an edge is cut, or features of the root are other ones.

Only the root is asked again, and what it says is what the model says on the graph so changed: all
degrees are those of the edges that are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor

from .. import _check
from ..graph import Graph
from ..nn.features import Features, SparseFeatures, rows_of


@dataclass(frozen=True)
class Changes:
    """What is changed for one root.

    Attributes:
        nodes: left out: neither they nor their edges are in the graph any more.
        edges: (source, target), cut: with all parallel ones, and in this direction only.
        columns: of the root's own features, by their number, the value that each has instead.
    """

    nodes: tuple[int, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()
    columns: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        graph: Graph,
        without: Iterable[int] = (),
        cut: Iterable[tuple[int, int]] = (),
        values: Mapping[int, float] | None = None,
    ) -> Changes:
        """The same, with edges in both directions where the graph is undirected."""
        nodes = [_check.integer("node", node, 0) for node in listed("without", without)]
        edges = [
            (_check.integer("node", one, 0), _check.integer("node", other, 0))
            for one, other in pairs("cut", cut)
        ]
        if edges and graph.is_symmetric:
            edges += [(target, source) for source, target in edges]
        _check.kind("values", values or {}, Mapping, "a dictionary of columns and values")
        return cls(tuple(nodes), tuple(dict.fromkeys(edges)), dict(values or {}))

    def __bool__(self) -> bool:
        return bool(self.nodes or self.edges or self.columns)

    @property
    def of_graph(self) -> bool:
        """Whether the graph is another one."""
        return bool(self.nodes or self.edges)

    def check(self, root: int, num_nodes: int, channels: int) -> None:
        """Refuse what is not there, and a root that is left out itself."""
        for node in self.nodes:
            if _check.index("node", node, num_nodes) == root:
                raise ValueError(f"node {root} is asked about: it cannot be left out itself")
        for column, value in self.columns.items():
            _check.index("column", column, channels)
            most = torch.finfo(torch.float32).max
            _check.number(f"the value of column {column}", value, -most, most)

    def graph(self, graph: Graph) -> Graph:
        """The graph as it is then; nodes keep their numbers."""
        return graph.without(self.nodes, self.edges) if self.of_graph else graph

    def batch(self, batch: Tensor | None, num_nodes: int) -> Tensor | None:
        """The graph of each node, [N]: those left out are in one that nobody else is in."""
        if not self.nodes:
            return batch
        batch = torch.zeros(num_nodes, dtype=torch.long) if batch is None else batch.clone()
        batch[[*self.nodes]] = batch.max() + 1
        return batch

    def row(self, x: Features, root: int) -> Tensor:
        """The features of the root as they are then, [1, channels]."""
        row = rows_of(x, torch.tensor([root], device=x.device)).clone()
        for column, value in self.columns.items():
            row[0, column] = value
        return row

    def features(self, x: Features, root: int) -> Features:
        """Those of all nodes, [N, channels]."""
        if not self.columns:
            return x
        row = self.row(x, root)
        if not isinstance(x, Tensor):
            return _Replaced(x, root, row)
        x = x.clone()
        x[root] = row[0]
        return x


def listed(what: str, given: Any) -> list[Any]:
    """Several of something, which a text alone is not."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{what} must be a list, got {_check.said(given)}")
    return [*given]


def pairs(what: str, given: Any) -> list[tuple[Any, Any]]:
    """Several pairs."""
    made = listed(what, given)
    for each in made:
        if not isinstance(each, tuple | list) or len(each) != 2:
            raise TypeError(f"{what} must be a list of pairs, but has {_check.said(each)}")
    return [(one, other) for one, other in made]


class _Replaced(SparseFeatures):
    """Sparse features with another row at one node."""

    def __init__(self, x: SparseFeatures, node: int, row: Tensor) -> None:
        self.shape, self.dtype, self.device = x.shape, x.dtype, x.device
        self.x, self.node, self.row = x, torch.tensor([node], device=x.device), row

    def times(self, dense: Tensor, dropout: float = 0.0) -> Tensor:
        return self.x.times(dense, dropout).index_copy(0, self.node, self.row @ dense)

    def csr_rows(self, nodes: Tensor) -> sp.csr_array:
        own = (nodes.cpu() == self.node.cpu()).numpy()[:, None]
        row = sp.csr_array(self.row.cpu().numpy())
        return sp.csr_array(self.x.csr_rows(nodes).multiply(~own) + sp.csr_array(own) @ row)


NOTHING = Changes()
