"""The figures of docs/reliability.md are those of the results and of the tests that it names."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
FAULTS = json.loads((ROOT / "results/faults.json").read_text(encoding="utf-8"))["results"]
KINDS = ("death", "torn", "full", "flip")


def row(name: str, found: dict[str, Any]) -> str:
    """A line of the table: how often each fault was injected, and what came of it."""
    faults, outcomes = found["faults"], found["outcomes"]
    tried = [f"{faults[kind]:,}" if kind in faults else "" for kind in KINDS]
    ends = [f"{count:,} {end}" for end, count in sorted(outcomes.items(), key=lambda it: -it[1])]
    return f"| {name} | {' | '.join(tried)} | {', '.join(ends)} | {len(found['lost'])} |"


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name: str) -> None:
    assert FAULTS[name]["lost"] == []
    assert row(name, FAULTS[name]) in TEXT


def test_all_faults() -> None:
    count = sum(sum(found["faults"].values()) for found in FAULTS.values())
    assert f"{count:,} faults" in TEXT


def test_the_corpus_has_as_many_lines_as_it_says_at_least() -> None:
    said = re.search(r"calls.txt\) \| ([\d,]+) \|", TEXT)
    assert said is not None
    lines = [
        line
        for path in (ROOT / "tests/corpus").glob("*.txt")
        for line in path.read_text(encoding="utf-8").splitlines()
        if " -> " in line
    ]
    assert 500 <= int(said[1].replace(",", "")) <= len(lines)


@pytest.mark.parametrize("device", ["cpu", "h200"])
def test_hubs(device: str) -> None:
    found = json.loads((ROOT / f"results/hub-{device}.json").read_text(encoding="utf-8"))
    for backend, errors in found["largest error"].items():
        numbers = " | ".join(f"{errors[f'level {hop}']:.1e}" for hop in (2, 3))
        where = "H200" if device == "h200" else "CPU"
        assert f"| `{backend}`, {where} | {numbers} |" in TEXT
        assert backend == "torch" or errors["level 2"] <= 5e-5
