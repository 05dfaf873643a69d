"""What the page can ask of a run: its graph, ids that match, lists of nodes, and one root.

Everything here is plain values, ready for JSON. Ids and labels are data and are sent as they are:
the page shows them as text.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch_geometric.data import Data

from ... import _check
from ...explanations import Explainer
from ...graph import Graph
from ...nn import STAGNN
from ...runs import folder as store
from ...runs.evaluate import load_data
from ...runs.folder import load
from ...runs.predict import graph_of
from ..explanation import Names
from .columns import Columns
from .subtree import Choice, take_apart

ORDERS = ("attention", "contribution")
LISTS = ("mistakes", "uncertain", "confident")
LISTED = 20
FOUND = 10
MOST_HOPS = 10
"""Levels that can be drawn: more rings are not to be told apart."""

KEPT = 2
"""Explanations that are kept: sliders and switches ask for the same root again, Back for the last.

One of a large graph takes some tens of megabytes.
"""


class UnknownNode(ValueError):
    """No node has this id."""


class Views:
    """A model and its graph, ready to be looked at.

    Args:
        model: in evaluation mode.
        data: its graph, see `Names` and `Columns` for what it may hold.
        graph: the walk of the model over that graph.
        title: what the page calls it.
    """

    @torch.no_grad()
    def __init__(self, model: STAGNN, data: Data, graph: Graph, title: str) -> None:
        logits = model(data.x, graph).double()
        if not bool(logits.isfinite().all()):
            raise store.RunFolderError("the model gives values that are not finite: it is broken")
        self._title, self._num_edges = title, int(data.num_edges)
        self._logits, self._probabilities = logits, logits.softmax(1)
        self._confidence, self._predicted = self._probabilities.max(1)
        self._names, self._columns = Names(data, logits.size(1)), Columns(data)
        labels = data.y if "y" in data else torch.full_like(self._predicted, -1)
        self._known = (labels >= 0) & (labels < logits.size(1))
        self._wrong = self._known & (self._predicted != labels)
        self._ids = [self._names.id(node) for node in range(len(logits))]
        self._node_of = {id: node for node, id in enumerate(self._ids)}
        self._folded = [id.casefold() for id in self._ids]
        self._explainer = Explainer(model, data.x, graph)
        self._explain = lru_cache(KEPT)(self._explainer)
        self._lock = Lock()  # one root at a time: each takes all cores as it is

    @classmethod
    def of_run(cls, run: Path, data_dir: Path | None = None, mirror: Path | None = None) -> Views:
        """Of a run folder; of several runs, the one with the best validation score."""
        model, data = load(run), load_data(run, data_dir=data_dir, mirror=mirror)
        config = store.config_of(store.best_run(run))
        return cls(model, data, graph_of(data, model, config), config.graph)

    def graph(self) -> dict[str, Any]:
        """What does not depend on a root."""
        return {
            "title": self._title,
            "nodes": len(self._ids),
            "edges": self._num_edges,
            "classes": self._names.classes,
            "hops": min(self._explainer.hops, MOST_HOPS),
            "heads": self._explainer.heads,
            "mistakes": int(self._wrong.sum()),
            "known": int(self._known.sum()),
        }

    def search(self, text: str) -> list[dict[str, Any]]:
        """Nodes whose id is the text, begins with it or holds it, in this order."""
        exact = [self._node_of[text]] if text in self._node_of else []
        found = dict.fromkeys(exact) | dict.fromkeys(self._matches(text.casefold()))
        return [self._brief(node) for node in list(found)[:FOUND]]

    def _matches(self, text: str) -> list[int]:
        starts: list[int] = []
        inside: list[int] = []
        for node, id in enumerate(self._folded):
            if id.startswith(text):
                starts.append(node)
                if len(starts) == FOUND:
                    break
            elif text in id and len(inside) < FOUND:
                inside.append(node)
        return starts + inside

    def listed(self, what: str) -> list[dict[str, Any]]:
        """The first nodes of a list: see `LISTS`."""
        _check.known("list", what, LISTS)
        order = self._confidence if what != "uncertain" else -self._confidence
        if what == "mistakes":
            wrong = self._wrong.nonzero()[:, 0]
            nodes = wrong[order[wrong].sort(descending=True, stable=True).indices]
        else:
            nodes = order.sort(descending=True, stable=True).indices
        return [self._brief(node) for node in nodes[:LISTED].tolist()]

    def node(
        self,
        id: str,
        hops: int = 3,
        head: int | None = None,
        by: str = "attention",
        cls: str | None = None,
    ) -> dict[str, Any]:
        """A root: its subtree, its logits, and what they are made of.

        Args:
            id: of the root.
            hops: levels to draw.
            head: 1 to H, or all.
            by: what chooses and sizes the nodes, see `ORDERS`.
            cls: name of the class to take apart; by default the predicted one.
        """
        if id not in self._node_of:
            raise UnknownNode(f"there is no node '{id}'")
        root = self._node_of[id]
        _check.integer("hops", hops, 0)
        _check.known("order", by, ORDERS)
        if head is not None and not 1 <= head <= self._explainer.heads:
            raise ValueError(f"there is no head {head}: heads are 1 to {self._explainer.heads}")
        explained = int(self._predicted[root]) if cls is None else self._names.find_class(cls)
        at = None if head is None else head - 1
        choice = Choice(min(hops, MOST_HOPS), at, by, explained)
        with self._lock:
            apart = take_apart(self._explain(root), choice)
        for drawn in apart["nodes"]:
            drawn["about"] = self._about(drawn["node"])
            drawn["walk"] = [self._ids[step] for step in drawn["walk"]]
        for told in (*apart["nodes"], *apart["parts"]["sources"]):
            told |= self._brief(told.pop("node"))
        return {
            **self._brief(root),
            "class": self._names.classes[explained],
            "logits": self._logits[root].tolist(),
            "probabilities": self._probabilities[root].tolist(),
            "columns": self._columns(root),
            **apart,
        }

    def _brief(self, node: int) -> dict[str, Any]:
        described = self._names.describe(node)
        return {
            "id": described.pop("node"),
            **described,
            "predicted": self._names.classes[int(self._predicted[node])],
            "probability": float(self._confidence[node]),
        }

    def _about(self, node: int) -> dict[str, Any]:
        """What is shown where a node is pointed at."""
        best = self._probabilities[node].topk(min(3, len(self._names.classes)))
        names = [self._names.classes[cls] for cls in best.indices.tolist()]
        return {
            "probabilities": list(zip(names, best.values.tolist(), strict=True)),
            "columns": self._columns(node),
        }
