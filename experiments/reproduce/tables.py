"""From records to the paper's tables, and to those of the figures' numbers.

Nothing that is missing is left out: a graph without runs says so, and so does a mean over fewer
runs than planned (5 for Cora, Citeseer, Deezer and Actor, 10 for the rest).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from experiments.reproduce import published
from experiments.reproduce.corruption import KINDS
from experiments.reproduce.markup import Cell, Row, Table, texts
from experiments.reproduce.published import GRAPHS_A, GRAPHS_B, Published, Score
from experiments.reproduce.records import (
    OURS,
    Record,
    divergence,
    graphs_in_order,
    grouped,
    models_in_order,
    on,
    paired_difference,
    planned_runs,
    provenance,
    run_count,
    select,
    summarise,
    title,
    typical_peak,
)
from subtree_attention import datasets as data

GATES = {
    "gate softmax": "STAGNN (gate with softmax)",
    "gate plain": "gate without softmax",
    "gate none": "no gate",
}
"""Variants of Table 3 and how they are shown, in the paper's order."""
AGGREGATIONS = ("gpr", "sum", "concat", "attention")
SCORES = "Mean (sample standard deviation) over runs, in percent; ROC-AUC where marked AUC."
FEWER = (
    "Where a row has fewer runs than the paper (our baselines have 5), they are on the first "
    "splits; differences on common splits stand in the table of pairs."
)
DIVERGED = (
    "Diverged: loss or outputs were not finite any more. The best epoch before that counts; a run "
    "without one is in no mean and in no pair."
)
CHOSEN = (
    "Weight decay of our baselines: in each run, of those that were tried, the one with the best "
    "validation score."
)
NO_CORAFULL = (
    "CoraFull: its file (CitationFull/cora/raw/cora.npz) is not there, so nothing was run."
)
BOLD = "Bold: the highest mean of a graph, among ours and among the published rows separately."


def table1(records: Sequence[Record]) -> Table:
    """STAGNN and the baselines on every graph of the paper, and what was published."""
    own = select(records, "table1")
    measured = {label: _of_label(own, label) for label in [OURS, *models_in_order(own)]}
    others = [label for label in measured if label != OURS]
    ahead = [label for label in published.TABLE1.rows if label not in (OURS, *others)]
    return _beside_published(
        "table1",
        "Node classification: STAGNN and other models",
        graphs=graphs_in_order((*GRAPHS_A, *GRAPHS_B), own),
        labels={label: label for label in (*others, *ahead, OURS)},
        measured=measured,
        sources=(published.TABLE1, published.RELEASED_PROGRAM),
        notes=(CHOSEN,),
    )


def table2(records: Sequence[Record]) -> Table:
    """Global attention with 0 to 3 hops of STA; GAT is Table 1's where it was not run again."""
    rows = list(published.TABLE2.rows)
    rows.insert(rows.index("GA only") + 1, "0 hops + GA")  # what the published row is, it seems
    graphs, measured = _by_variant(records, "table2", GRAPHS_B, rows, reserve=("GAT", "GAT"))
    return _beside_published(
        "table2",
        "Global attention (GA) alone and with hops of subtree attention",
        graphs=graphs,
        labels={label: label for label in measured},
        measured=measured,
        sources=(published.TABLE2,),
    )


def table3(records: Sequence[Record]) -> Table:
    """Gates over heads; STAGNN itself is Table 1's where it was not run again."""
    graphs, measured = _by_variant(records, "table3", GRAPHS_B, GATES, ("gate softmax", OURS))
    return _beside_published(
        "table3",
        "Gates over attention heads",
        first="gate",
        graphs=graphs,
        labels={label: GATES.get(label, label) for label in measured},
        measured=measured,
        sources=(published.TABLE3,),
    )


def paired(records: Sequence[Record]) -> Table:
    """STAGNN minus every other model of Table 1 on the same splits and seeds."""
    own = select(records, "table1")
    others = [label for label in models_in_order(own) if label != OURS]
    graphs = graphs_in_order((*GRAPHS_A, *GRAPHS_B), own)
    columns = ("graph", "other model", "difference", "standard error", "pairs")
    return Table.of_groups(
        "paired",
        "STAGNN minus other models, run by run on the same splits and seeds",
        columns=(*columns, "within two standard errors"),
        groups=[_paired_rows(graph, on(own, graph), others) for graph in graphs],
        notes=(
            "Differences of test scores in percentage points; positive: STAGNN is higher.",
            "With few pairs, two standard errors are a rough yardstick.",
            CHOSEN,
            *_where_from(own),
        ),
    )


