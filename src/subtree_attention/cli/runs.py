"""Commands about a run that is there: evaluate, predict, explain, report, explore."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from .. import _check
from ..explanations.explanation import ORDERS
from ..runs import folder as store
from ..runs.evaluate import evaluate_folder
from .app import (
    DataDir,
    Device,
    Edges,
    Mirror,
    Nodes,
    UnknownEnds,
    app,
    metric_name,
    out_console,
    table_option,
)

Join = Annotated[
    bool, table_option("The new nodes join the graph of the run; edges may end in both.", "--join")
]


def _new_tables(
    nodes: Path | None, edges: Path | None, join: bool, unknown_ends: str | None
) -> dict[str, Any] | None:
    """How new tables are to be read, if there are any."""
    if nodes is None and edges is None:
        if join or unknown_ends:
            raise ValueError("--join and --unknown-ends are for new tables: --nodes and --edges")
        return None
    return {"nodes": nodes, "edges": edges, "join": join, "unknown_ends": unknown_ends or "error"}


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
    from ..show.scores import show_confusion, show_quality

    scores = evaluate_folder(run, device=device, data_dir=data_dir, mirror=mirror)
    table = Table(title=f"{scores[0].graph}: {metric_name(scores[0].metric)}")
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
    join: Join = False,
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
    from ..runs.predict import check_target, write
    from ..runs.predict import predict as predict_nodes
    from ..show.scores import known_labels, show_calibration
    from ..show.tables import show

    store.finished_runs(run)  # first: where there is no run, nothing can be written
    check_target(out, force)
    tables = _new_tables(nodes, edges, join, unknown_ends) or {}
    predictions = predict_nodes(run, **tables, device=device, data_dir=data_dir, mirror=mirror)
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
    nodes: Nodes = None,
    edges: Edges = None,
    join: Join = False,
    unknown_ends: UnknownEnds = None,
    data_dir: DataDir = None,
    mirror: Mirror = None,
) -> None:
    """Show why a node got its prediction: which nodes, hops and heads made its logit.

    STA's logit is a sum over the levels of the rooted subtree, its heads and its nodes, so this is
    exact and nothing is estimated: what is shown, with the rest of each level, adds up to the
    logit. For every node named: its true label and its split, the share of each head's attention,
    what it adds to the logit of the predicted class and of the runner-up, and the most probable
    walk by which it is reached. Of several runs in the folder, the one with the best validation
    score is asked. Probabilities are the softmax of its logits; 'sta predict' calibrates them.

    [bold]Examples[/bold]

    sta explain runs/mine 7

    sta explain runs/mine 7 --top 10 --hops 2 --by contribution

    sta explain runs/mine 7 --class 3         why not class 3?

    sta explain runs/mine 7 --json > why.json

    sta explain runs/mine dan --nodes new.csv --edges new_edges.csv --join     a new node
    """
    from ..show import explanation as reports

    for name, value in (("top", top), ("hops", hops)):
        if value is not None:
            _check.integer(name, value, 0)
    _check.known("order", by, ORDERS)
    tables = _new_tables(nodes, edges, join, unknown_ends)
    result = reports.of_run(run, node, cls, top, hops, by, data_dir, mirror, tables)
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
    from ..show import report as reports

    store.finished_runs(run)  # first: where there is no run, nothing can be written
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
        from ..show.explore.server import address, listen, serve
    except ModuleNotFoundError as missing:
        if missing.name not in ("starlette", "uvicorn"):
            raise
        raise ImportError(
            f"the page needs {missing.name}, which is not installed: "
            'pip install "subtree-attention[explore]"'
        ) from None
    import webbrowser
    from threading import Thread

    from ..show.explore import Views

    store.finished_runs(run)  # before a port is asked for
    with listen(port) as listening:  # first: a port that is taken is known at once
        views = Views.of_run(run, data_dir, mirror)
        page = address(listening)
        out_console.print(f"{run} is at {page} (Ctrl-C ends)", soft_wrap=True, markup=False)
        if open:  # some browsers return only when they are closed
            Thread(target=webbrowser.open, args=[page], daemon=True).start()
        serve(views, listening)
