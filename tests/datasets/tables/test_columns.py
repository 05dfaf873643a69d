"""What columns become, and that other tables become the same."""

import json
from dataclasses import replace
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
    Vector,
    from_dict,
    to_dict,
)
from subtree_attention.datasets.tables.infer import fit_columns
from subtree_attention.datasets.tables.read import read_table
from subtree_attention.datasets.tables.schema import encode
from subtree_attention.datasets.tables.table import Table


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


def test_a_few_values_far_away_do_not_squash_the_others() -> None:
    values = [*map(float, range(100)), 1e9, -1e12, None]
    source = table(v=values)
    column = Number.fit(source, "v")
    assert column.bend == 3
    block = column.encode(source).block[:, 0]
    assert block[:100].std() > 0.3  # 1e-8 if the mean and the deviation of all were taken
    order = np.argsort([value for value in values if value is not None])
    assert (np.diff(block[:-1][order]) > 0).all()  # what is far stays in its place,
    assert np.abs(block).max() < 100  # and in the range of a network
    assert block[-1] == 0
    for value, feature in zip(values[:-1], block.tolist(), strict=False):
        assert column.original(feature) == pytest.approx(value, rel=1e-3, abs=1e-2)  # of float32
    old = to_dict(column)
    assert from_dict(json.loads(json.dumps(old))) == column
    del old["bend"]
    assert from_dict(old).bend == 0  # a file of an earlier version
    with pytest.raises(ValueError, match="'bend' is a number"):
        from_dict({**old, "bend": -1})


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).normal(size=500),
        np.random.default_rng(0).exponential(size=500),
        np.r_[np.zeros(80), np.full(20, 1e6)],  # no middle half
        np.r_[np.arange(80.0), np.full(20, 1e6)],  # they are not a few
        np.r_[np.arange(20.0), 1e6],  # a small table
    ],
)
def test_other_numbers_have_mean_0_and_deviation_1(values: np.ndarray) -> None:
    column = Number.fit(table(v=values.tolist()), "v")
    assert (column.bend, column.mean) == (0, pytest.approx(values.mean()))
    assert column.std == pytest.approx(values.std())


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
        (["NA", "", " "], None),
        ([""], None),
        (["1,5", "", "2,75"], "number"),
        (["00,5", "01,5"], "category"),
        (["31.12.2021", "1.1.2022"], "number"),
        (["31.02.2021", "1.1.2022"], "category"),
        (["€ 5", "€ 7"], "number"),
        ([[0.5, 1.0], [0.25, 2.0]], "vector"),
        ([[0.5, 1.0], None, []], "vector"),
        ([[0, 3, 3], [1, 2, 4]], "vector"),  # a tag is there once
        ([[-1, 3], [1, 2]], "vector"),
        ([[True, False], [True, True]], "vector"),
        ([[7, 9], [1, 2]], "tags"),
        ([[7.0, 9.0], [1.0]], "tags"),
        ([[7, 9, 9], [1, 2]], "tags"),
        (["[0.5, 1]", "[2, 1]"], "vector"),
        (["[7, 9]", "[1]", "[]"], "tags"),
        (["[7, 9]", "[1, 9]"], "tags"),
        (["[0.5 1.]", "[2.  1.5]"], "vector"),
        (["0.5;1", "2;1.5"], "vector"),
        (["52.1, 13.4", "48.2, 16.4"], "vector"),
        (["['a', 'b']", "['b']", "[]"], "tags"),
        (["[deleted]", "[removed]", "[deleted]"], "category"),
        (["red;blue", "blue", "red"], "tags"),
        (["a|b", "b|c", "c|a", "a"], "tags"),
        ([f"{i}|{i + 500}" for i in range(60)], None),  # keys
        ([f"he came in at {i}; and then she left at {i + 9}" for i in range(60)], "text"),
        ([f"我们在北京学习第{i}课的内容" for i in range(60)], "text"),
        ([f"ฉันชอบเรียนภาษาไทยบทที่{i}" for i in range(60)], "text"),
        (["北京", "上海", "北京"], "category"),
    ],
)
def test_kinds_are_guessed(values: list, kind: str | None) -> None:
    columns, left_out = fit_columns(table(c=values), None, set())
    assert [column.kind for column in columns] == ([] if kind is None else [kind])
    assert list(left_out) == (["c"] if kind is None else [])


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([*(f"{i}.5" for i in range(60)), "n. k."], "also 1 value such as 'n. k.'"),
        ([*(f"{i},5" for i in range(60)), "7.25"], "also 1 value such as '7.25'"),
        ([f"{i} {'€$'[i % 2]}" for i in range(60)], "holds amounts in $ and €"),
        ([f"{i}kg" for i in range(60)], "60 different values of one word"),
        ([[0.5] * (2 + i % 2) for i in range(60)], "holds vectors of 2 to 3 numbers"),
        ([[], [], None], "holds empty lists only"),
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
    assert numbers[0] == replace(numbers[1], reading=None)


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


