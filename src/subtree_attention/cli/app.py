"""The typer app, its two consoles, and the options that several commands share.

Nothing here imports torch: help, and a mistyped option, are answered at once. The settings of a
run are options by themselves, made from the dataclasses of `config`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.console import Console

from .._check import needs as needs
from ..config import MODELS, TASKS, DataSettings, FitSettings, Settings

if TYPE_CHECKING:
    from ..train.watch import Watch

app = typer.Typer(
    name="sta",
    help="Subtree attention for graphs: train models of nodes, links and graphs, and inspect "
    "them.\n\n"
    "Start with 'sta train' (a small graph of handwritten digits, no download), then "
    "'sta datasets' to see the graphs of the paper. For tables of your own: 'sta train --help'.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
out_console = Console(highlight=False)
err_console = Console(stderr=True, highlight=False)

Options = dict[str, tuple[Any, Any]]
"""Name -> what it is, as typer reads it, and its default: see `option`."""
Given = dict[str, Any]
"""The options of a group that are not the default."""

# --------------------------------------------------------------------------- groups of options


def option(
    kind: Any, help: str, default: Any = None, *names: str, panel: str | None = None, **more: Any
) -> tuple[Any, Any]:
    """An option of a group."""
    about = typer.Option(*names, help=help, rich_help_panel=panel, **more)
    return Annotated[kind if default is not None else kind | None, about], default


def group(panel: str | None = None, /, **rows: tuple[Any, ...]) -> Options:
    """Options by name: (kind, help, default, other names); a bool without a default is a flag."""
    made = {}
    for name, (kind, help, *more) in rows.items():
        flag = kind is bool and not more
        made[name] = option(kind, help, *([None, f"--{name}"] if flag else more), panel=panel)
    return made


def options(**groups: Options) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take groups of options: each as a dictionary of what was given, if it asks.

    >>> @options(settings=MODEL)  # doctest: +SKIP
    ... def command(graph: str, settings: Given) -> None: ...
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = signature(command, eval_str=True).parameters
        alone = {name: {name: (it.annotation, it.default)} for name, it in own.items()}
        shown = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for group in {**alone, **groups}.values()
            for name, (kind, default) in group.items()
        ]

        @wraps(command)
        def call(**given: Any) -> None:
            for name, group in groups.items():
                values = {each: given.pop(each) for each in group}
                if name in own:
                    given[name] = {n: v for n, v in values.items() if v != group[n][1]}
            if "run" in given:  # first: where there is no run, nothing can be written or shown
                from ..runs.folder import finished_runs

                for run in given["run"] if isinstance(given["run"], list) else [given["run"]]:
                    finished_runs(run)
            command(**given)

        call.__signature__ = Signature(shown)  # type: ignore[attr-defined]
        call.__annotations__ = {}
        return call

    return decorate


def setting_options(
    kind: type[Settings], panel: str, owners: Callable[[str], str] = lambda name: ""
) -> Options:
    """An option for each setting; None, the default, leaves it to the recipe.

    `owners` says of a setting who has it, where not everybody does.
    """
    hints = get_type_hints(kind)
    return {
        each.name: option(hints[each.name], owners(each.name) + _help(each), panel=panel)
        for each in fields(kind)
        if each.metadata  # the graph has none: it is an argument
    }


def any_of(name: str, help: str, kinds: Mapping[str, type[Settings]], panel: str) -> Options:
    """Which kind of settings, by a word, and an option for each setting that any of them has.

    Where they have other values for it, the help says which has what.
    """

    def owners(setting: str) -> str:
        has = [word for word, kind in kinds.items() if setting in kind.__dataclass_fields__]
        return "" if len(has) == len(kinds) else f"({', '.join(has)}) "

    made: Options = {}
    for kind in kinds.values():
        for each, found in setting_options(kind, panel, owners).items():
            made.setdefault(each, found)
    for each in made:
        have: dict[tuple[str, ...], list[str]] = {}
        for word, kind in kinds.items():
            if each in kind.__dataclass_fields__:
                about = kind.__dataclass_fields__[each].metadata
                have.setdefault(tuple(about["words"] or ()), []).append(word)
        if len(have) > 1:
            values = (f"{', '.join(names)} ({', '.join(words)})" for names, words in have.items())
            made[each] = option(str, f"{about['help']}: {'; '.join(values)}.", panel=panel)
    return {name: option(str, f"{help}: {', '.join(kinds)}.", panel=panel), **made}


def _help(about: Any) -> str:
    """What a setting is, and the values it may have; a help that ends with a stop says them."""
    help, names = about.metadata["help"], list(about.metadata["words"] or ())
    if names and not help.endswith("."):
        return f"{help}: {', '.join(names[:-1])} or {names[-1]}."
    return help if help.endswith(".") else f"{help}, at most {about.metadata['most']:,}."


TRAINING = "Training (default: the graph's recipe)"
SETTINGS: Options = {
    **setting_options(FitSettings, TRAINING),
    **any_of("task", "What is learnt", {kind.word: kind for kind in TASKS.values()}, TRAINING),
    **setting_options(DataSettings, TRAINING),
    **any_of(
        "model",
        "What is trained (by default stagnn for nodes, staformer for links and graphs)",
        MODELS,
        "Model (default: the graph's recipe)",
    ),
}


TABLES = "Your own tables"
NEW_TABLES = group(
    TABLES,
    nodes=(
        str,
        "Table of the nodes, a row each: a file (CSV, JSON lines, Parquet, Excel as "
        "book.xlsx#sheet; .gz and .zst too), a folder or 'pattern*' of such, or a database.",
    ),
    edges=(str, "Table of the edges, a row each."),
    graphs=(str, "Table of the graphs, a row each, where the nodes are of many."),
    nodes_query=(
        str,
        "What to select of the database --nodes, or a table of it. --nodes is then "
        "postgresql://user@host/name, sqlite:///file.db or duckdb:///file.duckdb.",
    ),
    edges_query=(str, r"Likewise of --edges. \[default of --edges: the database of --nodes]"),
    graphs_query=(str, "Likewise of --graphs."),
    unknown_ends=(
        str,
        r"error, or drop: edges that end at no node of the table. \[default: error]",
    ),
)


def with_queries(tables: Given) -> Given:
    """Tables with a query in place of a database and what is asked of it.

    A query without a database of its own is for that of the nodes.
    """
    from ..datasets import Query

    given, made = dict(tables), dict[str, Any]()
    for option in [name for name in given if name.endswith("_query")]:
        name = option.removesuffix("_query")
        database = tables.get(name, tables.get("nodes"))
        if database is None:
            raise ValueError(
                f"--{option.replace('_', '-')} needs a database: --{name} postgresql://..., "
                "sqlite:///file.db or duckdb:///file.duckdb"
            )
        made[name] = Query(database, given.pop(option))
    return given | made


def _folder(variable: str, help: str) -> tuple[Any, Any]:
    """Where graphs are looked for is said by the environment, here and in other processes."""

    def told(folder: Path | None) -> Path | None:
        if folder is not None:
            os.environ[variable] = str(folder)
        return folder

    return option(Path, help, panel="Data", callback=told)


DATA: Options = {
    "data_dir": _folder(
        "STA_DATA", "Folder of the graphs; default: env STA_DATA, else your cache folder."
    ),
    "mirror": _folder(
        "STA_MIRROR", "Offline copy of the raw files, only read; default: env STA_MIRROR."
    ),
}


def command(**groups: Options) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command of `sta` with groups of options; the last says where data is."""
    return lambda function: app.command()(options(**groups, data=DATA)(function))


