"""What columns become, and that other tables become the same."""

import json
from datetime import date

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from subtree_attention.datasets import TableError, TableSchema
from subtree_attention.datasets.tables.columns import (
    Category,
    Number,
    Tags,
    Text,
    from_dict,
    to_dict,
)
from subtree_attention.datasets.tables.infer import fit_columns
from subtree_attention.datasets.tables.read import Table
from subtree_attention.datasets.tables.schema import encode


def table(**columns: list) -> Table:
    return Table("nodes", pl.DataFrame(columns, strict=False))


def dense(block: object) -> np.ndarray:
    return block if isinstance(block, np.ndarray) else block.toarray()  # type: ignore[attr-defined]


@example(values=[0.0, 4e-161])
@example(values=[0.0, 5e-324])
@example(values=[0.0, 2.3e-309])
@example(values=[1e300, -1e300, 1e299])
@given(st.lists(st.none() | st.floats(-1e6, 1e6), min_size=1).filter(lambda v: any(v)))
def test_numbers_are_standardised_and_missing_ones_flagged(values: list) -> None:
    source = Table("nodes", pl.DataFrame({"v": pl.Series(values, dtype=pl.Float64)}))
    column = Number.fit(source, "v")
    encoded = column.encode(source)
    missing = np.array([value is None for value in values])
    assert encoded.missing == missing.sum()
    assert encoded.block.shape == (len(values), column.width) == (len(values), 1 + missing.any())
    there = encoded.block[~missing, 0].astype(float)
    assert abs(there.mean()) < 1e-3  # float32 of values of order 1
    assert there.std() == pytest.approx(1, abs=1e-3) or np.ptp(there) < 1e-3
    assert (encoded.block[missing, 0] == 0).all()
    if missing.any():
        assert (encoded.block[:, 1] == missing).all()


def test_missing_numbers_in_text_and_infinity() -> None:
    column = Number.fit(table(v=["1", "NA", "3", "NaN", None]), "v")
    assert (column.mean, column.std, column.flagged) == (2.0, 1.0, True)
    with pytest.raises(TableError, match="nodes, row 2: column 'v' is a number, but holds inf"):
        Number.fit(table(v=[1.0, float("inf")]), "v")
    with pytest.raises(TableError, match="row 1: column 'v' is a number, but holds 'abc'"):
        column.encode(table(v=["abc"]))


def test_a_category_is_one_hot_and_unknown_values_are_counted() -> None:
    column = Category.fit(table(c=["b", "a", None, "b"]), "c")
    assert column.values == ["a", "b"]
    encoded = column.encode(table(c=["a", "z", None, "b"]))
    assert dense(encoded.block).tolist() == [[1, 0], [0, 0], [0, 0], [0, 1]]
    assert (encoded.missing, encoded.unseen) == (1, 1)


@pytest.mark.parametrize("lists", [False, True])
def test_tags_are_multi_hot(lists: bool) -> None:
    values: list = [["x", "y", "x"], [], ["y"], None]
    if not lists:
        values = [None if value is None else json.dumps(value) for value in values]
    source = table(t=values)
    encoded = Tags.fit(source, "t").encode(source)
    assert dense(encoded.block).tolist() == [[1, 1], [0, 0], [0, 1], [0, 0]]
    assert (encoded.missing, encoded.unseen) == (1, 0)
    with pytest.raises(TableError, match="row 2: column 't' holds lists of tags, but 'x, y'"):
        Tags.fit(table(t=["[1]", "x, y"]), "t")


def test_text_is_scikit_learns_tf_idf_and_survives_json() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = ["the cat sat on the mat", "the dog sat", "a cat and a dog", ""]
    source = table(t=texts)
    column = from_dict(json.loads(json.dumps(to_dict(Text.fit(source, "t")))))
    expected = TfidfVectorizer(min_df=2).fit_transform(texts).toarray()
    assert dense(column.encode(source).block) == pytest.approx(expected, abs=1e-6)  # float32
    assert (column.width, column.seen) == (4, 7)


