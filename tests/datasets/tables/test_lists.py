"""Lists in the cells of a table, as JSON, Python or numpy write them: parsed, never evaluated."""

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subtree_attention.datasets.tables import lists

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@given(st.lists(st.lists(texts, max_size=4), min_size=1))
def test_lists_of_texts_come_back_from_json_and_from_python(cells: list[list[str]]) -> None:
    for write in (json.dumps, repr):
        written = pl.Series([write(cell) for cell in cells])
        assert lists.words(written, "").to_list() == cells


@given(st.lists(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=4), min_size=1))
def test_lists_of_numbers_come_back(cells: list[list[float]]) -> None:
    for write in (json.dumps, repr, lambda cell: repr([np.float64(item) for item in cell])):
        written = pl.Series([write(cell) for cell in cells])
        assert lists.are_numbers(written, "")
        assert lists.numbers(written, "").to_list() == cells
    arrays = pl.Series([str(np.array(cell)) for cell in cells])
    for found, cell in zip(lists.numbers(arrays, "").to_list(), cells, strict=True):
        assert found == pytest.approx(cell, rel=1e-6, abs=1e-6 * max(map(abs, cell)))  # 8 digits


@pytest.mark.parametrize(
    "text",
    [
        "a, b",
        "[a, b]",
        "['a', b]",
        "['a'",
        "['a',, 'b']",
        "['a']['b']",
        "['a', ['b']]",
        "['a'] + ['b']",
        "[x for x in 'ab']",
        "[__import__('os')]",
        "[open('x')]",
        "['a' * 9]",
        "[1 .. 2]",
    ],
)
def test_what_is_no_list_is_none(text: str) -> None:
    assert lists.words(pl.Series([text]), "").to_list() == [None]
    assert lists.numbers(pl.Series([text]), "").to_list() == [None]


def test_what_is_missing_in_a_list() -> None:
    assert lists.words(pl.Series(["['a', None]", None, "[]"]), "").to_list() == [
        ["a", None],
        None,
        [],
    ]
    values = pl.Series(["[1, nan]", "[None, 2]", "[NaN null]", None, "[]"])
    found = [[1.0, None], [None, 2.0], [None, None], None, []]
    assert lists.numbers(values, "").to_list() == found


def test_a_long_array_that_numpy_cut_short_is_no_list() -> None:
    cut = str(np.arange(5000.0))
    assert "..." in cut
    assert lists.numbers(pl.Series([cut]), "").to_list() == [None]


def test_signs_behind_backslashes() -> None:
    written = r"""['it\'s', "a \"b\"", 'tab\t', '\xe9', '\u4e2d', '\\', '\U00110000']"""
    expected = ["it's", 'a "b"', "tab\t", "é", "中", "\\", "\ufffd"]
    assert lists.words(pl.Series([written, "[1]"]), "").to_list() == [expected, ["1"]]


def test_cells_of_any_lists_become_lists_of_floats() -> None:
    assert lists.from_cells([[1, 2.5], (3, None), None]) == [[1.0, 2.5], [3.0, None], None]
    assert lists.from_cells([np.array([1, 2]), [0.5]]) == [[1.0, 2.0], [0.5]]
    assert lists.from_cells([[10**400]]) == [[float("inf")]]
    for others in ([["a"], [1]], [1, [2]], [[[1]]], [[]], [None]):
        assert lists.from_cells(others) is None
