"""What carries the gain: the chosen model of a table with one thing changed at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.field import wiki
from experiments.field.gates import EdgeGatedSettings
from experiments.field.spaces import OURS
from experiments.field.studies import STUDIES
from experiments.reproduce.jobs import Job
from experiments.reproduce.records import Record
from experiments.reproduce.store import Store
from subtree_attention.config import Config

FULL = "as chosen"

Change = Callable[[Config], Config]


def _to(**settings: Any) -> Change:
    """Some settings changed, by their plain names."""
    return lambda config: config.replace(**settings)


def _with_edge_gates(config: Config) -> Config:
    return replace(config, model=EdgeGatedSettings(**vars(config.model)))


CHANGES: dict[str, Change] = {
    "read-out: a mean": _to(readout="mean"),
    "read-out: a sum": _to(readout="sum"),
    "one hop a block": _to(hops=1),
    "two hops a block": _to(hops=2),
    "four hops a block": _to(hops=4),
    "one block": _to(layers=1),
    "three blocks": _to(layers=3),
    "one head": _to(heads=1),
    "no gates": _to(gate="none"),
    "softmax gates": _to(gate="softmax"),
    "queries and keys of any length": _to(feature_map="elu"),
    "no residuals": _to(residual="none"),
    "no norm": _to(norm="none"),
    "no self-loops": _to(self_loops=False),
    "random-walk transition": _to(transition="rw"),
    "with edge gates": _with_edge_gates,
    "with global attention": _to(global_attention=True),
    "with 8 eigenvectors": _to(encoding=8),
    "with feed-forward parts": _to(feed_forward=2),
}
"""What is changed, in words -> how. What the chosen model has anyway is left out."""


@dataclass(frozen=True)
class Ablation:
    """One change at a time.

    Attributes:
        name: its folder.
        title: what stands above it.
        sources: graph -> the table whose chosen model is changed.
        changes: as `CHANGES`.
        most: runs of a change at most.
    """

    name: str
    title: str
    sources: Mapping[str, str]
    changes: Mapping[str, Change]
    most: int = 5
    model: str = OURS

    @property
    def graphs(self) -> tuple[str, ...]:
        return tuple(self.sources)

    @property
    def models(self) -> tuple[str, ...]:
        return (self.model,)

    def runs(self, graph: str) -> int:
        """How many runs a change has."""
        return min(self.most, STUDIES[self.sources[graph]].runs(graph))

    def jobs(self, graph: str, store: Store) -> list[Job]:
        """All runs, those of the chosen model first; none as long as nothing is chosen."""
        name = self.sources[graph]
        records = store.read_graph(name, graph)
        chosen = STUDIES[name].chosen(graph, self.model, records)[: self.runs(graph)]
        jobs = [replace(job, experiment=self.name, variant=FULL) for job in chosen]
        for label, change in self.changes.items():
            changed = [replace(job, variant=label, config=change(job.config)) for job in
                       jobs[: len(chosen)]]  # fmt: skip
            jobs += [job for job in changed if job.config != chosen[0].config]
        return jobs

    def stages(
        self, graph: str, models: Sequence[str], store: Store
    ) -> Iterator[tuple[str, list[Job]]]:
        """As of a study, in one stage."""
        yield "runs", self.jobs(graph, store)

    def row(self, graph: str, label: str, records: Sequence[Record]) -> list[Record]:
        """The runs of a change that are there."""
        return [r for r in records if (r.graph, r.variant) == (graph, label)]


ABLATION = Ablation(
    "ablation",
    "One thing changed at a time",
    {
        "cora": "nine",  # few labels, many hops
        "photo": "again",  # many edges
        wiki.NAME: "regression",  # numbers, of which boosted trees say as much
    },
    CHANGES,
)

ON_ACTOR = Ablation(
    "actor",
    "Actor: from the chosen block to the paper's own model",
    {"actor": "nine"},
    {
        "the paper's gates (softmax)": _to(gate="softmax"),
        "the paper's walk (random, no self-loops)": _to(transition="rw", self_loops=False),
        "the paper's keys (16 channels a head)": _to(key_channels=16),
        "all three": _to(gate="softmax", transition="rw", self_loops=False, key_channels=16),
    },
)
"""Why ours is below the paper's model there: none of its trials had these together."""

ABLATIONS = {each.name: each for each in (ABLATION, ON_ACTOR)}