def _paired_rows(graph: str, here: Sequence[Record], others: Sequence[str]) -> list[Row]:
    """A row for each other model on one graph; one row that says why, if nothing ran there."""
    name = graph_title(graph)
    ours = _of_label(here, OURS)
    if not ours or not others:
        absent = "no runs of STAGNN" if here else _absence(graph)
        return [texts(name, "-", "no runs of other models" if ours else absent, "-", "0", "-")]
    rows = []
    for label in others:
        theirs = _of_label(here, label)
        found = paired_difference(ours, theirs)
        if found is None:
            absent = "no runs on the same seeds" if theirs else f"no runs of {label}"
            rows.append(texts(name, label, absent, "-", "0", "-"))
            continue
        planned = planned_runs(graph)
        error = "-" if found.error is None else f"{100 * found.error:.2f}"
        short = f" of {planned}" if planned is not None and found.pairs < planned else ""
        verdict = {None: "one pair says nothing", True: "yes", False: "no"}[found.within_two_errors]
        difference = f"{100 * found.mean:+.2f}"
        rows.append(texts(name, label, difference, error, f"{found.pairs}{short}", verdict))
    return rows


def hops(records: Sequence[Record]) -> Table:
    """Ways to aggregate over hops; GPR is Table 1's STAGNN where it was not run again."""
    graphs, measured = hop_aggregations(records)
    rows = []
    for graph in graphs:
        cells = [_cell(on(found, graph), graph) for found in measured.values()]
        rows.append((Cell(graph_title(graph)), *best_bold(cells)))
    return Table(
        name="hops",
        title="Aggregation over hops",
        columns=("graph", *("GPR" if name == "gpr" else name for name in measured)),
        rows=tuple(rows),
        notes=(
            SCORES + " Bold: the highest mean of a graph.",
            "The paper shows these in a figure without numbers; there GPR is highest on all four.",
            *_where_from([record for found in measured.values() for record in found]),
        ),
    )


def hop_aggregations(records: Sequence[Record]) -> tuple[list[str], dict[str, list[Record]]]:
    """The graphs, and the runs of every way to aggregate over hops."""
    return _by_variant(records, "hops", GRAPHS_A, AGGREGATIONS, reserve=("gpr", OURS))


def deep(records: Sequence[Record]) -> Table:
    """Score and peak memory over the number of hops (or layers) K, for every model."""
    own = select(records, "deep")
    depths = sorted({record.at for record in own if record.at is not None})
    groups = []
    for graph in graphs_in_order(("cora", "actor"), own):
        here = on(own, graph)
        for label in models_in_order(here) or [OURS]:
            by_depth = grouped(_of_label(here, label), lambda record: record.at)
            # Without any depth, keep a column in which to say so.
            found = [by_depth.get(depth, []) for depth in depths] or [[]]
            start = texts(graph_title(graph), label)
            scores = best_bold([_cell(some, graph) for some in found])
            medians = [typical_peak(some) for some in found]
            peaks = texts(*("-" if peak is None else f"{peak / 1e6:,.1f}" for peak in medians))
            groups.append([(*start, Cell("score"), *scores), (*start, Cell("peak MB"), *peaks)])
    return Table.of_groups(
        "deep",
        "Deep models: score and peak memory over K",
        columns=("graph", "model", "quantity", *([f"K={k:g}" for k in depths] or ["K"])),
        groups=groups,
        notes=(
            SCORES + " Bold: the K at which a model's mean is highest.",
            "K: hops of STAGNN, layers or propagation steps of the others. "
            "Peak: the median of the runs, 1 MB = 10^6 bytes.",
            "The paper shows STAGNN in a figure without numbers: Cora highest at K=10, Actor even "
            "up to K=100.",
            *_where_from(own),
        ),
    )


