"""How training fares on cores that have other work to do, and what settings of its threads do.

    python -m experiments.benchmarks.busy --rounds 3 --out results/busy-cpu.json

A run on the embedded graph, in a process of its own each time, alone and beside as many endless
loops as there are cores; the settings take turns.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from experiments.benchmarks.script import leave, parser
from subtree_attention.io import read_json

SETTINGS = {
    "as it comes": {},
    "OMP_WAIT_POLICY=PASSIVE": {"OMP_WAIT_POLICY": "PASSIVE"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}


@contextmanager
def other_work(processes: int) -> Iterator[None]:
    """Endless loops beside what is measured."""
    command = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def seconds(settings: dict[str, str]) -> float:
    """What a run takes from its first epoch to its last."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        command = [sys.executable, "-m", "subtree_attention", "train", "digits", "--runs", "1"]
        command += ["--device", "cpu", "--out", str(out)]
        subprocess.run(command, env=os.environ | settings, check=True, capture_output=True)
        return float(read_json(out / "run-0" / "summary.json")["seconds"])


def main() -> None:
    arguments = parser(__doc__, rounds=3).parse_args()
    seconds({})  # compiles the kernels if they are not yet
    measured: dict[str, dict[str, list[float]]] = {}
    for beside, processes in (("idle", 0), ("busy", os.cpu_count() or 1)):
        taken = measured[beside] = {name: [] for name in SETTINGS}
        with other_work(processes):
            for _ in range(arguments.rounds):
                for name, settings in SETTINGS.items():
                    taken[name].append(seconds(settings))
        for name, values in taken.items():
            print(f"{beside}, {name}: {median(values):.1f} s")
    leave(arguments.out, {"seconds": measured})


if __name__ == "__main__":
    main()
