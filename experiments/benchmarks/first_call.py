"""How long the first call on a CPU takes: with nothing compiled yet, and with all of it on disk.

    python -m experiments.benchmarks.first_call --rounds 3 --out results/first-call-cpu.json

Each time in a process of its own, a forward pass or a whole training step of the operator: the
seconds of the call itself, and of the process with all that it imports.
"""

import os
import subprocess
import sys
import tempfile
import time
from statistics import median

from experiments.benchmarks.script import leave, parser

CALL = """
import sys, time, torch
from subtree_attention import Graph, subtree_attention

train, random = sys.argv[1] == "training step", torch.Generator().manual_seed(0)
graph = Graph(torch.randint(2000, (2, 10_000), generator=random), 2000)
inputs = [torch.randn(2000, 4, c, generator=random, requires_grad=train) for c in (16, 16, 7)]
weights = torch.ones(4, 4, requires_grad=train)
start = time.perf_counter()
out = subtree_attention(*inputs, graph, 3, weights, backend="numba")
if train:
    out.sum().backward()
print(time.perf_counter() - start)
"""


def seconds(what: str, cache: str) -> tuple[float, float]:
    """Of the call, and of its process."""
    start, command = time.perf_counter(), [sys.executable, "-c", CALL, what]
    environment = os.environ | {"NUMBA_CACHE_DIR": cache}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout), time.perf_counter() - start


def main() -> None:
    arguments = parser(__doc__, rounds=3).parse_args()
    measured: dict[str, dict[str, dict[str, list[float]]]] = {}
    for what in ("forward pass", "training step"):
        taken = measured[what] = {cache: {"call": [], "process": []} for cache in ("empty", "full")}
        for _ in range(arguments.rounds):
            with tempfile.TemporaryDirectory() as cache:
                for state in taken:
                    call, process = seconds(what, cache)
                    taken[state]["call"].append(call)
                    taken[state]["process"].append(process)
        for state, times in taken.items():
            call, process = median(times["call"]), median(times["process"])
            print(f"{what}, cache {state}: call {call:.1f} s, process {process:.1f} s")
    leave(arguments.out, {"seconds": measured})


if __name__ == "__main__":
    main()
