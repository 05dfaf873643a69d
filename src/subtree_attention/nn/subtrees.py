"""Outputs of single nodes of a large graph, from their subtrees; the same as of the whole graph.

    Direct   an STAGNN. Keys and values of all nodes are computed once. A level of a root is then
             one number for each node that reaches it: see `ops.subtrees`. Where there is memory,
             the states of one hop are kept too, and most of a subtree need not be walked.
    Cut      any model that looks no further than its hops: it is called on the part of the graph
             that reaches the roots, with the transition of the whole.

Neither knows of dropout, nor of gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from .. import feature_maps, ops
from ..graph import Graph
from ..ops import machine, recurrence
from ..ops.subtrees import NOTHING, Change, Shape, Subtrees
from .conv import STAConv
from .features import Features
from .former import STAFormer
from .models import STAGNN
from .norms import looks_at_all

SHARE_OF_FREE = 0.25
"""Of memory, that states may take unasked."""
AT_A_TIME = 1 << 16
"""Rows whose keys and values are computed at a time."""


class Added(NamedTuple):
    """New nodes of a graph.

    Attributes:
        x: [m, in_channels], what the model sees of them.
        source, target: [x], edges, each pair once; the new nodes have the numbers from N on.
        weight: [x]; None where the graph has none.
    """

    x: Features
    source: np.ndarray
    target: np.ndarray
    weight: np.ndarray | None = None


def refusal(model: nn.Module) -> str:
    """Why outputs of a model are not found in subtrees; nothing if they are."""
    if not isinstance(model, STAGNN | STAFormer):
        return f"{type(model).__name__} is not one of our models"
    layers = [part for part in model.modules() if isinstance(part, STAConv)]
    if any(layer.beside is not None for layer in layers):
        return "global attention (--global-attention) looks at all nodes"
    if any(layer.edge_gate is not None for layer in layers):
        return "its edges have gates, of features that a new edge does not bring"
    if looks_at_all(model):
        return "its batch norm looks at all nodes"
    return ""


def is_simple(graph: Graph) -> bool:
    """Whether no edge is there twice."""
    rowptr, col = graph._receive[:2]
    again = torch.zeros(len(col) + 1, dtype=torch.bool)
    again[1:-1] = col[1:] == col[:-1]
    again[rowptr.long()] = False  # where a row begins
    return not bool(again.any())


def reads(model: nn.Module) -> int:
    """How many hops from its root a model looks."""
    if isinstance(model, STAGNN):
        return model.smoothing + model.conv.hops
    return sum(part.hops for part in model.modules() if isinstance(part, STAConv))


class Direct:
    """An STAGNN's outputs, root by root.

    Args:
        model: an STAGNN in evaluation mode, on the CPU, with a feature map.
        x: [N, in_channels], what it sees of the nodes.
        graph: whose nodes they are.
        memory: bytes that the states of one hop may take, see `Subtrees.states`; None: a quarter of
            what is free.
    """

    @torch.no_grad()
    def __init__(self, model: Any, x: Features, graph: Graph, memory: int | None = None) -> None:
        self.model, self.subtrees = model, Subtrees(graph)
        self.hidden = model.hidden(x, graph)
        # Not in every answer: a softmax waits for all threads of torch, however small it is.
        self.gate, beta = model.conv.gate()[:, None, :, None], model.conv.readout()
        self.beta = None if beta is None else beta.double()
        parts = [self._rows(some) for some in self.hidden.split(AT_A_TIME)]
        self.rows = np.concatenate(parts) if parts else self._rows(self.hidden)
        keys = self.rows.shape[2] - model.conv.value_channels
        self.shape = Shape(model.conv.heads, keys, model.conv.value_channels)
        self.states = None
        if self.state_bytes <= self._most(memory) and model.conv.hops and self.subtrees.compiled:
            self.states = self.subtrees.states(self.rows, self.shape)

    @property
    def state_bytes(self) -> int:
        """Of the states of one hop."""
        heads, keys, values = self.shape
        return 4 * self.subtrees.num_nodes * heads * keys * (values + 1)

    @staticmethod
    def _most(memory: int | None) -> float:
        if memory is not None:
            return memory
        free = machine.memory(torch.device("cpu")).free
        return 0 if free is None else SHARE_OF_FREE * free

    @staticmethod
    def takes(model: nn.Module, joins: bool) -> bool:
        """Whether it is for a model; new nodes change what others' hidden layer is smoothed to."""
        if not isinstance(model, STAGNN) or feature_maps.is_softmax(model.conv.feature_map):
            return False
        return not (joins and model.smoothing)

    def _mapped(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """phi(q), phi(k) [n, H, d] and v [n, H, c]."""
        query, key, value = self.model.conv.project(hidden)
        query, key = ops.map_features(self.model.conv.feature_map, query, key)
        return query, key, value

    def _rows(self, hidden: Tensor) -> np.ndarray:
        """Key and value of each head side by side: [n, H, d + c]."""
        _, key, value = self._mapped(hidden)
        return torch.cat([key, value], -1).numpy()

    @torch.no_grad()
    def nodes(self, nodes: np.ndarray) -> Tensor:
        """Outputs of nodes of the graph, [R] -> [R, out_channels]."""
        hidden = self.hidden[torch.from_numpy(nodes)]
        return self._outputs(nodes, hidden, np.zeros((0, *self.rows.shape[1:]), np.float32))

    @torch.no_grad()
    def new(self, added: Added) -> Tensor:
        """Outputs of new nodes, [m, out_channels]."""
        hidden = self.model.hidden(added.x)
        change = self.subtrees.change(len(hidden), *added[1:])
        roots = np.arange(len(hidden)) + self.subtrees.num_nodes
        return self._outputs(roots, hidden, self._rows(hidden), change)

    def _outputs(
        self, roots: np.ndarray, hidden: Tensor, new_rows: np.ndarray, change: Change = NOTHING
    ) -> Tensor:
        conv = self.model.conv
        query, _, value = self._mapped(hidden)
        given = query.numpy(), self.rows, new_rows, self.shape, change, self.states
        read = torch.from_numpy(self.subtrees.readouts(roots, conv.hops, *given))  # [R, K, H, e]
        levels = recurrence.quotient(read, conv.eps, self.beta).to(value.dtype).transpose(0, 1)
        levels = torch.cat([value[None], levels]) * self.gate
        return conv.head_mix(conv.aggregation(levels)).to(value.dtype)


class Cut:
    """A model's outputs, called on the parts of the graph that reach its roots.

    Args:
        model: in evaluation mode, on the CPU.
        features: what it sees of some nodes [n] of the graph, below what it sees of new ones
            (None where there are none).
        graph: whose nodes they are.
    """

    def __init__(
        self, model: Any, features: Callable[[np.ndarray, Features | None], Features], graph: Graph
    ) -> None:
        self.model, self.features, self.graph = model, features, graph
        self.subtrees, self.hops = Subtrees(graph), reads(model)
        smooths = isinstance(model, STAGNN) and model.smoothing and not graph.self_loops
        self.looped = Subtrees(graph.with_self_loops()) if smooths else None

    @torch.no_grad()
    def nodes(self, nodes: np.ndarray) -> Tensor:
        """Outputs of nodes of the graph, [R] -> [R, out_channels]."""
        found, where = np.unique(nodes, return_inverse=True)
        return self._outputs(found, None)[torch.from_numpy(where)]

    @torch.no_grad()
    def new(self, added: Added) -> Tensor:
        """Outputs of new nodes, [m, out_channels]."""
        return self._outputs(np.arange(added.x.size(0)) + self.subtrees.num_nodes, added)

    def _outputs(self, roots: np.ndarray, added: Added | None) -> Tensor:
        change = self._change(self.subtrees, added)
        part = self.subtrees.part(roots, self.hops, change)
        graph = _graph(self.subtrees.entries(part, change), self.graph)
        if self.looped is not None:
            entries = self.looped.entries(part, self._change(self.looped, added))
            looped = _graph(entries, self.graph.with_self_loops())
            graph.cached("self-loops", lambda _: looped)
        x = self.features(part.nodes[change.new :], None if added is None else added.x)
        return self.model(x, graph)[: len(roots)]

    @staticmethod
    def _change(subtrees: Subtrees, added: Added | None) -> Change:
        return NOTHING if added is None else subtrees.change(added.x.size(0), *added[1:])


def _graph(entries: tuple[np.ndarray, np.ndarray, np.ndarray], like: Graph) -> Graph:
    """Rows of a larger graph as one that passes for its like: the entries are as they are there,
    not of the degrees here."""
    rowptr, col, weight = map(torch.from_numpy, entries)
    graph = Graph.from_csr(rowptr, col, weight, transition=None)
    graph._scales()  # none: found before it says what kind of transition its entries are
    graph.transition, graph.self_loops = like.transition, like.self_loops
    return graph
