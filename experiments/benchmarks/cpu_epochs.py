"""An epoch on a CPU beside PyG's two-layer GCN, on the paper's graphs.

    python -m experiments.benchmarks.cpu_epochs --out results/epochs-cpu.json

As `python -m experiments bench` times them, but only these two, in turns, and the allocator as it
comes: the slow versions of that command need an hour on a CPU.
"""

from __future__ import annotations

from typing import Any

from experiments.bench.cases import from_registry
from experiments.bench.epoch import versions
from experiments.bench.measure import measure
from experiments.benchmarks.script import CPU, GRAPHS, leave, parser
from subtree_attention.ops import backends

OURS, THEIRS = "ours", "PyG GCN"


def main() -> None:
    command = parser(__doc__, rounds=5)
    command.add_argument("graphs", nargs="*", default=GRAPHS)
    options, result = command.parse_args(), dict[str, Any]()
    for name in options.graphs:
        case = from_registry(name, CPU)
        backend = backends.choose("auto", CPU, case.graph.matrix().weight.dtype)
        both = [each for each in versions(case, backend) if each.name in (OURS, THEIRS)]
        found = measure(both, CPU, options.rounds)
        ours, theirs = found[OURS].median, found[THEIRS].median
        ratio = None if ours is None or theirs is None else ours / theirs
        result[name] = {"ratio": ratio} | {each: found[each].to_dict() for each in found}
        print(f"{name}: ours {ours} ms, GCN {theirs} ms, ratio {ratio}", flush=True)
        leave(options.out, {"rounds": options.rounds, "backend": backend, "graphs": result})


if __name__ == "__main__":
    main()
