"""Commands that train: train, tune."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from .. import datasets as data
from ..runs import folder as store
from ..train.config import Config
from ..train.loop import Interrupted, Result, fit
from ..train.progress import Bars, Lines, Progress
from ..train.recipes import recipe
from .app import (
    Capture,
    DataDir,
    Device,
    Edges,
    Epochs,
    Mirror,
    Nodes,
    Patience,
    Together,
    UnknownEnds,
    app,
    err_console,
    live,
    metric_name,
    out_console,
    table_option,
    training_option,
)

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from ..tune.progress import Display

SETTINGS = {field.name for field in fields(Config)}
TABLES = ["nodes", "edges", "target", "id", "source", "dest", "weight", "features", "directed"]
TABLES += ["split_column", "unknown_ends", "tune"]


def _model(help: str, **more: Any) -> Any:
    return typer.Option(help=help, rich_help_panel="Model (default: the graph's recipe)", **more)


@app.command()
def train(
    graph: Annotated[
        str | None, typer.Argument(help="A name from 'sta datasets'. [default: digits]")
    ] = None,
    runs: Annotated[
        int | None, training_option("Runs, each on a split and seed of its own.")
    ] = None,
    seed: Annotated[int | None, training_option("Seed of the first run.")] = None,
    split: Annotated[
        str | None,
        training_option(
            "A (random 50/25/25), B (random 60/20/20), own or fixed (published splits)."
        ),
    ] = None,
    epochs: Epochs = None,
    patience: Patience = None,
    lr: Annotated[float | None, training_option("Learning rate.")] = None,
    weight_decay: Annotated[float | None, training_option("Weight decay.")] = None,
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
    nodes: Nodes = None,
    edges: Edges = None,
    target: Annotated[
        str | None, table_option("Column of the labels; empty where it is to be predicted.")
    ] = None,
    id: Annotated[
        str | None, table_option(r"Column of the ids. \[default: id, else the first]", "--id")
    ] = None,
    source: Annotated[
        str | None,
        table_option(r"Column where edges start. \[default: source, src, from, else the first]"),
    ] = None,
    dest: Annotated[
        str | None,
        table_option(r"Column where edges end. \[default: target, dest, dst, to, else the next]"),
    ] = None,
    weight: Annotated[str | None, table_option("Column of the weights of edges.")] = None,
    features: Annotated[
        list[str] | None,
        table_option(
            "Columns of the nodes to use, as age,city or with the kind as zip:category (number, "
            r"category, text, tags); may be given several times. \[default: all others]"
        ),
    ] = None,
    directed: Annotated[
        bool, table_option("Keep the directions of edges. Else they lead both ways.", "--directed")
    ] = False,
    split_column: Annotated[
        str | None,
        table_option(r"Column that holds train, val, test or nothing. \[default: random]"),
    ] = None,
    unknown_ends: UnknownEnds = None,
    tune: Annotated[
        str | None,
        table_option("Search settings for so long (90s, 20m, 2h) first, and train with the best."),
    ] = None,
    device: Device = "auto",
    capture: Capture = True,
    together: Together = None,
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

    sta train                          digits, five runs, about a minute

    sta train cora --runs 5            the paper's protocol on Cora

    sta train actor --hops 10 --gate none --out runs/mine

    sta train --resume                 go on with the run that was stopped last

    [bold]Your own tables[/bold], one of nodes and one of edges:

    nodes.csv     id,age,city,label     edges.csv     source,target

    ........      ann,31,Rome,yes       ........      ann,bob

    ........      bob,,Oslo,no          ........      bob,cem

    ........      cem,45,Rome,          ........      cem,ann

    sta train --nodes nodes.csv --edges edges.csv --target label --out runs/mine

    sta train --nodes nodes.csv --edges edges.csv --target label --tune 20m

    sta predict runs/mine --out predictions.csv        also cem, who has no label
    """
    options = locals()  # first thing, so these are the options as given
    changes = {name: options[name] for name in SETTINGS & options.keys() if name != "graph"}
    changes = {name: value for name, value in changes.items() if value is not None}
    how: dict[str, Any] = {"device": device, "capture": capture, "together": together}
    how |= {"data_dir": data_dir, "mirror": mirror}
    tables = {name: options[name] for name in TABLES if options[name]}
    if tables:
        if graph or resume:
            given = f"--{min(tables).replace('_', '-')}"
            if resume:
                raise ValueError(f"--resume takes the graph from the run: leave out {given}")
            raise ValueError(f"{given} is for tables of your own: leave it out, or '{graph}'")
        if out:
            store.check_new(out)  # before tables are read, and settings searched
        own, config = _own_graph(changes, **tables)
        if tune:
            out = out or store.new_folder(config.graph)
            config = _tuned(config, own, out, tune, **how)
        how["data"] = own
    else:
        config, out = _resolve_config(graph, changes, out, resume)
    _train(config, out, resume, checkpoint_seconds=checkpoint_seconds, **how)