def robustness(records: Sequence[Record]) -> Table:
    """Score over the share of edges or features that was changed."""
    made = select(records, "robustness")
    own = with_untouched(made)
    shares = sorted({record.at for record in own if record.at is not None})
    groups = []
    for graph in graphs_in_order((), own):
        for kind, changed in grouped(on(own, graph), lambda r: r.kind or "nothing").items():
            labels = models_in_order(changed)
            columns = []
            for share in shares:
                found = [record for record in changed if record.at == share]
                cells = [_cell(_of_label(found, label), graph) for label in labels]
                columns.append(best_bold(cells) if found else [Cell("-")] * len(labels))
            starts = [texts(graph_title(graph), kind, label) for label in labels]
            groups.append([(*row[0], *row[1:]) for row in zip(starts, *columns, strict=True)])
    return Table.of_groups(
        "robustness",
        "Robustness: score over the share of what was changed",
        columns=("graph", "change", "model", *([f"{share:g}" for share in shares] or ["share"])),
        groups=groups or [[texts("any", "any", OURS, "no runs")]],
        notes=(
            SCORES + " Bold: the highest mean for a graph, a change and a share.",
            "Not in the paper. A dash: no model was run with that share.",
            *_where_from(made),
        ),
    )


def with_untouched(records: Sequence[Record]) -> list[Record]:
    """Kind by kind; runs on the graph as it is (no kind, share 0) belong to every kind."""
    untouched = [record for record in records if record.kind is None]
    changed = [record for record in records if record.kind is not None]
    kinds = dict.fromkeys((record.graph, record.kind) for record in changed)
    for graph, kind in kinds:
        changed += [replace(record, kind=kind, at=0.0) for record in on(untouched, graph)]
    order = {kind: place for place, kind in enumerate(KINDS)}
    changed.sort(key=lambda record: order.get(record.kind or "", len(order)))
    return changed if kinds else untouched


TABLES = {
    "table1": table1,
    "paired": paired,
    "table2": table2,
    "table3": table3,
    "hops": hops,
    "deep": deep,
    "robustness": robustness,
}
"""Name -> the function from records to the table."""


# -------------------------------------------------------------------- ours beside the published


def _beside_published(
    name: str,
    title: str,
    graphs: Sequence[str],
    labels: Mapping[str, str],
    measured: Mapping[str, list[Record]],
    sources: Sequence[Published],
    first: str = "model",
    notes: Sequence[str] = (),
) -> Table:
    """For every label our row, then the published ones of the same label."""
    lines: dict[tuple[str, str], list[Cell]] = {}  # label and source -> a cell for each graph
    groups, above = list[list[tuple[str, str]]](), 0  # and the rows of the label before
    seen = {record.graph for found in measured.values() for record in found}
    for label in labels:
        rows = {}
        if label in measured:
            rows[label, "ours"] = [
                _cell(on(measured[label], graph), graph) if graph in seen else Cell(_absence(graph))
                for graph in graphs
            ]
        for source in sources:
            if label in source.rows:
                cells = [_published_cell(source.rows[label], graph) for graph in graphs]
                rows[label, source.word] = cells
        lines |= rows
        # Single rows stand together; several rows of one label stand apart.
        if groups and len(rows) == above == 1:
            groups[-1] += rows
        else:
            groups.append([*rows])
        above = len(rows)
    lines = _best_lines_bold(lines)
    out_of_memory = any(None in row.values() for source in sources for row in source.rows.values())
    theirs = [label for label in labels if not measured.get(label)]
    return Table.of_groups(
        name,
        title,
        columns=(first, "source", *(graph_title(graph) for graph in graphs)),
        groups=[
            [(*texts(labels[key[0]], key[1]), *lines[key]) for key in group] for group in groups
        ],
        notes=(
            SCORES + " " + BOLD,
            *(f"{source.word[0].upper()}{source.word[1:]}: {source.source}." for source in sources),
            *(["OOM: out of memory, as published."] if out_of_memory else []),
            *([f"No runs of ours: {', '.join(theirs)}."] if theirs else []),
            *([FEWER] if any(_short(found) for found in measured.values()) else []),
            *notes,
            *_where_from([record for found in measured.values() for record in found]),
            *([NO_CORAFULL] if "corafull" in set(graphs) - seen else []),
        ),
    )


