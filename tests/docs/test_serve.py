"""The numbers of docs/serve.md are those of the committed file."""

import json
from typing import Any

from tests.docs.snippets import ROOT


def rows(result: dict[str, Any]) -> list[str]:
    """The tables of the page: answers, and clients at a time."""
    names = {
        "nodes one by one": "nodes of the graph, one by one",
        "nodes in batches of 100": "the same, 100 at a time",
        "new, edges by degree, one by one": "new nodes, one by one",
        "new, edges by degree, in batches of 100": "the same, 100 that join together",
    }
    ways = [result[way] for way in ("states kept", "no states")]
    found = []
    for name, words in names.items():
        cells = [_cell(way[name]) for way in ways]
        found.append(f"| {words} | {' | '.join(cells)} |")
    whole = result["whole"]["seconds"]
    found.append(f"| 100 new nodes by the whole graph, as `sta predict --join` | {whole:.0f} s | |")
    http = ways[0]["http"]
    for kind, words in (("nodes", "a node of the graph"), ("new", "a new node")):
        one, many = (http[f"{kind}, {clients} clients"] for clients in (1, 50))
        cells = [f"{one['median_ms']:.1f}", *(f"{many[p]:.0f}" for p in ("median_ms", "p99_ms"))]
        more = f"{many['requests_a_second']:.0f} | {many['errors']} of {many['requests']:,}"
        found.append(f"| {words} | {' | '.join(cells)} | {more} |")
    return found


def _cell(measured: dict[str, float]) -> str:
    rate = f"{measured['nodes_a_second']:.0f} a second"
    if "median_ms" not in measured:
        return rate
    return f"{rate} (median {measured['median_ms']:.1f} ms, p99 {measured['p99_ms']:.0f} ms)"


def test_the_tables_are_those_of_the_file() -> None:
    result = json.loads((ROOT / "results/serve-cpu.json").read_text())
    page = (ROOT / "docs/serve.md").read_text()
    for row in rows(result):
        assert row in page, row
    assert (result["nodes"], result["edges"], result["hops"]) == (10**6, 10**7, 3)
    for way in ("states kept", "no states"):
        assert result[way]["largest_difference_from_the_whole"] < 1e-6
    numbers = result["nodes"] * result["hidden"] * (result["classes"] + 1)
    assert f"{4 * numbers / 1e9:.1f} GB here" in page
