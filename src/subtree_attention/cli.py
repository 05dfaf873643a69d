"""The command `sta`: train, evaluate, datasets, info.

A mistake of the user's ends in one or two lines and exit code 2, anything else that went wrong
in exit code 1; neither shows a traceback.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import __version__

app = typer.Typer(
    name="sta",
    help="Subtree attention for graphs: train and inspect STAGNN.\n\n"
    "Start with 'sta train' (a small graph of handwritten digits, no download), then "
    "'sta datasets' to see the graphs of the paper.",
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


def _model(help: str, **more: Any) -> Any:
    return typer.Option(help=help, rich_help_panel="Model (default: the graph's recipe)", **more)


def _training(help: str, **more: Any) -> Any:
    return typer.Option(help=help, rich_help_panel="Training (default: the graph's recipe)", **more)


@app.command()
def train(
    graph: Annotated[
        str | None, typer.Argument(help="A name from 'sta datasets'. [default: digits]")
    ] = None,
    runs: Annotated[int | None, _training("Runs, each on a split and seed of its own.")] = None,
    seed: Annotated[int | None, _training("Seed of the first run.")] = None,
    split: Annotated[
        str | None,
        _training("A (random 50/25/25), B (random 60/20/20), own or fixed (published splits)."),
    ] = None,
    epochs: Annotated[int | None, _training("Most epochs of a run.")] = None,
    patience: Annotated[
        int | None, _training("Epochs without a better validation score before a run stops.")
    ] = None,
    lr: Annotated[float | None, _training("Learning rate.")] = None,
    weight_decay: Annotated[float | None, _training("Weight decay.")] = None,
    hops: Annotated[int | None, _model("K, the height of the subtree a node attends to.")] = None,
    heads: Annotated[int | None, _model("Attention heads.")] = None,
    hidden_channels: Annotated[int | None, _model("Width of the hidden layer.")] = None,
    dropout: Annotated[float | None, _model("Dropout on features, hidden layer and heads.")] = None,
    feature_map: Annotated[
        str | None, _model("elu, relu, softplus, softmax-features or rbf-features.")
    ] = None,
    similarity: Annotated[
        str | None, _model("softmax: exact softmax attention, for small graphs.")
    ] = None,
    transition: Annotated[str | None, _model("rw, sym or mean: how messages walk.")] = None,
    aggregation: Annotated[str | None, _model("Over hops: gpr, sum, concat or attention.")] = None,
    gate: Annotated[str | None, _model("Over heads at each hop: softmax, plain or none.")] = None,
    head_mix: Annotated[str | None, _model("linear or sum.")] = None,
    global_attention: Annotated[
        str | None, _model("beside (STA and global attention) or only.")
    ] = None,
    encoding: Annotated[
        int | None, _model("Laplacian eigenvectors appended to the features.")
    ] = None,
    device: Device = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results. [default: a new one under runs/]")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with a run that was stopped: that in --out, or the latest in runs/.",
        ),
    ] = False,
    checkpoint_seconds: Annotated[
        float, typer.Option(help="How often a run is saved on the way.")
    ] = 5.0,
    data_dir: DataDir = None,
    mirror: Mirror = None,
) -> None:
    """Train STAGNN on a graph, and save everything.

    Settings that you do not give are the paper's for that graph.

    [bold]Examples[/bold]

    sta train                          digits, five runs, under a minute and a half

    sta train cora --runs 5            the paper's protocol on Cora

    sta train actor --hops 10 --gate none --out runs/mine

    sta train --resume                 go on with the run that was stopped last
    """
    from .train.loop import fit

    given = {name: value for name, value in locals().items() if name in _settings()}
    changes = {name: value for name, value in given.items() if value is not None}
    changes.pop("graph", None)
    config, out = _resolve_config(graph, changes, out, resume)
    with _progress(config) as progress:
        result = fit(
            config,
            out,
            device=device,
            resume=resume,
            data_dir=data_dir,
            mirror=mirror,
            progress=progress,
            checkpoint_seconds=checkpoint_seconds,
        )
    _print_result(result)


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="A folder that 'sta train' wrote.")],
    device: Device = "auto",
    data_dir: DataDir = None,
    mirror: Mirror = None,
) -> None:
    """Load the models of a run folder again and score them on their splits.

    Prints the stored test score beside the one computed now.
    """
    from .train.evaluate import evaluate_folder

    scores = evaluate_folder(run, device=device, data_dir=data_dir, mirror=mirror)
    table = Table(title=f"{scores[0].graph}: {_metric_name(scores[0].metric)}")
    for column in ("run", "train", "validation", "test", "test when trained"):
        table.add_column(column, justify="right")
    for score in scores:
        values = (score.train, score.val, score.test, score.stored_test)
        table.add_row(str(score.run), *(f"{100 * value:.2f}" for value in values))
    out_console.print(table)


@app.command()
def datasets(data_dir: DataDir = None, mirror: Mirror = None) -> None:
    """List the graphs: their sizes, whether they are here, and where they are looked for."""
    from . import data

    table = Table(caption=f"data folder: {data.data_folder(data_dir)}")
    for column in ("name", "nodes", "edges", "features", "classes", "homophily", "here?", "where"):
        numeric = column in ("nodes", "edges", "features", "classes", "homophily")
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for name in data.names():
        info, place = data.info(name), data.where(name, data_dir, mirror)
        sizes = (info.num_nodes, info.num_edges, info.num_features, info.num_classes)
        homophily = "-" if info.homophily is None else f"{info.homophily:.2f}"
        here = "no" if place.status == "download" else "[green]yes[/green]"
        found = f"{place.status}: {place.path}" if place.path else place.status
        table.add_row(name, *(f"{n:,}" for n in sizes), homophily, here, found)
    out_console.print(table)


@app.command()
def info() -> None:
    """Show versions, devices, and which backends of the operator can run here (and why not)."""
    import torch

    from .ops.backends import BACKENDS, choose
    from .train.folder import environment
    from .train.loop import choose_device

    device = choose_device("auto")
    about = environment(device)
    table = Table(show_header=False, box=None)
    table.add_row("python", about["python"])
    for package, version in about["packages"].items():
        table.add_row(package, version or ("running from source" if "subtree" in package else "-"))
    table.add_row("device", f"{device.type}: {about['device']}")
    table.add_row("threads", str(about["threads"]))
    out_console.print(table)
    backends = Table(title="backends of the operator")
    for column in ("backend", *(kind for kind in ("cpu", "cuda")), "what"):
        backends.add_column(column)
    for name, backend in BACKENDS.items():
        cells = []
        for kind in ("cpu", "cuda"):
            if kind == "cuda" and not torch.cuda.is_available():
                cells.append("torch sees no GPU")
                continue
            reason = backend.refusal(torch.device(kind), torch.float32)
            cells.append(reason or "[green]yes[/green]")
        backends.add_row(name, *cells, backend.summary)
    out_console.print(backends)
    out_console.print(f"auto picks '{choose('auto', device, torch.float32)}' on {device.type}")


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


def main(arguments: list[str] | None = None) -> None:
    """Entry point: errors in plain words."""
    from .train.loop import Diverged, Interrupted

    try:
        sys.exit(app(arguments, standalone_mode=False))
    except Interrupted as stopped:
        err_console.print(
            f"\nStopped. Go on with: sta train --resume --out {stopped.folder}", soft_wrap=True
        )
        sys.exit(130)
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, FileNotFoundError) as error:
        _fail(error, 2)
    except (Diverged, OSError) as error:
        _fail(error, 1)
    except Exception as error:
        if not hasattr(error, "format_message"):  # what the parser of the command line raises
            raise
        err_console.print(f"[red]error:[/red] {escape(error.format_message())}", soft_wrap=True)
        err_console.print("see: sta --help, sta train --help")
        sys.exit(2)


def _fail(error: Exception, code: int) -> None:
    if os.environ.get("STA_TRACEBACK"):  # for whoever wants to see where it came from
        raise error
    err_console.print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
    sys.exit(code)


def _settings() -> set[str]:
    from dataclasses import fields

    from .train.config import Config

    return {field.name for field in fields(Config)}


def _resolve_config(
    graph: str | None, changes: dict[str, Any], out: Path | None, resume: bool
) -> tuple[Any, Path | None]:
    """The recipe with changes, or when resuming the settings that the run was started with."""
    from .train import folder as store
    from .train.config import Config
    from .train.recipes import recipe

    if not resume:
        return recipe(graph or "digits", **changes), out
    out = out or store.latest_unfinished(graph)
    config = Config.from_dict(store.read_json(out / "config.json"))
    if graph is not None:
        changes["graph"] = graph
    return config.replace(**changes), out


def _progress(config: Any) -> Any:
    from contextlib import nullcontext

    from .train.progress import Bars, Lines

    out_console.print(
        f"STAGNN on [bold]{config.graph}[/bold]: {config.runs} run{'s' * (config.runs > 1)}, "
        f"{config.hops} hops, {config.heads} head{'s' * (config.heads > 1)}"
    )
    if err_console.is_terminal:
        return Bars(config, err_console)
    return nullcontext(Lines(config))


def _metric_name(metric: str) -> str:
    return {"accuracy": "accuracy (%)", "roc_auc": "ROC-AUC (%)"}[metric]


def _print_result(result: Any) -> None:
    table = Table(
        title=f"STAGNN on {result.config.graph}: test {_metric_name(result.config.metric)}"
    )
    for column in ("run", "test", "validation", "best epoch", "epochs", "seconds"):
        table.add_column(column, justify="right")
    for run in result.runs:
        table.add_row(
            str(run.run),
            f"{100 * run.test:.2f}",
            f"{100 * run.val:.2f}",
            str(run.best_epoch),
            str(run.epochs),
            f"{run.seconds:.1f}",
        )
    table.add_section()
    count = len(result.runs)
    table.add_row(
        "mean",
        f"[bold]{100 * result.mean:.2f}[/bold]",
        f"{100 * sum(run.val for run in result.runs) / count:.2f}",
        f"{sum(run.best_epoch for run in result.runs) / count:.0f}",
        f"{sum(run.epochs for run in result.runs) / count:.0f}",
        f"{sum(run.seconds for run in result.runs) / count:.1f}",
    )
    if result.std is not None:
        table.add_row("std", f"{100 * result.std:.2f}", "", "", "", "")
    out_console.print(table)
    out_console.print(f"saved in {result.folder}", soft_wrap=True)
