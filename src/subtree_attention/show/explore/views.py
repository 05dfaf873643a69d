"""What the page can ask of a run: its graph, ids that match, lists of nodes, and one root.

Everything here is plain values, ready for JSON. Ids and labels are data and are sent as they are:
the page shows them as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from threading import Lock, Thread
from typing import Any

import numpy as np
import torch

from ... import _check
from ...datasets.features import rows_of
from ...datasets.inputs import Inputs
from ...datasets.tables.columns import Category, Number
from ...datasets.tables.telling import CELL
from ...explanations import Explanation
from ...runs import SavedRun, WhatIf, open
from ...runs.saved import Folder
from ...tasks.answers import OfClasses
from ..changes import parse
from ..explanation import brief
from ..inputs import columns
from ..subtree import Choice, take_apart
from ..subtree_svg import subtree_svg
from .choosing import ALL, Choosing
from .columns import MISSING, Columns
from .map import Map
from .table import table_of

ORDERS = ("attention", "contribution")
LOOKS = ("light", "dark")
LISTS = ("mistakes", "uncertain", "confident")
LISTED = 20
FOUND = 10
MANY = 100_000
"""Nodes from which on a first search would be waited for, and is made ready before it is asked."""
WORDS, ONE_OF = 40, 200
"""Words of a text that can be left out, and values of a category that can be chosen, at most."""
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
        self._explain = lru_cache(KEPT)(self._explained)
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
        rather: str | None = None,
        opened: Mapping[int | str, int] | None = None,
        changes: Iterable[str] = (),
    ) -> dict[str, Any]:
        """A root: its subtree, its logits, and what they are made of.

        Args:
            id: of the root.
            hops: levels to draw.
            head: 1 to H, or all.
            by: what chooses and sizes the nodes, see `ORDERS`.
            cls: name of the class to take apart; by default the one predicted after the changes.
            rather: of another class: then the difference of their logits is taken apart.
            opened: how many nodes to draw of a level, by its hop, where more than at first.
            changes: what if, as texts, see `show.changes`: then all is as it is after them, and
                "changed" says what was before.
        """
        root = self._find(id)
        _check.integer("hops", hops, 0)
        _check.known("order", by, ORDERS)
        if head is not None and not 1 <= head <= self._explainer.heads:
            raise ValueError(f"there is no head {head}: heads are 1 to {self._explainer.heads}")
        at = None if head is None else head - 1
        with self._lock:
            explanation, what_if = self._explain(root, tuple(changes))
            explained, against = self._pair(root, what_if, cls, rather)
            choice = Choice(min(hops, MOST_HOPS), at, by, explained, against, opened or {})
            apart = take_apart(explanation, choice)
        after = {} if what_if is None else self._changed(what_if, changes)
        own = {name: after[name] for name in ("predicted", "probability") if after}
        for drawn in apart["nodes"]:
            drawn["about"] = self._about(drawn["node"], after if drawn["node"] == root else {})
            drawn["walk"] = [self._ids[step] for step in drawn["walk"]]
        for told in (*apart["nodes"], *apart["parts"]["sources"]):
            node = told.pop("node")
            told |= self._brief(node) | (own if node == root else {})
        return {
            **self._brief(root),
            "class": self._classes[explained],
            "rather": rather,
            "logits": self._run.logits[root].tolist(),
            "probabilities": self._run.probabilities[root].tolist(),
            "columns": self._told_columns(root, after, letters=CELL),
            "inputs": self._inputs(root),
            **after,
            **apart,
        }

    def svg(self, look: str = "light", **asked: Any) -> bytes:
        """What `node` gives, as a picture that stands alone: "light" or "dark"."""
        _check.known("look", look, LOOKS)
        view = self.node(**asked)
        for node in view["nodes"]:
            node["picture"] = self._run.dataset.picture(node["number"])
        label = f"Subtree of {view['name'] or view['id']}, predicted {view['predicted']}"
        by = asked.get("by", "attention")
        drawn = subtree_svg(view, classes=self._classes, by=by, look=look, label=label)
        return drawn.encode(errors="replace")  # an id may hold half of a surrogate pair

    def table(self, **asked: Any) -> bytes:
        """The nodes that `node` gives by level, and what is not drawn of each, as CSV."""
        return table_of(self.node(**asked)).encode(errors="replace")

    def columns(
        self,
        id: str,
        cls: str | None = None,
        rather: str | None = None,
        changes: Iterable[str] = (),
    ) -> dict[str, Any]:
        """Which columns of the table made the logit of a root, see `inputs.columns`."""
        root = self._find(id)
        with self._lock:
            explanation, what_if = self._explain(root, tuple(changes))
            explained, against = self._pair(root, what_if, cls, rather)
            return columns(self._run, explanation, explained, against)

    def _pair(
        self, root: int, what_if: WhatIf | None, cls: str | None, rather: str | None
    ) -> tuple[int, int | None]:
        """The class that is explained, and the one that it might be rather.

        By default the one predicted now; where that is what it might be rather, the one before.
        """
        named = self._run.dataset.find_class
        before = predicted = int(self._answers.given[root])
        if what_if is not None:
            assert isinstance(what_if.answers, OfClasses)  # as above
            predicted = int(what_if.answers.given[1])
        against = None if rather is None else named(rather)
        default = before if predicted == against else predicted
        explained = default if cls is None else named(cls)
        if against == explained:
            raise ValueError(f"'{rather}' is the class that is explained: say another one")
        return explained, against

    def _explained(self, root: int, changes: tuple[str, ...]) -> tuple[Explanation, WhatIf | None]:
        """What a root is made of, after changes if there are any."""
        if not changes:
            return self._explainer(root), None
        what_if = self._run.what_if(self._ids[root], **parse(self._run, changes))
        return what_if.after, what_if

    def _changed(self, what_if: WhatIf, changes: Iterable[str]) -> dict[str, Any]:
        """What a root says after changes, and under "changed" what it said before."""
        before, after = (what_if.answers.told(unit) for unit in (0, 1))
        sure_before, sure_after = (what_if.answers.sure(unit) for unit in (0, 1))
        values = parse(self._run, changes)["values"]
        return {
            "predicted": after,
            "probability": sure_after,
            "logits": what_if.after.logits.tolist(),
            "probabilities": what_if.probabilities[1].tolist(),
            "changed": {
                "changes": [{"text": text, "told": self._chip(text)} for text in changes],
                "kept": what_if.kept,
                "columns": {
                    **{name: value or MISSING for name, value in values.items()},
                    "degree": self._columns.degree(what_if.node, what_if.changes),
                },
                "predicted": before,
                "probability": sure_before,
                "logits": what_if.before.logits.tolist(),
                "probabilities": what_if.probabilities[0].tolist(),
            },
        }

    def _chip(self, text: str) -> str:
        """A change in few words; nodes by their names."""
        made, data = parse(self._run, [text]), self._run.dataset
        called = {id: data.title(data.find(id)) for id in made["without"]}
        ends = {id: data.title(data.find(id)) for pair in made["cut"] for id in pair}
        return ", ".join(
            [
                *(f"without {name}" for name in called.values()),
                *(f"without {ends[one]} → {ends[other]}" for one, other in made["cut"]),
                *(f"{name} without '{word}'" for name, word in made["words"]),
                *(f"{name} = {value or MISSING}" for name, value in made["values"].items()),
            ]
        )

    def _inputs(self, root: int) -> dict[str, Any]:
        """What can be changed of the root's own columns: words that it has, or the value."""
        row = rows_of(self._run.dataset.features, torch.tensor([root]))
        own = (row.to_dense() if row.is_sparse_csr else row)[0].numpy()
        told = {}
        for each in Inputs(self._run.dataset):
            if not each.takes_values:
                continue
            block = own[each.places]
            some = np.argsort(-block, kind="stable")[: min(np.count_nonzero(block), WORDS)]
            words = [each.words[place] for place in some.tolist()] if each.words else []
            one_of = each.words if isinstance(each.column, Category) else []
            told[each.name] = {
                "words": [] if one_of else words,
                "one_of": one_of[:ONE_OF],
                "numeric": isinstance(each.column, Number),
            }
        return told

    def _find(self, id: str) -> int:
        if id not in self._node_of:
            raise UnknownNode(f"there is no node '{id}'")
        return self._node_of[id]

    def _brief(self, node: int) -> dict[str, Any]:
        told = brief(self._run, node)
        has_picture = self._run.dataset.picture(node) is not None
        return {"id": told.pop("node"), "number": node, **told, "picture": has_picture}

    def _told_columns(
        self, node: int, after: dict[str, Any], **letters: int
    ) -> list[tuple[str, ...]]:
        """Names and values, and the value after changes where that is another."""
        now = after["changed"]["columns"] if after else {}
        return [
            (name, value, now[name]) if now.get(name, value) != value else (name, value)
            for name, value in self._columns(node, **letters)
        ]

    def _about(self, node: int, after: dict[str, Any]) -> dict[str, Any]:
        """What is shown where a node is pointed at; `after`: see `_changed`."""
        shares = np.asarray(after.get("probabilities", self._run.probabilities[node]))
        best = np.argsort(-shares, kind="stable")[:3]
        pairs = [(self._classes[cls], float(shares[cls])) for cls in best]
        return {"probabilities": pairs, "columns": self._told_columns(node, after)}