def _best_lines_bold(
    lines: Mapping[tuple[str, str], list[Cell]],
) -> dict[tuple[str, str], list[Cell]]:
    """Bold in each column: the best of ours, and the best of each other source with rivals."""
    bold: dict[tuple[str, str], list[Cell]] = {}
    for source in dict.fromkeys(source for _, source in lines):
        keys = [key for key in lines if key[1] == source]
        columns = [best_bold(column) for column in zip(*(lines[k] for k in keys), strict=True)]
        bold |= {key: list(row) for key, row in zip(keys, zip(*columns, strict=True), strict=True)}
    return bold


def _published_cell(scores: Mapping[str, Score | None], graph: str) -> Cell:
    if graph not in scores:
        return Cell("-")
    score = scores[graph]
    if score is None:
        return Cell("OOM")
    return Cell(f"{score.mean:.2f} ({score.std:.2f})", mean=score.mean, std=score.std)


def _where_from(records: Sequence[Record]) -> list[str]:
    """Provenance, which runs diverged, and which rows were not run for this table."""
    notes = [provenance(records)]
    if diverged := divergence(records):
        notes.append(f"{diverged}. {DIVERGED}")
    shared = sorted({record.label for record in records if record.experiment == "table1"})
    if len({record.experiment for record in records}) > 1 and shared:
        notes.append(f"Runs of Table 1 stand in for: {', '.join(shared)}.")
    return notes


def _short(found: Sequence[Record]) -> bool:
    """Whether there are fewer runs than planned on a graph that was run on."""
    graphs = {record.graph for record in found}
    return any(len(on(found, graph)) < (planned_runs(graph) or 0) for graph in graphs)


# ------------------------------------------------------------------------------------------ cells


def _cell(found: Sequence[Record], graph: str) -> Cell:
    return score_cell(found, planned_runs(graph))


def score_cell(found: Sequence[Record], planned: int | None) -> Cell:
    """Mean and deviation of some runs on a graph; how many, if other than planned or diverged."""
    if not found:
        return Cell("no runs")
    count = run_count(len(found), planned)
    remarks = "".join(f", {remark}" for remark in (count, divergence(found)) if remark)
    summary = summarise(found)
    if summary is None:
        return Cell("-" + remarks)
    mean, std = 100 * summary.mean, None if summary.std is None else 100 * summary.std
    spread = "" if std is None else f" ({std:.2f})"
    return Cell(f"{mean:.2f}{spread}{remarks}", mean=mean, std=std, runs=summary.runs)


def best_bold(cells: Sequence[Cell]) -> list[Cell]:
    """The cells with the highest mean in bold, if there are at least two means to compare."""
    means = [round(cell.mean, 2) for cell in cells if cell.mean is not None]
    if len(means) < 2:
        return list(cells)
    best = max(means)
    return [
        replace(cell, bold=cell.mean is not None and round(cell.mean, 2) == best) for cell in cells
    ]


def _absence(graph: str) -> str:
    """What to say of a graph without any run."""
    return "file not there" if graph == "corafull" else "no runs"


def graph_title(graph: str) -> str:
    auc = graph in data.names() and data.info(graph).metric == "roc_auc"
    return title(graph) + (" (AUC)" if auc else "")


# --------------------------------------------------------------------------------- sorting records


def _of_label(records: Iterable[Record], label: str) -> list[Record]:
    return [record for record in records if record.label == label]


def _by_variant(
    records: Sequence[Record],
    experiment: str,
    expected: Iterable[str],
    known: Iterable[str],
    reserve: tuple[str, str],
) -> tuple[list[str], dict[str, list[Record]]]:
    """Graphs, and runs by variant: the known ones first, found or not, and whatever else there is.

    `reserve` is a variant and the model whose runs in Table 1 stand in for it on graphs without
    its own. If that is STAGNN, its runs without a variant are this one; other models keep their
    name.
    """
    own = select(records, experiment)
    graphs = graphs_in_order(expected, own)
    found: dict[str, list[Record]] = {name: [] for name in known}
    spelling = {name.lower(): name for name in found}
    variant, label = reserve
    itself = variant if label == OURS else OURS
    for record in own:
        name = (record.variant or itself) if record.model == OURS else record.label
        found.setdefault(spelling.get(name.lower(), name), []).append(record)
    lacking = set(graphs) - {record.graph for record in found[variant]}
    others = _of_label(select(records, "table1"), label)
    found[variant] += [record for record in others if record.graph in lacking]
    return graphs, found