def test_dates_are_numbers_whatever_their_unit() -> None:
    days = pl.Series("d", [0, 1, 2]).cast(pl.Date)
    column = Number.fit(Table("nodes", pl.DataFrame({"d": days})), "d")
    for unit in ("ms", "us", "ns"):
        source = Table("nodes", pl.DataFrame({"d": days.cast(pl.Datetime(unit))}))
        expected = [-(1.5**0.5), 0, 1.5**0.5]
        assert column.encode(source).block[:, 0] == pytest.approx(expected, abs=1e-6)  # float32
    spans = pl.DataFrame(
        {"d": pl.Series([1, 3]).cast(pl.Duration("ms")), "t": pl.Series([0, 10**9])}
    )
    spans = spans.with_columns(pl.col("t").cast(pl.Time))
    columns, _ = fit_columns(Table("nodes", spans), None, set())
    assert [(column.kind, column.mean) for column in columns] == [("number", 2e3), ("number", 5e5)]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2, 3], "number"),
        (["1", "2.5", "n/a"], "number"),
        ([True, False, True], "number"),
        (["red", "blue", "red"], "category"),
        (['["a"]', "[]", None], "tags"),
        (["a cat on a mat", "the dog ran far away", "no one was in there"], "text"),
        ([f"key{i}" for i in range(500)], None),
        (["2026-11-15", "NA", "2026-11-16"], "number"),
        (["2026-11-15 10:30", "2026-11-15 10:31"], "number"),
        (["2026-11-15T10:30:00.5", "2026-11-15T10:31:00"], "number"),
        (["00057", "00123", "10115"], "category"),
        ([None, None, None], None),
    ],
)
def test_kinds_are_guessed(values: list, kind: str | None) -> None:
    columns, left_out = fit_columns(table(c=values), None, set())
    assert [column.kind for column in columns] == ([] if kind is None else [kind])
    assert list(left_out) == (["c"] if kind is None else [])


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([*(f"{i}.5" for i in range(60)), "?"], "also 1 value such as '?'"),
        ([f"{i},5" for i in range(60)], "with a decimal comma, such as '0,5'"),
        ([f"{i} EUR".replace(" ", "") for i in range(60)], "60 different values of one word"),
    ],
)
def test_why_a_column_is_left_out_is_said(values: list, reason: str) -> None:
    _, left_out = fit_columns(table(c=values), None, set())
    assert reason in left_out["c"]


def test_dates_in_files_are_those_in_frames() -> None:
    days = [date(2026, 11, 15), date(1960, 2, 29), None]
    in_a_file = [None if day is None else day.isoformat() for day in days]
    numbers = [
        Number.fit(Table("nodes", pl.DataFrame({"d": values})), "d") for values in (days, in_a_file)
    ]
    assert numbers[0] == numbers[1]


def test_a_kind_can_be_asked_for_and_names_may_hold_colons() -> None:
    source = Table("nodes", pl.DataFrame({"zip": [1, 2, 1], "a:text": ["x", "y", "x"]}))
    columns, _ = fit_columns(source, ["zip:category", "a:text"], set())
    assert [(column.name, column.kind) for column in columns] == [
        ("zip", "category"),
        ("a:text", "category"),
    ]


def test_many_words_make_a_sparse_matrix_few_a_dense_one() -> None:
    words = [f"word{i} word{i + 1} word{i + 2} word{i + 3}" for i in range(200)]
    for columns, layout in (({"t": words}, torch.sparse_csr), ({"v": range(200)}, torch.strided)):
        source = Table("nodes", pl.DataFrame(columns))
        fitted, _ = fit_columns(source, None, set())
        recipe = TableSchema("id", None, None, False, tuple(fitted))
        x, _ = encode(recipe, source)
        assert x.layout == layout
        assert x.shape == (200, recipe.width)


@pytest.mark.parametrize(
    "content",
    [
        {"kind": "pickle", "name": "a"},
        {"kind": "number", "name": "a"},
        {"kind": "number", "name": "a", "mean": "0", "std": 1, "flagged": False},
        {"kind": "number", "name": "a", "mean": 0.0, "std": 0.0, "flagged": False},
        {"kind": "category", "name": "a", "values": "abc"},
        {"kind": "category", "name": "a", "values": ["x", "x"]},
        {"kind": "text", "name": "a", "values": ["x"], "idf": [], "seen": 1},
        {"kind": "category", "name": 3, "values": ["x"]},
    ],
)
def test_a_broken_column_is_refused(content: dict) -> None:
    with pytest.raises(ValueError, match="column"):
        from_dict(content)
