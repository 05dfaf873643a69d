"""The tables of the page, from records alone: scores, pairs and their verdicts, what was chosen."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.field.ablation import FULL, Ablation
from experiments.field.published import PUBLISHED, Report
from experiments.field.spaces import OURS
from experiments.field.studies import Study
from experiments.field.verdicts import LEVEL, Verdict, verdicts
from experiments.reproduce.markup import Cell, Row, Table, render_markdown, texts
from experiments.reproduce.queue import absent
from experiments.reproduce.records import (
    Paired,
    Record,
    divergence,
    on,
    paired_difference,
    provenance,
    select,
    title,
)
from experiments.reproduce.store import DEFAULT as PAPER
from experiments.reproduce.store import Store
from experiments.reproduce.tables import DIVERGED, SCORES, best_bold, graph_title, score_cell
from subtree_attention.io import write_bytes
from subtree_attention.tasks.metrics import METRICS

DOCS = Path("docs/beyond.md")
EARLIER = (
    "Of an earlier grid: trials that were made before the grid was changed. Nothing was chosen "
    "from them, but whoever changed the grid had seen them: they belong to a model's budget."
)


@dataclass(frozen=True)
class Column:
    """A column of scores: a graph, and perhaps only its first seeds."""

    graph: str
    runs: int
    first: int | None = None

    @property
    def name(self) -> str:
        """As published rows call it."""
        return f"{self.graph}, first {self.first}" if self.first else self.graph

    @property
    def head(self) -> str:
        first = f", first {self.first} splits" if self.first else ""
        return graph_title(self.graph) + first

    def of(self, records: Iterable[Record]) -> list[Record]:
        most = self.first or math.inf
        return [r for r in records if r.graph == self.graph and r.seed < most]


class Rows:
    """The runs of a table's rows.

    Args:
        study: the table.
        store: where its records are.
        paper: where those of the paper's Table 1 are.
    """

    def __init__(self, study: Study, store: Store, paper: Store) -> None:
        self.study, self.records = study, store.read(study.name)
        self.of: dict[str, list[Record]] = {}
        for model in study.models:
            rows = (study.row(graph, model, self.records) for graph in study.graphs)
            self.of[model] = [record for row in rows for record in row]
        first = select(paper.read("table1"), "table1") if study.quoted else []
        for model in study.quoted:
            wanted = [r for r in first if r.model == model and r.graph in study.graphs]
            self.of[model] = [r for r in wanted if not r.variant]

    @property
    def columns(self) -> list[Column]:
        study = self.study
        whole = [Column(graph, study.runs(graph)) for graph in study.graphs]
        return [*whole, *(Column(c.graph, study.first, study.first) for c in whole if study.first)]


def tables_of(study: Study | Ablation, store: Store, paper: Store) -> list[Table]:
    """All that is shown of a study."""
    if isinstance(study, Ablation):
        return [ablated(study, store)]
    rows = Rows(study, store, paper)
    return [scores(rows), pairs(rows), choices(rows)]


def scores(rows: Rows) -> Table:
    """A row for each model, and what others report."""
    columns, study = rows.columns, rows.study
    cells = {
        model: [score_cell(column.of(found), column.runs) for column in columns]
        for model, found in rows.of.items()
    }
    heads = [column.head for column in columns]
    if study.averaged:
        heads.append("mean of all")
        cells = {model: [*row, _mean_of(row)] for model, row in cells.items()}
    bold = [best_bold(column) for column in zip(*cells.values(), strict=True)]
    lines: list[Row] = [
        (*texts(model, "same harness"), *row)
        for model, row in zip(cells, zip(*bold, strict=True), strict=True)
    ]
    reports = PUBLISHED.get(study.name, ())
    lines += [
        (
            *texts(report.label, _source(report)),
            *(_reported(report, column) for column in columns),
            *texts(*"-" * study.averaged),
        )
        for report in reports
    ]
    made = [record for found in rows.of.values() for record in found]
    diverged = divergence(made)
    return Table(
        f"{study.name}",
        study.title,
        columns=("model", "source", *heads),
        rows=tuple(lines),
        rules=(len(cells),) if reports else (),
        notes=(
            f"{SCORES} Bold: the highest mean of the same harness.",
            *study.notes,
            *_beside_published(rows, reports),
            *([f"{diverged}. {DIVERGED}"] if diverged else []),
            provenance(made),
        ),
    )


def _mean_of(row: Sequence[Cell]) -> Cell:
    """The mean of a row's means, if none is missing."""
    means = [cell.mean for cell in row if cell.mean is not None]
    if len(means) < len(row):
        return Cell(f"{len(means)} of {len(row)} graphs")
    mean = statistics.fmean(means)
    return Cell(f"{mean:.2f}", mean=mean)


