"""Commands about a run that is there: evaluate, check, predict, explain, report, explore."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import _check
from . import app as sta
from .app import Device, Force, Given, RunFolder, command, group, needs, say

JOIN = (bool, "The new nodes join the graph of the run; edges may end in both.")
TABLES = sta.NEW_TABLES | group(sta.TABLES, join=JOIN)
ASKED = group(
    top=(int, "Nodes to name in each level.", 5),
    hops=(int, r"Name nodes up to this hop only. \[default: all]"),
    cls=(
        str,
        r"Class or label to explain, by name or number. \[default: the predicted one]",
        None,
        "--class",
    ),
    by=(
        str,
        "Which nodes are named: those with the largest 'share' of the attention, or the largest "
        "'contribution' to the logit, of either sign.",
        "share",
    ),
    rather=(str, "Why the class rather than this one: the difference of their logits is shown."),
)
CHANGES = group(
    "What if (repeat them as you like)",
    without=(
        list[str],
        "A node that is left out, by its id; or edge:ID>ID, or word:COLUMN:WORD, a word, tag or "
        "category that the node itself has.",
    ),
    set=(
        list[str],
        "COLUMN=VALUE: another value of a column of the node itself; COLUMN= for none.",
    ),
)
PAIRS = group(
    "A model of links (--task link)",
    pairs=(str, "Table with two columns of ids: how probable is each link?"),
    pairs_query=(str, "What to select of the database --pairs, or that of --nodes."),
    top=(
        int,
        "Else so many of the most probable links that are missing; with --join, those of new "
        r"nodes. \[default: 100]",
    ),
)
DECIDED = group(
    "Other answers than the most probable (one of them)",
    threshold=(
        float,
        "The probability above which one of two classes is the answer, such as 0.3; or each label.",
    ),
    cls=(
        str,
        r"Which of the two classes --threshold is about. \[default: the rarer one]",
        None,
        "--class",
    ),
    reject=(float, "Share of nodes that get no answer: those that the model is least sure of."),
    coverage=(
        float,
        "How often a set of classes shall hold the true one, such as 0.95; or the interval of a "
        "number the true number.",
    ),
)
BLOCKS = group(
    "A graph that is too large for one file, or for memory",
    blocks=(
        bool,
        "Write a folder (--out) of parts, one after the other; cut off, the same command goes on.",
    ),
    part_rows=(int, r"Rows of a part. \[default: 1,000,000]"),
    part_format=(str, r"csv or parquet. \[default: csv]"),
    memory=(
        str,
        "A bound for what the model takes, such as 8GB, or 'free': it then walks in parts.",
    ),
)
Predictions = Annotated[
    Path, typer.Option(help="File to write: .csv, or .parquet; with --blocks, a folder.")
]


def _new_tables(tables: Given) -> Given:
    """The tables as they are read; options of tables that are not there are refused."""
    tables = sta.with_queries(tables)
    if tables and not tables.keys() & {"nodes", "edges", "graphs"}:
        raise ValueError("--join and --unknown-ends are for new tables: --nodes and --edges")
    return tables


def _with_pairs(asked: Given, tables: Given) -> Given:
    """What is asked of a model of links; a query of pairs may be of the database of the nodes."""
    near = {"nodes": tables["nodes"]} if "nodes" in tables else {}
    made = sta.with_queries({**near, **asked})
    return {name: made[name] for name in made if name in PAIRS}


@command()
def evaluate(run: RunFolder, *, device: Device = "auto") -> None:
    """Load the models of a run folder again and score them on their splits.

    Prints the stored test score beside the one computed now, and what references reached where
    'sta train' computed them; then more scores of the test nodes,
    pairs or graphs. Of classes these are accuracy, macro F1, ROC-AUC and calibration error, and
    which classes are taken for which (also as a picture in the folder, with matplotlib); of labels
    how well each is told; of numbers R2, mean absolute and root mean squared error, and how often
    the 90 % interval holds; of links Hits@k, MRR, ROC-AUC and average precision among the random
    pairs of the test, or "-" where these are too few for a score.
    """
    from ..runs import evaluate as score_again
    from ..show.portfolio import summary
    from ..show.scores import show_details, show_ogb, show_quality, show_references, show_scores

    scores = score_again(run, device=device)
    show_scores(scores, sta.out_console)
    show_ogb(scores, sta.out_console)
    if scores[0].run.portfolio is not None:
        say(summary(scores[0].run.portfolio))
    show_references(scores, sta.out_console)
    show_quality(scores, sta.out_console)
    show_details(scores, run, sta.out_console)


@command()
def check(
    folder: Annotated[Path, typer.Argument(help="What 'sta train' wrote, finished or not.")],
    *,
    accept: Annotated[
        bool, typer.Option("--accept", help="What is there now is right: write the lists anew.")
    ] = False,
) -> None:
    """Compare every file of a run folder with its checksum.

    Weights, checkpoints and graphs have theirs inside; the other files stand in the lists
    SHA256SUMS, which 'sha256sum -c' reads too. A file that you have changed on purpose, such as
    config.json, is accepted with --accept.
    """
    from ..runs import folder as files
    from ..show.text import counted

    if not files.holds_run(folder) and not (folder / files.SUMMARY).exists():
        raise ValueError(f"there is no run in {folder}: 'sta train' writes such folders")
    if accept:
        with files.claimed(folder):
            files.accept(folder)
    found = list(files.check(folder))
    wrong = [words for _, words in found if words]
    for words in wrong:
        say(words)
    say(f"{counted(len(found), 'file')} checked, {len(wrong)} wrong")
    if files.holds_run(folder) and not files.is_done(folder):
        say(f"training is not finished there: sta train --resume --out {folder}")
    if not found:
        say("this folder is of an older version, which wrote no checksums")
    if wrong:
        raise typer.Exit(1)


@command(decided=DECIDED, blocks=BLOCKS, tables=TABLES, asked=PAIRS)
def predict(
    run: RunFolder,
    *,
    out: Predictions = Path("predictions.csv"),
    decided: Given,
    blocks: Given,
    tables: Given,
    asked: Given,
    force: Force = False,
    device: Device = "auto",
) -> None:
    """Predict what a run has learnt: of every node, of pairs of nodes, or of every graph.

    The model is that with the best validation score; its probabilities are calibrated by a
    temperature on its validation nodes. Nothing is trained. New tables need the columns that the
    model was trained on. Of a graph of the registry, ids are the numbers of the nodes.

    A model of classes gives the class, and the probability of each; one of labels the list of
    those above 50 %, and the probability of each; one of numbers the number, and the interval that
    holds 90 % of the validation nodes.

    What else shall count as an answer is found on the validation nodes, and how well it does on the
    test nodes is shown: a threshold; no answer for the least sure (an empty prediction, and "yes"
    in the column "rejected"); or sets of classes (in the column "set").

    A model of many graphs predicts each graph. One of links says how probable given pairs are, or
    looks through all pairs for links that are missing; it walks on all links that are known, and
    its probabilities are those among as many random pairs as links.

    A few nodes of a large graph, or new ones, are answered in milliseconds by 'sta serve'. All
    nodes of one go into a folder of parts, by --blocks: killed at any time, the same command goes
    on.

    \b
    [bold]Examples[/bold]
    sta predict runs/mine --out predictions.csv        id, prediction, a column for each class
    sta predict runs/mine --threshold 0.3              the rarer of two classes from 30 % on
    sta predict runs/mine --reject 0.1                 no answer for the least sure tenth
    sta predict runs/mine --coverage 0.95              sets that hold the true class so often
    sta predict runs/links --pairs pairs.csv           two columns of ids -> probability
    sta predict runs/links --top 20                    links that are missing, most probable first
    sta predict runs/mine --blocks --out parts --memory 8GB   part-00000.csv, part-00001.csv, ...
    sta predict runs/mine --nodes new.csv --edges new_edges.csv          another graph
    sta predict runs/mine --nodes new.csv --edges new_edges.csv --join   new nodes of the same
    """
    from ..runs import open, predict_links
    from ..runs import predict as predict_nodes
    from ..runs.links import write as write_links
    from ..runs.predictions import check_target, write
    from ..show.decided import show_decided
    from ..show.scores import known_labels, show_calibration
    from ..show.tables import show
    from ..show.text import counted
    from ..tasks.deciding import Asked

    parts = blocks.pop("blocks", False)
    if not parts:
        _refuse_part_options(blocks)
        check_target(out, force)
    Asked(**decided)  # refuses what cannot be, before anything is read
    asked = _with_pairs(asked, tables)
    tables = _new_tables(tables)
    unit = open(run, device="cpu").task.unit
    if unit == "pair":
        if parts or blocks:
            raise ValueError("--blocks and --memory are for nodes and graphs, not for links")
        if "graphs" in tables:
            raise ValueError("--graphs is for a model of graphs, and this one is of links")
        if decided:
            given = "class" if "cls" in decided else min(decided)
            raise ValueError(
                f"--{given} is for classes, labels and numbers: the probabilities of links say "
                "more by their order than by their size"
            )
        found = predict_links(run, **asked, **tables, device=device)
        if found.notes is not None:
            show(found.notes, sta.out_console)
        show_calibration(found.calibration, sta.out_console, unit)
        write_links(found, out, force)
        say(f"{counted(len(found.ids), unit)} by {found.run} written to {out}")
        return
    if asked:
        given = f"--{min(asked)}"
        raise ValueError(f"{given} is for a model of links (sta train --task link), not of {unit}s")
    if parts:
        _predict_parts(run, out, force, device, {**blocks, **tables, **decided})
        return
    predictions = predict_nodes(run, **blocks, **tables, **decided, device=device)
    if predictions.notes is not None:
        show(predictions.notes, sta.out_console)
        line = known_labels(predictions)
        if line:
            sta.out_console.print(line)
    answers = "labels" if predictions.answers.cell is list else ""
    show_calibration(predictions.calibration, sta.out_console, unit, answers)
    if predictions.decided is not None:
        show_decided(predictions.decided, sta.out_console, unit)
    write(predictions, out, force)
    say(f"{counted(len(predictions.ids), 'prediction')} of {predictions.run} written to {out}")


def _refuse_part_options(blocks: Given) -> None:
    for name in ("part_rows", "part_format"):
        if name in blocks:
            raise ValueError(f"--{name.replace('_', '-')} is for --blocks, a folder of parts")


def _predict_parts(run: Path, out: Path, force: bool, device: str, given: Given) -> None:
    """The same as a folder of parts, with a line for each."""
    from ..runs.blocks import predict_in_blocks
    from ..show.decided import show_decided
    from ..show.scores import show_calibration
    from ..show.tables import show
    from ..show.text import counted

    folder = Path("predictions") if out == Path("predictions.csv") else out

    def told(line: str) -> None:
        say(line, sta.err_console)

    made = predict_in_blocks(run, folder, **given, force=force, device=device, told=told)
    if made.notes is not None:
        show(made.notes, sta.out_console)
    if made.calibration is not None:
        answers = "labels" if made.kind == "labels" else ""
        show_calibration(made.calibration, sta.out_console, made.unit, answers)
    if made.decided is not None:
        show_decided(made.decided, sta.out_console, made.unit)
    there = made.parts - made.written
    before = f", {there:,} of them there before" * bool(there)
    say(
        f"{counted(made.units, 'prediction')} of {made.run} in {counted(made.parts, 'part')} of "
        f"{made.folder}{before}"
    )


@command(asked=ASKED, changes=CHANGES, tables=TABLES)
def explain(
    run: RunFolder,
    node: Annotated[
        list[str],
        typer.Argument(
            help="The node, or graph, one: its id, or its number where it has none.", metavar="node"
        ),
    ],
    *,
    asked: Given,
    changes: Given,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
    tables: Given,
) -> None:
    """Show why a node got its prediction: which nodes, hops and heads made its logit.

    Of a number, the number itself is taken apart, in its own unit; where its logarithm was learnt
    (--log-target), that logarithm. Pairs of nodes (--task link) are not explained.

    STA's logit is a sum over the levels of the rooted subtree, its heads and its nodes, so this is
    exact and nothing is estimated: what is shown, with the rest of each level, adds up to the
    logit. For every node named: its true label and its split, the share of each head's attention,
    what it adds to the logit of the predicted class and of the runner-up, and the most probable
    walk by which it is reached. Of several runs in the folder, the one with the best validation
    score is asked. Probabilities are calibrated, as everywhere.

    Below stands which columns of the table, and which words, added most: those of the node itself,
    and those of all nodes together. Through a hidden layer with ReLU this is exact given which of
    its units are active.

    What if: a node is left out, an edge cut, a word of the node itself left out, or a column of it
    has another value? Probabilities are shown before and after, and the rest is as it is after. It
    is what the model says on the graph so changed, exactly; what stays as trained is said.

    Of a model of graphs, name a graph: shown is what its output loses without each of its nodes in
    the pooling (--top, --class and --json).

    A network of several blocks (STAFormer) is not linear given its attention. Its logit is
    attributed to nodes by integrated gradients instead, told by their distance; what does not add
    up is shown.

    \b
    [bold]Examples[/bold]
    sta explain runs/mine 7
    sta explain runs/mine 7 --top 10 --hops 2 --by contribution
    sta explain runs/mine 7 --class 3         why not class 3?
    sta explain runs/mine 7 --rather 3        what speaks against class 3?
    sta explain runs/mine 7 --without 12 --without edge:3>7 --without word:title:the
    sta explain runs/mine 7 --set year=1999
    sta explain runs/mine 7 --json > why.json
    sta explain runs/mine dan --nodes new.csv --edges new_edges.csv --join     a new node
    """
    import json

    from ..explanations.explanation import ORDERS
    from ..runs import open
    from ..show import explanation, graphs

    for name in ("top", "hops"):
        _check.integer(name, asked.get(name, 0), 0)
    _check.known("order", asked.get("by", ORDERS[0]), ORDERS)
    tables = _new_tables(tables)
    model = open(run, device="cpu")
    if len(node) > 1 and model.task.unit != "pair":  # which are not explained at all
        raise ValueError(f"one {model.task.unit} is explained at a time, got {' '.join(node)}")
    if tables:
        new, _ = model.read_tables(**{"nodes": None, "edges": None, **tables})
        model = model.on(new, tables.get("join", False))
    if model.task.unit == "graph":
        for name in ("hops", "by", "rather", "without", "set"):
            if name in {**asked, **changes}:
                raise ValueError(
                    f"--{name} is for nodes: of a graph, its nodes are shown as a list"
                )
        result = graphs.of_run(model, node[0], **asked)
        drawn = graphs.show(result)
    else:
        texts = [*changes.get("without", ()), *(f"column:{it}" for it in changes.get("set", ()))]
        result = explanation.of_run(model, node[0], **asked, changes=texts)
        drawn = explanation.show(result)
    if as_json:
        typer.echo(json.dumps(result, indent=2, allow_nan=False))
    else:
        sta.out_console.print(drawn)


@command()
def report(
    run: Annotated[
        list[Path],
        typer.Argument(
            help="A folder that 'sta train' wrote; or several, to be compared.", metavar="run"
        ),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            help=r"HTML file to write. \[default: report.html in the run folder; of several, "
            "compare.html here]"
        ),
    ] = None,
    force: Force = False,
    device: Device = "auto",
) -> None:
    """Write a run as one HTML page: to read, to print, to send. Or several, side by side.

    The page has the settings in words, the scores of all runs, training curves, the confusion
    matrix, calibration, hop weights and gates, what was done with each column of your own tables,
    and the mistakes that the model is most sure of, each with its subtree and the nodes that led to
    it. Numbers have a scatter of predicted and true ones in place of the matrix, labels a table of
    each; links have neither. It needs no network and no scripts. Nothing is trained.

    It is the run's own report.html, and written anew each time; --out writes it elsewhere, and over
    another file only with --force.

    Of several folders on the same graph, runs with the same test nodes are paired with those of the
    first: shown are the mean difference of their scores with its 95 % interval, the settings that
    differ, the scores of each class, and the nodes that one gets right and the other wrong.

    \b
    [bold]Examples[/bold]
    sta report runs/mine
    sta report runs/mine --out mine.html --force
    sta report runs/mine runs/other                side by side: compare.html
    """
    from ..show import report as page

    several = len(run) > 1
    target = out or (Path("compare.html") if several else run[0] / "report.html")
    mark = page.COMPARISON if several else page.REPORT
    page.check_target(target, force, mark if out is None else None)
    if several:
        found = page.compare(run, device=device)
        page.write(page.render_comparison(found), target)
        page.show_comparison(found, sta.out_console)
        say(f"{len(run)} folders side by side written to {target}")
        return
    page.write(page.render(page.gather(run[0], device=device)), target)
    say(f"report of {run[0]} written to {target}")


@command()
def explore(
    run: RunFolder,
    *,
    port: Annotated[int, typer.Option(help="Of this machine; 0 for any that is free.")] = 8765,
    open: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in your browser.")
    ] = True,
) -> None:
    """Walk through a run in the browser: nodes, their subtrees, and what made their classes.

    Find a node by its id, or in the lists of confident mistakes, doubtful and certain nodes. Its
    subtree is drawn level by level: colour is the predicted class, the ring around it the true one,
    size the attention, or what the node adds to the logit of a class. Click a node, or press Enter
    on it, and it becomes the root; Back leads back, and every view has an address of its own.
    Beside it stand the same exact parts as in 'sta explain', which add up to the logit;
    probabilities are calibrated, as in 'sta predict'. It draws classes of nodes: runs of other
    tasks have 'sta report', and all but those of links 'sta explain'.

    The page is for this machine only (127.0.0.1) and needs no network; Ctrl-C ends it. It needs
    pip install "subtree-attention\\[explore]".

    \b
    [bold]Examples[/bold]
    sta explore runs/mine
    sta explore runs/mine --port 0 --no-open      any free port; open the address yourself
    """
    with needs("the page", "explore"):
        from ..show.explore.server import server
        from ..show.pages.serving import address, listen, open_browser, serve
    from ..show.explore import Views

    with listen(port) as listening:  # first: a port that is taken is known at once
        views = Views.of_run(run)
        page = f"{address(listening)}/"
        say(f"{run} is at {page} (Ctrl-C ends)")
        if open:
            open_browser(page)
        serve(server(views, listening), listening)
