"""What the command does: fits what has no record yet, split by split, then writes the page."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch

from experiments import own
from experiments.own.render import DOCS, render
from experiments.own.rows import GCN, ROWS, SAGE, Found, ours, rival
from experiments.own.tables import GRAPHS, SHARES, dataset
from experiments.reproduce.records import Record
from experiments.reproduce.store import Store
from subtree_attention import _check
from subtree_attention.datasets import Dataset
from subtree_attention.runs.environment import environment

NAME = "own"
RESULTS = Path("results")
SPLITS = 5


def parser() -> argparse.ArgumentParser:
    about, _, more = (own.__doc__ or "").partition("\n\n")
    found = argparse.ArgumentParser(
        "python -m experiments own",
        description=about,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = found.add_argument
    add("--graph", action="append", help=f"only this one of {', '.join(GRAPHS)}; several times")
    add("--labels", action="append", help="only with 60 or 10 percent; several times")
    add("--model", action="append", help=f"only this row: {'; '.join(ROWS)}; several times")
    add("--splits", type=int, default=SPLITS, help="of each")
    add("--minutes", type=float, default=float("inf"), help="begin no split later than that")
    add("--render", action="store_true", help="only write the page, from the records")
    add("--results", type=Path, default=RESULTS, help="folder of the records")
    add("--docs", type=Path, default=DOCS, help="page with the tables")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point; wrong words are `ValueError`."""
    asked = parser().parse_args(arguments)
    graphs = [_check.known("graph", one, GRAPHS) for one in asked.graph or GRAPHS]
    labels = [_check.known("percent of labels", one, SHARES) for one in asked.labels or SHARES]
    models = [_check.known("model", one, ROWS) for one in asked.model or ROWS]
    store, end = Store(asked.results), time.monotonic() + 60 * asked.minutes
    if not asked.render:
        for seed in range(_check.integer("splits", asked.splits, 1)):  # all graphs at the same pace
            for graph in graphs:
                for share in labels:
                    if time.monotonic() < end:
                        work(store, graph, share, seed, models)
    for file in render(store, asked.docs):
        print(f"written to {file}")


def work(store: Store, graph: str, labels: str, seed: int, models: Iterable[str]) -> None:
    """Fit what is missing on one split."""
    there = {record.key for record in store.read_graph(NAME, graph)}
    variant = f"{labels} %"
    missing = [model for model in models if (model, variant, seed) not in there]
    if not missing:
        return
    data = dataset(graph, labels, seed)
    for found in fitted(data, seed, missing):
        store.add(as_record(found, graph, variant, seed))
        words = f"{graph}, {variant}, split {seed}: {found.model}"
        print(f"{words}: {100 * found.test:.2f} in {found.seconds:.1f} s", flush=True)


def fitted(data: Dataset, seed: int, models: Sequence[str]) -> Iterator[Found]:
    """Some models on one split."""
    for model in (GCN, SAGE):
        if model in models:
            yield rival(data, seed, model)
    if set(models) - {GCN, SAGE}:
        yield from (found for found in ours(data, seed) if found.model in models)


def as_record(found: Found, graph: str, variant: str, seed: int) -> Record:
    """A record of how a model did on a split."""
    where = environment(torch.device("cpu"))
    return Record(
        experiment=NAME,
        graph=graph,
        model=found.model,
        variant=variant,
        seed=seed,
        split="own",
        metric="accuracy",
        train=None,
        val=found.val,
        test=found.test,
        best_epoch=found.best_epoch,
        epochs=found.epochs,
        seconds=round(found.seconds, 3),
        device=f"{where['device']}, {where['threads']} threads",
        commit=where["commit"],
        config=found.config,
        settings=found.settings,
        packages={name: version for name, version in where["packages"].items() if version},
    )
