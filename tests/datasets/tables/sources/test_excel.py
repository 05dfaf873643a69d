"""Sheets of Excel workbooks."""

import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter

from subtree_attention import from_tables
from subtree_attention.datasets import TableError
from subtree_attention.datasets.tables.read import read_table

PEOPLE = [
    ["id", "age", "since", "mixed", "label"],
    [1, 31, datetime(2020, 1, 2), "x", "yes"],
    [None] * 5,
    [2, None, None, 7, "no"],
    ["003", 2.5, datetime(2021, 1, 2), None, "yes"],
]
LINKS = [["source", "target"], [1, 2], [2, "003"]]


def book(path: Path, **sheets: list[list[Any]]) -> Path:
    with xlsxwriter.Workbook(path, {"default_date_format": "yyyy-mm-dd"}) as workbook:
        for name, rows in sheets.items():
            sheet = workbook.add_worksheet(name)
            for number, row in enumerate(rows):
                sheet.write_row(number, 0, row)
    return path


def test_a_graph_from_two_sheets(tmp_path: Path) -> None:
    path = book(tmp_path / "book.xlsx", people=PEOPLE, links=LINKS)
    table = read_table(f"{path}#people", "nodes")
    assert table.frame.columns == PEOPLE[0]
    assert table.frame["mixed"].to_list() == ["x", "7", None]
    assert table.place(1) == f"{path}#people, row 4"  # a blank row is one of the sheet
    data = from_tables(f"{path}#people", f"{path}#links", target="label")
    assert data.ids == ["1", "2", "003"]
    assert {line.name: line.kind for line in data.notes.columns}["since"] == "number"


def test_the_only_sheet_needs_no_name(tmp_path: Path) -> None:
    path = book(tmp_path / "book.xlsx", people=PEOPLE)
    assert len(read_table(path, "nodes")) == 3


def test_a_file_whose_name_holds_the_mark_is_a_file(tmp_path: Path) -> None:
    path = book(tmp_path / "book.xlsx#1.xlsx", people=PEOPLE)
    assert len(read_table(path, "nodes")) == 3


@pytest.mark.parametrize(
    ("sheet", "message"),
    [
        ("", "book.xlsx has 5 sheets: people, none, twice, nameless, head. .*book.xlsx#people"),
        ("#nobody", "has no sheet 'nobody'. It has: people"),
        ("#none", "book.xlsx#none is empty"),
        ("#twice", "book.xlsx#twice, row 1: there are two columns 'id'"),
        ("#nameless", "book.xlsx#nameless, row 1: column 2 has no name"),
        ("#head", "book.xlsx#head has no rows"),
    ],
)
def test_sheets_that_cannot_be_read(sheet: str, message: str, tmp_path: Path) -> None:
    odd = {"twice": [["id", "id"], [1, 2]], "nameless": [["id", None, "b"], [1, 2, 3]]}
    path = book(tmp_path / "book.xlsx", people=PEOPLE, none=[], **odd, head=[["id", "a"]])
    with pytest.raises(TableError, match=message):
        read_table(f"{path}{sheet}", "nodes")


def test_what_is_no_workbook_is_said(tmp_path: Path) -> None:
    (tmp_path / "book.xlsx").write_bytes(b"id\na\n")
    with pytest.raises(TableError, match=r"book\.xlsx is no Excel workbook"):
        read_table(tmp_path / "book.xlsx", "nodes")


def test_without_fastexcel_the_reason_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = book(tmp_path / "book.xlsx", people=PEOPLE)
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    with pytest.raises(ImportError, match=r'pip install "subtree-attention\[excel\]"'):
        read_table(path, "nodes")