def _source(report: Report) -> str:
    return f"{'published' if report.with_code else 'claimed'}: {report.source}"


def _reported(report: Report, column: Column) -> Cell:
    score = report.scores.get(column.name)
    if score is None:
        return Cell("-")
    spread = "" if math.isnan(score.std) else f" ({score.std:.2f})"
    model = report.models.get(column.name)
    return Cell(f"{score.mean:.2f}{spread}" + (f", {model}" if model else ""), mean=score.mean)


def _beside_published(rows: Rows, reports: Sequence[Report]) -> list[str]:
    """On which columns our mean is above every number with code."""
    with_code = [report for report in reports if report.with_code]
    ahead, behind = list[str](), list[str]()
    for column in rows.columns:
        best = [
            report.scores[column.name].mean for report in with_code if column.name in report.scores
        ]
        ours = score_cell(column.of(rows.of[OURS]), column.runs).mean if OURS in rows.of else None
        if best and ours is not None:
            (ahead if ours > max(best) else behind).append(column.head)
    said = {"above": ahead, "not above": behind}
    return [
        f"The mean of {OURS} is {word} the best published number with code on {', '.join(heads)}."
        for word, heads in said.items()
        if heads
    ]


@dataclass(frozen=True)
class Difference:
    """Ours minus a rival on a graph; pair is None where no run of both is there."""

    graph: str
    rival: str
    pair: Paired | None
    verdict: Verdict


def differences(rows: Rows) -> list[Difference]:
    """From every rival on every graph, each judged in the light of all."""
    keys = [(graph, model) for graph in rows.study.graphs for model in rows.of if model != OURS]
    ours = rows.of.get(OURS, [])
    found = [paired_difference(on(ours, graph), on(rows.of[m], graph)) for graph, m in keys]
    judged = zip(keys, found, verdicts(found), strict=True)
    return [Difference(*key, pair, verdict) for key, pair, verdict in judged]


def pairs(rows: Rows) -> Table:
    """Ours minus every rival, run by run, with a verdict."""
    lines = []
    for each in differences(rows):
        graph, model, pair, verdict = each.graph, each.rival, each.pair, each.verdict
        runs = rows.study.runs(graph)
        if pair is None:
            lines.append(texts(graph_title(graph), model, "no runs", "-", f"0 of {runs}", "-", "-"))
            continue
        error = "-" if pair.error is None else f"{100 * pair.error:.2f}"
        count = f"{pair.pairs}" + (f" of {runs}" if pair.pairs < runs else "")
        p = "-" if verdict.p is None else f"{verdict.p:.2g}"
        difference = f"{100 * pair.mean:+.2f}"
        lines.append(texts(graph_title(graph), model, difference, error, count, p, verdict.word))
    return Table(
        f"{rows.study.name}-pairs",
        f"{OURS} minus its rivals, run by run",
        columns=("graph", "rival", "difference", "standard error", "pairs", "p", "verdict"),
        rows=tuple(lines),
        notes=(
            "Differences of test scores in points on the same splits and seeds; "
            f"positive: {OURS} is higher.",
            "Behind: below both -2 standard errors and -0.3 points, and p below "
            f"{LEVEL:g}; ahead: the same with the other sign. p: paired t-test, two-sided, "
            "corrected by Holm over this table.",
        ),
    )


def choices(rows: Rows) -> Table:
    """What was tried and chosen."""
    study, lines = rows.study, []
    for graph in study.graphs:
        for model in study.models:
            lines.append(_choice(study, graph, model, on(rows.records, graph)))
    return Table(
        f"{study.name}-settings",
        "Settings by validation score",
        columns=("graph", "model", "trials", "chosen", "validation"),
        rows=tuple(lines),
        notes=(
            "Every trial is a record in "
            f"[`results/field/{study.name}`](../results/field/{study.name}), also those that were "
            "not chosen.",
            *([EARLIER] if any("earlier" in row[2].text for row in lines) else []),
        ),
    )


