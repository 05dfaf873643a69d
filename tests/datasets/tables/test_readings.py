"""How texts are read as numbers: one reading for a column, found from all of its values."""

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subtree_attention import from_tables
from subtree_attention.datasets import TableError, apply_schema, read
from subtree_attention.datasets.tables.columns import Number
from subtree_attention.datasets.tables.infer import fit_columns
from subtree_attention.datasets.tables.readings import NUMBERS, Reading, find, parse
from subtree_attention.datasets.tables.table import Table


def read_as(*texts: str) -> tuple[Reading, list]:
    values = pl.Series(texts, dtype=pl.String)
    reading, wrong = find(values)
    assert not wrong.any()
    return reading, parse(values, reading).to_list()


@pytest.mark.parametrize(
    ("texts", "reading", "numbers"),
    [
        (["1.5", "-2", "1e3"], Reading(), [1.5, -2, 1000]),
        (["\u22121.5", "2"], Reading(), [-1.5, 2]),
        (["1,5", "-2", ",25"], Reading("decimal-comma"), [1.5, -2, 0.25]),
        (["1.234,5", "7"], Reading("decimal-comma"), [1234.5, 7]),
        (["1.234.567"], Reading("decimal-comma"), [1234567]),
        (["1 234,5", "1\u00a0234", "1\u202f234\u2009567,8"], Reading("decimal-comma"), None),
        (["1,234.5", "7"], Reading("decimal-point"), [1234.5, 7]),
        (["1,234,567", "1,234"], Reading("decimal-point"), [1234567, 1234]),
        (["1 234.5"], Reading("decimal-point"), [1234.5]),
        (["1'234.50", "1\u2019234"], Reading("decimal-point"), [1234.5, 1234]),
        (["0,123", "1,234"], Reading("decimal-comma"), [0.123, 1.234]),
        (["0.123", "1.234"], Reading(), [0.123, 1.234]),
        (["12%", "5.5 %"], Reading(percent=True), [12, 5.5]),
        (["12,5 %"], Reading("decimal-comma", percent=True), [12.5]),
        (["$5", "-$1,234.50"], Reading("decimal-point", currency="$"), [5, -1234.5]),
        (["5 €", "1.234,50 €"], Reading("decimal-comma", currency="€"), [5, 1234.5]),
        (["EUR 5", "7"], Reading(currency="EUR"), [5, 7]),
        (["R$ 5,50"], Reading("decimal-comma", currency="R$"), [5.5]),
        # What fits two forms:
        (["1,234", "2,345"], Reading("decimal-point", sure=False), [1234, 2345]),
        (["1.234", "17"], Reading(sure=False), [1.234, 17]),
        (["1.234 €"], Reading("decimal-comma", currency="€", sure=False), [1234]),
        (["1,234 €"], Reading("decimal-point", currency="€", sure=False), [1234]),
        (["1 234", "5,678"], Reading("decimal-comma", sure=False), [1234, 5.678]),
        (["12", "123"], Reading(), [12, 123]),
    ],
)
def test_numbers(texts: list[str], reading: Reading, numbers: list | None) -> None:
    assert read_as(*texts) == (reading, numbers or [1234.5, 1234.0, 1234567.8])


@pytest.mark.parametrize(
    "text",
    [
        "1,2,3",
        "1.2.3",
        "12,34.5",
        "1,23,4",
        "1 2",
        "--5",
        "5 € 7",
        "1.234,567.8",
        "%",
        "-nan",
        "10%5",
    ],
)
def test_what_is_no_number_is_none(text: str) -> None:
    _, wrong = find(pl.Series([text]))
    assert wrong.to_list() == [True]


def test_one_value_that_does_not_fit_is_found() -> None:
    reading, wrong = find(pl.Series(["1,5", "2,5", "3.5", "4,5"]))
    assert (reading.form, wrong.to_list()) == ("decimal-comma", [False, False, True, False])


@given(st.lists(st.floats(-1e9, 1e9), min_size=1), st.sampled_from([".,", ",.", ", ", ".'"]))
def test_numbers_come_back_however_thousands_are_set_apart(values: list, signs: str) -> None:
    point, group = signs
    swap = str.maketrans({".": point, ",": group})
    texts = pl.Series([f"{value:,.2f}".translate(swap) for value in values])
    form = "decimal-comma" if point == "," else "decimal-point"
    found = parse(texts, Reading(form)).to_list()
    assert found == pytest.approx([round(value, 2) for value in values], rel=1e-12)


def microseconds(*when: int, zone: float = 0) -> int:
    moment = datetime(*when, tzinfo=UTC) - timedelta(hours=zone)  # type: ignore[misc,arg-type]
    return round(moment.timestamp() * 1_000_000)


