"""All runs of the paper's Table 1 on one GPU, and how long they take from nothing.

    python -m experiments.benchmarks.table1 --out results/table1-h200.json

Nine graphs (CoraFull's raw file has to be there for the tenth), the paper's protocols, recipes and
early stopping: 5 runs each on Cora, Citeseer, Deezer and Actor, 10 each on the others. The time
counts from the start of the process: imports, reading the raw files, positional encoding and kernel
compilation are in it. Graphs are prepared by a few processes while others train.
"""

import time

START = time.perf_counter()

import tempfile  # noqa: E402
from concurrent.futures import ProcessPoolExecutor  # noqa: E402
from pathlib import Path  # noqa: E402

import torch  # noqa: E402

from experiments.benchmarks.script import GRAPHS, leave, parser, prepare  # noqa: E402
from subtree_attention.runs.environment import environment  # noqa: E402
from subtree_attention.train.fit import fit  # noqa: E402
from subtree_attention.train.jobs import Place  # noqa: E402
from subtree_attention.train.recipes import recipe  # noqa: E402


def main() -> None:
    options = parser(__doc__, device="auto", processes=(4, "that prepare graphs"))
    options.add_argument("graphs", nargs="*", default=GRAPHS)
    options.add_argument("--runs", type=int, help="instead of the protocol's")
    options.add_argument("--together", type=int, help="runs that share the GPU at a time")
    arguments = options.parse_args()
    place = Place.of(arguments.device, arguments.together)
    changes = {} if arguments.runs is None else {"runs": arguments.runs}
    configs = {name: recipe(name, **changes) for name in arguments.graphs}

    results = {}
    context = torch.multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(arguments.processes, mp_context=context) as pool,
        tempfile.TemporaryDirectory() as folder,
    ):
        first, *rest = configs
        prepared = {name: pool.submit(prepare, configs[name]) for name in rest}
        for name, config in configs.items():
            data = prepare(config) if name == first else prepared[name].result()
            ready = time.perf_counter() - START
            result = fit(config, Path(folder) / name, data=data, device=place)
            ended = time.perf_counter() - START
            scores = {**result.to_dict(), "config": config.to_dict()}
            results[name] = {**scores, "ready": round(ready, 2), "ended": round(ended, 2)}
            spread = 100 * (result.std or 0)
            print(f"{name:<9} {100 * result.mean:.2f} ({spread:.2f})  at {ended:.1f} s", flush=True)
    seconds = round(time.perf_counter() - START, 2)
    runs = sum(len(result["runs"]) for result in results.values())
    epochs = sum(run["epochs"] for result in results.values() for run in result["runs"])
    print(
        f"{runs} runs, {epochs} epochs in {seconds:.1f} s on {environment(place.device)['device']}"
    )
    summary = {"seconds": seconds, "runs": runs, "epochs": epochs}
    leave(arguments.out, {**summary, "graphs": results}, place.device)


if __name__ == "__main__":
    main()
