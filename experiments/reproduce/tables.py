"""From records to the paper's tables, and to those of the figures' numbers.

Nothing that is missing is left out: a graph without runs says so, and so does a mean over fewer
runs than planned (`runs`, by default the paper's number: 5 for Cora, Citeseer, Deezer and Actor,
10 for the rest).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from experiments.reproduce import published
from experiments.reproduce.corruption import KINDS
from experiments.reproduce.markup import (
    RENDERERS,
    Cell,
    Table,
    render_csv,
    render_latex,
    render_markdown,
)
from experiments.reproduce.published import GRAPHS_A, GRAPHS_B, Published, Score
from experiments.reproduce.records import (
    OURS,
    Record,
    divergence,
    graphs_in_order,
    grouped,
    models_in_order,
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

__all__ = [
    "RENDERERS",
    "TABLES",
    "Cell",
    "Table",
    "deep",
    "hops",
    "paired",
    "render_csv",
    "render_latex",
    "render_markdown",
    "robustness",
    "table1",
    "table2",
    "table3",
]

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
BOLD = "Bold: the highest mean of a graph, among ours and among the published rows separately."


def table1(records: Iterable[Record], runs: int | None = None) -> Table:
    """STAGNN and the baselines on every graph of the paper, and what was published."""
    own = select(records, "table1")
    measured = {label: _of_label(own, label) for label in [OURS, *models_in_order(own)]}
    others = [label for label in measured if label != OURS]
    ahead = [label for label in published.TABLE1.rows if label not in (OURS, *others)]
    return _beside_published(
        name="table1",
        title="Node classification: STAGNN and other models",
        first="model",
        graphs=graphs_in_order((*GRAPHS_A, *GRAPHS_B), own),
        labels={label: label for label in (*others, *ahead, OURS)},
        measured=measured,
        sources=(published.TABLE1, published.RELEASED_PROGRAM),
        runs=runs,
        notes=(CHOSEN,),
    )


def table2(records: Iterable[Record], runs: int | None = None) -> Table:
    """Global attention with 0 to 3 hops of STA; GAT is Table 1's where it was not run again."""
    records = list(records)
    own = select(records, "table2")
    graphs = graphs_in_order(GRAPHS_B, own)
    gat = _of_label(select(records, "table1"), "GAT")
    gat = [record for record in gat if record.graph in graphs]
    rows = list(published.TABLE2.rows)
    rows.insert(rows.index("GA only") + 1, "0 hops + GA")  # what the published row is, it seems
    measured = by_variant(own, rows)
    measured["GAT"] = _with_reserve(measured["GAT"], gat)
    return _beside_published(
        name="table2",
        title="Global attention (GA) alone and with hops of subtree attention",
        first="model",
        graphs=graphs,
        labels={label: label for label in measured},
        measured=measured,
        sources=(published.TABLE2,),
        runs=runs,
    )


def table3(records: Iterable[Record], runs: int | None = None) -> Table:
    """Gates over heads; STAGNN itself is Table 1's where it was not run again."""
    records = list(records)
    own = select(records, "table3")
    measured = by_variant(own, list(GATES), itself="gate softmax")
    graphs = graphs_in_order(GRAPHS_B, own)
    reserve = [record for record in _ours(records) if record.graph in graphs]
    measured["gate softmax"] = _with_reserve(measured["gate softmax"], reserve)
    return _beside_published(
        name="table3",
        title="Gates over attention heads",
        first="gate",
        graphs=graphs,
        labels={label: GATES.get(label, label) for label in measured},
        measured=measured,
        sources=(published.TABLE3,),
        runs=runs,
    )


def paired(records: Iterable[Record], runs: int | None = None) -> Table:
    """STAGNN minus every other model of Table 1 on the same splits and seeds."""
    own = select(records, "table1")
    others = [label for label in models_in_order(own) if label != OURS]
    rows: list[tuple[Cell, ...]] = []
    rules = []
    for graph in graphs_in_order((*GRAPHS_A, *GRAPHS_B), own):
        rules.append(len(rows))
        rows += _paired_rows(graph, _on(own, graph), others, runs)
    return Table(
        name="paired",
        title="STAGNN minus other models, run by run on the same splits and seeds",
        columns=(
            "graph",
            "other model",
            "difference",
            "standard error",
            "pairs",
            "within two standard errors",
        ),
        rows=tuple(rows),
        notes=(
            "Differences of test scores in percentage points; positive: STAGNN is higher.",
            "With few pairs, two standard errors are a rough yardstick.",
            CHOSEN,
            *_where_from(own),
        ),
        rules=tuple(rules[1:]),
    )


