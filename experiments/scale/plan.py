"""All that docs/scale.md shows, from measurements and formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.scale import cpu, halo
from experiments.scale.fit import RESULTS, checks, fit
from experiments.scale.machines import DEVICES, LINKS
from experiments.scale.models import MODELS, SHAPES, Shape
from experiments.scale.ways import COUNTS, Cut, Cuts, Machine, needs
from subtree_attention.io import read_json

HALO = "scale-halo.json"
METHOD = "metis"
FAMILIES = ("clear", "mixed")
"""Graphs that are easy and hard to cut; what real ones are like is measured beside them."""
MACHINES = {
    "H200": Machine(
        DEVICES["H200"], LINKS["NVLink 4"], LINKS["InfiniBand NDR"], LINKS["PCIe 5 x16"]
    ),
    "H100": Machine(
        DEVICES["H100"], LINKS["NVLink 4"], LINKS["InfiniBand NDR"], LINKS["PCIe 5 x16"]
    ),
    "A100": Machine(
        DEVICES["A100"], LINKS["NVLink 3"], LINKS["InfiniBand HDR"], LINKS["PCIe 4 x16"]
    ),
}


def made(results: Path = RESULTS) -> dict[str, Any]:
    """The content of results/scale.json but for the environment."""
    speeds, records = fit(results), read_json(results / HALO)["partitions"]
    on_cpu, of_cpu = cpu.checks(results)
    rows = []
    for name, machine in MACHINES.items():
        for shape in SHAPES:
            for model in MODELS:
                for family in FAMILIES:
                    cuts = cuts_of(records, family)
                    for count in COUNTS:
                        about = {"machine": name, "graph": shape.name, "model": model.name}
                        about |= {"family": family}
                        for need in needs(model, shape, machine, speeds, cuts, count):
                            rows.append(about | _finite(need.to_dict()))
    return {
        "speeds": vars(speeds),
        "cpu": on_cpu,
        "checks": [check.to_dict() for check in (*checks(speeds, results), *of_cpu)],
        "cuts": [
            {"graph": shape.name, "family": family, "parts": parts}
            | vars(cuts_of(records, family)(shape, parts))
            for shape in SHAPES
            for family in FAMILIES
            for parts in (8, 64, 512)
        ],
        "needs": rows,
    }


def cuts_of(records: list[dict[str, Any]], family: str) -> Cuts:
    """How graphs of a family are cut, by the rule of `halo`."""
    here = [r for r in records if r["family"] == family and r["method"] == METHOD]
    size = max(record["nodes"] for record in here)
    largest = max(record["largest"] for record in here if record["nodes"] == size)
    most = max(record["most"] for record in here if record["nodes"] == size)

    def cut(shape: Shape, parts: int) -> Cut:
        if parts == 1:
            return Cut()
        share = halo.cut_of(records, family, METHOD, parts)
        degrees = halo.power_law(shape.edges / shape.nodes)
        inner = float(np.mean((1 - share) ** degrees))
        return Cut(halo.rule(degrees, share, parts), inner, largest, most)

    return cut


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: what cannot be laid out has no numbers."""
    return {name: None if value == float("inf") else value for name, value in row.items()}
