"""Runs with fresh weights on tables, in no folder: all that answers depend on, and made at once."""

from functools import cache
from pathlib import Path
from typing import Any

import torch

import subtree_attention as sta
from subtree_attention import Dataset, SavedRun
from subtree_attention.runs.folder import RunResult
from tests.samples import friends, people


@cache
def tables(count: int = 60, **options: Any) -> Dataset:
    """People and their friends, weighted unless it is said otherwise."""
    given = {"target": "label", "weight": "strength", **options}
    return sta.from_tables(people(count), friends(count, 150), **given)


def untrained(data: Dataset, **settings: Any) -> SavedRun:
    """A run of these settings; no weight is what a layer begins with, such as a gate of ones."""
    run = SavedRun(Path("nowhere"), torch.device("cpu"))
    run.config = sta.recipe(data, graph="people", runs=1, **settings)
    run.dataset = data.encoded(run.config.data.encoding)
    sizes = run.dataset.num_features, run.task.outputs(run.dataset)
    run._header = {"sizes": dict(zip(("in_channels", "out_channels"), sizes, strict=True))}
    run.problem = run.task.problem(run.dataset, "B", 0)
    run.result = RunResult(
        *(0, 0, 0.5, 0.5, 1, 1, 0.0), temperature=1.3, center=40.0, scale=5.0, half_width=1.5
    )
    run.model = run.task.network(run.config.model, *sizes).eval()
    with torch.no_grad():
        for weight in run.model.parameters():
            weight += 0.3 * torch.randn_like(weight)
    return run
