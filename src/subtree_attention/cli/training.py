"""Commands that train: train, tune."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import app as sta
from .app import Given, command, group, say

if TYPE_CHECKING:
    from ..config import Config
    from ..datasets import Dataset
    from ..train.watch import Watch

TABLES = sta.NEW_TABLES | group(
    sta.TABLES,
    target=(
        str,
        "Column of the classes, of lists of labels (--task multilabel) or of numbers (--task "
        "regression); empty where it is to be predicted.",
    ),
    id=(str, r"Column of the ids. \[default: id, else the first]"),
    source=(str, r"Column where edges start. \[default: source, src, from, else the first]"),
    dest=(str, r"Column where edges end. \[default: target, dest, dst, to, else the next]"),
    weight=(str, "Column of the weights of edges."),
    features=(
        list[str],
        "Columns of the nodes to use, as age,city or with the kind as zip:category (number, "
        r"category, text, tags); may be given several times. \[default: all others]",
    ),
    directed=(bool, "Keep the directions of edges. Else they lead both ways."),
    graph_column=(
        str,
        "Column of the nodes that names the graph of each. Target and split are then columns of "
        "--graphs. Edges have it too, where ids repeat in different graphs.",
    ),
    split_column=(str, r"Column that holds train, val, test or nothing. \[default: random]"),
    tune=(
        str,
        "Search settings for so long (90s, 20m, 2h) first, and train with the best: of STAGNN on "
        "nodes, not of links, graphs or --model staformer.",
    ),
)
HOW = group(
    out=(Path, r"Folder of the results. \[default: a new one under runs/]"),
    resume=(bool, "Go on with a run that was stopped: that in --out, or the latest in runs/."),
    checkpoint_seconds=(float, "How often a run is saved on the way.", 5.0),
)
PLAN = group(
    method=(str, "optuna (proposals that learn from the trials) or grid (every point).", "optuna"),
    space=(str, "paper (the paper's grid of 480 points) or wide (also the model).", "paper"),
    runs=(int, "Splits per trial: their mean score counts.", 3),
    seed=(int, "Of the proposals and of the first split.", 0),
)
SEARCH = group(
    trials=(
        int,
        "Trials in all, those done before and by other processes included. "
        r"\[default: the whole grid; with optuna 100, or as many as the budget allows]",
    ),
    budget=(str, "Time for this call, such as 90s, 20m, 2h or 1h30m."),
    prune=(
        bool,
        "Give up trials whose first run is below the median after as many epochs as the patience. "
        "Sooner done, but what learns slowly may be lost.",
    ),
    final=(bool, "At the end train the best recipe by the protocol, and report test."),
    out=(Path, r"Folder of the search. \[default: runs/tune-GRAPH]"),
)
SHARED = {name: sta.SETTINGS[name] for name in ("epochs", "patience")}
GraphName = Annotated[str, typer.Argument(help="A name from 'sta datasets'.")]
GraphOrDigits = Annotated[
    str | None, typer.Argument(help=r"A name from 'sta datasets'. \[default: digits]")
]


@command(settings=sta.SETTINGS, tables=TABLES, how=HOW, place=sta.PLACE)
def train(
    graph: GraphOrDigits = None, *, settings: Given, tables: Given, how: Given, place: Given
) -> None:
    """Train a model on a graph, and save everything.

    It is STAGNN, the model of the paper, for nodes, and STAFormer, a deep one, for links and for
    many graphs. Settings that you do not give are those of the graph's recipe, for STAGNN the
    paper's; for your own tables they go by their size.

    \b
    [bold]Examples[/bold]
    sta train                          digits, five runs, about a minute
    sta train cora --runs 5            the paper's protocol on Cora
    sta train actor --hops 10 --gate none --out runs/mine
    sta train photo --model staformer  blocks of subtree attention
    sta train --resume                 go on with the run that was stopped last

    \b
    [bold]Your own tables[/bold], one of nodes and one of edges:
    nodes.csv     id,age,city,label     edges.csv     source,target
    ........      ann,31,Rome,yes       ........      ann,bob
    ........      bob,,Oslo,no          ........      bob,cem
    ........      cem,45,Rome,          ........      cem,ann
    sta train --nodes nodes.csv --edges edges.csv --target label --out runs/mine
    sta train --nodes nodes.csv --edges edges.csv --target label --tune 20m
    sta predict runs/mine --out predictions.csv        also cem, who has no label

    \b
    [bold]Other targets[/bold] than one class of each node:
    sta train --nodes n.csv --edges e.csv --target price --task regression
    ........      a number of each node; with --log-target its logarithm is learnt
    sta train --nodes n.csv --edges e.csv --target hobbies --task multilabel
    ........      any labels of each, in CSV as ["chess", "golf"], or []

    \b
    [bold]Links[/bold] that are missing, without any target:
    sta train cora --task link
    sta train --nodes nodes.csv --edges edges.csv --task link --out runs/links
    sta predict runs/links --top 100

    \b
    [bold]Many graphs[/bold], each with a target, and a column that names the graph of a node:
    atoms.csv     molecule,id,element   bonds.csv     molecule,source,target
    ........      m1,a,C                ........      m1,a,b
    molecules.csv     molecule,toxic
    .............     m1,yes
    sta train enzymes
    sta train --nodes atoms.csv --edges bonds.csv --graphs molecules.csv
    .         --graph-column molecule --target toxic
    """
    from ..runs import folder as files
    from ..show.scores import show_result
    from ..train.fit import fit
    from ..train.jobs import Place

    where, dataset, out = Place.of(**place), None, how.pop("out", None)
    if tables:
        _refuse_beside(tables, graph, "resume" in how)
        files.check_open(out)  # before tables are read, and settings searched
        budget = tables.pop("tune", None)
        dataset, config = _own_graph(settings, budget, **tables)
        if budget:
            where.check(config)  # before a folder is made
            out = out or files.new_folder(config.data.graph)
            config = _tuned(config, dataset, out, budget, where)
    else:
        config, out = _resolved(graph, settings, out, "resume" in how)
    with _watching() as watch:
        result = fit(config, out, data=dataset, device=where, watch=watch, **how)
    show_result(result, sta.out_console)


@command(plan=PLAN, how=SEARCH, settings=SHARED, place=sta.PLACE)
def tune(
    graph: GraphName, *, plan: Given, how: Given, settings: Given, place: Given, data: Given
) -> None:
    """Search the settings of a graph with the best validation score.

    Test scores are not looked at. The same command again goes on where the search was, also after
    kill -9; started several times at once, the processes share the trials. It ends with the best
    recipe, and plots of the search in its folder.

    \b
    [bold]Examples[/bold]
    sta tune cora --method grid                   the paper's grid search
    sta tune cora --budget 20m                    the best of what 20 minutes allow
    sta tune actor --space wide --trials 200      more settings, wider ranges
    sta tune cora --trials 50 --final             and then train the best, and test it
    CUDA_VISIBLE_DEVICES=1 sta tune cora --method grid     a second GPU joins in
    """
    from ..show import study as shown
    from ..show.scores import show_result
    from ..train.fit import fit
    from ..train.jobs import Place
    from ..tune import Plan, search
    from ..tune.loop import default_folder, parse_budget

    studied = Plan(graph, changes=settings, **plan)
    folder, where = how.pop("out", None) or default_folder(studied), Place.of(**place)
    given = {name: getattr(studied, name) for name in PLAN} | settings | {"out": folder} | how
    given |= {**data, **place, "no_capture": not place.pop("capture", True)}
    final, how["budget"] = (
        how.pop("final", False),
        how.get("budget") and parse_budget(how["budget"]),
    )
    with _watching(sta.command_words(f"sta tune {studied.graph}", given)) as watch:
        study = search(studied, folder, device=where, watch=watch, **how)
    shown.publish(study, sta.out_console)
    if final and study.done():
        best = study.done()[0]
        with _watching() as watch:
            config, into = studied.protocol(best.params), folder / f"final-{best.number}"
            result = fit(config, into, device=where, resume=True, watch=watch)
        show_result(result, sta.out_console)


@contextmanager
def _watching(again: str = "") -> Iterator[Watch]:
    """A display while models train; Ctrl-C ends with how to go on."""
    try:
        with sta.progress() as watch:
            yield watch
    except KeyboardInterrupt as stopped:
        folder = getattr(stopped, "folder", None)
        again = again or (f"sta train --resume --out {folder}" if folder else "the same command")
        below = "\n" if sta.err_console.is_terminal else ""  # where ^C stands on the line
        say(f"{below}Stopped. Go on with: {again}", sta.err_console)
        raise typer.Exit(130) from None


def _resolved(
    graph: str | None, changes: Given, out: Path | None, resume: bool
) -> tuple[Config, Path | None]:
    """The recipe with changes, or when resuming the settings that the run was started with."""
    from .. import datasets
    from ..runs import folder as files
    from ..train.recipes import recipe

    if not resume:
        return recipe("digits" if graph is None else graph, **changes), out
    graph = None if graph is None else datasets.info(graph).name
    out = out or files.latest_unfinished(graph)
    config = files.read_config(out)
    return config.replace(**changes, graph=graph or config.data.graph), out


def _refuse_beside(tables: Given, graph: str | None, resume: bool) -> None:
    """Tables come neither with a graph of the registry nor with a run that has its graph."""
    given = f"--{min(tables).replace('_', '-')}"
    if resume:
        raise ValueError(f"--resume takes the graph from the run: leave out {given}")
    if graph is not None:
        raise ValueError(f"{given} is for tables of your own: leave it out, or '{graph}'")


def _own_graph(changes: Given, budget: str | None, **tables: Any) -> tuple[Dataset, Config]:
    """The graph of the user's tables, shown; and its settings by size, with changes."""
    from .. import datasets
    from ..config import LinkPrediction, task_named
    from ..show.tables import show
    from ..train.recipes import recipe

    links = "task" in changes and task_named(changes["task"]) is LinkPrediction
    for name in ("nodes", "edges", *(() if links else ("target",))):
        if name not in tables:
            raise ValueError(f"--{name} is missing: your own tables are --nodes, --edges, --target")
    if budget:
        if links or {"graphs", "graph_column"} & tables.keys():
            raise ValueError(
                "--tune searches the settings of nodes: leave it out for links and graphs"
            )
        from ..tune.loop import parse_budget, refuse_searched

        parse_budget(budget)
        refuse_searched(set(changes))
    if "features" in tables:
        tables["features"] = [name for part in tables["features"] for name in part.split(",")]
    dataset = datasets.from_tables(**tables, task=changes.get("task", "classification"))
    if dataset.notes is not None:
        show(dataset.notes, sta.out_console)
    name = tables["nodes"].stem
    name = f"{name}-table" if name in datasets.names() else name
    return dataset, recipe(dataset, graph=name, **changes)


def _tuned(config: Config, dataset: Dataset, out: Path, budget: str, place: Any) -> Config:
    """The best settings that a search of the budget finds; it lies beside the run."""
    from ..runs import folder as files
    from ..show.study import best_trials
    from ..tune import search_own
    from ..tune.loop import parse_budget
    from ..tune.space import space_of

    if files.holds_run(out):  # it was cut off after the search, whose outcome it has
        found = files.read_config(out).flat()
        return config.replace(**{name: found[name] for name in space_of("paper")})
    folder = out.with_name(f"{out.name}-tune")
    with _watching(f"the same command with --out {out}") as watch:
        study = search_own(config, dataset, folder, parse_budget(budget), place, watch)
    if not study.done():
        raise ValueError(
            f"no trial was done within {budget}: give --tune more time, or train without it"
        )
    sta.out_console.print(best_trials(study))
    return study.plan.protocol(study.done()[0].params)
