"""The committed tables are those of the records, and docs/reproduction.md says what they say."""

import re
from collections.abc import Iterator

import pytest

from experiments.reproduce.experiments import EDGEWISE, EXPERIMENTS
from experiments.reproduce.markup import RENDERERS
from experiments.reproduce.records import (
    OURS,
    Record,
    grouped,
    paired_difference,
    select,
)
from experiments.reproduce.store import Store
from experiments.reproduce.tables import TABLES
from subtree_attention import datasets as data
from tests.docs.snippets import ROOT

FOLDER = ROOT / "results/reproduce"
PAGE = (ROOT / "docs/reproduction.md").read_text()
GRAPHS = {data.info(name).title for name in data.names()} | {"Deezer (AUC)"}


@pytest.fixture(scope="module")
def records() -> list[Record]:
    store = Store(FOLDER)
    return [record for name in EXPERIMENTS for record in store.read(name)]


@pytest.mark.parametrize("name", TABLES)
def test_the_committed_tables_are_those_of_the_records(name: str, records: list[Record]) -> None:
    table = TABLES[name](records)
    for suffix, written in RENDERERS.items():
        assert (FOLDER / f"{name}{suffix}").read_text() == written(table)


def scores(text: str) -> Iterator[tuple[str, str]]:
    """(graph, number with two decimals) for all Markdown tables in a text.

    The graph is that of the column, or else of the row, which may stand some rows above.
    """
    header: list[str] = []
    graph = ""
    for line in text.splitlines():
        if not line.startswith("|"):
            header = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        header = header or cells
        graph = cells[0] or graph
        for column, cell in zip(header, cells, strict=True):
            for number in re.findall(r"-?\d+\.\d\d\b", cell):
                yield (column if column in GRAPHS else graph), number


def test_every_score_of_the_page_stands_in_a_table_of_the_records() -> None:
    rendered = {pair for name in TABLES for pair in scores((FOLDER / f"{name}.md").read_text())}
    on_page = set(scores(PAGE))
    assert len(on_page) > 200
    assert not on_page - rendered


def test_the_page_counts_its_comparisons_right(records: list[Record]) -> None:
    runs = grouped(select(records, "table1"), lambda run: (run.model, run.graph))
    pairs = [
        paired_difference(runs[OURS, graph], theirs)
        for (model, graph), theirs in runs.items()
        if model not in (OURS, EDGEWISE)
    ]
    apart = [pair.mean > 0 for pair in pairs if pair and not pair.within_two_errors]
    said = (
        f"Of {len(pairs)} comparisons, STAGNN is ahead by more than two standard errors in "
        f"{sum(apart)} and behind in {['none', 'one'][apart.count(False)]}"
    )
    assert said in " ".join(PAGE.split())
    in_short = f"standard errors in {sum(apart)} and behind in"
    assert in_short in " ".join((ROOT / "README.md").read_text().split())
