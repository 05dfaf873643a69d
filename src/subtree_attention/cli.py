"""The command `sta`: from training a graph to explaining a node, and all between.

A mistake of the user's ends in one or two lines and exit code 2, anything else that went wrong
in exit code 1; neither shows a traceback.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import torch
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import __version__, _check, data
from .explain.explanation import ORDERS
from .ops.backends import BACKENDS
from .train import folder as store
from .train.config import Config
from .train.evaluate import evaluate_folder
from .train.loop import Interrupted, Result, check_folder, choose_device, fit
from .train.progress import Bars, Lines, Progress
from .train.recipes import recipe

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from .tune.progress import Display

Shown = TypeVar("Shown")
SETTINGS = {field.name for field in fields(Config)}
TABLES = ["nodes", "edges", "target", "id", "source", "dest", "weight", "features", "directed"]
TABLES += ["split_column", "unknown_ends", "tune"]
"""Options of `sta train` that are about the user's own tables."""

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


def _model(help: str, **more: Any) -> Any:
    return typer.Option(help=help, rich_help_panel="Model (default: the graph's recipe)", **more)


def _training(help: str, **more: Any) -> Any:
    return typer.Option(help=help, rich_help_panel="Training (default: the graph's recipe)", **more)


def _table(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="Your own tables")