def _choice(study: Study, graph: str, model: str, records: Sequence[Record]) -> Row:
    jobs = study.trials(graph, model)
    done = len(jobs) - len(absent(jobs, records))
    count = f"{done}" if done == len(jobs) else f"{done} of {len(jobs)}"
    variants = {job.variant for job in jobs}
    seen = {r.variant for r in records if r.model == model and r.seed == 0}
    if earlier := len(seen - variants):
        count += f", {earlier} of an earlier grid"
    start = texts(title(graph), model, count)
    chosen = study.chosen(graph, model, records)
    if not chosen:
        return (*start, *texts("-", "-"))
    if study.each:
        return (*start, *texts("on each seed its own", "-"))
    record = next(record for record in records if record.key == chosen[0].key)
    return (*start, *texts(chosen[0].variant, METRICS[record.metric].show(record.val)))


def ablated(ablation: Ablation, store: Store) -> Table:
    """A row for each change: its score, and how far it is from the chosen model's."""
    records = store.read(ablation.name)
    begun = {record.graph for record in records}
    graphs = [graph for graph in ablation.graphs if graph in begun]
    asked = [{job.variant for job in ablation.jobs(graph, store)} for graph in graphs]
    there = {label: [ablation.row(graph, label, records) for graph in graphs]
             for label in (FULL, *ablation.changes)}  # fmt: skip
    keys = [(label, place) for label in ablation.changes for place in range(len(graphs))]
    found = [paired_difference(there[label][place], there[FULL][place]) for label, place in keys]
    said = dict(zip(keys, zip(found, verdicts(found), strict=True), strict=True))
    lines = []
    for label, rows in there.items():
        cells = []
        for place, graph in enumerate(graphs):
            cell = score_cell(rows[place], ablation.runs(graph))
            pair, verdict = said.get((label, place), (None, None))
            if pair is not None and verdict is not None:
                text = f"{cell.text}, {100 * pair.mean:+.2f}"
                word = {"behind": "worse", "ahead": "better"}.get(verdict.word)
                cell = replace(cell, text=f"{text} {word}" if word else text, bold=bool(word))
            elif label not in asked[place]:
                cell = Cell("-")
            cells.append(cell)
        lines.append((Cell(label), *cells))
    return Table(
        ablation.name,
        ablation.title,
        columns=("change", *(graph_title(graph) for graph in graphs)),
        rows=tuple(lines),
        rules=(1,),
        notes=(
            f"{SCORES} Behind it the mean difference from the chosen model on the same splits and "
            "seeds, in points; bold where it is worse or better in the sense of the tables above.",
            "A dash: the chosen model has it anyway.",
            *_not_begun([graph for graph in ablation.graphs if graph not in begun]),
            provenance(records),
        ),
    )


def _not_begun(graphs: Sequence[str]) -> list[str]:
    names = ", ".join(map(graph_title, graphs))
    return [f"Planned and not begun: {names}."] if graphs else []


# -------------------------------------------------------------------------------------- the page


def render(
    studies: Iterable[Study | Ablation], store: Store, docs: Path, paper: Store | None = None
) -> list[Path]:
    """Write the tables of studies, each into a file and between its marks on the page."""
    files = []
    for study in studies:
        text = f"### {study.title}\n\nNo runs yet.\n"
        if study.name in store.experiments():
            tables = tables_of(study, store, paper or Store(PAPER))
            text = "\n".join(render_markdown(table) for table in tables)
        files.append(store.folder / f"{study.name}.md")
        write_bytes(files[-1], text.encode())
        if docs.exists() and place_between(docs, study.name, text):
            files.append(docs)
    return list(dict.fromkeys(files))


def place_between(page: Path, name: str, text: str) -> bool:
    """Put a text between the marks of its name on a page; whether the page has them."""
    start, end = f"<!-- field: {name} -->\n", f"<!-- end of field: {name} -->"
    before, mark, rest = page.read_text(encoding="utf-8").partition(start)
    _, other, after = rest.partition(end)
    if mark and not other:
        raise ValueError(f"{page} has the mark '{start.strip()}' but not '{end}' behind it")
    if mark:
        write_bytes(page, f"{before}{start}\n{text}\n{end}{after}".encode())
    return bool(mark)
