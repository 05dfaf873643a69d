"""Effective bandwidths from measurements, and how far the formulas are off on others.

Fitted on uniform random graphs: the axes "edges" and "classes" of results/scaling-cuda.json, from
10^5 edges on, and one hop. Everything else is a check.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from experiments.scale.machines import DEVICES
from experiments.scale.models import (
    PRODUCTS,
    STAGNN,
    Model,
    Shape,
    evaluation_seconds,
    step_bytes,
    step_seconds,
)
from experiments.scale.seconds import MEASURED, Speeds
from experiments.scale.walk import FLOAT, Walk, peak_bytes
from subtree_attention.io import read_json

RESULTS = Path("results")
ALLOWED = 0.25
"""How far the formulas may be off where they are used: on graphs whose states outgrow the cache."""
HIDDEN = 64
REPORTED = {"step": 2.15, "evaluation": 0.85, "step_bytes": 71e9}
"""The products shape on one H200, float32, as it was measured once; its raw file was not kept."""


class Point(NamedTuple):
    """A walk that was measured, forward and backward."""

    what: str
    walk: Walk
    seconds: float
    bytes: float
    fitted: bool


@dataclass(frozen=True)
class Check:
    """A measured number beside what the formula says.

    Attributes:
        what: which number.
        kind: "seconds" or "bytes".
        fitted: whether the formula's constants come from it.
        large: whether states outgrow the cache, which the formulas are for.
    """

    what: str
    kind: str
    measured: float
    formula: float
    fitted: bool
    large: bool
    file: str

    @property
    def ratio(self) -> float:
        return self.formula / self.measured

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


def scaling(results: Path = RESULTS) -> Iterator[Point]:
    """Our operator on uniform random graphs."""
    for axis, rows in read_json(results / "scaling-cuda.json")["axes"].items():
        for row in rows:
            heads = row["heads"]
            sizes = (row["nodes"], row["edges"], heads, HIDDEN // heads, row["classes"])
            grows = axis in ("edges", "classes") and row["edges"] >= 10**5
            one = axis == "hops" and row["hops"] == 1
            yield Point(
                f"operator, {axis} {row[axis]:,}",
                Walk(*sizes, row["hops"]),
                row["median"] / 1e3,
                row["peak_bytes"],
                grows or one,
            )


def graphs(results: Path = RESULTS) -> Iterator[Point]:
    """Our operator on graphs of the registry and on shapes."""
    for name, found in read_json(results / "bench-cuda.json")["graphs"].items():
        settings, versions = found["config"]["model"], found["operator"]["versions"]
        heads = settings["heads"]
        sizes = (found["nodes"], found["edges"], heads, HIDDEN // heads, found["classes"])
        for version, item in (("ours, captured", FLOAT), ("ours, bfloat16 states", 2)):
            measured = versions[version]
            if item == FLOAT or found["edges"] > 10**6:  # else the eager call waits for the host
                yield Point(
                    f"operator, {name}, {'float32' if item == FLOAT else 'bfloat16'}",
                    Walk(*sizes, settings["hops"], item),
                    measured["median"] / 1e3,
                    measured["peak_bytes"],
                    False,
                )


def fit(results: Path = RESULTS) -> Speeds:
    """The speeds of the device that was measured."""
    import numpy as np
    from scipy.optimize import least_squares

    copy = read_json(results / "bench-cuda.json")["copy_bytes_per_second"]
    device, points = DEVICES[MEASURED], [point for point in scaling(results) if point.fitted]

    def speeds(logs: Any) -> Speeds:
        memory, cached, factors, launch = np.exp(logs).tolist()
        return Speeds(memory, cached, factors, copy, launch, device.cache, FLOPS * device.flops)

    def off(logs: Any) -> list[float]:
        made = speeds(logs)
        return [math.log(made.training(point.walk) / point.seconds) for point in points]

    start = np.log([copy, 2 * copy, copy / 2, 3e-6])
    return speeds(least_squares(off, start).x)


FLOPS = 0.5
"""Share of the maker's products a second that dense layers are taken to reach; they are a small
part of every step that was measured."""


def checks(speeds: Speeds, results: Path = RESULTS) -> list[Check]:
    """Every measurement beside the formula."""
    found = []
    for file, points in (("scaling-cuda", scaling(results)), ("bench-cuda", graphs(results))):
        for point in points:
            large = is_large(point.walk, speeds)
            about = (point.fitted, large, f"{file}.json")
            seconds = speeds.training(point.walk)
            found.append(Check(point.what, "seconds", point.seconds, seconds, *about))
            if point.walk.hops > 1:
                formula = peak_bytes(point.walk)
                about = (False, *about[1:])
                found.append(Check(point.what, "bytes", point.bytes, formula, *about))
    return [*found, *_epochs(speeds, results), *_reported(speeds)]


def is_large(walk: Walk, speeds: Speeds) -> bool:
    """Whether a hop's states outgrow the cache by far."""
    return speeds.hit(walk) < 0.5


def _epochs(speeds: Speeds, results: Path) -> Iterator[Check]:
    """Whole epochs of STAGNN, a step and an evaluation."""
    arxiv = read_json(results / "bench-cuda.json")["graphs"]["arxiv shape"]
    shape = Shape("arxiv", arxiv["nodes"], arxiv["edges"], arxiv["features"], arxiv["classes"])
    measured = arxiv["epoch"]["versions"]["ours"]
    seconds = step_seconds(STAGNN, shape, speeds) + evaluation_seconds(STAGNN, shape, speeds)
    what, file = "epoch, arxiv shape, float32", "bench-cuda.json"
    yield Check(what, "seconds", measured["median"] / 1e3, seconds, False, True, file)
    peak = step_bytes(STAGNN, shape)
    yield Check(what, "bytes", measured["peak_bytes"], peak, False, True, file)
    epochs = read_json(results / "precision-h200.json")["graphs"]["arxiv shape"]["epoch"]
    for epoch in epochs:
        model: Model = STAGNN.on_states(2 if epoch["precision"] == "bf16" else FLOAT)
        seconds = step_seconds(model, shape, speeds) + evaluation_seconds(model, shape, speeds)
        what, file = f"epoch, arxiv shape, {epoch['precision']}", "precision-h200.json"
        yield Check(what, "seconds", epoch["median"] / 1e3, seconds, False, True, file)
        peak = step_bytes(model, shape)
        yield Check(what, "bytes", epoch["peak_bytes"], peak, False, True, file)


def _reported(speeds: Speeds) -> Iterator[Check]:
    said = REPORTED
    file, what = "no raw file", "products shape"
    step, evaluation = (
        step_seconds(STAGNN, PRODUCTS, speeds),
        evaluation_seconds(STAGNN, PRODUCTS, speeds),
    )
    yield Check(f"step, {what}", "seconds", said["step"], step, False, True, file)
    about = (False, True, file)
    yield Check(f"evaluation, {what}", "seconds", said["evaluation"], evaluation, *about)
    peak = step_bytes(STAGNN, PRODUCTS)
    yield Check(f"step, {what}", "bytes", said["step_bytes"], peak, *about)
