"""What the page can ask of a run: its graph, ids that match, lists of nodes, and one root.

Everything here is plain values, ready for JSON. Ids and labels are data and are sent as they are:
the page shows them as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from threading import Lock, Thread
from typing import Any

import numpy as np

from ... import _check
from ...datasets.tables.telling import CELL
from ...runs import SavedRun, open
from ...runs.saved import Folder
from ...tasks.answers import OfClasses
from ..explanation import brief
from ..subtree import Choice, take_apart
from .choosing import ALL, Choosing
from .columns import Columns
from .map import Map

ORDERS = ("attention", "contribution")
LISTS = ("mistakes", "uncertain", "confident")
LISTED = 20
FOUND = 10
MANY = 100_000
"""Nodes from which on a first search would be waited for, and is made ready before it is asked."""
MOST_HOPS = 10
"""Levels that can be drawn: more rings are not to be told apart."""

KEPT = 2
"""Explanations that are kept: sliders and switches ask for the same root again, Back for the last.

One of a large graph takes some tens of megabytes.
"""


EXPLAINED = "'sta explain' and 'sta report' show"


class UnknownNode(ValueError):
    """No node has this id."""


class Views:
    """A run, ready to be looked at.

    Args:
        run: whose model is explained, on whose graph.
    """

    def __init__(self, run: SavedRun) -> None:
        if run.task.kind != "class" or run.task.unit != "node":
            shown = "'sta report' shows" if run.task.unit == "pair" else EXPLAINED
            raise ValueError(
                f"the page draws classes of nodes, and this run is of {run.config.task.word}: "
                f"{shown} it"
            )
        self._run, self._classes = run, list(run.dataset.classes)
        answers = run.answers
        assert isinstance(answers, OfClasses)  # as the task says
        self._answers, self.map = answers, Map(run)
        self.choosing = Choosing(self._classes, answers.target, answers.given, run.split)
        self._ids, self._columns = run.dataset.node_ids, Columns(run.dataset)
        self._node_of = {id: node for node, id in enumerate(self._ids)}
        self._explainer = run.explainer
        if not self._explainer.exact:
            raise ValueError(
                f"{run.config.model.title} has no single level of attention to draw: its logits "
                "are attributed to nodes, see sta explain"
            )
        self._explain = lru_cache(KEPT)(self._explainer)
        self._lock = Lock()  # one root at a time: each takes all cores as it is

        if len(self._ids) >= MANY:
            Thread(target=self._make_search_ready, daemon=True).start()

    @classmethod
    def of_run(cls, folder: Folder) -> Views:
        """Of a run folder; of several runs, the one with the best validation score."""
        return cls(open(folder, device="cpu"))

    def graph(self) -> dict[str, Any]:
        """What does not depend on a root."""
        told = self._run.dataset.told
        return {
            "title": self._run.config.data.graph,
            "nodes": len(self._ids),
            "edges": self._run.dataset.num_edges,
            "classes": self._classes,
            "hops": min(self._explainer.hops, MOST_HOPS),
            "heads": self._explainer.heads,
            "splits": self.choosing.counts(),
            "pictures": told is not None and told.pictures is not None,
        }

    def search(self, text: str) -> list[dict[str, Any]]:
        """Nodes by id, name or any column of their table, see `Dataset.matches`: "column" is where
        the text stands (None: it is the id), "excerpt" what stands there."""
        return [
            {**self._brief(node), "column": column, "excerpt": excerpt}
            for node, column, excerpt in self._run.dataset.matches(text, FOUND)
        ]

    def _make_search_ready(self) -> None:
        with suppress(ValueError):  # a damaged table is named when somebody asks
            self._run.dataset.found("\uffff")  # what nobody writes: all columns are looked through

    def picture(self, id: str) -> bytes:
        """The picture of a node, a PNG."""
        picture = self._run.dataset.picture(self._find(id))
        if picture is None:
            raise UnknownNode(f"there is no picture of the node '{id}'")
        return picture

    def listed(self, what: str, split: str = ALL, **chosen: Any) -> list[dict[str, Any]]:
        """The first nodes of a list, see `LISTS`, among those that are chosen, see `Choosing`."""
        _check.known("list", what, LISTS)
        among = self.choosing.nodes(split, **chosen)
        if what == "mistakes":
            return [self._brief(node) for node in self._answers.mistakes(among)[:LISTED]]
        nodes = np.flatnonzero(among)
        sure = self._answers.sureness[nodes]
        order = np.argsort(sure if what == "uncertain" else -sure, kind="stable")
        return [self._brief(node) for node in nodes[order[:LISTED]].tolist()]

    def briefs(self, nodes: list[int]) -> list[dict[str, Any]]:
        """The same of nodes by their numbers."""
        return [self._brief(_check.index("node", node, len(self._ids))) for node in nodes[:LISTED]]

    def node(
        self,
        id: str,
        hops: int = 3,
        head: int | None = None,
        by: str = "attention",
        cls: str | None = None,
        opened: Mapping[int | str, int] | None = None,
    ) -> dict[str, Any]:
        """A root: its subtree, its logits, and what they are made of.

        Args:
            id: of the root.
            hops: levels to draw.
            head: 1 to H, or all.
            by: what chooses and sizes the nodes, see `ORDERS`.
            cls: name of the class to take apart; by default the predicted one.
            opened: how many nodes to draw of a level, by its hop, where more than at first.
        """
        root = self._find(id)
        _check.integer("hops", hops, 0)
        _check.known("order", by, ORDERS)
        if head is not None and not 1 <= head <= self._explainer.heads:
            raise ValueError(f"there is no head {head}: heads are 1 to {self._explainer.heads}")
        run = self._run
        predicted = int(self._answers.given[root])
        explained = predicted if cls is None else run.dataset.find_class(cls)
        at = None if head is None else head - 1
        choice = Choice(min(hops, MOST_HOPS), at, by, explained, opened or {})
        with self._lock:
            apart = take_apart(self._explain(root), choice)
        for drawn in apart["nodes"]:
            drawn["about"] = self._about(drawn["node"])
            drawn["walk"] = [self._ids[step] for step in drawn["walk"]]
        for told in (*apart["nodes"], *apart["parts"]["sources"]):
            told |= self._brief(told.pop("node"))
        return {
            **self._brief(root),
            "class": self._classes[explained],
            "logits": run.logits[root].tolist(),
            "probabilities": run.probabilities[root].tolist(),
            "columns": self._columns(root, letters=CELL),
            **apart,
        }

    def _find(self, id: str) -> int:
        if id not in self._node_of:
            raise UnknownNode(f"there is no node '{id}'")
        return self._node_of[id]

    def _brief(self, node: int) -> dict[str, Any]:
        told = brief(self._run, node)
        has_picture = self._run.dataset.picture(node) is not None
        return {"id": told.pop("node"), "number": node, **told, "picture": has_picture}

    def _about(self, node: int) -> dict[str, Any]:
        """What is shown where a node is pointed at."""
        shares = self._run.probabilities[node]
        best = np.argsort(-shares, kind="stable")[:3]
        pairs = [(self._classes[cls], float(shares[cls])) for cls in best]
        return {"probabilities": pairs, "columns": self._columns(node)}