PLAIN_NUMBER = {"kind": "number", "name": "a", "mean": 0.0, "std": 1.0, "flagged": False}


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
        {"kind": "vector", "name": "a", "mean": [], "std": [], "flagged": False},
        {"kind": "vector", "name": "a", "mean": [0.0], "std": [1.0, 1.0], "flagged": False},
        {"kind": "vector", "name": "a", "mean": [0.0], "std": [0.0], "flagged": False},
        {"kind": "vector", "name": "a", "mean": 0.0, "std": 1.0, "flagged": False},
        {"kind": "vector", "name": "a", "mean": [0.0], "std": [1.0], "flagged": 1},
        {"kind": "tags", "name": "a", "values": ["x"], "seen": 1, "between": None},
        {"kind": "tags", "name": "a", "values": ["x"], "seen": 1, "sure": 1},
        {"kind": "text", "name": "a", "values": ["x"], "idf": [1.0], "seen": 1, "grams": 1},
        {**PLAIN_NUMBER, "reading": "comma"},
        {**PLAIN_NUMBER, "reading": {"form": "roman"}},
        {**PLAIN_NUMBER, "reading": {"form": "plain", "sign": 1}},
        {**PLAIN_NUMBER, "reading": {"percent": "yes"}},
        {**PLAIN_NUMBER, "reading": {"currency": 3}},
    ],
)
def test_a_broken_column_is_refused(content: dict) -> None:
    with pytest.raises(ValueError, match="column"):
        from_dict(content)


# --------------------------------------------------------------------------------------- vectors


@pytest.mark.parametrize(
    "values",
    [
        pl.Series([[1.0, 2.0], [3.0, 2.0], None, []]),
        pl.Series(["[1, 2]", "[3.0,2]", "NA", "[]"]),
        pl.Series(["[1. 2.]", "[ 3.  2.]", None, ""]),
        pl.Series(["[np.float64(1.0), np.float64(2.0)]", "[3, 2]", None, "[]"]),
        pl.Series(["1;2.0", "3;2", None, None]),
        pl.Series([[1, 2], [3, 2], None, None], dtype=pl.Array(pl.Int32, 2)),
    ],
)
def test_vectors_are_standardised_and_missing_ones_flagged(values: pl.Series) -> None:
    source = Table("nodes", pl.DataFrame({"v": values}))
    column = Vector.fit(source, "v")
    assert (column.mean, column.std, column.flagged) == ([2.0, 2.0], [1.0, 1.0], True)
    encoded = column.encode(source)
    assert encoded.block.tolist() == [[-1, 0, 0], [1, 0, 0], [0, 0, 1], [0, 0, 1]]
    assert encoded.missing == 2
    assert from_dict(json.loads(json.dumps(to_dict(column)))) == column


def test_a_number_that_is_missing_in_a_vector_is_the_mean() -> None:
    source = table(v=[[1.0, None], [3.0, 5.0], [2.0, float("nan")]])
    encoded = Vector.fit(source, "v").encode(source)
    assert encoded.block[:, 1].tolist() == [0, 0, 0]
    assert encoded.missing == 2


def test_vectors_of_other_lengths_are_named() -> None:
    column = Vector.fit(table(v=[[1.0, 2.0], [3.0, 2.0]]), "v")
    with pytest.raises(TableError, match="row 2: column 'v' holds vectors of 2 numbers, but one o"):
        column.encode(table(v=[[1.0, 2.0], [3.0]]))
    with pytest.raises(TableError, match="row 1: column 'v' holds vectors of 2 numbers, but one o"):
        column.encode(table(v=["[1, 2, 3]"]))  # all alike, but not as they were
    with pytest.raises(TableError, match="row 1: column 'v' holds a number too far"):
        column.encode(table(v=[[1e300, 2.0]]))
    with pytest.raises(TableError, match="row 1: column 'v' holds vectors, but '1, 1, 1") as raised:
        column.encode(table(v=["1, " * 9999]))
    assert len(str(raised.value)) < 300
    with pytest.raises(TableError, match="'v' holds no lists of numbers"):
        column.encode(table(v=[1.0, 2.0]))


