"""The typer app, its two consoles, and the options that several commands share.

Nothing here imports torch: help, and a mistyped option, are answered at once. The settings of a
run are options by themselves, made from the dataclasses of `config`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.console import Console

from ..config import DataSettings, FitSettings, NodeClassification, Settings, STAGNNSettings

if TYPE_CHECKING:
    from ..train.watch import Watch

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

Options = Mapping[str, tuple[Any, Any]]
"""Name -> what it is, as typer reads it, and its default."""

# --------------------------------------------------------------------------- groups of options


def options(**groups: Options) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take groups of options: each as a dictionary of what was given.

    >>> @options(settings=MODEL)  # doctest: +SKIP
    ... def command(graph: str, settings: dict[str, Any]) -> None: ...
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters
        shown: list[inspect.Parameter] = []
        for name, parameter in own.items():
            group = groups.get(name, {name: (parameter.annotation, parameter.default)})
            shown += [
                inspect.Parameter(
                    each, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
                )
                for each, (kind, default) in group.items()
            ]

        @wraps(command)
        def call(**given: Any) -> None:
            gathered = {}
            for name, group in groups.items():
                values = {each: given.pop(each) for each in group}
                gathered[name] = {n: v for n, v in values.items() if v != group[n][1]}
            command(**given, **gathered)

        call.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        call.__annotations__ = {}
        return call

    return decorate


def setting_options(kind: type[Settings], panel: str, *, leave_out: str = "") -> Options:
    """An option for each setting; None, the default, leaves it to the recipe."""
    hints = get_type_hints(kind)
    return {
        about.name: (
            Annotated[
                hints[about.name] | None, typer.Option(help=_help(about), rich_help_panel=panel)
            ],
            None,
        )
        for about in fields(kind)
        if about.name != leave_out
    }


def _help(about: Any) -> str:
    """What a setting is, and the values it may have."""
    names = list(about.metadata["words"] or ())
    if not names:
        return about.metadata["help"]
    return f"{about.metadata['help']}: {', '.join(names[:-1])} or {names[-1]}."


MODEL = "Model (default: the graph's recipe)"
TRAINING = "Training (default: the graph's recipe)"
SETTINGS: Options = {
    **setting_options(FitSettings, TRAINING),
    **setting_options(NodeClassification, TRAINING),
    **setting_options(DataSettings, TRAINING, leave_out="graph"),
    **setting_options(STAGNNSettings, MODEL),
}


def table_option(kind: Any, help: str, *names: str) -> tuple[Any, Any]:
    return Annotated[kind | None, typer.Option(*names, help=help, rich_help_panel=TABLES)], None


TABLES = "Your own tables"
NEW_TABLES: Options = {
    "nodes": table_option(Path, "Table of the nodes, a row each: .csv, .tsv or .parquet."),
    "edges": table_option(Path, "Table of the edges, a row each."),
    "unknown_ends": table_option(
        str, r"error, or drop: edges that end at no node of the table. \[default: error]"
    ),
}


def _finds_data(variable: str) -> Callable[[Path | None], Path | None]:
    """Where graphs are looked for is said by the environment, here and in other processes."""

    def told(folder: Path | None) -> Path | None:
        if folder is not None:
            os.environ[variable] = str(folder)
        return folder

    return told


def _folder(variable: str, help: str) -> tuple[Any, Any]:
    found = typer.Option(help=help, rich_help_panel="Data", callback=_finds_data(variable))
    return Annotated[Path | None, found], None


DATA: Options = {
    "data_dir": _folder(
        "STA_DATA", "Folder of the graphs; default: env STA_DATA, else your cache folder."
    ),
    "mirror": _folder(
        "STA_MIRROR", "Offline copy of the raw files, only read; default: env STA_MIRROR."
    ),
}
Device = Annotated[
    str, typer.Option(help="cpu, cuda, cuda:1, ... or auto (a GPU if there is one).")
]
PLACE: Options = {
    "device": (Device, "auto"),
    "capture": (
        Annotated[
            bool,
            typer.Option(help="On a GPU, replay epochs as CUDA graphs: the same numbers, sooner."),
        ],
        True,
    ),
    "together": (
        Annotated[int | None, typer.Option(help="Runs that share a GPU at a time. [default: 5]")],
        None,
    ),
}
RunFolder = Annotated[Path, typer.Argument(help="A folder that 'sta train' wrote.")]
Force = Annotated[bool, typer.Option("--force", help="Write over a file.")]

# ----------------------------------------------------------------------------------- displays


def progress() -> AbstractContextManager[Watch]:
    """What is shown while models train: live on a terminal, plain lines elsewhere."""
    from ..show.progress import Bars, Lines

    return Bars(err_console) if err_console.is_terminal else nullcontext(Lines())


def say(line: str, console: Console = out_console) -> None:
    """A line that may hold anything, as it is."""
    console.print(line, soft_wrap=True, markup=False)


def command_words(name: str, given: Mapping[str, Any]) -> Iterator[str]:
    """A command line again: options that are None or False are left out."""
    import shlex

    yield name
    for option, value in given.items():
        if value is not None and value is not False:
            yield "--" + option.replace("_", "-")
            if value is not True:
                yield shlex.quote(str(value))