Device = Annotated[
    str, typer.Option(help="cpu, cuda, cuda:1, ... or auto (a GPU if there is one).")
]
PLACE: Options = {
    "device": (Device, "auto"),
    **group(
        capture=(bool, "On a GPU, replay epochs as CUDA graphs: the same numbers, sooner.", True),
        together=(int, r"Runs that share a GPU at a time. \[default: 5]"),
    ),
}


RunFolder = Annotated[Path, typer.Argument(help="A folder that 'sta train' wrote.")]
Force = Annotated[bool, typer.Option("--force", help="Write over a file.")]

# ----------------------------------------------------------------------------------- displays


@contextmanager
def progress(page: Watch | None = None) -> Iterator[Watch]:
    """What is shown while models train: live on a terminal, plain lines elsewhere; and a page, if
    there is one."""
    from ..show.progress import Bars, Lines
    from ..train.watch import Watches

    with Bars(err_console) if err_console.is_terminal else nullcontext(Lines()) as watch:
        yield watch if page is None else Watches(watch, page)


def say(line: str, console: Console = out_console) -> None:
    """A line that may hold anything, as it is."""
    console.print(line, soft_wrap=True, markup=False)


def command_words(name: str, given: Mapping[str, Any]) -> str:
    """A command line again: options that are None or False are left out."""
    words = [name]
    for each, value in given.items():
        if value is not None and value is not False:
            words.append("--" + each.replace("_", "-"))
            words += [] if value is True else [shlex.quote(str(value))]
    return " ".join(words)
