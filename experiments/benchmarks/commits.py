"""Epochs of two commits beside each other, in turns: whether a change made training slower.

    git worktree add build/gpu/old cb4b84c
    python -m experiments.benchmarks.commits build/gpu/old/src src --out results/commits-h200.json

Every measurement is two runs of `fit` in a process of its own, a short and a long one, whose
difference is epochs and nothing else. What is called is the same in both commits.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from experiments.benchmarks.script import leave, parser
from subtree_attention.runs.environment import choose_device

CASES = {"cora": (300, 8300), "physics": (100, 2100), "arxiv": (10, 110)}
"""Graph, or shape -> epochs of the short and of the long run."""

MEASURE = """
import json, sys, tempfile
from pathlib import Path
import torch
import subtree_attention as sta

case, epochs = sys.argv[1], [int(count) for count in sys.argv[2:]]
data, settings = None, {"runs": 1}
if case == "arxiv":
    from torch_geometric.data import Data

    random = torch.Generator().manual_seed(0)
    nodes, edges = 169_343, 2_314_735
    data = Data(
        x=torch.randn(nodes, 128, generator=random),
        edge_index=torch.randint(nodes, (2, edges), generator=random),
        y=torch.arange(nodes) % 40,
    )
    settings |= {"graph": "arxiv", "hops": 3, "heads": 4, "hidden_channels": 64}
seconds = []
for count in epochs:
    config = sta.recipe(case if data is None else data)
    config = config.replace(**settings, epochs=count, patience=count)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        sta.fit(config, out, device="auto", data=data, checkpoint_seconds=1e9)
        summary = json.loads((out / "run-0" / "summary.json").read_text(encoding="utf-8"))
        scores = (out / "run-0" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1]
    seconds.append(summary["seconds"])
each = (seconds[1] - seconds[0]) / (epochs[1] - epochs[0])
print(json.dumps({"milliseconds": 1000 * each, "last": json.loads(scores)}))
"""


def measure(source: str, case: str) -> dict[str, Any]:
    """Milliseconds of an epoch, and the last one's scores."""
    command = [sys.executable, "-c", MEASURE, case, *map(str, CASES[case])]
    env = os.environ | {"PYTHONPATH": str(Path(source).resolve())}
    done = subprocess.run(command, env=env, check=True, capture_output=True, encoding="utf-8")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    arguments = parser(__doc__, "old", "new", rounds=3).parse_args()
    found: dict[str, Any] = {}
    for case in CASES:
        taken: dict[str, list[float]] = {"old": [], "new": []}
        last = {}
        for _ in range(arguments.rounds):
            for name in taken:
                result = measure(getattr(arguments, name), case)
                taken[name].append(result["milliseconds"])
                last[name] = result["last"]
        ratio = median(taken["new"]) / median(taken["old"])
        found[case] = {"milliseconds": taken, "ratio": ratio, "same": last["old"] == last["new"]}
        print(f"{case}: {median(taken['old']):.3f} -> {median(taken['new']):.3f} ms, {ratio:.3f}")
    leave(arguments.out, found, choose_device("auto"))


if __name__ == "__main__":
    main()
