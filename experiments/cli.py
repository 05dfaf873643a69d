"""`python -m experiments bench|reproduce|field|own|scale|charts`: measure, compare, draw."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from subtree_attention import _check, cli
from subtree_attention.cli.app import DATA, PLACE, Device, err_console, options, out_console, say
from subtree_attention.show.progress import Bars, Lines

app = typer.Typer(
    name="python -m experiments",
    help="The paper's experiments, and the benchmarks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.command()
@options(data=DATA)
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
    render: Annotated[
        bool, typer.Option("--render", help="Only draw again what the file of --out holds.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="JSON file of the results, the picture goes beside it. \\[default: "
            "results/bench-DEVICE.json, with --scaling results/scaling-DEVICE.json]"
        ),
    ] = None,
    *,
    data: dict[str, Any],
) -> None:
    """Measure the operator and whole epochs against other ways to do the same.

    Contenders: the published formulation edge by edge, sparse products by the library, and PyG's
    GCN, GAT, GraphSAGE, SGFormer and Polynormer. All are timed in turns in one run. What runs out
    of memory is reported as such; a version that breaks or whose result is wrong is not reported,
    and the command fails.

    [bold]Examples[/bold]

    python -m experiments bench                          Cora, on a GPU if there is one

    python -m experiments bench cora pubmed photo --rounds 15

    python -m experiments bench --shape arxiv            a random graph as large as ogbn-arxiv

    python -m experiments bench --shape 10000,50000,128,10 --device cpu --backend torch

    python -m experiments bench --scaling                how time and memory grow
    """
    from experiments import bench as benchmark
    from subtree_attention.io import read_json, write_json
    from subtree_attention.runs.environment import choose_device

    _check.integer("rounds", rounds, 1)
    place = choose_device(device)
    common: dict[str, Any] = {"backend": backend, "rounds": rounds, "say": err_console.print}
    path = out or Path(f"results/{'scaling' if scaling else 'bench'}-{place.type}.json")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file with --out")
    if render:
        for file in benchmark.draw(read_json(path), path):
            say(f"written to {file}")
        return
    if scaling:
        if graphs or shape:
            raise ValueError("--scaling runs on random graphs of its own: name no graph or shape")
        result = benchmark.scale(place, limit=limit, **common)
    else:
        graphs = graphs or ([] if shape else ["cora"])
        common["save"] = lambda so_far: write_json(path, so_far)
        result = benchmark.compare(graphs, shape or [], place, **common)
    benchmark.publish(result, path, out_console)


@app.command()
@options(place=PLACE, data=DATA)
def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            help="table1, table2, table3, hops, deep, gpr, theorem, robustness, or all."
        ),
    ],
    *,
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
        int | None,
        typer.Option(help="Most epochs of a run, for a quick look; needs a folder of its own."),
    ] = None,
    place: dict[str, Any],
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
    data: dict[str, Any],
) -> None:
    """Run the paper's experiments again, and draw its tables and figures from the runs.

    Every run is a line of JSON below the folder of the records. What is there with the same
    settings is not run again, so an interrupted command goes on where it was; --render trains
    nothing. A run that diverges is a result and marked as such; one that fails is named, the others
    go on, and the command ends with exit code 1: the same command tries it again. Started several
    times at once, the processes share the runs.

    [bold]Examples[/bold]

    python -m experiments reproduce table1    all graphs, all models, the paper's number of runs

    python -m experiments reproduce table1 --graph cora --model STAGNN --model GCN

    python -m experiments reproduce deep --render    tables and figures from the committed runs

    python -m experiments reproduce theorem    spectral gaps and convergence; trains nothing

    CUDA_VISIBLE_DEVICES=1 python -m experiments reproduce all   a second GPU joins in
    """
    from experiments.reproduce import command
    from experiments.reproduce.queue import default_processes
    from experiments.reproduce.store import DEFAULT, Store
    from subtree_attention.train.jobs import Place

    store = Store(results or DEFAULT)
    _check.known("experiment", what, command.WHATS)
    if epochs is not None and results is None:
        raise ValueError(
            f"runs of {epochs} epochs would stand for the full ones in {DEFAULT}: "
            "name another folder with --results"
        )
    if render:
        files, failed = command.render(what, store, _Lines().say), ""
    else:
        where = Place.of(**place)
        chosen: dict[str, Any] = {"graphs": graph, "models": model, "runs": runs, "again": again}
        if epochs is not None:
            chosen["epochs"] = epochs
        if processes is None:
            processes = default_processes(where.device)
        display: AbstractContextManager[Lines] = nullcontext(_Lines())
        if err_console.is_terminal:
            display = Bars(err_console)
        try:
            with display as watch:
                count = _check.integer("processes", processes, 1)
                files, failed = command.reproduce(
                    what, where, store, processes=count, watch=watch, **chosen
                )
        except KeyboardInterrupt:
            say("Stopped. What is done is kept; the same command goes on.", err_console)
            raise typer.Exit(130) from None
    for file in files:
        say(f"written to {file}")
    if failed:
        raise RuntimeError(f"{failed}. They have no record: the same command tries them again")


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def field(context: typer.Context) -> None:
    """The new model beside its rivals, one budget for all: see 'field --help'."""
    from experiments.field.command import main

    main(context.args)


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def own(context: typer.Context) -> None:
    """Graphs as tables: ours beside what an analyst would use instead: see 'own --help'."""
    from experiments.own.command import main

    main(context.args)


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def scale(context: typer.Context) -> None:
    """What graphs need on 1 to 512 devices, by formulas that are checked: see 'scale --help'."""
    from experiments.scale.command import main

    main(context.args)


@app.command()
def charts(
    results: Annotated[Path, typer.Option(help="Folder of the files.")] = Path("results"),
) -> None:
    """Draw charts of single results from the committed files, as results/README.md shows them."""
    from experiments.charts import draw

    for file in draw(results):
        say(f"written to {file}")


class _Lines(Lines):
    """Lines beside the results, not among them."""

    def say(self, line: str) -> None:
        say(line, err_console)


def main(arguments: list[str] | None = None) -> None:
    """Entry point: errors in plain words, as those of `sta`."""
    cli.main(arguments, app)