@app.command()
def tune(
    graph: Annotated[str, typer.Argument(help="A name from 'sta datasets'.")],
    method: Annotated[
        str,
        typer.Option(help="optuna (proposals that learn from the trials) or grid (every point)."),
    ] = "optuna",
    space: Annotated[
        str, typer.Option(help="paper (the paper's grid of 480 points) or wide (also the model).")
    ] = "paper",
    trials: Annotated[
        int | None,
        typer.Option(
            help="Trials in all, those done before and by other processes included. "
            r"\[default: the whole grid; with optuna 100, or as many as the budget allows]"
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Time for this call, such as 90s, 20m, 2h or 1h30m.")
    ] = None,
    runs: Annotated[int, typer.Option(help="Splits per trial: their mean score counts.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the proposals and of the first split.")] = 0,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            help="Give up trials whose first run is below the median after as many epochs as "
            "the patience. Sooner done, but what learns slowly may be lost.",
        ),
    ] = False,
    final: Annotated[
        bool,
        typer.Option(
            "--final", help="At the end train the best recipe by the protocol, and report test."
        ),
    ] = False,
    epochs: Epochs = None,
    patience: Patience = None,
    device: Device = "auto",
    capture: Capture = True,
    together: Annotated[
        int | None, typer.Option(help="Runs of a trial that share a GPU at a time. [default: 5]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the search. [default: runs/tune-GRAPH]")
    ] = None,
    data_dir: DataDir = None,
    mirror: Mirror = None,
) -> None:
    """Search the settings of a graph with the best validation score.

    Test scores are not looked at. The same command again goes on where the search was, also after
    kill -9; started several times at once, the processes share the trials. It ends with the best
    recipe, and plots of the search in its folder.

    [bold]Examples[/bold]

    sta tune cora --method grid                   the paper's grid search

    sta tune cora --budget 20m                    the best of what 20 minutes allow

    sta tune actor --space wide --trials 200      more settings, wider ranges

    sta tune cora --trials 50 --final             and then train the best, and test it

    CUDA_VISIBLE_DEVICES=1 sta tune cora --method grid     a second GPU joins in
    """
    from ..tune import Task, report
    from ..tune.loop import Stopped, default_folder, parse_budget, search

    changes = {"epochs": epochs, "patience": patience}
    changes = {name: value for name, value in changes.items() if value is not None}
    task = Task(graph, method, space, runs, seed, changes)
    folder = out or default_folder(task)
    seconds = None if budget is None else parse_budget(budget)
    common: dict[str, Any] = {"device": device, "capture": capture, "together": together}
    common |= {"data_dir": data_dir, "mirror": mirror}
    try:
        with _trials() as display:
            study = search(
                task, folder, trials=trials, budget=seconds, prune=prune, display=display, **common
            )
    except Stopped:
        again: dict[str, Any] = {"trials": trials, "budget": budget, "prune": prune, "final": final}
        again |= {"data_dir": data_dir, "mirror": mirror, "together": together}
        again |= {"device": None if device == "auto" else device, "no_capture": not capture}
        line = f"\nStopped. Go on with: {report.tune_command(task, folder, **again)}"
        err_console.print(line, soft_wrap=True, markup=False)
        raise typer.Exit(130) from None
    report.publish(study, out_console)
    if final and study.done():
        best = study.done()[0]
        _train(task.protocol(best.params), folder / f"final-{best.number}", True, **common)


def _resolve_config(
    graph: str | None, changes: dict[str, Any], out: Path | None, resume: bool
) -> tuple[Config, Path | None]:
    """The recipe with changes, or when resuming the settings that the run was started with."""
    if not resume:
        return recipe(graph or "digits", **changes), out
    graph = data.info(graph).name if graph else None
    out = out or store.latest_unfinished(graph)
    config = store.read_config(out)
    return config.replace(**changes, graph=graph or config.graph), out


def _own_graph(changes: dict[str, Any], **tables: Any) -> tuple[Data, Config]:
    """The graph of the user's tables, shown; and its settings by size, with changes."""
    from ..datasets.tables import from_tables
    from ..show.tables import show
    from ..tune.loop import parse_budget
    from ..tune.tables import name_of, refuse_fixed

    for name in ("nodes", "edges", "target"):
        if name not in tables:
            raise ValueError(f"--{name} is missing: your own tables are --nodes, --edges, --target")
    if budget := tables.pop("tune", None):
        parse_budget(budget)
        refuse_fixed(changes)
    if "features" in tables:
        tables["features"] = [name for part in tables["features"] for name in part.split(",")]
    own = from_tables(**tables)
    show(own.report, out_console)
    return own, recipe(own, graph=name_of(tables["nodes"]), **changes)


def _tuned(config: Config, data: Data, out: Path, budget: str, **how: Any) -> Config:
    """The best settings that a search of the budget finds; it lies beside the run."""
    from ..tune import report
    from ..tune.loop import Stopped, parse_budget
    from ..tune.tables import best
    from ..tune.tables import tune as tune_own

    folder = out.with_name(f"{out.name}-tune")
    try:
        with _trials() as display:
            study = tune_own(config, data, folder, parse_budget(budget), display=display, **how)
    except Stopped:
        line = f"\nStopped. The same command with --out {out} goes on with the search."
        err_console.print(line, soft_wrap=True, markup=False)
        raise typer.Exit(130) from None
    if study.done():
        out_console.print(report.best_trials(study))
    return best(study, budget)


def _trials() -> AbstractContextManager[Display]:
    """What is shown of a search: live on a terminal, plain lines elsewhere."""
    from ..tune.progress import TrialBars, TrialLines

    return live(TrialBars(err_console), TrialLines())


def _train(config: Config, out: Path | None, resume: bool, **how: Any) -> None:
    """Train, and show it; Ctrl-C ends with how to go on."""
    try:
        with _progress(config) as progress:
            result = fit(config, out, resume=resume, progress=progress, **how)
    except Interrupted as stopped:
        line = f"\nStopped. Go on with: sta train --resume --out {stopped.folder}"
        err_console.print(line, soft_wrap=True)
        raise typer.Exit(130) from None
    _print_result(result)


def _progress(config: Config) -> AbstractContextManager[Progress]:
    return live(Bars(config, err_console), Lines(config))


def _print_result(result: Result) -> None:
    table = Table(
        title=f"STAGNN on {result.config.graph}: test {metric_name(result.config.metric)}"
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
