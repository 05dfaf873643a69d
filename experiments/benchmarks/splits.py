"""Many splits of one graph, several processes at a time, in one result file.

    python -m experiments.benchmarks.splits cora --runs 20 --processes 4 --out results/cora.json

The five runs of the paper's protocol A scatter by about a point; this shows the mean that they
scatter around.
"""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from experiments.benchmarks.script import parser
from subtree_attention.io import read_json, write_json


def main() -> None:
    arguments = parser(__doc__, "graph", runs=20, processes=4).parse_args()
    each = -(-arguments.runs // arguments.processes)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "subtree_attention", "train", arguments.graph]
        outs, running = [], []
        for seed in range(0, arguments.runs, each):
            outs.append(Path(folder) / str(seed))
            runs = min(each, arguments.runs - seed)
            how = ["--seed", str(seed), "--runs", str(runs), "--out", str(outs[-1])]
            running.append(subprocess.Popen([*command, *how]))
        ended = [process.wait() for process in running]
        if any(ended):
            raise SystemExit("a run failed")
        summaries = [read_json(out / "summary.json") for out in outs]
        environment = read_json(outs[0] / "environment.json")
        config = read_json(outs[0] / "config.json")
    runs = [run for summary in summaries for run in summary["runs"]]
    scores = [run["test"] for run in runs]
    result = {"graph": arguments.graph, "mean": statistics.mean(scores)}
    result |= {"std": statistics.stdev(scores), "runs": runs, "config": config}
    environment.pop("command")
    write_json(arguments.out, {**result, "environment": environment})
    print(f"{arguments.graph}: {100 * result['mean']:.2f} ({100 * result['std']:.2f})")


if __name__ == "__main__":
    main()
