"""Answers about a few nodes of a large graph, or new ones, from their subtrees alone.

answering = sta.open("runs/mine").answering()
answering.nodes(["ann", "bob"]).probabilities
answering.new([{"id": "dan", "age": 31}], [{"source": "dan", "target": "ann"}]).predicted

The numbers are those of `predict`, to the rounding of float32: a model of K hops reads the nodes
that reach a root within K steps, and no other. What looks further is refused, see `refusal`.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .. import _check
from ..datasets import Dataset
from ..datasets.features import rows_of
from ..datasets.joining import Joining, New, numbers_of
from ..datasets.joining import refuse as refuse_to_join
from ..datasets.tabular import stacked
from ..io import FileError
from ..nn import Labelled, unwrapped
from ..nn import subtrees as ways
from ..nn.features import Features
from ..nn.memory import most as bytes_of
from .predicted import Predicted

if TYPE_CHECKING:
    from .saved import SavedRun

CPU = torch.device("cpu")


class UnknownNode(ValueError):
    """An id that no node of the graph has."""


class Answering:
    """A run that answers about single nodes; what does not depend on the node is computed once.

    Several threads may ask at a time. It works on the CPU.

    Args:
        run: of nodes; `deciding` gives one with other answers than the most probable.
        memory: what the states of one hop may take, "8GB" or a number of bytes, which make answers
            of an STAGNN several times as fast; None: a quarter of what is free.

    Attributes:
        hops: how far from a root the model looks.
        joins: why new nodes are refused; empty if they are not.
    """

    def __init__(self, run: SavedRun, memory: str | int | None = None) -> None:
        most = memory_of(memory)  # first: a mistake is told before anything is read
        if run.task.unit != "node":
            raise ValueError(
                f"a model of {run.task.unit}s has no single nodes to answer about: 'sta predict' "
                "answers for all of them"
            )
        self.run, self.task, self.dataset = run, run.task, run.dataset
        self.names, self.found, self.target = run.task.names(run.dataset), run.found, run.target
        self._network: Any = run.model if run.device == CPU else deepcopy(run.model).cpu()
        self._model: Any = unwrapped(self._network)
        self._graph = run.graph.to(CPU)
        why = refusal(run)
        self.hops, self.joins = ways.reads(self._model), why or join_refusal(run)
        # What looks at the whole graph does so once; then its nodes are known.
        self._known = run.logits if why else None
        self._numbers = numbers_of(self.dataset)
        self._own: ways.Direct | ways.Cut = self._cut
        if self._known is None and ways.Direct.takes(self._model, joins=False):
            seen = self._seen(self.dataset.features)
            self._own = ways.Direct(self._model, seen, self._graph, most)
        self._new: ways.Direct | ways.Cut = self._own
        if not self.joins and not ways.Direct.takes(self._model, joins=True):
            self._new = self._cut
        self._joining = None if self.joins else Joining(self.dataset)

    @cached_property
    def _cut(self) -> ways.Cut:
        return ways.Cut(self._model, self._part, self._graph)

    # -------------------------------------------------------------------------------- questions

    def nodes(self, ids: Sequence[str]) -> Predicted:
        """What is predicted of nodes of the run's graph, by their ids."""
        if isinstance(ids, str) or not isinstance(ids, Sequence):
            raise TypeError(f"ids must be a list of ids, got {_check.said(ids)}")
        numbers = np.array([self.number(id) for id in ids], np.int64)
        if self._known is not None:
            known = torch.from_numpy(self._known[numbers])
            return self._said([*ids], known, self.target[numbers])
        outputs = self._own.nodes(numbers)
        if "offset" in self._inputs:
            beside = self._network.added(self._inputs["offset"][torch.from_numpy(numbers)])
            outputs = outputs + beside
        return self._said([*ids], outputs, self.target[numbers])

    def new(self, nodes: Any, edges: Any = None, unknown_ends: str = "error") -> Predicted:
        """What is predicted of new nodes that join the run's graph; the graph stays what it is.

        Args:
            nodes: a list of dictionaries, a node each, with the columns that the model was trained
                on; or a table, see `from_tables`.
            edges: likewise, by the names of the run's columns, or as source, target and weight;
                their ends are new nodes or those of the graph.
            unknown_ends: see `from_tables`.
        """
        return self.joined(self.read(nodes, edges, unknown_ends))

    def read(self, nodes: Any, edges: Any = None, unknown_ends: str = "error") -> New:
        """New nodes as `joined` takes them."""
        if self._joining is None:
            raise ValueError(self.joins)
        return self._joining.read(nodes, edges, unknown_ends)

    def joined(self, new: New) -> Predicted:
        """See `new`."""
        direct = isinstance(self._new, ways.Direct)
        x = self._seen(new.x, None) if direct else new.x
        outputs = self._new.new(ways.Added(x, new.source, new.target, new.weight))
        if "offset" in self._inputs:
            outputs = outputs + self._network.added(self._offset(new))
        return self._said(new.ids, outputs, new.y.numpy())

    def number(self, id: str) -> int:
        """The number of a node by its id."""
        number = self._numbers.get(id) if isinstance(id, str) else None
        if number is None:
            raise UnknownNode(f"there is no node {_check.said(id)} in the graph of the run")
        return number

    # ----------------------------------------------------------------------- what is computed

    @cached_property
    def _inputs(self) -> dict[str, Any]:
        return dict(self.run.problem.to(CPU).inputs)

    def _seen(self, x: Tensor, nodes: Tensor | slice | None = slice(None)) -> Features:
        """What the model sees of some nodes: where labels are shown, also these; None: new ones."""
        if "labels" not in self._inputs:
            return x
        known = self._inputs["labels"].classes
        shown = torch.full((x.size(0),), -1) if nodes is None else known[nodes]
        return Labelled(x, shown, self._network.classes)

    def _part(self, nodes: np.ndarray, new: Any) -> Features:
        """What it sees of nodes of the graph, below what it sees of new ones."""
        numbers = torch.from_numpy(nodes)
        x = rows_of(self.dataset.features, numbers)
        if new is not None:
            x = stacked(new, x)
        if "labels" not in self._inputs:
            return x
        shown = self._inputs["labels"].classes[numbers]
        hidden = shown.new_full((x.size(0) - len(shown),), -1)
        return Labelled(x, torch.cat([hidden, shown]), self._network.classes)

    def _offset(self, new: New) -> Tensor:
        """What the reference says of new nodes, by their own columns: [m, C]."""
        assert self.run.reference is not None
        nowhere = torch.zeros((2, 0), dtype=torch.int64)
        alone = Dataset(new.x, nowhere, new.y, classes=self.dataset.classes)
        return self.run.reference.apply(alone, torch.full((len(new.ids),), -1))

    def _said(self, ids: list[str], outputs: Tensor, target: np.ndarray) -> Predicted:
        logits = outputs.detach().double().numpy()
        if not np.isfinite(logits).all():
            raise FileError("the model gives values that are not finite: it is broken")
        return Predicted(ids, self.task.answers(logits, target, self.found, self.names))

    def __repr__(self) -> str:
        return f"Answering({self.run!r}, {self.hops} hops)"