@pytest.mark.parametrize(
    ("texts", "form", "last"),
    [
        (["2021-03-04"], "year-first", microseconds(2021, 3, 4)),
        (["2021-03-04", "2021-03-04 10:30"], "year-first", microseconds(2021, 3, 4, 10, 30)),
        (["2021-03-04T10:30:15.25"], "year-first", microseconds(2021, 3, 4, 10, 30, 15, 250000)),
        (["2021-03-04T10:30:15Z"], "year-first", microseconds(2021, 3, 4, 10, 30, 15)),
        (["2021-03-04T10:30+02:00"], "year-first", microseconds(2021, 3, 4, 10, 30, zone=2)),
        (["2021-03-04 10:30:00-0330"], "year-first", microseconds(2021, 3, 4, 10, 30, zone=-3.5)),
        (["2021-03-04 10:30:00 +01"], "year-first", microseconds(2021, 3, 4, 10, 30, zone=1)),
        (["2021/3/4"], "year-first", microseconds(2021, 3, 4)),
        (["2021.03.04"], "year-first", microseconds(2021, 3, 4)),
        (["2021-03"], "year-first", microseconds(2021, 3, 1)),
        (["2021/03"], "year-first", microseconds(2021, 3, 1)),
        (["03/2021"], "day-first", microseconds(2021, 3, 1)),
        (["4.3.2021"], "day-first", microseconds(2021, 3, 4)),
        (["04.03.99"], "day-first", microseconds(1999, 3, 4)),
        (["13/01/2021", "04/03/2021 10:30"], "day-first", microseconds(2021, 3, 4, 10, 30)),
        (["01/13/2021", "3/4/2021 1:30 PM"], "month-first", microseconds(2021, 3, 4, 13, 30)),
        (["01-13-2021", "03-04-2021"], "month-first", microseconds(2021, 3, 4)),
    ],
)
def test_dates(texts: list[str], form: str, last: int) -> None:
    reading, numbers = read_as(*texts)
    assert (reading, numbers[-1]) == (Reading(form), last)


@pytest.mark.parametrize(
    ("texts", "reading"),
    [
        (["01/02/2021", "03/04/2021"], Reading("day-first", sure=False)),
        (["01/02/2021", "03/03/2021 1:30 pm"], Reading("month-first", sure=False)),
        (["01.02.2021"], Reading("day-first")),  # nobody writes the month first so
        (["03/03/2021"], Reading("day-first")),  # which is the same date
    ],
)
def test_the_order_of_day_and_month(texts: list[str], reading: Reading) -> None:
    assert read_as(*texts)[0] == reading


@pytest.mark.parametrize(
    "text",
    [
        "31.02.2021",
        "2021-13-01",
        "4711-01",
        "2021-03-04T25:00",
        "24:00",
        "1:60",
        "13:00 PM",
        "1.2.33",
    ],
)
def test_what_is_no_date_is_none(text: str) -> None:
    _, wrong = find(pl.Series([text]))
    assert wrong.to_list() == [True]


def test_times_of_the_day() -> None:
    reading, numbers = read_as("10:30", "12:05 AM", "1:05 p.m.", "23:59:59.5")
    assert reading == Reading("time")
    assert [number / 60e6 for number in numbers] == [630, 5, 785, 1439 + 59.5 / 60]


