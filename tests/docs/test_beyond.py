"""The tables of docs/beyond.md are those of the committed records."""

import re

import pytest

from experiments.field.command import TABLES
from experiments.field.render import render
from experiments.reproduce.store import Store
from tests.docs.snippets import ROOT

PAGE = ROOT / "docs/beyond.md"


def test_every_table_is_on_the_page() -> None:
    assert sorted(re.findall(r"<!-- field: (\w+) -->", PAGE.read_text())) == sorted(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_are_those_of_the_records(name: str, tmp_path, monkeypatch) -> None:
    copy = tmp_path / "beyond.md"
    copy.write_bytes(PAGE.read_bytes())
    file = ROOT / f"results/field/{name}.md"
    before = file.read_text() if file.exists() else None
    monkeypatch.setattr("experiments.field.render.write_bytes", _only_below(tmp_path))
    render([TABLES[name]], Store(ROOT / "results/field"), copy, Store(ROOT / "results/reproduce"))
    assert copy.read_text() == PAGE.read_text()
    assert before is None or before in PAGE.read_text()


def _only_below(folder):
    def write(path, content: bytes) -> None:
        if path.is_relative_to(folder):
            path.write_bytes(content)

    return write