Nodes = Annotated[Path | None, _table("Table of the nodes, a row each: .csv, .tsv or .parquet.")]
Edges = Annotated[Path | None, _table("Table of the edges, a row each.")]
UnknownEnds = Annotated[
    str | None,
    _table(r"error, or drop: edges that end at no node of the table. \[default: error]"),
]
Epochs = Annotated[int | None, _training("Most epochs of a run.")]
Patience = Annotated[
    int | None, _training("Epochs without a better validation score before a run stops.")
]
Capture = Annotated[
    bool, typer.Option(help="On a GPU, replay epochs as CUDA graphs: the same numbers, sooner.")
]
Together = Annotated[int | None, typer.Option(help="Runs that share a GPU at a time. [default: 5]")]


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
    epochs: Epochs = None,
    patience: Patience = None,
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
    nodes: Nodes = None,
    edges: Edges = None,
    target: Annotated[
        str | None, _table("Column of the labels; empty where it is to be predicted.")
    ] = None,
    id: Annotated[
        str | None, _table(r"Column of the ids. \[default: id, else the first]", "--id")
    ] = None,
    source: Annotated[
        str | None,
        _table(r"Column where edges start. \[default: source, src, from, else the first]"),
    ] = None,
    dest: Annotated[
        str | None,
        _table(r"Column where edges end. \[default: target, dest, dst, to, else the next]"),
    ] = None,
    weight: Annotated[str | None, _table("Column of the weights of edges.")] = None,
    features: Annotated[
        list[str] | None,
        _table(
            "Columns of the nodes to use, as age,city or with the kind as zip:category (number, "
            r"category, text, tags); may be given several times. \[default: all others]"
        ),
    ] = None,
    directed: Annotated[
        bool, _table("Keep the directions of edges. Else they lead both ways.", "--directed")
    ] = False,
    split_column: Annotated[
        str | None, _table(r"Column that holds train, val, test or nothing. \[default: random]")
    ] = None,
    unknown_ends: UnknownEnds = None,
    tune: Annotated[
        str | None,
        _table("Search settings for so long (90s, 20m, 2h) first, and train with the best."),
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
            other = "--resume takes the graph from the run" if resume else f"'{graph}' is another"
            raise ValueError(f"--{min(tables).replace('_', '-')} is of your own tables; {other}")
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
    from .tune import Task, report
    from .tune.loop import Stopped, default_folder, parse_budget, search

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


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="A folder that 'sta train' wrote.")],
    device: Device = "auto",
    data_dir: DataDir = None,
    mirror: Mirror = None,
) -> None:
    """Load the models of a run folder again and score them on their splits.

    Prints the stored test score beside the one computed now; then accuracy, macro F1, ROC-AUC and
    calibration error of the test nodes, and which classes are taken for which (also as a picture
    in the folder, with matplotlib).
    """
    from .train.show import show_confusion, show_quality

    scores = evaluate_folder(run, device=device, data_dir=data_dir, mirror=mirror)
    table = Table(title=f"{scores[0].graph}: {_metric_name(scores[0].metric)}")
    for column in ("run", "train", "validation", "test", "test when trained"):
        table.add_column(column, justify="right")
    for score in scores:
        values = (score.train, score.val, score.test, score.stored_test)
        table.add_row(str(score.run), *(f"{100 * value:.2f}" for value in values))
    out_console.print(table)
    show_quality(scores, out_console)
    show_confusion(scores, run, out_console)


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="A folder that 'sta train' wrote.")],
    out: Annotated[
        Path, typer.Option(help="File to write: .csv, or .parquet.", show_default=True)
    ] = Path("predictions.csv"),
    nodes: Nodes = None,
    edges: Edges = None,
    join: Annotated[
        bool, _table("The new nodes join the graph of the run; edges may end in both.", "--join")
    ] = False,
    unknown_ends: UnknownEnds = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file.")] = False,
    device: Device = "auto",
    data_dir: DataDir = None,
    mirror: Mirror = None,
) -> None:
    """Predict the class of every node, with the probability of each class.

    The model is that with the best validation score; its probabilities are calibrated by a
    temperature on its validation nodes. Nothing is trained. New tables need the columns that the
    model was trained on. Of a graph of the registry, ids are the numbers of the nodes.

    [bold]Examples[/bold]

    sta predict runs/mine --out predictions.csv        id, prediction, a column for each class

    sta predict runs/mine --nodes new.csv --edges new_edges.csv          another graph

    sta predict runs/mine --nodes new.csv --edges new_edges.csv --join   new nodes of the same
    """
    from .tables.report import show
    from .train.predict import check_target, write
    from .train.predict import predict as predict_nodes
    from .train.show import known_labels, show_calibration

    check_target(out, force)
    if nodes is None and edges is None and (join or unknown_ends):
        raise ValueError("--join and --unknown-ends are for new tables: --nodes and --edges")
    how: dict[str, Any] = {"join": join, "unknown_ends": unknown_ends or "error"}
    how |= {"device": device, "data_dir": data_dir, "mirror": mirror}
    predictions = predict_nodes(run, nodes, edges, **how)
    if predictions.report is not None:
        show(predictions.report, out_console)
        line = known_labels(predictions)
        if line:
            out_console.print(line)
    show_calibration(predictions.calibration, out_console)
    write(predictions, out, force)
    line = f"{len(predictions.ids):,} predictions of {predictions.run} written to {out}"
    out_console.print(line, soft_wrap=True, markup=False)