@given(st.lists(st.datetimes(datetime(1800, 1, 1), datetime(2199, 12, 31)), min_size=1))
def test_dates_come_back_in_any_form(moments: list[datetime]) -> None:
    moments = [moment.replace(tzinfo=UTC) for moment in moments]
    expected = [
        (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        for moment in moments
    ]
    for form, order in [
        ("year-first", "%Y/%m/%d"),
        ("day-first", "%d.%m.%Y"),
        ("month-first", "%m-%d-%Y"),
    ]:
        texts = [moment.strftime(f"{order} %H:%M:%S.%f") for moment in moments]
        assert parse(pl.Series(texts), Reading(form)).to_list() == expected


# ------------------------------------------------------------------------------ columns and tables


def test_a_column_is_read_as_it_was_when_it_was_learnt() -> None:
    source = Table("nodes", pl.DataFrame({"v": ["1,5", "2,5", "NA", ""]}))
    column = Number.fit(source, "v")
    assert (column.mean, column.std, column.flagged) == (2.0, 0.5, True)
    assert column.note == "read as numbers with a decimal comma"
    others = [["1.234,5"], [1234.5]]  # a number is what it is
    blocks = [column.encode(Table("new", pl.DataFrame({"v": some}))).block[0] for some in others]
    assert blocks[0].tolist() == blocks[1].tolist() == [2465, 0]
    with pytest.raises(
        TableError, match="row 1: column 'v' is a number with a decimal comma, but h"
    ):
        column.encode(Table("new", pl.DataFrame({"v": ["1.5"]})))


def test_dates_stay_dates_and_numbers_stay_numbers() -> None:
    when = Number.fit(Table("nodes", pl.DataFrame({"v": ["01/02/2021", "13/02/2021"]})), "v")
    with pytest.raises(TableError, match="is a date, the day first, but holds '02/13/2021' there"):
        when.encode(Table("new", pl.DataFrame({"v": ["02/13/2021"]})))
    with pytest.raises(TableError, match="is a date, the day first, but holds 5 there"):
        when.encode(Table("new", pl.DataFrame({"v": [5]})))
    days = pl.Series("v", [datetime(2021, 2, 1), datetime(2021, 2, 13)])
    assert when.encode(Table("new", days.to_frame())).block.ravel().tolist() == [-1, 1]
    count = Number.fit(Table("nodes", pl.DataFrame({"v": ["1", "2"]})), "v")
    for wrong in (["2021-01-01"], [datetime(2021, 2, 1)]):
        with pytest.raises(TableError, match="column 'v' is a number, but holds"):
            count.encode(Table("new", pl.DataFrame({"v": wrong})))


@pytest.mark.parametrize(
    ("asked", "values", "mean"),
    [
        ("decimal-comma", ["1,234", "3,234"], 2.234),
        ("decimal-point", ["1,234", "3,234"], 2234),
        ("decimal-comma", ["1.234", "3.234"], 2234),
        ("month-first", ["01/02/2021"], microseconds(2021, 1, 2)),
        ("day-first", ["01/02/2021"], microseconds(2021, 2, 1)),
        ("date", ["2021-02"], microseconds(2021, 2, 1)),
    ],
)
def test_a_reading_can_be_asked_for(asked: str, values: list[str], mean: float) -> None:
    [column], _ = fit_columns(Table("nodes", pl.DataFrame({"v": values})), [f"v:{asked}"], set())
    assert (column.kind, column.mean) == ("number", pytest.approx(mean))
    assert column.reading.sure
    with pytest.raises(TableError, match="row 1: column 'v' is a"):
        fit_columns(Table("nodes", pl.DataFrame({"v": ["x"]})), [f"v:{asked}"], set())


NODES = {
    "id": [f"n{i}" for i in range(6)],
    "size": ["1,5", "2", "3,5", "4", "5,25", "6"],
    "price": ["1.000,5 €", "2 €", "3 €", "", "5 €", "6 €"],
}
EDGES = {"source": ["n0", "n1"], "target": ["n1", "n2"], "w": ["0,5", "1,5"]}


def test_targets_and_weights_are_read_so_too_and_other_tables_alike(tmp_path) -> None:
    data = from_tables(NODES, EDGES, target="price", task="regression", weight="w")
    assert data.y[:3].tolist() == [1000.5, 2, 3]
    assert math.isnan(data.y[3])
    assert sorted(set(data.edge_weight.tolist())) == [0.5, 1.5]
    words = "\n".join(data.notes.words)
    assert "the values of 'price' are read as numbers with a decimal comma, in €" in words
    assert "the weights in 'w' are read as numbers with a decimal comma" in words
    data.save(tmp_path / "graph.safetensors")
    again = read(tmp_path / "graph.safetensors")
    assert again.schema == data.schema
    new = {**NODES, "price": ["1.234 €"] * 6}
    other = apply_schema(again, new, {**EDGES, "w": ["1.000", "2"]})
    assert other.y.tolist() == [1234] * 6  # as learnt, though a point could mean something else
    assert sorted(set(other.edge_weight.tolist())) == [2, 1000]
    with pytest.raises(TableError, match=r"a number with a decimal comma, in €, but holds '1\.5'"):
        apply_schema(again, {**NODES, "price": ["1.5"] * 6}, EDGES)
    with pytest.raises(TableError, match=r"'w' \(--weight\) holds '0.5', not a finite number"):
        apply_schema(again, NODES, {**EDGES, "w": ["0.5", "1"]})


def test_labels_between_signs() -> None:
    nodes = {**NODES, "likes": ["tea;chess", "tea", "[]", None, "go; tea", "chess"]}
    data = from_tables(nodes, EDGES, target="likes", task="multilabel")
    assert data.classes == ("chess", "go", "tea")
    assert np.nansum(data.y.numpy(), 1).tolist() == [2, 1, 0, 0, 2, 1]
    assert data.y[3].isnan().all()
    assert "the labels of 'likes' are split at ';'" in data.notes.words
    other = apply_schema(data, {**nodes, "likes": ["go"] * 6}, EDGES)
    assert other.y.tolist() == [[0, 1, 0]] * 6
    with pytest.raises(TableError, match="holds no lists: labels are written as"):
        from_tables({**nodes, "likes": ["tea"] * 6}, EDGES, target="likes", task="multilabel")


def test_classes_that_are_numbers_with_commas_are_said_to_be_numbers() -> None:
    nodes = {"id": list(range(60)), "price": [f"{i},5" for i in range(60)]}
    with pytest.raises(TableError, match="to predict a number, use --task regression"):
        from_tables(nodes, {"a": [1], "b": [2]}, target="price")


def test_forms_are_ruled_out_by_the_first_values() -> None:
    texts = pl.Series(["a long text without any number"] * 1001 + ["1,5"])
    reading, wrong = find(texts, NUMBERS)
    assert (reading, int(wrong.sum())) == (Reading(), 1002)
