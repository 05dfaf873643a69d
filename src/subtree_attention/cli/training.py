"""Commands that train: train, tune."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import _check
from . import app as sta
from . import parallel as ranks
from . import watching
from .app import Given, command, group, say

if TYPE_CHECKING:
    from ..config import Config
    from ..datasets import Dataset
    from ..show.live.page import Page
    from ..train.fit import Result
    from ..train.jobs import Place
    from ..train.parallel import InPieces, Job
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
        r"category, text, tags, vector, date); may be given several times. \[default: all others]",
    ),
    leave_out=(list[str], "Columns not to use, as row,zip; may be given several times."),
    name=(
        str,
        "Column that says what nodes are called, where they are shown: pages, reports, 'sta "
        r"explain'. \[default: one such as name or title; none for none]",
    ),
    picture=(
        str,
        "Column of a small picture of each node: paths of files (from the folder of the table on), "
        "or rows of pixels, of a square or as scan:8x12. They are kept with the run.",
    ),
    directed=(bool, "Keep the directions of edges. Else they lead both ways."),
    graph_column=(
        str,
        "Column of the nodes that names the graph of each. Target and split are then columns of "
        "--graphs. Edges have it too, where ids repeat in different graphs.",
    ),
    store=(
        Path,
        "Folder for the graph, which then stays on disk, and steps read what they need: the tables "
        "are written to it in a stream. Without tables, a store that is there. With --batch, which "
        "is 256 here unless given.",
    ),
    split_column=(str, r"Column that holds train, val, test or nothing. \[default: random]"),
    portfolio=(
        bool,
        "Let a few models compete on the validation nodes, and train the best: classes, labels and "
        "numbers of nodes. Else the recipe alone is trained.",
        True,
    ),
    tune=(
        str,
        "Search for so long (90s, 20m, 2h), all of this command included: first the portfolio, "
        "then what a search proposes. One run, unless --runs says otherwise; others come after "
        "that time. Not of links and graphs.",
    ),
)
HOW = group(
    out=(Path, r"Folder of the results. \[default: a new one under runs/]"),
    resume=(bool, "Go on with a run that was stopped: that in --out, or the latest in runs/."),
    references=(
        bool,
        "First see what simple models reach on the same split, in half a minute at most: logistic "
        "regression, boosted trees, label propagation, with and without neighbours. "
        r"\[default: for your own tables]",
        None,
        "--references/--no-references",
    ),
    log=(
        list[str],
        "Where epochs go besides the run folder's own files: csv (metrics.csv in it), tensorboard "
        "(event files in it), wandb or mlflow; may be given several times. Each needs its package, "
        "but for csv.",
    ),
    checkpoint_seconds=(float, "How often a run is saved on the way.", 5.0),
)
MEMORY = group(
    memory=(
        str,
        "What training may take, features and graph included: 8GB, 512MiB, a number of bytes, or "
        "free. Slower where that is little; the same numbers, to rounding.",
    ),
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
    out=(Path, r"Folder of the search. \[default: runs/tune-GRAPH, or runs/STUDY]"),
    storage=(
        str,
        "Where the trials are kept, if not in that folder, for several machines: "
        "postgresql://user@host/name, or a journal such as /shared/study.jsonl; for one, also "
        "sqlite:///file.db. The password may be in PGPASSWORD or ~/.pgpass.",
    ),
    study=(str, r"Name of the search in --storage, which may hold others. \[default: tune-GRAPH]"),
)
SHARED = {name: sta.SETTINGS[name] for name in ("epochs", "patience")}
GraphName = Annotated[str, typer.Argument(help="A name from 'sta datasets'.")]
GraphOrDigits = Annotated[
    str | None, typer.Argument(help=r"A name from 'sta datasets'. \[default: digits]")
]


@command(
    settings=sta.SETTINGS,
    tables=TABLES,
    how=HOW,
    page=watching.PAGE,
    shared=ranks.PARALLEL,
    place=sta.PLACE | MEMORY,
)
def train(
    graph: GraphOrDigits = None,
    *,
    settings: Given,
    tables: Given,
    how: Given,
    page: Given,
    shared: Given,
    place: Given,
) -> None:
    """Train a model on a graph, and save everything.

    It is STAGNN, the model of the paper, for nodes, and STAFormer, a deep one, for links and for
    many graphs. Settings that you do not give are those of the graph's recipe, for STAGNN the
    paper's; for your own tables they go by their size, and a few models compete: the best one on
    the validation nodes is trained.

    \b
    [bold]Examples[/bold]
    sta train                          digits, five runs, about a minute
    sta train cora --runs 5            the paper's protocol on Cora
    sta train actor --hops 10 --gate none --out runs/mine
    sta train photo --model staformer  blocks of subtree attention
    sta train photo --memory 500MB     in parts, as far as that asks for
    sta train ogbn-arxiv               a graph of OGB, with its split and its metric
    sta train ogbn-products --batch 256        steps on samples, exact scores
    sta train --resume                 go on with the run that was stopped last
    sta train cora --watch             curves that grow, in the browser
    sta train cora --log tensorboard   epochs also where you look already

    \b
    [bold]Your own tables[/bold], one of nodes and one of edges:
    nodes.csv     id,age,city,label     edges.csv     source,target
    ........      ann,31,Rome,yes       ........      ann,bob
    ........      bob,,Oslo,no          ........      bob,cem
    ........      cem,45,Rome,          ........      cem,ann
    sta train --nodes nodes.csv --edges edges.csv --target label --out runs/mine
    sta train --nodes nodes.csv --edges edges.csv --target label --tune 20m
    sta predict runs/mine --out predictions.csv        also cem, who has no label
    sta train --nodes people.xlsx#staff --edges 'links/part-*.parquet' --target label
    sta train --nodes postgresql://ann@host/hr --nodes-query "select id, age, label from staff"
    .         --edges-query links --target label       with the password in PGPASSWORD or ~/.pgpass
    sta train --nodes people/ --edges links/ --target label --store people.store
    .         too large for memory: it is kept in files, and learnt from in batches
    sta train --store people.store --memory 8GB        again, from the files

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

    \b
    [bold]Many devices[/bold], or processes, of this machine and others:
    torchrun --nproc-per-node=4 -m subtree_attention train pubmed --parallel nodes
    torchrun --nproc-per-node=4 -m subtree_attention train pubmed --batch 512 --parallel batches
    """
    from ..train.logs import opened

    opened(how.get("log"))  # what cannot be logged to is known before tables are read
    with watching.page(page if ranks.is_first() else {}) as shown:
        if shared:
            _train_on_ranks(graph, settings, tables, how, shared, place, shown)
        else:
            _train_here(graph, settings, tables, how, place, shown)
        if shown is not None:
            shown.stay()


def _train_here(
    graph: str | None, settings: Given, tables: Given, how: Given, place: Given, page: Page | None
) -> None:
    """`train` as one process."""
    from ..datasets.registry import is_ogb
    from ..runs import folder as files
    from ..runs import portfolio as kept
    from ..show import portfolio as competition
    from ..show.scores import show_next, show_result
    from ..tasks import of as task_of
    from ..train.fit import fit
    from ..train.jobs import Place
    from ..train.parallel import refuse_many
    from ..train.portfolio import fit_portfolio, resume_portfolio

    refuse_many()
    started, where = time.monotonic(), Place.of(**place)
    dataset, out = None, how.pop("out", None)
    train_it: Callable[..., Result]
    if tables:
        how.setdefault("references", "store" not in tables)
        _refuse_beside(tables, graph, "resume" in how)
        files.check_open(out)  # before tables are read, and settings searched
        tables = sta.with_queries(tables)
        _refuse_missing(tables, settings)
        _refuse_settings(settings)
        search, compete = _search(tables, settings), tables.pop("portfolio", True)
        dataset, config = _own_graph(settings, **tables)
        if not search:
            config = _sampled_if_long(dataset, config, where, settings)
        if compete and task_of(config.task).unit == "node" and not config.fit.batch:
            settings["graph"] = config.data.graph
            search |= {"since": started, "device": where, **how, **settings}
            train_it = partial(fit_portfolio, dataset, out, **search)
        else:
            train_it = partial(fit, config, out, data=dataset, device=where, **how)
    elif is_ogb(graph) and "resume" not in how:
        files.check_open(out)
        dataset, config = _of_ogb(str(graph), settings)
        config = _sampled_if_long(dataset, config, where, settings)
        train_it = partial(fit, config, out, data=dataset, device=where, **how)
    else:
        config, out = _resolved(graph, settings, out, "resume" in how)
        if how.get("resume") and out is not None and kept.under_way(out):
            how.pop("resume")
            train_it = partial(resume_portfolio, out, more=_more(out), device=where, **how)
        else:
            train_it = partial(fit, config, out, data=dataset, device=where, **how)
    with _watching(page=page) as watch:
        result = train_it(watch=watch)
    if (portfolio := kept.read(result.folder)) is not None:
        competition.show(portfolio, sta.out_console)
    show_result(result, sta.out_console)
    show_next(result, sta.out_console)


def _sampled_if_long(dataset: Dataset, config: Config, place: Place, given: Given) -> Config:
    """The configuration, with steps on samples where whole ones would take long; said, if so."""
    from ..train.large import sampled_if_long

    if "batch" in given:
        return config
    changed, words = sampled_if_long(dataset, config, place.device, place.memory)
    if words:
        say(words)
    kept = {name: given[name] for name in ("epochs", "patience") if name in given}
    return changed.replace(**kept)


def _train_on_ranks(
    graph: str | None,
    settings: Given,
    tables: Given,
    how: Given,
    shared: Given,
    place: Given,
    page: Page | None,
) -> None:
    """`train` as one of the processes that torchrun has started."""
    from ..datasets.registry import is_ogb
    from ..show.scores import show_result
    from ..train.parallel import refuse_outside

    if "parallel" not in shared:
        raise ValueError("--partition says how nodes are shared out: it goes with --parallel nodes")
    refuse_outside()
    if "memory" in place:
        raise ValueError("--memory is for one process: --parallel nodes takes less of it on each")
    if how.pop("references", False) or tables.get("tune"):
        raise ValueError("--references and --tune are for one process: leave out --parallel")
    out, resume = how.pop("out", None), bool(how.get("resume"))

    def read(job: Job) -> tuple[Dataset | InPieces | None, Config, Path | None]:
        if not tables and is_ogb(graph) and not resume:
            return *_of_ogb(str(graph), settings), out
        if not tables:
            return None, *_resolved(graph, settings, out, resume)
        _refuse_beside(tables, graph, resume)
        own = {name: value for name, value in tables.items() if name != "portfolio"}
        _refuse_missing(own, settings)
        _refuse_settings(settings)
        if ranks.in_parts(own) and job.shares_nodes:
            return *ranks.read_pieces(job, settings, **_columns(own)), out
        return *_own_graph(settings, **sta.with_queries(own)), out

    result = ranks.train(read, how | shared, place.get("device", "auto"), page)
    if result is not None:
        show_result(result, sta.out_console)


@command(plan=PLAN, how=SEARCH, settings=SHARED, place=sta.PLACE)
def tune(
    graph: GraphName, *, plan: Given, how: Given, settings: Given, place: Given, data: Given
) -> None:
    """Search the settings of a graph with the best validation score.

    Test scores are not looked at. The same command again goes on where the search was, also after
    kill -9; started several times at once, the processes share the trials, on several machines by
    --storage. It ends with the best recipe, and plots of the search in its folder.

    \b
    [bold]Examples[/bold]
    sta tune cora --method grid                   the paper's grid search
    sta tune cora --budget 20m                    the best of what 20 minutes allow
    sta tune actor --space wide --trials 200      more settings, wider ranges
    sta tune cora --trials 50 --final             and then train the best, and test it
    CUDA_VISIBLE_DEVICES=1 sta tune cora --method grid     a second GPU joins in
    sta tune cora --storage postgresql://ann@host/studies  each machine that gives this joins in
    """
    from ..show import study as shown
    from ..show.scores import show_result
    from ..train.fit import fit
    from ..train.jobs import Place
    from ..tune import Plan, search
    from ..tune.loop import default_folder, parse_budget

    studied = Plan(graph, changes=settings, **plan)
    folder, where = how.pop("out", None), Place.of(**place)
    folder = folder or default_folder(studied, how.get("study"))
    given = {name: getattr(studied, name) for name in PLAN} | settings | {"out": folder} | how
    given |= {**data, **place, "no_capture": not place.pop("capture", True)}
    if "storage" in given:
        given["storage"] = _check.without_passwords(given["storage"])
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
def _watching(again: str = "", page: Page | None = None) -> Iterator[Watch]:
    """A display while models train, and a page, if there is one; Ctrl-C ends with how to go on."""
    try:
        with sta.progress(page) as watch:
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
    from ..datasets.registry import is_ogb
    from ..runs import folder as files
    from ..runs import portfolio as kept
    from ..train.recipes import recipe

    if not resume:
        return recipe("digits" if graph is None else graph, **changes), out
    graph = graph if graph is None or is_ogb(graph) else datasets.info(graph).name
    out = out or files.latest_unfinished(graph)
    under_way = kept.read(out) if kept.under_way(out) else None
    config = files.read_config(out) if under_way is None else under_way.base
    wanted = config.replace(**changes, graph=graph or config.data.graph)
    if under_way is not None and (changed := config.differences(wanted)):
        raise files.FileError(
            f"{out} was started with other settings: {'; '.join(changed)}: choose another folder"
        )
    return wanted, out


def _refuse_beside(tables: Given, graph: str | None, resume: bool) -> None:
    """Tables come neither with a graph of the registry nor with a run that has its graph."""
    given = f"--{'no-' * (min(tables) == 'portfolio')}{min(tables).replace('_', '-')}"
    if resume and tables.keys() <= {"tune", "portfolio"}:
        raise ValueError(
            "--resume goes on as the run was begun, with its models and its time: leave out "
            f"{given}"
        )
    if resume:
        raise ValueError(f"--resume takes the graph from the run: leave out {given}")
    if graph is not None and tables.keys() == {"tune"}:
        raise ValueError(f"--tune is for tables of your own: 'sta tune {graph}' searches here")
    if graph is not None:
        raise ValueError(f"{given} is for tables of your own: leave it out, or '{graph}'")


def _refuse_missing(tables: Given, settings: Given) -> None:
    """Tables come together, and links alone need no target."""
    if "store" in tables and not {"nodes", "edges"} & tables.keys():
        _refuse_beside_a_store(tables)
        return
    for name in ("nodes", "edges", *(() if _of_links(settings) else ("target",))):
        if name not in tables:
            raise ValueError(f"--{name} is missing: your own tables are --nodes, --edges, --target")


def _refuse_beside_a_store(tables: Given) -> None:
    """A store that is there has been read from its tables."""
    if more := tables.keys() - {"store", "portfolio"}:
        raise ValueError(
            f"--store {tables['store']} alone is a graph that was read before: leave out "
            f"--{min(more).replace('_', '-')}, or give --nodes and --edges to write a new store"
        )


def _refuse_settings(settings: Given) -> None:
    """What no table can make right is refused before one is read, spelled as it was given."""
    from ..config import MODELS, DataSettings, FitSettings, NodeClassification, task_named

    model = settings.get("model")
    models = MODELS.values() if model is None else [MODELS[_check.known("--model", model, MODELS)]]
    task = task_named(settings["task"]) if "task" in settings else NodeClassification
    for name, value in settings.items():
        owner = next(
            (one for one in (task, DataSettings, FitSettings, *models) if name in one.names()), None
        )
        if owner is not None:
            owner.checked(name, value, f"--{name.replace('_', '-')}")


def _of_links(settings: Given) -> bool:
    from ..config import LinkPrediction, task_named

    return "task" in settings and task_named(settings["task"]) is LinkPrediction


def _search(tables: Given, settings: Given) -> dict[str, Any]:
    """What `--tune` asks for: proposals after the portfolio, until the time ends."""
    budget = tables.pop("tune", None)
    if budget is None:
        return {}
    from ..tune import Proposals
    from ..tune.loop import parse_budget

    if _of_links(settings) or {"graphs", "graph_column"} & tables.keys():
        raise ValueError("--tune searches the settings of nodes: leave it out for links and graphs")
    if not tables.get("portfolio", True):
        raise ValueError("--tune begins with the portfolio: leave out --no-portfolio, or --tune")
    seconds, proposals = parse_budget(budget, "time of --tune"), Proposals()
    settings.setdefault("runs", 1)  # others would come after the time
    return {"budget": seconds, "more": proposals}


def _more(out: Path) -> Any:
    """What goes on proposing, where a search was stopped."""
    from ..runs import portfolio as kept

    portfolio = kept.read(out)
    if portfolio is None or not portfolio.searches:
        return None
    from ..tune import Proposals

    return Proposals()


def _columns(tables: Given) -> Given:
    """Tables with lists of columns as lists."""
    lists = {name: tables[name] for name in {"features", "leave_out"} & tables.keys()}
    split = {name: [c for part in given for c in part.split(",")] for name, given in lists.items()}
    return {**tables, **split}


def _of_ogb(name: str, changes: Given) -> tuple[Dataset, Config]:
    """A graph of OGB, shown; and its settings by size, with OGB's metric and changes."""
    from ..datasets.ogb import from_ogb, ogb_metric
    from ..show.tables import show
    from ..train.recipes import recipe

    changes = {"metric": ogb_metric(name), **changes}
    dataset = from_ogb(name)
    if dataset.notes is not None:
        show(dataset.notes, sta.out_console)
    return dataset, recipe(dataset, **changes)