@app.command()
def explain(
    run: Annotated[Path, typer.Argument(help="A folder that 'sta train' wrote.")],
    node: Annotated[
        str, typer.Argument(help="The node: its id, or its number where nodes have no ids.")
    ],
    top: Annotated[int, typer.Option(help="Nodes to name in each level.")] = 5,
    hops: Annotated[
        int | None, typer.Option(help=r"Name nodes up to this hop only. \[default: all]")
    ] = None,
    cls: Annotated[
        str | None,
        typer.Option(
            "--class", help=r"Class to explain, by name or number. \[default: the predicted one]"
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            help="Which nodes are named: those with the largest 'share' of the attention, or the "
            "largest 'contribution' to the logit, of either sign."
        ),
    ] = "share",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
    data_dir: DataDir = None,
    mirror: Mirror = None,
) -> None:
    """Show why a node got its prediction: which nodes, hops and heads made its logit.

    STA's logit is a sum over the levels of the rooted subtree, its heads and its nodes, so this is
    exact and nothing is estimated: what is shown, with the rest of each level, adds up to the
    logit. For every node named: its true label and its split, the share of each head's attention,
    what it adds to the logit of the predicted class and of the runner-up, and the most probable
    walk by which it is reached. Of several runs in the folder, the one with the best validation
    score is asked.

    [bold]Examples[/bold]

    sta explain runs/mine 7

    sta explain runs/mine 7 --top 10 --hops 2 --by contribution

    sta explain runs/mine 7 --class 3         why not class 3?

    sta explain runs/mine 7 --json > why.json
    """
    from .explain import report as reports

    for name, value in (("top", top), ("hops", hops)):
        if value is not None:
            _check.integer(name, value, 0)
    _check.known("order", by, ORDERS)
    result = reports.of_run(run, node, cls, top, hops, by, data_dir, mirror)
    if as_json:
        typer.echo(json.dumps(result, indent=2, allow_nan=False))
    else:
        out_console.print(reports.show(result))


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A folder that 'sta train' wrote.")],
    out: Annotated[Path, typer.Option(help="HTML file to write.", show_default=True)] = Path(
        "report.html"
    ),
    force: Annotated[bool, typer.Option("--force", help="Write over a file.")] = False,
    device: Device = "auto",
    data_dir: DataDir = None,
    mirror: Mirror = None,
) -> None:
    """Write a run as one HTML page: to read, to print, to send.

    The page has the settings in words, the scores of all runs, training curves, the confusion
    matrix, calibration, hop weights and gates, what was done with each column of your own tables,
    and the mistakes that the model is most sure of, with the nodes that led to them. It needs no
    network and no scripts. Nothing is trained.

    [bold]Examples[/bold]

    sta report runs/mine

    sta report runs/mine --out mine.html --force
    """
    from . import report as reports

    reports.page.check_target(out, force)
    findings = reports.gather(run, device=device, data_dir=data_dir, mirror=mirror)
    reports.write(findings, out, force)
    out_console.print(f"report of {run} written to {out}", soft_wrap=True, markup=False)


@app.command()
def explore(
    run: Annotated[Path, typer.Argument(help="A folder that 'sta train' wrote.")],
    port: Annotated[int, typer.Option(help="Of this machine; 0 for any that is free.")] = 8765,
    open: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in your browser.")
    ] = True,
    data_dir: DataDir = None,
    mirror: Mirror = None,
) -> None:
    """Walk through a run in the browser: nodes, their subtrees, and what made their classes.

    Find a node by its id, or in the lists of confident mistakes, doubtful and certain nodes. Its
    subtree is drawn level by level: colour is the predicted class, the ring around it the true one,
    size the attention, or what the node adds to the logit of a class. Click a node, or press Enter
    on it, and it becomes the root; Back leads back, and every view has an address of its own.
    Beside it stand the same exact parts as in 'sta explain', which add up to the logit;
    probabilities are its softmax, which 'sta predict' also calibrates.

    The page is for this machine only (127.0.0.1) and needs no network; Ctrl-C ends it. It needs
    pip install "subtree-attention\\[explore]".

    [bold]Examples[/bold]

    sta explore runs/mine

    sta explore runs/mine --port 0 --no-open      any free port; open the address yourself
    """
    try:
        from .explore.server import address, listen, serve
    except ModuleNotFoundError as missing:
        if missing.name not in ("starlette", "uvicorn"):
            raise
        raise ImportError(
            f"the page needs {missing.name}, which is not installed: "
            'pip install "subtree-attention[explore]"'
        ) from None
    import webbrowser
    from threading import Thread

    from .explore import Views

    with listen(port) as listening:  # first: a port that is taken is known at once
        views = Views.of_run(run, data_dir, mirror)
        page = address(listening)
        out_console.print(f"{run} is at {page} (Ctrl-C ends)", soft_wrap=True, markup=False)
        if open:  # some browsers return only when they are closed
            Thread(target=webbrowser.open, args=[page], daemon=True).start()
        serve(views, listening)


