"""What if: a node of a run without some nodes, edges or words, or with other values; in the words
of its tables.

run.what_if("film-7", without=["film-3"], values={"year": 1999}).probabilities
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import subtree_attention as sta  # what shows it stands above, and is called by its public name

from .. import _check
from ..datasets.features import rows_of
from ..datasets.inputs import Inputs
from ..explanations import Changes, Explanation
from ..explanations.changes import listed, pairs
from ..tasks.answers import Answers, OfNames

if TYPE_CHECKING:
    from .saved import SavedRun


@dataclass(frozen=True, eq=False)
class WhatIf:
    """What a run says of a node, before and after changes.

    Attributes:
        run: whose.
        node: its number.
        changes: those, by numbers.
        told: the same in words.
        before, after: what its logits are made of.
        kept: what stays as trained although it might depend on what is changed, in words.
    """

    run: SavedRun
    node: int
    changes: Changes
    told: list[str]
    before: Explanation
    after: Explanation
    kept: list[str]

    @cached_property
    def answers(self) -> Answers:
        """What is predicted before and after: two units."""
        run, pair = self.run, (self.before, self.after)
        logits = torch.stack([each.logits for each in pair]).double().numpy()
        target = run.target[[self.node, self.node]]
        return run.task.answers(logits, target, run.found, run.task.names(run.dataset))

    @property
    def probabilities(self) -> np.ndarray:
        """Before and after, calibrated: [2, C]."""
        if not isinstance(self.answers, OfNames):
            raise ValueError("numbers are predicted, which have no probabilities: see predicted")
        return self.answers.probabilities

    @property
    def predicted(self) -> list[Any]:
        """Before and after: a class, a list of labels, or a number."""
        return self.answers.predicted

    def _repr_html_(self) -> str:
        """What a notebook shows: a table of before and after."""
        return sta.as_html(self)

    def __repr__(self) -> str:
        before, after = (self.answers.told(unit) for unit in (0, 1))
        return f"WhatIf({'; '.join(self.told)}: {before} -> {after})"


def what_if(
    run: SavedRun,
    node: str,
    without: Iterable[str] = (),
    cut: Iterable[tuple[str, str]] = (),
    values: Mapping[str, Any] | None = None,
    words: Iterable[tuple[str, str]] = (),
) -> WhatIf:
    """See `SavedRun.what_if`."""
    if run.task.unit != "node":
        raise ValueError(f"what-if is about nodes, and this model is of {run.task.unit}s")
    data, root = run.dataset, run.dataset.find(str(node))
    without = [str(id) for id in listed("without", without)]
    cut, words = pairs("cut", cut), pairs("words", words)
    _check.kind("values", values or {}, Mapping, "a dictionary of columns and values")
    nodes = tuple(dict.fromkeys(data.find(id) for id in without))
    if root in nodes:
        raise ValueError(f"'{data.id(root)}' is the node asked about: it cannot be left out itself")
    edges = [edge for pair in cut for edge in _edges(run, *map(str, pair))]
    columns = _columns(run, root, dict(values or {}), words)
    changes = Changes(nodes, tuple(dict.fromkeys(edges)), columns)
    told = [f"without {id}" for id in without]
    told += [f"without the edge {source} > {target}" for source, target in cut]
    told += [f"{column} = {_said(value)}" for column, value in (values or {}).items()]
    told += [f"{column} without '{word}'" for column, word in words]
    if not told:
        raise ValueError("nothing is changed: name nodes, edges, words or values")
    pair = run.explainer(root), run.explainer(root, changes)
    return WhatIf(run, root, changes, told, *pair, kept(run, changes))


def kept(run: SavedRun, changes: Changes) -> list[str]:
    """What stays as trained although it might depend on what is changed, in words."""
    said = ["nothing is trained again: weights and calibration stay"]
    if changes.of_graph and run.config.data.encoding:
        said.append("Laplacian eigenvectors stay those of the whole graph")
    if changes.columns and any(each.takes_values for each in Inputs(run.dataset)):
        said.append("columns are scaled as in training")
    if run.reference is not None and (changes.columns or run.reference.looks_around):
        said.append(f"what the reference '{run.reference.name}' says stays")
    if run.corrects:
        said.append("what known labels correct stays")
    return said


def _edges(run: SavedRun, source: str, target: str) -> list[tuple[int, int]]:
    """An edge as it is walked: in both directions, unless the graph is directed."""
    data, schema = run.dataset, run.dataset.schema
    pair = data.find(source), data.find(target)
    known = schema is not None and schema.ends is not None
    directed = schema.directed if known and schema else not run.graph.is_symmetric
    both = [pair] if directed else [*dict.fromkeys((pair, pair[::-1]))]
    found = [edge for edge in both if run.graph.has_edge(*edge)]
    if not found:
        back = directed and run.graph.has_edge(*pair[::-1])
        hint = f": edges are directed, and there is one from '{target}' to '{source}'" * back
        raise ValueError(f"there is no edge from '{source}' to '{target}'{hint}")
    return found


def _columns(
    run: SavedRun, root: int, values: dict[str, Any], words: list[tuple[str, str]]
) -> dict[int, float]:
    """The features of a root that are other ones then, by their number."""
    if not values and not words:
        return {}
    inputs = Inputs(run.dataset)
    row = rows_of(run.dataset.features, torch.tensor([root]))
    before = (row.to_dense() if row.is_sparse_csr else row)[0].numpy()
    after = before.copy()
    for name, value in values.items():
        if (feature := inputs.feature(str(name))) is not None:
            after[feature] = _number(str(name), value)
            continue
        each = inputs.find(str(name))
        after[each.places] = each.with_value(value)
    for name, word in words:
        each = inputs.find(str(name))
        after[each.places] = each.without_word(after[each.places], str(word))
    return {int(at): float(after[at]) for at in np.flatnonzero(before != after)}


def _number(name: str, value: Any) -> float:
    try:
        return _check.number(f"'{name}'", float(value), -np.inf)
    except (TypeError, ValueError):
        raise ValueError(f"'{name}' is a number, got {_check.said(value)}") from None


def _said(value: Any) -> str:
    return "missing" if value is None or value == "" else str(value)
