"""How long explaining one root takes on a random graph, with what is kept for all roots built.

    python -m experiments.benchmarks.explain --out results/explain-cpu.json

"explanation" is all parts by hop and head; "importance" the sum of every node's contributions to
a class; "columns" that of every column of the features; "report" what `sta explain` tells: the
first five nodes of each level with their walks, and columns. "without a node" is the explanation
after a neighbour is left out, "without an edge" after its edge is cut, and "other value" after a
feature of the root is another one. Times are those of the processor, so that they do not count
who else works on the machine.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from experiments.benchmarks.large_graph import main
from subtree_attention import Changes, Explanation, SavedRun
from subtree_attention.show.explanation import to_dict


def measure(run: SavedRun, roots: int) -> dict[str, Any]:
    """Median milliseconds over the first roots, after one that is not counted."""
    built, explain = timed(lambda: run.explainer)
    times = []
    for root in range(roots + 1):
        explained, explanation = timed(partial(explain, root))
        asked = {
            "importance": partial(explanation.importance, explanation.predicted),
            "columns": partial(total_of_columns, explanation),
            "report": partial(to_dict, run, explanation),
        }
        near = next(node for node in explanation.level(1).nodes.tolist() if node != root)
        changes = {
            "without a node": Changes(nodes=(near,)),
            "without an edge": Changes.of(run.graph, cut=[(near, root)]),
            "other value": Changes(columns={0: 1.0}),
        }
        asked |= {name: partial(explain, root, change) for name, change in changes.items()}
        found = {"explanation": explained}
        times.append(found | {name: timed(call)[0] for name, call in asked.items()})
    medians = {name: statistics.median(each[name] for each in times[1:]) for name in times[0]}
    result: dict[str, Any] = {name: round(value, 2) for name, value in medians.items()}
    result |= {"build": round(built, 2), "reached": len(explanation.levels[-1].nodes)}
    print(f"{explain.hops} hops: " + ", ".join(f"{name} {value}" for name, value in result.items()))
    return result


def total_of_columns(explanation: Explanation) -> Tensor:
    return explanation.columns(explanation.predicted).total


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds of the processor, and the result."""
    started = time.process_time()
    result = call()
    return 1e3 * (time.process_time() - started), result


if __name__ == "__main__":
    main(__doc__, 15, measure)
