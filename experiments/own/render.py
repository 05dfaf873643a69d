"""The tables of the page, from records alone: scores, verdicts, times and what won."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from experiments.field.render import place_between
from experiments.field.verdicts import verdicts
from experiments.own.rows import GCN, OURS, ROWS
from experiments.own.tables import GRAPHS, SHARES
from experiments.reproduce.markup import Cell, Row, Table, render_markdown, texts
from experiments.reproduce.records import Record, paired_difference, provenance
from experiments.reproduce.store import Store
from experiments.reproduce.tables import best_bold, score_cell
from subtree_attention.io import write_bytes

DOCS = Path("docs/portfolio.md")
NAME = "own"
SPLITS = 5

Cells = dict[tuple[str, str], dict[str, list[Record]]]
"""Of a graph and a percentage of labels, the records of each model."""


def render(store: Store, docs: Path) -> list[Path]:
    """Write the tables beside the records, and into the page if it has marks for them."""
    cells = gathered(store)
    tables = [scores(cells), pairs(cells), times(cells)]
    text = "\n".join(render_markdown(table) for table in tables)
    beside = store.folder / NAME / "tables.md"
    beside.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(beside, text.encode())
    written = [beside]
    if docs.is_file() and place_between(docs, NAME, text):
        written.append(docs)
    return written


def gathered(store: Store) -> Cells:
    """What there is, in the order of the table."""
    found: Cells = {}
    for graph in GRAPHS:
        records = store.read_graph(NAME, graph)
        for labels in SHARES:
            of = [record for record in records if record.variant == f"{labels} %"]
            if of:
                found[graph, labels] = {m: [r for r in of if r.model == m] for m in ROWS}
    return found


def scores(cells: Cells) -> Table:
    """A row for each graph and share of labels, a column for each model."""
    rows = [
        (*texts(_head(key)), *best_bold([score_cell(of[m], SPLITS) for m in ROWS]))
        for key, of in cells.items()
    ]
    records = [r for of in cells.values() for some in of.values() for r in some]
    return Table(
        "own-scores",
        "Test accuracy on tables",
        ("graph, labels", *ROWS),
        tuple(rows),
        (
            "Mean and standard deviation over five splits, in percent. Bold: the highest mean. "
            "Everything is chosen by validation nodes, of which there are as many as test nodes "
            "with 60 % labels, and as many as training nodes with 10 %.",
            provenance(records),
        ),
    )


def best_rival(of: dict[str, list[Record]]) -> str | None:
    """The model other than ours with the highest mean test score: chosen in hindsight, which
    favours it."""
    means = {m: statistics.fmean(r.test or 0 for r in of[m]) for m in ROWS[1:] if of[m]}
    return max(means, key=means.__getitem__) if means else None


def pairs(cells: Cells) -> Table:
    """Ours against each other model, split by split; the best of them first."""
    keys = [(key, model) for key in cells for model in ROWS[1:]]
    found = [paired_difference(cells[key][OURS], cells[key][model]) for key, model in keys]
    said = dict(zip(keys, zip(found, verdicts(found), strict=True), strict=True))
    rows: list[Row] = []
    for key, of in cells.items():
        best = best_rival(of)
        if best is None or not of[OURS]:
            continue
        pair, verdict = said[key, best]
        words = Counter(said[key, model][1].word for model in ROWS[1:])
        assert pair is not None
        error = "-" if pair.error is None else f"{100 * pair.error:.2f}"
        others = ", ".join(f"{word} of {words[word]}" for word in words)
        cell = Cell(f"{100 * pair.mean:+.2f} (error {error})", mean=100 * pair.mean)
        rows.append((*texts(_head(key), best), cell, *texts(verdict.word, others)))
    means = [row[2].mean for row in rows if row[2].mean is not None]
    notes = [
        "Ours minus the best of the others, which is picked by its test scores. Behind: below both "
        "two standard errors and 0.3 points, with Holm's correction over all pairs of the table."
    ]
    if means:
        above = sum(mean > 0 for mean in means)
        notes.append(
            f"Above the best of the others on {above} of {len(means)}; the mean difference is "
            f"{statistics.fmean(means):+.2f} points."
        )
    return Table(
        "own-pairs",
        "Ours against the best of the others",
        ("graph, labels", "best of the others", "difference", "verdict", "against all five"),
        tuple(rows),
        tuple(notes),
    )


def times(cells: Cells) -> Table:
    """Seconds of each, and ours as a multiple of one GCN fit."""
    rows: list[Row] = []
    for key, of in cells.items():
        if not of[OURS] or not of[GCN]:
            continue
        medians = [_seconds(of[model]) for model in ROWS]
        ratio = medians[0] / medians[ROWS.index(GCN)]
        won = Counter(str(record.settings.get("won", "?")) for record in of[OURS])
        winners = ", ".join(f"{name} {count}" for name, count in won.most_common())
        shown = [f"{value:.1f}" if value == value else "-" for value in medians]
        rows.append(texts(_head(key), *shown, f"{ratio:.1f}", winners))
    return Table(
        "own-times",
        "Processor time in seconds, and what won",
        ("graph, labels", *ROWS, "ours / GCN", "won, of five"),
        tuple(rows),
        (
            "Medians over the splits, one fit each on one thread; ours is the whole portfolio, "
            "without the references, whose time is that which went by. GCN has PyG's layers, "
            "GraphSAGE our sparse product.",
        ),
    )


def _seconds(records: Sequence[Record]) -> float:
    return statistics.median(r.seconds for r in records) if records else float("nan")


def _head(key: tuple[str, str]) -> str:
    return f"{key[0]}, {key[1]} %"