def _paired_rows(
    graph: str, here: Sequence[Record], others: Sequence[str], runs: int | None
) -> list[tuple[Cell, ...]]:
    """A row for each other model on one graph; one row that says why, if nothing ran there."""
    name = _graph_title(graph)
    ours = _of_label(here, OURS)
    if not ours or not others:
        absent = "no runs of STAGNN" if here else _absence(graph)
        return [_texts(name, "-", "no runs of other models" if ours else absent, "-", "0", "-")]
    rows = []
    for label in others:
        theirs = _of_label(here, label)
        found = paired_difference(ours, theirs)
        if found is None:
            absent = "no runs on the same seeds" if theirs else f"no runs of {label}"
            rows.append(_texts(name, label, absent, "-", "0", "-"))
            continue
        planned = planned_runs(graph, runs)
        short = planned is not None and found.pairs < planned
        verdict = {None: "one pair says nothing", True: "yes", False: "no"}
        rows.append(
            _texts(
                name,
                label,
                f"{100 * found.mean:+.2f}",
                "-" if found.error is None else f"{100 * found.error:.2f}",
                f"{found.pairs} of {planned}" if short else str(found.pairs),
                verdict[found.within_two_errors],
            )
        )
    return rows


def hops(records: Iterable[Record], runs: int | None = None) -> Table:
    """Ways to aggregate over hops; GPR is Table 1's STAGNN where it was not run again."""
    records = list(records)
    own = select(records, "hops")
    measured = hop_aggregations(records)
    rows = []
    for graph in graphs_in_order(GRAPHS_A, own):
        cells = [_cell(_on(found, graph), graph, runs) for found in measured.values()]
        rows.append((Cell(_graph_title(graph)), *_best_bold(cells)))
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


