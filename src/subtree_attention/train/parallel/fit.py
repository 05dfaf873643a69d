"""`fit` on many ranks: the same folder, numbers and words as of one process.

    torchrun --nproc-per-node=4 -m subtree_attention train cora --parallel nodes

The first rank writes and speaks for all. What a run goes on from is the same whatever the ranks:
four may begin it and one may end it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from ... import _check, io
from ...config import Config
from ...datasets import Dataset
from ...datasets.features import rows_of
from ...datasets.pieces import Piece
from ...graph import Graph
from ...partition import HEADS, NODES, PartGraph, Partition
from ...runs import folder as files
from ...runs.folder import RunResult
from ...runs.predictions import write_answers
from ...tasks import Problem
from ...tasks import of as task_of
from ..fit import Interrupted, Result, begin, given_data, told
from ..jobs import work
from ..logs import Logged, opened, told_too
from ..run import Material, SavingRun
from ..watch import Watch
from .job import Job, sweep
from .material import RankMaterial
from .outline import InPieces

PARTITIONS = {
    "metis": "few edges between parts, by METIS (extra partition)",
    "streaming": "fewer than by number, found in passes over the edges",
    "blocks": "nodes by number, as many to each rank",
}
"""How nodes are shared out."""
PREDICTIONS = "predictions"
"""Below a run on tables in parts, what each rank says of its nodes."""


class RankRun(SavingRun):
    """A run that all ranks train together, and the first of them saves.

    With a piece of tables, of which no rank has all, each writes what the model says of its own.
    """

    material: Any  # a RankMaterial

    def __init__(self, job: Job, piece: Piece | None, *given: Any) -> None:
        self.job, self.piece = job, piece
        super().__init__(*given)

    def checkpoint(self) -> None:
        if self.job.first:
            super().checkpoint()

    def _show(self) -> None:
        if self.job.first:
            super()._show()

    def _write(self, result: RunResult) -> None:
        if self.piece is not None:  # first: nobody could ask for them when the run is done
            self.job.together(partial(write_predictions, self.piece, self, result))
        if self.job.first:
            super()._write(result)

    @torch.no_grad()
    def own_outputs(self) -> Tensor:
        """What the model says of this rank's nodes, [n, ...]; when it has ended, at its best."""
        model: Any = self.trainer.model.eval()
        return model.parallel(self.material.x, self.material.graph)

    def _checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        return self.job.agreed(super()._checkpoint)


def fit_parallel(
    config: Config,
    out: str | Path | None = None,
    *,
    job: Job,
    data: Callable[[], Dataset | InPieces],
    partition: str = "metis",
    resume: bool = False,
    watch: Watch | None = None,
    checkpoint_seconds: float = 5.0,
    log: Logged = None,
) -> Result:
    """Train a configuration on all ranks of a job; every rank calls it, with the same arguments.

    Args:
        config: what to train: of nodes, without what needs the whole graph at once.
        out: folder of the results, which the first rank writes; by default a new one under `runs/`.
        job: the ranks, and how they share the work.
        data: reads the graph, on every rank: all of it, or the piece of this one.
        partition: how the nodes of a whole graph are shared out: "metis", "streaming" or "blocks".
        resume, checkpoint_seconds: see `fit`.
        watch, log: of the first rank; the others say nothing.
    """
    job.together(partial(_refuse, config, partition, job.shares_batches))  # one of them says it
    checkpoint_seconds = _check.number("checkpoint_seconds", checkpoint_seconds)
    watch = watch if watch is not None and job.first else Watch()
    logs = job.together(partial(opened, log if job.first else None))
    before = job.agreed(job.noted) if out is None else None
    out, resume = out if before is None else before, resume or before is not None
    given = job.agreed(lambda: files.may_write(config, _path(out), resume))
    found = job.together(data)
    material, words, problems = job.together(partial(_shared, config, found, job, partition))
    folder = job.agreed(lambda: given or files.new_folder(config.data.graph))
    with files.claimed(folder) if job.first else nullcontext(), job.lasting(folder):
        job.agreed(lambda: _begin(folder, material, found, resume, watch))
        job.note(folder)
        watch.say(words)
        piece = None if isinstance(found, Dataset) else found.piece
        with told_too(logs, config, watch) as both:
            runs = _train(job, folder, material, problems, both, checkpoint_seconds, piece)
        result = Result(config, runs, folder)
        job.agreed(lambda: _end(folder, result))
    return result