def _read(tables: Given, changes: Given) -> Dataset:
    """The graph of tables, in memory or in a store; that of a store that is there."""
    from ..datasets import Store, from_tables, store_tables
    from ..train.large import BATCH

    task = {"task": changes.get("task", "classification")}
    if "store" not in tables:
        return from_tables(**tables, **task)
    changes.setdefault("batch", BATCH)
    if "nodes" not in tables:
        return Store.open(tables["store"]).dataset
    given = {name: value for name, value in tables.items() if name != "store"}
    return store_tables(**given, **task, folder=tables["store"]).dataset


def _own_graph(changes: Given, **tables: Any) -> tuple[Dataset, Config]:
    """The graph of the user's tables, shown; and its settings by size, with changes."""
    from .. import datasets
    from ..datasets.tables.sources import graph_name
    from ..show.tables import show
    from ..show.text import visible
    from ..tasks.balance import metric_in_words
    from ..train.recipes import recipe, wants_deep

    tables = _columns(tables)
    dataset = _read(tables, changes)
    if dataset.notes is not None:
        show(dataset.notes, sta.out_console)
    if wants_deep(dataset, changes):
        say(
            f"{dataset.num_classes:,} classes: STAFormer, whose cost does not grow with classes "
            "times channels; the paper's model by --model stagnn",
            sta.out_console,
        )
    name = graph_name(tables["nodes"]) if "nodes" in tables else tables["store"].stem
    name = f"{name}-table" if name in datasets.names() else name
    config = recipe(dataset, graph=name, **changes)
    uneven = metric_in_words(dataset, config.task)
    if uneven:
        say(visible(uneven))
    return dataset, config