def memory_of(given: str | int | None) -> int | None:
    """A bound in bytes; None where none is given."""
    if given is None:
        return None
    return 0 if given in (0, "0") else bytes_of(given, CPU)


def refusal(run: SavedRun) -> str:
    """Why new nodes are not answered from their subtrees, whatever their columns; empty if so."""
    if run.corrects:
        return (
            "labels of training nodes correct this run's answers over the whole graph, which new "
            "nodes change: see 'sta predict --join', or train with --no-correct"
        )
    if why := ways.refusal(unwrapped(run.model)):
        return f"{why}: see 'sta predict --join'"
    return ""


def join_refusal(run: SavedRun) -> str:
    """Why no new nodes join the graph of a run; empty if they do."""
    try:
        refuse_to_join(run.dataset)
    except ValueError as error:
        return str(error)
    if run.config.data.encoding:
        return (
            "new nodes have no Laplacian eigenvectors (--encoding) of their own: those are of the "
            "whole graph, see 'sta predict --join'"
        )
    if run.reference is not None and run.reference.looks_around:
        return (
            f"the reference '{run.reference.name}' that the model stands on looks at neighbours, "
            "which new nodes change: see 'sta predict --join', or train with --no-portfolio"
        )
    if not ways.is_simple(run.graph):
        return "the graph has parallel edges, which a join makes one of: see 'sta predict --join'"
    return ""
