"""What the command does: trials, then the runs of what they choose, and the page from the records.

    python -m experiments field fixed --minutes 8
    python -m experiments field fixed --graph photo --model STAFormer --plan
    python -m experiments field all --render

Where typer is missing, `python -m experiments.field` takes the same words. Every run is a line of
JSON below the folder of the records. What is there is not run again: the same command goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.field.ablation import ABLATIONS, Ablation
from experiments.field.drawing import draw
from experiments.field.plan import Clock, parts_of, seconds_of
from experiments.field.render import DOCS, render
from experiments.field.studies import STUDIES, Study
from experiments.reproduce.jobs import Job
from experiments.reproduce.queue import (
    available,
    default_processes,
    missing,
    named,
    taken_over,
    work_off,
)
from experiments.reproduce.store import DEFAULT as PAPER
from experiments.reproduce.store import Store
from subtree_attention import _check
from subtree_attention.show.progress import Lines
from subtree_attention.train.jobs import TOGETHER, Place
from subtree_attention.train.watch import Watch

RESULTS = Path("results/field")
TABLES: dict[str, Study | Ablation] = {**STUDIES, **ABLATIONS}


@dataclass(frozen=True)
class Worker:
    """Runs what is missing.

    Attributes:
        place: where.
        store: where the records are and go.
        clock: when there is no time left.
        watch: makes what is told of a stage.
        processes: beside this one, for what cannot be captured.
    """

    place: Place
    store: Store
    clock: Clock
    watch: Callable[[], Watch] = Lines
    processes: int = 1

    def work(
        self, study: Study | Ablation, graphs: Sequence[str], models: Sequence[str]
    ) -> Iterator[Job]:
        """Run what is missing of a table, graph by graph; the jobs that failed."""
        for graph in graphs:
            for what, jobs in study.stages(graph, models, self.store):
                yield from self._run(f"{what} of {study.name} on {graph}", jobs)

    def _run(self, what: str, jobs: list[Job]) -> list[Job]:
        """Those of the jobs that failed; what is there is not run again."""
        store, watch = self.store, self.watch()
        jobs = available(jobs, watch.say)
        for record in taken_over(missing(jobs, store), store):
            store.add(record)
        todo = missing(jobs, store)
        if not todo or not self.clock.has_time_for(0):
            return []
        watch.begin(f"{len(todo)} {what} to do", len(todo))
        before = store.on_graph(todo[0].graph)

        def in_time(job: Job) -> bool:
            return self.clock.has_time_for(seconds_of(job, before))

        stop = self.clock.is_over
        return work_off(
            todo, self.place, store, watch, self.processes, may_begin=in_time, stop=stop
        ).failed


def plan(
    study: Study | Ablation, graphs: Sequence[str], models: Sequence[str], store: Store
) -> list[str]:
    """What is missing of a table, in lines."""
    parts = parts_of(study, graphs, models, store)
    lines = [
        f"{study.name}  {part.graph:12} {part.model:10} {part.trials:3} trials {part.runs:3} runs"
        f"  {part.seconds:7.0f} s"
        for part in parts
        if part.trials or part.runs
    ]
    total = sum(part.seconds for part in parts) / TOGETHER
    return [*lines, f"{study.name}: about {total / 60:.1f} minutes, {TOGETHER} runs at a time"]


def parser() -> argparse.ArgumentParser:
    words = __doc__.partition("\n\n")
    found = argparse.ArgumentParser(
        "python -m experiments field",
        description=words[0],
        epilog=words[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = found.add_argument
    add("table", help=f"{', '.join(TABLES)}, or all")
    add("--graph", action="append", help="only this graph; may be given several times")
    add("--model", action="append", help="only this model; may be given several times")
    add("--minutes", type=float, default=float("inf"), help="begin nothing that ends later")
    add("--plan", action="store_true", help="only say what is missing, and how long it takes")
    add("--render", action="store_true", help="only draw the tables from the records")
    add("--device", default="auto", help="cpu, cuda or auto")
    add("--together", type=int, help="runs that share a GPU at a time")
    add("--processes", type=int, help="beside this one, for what cannot be captured")
    add("--results", type=Path, default=RESULTS, help="folder of the records")
    add("--docs", type=Path, default=DOCS, help="page with the tables")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point; wrong words are `ValueError`."""
    asked = parser().parse_args(arguments)
    _check.known("table", asked.table, [*TABLES, "all"])
    studies = [*TABLES.values()] if asked.table == "all" else [TABLES[asked.table]]
    store, failed = Store(asked.results), list[Job]()
    place = Place.of(asked.device, asked.together)
    processes = asked.processes or default_processes(place.device)
    worker = Worker(place, store, Clock(asked.minutes), processes=processes)
    for study in studies:
        graphs = _some("graph", asked.graph, study.graphs, alone=len(studies) == 1)
        models = _some("model", asked.model, study.models, alone=len(studies) == 1)
        if asked.plan:
            print("\n".join(plan(study, graphs, models, store)))
        elif not asked.render:
            failed += worker.work(study, graphs, models)
    if not asked.plan:
        files = render(studies, store, asked.docs)
        try:
            files += draw(STUDIES.values(), store, Store(PAPER), store.folder / "differences")
        except ModuleNotFoundError as reason:
            print(f"no picture: {reason}")
        for file in files:
            print(f"written to {file}")
    if failed:
        words = named(failed, len(failed))
        raise RuntimeError(f"{words}. They have no record: the same command tries them again")


def _some(what: str, asked: Sequence[str] | None, offered: Sequence[str], alone: bool) -> list[str]:
    """Those that were asked for, in the table's order; of several tables, where they have them."""
    for name in asked or ():
        if alone:
            _check.known(f"{what} of the table", name, offered)
    return [name for name in offered if not asked or name in asked]
