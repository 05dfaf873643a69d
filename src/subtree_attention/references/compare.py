"""Every reference that makes sense for a task, on the split of a run, the cheap ones first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from .. import _check
from . import graphs, links, models, trees
from .aims import Aim
from .columns import FOR_TREES, View
from .comparison import Comparison, Reference
from .linear import intercept
from .propagation import propagate

if TYPE_CHECKING:
    from ..datasets import Dataset
    from ..tasks import Problem, Task

MOST_SECONDS = 25.0
"""What is under way when they are over takes a few more: all in all half a minute."""
LEAST_SHARE = 0.1
"""Of the time: with less of it left, nothing is begun."""
MOST_MODELS = 60
"""Trees grow for each class and label: of more, that takes too long."""

LINEAR = {
    "class": "logistic regression",
    "labels": "logistic regression",
    "number": "ridge regression",
}
PLAIN = {"class": "largest class", "labels": "share of each label", "number": "mean"}


class Outputs(NamedTuple):
    """Outputs [U, ...] as the metric takes them; note and ended as `Reference` has them."""

    values: np.ndarray
    note: str = ""
    ended: bool = True


class Candidate(NamedTuple):
    """A reference to be computed.

    Attributes:
        name, words: see `Reference`.
        outputs: when to stop -> outputs.
        refusal: why it is left out, if it is.
    """

    name: str
    words: str
    outputs: Callable[[float], Outputs]
    refusal: str = ""


def compare(
    dataset: Dataset,
    task: Task,
    problem: Problem,
    *,
    most_seconds: float = MOST_SECONDS,
    watch: Callable[[Reference], None] | None = None,
) -> Comparison:
    """Fit references on the training units of a split, and score them on the others.

    Args:
        dataset: the graph, or many.
        task: what is learnt.
        problem: of the run whose split it is.
        most_seconds: for all of them; what does not fit in is left out, and said so.
        watch: told of each as soon as it is there.
    """
    start, limit = time.monotonic(), _check.number("most_seconds", most_seconds)
    end = start + limit
    scores = task.metric.on(problem.target.cpu(), problem.split.to("cpu"))

    def score(outputs: np.ndarray) -> float:
        return task.metric.sign * float(scores(torch.from_numpy(outputs))[1])

    found, left_out = list[Reference](), dict[str, str]()
    candidates = list(_candidates(dataset, task, problem, score))
    for number, one in enumerate(candidates):
        begun = time.monotonic()
        if one.refusal:
            left_out[one.words] = one.refusal
            continue
        if end - begun < LEAST_SHARE * limit and found:
            left_out[one.words] = f"{limit:g} s are over"
            continue
        try:
            given = one.outputs(begun + (end - begun) / (len(candidates) - number))
        except Exception as error:  # what is beside a training must not end it
            if not isinstance(error, (np.linalg.LinAlgError, *trees.failures())):
                raise
            why = (str(error) or type(error).__name__).splitlines()[0]
            left_out[one.words] = f"it cannot be fitted: {why}"
            continue
        _, val, test = scores(torch.from_numpy(given.values)).tolist()
        seconds = round(time.monotonic() - begun, 3)
        if not np.isfinite([val, test]).all():
            left_out[one.words] = "it has no score on this split"
            continue
        found.append(Reference(one.name, one.words, val, test, seconds, given.note, given.ended))
        if watch is not None:
            watch(found[-1])
    return Comparison(found, left_out)


Score = Callable[[np.ndarray], float]


def _candidates(
    dataset: Dataset, task: Task, problem: Problem, score: Score
) -> Iterator[Candidate]:
    if task.unit == "pair":
        yield from _of_links(problem)
        return
    aim = Aim.of(task, problem)
    back = _numbers(aim)
    constant = np.repeat(intercept(aim.shown.prior, aim.kind)[None], len(aim.values), 0)
    yield Candidate("constant", PLAIN[aim.kind], lambda _: Outputs(back(constant)))
    of = _of_graphs if task.unit == "graph" else _of_nodes
    yield from of(dataset, aim, lambda outputs: score(back(outputs)), back)


def _numbers(aim: Aim) -> Callable[[np.ndarray], np.ndarray]:
    """Outputs [U, C] as the metric takes them: numbers are [U], where the target has them."""
    if aim.kind != "number":
        return lambda outputs: outputs.astype(np.float64)
    return lambda outputs: outputs[:, 0].astype(np.float64) * aim.scale + aim.center


def _of_links(problem: Problem) -> Iterator[Candidate]:
    for name, words, logits in links.scored(problem):

        def outputs(_: float, logits: Callable[[], np.ndarray] = logits) -> Outputs:
            return Outputs(logits())

        yield Candidate(name, words, outputs)


def _of_nodes(
    dataset: Dataset, aim: Aim, score: Score, back: Callable[[np.ndarray], np.ndarray]
) -> Iterator[Candidate]:
    view, shown = View(dataset), aim.shown
    what = "propagation of numbers" if aim.kind == "number" else "label propagation"
    no_edges = "" if dataset.num_edges else "there are no edges"
    yield Candidate(
        "propagation",
        what,
        lambda _: Outputs(back(propagate(view.graph, shown, aim.kind, score))),
        no_edges,
    )
    for name, kind in models.KINDS.items():
        near = kind.columns != "own"

        def outputs(until: float, name: str = name, near: bool = near) -> Outputs:
            model, found = models.fit(name, view, shown, aim, score, until)
            return _said(back(found), model.predictor, _reduced(view, model) if near else "")

        words = (_trees_or_linear(kind.trees, aim.kind)) + " with neighbours" * near
        refusal = _refusal(kind.trees, aim)
        refusal = refusal or (
            no_edges if near else "" if dataset.x.size(1) else "there are no columns"
        )
        yield Candidate(name, words, outputs, refusal)


def _of_graphs(
    dataset: Dataset, aim: Aim, score: Score, back: Callable[[np.ndarray], np.ndarray]
) -> Iterator[Candidate]:
    made = cache(lambda: graphs.blocks(dataset))
    for name, of_trees, pooled in (
        ("sizes", False, False),
        ("logistic", False, True),
        ("trees", True, True),
    ):

        def outputs(until: float, of_trees: bool = of_trees, pooled: bool = pooled) -> Outputs:
            blocks = made() if pooled else made()[:1]
            model = models.fit_columns(of_trees, blocks, aim.shown, aim, score, until)
            return _said(back(model(blocks)), model)

        of = "sums and means of columns" if pooled else "sizes"
        words = f"{_trees_or_linear(of_trees, aim.kind)} of {of}"
        yield Candidate(name, words, outputs, _refusal(of_trees, aim))


def _trees_or_linear(of_trees: bool, kind: str) -> str:
    return "boosted trees" if of_trees else LINEAR[kind]


def _refusal(of_trees: bool, aim: Aim) -> str:
    if not of_trees:
        return ""
    count = aim.values.shape[1]
    many = f"{count:,} {'labels' if aim.kind == 'labels' else 'classes'} take too long"
    return trees.missing() or (many if count > MOST_MODELS else "")


def _reduced(view: View, model: models.Model) -> str:
    if model.columns.basis is None:
        return ""
    hops = "two hops" if model.columns.stays_sparse else "neighbours"
    rank, width = model.columns.basis.shape[1], view.x.shape[1]
    rank = min(rank, FOR_TREES) if model.columns.kind == "trees" else rank
    return f"means over {hops}: of {rank} components of {width:,} columns"


def _said(outputs: np.ndarray, predictor: models.Linear | trees.Trees, note: str = "") -> Outputs:
    late = "" if predictor.ended else "stopped by the time limit"
    return Outputs(outputs, "; ".join(filter(None, [note, late])), predictor.ended)
