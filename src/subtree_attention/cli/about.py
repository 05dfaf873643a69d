"""What there is: datasets, info, and the version."""

from __future__ import annotations

from typing import Annotated

import torch
import typer
from rich.markup import escape
from rich.table import Table

from .. import __version__
from .. import datasets as data
from ..ops.backends import BACKENDS
from ..runs import folder as store
from ..train.loop import choose_device
from .app import (
    DataDir,
    Mirror,
    app,
    out_console,
)


@app.command()
def datasets(data_dir: DataDir = None, mirror: Mirror = None) -> None:
    """List the graphs: their sizes, whether they are here, and where they are looked for."""
    table = Table()
    for column in ("name", "nodes", "edges", "features", "classes", "homophily", "here?"):
        table.add_column(column, justify="left" if column in ("name", "here?") else "right")
    places = []
    for name in data.names():
        info, place = data.info(name), data.where(name, data_dir, mirror)
        sizes = (info.num_nodes, info.num_edges, info.num_features, info.num_classes)
        homophily = "-" if info.homophily is None else f"{info.homophily:.2f}"
        here = "no" if place.status == "download" else f"[green]{place.status}[/green]"
        table.add_row(name, *(f"{n:,}" for n in sizes), homophily, here)
        if place.path:
            places.append(f"{name}: {place.path}")
    out_console.print(table)
    out_console.print("Where each graph is, or would be looked for first:")
    for line in places:
        out_console.print("  " + escape(line), soft_wrap=True)


@app.command()
def info() -> None:
    """Show versions, devices, and which backends of the operator can run here (and why not)."""
    device = choose_device("auto")
    about = store.environment(device)
    table = Table(show_header=False, box=None)
    table.add_row("python", about["python"])
    for package, version in about["packages"].items():
        table.add_row(package, version or "not installed")
    table.add_row("device", f"{device.type}: {about['device']}")
    table.add_row("threads", str(about["threads"]))
    out_console.print(table)
    backends = Table(title="backends of the operator")
    for column in ("backend", "cpu", "cuda", "what"):
        backends.add_column(column)
    for name, backend in BACKENDS.items():
        cells = []
        for kind in ("cpu", "cuda"):
            if kind == "cuda" and not torch.cuda.is_available():
                cells.append("torch sees no GPU")
                continue
            reason = backend.refusal(torch.device(kind), torch.float32)
            cells.append(escape(reason) if reason else "[green]yes[/green]")
        backends.add_row(name, *cells, backend.summary)
    out_console.print(backends)
    out_console.print(f"auto picks '{about['backend']}' on {device.type}")


def _version(value: bool) -> None:
    if value:
        out_console.print(f"subtree-attention {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass
