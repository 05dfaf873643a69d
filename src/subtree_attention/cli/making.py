"""Tables of graphs that are made up: generate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from .app import app, out_console


def _count(text: str) -> int:
    """A whole number that may be written as 1e6."""
    try:
        number = float(text.replace("_", "").replace(",", ""))
    except ValueError:
        number = 0.5
    if number != int(number):
        raise typer.BadParameter(f"{text!r} is no whole number such as 1000000 or 1e6")
    return int(number)


@app.command()
def generate(
    out: Annotated[Path, typer.Argument(help="Folder that is made; it is not there yet.")],
    nodes: Annotated[int, typer.Option(parser=_count, metavar="NUMBER", help="Nodes.")],
    edges: Annotated[
        int, typer.Option(parser=_count, metavar="NUMBER", help="Edges, each counted once.")
    ],
    classes: Annotated[int, typer.Option(help="Classes.")] = 10,
    features: Annotated[int, typer.Option(help="Numbers that each node has.")] = 32,
    homophily: Annotated[float, typer.Option(help="Share of edges within a group.")] = 0.6,
    parts: Annotated[int, typer.Option(help="Files of nodes, and of edges.")] = 8,
    seed: Annotated[int, typer.Option(help="Of all that is random.")] = 0,
) -> None:
    """Write a made-up graph with power-law degrees and planted classes as Parquet in parts.

    Such as: sta generate made-up --nodes 1e6 --edges 1e7, then sta train --nodes made-up/nodes
    --edges made-up/edges --target class --split-column split.
    """
    from ..datasets import planted, write_tables
    from ..io import check_new_folder

    check_new_folder(out)
    made = planted(nodes, edges, classes, features, homophily=homophily, seed=seed)
    write_tables(made, out, parts)
    line = f"{out}: {nodes:,} nodes, {edges:,} edges, {classes:,} classes, in {parts:,} parts each"
    out_console.print(escape(line), soft_wrap=True)
