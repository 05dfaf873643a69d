"""Cells that a spreadsheet would execute, and the way back to what they were."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as some

from subtree_attention.datasets.tables.cells import escaped, unescaped
from subtree_attention.datasets.tables.read import read_table
from subtree_attention.runs.predictions import Predictions, write
from subtree_attention.tasks.answers import OfClasses
from tests.samples import csv_text

FORMULAS = [
    "=cmd|' /C calc'!A0", "=1+1", "+1+1", "-1+1|x", "@SUM(1)", "\t=1", "\r=1", "\n=1",
    "-", "+", "-.", "-inf", "+e5", "-1_000", "-٣", "=", "-5\n", "'=x", "''=x", "'-x",
]  # fmt: skip
HARMLESS = ["", "-5", "+5", "-5.", "-.5e-3", "+1E+9", "'-5", "a=1", "'a", "'", "''", " =1", "7"]
TEXTS = some.one_of(
    some.text(),
    some.text(alphabet="'=+-@\t\r\n.05eE a\u0663", max_size=6),
    some.sampled_from(FORMULAS + HARMLESS),
)


def back(*cells: str | None) -> list[str | None]:
    return unescaped(pl.Series(cells, dtype=pl.String)).to_list()


@pytest.mark.parametrize("text", FORMULAS)
def test_what_would_be_executed_is_marked_as_text(text: str) -> None:
    assert escaped(text) == f"'{text}"
    assert back(f"'{text}") == [text]


@pytest.mark.parametrize("text", HARMLESS)
def test_the_rest_is_as_it_was(text: str) -> None:
    assert escaped(text) == text
    assert back(text) == [text]


@given(some.lists(TEXTS, max_size=5))
def test_every_text_comes_back(texts: list[str]) -> None:
    assert back(*map(escaped, texts), None) == [*texts, None]


@given(TEXTS)
def test_no_written_cell_begins_a_formula(text: str) -> None:
    cell = escaped(text)
    if cell[:1] in tuple("=+-@\t\r\n"):
        float(cell)


def kept(texts: some.SearchStrategy[str]) -> some.SearchStrategy[str]:
    """Texts that come back from any CSV file: white space around values is taken off there."""
    whole = texts.filter(lambda text: "\x00" not in text and text == text.rstrip())
    return whole.filter(lambda text: text[:1] in "\t\r\n" or text == text.lstrip())


CELLS = kept(some.one_of(TEXTS, some.text(alphabet="'=+-@\t\r\n,;\"xé", max_size=6)).filter(bool))
NAMES = some.lists(CELLS, min_size=2, max_size=4, unique=True)


@given(ids=NAMES, classes=NAMES)
def test_predictions_are_a_table_with_the_same_texts(
    ids: list[str], classes: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("predictions")
    labels = np.arange(len(ids)) % (len(classes) + 1) - 1
    shares = np.full((len(ids), len(classes)), 0.25)
    answers = OfClasses(classes, shares, labels, shares.argmax(1))
    made = Predictions(ids, answers, None, Path())  # type: ignore[arg-type]
    for suffix in (".csv", ".parquet"):
        write(made, folder / f"p{suffix}")
        frame = read_table(folder / f"p{suffix}", "nodes").frame
        assert frame["id"].to_list() == ids
        assert frame["prediction"].to_list() == [classes[0]] * len(ids)
        assert frame["known"].to_list() == made.known
        assert [name.removeprefix("class ") for name in frame.columns[3:]] == [
            name.removeprefix("class ") for name in classes
        ]


def test_marks_are_taken_off_in_names_and_values_of_any_csv_file(tmp_path: Path) -> None:
    columns = {"'=id": ["'=1+1", "'-2", "'x"], "'s": ["''@a", None, "-3"]}
    (tmp_path / "nodes.csv").write_text(csv_text(columns), encoding="utf-8")
    frame = read_table(tmp_path / "nodes.csv", "nodes").frame
    assert frame.to_dict(as_series=False) == {
        "=id": ["=1+1", "'-2", "'x"],
        "'s": ["'@a", None, "-3"],
    }
