"""A hop on a CPU: the same formula, fitted on every other row of results/hops-cpu.json."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from experiments.scale.fit import RESULTS, Check
from experiments.scale.walk import Walk
from subtree_attention.io import read_json

FILE = "hops-cpu.json"
BEYOND = 1e8
"""Bytes of a state that no cache of a CPU of today holds for one core."""


def checks(results: Path = RESULTS) -> tuple[dict[str, float], list[Check]]:
    """What was fitted (bytes a second from memory and from the cache, and its size), and how far
    the formula is off on each row."""
    import numpy as np
    from scipy.optimize import least_squares

    found = read_json(results / FILE)
    walks = [
        Walk(row["nodes"], row["edges"], found["heads"], found["keys"], row["values"], 3)
        for row in found["hops"]
    ]
    measured = [row["hop_seconds"] for row in found["hops"]]
    copy = found["copy_bytes_per_second"]

    def seconds(walk: Walk, logs: Any) -> float:
        memory, cached, cache = np.exp(logs)
        hit = min(1.0, cache / (walk.nodes * walk.row))
        gathered = walk.edges * walk.row * ((1 - hit) / memory + hit / cached)
        return float(gathered + walk.nodes * walk.row / copy)

    used = list(zip(walks, measured, strict=True))[::2]

    def off(logs: Any) -> list[float]:
        return [math.log(seconds(walk, logs) / took) for walk, took in used]

    logs = least_squares(off, np.log([copy / 2, copy, 8e6])).x
    fitted = dict(zip(("memory", "cached", "cache"), np.exp(logs).tolist(), strict=True))
    lines = [
        Check(
            f"hop, {walk.nodes:,} nodes, {walk.edges:,} edges, {walk.row:,.0f} bytes a row",
            "seconds",
            took,
            seconds(walk, logs),
            number % 2 == 0,
            walk.nodes * walk.row > BEYOND,
            FILE,
        )
        for number, (walk, took) in enumerate(zip(walks, measured, strict=True))
    ]
    return fitted, lines
