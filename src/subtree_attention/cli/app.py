"""The typer app, its two consoles, and the options that several commands share."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

Shown = TypeVar("Shown")

app = typer.Typer(
    name="sta",
    help="Subtree attention for graphs: train and inspect STAGNN.\n\n"
    "Start with 'sta train' (a small graph of handwritten digits, no download), then "
    "'sta datasets' to see the graphs of the paper. For tables of your own: 'sta train --help'.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
out_console = Console(highlight=False)
err_console = Console(stderr=True, highlight=False)

DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the graphs; default: env STA_DATA, else your cache folder.",
        rich_help_panel="Data",
    ),
]
Mirror = Annotated[
    Path | None,
    typer.Option(
        help="Offline copy of the raw files, only read; default: env STA_MIRROR.",
        rich_help_panel="Data",
    ),
]
Device = Annotated[
    str, typer.Option(help="cpu, cuda, cuda:1, ... or auto (a GPU if there is one).")
]


def training_option(help: str, **more: Any) -> Any:
    return typer.Option(help=help, rich_help_panel="Training (default: the graph's recipe)", **more)


def table_option(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="Your own tables")


Nodes = Annotated[
    Path | None, table_option("Table of the nodes, a row each: .csv, .tsv or .parquet.")
]
Edges = Annotated[Path | None, table_option("Table of the edges, a row each.")]
UnknownEnds = Annotated[
    str | None,
    table_option(r"error, or drop: edges that end at no node of the table. \[default: error]"),
]
Epochs = Annotated[int | None, training_option("Most epochs of a run.")]
Patience = Annotated[
    int | None, training_option("Epochs without a better validation score before a run stops.")
]
Capture = Annotated[
    bool, typer.Option(help="On a GPU, replay epochs as CUDA graphs: the same numbers, sooner.")
]
Together = Annotated[int | None, typer.Option(help="Runs that share a GPU at a time. [default: 5]")]


def live(bars: AbstractContextManager[Shown], lines: Shown) -> AbstractContextManager[Shown]:
    """A live display on a terminal, plain lines elsewhere."""
    return bars if err_console.is_terminal else nullcontext(lines)


def metric_name(metric: str) -> str:
    return {"accuracy": "accuracy (%)", "roc_auc": "ROC-AUC (%)"}[metric]
