"""How long explaining one root takes on a random graph, with what is kept for all roots built.

    python -m experiments.benchmarks.explain --out results/explain-cpu.json

"explanation" is all parts by hop and head; "importance" the sum of every node's contributions to
a class; "report" what `sta explain` tells: the first five nodes of each level and their walks.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from experiments.benchmarks.large_graph import main
from subtree_attention import SavedRun
from subtree_attention.show.explanation import to_dict


def measure(run: SavedRun, roots: int) -> dict[str, Any]:
    """Median milliseconds over the first roots, after one that is not counted."""
    built, explain = timed(lambda: run.explainer)
    times = []
    for root in range(roots + 1):
        explained, explanation = timed(partial(explain, root))
        summed, _ = timed(partial(explanation.importance, explanation.predicted))
        told, _ = timed(partial(to_dict, run, explanation))
        times.append((explained, summed, told))
    columns = zip(*times[1:], strict=True)
    medians = [round(statistics.median(column), 2) for column in columns]
    result = dict(zip(("explanation", "importance", "report"), medians, strict=True))
    result |= {"build": round(built, 2), "reached": len(explanation.levels[-1].nodes)}
    print(f"{explain.hops} hops: " + ", ".join(f"{name} {value}" for name, value in result.items()))
    return result


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds, and the result."""
    started = time.perf_counter()
    result = call()
    return 1e3 * (time.perf_counter() - started), result


if __name__ == "__main__":
    main(__doc__, 15, measure)