@app.command()
def bench(
    graphs: Annotated[
        list[str] | None, typer.Argument(help=r"Names from 'sta datasets'. \[default: cora]")
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            help="A uniform random graph: corafull, arxiv, or NODES,EDGES,FEATURES,CLASSES; may "
            "be given several times. Alone, it takes the place of cora."
        ),
    ] = None,
    backend: Annotated[
        str, typer.Option(help="How ours computes the operator: a name from 'sta info', or auto.")
    ] = "auto",
    scaling: Annotated[
        bool,
        typer.Option(
            "--scaling", help="Instead: our operator over edges, hops, heads and classes."
        ),
    ] = False,
    limit: Annotated[
        float, typer.Option(help="With --scaling: seconds after which larger sizes are left out.")
    ] = 20.0,
    rounds: Annotated[int, typer.Option(help="How often every version is timed.")] = 7,
    device: Device = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            help="JSON file of the results, the plot goes beside it. \\[default: "
            "results/bench-DEVICE.json, with --scaling results/scaling-DEVICE.json]"
        ),
    ] = None,
    data_dir: DataDir = None,
    mirror: Mirror = None,
) -> None:
    """Measure the operator and whole epochs against other ways to do the same.

    Contenders: the published formulation edge by edge, sparse products by the library, and PyG's
    GCN, GAT, GraphSAGE, SGFormer and Polynormer. All are timed in turns in one run. What runs out
    of memory is reported as such; a version that breaks or whose result is wrong is not reported,
    and the command fails.

    [bold]Examples[/bold]

    sta bench                          Cora, on a GPU if there is one

    sta bench cora pubmed photo --rounds 15

    sta bench --shape arxiv            a random graph as large as ogbn-arxiv

    sta bench --shape 10000,50000,128,10 --device cpu --backend torch

    sta bench --scaling                how time and memory grow
    """
    from . import bench as benchmark

    _check.integer("rounds", rounds, 1)
    place = choose_device(device)
    common: dict[str, Any] = {"backend": backend, "rounds": rounds, "say": err_console.print}
    path = out or Path(f"results/{'scaling' if scaling else 'bench'}-{place.type}.json")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file with --out")
    if scaling:
        if graphs or shape:
            raise ValueError("--scaling runs on random graphs of its own: name no graph or shape")
        result = benchmark.scale(place, limit=limit, **common)
    else:
        graphs = graphs or ([] if shape else ["cora"])
        common |= {"data_dir": data_dir, "mirror": mirror}
        common["save"] = lambda so_far: store.write_json(path, so_far)
        result = benchmark.compare(graphs, shape or [], place, **common)
    benchmark.publish(result, path, out_console)