def hop_aggregations(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The runs of every way to aggregate over hops."""
    records = list(records)
    own = select(records, "hops")
    measured = by_variant(own, AGGREGATIONS, itself="gpr")
    graphs = set(graphs_in_order(GRAPHS_A, own))
    reserve = [record for record in _ours(records) if record.graph in graphs]
    return {**measured, "gpr": _with_reserve(measured["gpr"], reserve)}


def deep(records: Iterable[Record], runs: int | None = None) -> Table:
    """Score and peak memory over the number of hops (or layers) K, for every model."""
    own = select(records, "deep")
    depths = sorted({record.at for record in own if record.at is not None})
    rows: list[tuple[Cell, ...]] = []
    rules = []
    for graph in graphs_in_order(("cora", "actor"), own):
        here = _on(own, graph)
        for label in models_in_order(here) or [OURS]:
            rules.append(len(rows))
            by_depth = grouped(_of_label(here, label), lambda record: record.at)
            found = [by_depth.get(depth, []) for depth in depths]
            scores = [_cell(some, graph, runs) for some in found]
            peaks = [_peak(some) for some in found]
            if not depths:  # keep a column in which to say so
                scores, peaks = [_cell([], graph, runs)], [Cell("-")]
            name = _graph_title(graph)
            rows.append((Cell(name), Cell(label), Cell("score"), *_best_bold(scores)))
            rows.append((Cell(name), Cell(label), Cell("peak MB"), *peaks))
    return Table(
        name="deep",
        title="Deep models: score and peak memory over K",
        columns=("graph", "model", "quantity", *([f"K={k:g}" for k in depths] or ["K"])),
        rows=tuple(rows),
        notes=(
            SCORES + " Bold: the K at which a model's mean is highest.",
            "K: hops of STAGNN, layers or propagation steps of the others. "
            "Peak: the median of the runs, 1 MB = 10^6 bytes.",
            "The paper shows STAGNN in a figure without numbers: Cora highest at K=10, Actor even "
            "up to K=100.",
            *_where_from(own),
        ),
        rules=tuple(rules[1:]),
    )


def robustness(records: Iterable[Record], runs: int | None = None) -> Table:
    """Score over the share of edges or features that was changed."""
    made = select(records, "robustness")
    own = with_untouched(made)
    shares = sorted({record.at for record in own if record.at is not None})
    rows: list[tuple[Cell, ...]] = []
    rules = []
    for graph in graphs_in_order((), own):
        for kind, changed in grouped(
            _on(own, graph), lambda record: record.kind or "nothing"
        ).items():
            rules.append(len(rows))
            used = {record.at for record in changed}
            by_share: list[list[Cell]] = []
            labels = models_in_order(changed)
            for share in shares:
                at_share = [record for record in changed if record.at == share]
                cells = [_cell(_of_label(at_share, label), graph, runs) for label in labels]
                by_share.append(_best_bold(cells) if share in used else [Cell("-")] * len(labels))
            for place, label in enumerate(labels):
                start = _texts(_graph_title(graph), kind, label)
                rows.append((*start, *(cells[place] for cells in by_share)))
    if not rows:
        rows.append((*_texts("any", "any", OURS), Cell("no runs")))
    return Table(
        name="robustness",
        title="Robustness: score over the share of what was changed",
        columns=("graph", "change", "model", *([f"{share:g}" for share in shares] or ["share"])),
        rows=tuple(rows),
        notes=(
            SCORES + " Bold: the highest mean for a graph, a change and a share.",
            "Not in the paper. A dash: no model was run with that share.",
            *_where_from(made),
        ),
        rules=tuple(rules[1:]),
    )


def with_untouched(records: Sequence[Record]) -> list[Record]:
    """Kind by kind; runs on the graph as it is (no kind, share 0) belong to every kind."""
    untouched = [record for record in records if record.kind is None]
    changed = [record for record in records if record.kind is not None]
    kinds = grouped(changed, lambda record: (record.graph, record.kind))
    for graph, kind in kinds:
        changed += [
            dataclasses.replace(record, kind=kind, at=0.0)
            for record in untouched
            if record.graph == graph
        ]
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


@dataclass(frozen=True)
class _Line:
    """One row before it is one: who measured what on which graph."""

    label: str
    source: str
    cells: Mapping[str, Cell]


def _beside_published(
    name: str,
    title: str,
    first: str,
    graphs: Sequence[str],
    labels: Mapping[str, str],
    measured: Mapping[str, list[Record]],
    sources: Sequence[Published],
    runs: int | None,
    notes: Sequence[str] = (),
) -> Table:
    """For every label our row, then the published ones of the same label."""
    lines: list[_Line] = []
    rules = []
    above = 0  # rows of the label before
    seen = {record.graph for found in measured.values() for record in found}
    for label, shown in labels.items():
        start = len(lines)
        if label in measured:
            found = measured[label]
            cells = {
                graph: _cell(_on(found, graph), graph, runs)
                if graph in seen
                else Cell(_absence(graph))
                for graph in graphs
            }
            lines.append(_Line(shown, "ours", cells))
        for source in sources:
            if label in source.rows:
                scores = source.rows[label]
                cells = {graph: _published_cell(scores, graph) for graph in graphs}
                lines.append(_Line(shown, source.word, cells))
        # Single rows stand together; several rows of one label stand apart.
        height = len(lines) - start
        if start and max(height, above) > 1:
            rules.append(start)
        above = height
    lines = _best_lines_bold(lines, graphs)
    return Table(
        name=name,
        title=title,
        columns=(first, "source", *(_graph_title(graph) for graph in graphs)),
        rows=tuple(
            (Cell(line.label), Cell(line.source), *(line.cells[graph] for graph in graphs))
            for line in lines
        ),
        notes=(
            SCORES + " " + BOLD,
            *(f"{source.word[0].upper()}{source.word[1:]}: {source.source}." for source in sources),
            *_published_notes(sources, labels, measured),
            *([FEWER] if any(_short(found, runs) for found in measured.values()) else []),
            *notes,
            *_where_from([record for found in measured.values() for record in found]),
            *_absence_notes(set(graphs) - seen),
        ),
        rules=tuple(rules),
    )


def _best_lines_bold(lines: Sequence[_Line], graphs: Sequence[str]) -> list[_Line]:
    """Bold in each column: the best of ours, and the best of each other source with rivals."""
    columns = {line_id: dict(line.cells) for line_id, line in enumerate(lines)}
    for source in {line.source for line in lines}:
        members = [number for number, line in enumerate(lines) if line.source == source]
        for graph in graphs:
            best = _best_bold([columns[number][graph] for number in members])
            for number, cell in zip(members, best, strict=True):
                columns[number][graph] = cell
    return [dataclasses.replace(line, cells=columns[number]) for number, line in enumerate(lines)]


def _published_cell(scores: Mapping[str, Score | None], graph: str) -> Cell:
    if graph not in scores:
        return Cell("-")
    score = scores[graph]
    if score is None:
        return Cell("OOM")
    return Cell(f"{score.mean:.2f} ({score.std:.2f})", mean=score.mean, std=score.std)


def _published_notes(
    sources: Sequence[Published], labels: Iterable[str], measured: Mapping[str, list[Record]]
) -> list[str]:
    """What the published rows need said: memory, and the models that we did not run."""
    notes = []
    if any(None in row.values() for source in sources for row in source.rows.values()):
        notes.append("OOM: out of memory, as published.")
    theirs = [label for label in labels if not measured.get(label)]
    if theirs:
        notes.append(f"No runs of ours: {', '.join(theirs)}.")
    return notes


def _where_from(records: Sequence[Record]) -> list[str]:
    """Provenance, which runs diverged, and which rows were not run for this table."""
    notes = [provenance(records)]
    if diverged := divergence(records):
        notes.append(f"{diverged}. {DIVERGED}")
    shared = sorted({record.label for record in records if record.experiment == "table1"})
    if len({record.experiment for record in records}) > 1 and shared:
        notes.append(f"Runs of Table 1 stand in for: {', '.join(shared)}.")
    return notes


def _short(found: Sequence[Record], runs: int | None) -> bool:
    """Whether there are fewer runs than planned on a graph that was run on."""
    planned = {graph: planned_runs(graph, runs) for graph in {record.graph for record in found}}
    return any(len(_on(found, graph)) < (count or 0) for graph, count in planned.items())


def _absence_notes(graphs: Iterable[str]) -> list[str]:
    """Why there are no runs on some graphs, where that is known."""
    file = "CitationFull/cora/raw/cora.npz"
    reason = f"CoraFull: its file ({file}) is not there, so nothing was run."
    return [reason] if "corafull" in graphs else []


# ------------------------------------------------------------------------------------------ cells


def _cell(found: Sequence[Record], graph: str, runs: int | None) -> Cell:
    """Mean and deviation of some runs on a graph; how many, if other than planned or diverged."""
    if not found:
        return Cell("no runs")
    count = run_count(len(found), planned_runs(graph, runs))
    remarks = "".join(f", {remark}" for remark in (count, divergence(found)) if remark)
    summary = summarise(found)
    if summary is None:
        return Cell("-" + remarks)
    text = f"{100 * summary.mean:.2f}"
    if summary.std is not None:
        text += f" ({100 * summary.std:.2f})"
    return Cell(
        text + remarks,
        mean=100 * summary.mean,
        std=None if summary.std is None else 100 * summary.std,
        runs=summary.runs,
    )


def _peak(found: Sequence[Record]) -> Cell:
    peak = typical_peak(found)
    return Cell("-" if peak is None else f"{peak / 1e6:,.1f}")


def _best_bold(cells: Sequence[Cell]) -> list[Cell]:
    """The cells with the highest mean in bold, if there are at least two means to compare."""
    means = [round(cell.mean, 2) for cell in cells if cell.mean is not None]
    if len(means) < 2:
        return list(cells)
    best = max(means)
    return [
        dataclasses.replace(cell, bold=cell.mean is not None and round(cell.mean, 2) == best)
        for cell in cells
    ]


def _texts(*texts: str) -> tuple[Cell, ...]:
    return tuple(Cell(text) for text in texts)


def _absence(graph: str) -> str:
    """What to say of a graph without any run."""
    return "file not there" if graph == "corafull" else "no runs"


def _graph_title(graph: str) -> str:
    auc = graph in data.names() and data.info(graph).metric == "roc_auc"
    return title(graph) + (" (AUC)" if auc else "")


# --------------------------------------------------------------------------------- sorting records


def _on(records: Iterable[Record], graph: str) -> list[Record]:
    return [record for record in records if record.graph == graph]


def _of_label(records: Iterable[Record], label: str) -> list[Record]:
    return [record for record in records if record.label == label]


def _ours(records: Iterable[Record]) -> list[Record]:
    return _of_label(select(records, "table1"), OURS)


def by_variant(
    records: Iterable[Record], known: Sequence[str], itself: str = OURS
) -> dict[str, list[Record]]:
    """STAGNN's runs by variant: the known ones first, found or not, and whatever else there is.

    A run without a variant counts as `itself`; other models keep their name.
    """
    spelling = {name.lower(): name for name in known}
    found: dict[str, list[Record]] = {name: [] for name in known}
    for record in records:
        name = (record.variant or itself) if record.model == OURS else record.label
        found.setdefault(spelling.get(name.lower(), name), []).append(record)
    return found


def _with_reserve(found: list[Record], reserve: Iterable[Record]) -> list[Record]:
    """Runs, and those of the reserve on graphs that they do not cover."""
    covered = {record.graph for record in found}
    return [*found, *(record for record in reserve if record.graph not in covered)]
