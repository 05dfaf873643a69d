"""What carries the gain: the chosen model of a table with one thing changed at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from experiments.field.spaces import OURS, Trial
from experiments.field.studies import STUDIES
from experiments.reproduce.jobs import Job
from experiments.reproduce.records import Record
from experiments.reproduce.store import Store

FULL = "as chosen"

CHANGES: dict[str, Trial] = {
    "read-out: a mean": {"readout": "mean"},
    "read-out: a sum": {"readout": "sum"},
    "one hop a block": {"hops": 1},
    "two hops a block": {"hops": 2},
    "four hops a block": {"hops": 4},
    "one block": {"layers": 1},
    "three blocks": {"layers": 3},
    "one head": {"heads": 1},
    "no gates": {"gate": "none"},
    "softmax gates": {"gate": "softmax"},
    "queries and keys of any length": {"feature_map": "elu"},
    "no residuals": {"residual": "none"},
    "no norm": {"norm": "none"},
    "no self-loops": {"self_loops": False},
    "random-walk transition": {"transition": "rw"},
    "with global attention": {"global_attention": True},
    "with 8 eigenvectors": {"encoding": 8},
    "with feed-forward parts": {"feed_forward": 2},
}
"""What is changed, in words -> settings. What the chosen model has anyway is left out."""


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
    changes: Mapping[str, Trial]
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
            changed = [replace(job, variant=label, config=job.config.replace(**change)) for job in
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
    {"computer": "fixed", "minesweeper": "minesweeper", "pubmed": "nine"},
    CHANGES,
)
