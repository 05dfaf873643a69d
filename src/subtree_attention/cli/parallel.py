"""`sta train --parallel`: one of the processes that torchrun has started."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from . import app as sta
from .app import Given, group, say

if TYPE_CHECKING:
    from ..config import Config
    from ..datasets import Dataset
    from ..show.live.page import Page
    from ..train.fit import Result
    from ..train.parallel import InPieces, Job

Read = Callable[["Job"], tuple["Dataset | InPieces | None", "Config", Path | None]]
"""Reads what is trained on and how: a graph of one's own, the configuration, and where it goes."""

PARALLEL = group(
    "Many devices (started by torchrun)",
    parallel=(
        str,
        "How processes share the work: nodes (each owns some, with their features and edges), "
        "heads (each walks some over the whole graph), or both, as nodes=2,heads=2; batches, with "
        "--batch: each has the graph and learns from a share of every batch.",
    ),
    partition=(
        str,
        r"How nodes are shared out: metis, streaming or blocks. \[default: metis]",
    ),
)


def is_first() -> bool:
    """Whether this process speaks for all."""
    return os.environ.get("RANK", "0") == "0"


def train(read: Read, how: Given, device: str, page: Page | None = None) -> Result | None:
    """Train on all ranks; the result on the first one, which shows it.

    What one rank cannot do ends all of them, and is said once.
    """
    from ..runs.environment import choose_device
    from ..train.parallel import Elsewhere, Job, RankLost

    try:
        job = Job(choose_device(device), how.pop("parallel"))
    except ValueError:  # what was asked for cannot be: all ranks know, and one says so
        if not is_first():
            raise typer.Exit(2) from None
        raise
    sta.out_console.quiet = not job.first
    try:
        result = _train(job, read, how, page)
        job.end()
    except (Elsewhere, RankLost):  # whoever knows why says it
        raise typer.Exit(1) from None
    except KeyboardInterrupt as stopped:
        folder = getattr(stopped, "folder", None)
        if job.first:
            say(f"Stopped. Go on with: the same command{f' and --out {folder}' * bool(folder)}")
        raise typer.Exit(130) from None
    return result if job.first else None


def _train(job: Job, read: Read, how: Given, page: Page | None) -> Result:
    from ..train.parallel import fit_parallel

    dataset, config, out = job.together(partial(read, job))
    load: Callable[[], Any] = partial(_loaded, config, out) if dataset is None else lambda: dataset
    if dataset is None:
        job.agreed(partial(_prepare, load))  # downloaded and cached once
    if not job.first:
        return fit_parallel(config, out, job=job, data=load, **how)
    with sta.progress(page) as watch:
        return fit_parallel(config, out, job=job, data=load, watch=watch, **how)


def _prepare(load: Callable[[], Any]) -> None:
    load()


def _loaded(config: Config, out: Path | None) -> Dataset:
    from ..runs.saved import dataset_of

    return dataset_of(config, out)


def in_parts(tables: Given) -> bool:
    """Whether both tables lie in parts, of which each rank can read some."""
    return all(
        isinstance(tables[name], str) and (Path(tables[name]).is_dir() or "*" in tables[name])
        for name in ("nodes", "edges")
    )


def read_pieces(job: Job, changes: Given, **tables: Any) -> tuple[InPieces, Config]:
    """What this rank reads of tables in parts, shown; and the settings by the size of them all."""
    from ..datasets.pieces import read_piece
    from ..datasets.tables.sources import graph_name
    from ..show.tables import show
    from ..train.parallel import InPieces, Outline
    from ..train.recipes import for_own

    for option in {"name", "picture"} & tables.keys():
        raise ValueError(
            f"--{option} is for tables that one process reads: where each reads a part of them, "
            "they are not kept as they are written"
        )
    task = changes.get("task", "classification")
    piece = read_piece(**tables, task=task, group=job.mesh.nodes.group)
    show(piece.notes, sta.out_console)
    name = graph_name(tables["nodes"])
    outline = Outline.of(piece, name, job.mesh.nodes)
    return InPieces(piece, outline), for_own(outline, changes)
