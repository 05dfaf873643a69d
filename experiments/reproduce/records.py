"""A record is what is left of one run: one JSON line. Here it is read, grouped and averaged."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from subtree_attention import datasets as data
from subtree_attention.train.recipes import recipe
from subtree_attention.upgrade import FORMAT, upgrade

Key = TypeVar("Key", bound=Hashable)

OURS = "STAGNN"
MODELS = (
    OURS, "STAGNN edge-wise", "MLP", "GCN", "GAT", "APPNP", "GPRGNN", "JKNet", "MixHop",
    "GraphGPS", "SGFormer", "Polynormer",
)  # fmt: skip
"""The order in which models are shown; others follow by name."""


SHARES = ("accuracy", "roc_auc", "hits@20", "hits@50", "hits@100", "mrr")
"""Metrics from 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One run.

    Attributes:
        experiment: "table1", "table2", "table3", "hops", "deep" or "robustness".
        graph: its name in the registry.
        model: "STAGNN", "GCN", ...
        variant: what is different from the model's recipe, in words; "" if nothing.
        at: K in "deep", the share of what was changed in "robustness".
        kind: in "robustness", what was changed.
        metric: "accuracy", "roc_auc", ...; `train`, `val` and `test` are its values at the best
            epoch, from 0 to 1 if it is one of `SHARES`; what is no run of ours may have no `train`.
        diverged: the epoch at which loss or outputs were not finite any more. If that was the first
            one, there are neither scores nor a best epoch.
        hop_weights: alpha_0 ... alpha_K.
        gates: the gate of each head at hops 0 ... K: [K + 1][H].
        config: of data, training and STAGNN; `settings`: those of a baseline.
        packages: the versions that it ran with; older records have none.
        made_for: the experiment that the run was made for, if it was another one.
    """

    experiment: str
    graph: str
    model: str
    variant: str
    at: float | None = None
    kind: str | None = None
    seed: int
    split: str
    metric: str
    train: float | None
    val: float | None
    test: float | None
    best_epoch: int | None
    epochs: int
    diverged: int | None = None
    seconds: float
    device: str
    commit: str | None = None
    peak_bytes: int | None = None
    hop_weights: Sequence[float] | None = None
    gates: Sequence[Sequence[float]] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    packages: Mapping[str, str] | None = None
    made_for: str | None = None

    def __post_init__(self) -> None:
        for name in ("train", "val", "test"):
            score = getattr(self, name)
            if score is not None and self.metric in SHARES and not 0 <= score <= 1:
                raise ValueError(
                    f"{name} must be a score from 0 to 1, got {score} in {self.experiment}, "
                    f"{self.graph}, {self.label}, seed {self.seed}"
                )

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Record:
        """A record from a parsed line, also of an older format; other fields are left aside.

        Raises:
            ValueError: fields are missing; the message names them and the run.
        """
        may_lack = _SCORED if line.get("diverged") else ("train",)
        missing = [n for n in _NEEDED if line.get(n) is None and n not in may_lack]
        if missing:
            known = ", ".join(f"{name}={line[name]}" for name in _NEEDED[:5] if name in line)
            raise ValueError(
                f"a record lacks {', '.join(missing)}; it is the one with {known or 'nothing else'}"
            )
        line = upgrade("record", line)
        given = {about.name: line[about.name] for about in fields(cls) if about.name in line}
        for name in ("config", "settings"):
            given[name] = given.get(name) or {}
        return cls(**{**given, "graph": str(given["graph"]).lower()})

    def to_json(self) -> dict[str, Any]:
        """The inverse of `from_json`."""
        line = {"format": FORMAT, **asdict(self)}
        return {n: v for n, v in line.items() if v is not None or n not in ("packages", "made_for")}

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells the runs of one experiment on one graph apart."""
        return self.model, self.variant, self.seed

    @property
    def label(self) -> str:
        """The model, and its variant unless that only repeats `at` and `kind`."""
        at = "" if self.at is None else f"{self.at:g}"
        repeated = ("", f"K={at}", f"{self.kind} {at}", str(self.kind))
        return self.model if self.variant in repeated else f"{self.model}, {self.variant}"


_NEEDED = [f.name for f in fields(Record) if f.default is f.default_factory is MISSING]
_SCORED = ("train", "val", "test", "best_epoch")


# ---------------------------------------------------------------------------------- grouping them

TUNED = "weight decay "
"""How the variants begin of which one is chosen in each run."""


def select(records: Iterable[Record], experiment: str) -> list[Record]:
    """The runs of an experiment; of a run that was done twice, the later record; of those that
    differ in a tuned setting, the one with the best validation score, the first of equals: its
    variant does not say so any more."""
    latest = {_run(record): record for record in records if record.experiment == experiment}
    best: dict[Any, Record] = {}
    for record in latest.values():
        chosen = replace(record, variant="") if record.variant.startswith(TUNED) else record
        run = _run(chosen)
        if run not in best or (chosen.val or 0) > (best[run].val or 0):
            best[run] = chosen
    return list(best.values())


