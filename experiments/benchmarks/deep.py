"""An epoch of STAFormer beside those of its rivals, each with the settings its trials start from.

    python -m experiments.benchmarks.deep --out results/deep-h200.json

An epoch is a training step, an evaluation and the scores; on a GPU it is replayed as a CUDA graph.
Models take turns, alone on the device, and `ratio` is ours over the rival's.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from experiments.benchmarks.script import leave, parser
from experiments.field.studies import STUDIES
from experiments.reproduce.jobs import Job
from subtree_attention.runs.environment import choose_device
from subtree_attention.train.run import Material
from subtree_attention.train.step import EAGER_EPOCHS, Trainer

WARM = EAGER_EPOCHS + 3
GRAPHS = {graph: study for study in ("fixed", "minesweeper") for graph in STUDIES[study].graphs}


def first_jobs(graph: str) -> dict[str, Job]:
    """Model -> its first trial."""
    study = STUDIES[GRAPHS[graph]]
    return {model: study.trials(graph, model)[0] for model in study.models}


def trainer_of(job: Job, device: torch.device) -> Trainer:
    material = Material(job.load(), job.config, device)
    return material.trainer(job.build(material), material.problem(job.seed), capture=True)


def milliseconds(trainer: Trainer, epochs: int) -> float:
    """Of an epoch, of so many that are queued one after the other."""
    trainer.lane.settle()
    started = time.perf_counter()
    for _ in range(epochs):
        trainer.epoch()
    trainer.lane.settle()
    return 1000 * (time.perf_counter() - started) / epochs


def measure(graph: str, device: torch.device, epochs: int, rounds: int) -> dict[str, Any]:
    jobs = first_jobs(graph)
    trainers = {model: trainer_of(job, device) for model, job in jobs.items()}
    for trainer in trainers.values():
        milliseconds(trainer, WARM)
    times: dict[str, list[float]] = {model: [] for model in trainers}
    for _ in range(rounds):
        for model, trainer in trainers.items():
            times[model].append(milliseconds(trainer, epochs))
    best = {model: min(some) for model, some in times.items()}
    ours, *rivals = best
    return {
        "milliseconds": best,
        "ratio": {model: best[ours] / best[model] for model in rivals},
        "settings": {model: job.variant for model, job in jobs.items()},
    }


def main() -> None:
    command = parser(__doc__, rounds=3, epochs=50, device="auto")
    command.add_argument("graphs", nargs="*", default=[*GRAPHS])
    options = command.parse_args()
    device, result = choose_device(options.device), dict[str, Any]()
    for graph in options.graphs:
        result[graph] = measure(graph, device, options.epochs, options.rounds)
        print(graph, result[graph]["milliseconds"], flush=True)
        leave(options.out, {"rounds": options.rounds, "graphs": result}, device)


if __name__ == "__main__":
    main()