@app.command()
def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            help="table1, table2, table3, hops, deep, gpr, theorem, robustness, or all."
        ),
    ],
    graph: Annotated[
        list[str] | None, typer.Option(help="Only this graph; may be given several times.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="Only this model (STAGNN, GCN, ...); may be given several times."),
    ] = None,
    runs: Annotated[int | None, typer.Option(help="Runs instead of the paper's number.")] = None,
    render: Annotated[
        bool, typer.Option("--render", help="Only draw tables and figures from what is there.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Run also what is there already.")] = False,
    epochs: Annotated[
        int | None, typer.Option(help="Most epochs of a run, for a quick look.")
    ] = None,
    device: Device = "auto",
    together: Together = None,
    processes: Annotated[
        int | None,
        typer.Option(
            help="Processes for runs that the host holds up, one run in each: on a CPU all of "
            "them, on a GPU those that cannot be captured (GraphGPS, SGFormer, Polynormer), beside "
            r"the others. \[default: on a CPU 1, on a GPU half of the cores, at most 8]"
        ),
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Folder of the records. [default: results/reproduce]")
    ] = None,
    data_dir: DataDir = None,
    mirror: Mirror = None,
) -> None:
    """Run the paper's experiments again, and draw its tables and figures from the runs.

    Every run is a line of JSON below the folder of the records. What is there is not run again, so
    an interrupted command goes on where it was; --render trains nothing. A run that diverges is a
    result and marked as such; one that fails is named, the others go on, and the command ends with
    exit code 1: the same command tries it again.

    [bold]Examples[/bold]

    sta reproduce table1                       all graphs, all models, the paper's number of runs

    sta reproduce table1 --graph cora --model STAGNN --model GCN

    sta reproduce deep --render                tables and figures from the committed runs

    sta reproduce theorem                      spectral gaps and convergence; trains nothing
    """
    from .reproduce import command
    from .reproduce.progress import RunBars, RunLines, Watch
    from .reproduce.queue import default_processes
    from .reproduce.store import DEFAULT, Store
    from .reproduce.training import Place
    from .train.loop import TOGETHER

    store_of_records = Store(results or DEFAULT)

    def say(line: str) -> None:
        err_console.print(line, soft_wrap=True, markup=False)

    _check.known("experiment", what, command.WHATS)
    if render:
        files, failed = command.render_all(what, store_of_records, say), ""
    else:
        at_a_time = TOGETHER if together is None else _check.integer("together", together, 1)
        place = Place(choose_device(device), data_dir, mirror, at_a_time)
        changes = {} if epochs is None else {"epochs": epochs}
        if processes is None:
            processes = default_processes(place.device)
        live: AbstractContextManager[Watch] = _live(RunBars(say, err_console), RunLines(say))
        try:
            with live as watch:
                files, failed = command.reproduce(
                    what,
                    place,
                    store_of_records,
                    graphs=graph,
                    models=model,
                    runs=runs,
                    again=again,
                    processes=_check.integer("processes", processes, 1),
                    say=say,
                    watch=watch,
                    **changes,
                )
        except KeyboardInterrupt:
            say("Stopped. What is done is kept; the same command goes on.")
            raise typer.Exit(130) from None
    for file in files:
        out_console.print(f"written to {file}", soft_wrap=True, markup=False)
    if failed:
        raise RuntimeError(f"{failed}. They have no record: the same command tries them again")


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


def main(arguments: list[str] | None = None) -> None:
    """Entry point: errors in plain words. `STA_TRACEBACK=1` shows where they come from."""
    try:
        sys.exit(app(arguments, standalone_mode=False))
    except (ValueError, FileNotFoundError) as error:
        _fail(error, str(error), 2)
    except Exception as error:
        if hasattr(error, "format_message"):  # the parser of the command line
            if not error.format_message():  # no command was given, and help was shown
                sys.exit(2)
            _fail(error, f"{error.format_message()}\nsee: sta --help, sta train --help", 2)
        _fail(error, str(error) or type(error).__name__, 1)


def _fail(error: Exception, message: str, code: int) -> None:
    if os.environ.get("STA_TRACEBACK"):
        raise error
    err_console.print(f"[red]error:[/red] {escape(message)}", soft_wrap=True)
    sys.exit(code)


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
    from .tables import from_tables
    from .tables.command import name_of, refuse_fixed
    from .tables.report import show
    from .tune.loop import parse_budget

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
    from .tables.command import best
    from .tables.command import tune as tune_own
    from .tune import report
    from .tune.loop import Stopped, parse_budget

    check_folder(config, out, resume=False)  # before the time of the search is spent
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
    from .tune.progress import TrialBars, TrialLines

    return _live(TrialBars(err_console), TrialLines())


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
    return _live(Bars(config, err_console), Lines(config))


def _live(bars: AbstractContextManager[Shown], lines: Shown) -> AbstractContextManager[Shown]:
    """A live display on a terminal, plain lines elsewhere."""
    return bars if err_console.is_terminal else nullcontext(lines)


def _metric_name(metric: str) -> str:
    return {"accuracy": "accuracy (%)", "roc_auc": "ROC-AUC (%)"}[metric]


def _print_result(result: Result) -> None:
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