def _shared(
    config: Config, found: Dataset | InPieces, job: Job, partition: str
) -> tuple[RankMaterial | BatchMaterial, str, list[Problem]]:
    """What a rank trains on, in words what is shared, and what each run is to learn."""
    material: RankMaterial | BatchMaterial
    if not isinstance(found, Dataset):
        material, words = of_pieces(config, found, job)
    elif job.shares_batches:
        material, words = whole(config, found, job)
    else:
        material, words = cut(config, found, job, partition)
    seeds = range(config.fit.seed, config.fit.seed + config.fit.runs)
    return material, words, [material.problem(seed) for seed in seeds]


def _refuse(config: Config, partition: str, batches: bool) -> None:
    if batches != bool(config.fit.batch):
        raise ValueError(
            "--parallel batches shares out batches: say how large they are, by --batch 512"
            if batches
            else "--batch is for one process, or for --parallel batches"
        )
    if not batches:
        refuse_settings(config)
    _check.known("partition", partition, PARTITIONS)


def refuse_settings(config: Config) -> None:
    """What is learnt of one graph as a whole is not learnt by ranks that each have a part of it."""
    task = config.task
    if task_of(task).unit != "node":
        raise ValueError(f"--parallel is for targets of nodes, not for --task {task.word}")
    for name in ("show_labels", "reference", "correct"):
        if getattr(task, name, None):
            option = name.replace("_", "-")
            raise ValueError(
                f"--{option} needs the whole graph in one process: not with --parallel"
            )
    if getattr(config.model, "feature_map", None) == "softmax":
        raise ValueError("--feature-map softmax, the exact one, is not for --parallel")


class BatchMaterial(Material):
    """A graph that every rank has, and of whose batches each learns from a share."""

    def __init__(self, job: Job, *given: Any) -> None:
        super().__init__(*given)
        self.ranks = job.ranks


def whole(config: Config, dataset: Dataset, job: Job) -> tuple[BatchMaterial, str]:
    """All of a graph, and in words what is shared."""
    dataset = given_data(config, dataset).encoded(config.data.encoding)
    material = BatchMaterial(job, dataset, config, job.device)
    return material, f"{job.ranks.size} ranks share each batch of {config.fit.batch:,} nodes"


def cut(config: Config, dataset: Dataset, job: Job, how: str) -> tuple[RankMaterial, str]:
    """A rank's part of a whole graph, and in words what is sent."""
    dataset = given_data(config, dataset).encoded(config.data.encoding)
    graph, parts = Graph.from_data(dataset, **config.walk), job.sizes[NODES]
    partition = Partition(job.agreed(lambda: _owners(graph, parts, how)), parts)
    part = PartGraph.of(graph, partition, job.mesh)
    x = rows_of(dataset.features, part.nodes)
    material = RankMaterial(config, x, part.to(job.device), dataset)
    return material, in_words(job.sizes, partition, part)


def of_pieces(config: Config, found: InPieces, job: Job) -> tuple[RankMaterial, str]:
    """A rank's part of a graph that no rank has all of."""
    piece, outline = found.piece, cast(Dataset, found.outline)  # all of one that a task asks for
    task_of(config.task).accept(outline)
    if config.data.encoding:
        raise ValueError("--encoding looks at the whole graph: not with tables in parts")
    partition = Partition(piece.partition, job.sizes[NODES])
    given = piece.edge_index, partition, job.mesh, piece.edge_weight
    part = PartGraph.from_edges(*given, **config.walk)
    material = RankMaterial(config, piece.x, part.to(job.device), outline)
    return material, in_words(job.sizes, partition, part)