def test_arrays_in_the_cells_of_pandas_and_lists_of_mixed_numbers_are_vectors() -> None:
    pandas = pytest.importorskip("pandas")
    cells = [np.array([0.1, 2.0]), None, np.array([0.3, 4.0])]
    for values in (cells, [[1, 2.5], (0.5, 2), None]):
        read = read_table(pandas.DataFrame({"v": values}), "nodes")
        columns, _ = fit_columns(read, None, set())
        assert [(column.kind, column.width) for column in columns] == [("vector", 3)]
    assert columns[0].mean == [0.75, 2.25]
    square = read_table({"v": np.random.default_rng(0).normal(size=(4, 3))}, "nodes")
    assert fit_columns(square, None, set())[0][0].width == 3


def test_eight_numbers_are_eight_columns() -> None:
    numbers = np.random.default_rng(0).normal(size=(120, 8)).tolist()
    columns, _ = fit_columns(table(v=[json.dumps(row) for row in numbers]), None, set())
    assert [column.width for column in columns] == [8]


# ------------------------------------------------------------------------------------ tags, text


@pytest.mark.parametrize("between", ["; ", "|", ", "])
def test_tags_between_signs(between: str) -> None:
    values = [between.join(tags) for tags in ("xyx", "", "y", "x")]
    column = Tags.fit(table(t=values), "t")
    assert column.between == between.strip()
    assert f"split at '{between.strip()}'" in column.note
    encoded = column.encode(table(t=[*values[:2], "[]", between.join("yz")]))
    assert dense(encoded.block).tolist() == [[1, 1], [0, 0], [0, 0], [0, 1]]
    assert (encoded.missing, encoded.unseen) == (1, 1)
    lists = column.encode(Table("nodes", pl.DataFrame({"t": [["x"], ["y"]]})))
    assert dense(lists.block).tolist() == [[1, 0], [0, 1]]


def test_what_could_be_another_kind_is_said() -> None:
    source = table(
        ids=[[i, i + 9] for i in range(5)], t=[f"one two three; four {i} five" for i in range(5)]
    )
    columns, _ = fit_columns(source, None, set())
    _, lines = encode(TableSchema("id", None, None, False, tuple(columns)), source)
    assert "could also be vectors: 'ids:vector'" in lines[0].note
    assert "not split at ';': 't:tags' does so" in lines[1].note
    asked, _ = fit_columns(source, ["ids:vector", "t:tags"], set())
    assert [(column.kind, column.width) for column in asked] == [("vector", 2), ("tags", 6)]


def test_text_without_blanks_is_split_into_grams_and_words_beside_it_are_kept() -> None:
    texts = ["我爱北京", "北京 GNN is fine", "他在上海", ""]
    column = from_dict(json.loads(json.dumps(to_dict(Text.fit(table(t=texts), "t")))))
    assert column.grams
    assert {"北", "北京"} <= set(column.values)
    encoded = column.encode(table(t=["北京大学", "GNN", None, "qqq"]))
    assert dense(encoded.block)[0, column.values.index("北京")] > 0
    assert (encoded.missing, encoded.unseen) == (1, 2)  # a word of a single node is not kept
    assert not Text.fit(table(t=["no such signs", "none here", "such signs"]), "t").grams


def test_columns_of_an_earlier_version_are_read() -> None:
    number = from_dict(PLAIN_NUMBER)
    assert to_dict(number) == PLAIN_NUMBER
    source = table(a=["2026-11-15", None])  # which kind of number it was, it did not say
    assert number.encode(source).block[0, 0] == np.float32(1794700800000000)
    tags = {"kind": "tags", "name": "a", "values": ["0.5", "x"], "seen": 2}
    assert dense(from_dict(tags).encode(table(a=["[0.5]"])).block).tolist() == [[1, 0]]
    assert to_dict(from_dict(tags)) == tags
    text = {"kind": "text", "name": "a", "values": ["北京"], "idf": [1.0], "seen": 1}
    assert dense(from_dict(text).encode(table(a=["北京", "北京人"])).block).tolist() == [[1], [0]]
