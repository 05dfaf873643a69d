"""What states in bfloat16 cost in score and save in time, in pairs that differ in nothing else.

    python -m experiments.benchmarks.precision --out results/precision-h200.json

On each graph the paper's recipe is trained twice from every seed on the same split, with full and
with rounded states; the runs of a graph share the GPU. Then an epoch of each is timed, in turns: on
the graphs, and on a random graph as large as ogbn-arxiv. On a CPU states are not rounded: there
`--precisions full,full` tries the command, and finds no difference.
"""

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from math import sqrt
from statistics import fmean, stdev
from typing import Any

import torch

from experiments.bench.cases import from_shape
from experiments.bench.measure import Run as Advance
from experiments.bench.measure import Version, measure
from experiments.benchmarks.script import CPU, GRAPHS, leave, parser, prepare
from subtree_attention.config import Config
from subtree_attention.datasets import Dataset
from subtree_attention.train.jobs import Place, work
from subtree_attention.train.recipes import recipe
from subtree_attention.train.run import Material, Run
from subtree_attention.train.step import EAGER_EPOCHS, Trainer

Materials = Sequence[Material]
"""The two that are compared: the same graph, to be trained with other states."""


def both(data: Dataset, configs: Sequence[Config], place: Place) -> Materials:
    return [Material(data, config, place.device) for config in configs]


def trainer(material: Material, seed: int) -> Trainer:
    """As `fit` begins the run of a seed."""
    problem = material.problem(seed)
    torch.manual_seed(seed)
    return material.trainer(material.network(), problem, capture=True)


# ------------------------------------------------------------------------------------- scores


def pairs(materials: Materials, place: Place) -> list[dict[str, Any]]:
    """The two runs of every seed: test scores, epochs, and the second score less the first."""
    fit = materials[0].config.fit
    seeds = range(fit.seed, fit.seed + fit.runs)

    def waiting() -> Iterator[Run]:
        for seed in seeds:
            for which, material in enumerate(materials):
                begun = trainer(material, seed)
                yield Run(f"{seed} {which}", begun, fit.epochs, fit.patience)

    ended = {run.name: _ended(run) for run in work(waiting(), place.at_a_time(True)) if run}
    found = []
    for seed in seeds:
        tests, epochs = zip(*(ended[f"{seed} {which}"] for which in range(2)), strict=True)
        difference = tests[1] - tests[0]
        found.append({"seed": seed, "test": tests, "epochs": epochs, "difference": difference})
    return found


def _ended(run: Run) -> tuple[float, int]:
    """Of a run: the test score at its best epoch, and how many epochs it took."""
    assert run.best is not None  # a run has at least one epoch
    return run.best.test, run.epoch


def summary(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The mean of the differences and its standard error."""
    differences = [pair["difference"] for pair in found]
    error = stdev(differences) / sqrt(len(differences)) if len(differences) > 1 else None
    return {"pairs": len(differences), "mean": fmean(differences), "error": error}


def told(about: dict[str, Any]) -> str:
    """In points."""
    error = "" if about["error"] is None else f" ({100 * about['error']:.3f})"
    return f"{100 * about['mean']:+.3f}{error} points in {about['pairs']} pairs"


# --------------------------------------------------------------------------------------- time


def epochs(materials: Materials, rounds: int) -> list[dict[str, Any]]:
    """Milliseconds and memory of an epoch of each, in turns."""

    def version(which: int, material: Material) -> Version:
        def start() -> Advance:
            begun = trainer(material, 0)
            for _ in range(EAGER_EPOCHS):  # captured before the clock starts
                begun.epoch()

            def advance(count: int) -> None:
                for _ in range(count):
                    begun.epoch()

            return advance

        return Version(f"{which} {material.config.fit.precision}", start)

    versions = [version(which, material) for which, material in enumerate(materials)]
    found = measure(versions, materials[0].device, rounds)
    return [{"precision": v.name.split()[1], **found[v.name].to_dict()} for v in versions]


def row(name: str, about: dict[str, Any]) -> str:
    """A graph as a line of a table: difference of scores, milliseconds, megabytes."""
    score, found = told(about) if "mean" in about else "", about["epoch"]
    times = " -> ".join(each["problem"] or f"{each['median']:.3g}" for each in found)
    peaks = " -> ".join(f"{(each['peak_bytes'] or 0) / 1e6:,.0f}" for each in found)
    return f"| {name} | {score} | {times} | {peaks} |"


# ---------------------------------------------------------------------------------- the command


def options() -> ArgumentParser:
    made = parser(
        __doc__,
        runs=(3, "seeds of each graph, of two runs each"),
        epochs=(0, "most epochs of a run; 0: the recipe's"),
        precisions=("full,bf16", "the two that are compared; without a GPU: full,full"),
        shape=("arxiv", "random graph of which an epoch is timed: a name or sizes; '': none"),
        rounds=(5, "of the times"),
        together=(6, "runs that share the GPU"),
        processes=(4, "that prepare graphs"),
        device="auto",
    )
    made.add_argument("graphs", nargs="*", default=GRAPHS)
    return made


def varied(config: Config, precisions: str, place: Place) -> list[Config]:
    """The two configurations, if they can be trained here."""
    configs = [config.replace(precision=precision) for precision in precisions.split(",")]
    if len(configs) != 2:
        raise ValueError(f"two precisions are compared, such as full,bf16; got {precisions}")
    for each in configs:
        place.check(each)
    return configs


def train(
    configs: dict[str, list[Config]], place: Place, processes: int
) -> Iterator[tuple[str, Materials, list[dict[str, Any]]]]:
    """Each graph, and its pairs of runs; other processes prepare the next ones."""
    context = torch.multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        prepared = {name: pool.submit(prepare, some[0]) for name, some in configs.items()}
        for name, some in configs.items():
            materials = both(prepared.pop(name).result(), some, place)
            yield name, materials, pairs(materials, place)


def main() -> None:
    made = options()
    asked = made.parse_args()
    place = Place.of(asked.device, asked.together)
    changes = {"runs": asked.runs} | ({"epochs": asked.epochs} if asked.epochs else {})
    try:
        configs = {
            name: varied(recipe(name, **changes), asked.precisions, place) for name in asked.graphs
        }
    except ValueError as error:
        made.error(str(error))
    graphs: dict[str, dict[str, Any]] = {}
    result = {"precisions": asked.precisions.split(","), "graphs": graphs}
    timed: dict[str, Materials] = {}
    for name, materials, runs in train(configs, place, asked.processes):
        graphs[name], timed[name] = {**summary(runs), "runs": runs}, materials
        print(f"{name:<9} {told(graphs[name])}", flush=True)
    result["all"] = summary([pair for about in graphs.values() for pair in about["runs"]])
    print(f"all       {told(result['all'])}")
    if asked.shape:
        case = from_shape(asked.shape, CPU)
        graphs[case.name] = case.to_dict()
        timed[case.name] = both(case.data, varied(case.config, asked.precisions, place), place)
    for name, materials in timed.items():  # now that no other process works
        graphs[name]["epoch"] = epochs(materials, asked.rounds)
        print(row(name, graphs[name]), flush=True)
    leave(asked.out, result, place.device)


if __name__ == "__main__":
    main()
