"""Who competes on a graph of one's own: candidates, and what each is on this graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import _check
from ..config import MODELS, TASKS, Config, NodeClassification
from ..datasets import Dataset
from ..references import STACKED, Comparison
from ..runs import folder as files
from ..runs import portfolio as kept
from ..runs.portfolio import Portfolio, Tried, changes_to
from ..tasks import of as task_of
from ..tasks.metrics import Metric
from .recipes import recipe
from .run import check_reference, problem_of


@dataclass(frozen=True)
class Candidate:
    """A configuration that competes.

    Attributes:
        name: a short name, which is also that of a folder: letters, digits and hyphens.
        words: what is different about it, for people; they stand alone. {model} in them is the
            model that is trained.
        changes: settings other than the recipe's, by their plain names.
    """

    name: str
    words: str
    changes: Mapping[str, Any] = field(default_factory=dict)


OPEN_REFERENCE = "{reference}"
"""In the words of a candidate that stands on a reference: on the best one."""

_SMOOTHED = {"smoothing": 1, "dropout": 0.6}
PORTFOLIO: tuple[Candidate, ...] = (
    Candidate("plain", "{model}, with the recipe for a graph of this size"),
    Candidate("regularised", "more dropout, against overfitting", {"dropout": 0.6}),
    Candidate("ungated", "all heads of attention count alike", {"gate": "none"}),
    Candidate(
        "smoothed", "nodes are averaged with their neighbours first; more dropout", _SMOOTHED
    ),
    Candidate(
        "labels",
        "neighbours' known labels are features; smoothed",
        {**_SMOOTHED, "show_labels": 0.5},
    ),
    Candidate(
        "stacked",
        f"known labels and smoothed, and it adds to what {OPEN_REFERENCE} says",
        {**_SMOOTHED, "show_labels": 0.5, "reference": "logistic_neighbours"},
    ),
    Candidate(
        "deep",
        "STAFormer, two blocks of attention",
        {"model": "staformer", "layers": 2, "hidden_channels": 64, "dropout": 0.5, "lr": 0.005},
    ),
)
"""What competes on a graph of one's own, the simplest first: of equals the first wins. The
{reference} is the best one on validation nodes, where they were compared."""


ALL: Mapping[str, Any] = {"correct": True, "patience": 50}
"""Settings of every candidate, where its task has them."""


def entered(
    dataset: Dataset,
    candidates: Sequence[Candidate],
    changes: Mapping[str, Any],
    budget: float | None = None,
) -> Portfolio:
    """What competes on a graph: the recipe with each candidate's changes, and over them the user's.

    The first candidate must be one that can be trained; of the others, those that cannot be, and
    those that would train what an earlier one trains, are left out and named.
    """
    candidates = [_check.kind("a candidate", each, Candidate, "a Candidate") for each in candidates]
    if not candidates:
        raise ValueError("a portfolio needs a candidate")
    for each in candidates:
        if not kept.is_name(each.name):
            raise ValueError(
                f"a name is of letters, digits and hyphens, got {_check.said(each.name)}"
            )
    first, *others = candidates
    base = configured(dataset, first, changes)
    refuse_other_tasks(base)
    task_of(base.task).accept(dataset)
    words = first.words.replace("{model}", base.model.title)
    tried, given = [Tried(first.name, words)], sorted(changes)
    portfolio = Portfolio(base, tried, given=given, budget=budget)
    for each in others:
        enter(portfolio, dataset, each, changes)
    return portfolio


def enter(
    portfolio: Portfolio, dataset: Dataset, candidate: Candidate, changes: Mapping[str, Any]
) -> None:
    """Add a candidate, unless it cannot be trained or is there already.

    What the model that all share does not have, a candidate goes without: the rest of it competes.
    """
    named = changes.get("model", candidate.changes.get("model", portfolio.base.model.name))
    model = MODELS[_check.known("model", named, MODELS)]
    lacks = sorted(_of_models() & candidate.changes.keys() - model.__dataclass_fields__.keys())
    own = {n: value for n, value in candidate.changes.items() if n not in lacks}
    fitting = replace(candidate, changes={**own, "model": model.name})
    try:
        config = configured(dataset, fitting, changes)
        check_reference(config, dataset)
        problem_of(config, dataset, config.fit.seed)
    except ValueError as error:
        portfolio.left_out[candidate.name] = _why(fitting, changes, portfolio.base, error)
        return
    if other := portfolio.having(config):
        portfolio.left_out[candidate.name] = f"here it is the same as {other.name}"
        return
    words = candidate.words.replace("{model}", config.model.title)
    if lacks:
        without = " and ".join(map(option_of, lacks))
        words += f" (without {without}, which {config.model.title} does not have)"
    portfolio.tried.append(Tried(candidate.name, words, changes_to(portfolio.base, config)))


def _why(candidate: Candidate, changes: Mapping[str, Any], config: Config, error: Exception) -> str:
    """Why a candidate cannot be trained, if that is for what its task or its model has not."""
    mine = type(config.task).__dataclass_fields__
    own = candidate.changes.keys() - mine.keys()
    words = [kind.word for kind in TASKS.values() if own & kind.__dataclass_fields__.keys()]
    if words:
        return f"it is for --task {' or '.join(words)}"
    model = MODELS[candidate.changes["model"]]
    lacks = sorted(_of_models() & changes.keys() - model.__dataclass_fields__.keys())
    if lacks:
        return f"{model.title} has no {' and no '.join(map(option_of, lacks))}, which is set"
    return str(error)


def _of_models() -> set[str]:
    """All settings of any model."""
    return {name for model in MODELS.values() for name in model.__dataclass_fields__}


def option_of(setting: str) -> str:
    """As the command line spells it."""
    return f"--{setting.replace('_', '-')}"


def configured(dataset: Dataset, candidate: Candidate, changes: Mapping[str, Any]) -> Config:
    """The configuration of a candidate: what the user says goes before what it says."""
    chosen = {**candidate.changes, **changes}
    config = recipe(dataset, **chosen)
    there = config.flat()
    return config.replace(**{n: v for n, v in ALL.items() if n in there and n not in chosen})


def refuse_other_tasks(config: Config) -> None:
    """Links and graphs have one recipe each."""
    if task_of(config.task).unit != "node":
        raise ValueError(
            "a portfolio is for classes, labels and numbers of nodes; links and graphs have one "
            "recipe: train it with fit(recipe(data, ...), data=data)"
        )


def differences(there: Portfolio, asked: Portfolio) -> list[str]:
    """What decides the end and is not as it was begun, in words."""
    found = there.base.differences(asked.base)
    ours, theirs = ([one for one in each.tried if not one.searched] for each in (asked, there))
    names = [", ".join(one.name for one in each) for each in (theirs, ours)]
    if names[0] != names[1]:
        found.append(f"candidates {names[0]}, not {names[1]}")
    else:
        pairs = zip(theirs, ours, strict=True)
        found += [f"another '{old.name}'" for old, new in pairs if not _same(old, new)]
    for name, old, new in (
        ("rungs", there.rungs, asked.rungs),
        ("budget", there.budget, asked.budget),
        ("search", there.searches, asked.searches),
    ):
        if old != new:
            found.append(f"{name} {_shown(old)}, not {_shown(new)}")
    return found


def _same(old: Tried, new: Tried) -> bool:
    """Whether they are one candidate; on which reference it stands may have been decided since."""
    decided = {"reference"} if OPEN_REFERENCE in new.words else set()
    names = (old.changes.keys() | new.changes.keys()) - decided
    return all(old.changes.get(name) == new.changes.get(name) for name in names)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, float):
        return f"{value:g} s"
    return "yes" if value else "none"


def stand_on_best(
    portfolio: Portfolio, beside: Comparison | None, metric: Metric, folder: Path
) -> None:
    """Let candidates whose words leave open on which {reference} they stand, stand on the best one
    whose fit has ended.

    Not if the user says which. Nor if they have begun, of which a run folder tells: in it may be
    the reference that was fitted for them.
    """
    best = None
    if beside is not None:
        best = beside.best(metric, lambda one: one.ended and one.name in STACKED)
    for tried in portfolio.tried:
        chosen = tried.changes.get("reference")
        if chosen is None or OPEN_REFERENCE not in tried.words:
            continue
        if best is not None and not (folder / files.COMPETING / tried.name).exists():
            tried.changes["reference"] = chosen = best.name
        words = NodeClassification.__dataclass_fields__["reference"].metadata["words"]
        tried.words = tried.words.replace(OPEN_REFERENCE, words[chosen])
