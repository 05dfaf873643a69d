"""How long `sta explore` takes to show a root of a large random graph, asked over HTTP.

    python -m experiments.benchmarks.explore --out results/explore.json

The model is not trained: what is computed does not depend on its weights. "first" draws three hops
of a root that was not asked for before, "all" all hops of another, "switch" the same root by
contribution, as when a control is moved, "what if" the same without the node that adds most.
"""

import json
import statistics
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from experiments.benchmarks.large_graph import main
from subtree_attention import SavedRun
from subtree_attention.show.explore import Views
from subtree_attention.show.explore.server import server
from subtree_attention.show.pages.serving import address, listen, serving


def measure(run: SavedRun, roots: int) -> dict[str, Any]:
    """Milliseconds of each kind of view, median and largest, after a root that is not counted."""
    hops = run.config.model.hops
    started = time.perf_counter()
    views = Views(run)
    built = time.perf_counter() - started
    times: dict[str, list[float]] = {"first": [], "switch": [], "what if": [], "all": []}

    def ask(kind: str, **parameters: Any) -> dict[str, Any]:
        milliseconds, answer = asked(url, **parameters)
        times[kind].append(milliseconds)
        return answer

    with served(views) as url:
        for root in range(roots + 1):
            answer = ask("first", id=root, hops=3)
            ask("switch", id=root, hops=3, by="contribution")
            sources = (source["id"] for source in answer["parts"]["sources"])
            most = next(id for id in sources if id != str(root))
            ask("what if", id=root, hops=3, without=f"node:{most}")
            ask("all", id=roots + 1 + root, hops=hops)
    result: dict[str, Any] = {"build_seconds": round(built, 2)}
    for name, values in times.items():
        counted = values[1:]
        result[name] = {"median": round(statistics.median(counted), 1)}
        result[name] |= {"largest": round(max(counted), 1)}
        result[name] |= {"milliseconds": [round(value, 1) for value in counted]}
        print(f"{hops} hops, {name}: {result[name]['median']} ms, at most {max(counted):.1f}")
    return result


@contextmanager
def served(views: Views) -> Iterator[str]:
    with listen(0) as listening, serving(server(views, listening), listening):
        yield f"{address(listening)}/"


def asked(url: str, **parameters: Any) -> tuple[float, dict[str, Any]]:
    """Milliseconds from the question to the whole answer, and the answer, which must add up."""
    started = time.perf_counter()
    path = f"{url}api/node?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(path) as answer:
        content = answer.read()
    milliseconds = 1e3 * (time.perf_counter() - started)
    told = json.loads(content)
    parts = told["parts"]
    names = ("others_contribution", "beyond", "other_heads", "bias")
    whole = sum(source["contribution"] for source in parts["sources"])
    whole += sum(parts[name] for name in names)
    assert abs(whole - parts["logit"]) < 1e-4
    return milliseconds, told


if __name__ == "__main__":
    main(__doc__, 20, measure)