def _run(r: Record) -> tuple[Any, ...]:
    """What tells the runs of an experiment apart."""
    return r.graph, r.model, r.variant, r.at, r.kind, r.split, r.seed


def grouped(records: Iterable[Record], key: Callable[[Record], Key]) -> dict[Key, list[Record]]:
    groups: dict[Key, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def on(records: Iterable[Record], graph: str) -> list[Record]:
    """Those on one graph."""
    return [record for record in records if record.graph == graph]


def models_in_order(records: Iterable[Record]) -> list[str]:
    """The labels of the records' models: ours, the well-known ones, the rest by name."""
    labels = {record.label: record.model for record in records}

    def place(label: str) -> tuple[int, str]:
        model = labels[label]
        return (MODELS.index(model) if model in MODELS else len(MODELS), label)

    return sorted(labels, key=place)


def graphs_in_order(expected: Iterable[str], records: Iterable[Record]) -> list[str]:
    """The expected graphs, then the others that there are records of, in the registry's order."""
    expected = list(expected)
    registry = list(data.names())
    others = sorted(
        {record.graph for record in records} - set(expected),
        key=lambda name: (registry.index(name) if name in registry else len(registry), name),
    )
    return expected + others


def title(graph: str) -> str:
    """The name to print."""
    return data.info(graph).title if graph in data.names() else graph


# --------------------------------------------------------------------------------- averaging them


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation (None for one run) of some runs' test scores."""

    mean: float
    std: float | None
    runs: int


def summarise(records: Sequence[Record]) -> Summary | None:
    """The test scores of some runs, all on the same kind of split and in one metric.

    A run that diverged before it had a score is in no mean; None if no other is left.

    Raises:
        ValueError: splits or metrics are mixed: such numbers do not belong in one mean.
    """
    for name in ("split", "metric"):
        kinds = sorted({str(getattr(record, name)) for record in records})
        if len(kinds) > 1:
            raise ValueError(
                f"one mean over different {name}s ({', '.join(kinds)}) says nothing: "
                f"{records[0].label} on {records[0].graph} and others; pass those of one {name}"
            )
    scores = [record.test for record in records if record.test is not None]
    return _summary_of(scores) if scores else None


def _summary_of(values: Sequence[float]) -> Summary:
    std = statistics.stdev(values) if len(values) > 1 else None
    return Summary(statistics.fmean(values), std, len(values))


@dataclass(frozen=True)
class Paired:
    """The mean of differences between two models on the same seeds, and its standard error."""

    mean: float
    error: float | None
    pairs: int

    @property
    def within_two_errors(self) -> bool | None:
        """Whether the mean is no further from 0 than two standard errors; None for one pair."""
        return None if self.error is None else abs(self.mean) <= 2 * self.error


def paired_difference(ours: Iterable[Record], other: Iterable[Record]) -> Paired | None:
    """Ours minus the other, run by run with the same split and seed; None without such a pair."""
    theirs = {(record.split, record.seed): record.test for record in other}
    pairs = ((record.test, theirs.get((record.split, record.seed))) for record in ours)
    differences = [our - their for our, their in pairs if our is not None and their is not None]
    if not differences:
        return None
    found = _summary_of(differences)
    error = None if found.std is None else found.std / math.sqrt(found.runs)
    return Paired(found.mean, error, found.runs)


def planned_runs(graph: str) -> int | None:
    """How many runs a mean should have: the paper's number for the graph."""
    return recipe(graph).fit.runs if graph in data.names() else None


def run_count(found: int, planned: int | None) -> str:
    """How many runs there are, in words; "" if just as many as planned."""
    if found == planned:
        return ""
    if planned is None or found > planned:
        return f"{found} run{'s' if found > 1 else ''}"
    return f"{found} of {planned} runs"


def divergence(records: Sequence[Record]) -> str:
    """How many of some runs diverged, in words; "" if none did."""
    diverged = [record for record in records if record.diverged]
    if not diverged:
        return ""
    words = f"{len(diverged)} of {len(records)} runs diverged"
    scoreless = sum(record.test is None for record in diverged)
    return words + (f", {scoreless} without a score" if scoreless else "")


def provenance(records: Sequence[Record]) -> str:
    """How many runs, on which devices, from which commits."""
    devices = sorted({record.device for record in records})
    commits = sorted({(record.commit or "unknown")[:10] for record in records})
    runs = "run" if len(records) == 1 else "runs"
    return (
        f"Ours: {len(records)} {runs}; device: {', '.join(devices) or 'none'}; "
        f"commit: {', '.join(commits) or 'none'}."
    )


def typical_peak(runs: Iterable[Record]) -> float | None:
    """The median of the runs' peaks in bytes, if any was measured: the first run on a GPU also pays
    for the workspaces of libraries."""
    peaks = [record.peak_bytes for record in runs if record.peak_bytes is not None]
    return statistics.median(peaks) if peaks else None
