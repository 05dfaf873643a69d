"""What a report tells of the runs of a folder, above all of the best of them; no markup here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from torch import nn

from ...explanations import Explanation
from ...io import FileError
from ...nn import STAGNN, STAConv, unwrapped
from ...references import Comparison
from ...runs import SavedRun, open_all
from ...runs.folder import METRICS, RunResult
from ...runs.saved import best, score
from ...tasks.answers import OfClasses, OfLabels, OfNumbers
from ...tasks.calibration import Bin
from ...tasks.quality import AnyQuality
from .. import graphs, inputs, subtree
from ..explanation import Output, brief, describe, output
from ..subtree import Choice, strongest
from ..text import counted

MISTAKES = 10
SOURCES = 5
"""Nodes that are named for each mistake."""
HOPS, DRAWN = 3, 26
"""Levels and nodes that are drawn for each mistake."""


@dataclass(frozen=True, kw_only=True)
class RunLine(RunResult):
    """A run: its scores at its best epoch, also that of its training nodes."""

    train: float


@dataclass(frozen=True)
class Findings:
    """All of a report.

    Attributes:
        lines: every finished run.
        references: what simple models reached on the split of run 0, if that was asked for.
        run: the run with the best validation score; what follows is about it alone.
        quality: of its test nodes, as are bins and mistakes.
        bins: confidence against accuracy, before and after calibration.
        hop_weights: [K + 1, 1 or H], where the aggregation over hops has them.
        gates: [K + 1, H], where heads are gated.
        powers: [K, H], of the denominators at hops 1 .. K, where they are learned.
        mistakes: those that the model is most sure of, or numbers that are farthest off, see
            `brief`; "output" is what is explained: the logit of the predicted class, of a wrong
            label, or the number. "sources" are the nodes that spoke most for it and what each
            "adds", "others" how many more there are; None if the model is none that can be
            explained. Of a node, "sum" is the output, and "parts" is by name what besides the
            sources adds up to it, see `subtree.Strongest`; "columns" is what columns add to it, or
            to how far it is above the true class, and "subtree" is drawn, see `subtree.of_run`.
        wrong: how many there are in all.
    """

    lines: list[RunLine]
    references: Comparison | None
    run: SavedRun
    quality: AnyQuality
    bins: tuple[list[Bin], ...]
    hop_weights: np.ndarray | None
    gates: np.ndarray | None
    powers: np.ndarray | None
    mistakes: list[dict[str, Any]]
    wrong: int

    def summary(self, name: str) -> tuple[float, float | None]:
        """Mean and sample standard deviation of a score over the runs; no deviation of one run."""
        values = [getattr(line, name) for line in self.lines]
        return mean(values), stdev(values) if len(values) > 1 else None


def gather(folder: str | Path, *, device: str = "auto") -> Findings:
    """Ask the best model of a folder about its graph; nothing is trained."""
    runs = open_all(folder, device=device)
    lines, run = [_line(run) for run in runs], best(runs)
    test = run.split.test.numpy()
    if not test.any():
        raise FileError(f"{folder}: no node is in the test split, so there is no report")
    bins: tuple[list[Bin], ...] = ()
    if run.task.calibrates:
        some = run.logits[test], run.target[test]
        bins = tuple(
            run.task.reliability(*some, as_is) for as_is in ({"temperature": 1.0}, run.found)
        )
    wrong = run.answers.mistakes(test)
    told = _mistakes(wrong[:MISTAKES], run)
    return Findings(
        lines=lines,
        references=next(filter(None, (run.references for run in runs)), None),
        run=run,
        quality=score(run).quality,
        bins=bins,
        **_levels(unwrapped(run.model)),
        mistakes=told,
        wrong=len(wrong),
    )


def _line(run: SavedRun) -> RunLine:
    at = run.result.best_epoch
    train = {epoch.epoch: epoch.train for epoch in run.curves}.get(at)
    if train is None:
        raise FileError(f"{run.folder / METRICS} does not have the best epoch, {at}")
    return RunLine(**asdict(run.result), train=train)


def _levels(model: nn.Module) -> dict[str, Any]:
    """Learned weights of the hops, of the heads at each hop, and powers of denominators, as far as
    the model has them."""
    conv = getattr(model, "conv", None)
    if not isinstance(conv, STAConv):
        return {"hop_weights": None, "gates": None, "powers": None}
    return {
        "hop_weights": _learned(conv.aggregation, conv.aggregation.hop_weights),
        "gates": _learned(conv.gate, conv.gate),
        "powers": _learned(conv.readout, conv.readout),
    }


def _learned(part: nn.Module, ask: Callable[[], torch.Tensor | None]) -> np.ndarray | None:
    """What a part says, if it has learned something."""
    said = ask() if any(True for _ in part.parameters()) else None
    return None if said is None else said.detach().double().cpu().numpy()


def _mistakes(units: list[int], run: SavedRun) -> list[dict[str, Any]]:
    if run.task.unit == "graph":
        return [_graph(unit, run) for unit in units]
    if not units or not isinstance(unwrapped(run.model), STAGNN):
        return [{**brief(run, unit), "output": "", "sources": None} for unit in units]
    return [_node(unit, run) for unit in units]


def _graph(unit: int, run: SavedRun) -> dict[str, Any]:
    """A graph, and the nodes without which its output would change most, either way."""
    told = graphs.of_run(run, run.unit_ids[unit], top=SOURCES)
    nodes = [
        {**source, "adds": [source["adds"]], "own": False, "label": "", "split": None}
        for source in told["sources"]
    ]
    more = {"output": told["class"], "sources": nodes, "others": told["rest"]}
    return {**brief(run, unit), **more}


def _node(node: int, run: SavedRun) -> dict[str, Any]:
    """A node, and those that led most to what is wrong: of a label that is missed, or a number that
    is too low, those that took away most."""
    explanation, about = run.explainer(node), output(run, node)
    truth = int(run.target[node]) if isinstance(run.answers, OfClasses) else None
    found = strongest(explanation, about, SOURCES, _direction(run, node, about.index), truth)
    others = {counted(found.others, "other node"): found.others_add} if found.others else {}
    return {
        **brief(run, node),
        "output": about.name,
        "sources": [
            {**describe(run, source), "own": source == node, "adds": adds}
            for source, adds in found.sources
        ],
        "others": found.others,
        "parts": {**others, **found.parts},
        "sum": found.whole,
        "columns": _columns(run, explanation, about, truth),
        "subtree": _subtree(run, explanation, about),
    }


def _columns(
    run: SavedRun, explanation: Explanation, about: Output, truth: int | None
) -> dict[str, Any] | None:
    """Which columns of the user's tables made it, see `inputs.columns`; without tables, they have
    no names."""
    if run.dataset.schema is None:
        return None
    return inputs.columns(run, explanation, about.index, truth, SOURCES, about.scale)


def _subtree(run: SavedRun, explanation: Explanation, about: Output) -> dict[str, Any]:
    """What is drawn: classes by attention, else what is added, on the scale of the output."""
    by = "attention" if isinstance(run.answers, OfClasses) else "contribution"
    told = subtree.of_run(run, explanation, Choice(HOPS, None, by, about.index), DRAWN)
    rests = (level["rest"] for level in told["levels"])
    for part in (*told["nodes"], *filter(None, rests)):
        part["contribution"] *= about.scale
    return {**told, "by": by}


def _direction(run: SavedRun, node: int, index: int) -> int:
    """1 where an output is too high, -1 where it is too low."""
    answers = run.answers
    if isinstance(answers, OfNumbers):
        return -1 if answers.errors[node] < 0 else 1
    return -1 if isinstance(answers, OfLabels) and answers.target[node, index] == 1 else 1