def _owners(graph: Graph, parts: int, how: str) -> Tensor:
    """The rank of each node, [N]."""
    if how == "metis":
        return Partition.metis(graph, None, parts).owner
    if how == "streaming":
        return Partition.streaming([graph.edge_index], graph.num_nodes, parts).owner
    return Partition.blocks(graph.num_nodes, parts).owner


def in_words(sizes: dict[str, int], partition: Partition, part: PartGraph) -> str:
    """How the work is shared; every rank calls it."""
    told = []
    if sizes[NODES] > 1:
        least, most = (f"{int(size):,}" for size in partition.sizes.aminmax())
        there = part.shared.there
        sent = part.shared.mesh.nodes.summed(torch.tensor([sum(there.sends) if there else 0]))
        told.append(
            f"{sizes[NODES]} ranks share the nodes: {least} to {most} each; {int(sent):,} rows are "
            f"sent in a hop, {100 * int(sent) / max(partition.num_nodes, 1):.1f} % of all"
        )
    if sizes[HEADS] > 1:
        told.append(f"{sizes[HEADS]} ranks share heads and value columns")
    return "; ".join(told) or "one rank does all"


def _begin(
    folder: Path,
    material: RankMaterial | BatchMaterial,
    found: Dataset | InPieces,
    resume: bool,
    watch: Watch,
) -> None:
    """What the first rank writes before anything is trained: of a graph of one's own that graph
    too, unless no rank has all of it."""
    files.may_write(material.config, folder, resume)  # again: somebody may have been faster
    kept = found if isinstance(found, Dataset) and found.own else None
    begin(folder, material.config, material.device, watch, kept)
    sweep(folder)


def _train(
    job: Job,
    folder: Path,
    material: RankMaterial | BatchMaterial,
    problems: Sequence[Problem],
    watch: Watch,
    checkpoint_seconds: float,
    piece: Piece | None,
) -> list[RunResult]:
    """The runs of a folder, one after the other: those that are done are read."""
    results = job.agreed(lambda: _done(folder, len(problems)))
    for index, result in results.items():
        watch.finish(folder / f"run-{index}", result)
        watch.end(f"run {index}", told(result, material.task.metric))

    def waiting() -> Iterator[RankRun]:
        for index, problem in enumerate(problems):
            if index not in results:
                how = material, index, problem, folder, False, checkpoint_seconds
                yield RankRun(job, piece, *how)

    try:
        for run in work(waiting(), 1, watch):
            if run is not None:
                result = run.finish()
                results[run.index] = result
                watch.finish(run.folder, result)
                watch.end(run.name, told(results[run.index], material.task.metric))
    except KeyboardInterrupt:
        raise Interrupted(folder) from None
    return [results[index] for index in range(len(problems))]


def write_predictions(piece: Piece, run: RankRun, result: RunResult) -> None:
    """What a run says of the nodes of a piece, as RUN/predictions/part-RANK.csv: where no rank has
    the graph, nobody could ask for it later."""
    task, about = run.material.task, run.material.about
    names, own = task.names(about), run.material.graph.nodes.cpu()
    target = run.problem.target.cpu().numpy(), run.problem.split.to("cpu")
    found = {**task.derived(*target), **result.found}
    outputs = run.own_outputs().double().cpu().numpy()
    known = task.target(about)[own].cpu().numpy()  # as it is learnt, of which answers are made
    answers = task.answers(outputs, known, found, names)
    folder = run.folder / PREDICTIONS
    folder.mkdir(parents=True, exist_ok=True)
    rank = run.material.ranks.rank
    write_answers(piece.ids, answers, folder / f"part-{rank:05}.csv", force=True)


def _done(folder: Path, runs: int) -> dict[int, RunResult]:
    places = [folder / f"run-{index}" for index in range(runs)]
    return {i: files.read_result(place) for i, place in enumerate(places) if files.is_done(place)}


def _end(folder: Path, result: Result) -> None:
    files.write_listed(folder, {files.SUMMARY: io.json_bytes(result.to_dict())})


def _path(out: str | Path | None) -> Path | None:
    return None if out is None else _check.path("out", out)
