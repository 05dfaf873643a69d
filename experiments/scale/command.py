"""What the command does: partitions if asked, then formulas, file, picture and page."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from experiments import scale
from experiments.scale import drawing, halo, plan
from experiments.scale.render import DOCS, RESULTS, SCALE, render
from subtree_attention.io import read_json, write_json
from subtree_attention.runs.environment import environment

COMMAND = "python -m experiments scale"


def parser() -> argparse.ArgumentParser:
    about, _, more = (scale.__doc__ or "").partition("\n\n")
    found = argparse.ArgumentParser(COMMAND, description=about, epilog=more)
    add = found.add_argument
    add("--halo", action="store_true", help="partition graphs again, which takes minutes")
    add("--render", action="store_true", help="only write the page, from the files")
    add("--results", type=Path, default=RESULTS, help="folder of the files")
    add("--docs", type=Path, default=DOCS, help="page with the tables")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point; wrong words are `ValueError`."""
    asked = parser().parse_args(arguments)
    if asked.halo:
        partitions(asked.results / plan.HALO)
    if not asked.render:
        content = plan.made(asked.results)
        about = environment(torch.device("cpu")) | {"command": COMMAND}
        write_json(asked.results / SCALE, {**content, "environment": about})
        print(f"written to {asked.results / SCALE}")
    found = read_json(asked.results / SCALE)
    for file in drawing.draw(found["needs"], asked.results / "scale"):
        print(f"written to {file}")
    print(f"written to {render(asked.results, asked.docs)}")


def partitions(file: Path) -> None:
    """Measure cuts and halos, and keep them."""
    records = []
    for record in halo.measure():
        records.append(record)
        words = f"{record['family']}, {record['nodes']:,} nodes, {record['method']}"
        print(f"{words}, {record['parts']} parts: cut {record['cut']:.3f}", flush=True)
    about = environment(torch.device("cpu")) | {"command": f"{COMMAND} --halo"}
    write_json(file, {"partitions": records, "environment": about})
