"""What there is: datasets, info, and the version."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from .. import __version__
from .app import app, command, out_console


@command()
def datasets() -> None:
    """List the graphs: their sizes, whether they are here, and where they are looked for."""
    from .. import datasets as graphs
    from ..show.tables import numbers

    headings = ("name", "nodes", "edges", "features", "classes", "homophily", "here?")
    rows, places = [], []
    for name in graphs.names():
        info, place = graphs.info(name), graphs.where(name)
        sizes = (info.num_nodes, info.num_edges, info.num_features, info.num_classes)
        homophily = "-" if info.homophily is None else f"{info.homophily:.2f}"
        here = "no" if place.status == "download" else f"[green]{place.status}[/green]"
        rows.append((name, *sizes, homophily, here))
        if place.path:
            places.append(f"{name}: {place.path}")
    out_console.print(numbers(headings, rows, texts=("name", "here?")))
    many = (info for info in map(graphs.info, graphs.names()) if info.num_graphs)
    counts = ", ".join(f"{info.name} ({info.num_graphs:,})" for info in many)
    out_console.print(f"Collections of many graphs: {counts}")
    out_console.print("Where each graph is, or would be looked for first:")
    for line in places:
        out_console.print("  " + escape(line), soft_wrap=True)


@app.command()
def info() -> None:
    """Show versions, devices, and which backends of the operator can run here (and why not)."""
    import torch

    from ..ops.backends import BACKENDS
    from ..runs.environment import choose_device, environment

    device = choose_device("auto")
    about = environment(device)
    table = Table(show_header=False, box=None)
    table.add_row("python", about["python"])
    for package, version in about["packages"].items():
        table.add_row(package, version or "not installed")
    table.add_row("device", f"{device.type}: {about['device']}")
    table.add_row("threads", str(about["threads"]))
    out_console.print(table)
    backends = Table("backend", "cpu", "cuda", "what", title="backends of the operator")
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


MOVED: Any = {"hidden": True, "context_settings": {"ignore_unknown_options": True}}


@app.command("bench", **MOVED)
@app.command("reproduce", **MOVED)
def moved(
    called: typer.Context, words: Annotated[list[str] | None, typer.Argument()] = None
) -> None:
    """A command that is not installed any more says where it is."""
    again = " ".join([str(called.info_name), *(words or [])])
    raise ValueError(
        f"'sta {called.info_name}' is not installed: in a checkout, python -m experiments {again}"
    )


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
