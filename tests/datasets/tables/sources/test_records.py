"""JSON lines, and lists of records."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from subtree_attention import from_tables
from subtree_attention.datasets import TableError
from subtree_attention.datasets.tables.read import read_table

LINES = '{"id": 1, "tags": ["a", "b"]}\n\n{"id": 2, "tags": [], "more": 1.5}\n'
Write = Callable[[str, str | bytes], Path]


@pytest.mark.parametrize("name", ["n.jsonl", "n.ndjson", "n.json", "n.jsonl.gz"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_a_record_a_line(name: str, start: str, write: Write) -> None:
    content = (start + LINES).encode()
    path = write(name, gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
    table = read_table(path, "nodes")
    wanted = {"id": [1, 2], "tags": [["a", "b"], []], "more": [None, 1.5]}
    assert table.frame.to_dict(as_series=False) == wanted
    assert table.place(1) == f"{path}, line 3"


def test_a_list_of_records_of_which_a_late_one_has_another_type(write: Write) -> None:
    records = '{"id": 1}, ' * 500 + '{"id": "x"}'
    table = read_table(write("n.json", f" [{records}]"), "nodes")
    assert table.frame["id"].to_list() == ["1"] * 500 + ["x"]
    assert table.place(500).endswith("n.json, row 501")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("n.jsonl", '{"id": 1}\n{"id":\n', "n.jsonl, line 2: no JSON"),
        ("n.jsonl", '{"id": 1}\n[3]\n', "n.jsonl, line 2: not a record"),
        ("n.json", '{"id":\n {"0": 1}}', r'n.json, line 1: no JSON .*orient="records"'),
        ("n.json", "[1, 2]", r"n.json holds a list, but not of records: write \[\{"),
        ("n.json", '[{"id": 1}', "n.json is no JSON"),
        ("n.json", b'[{"id": "\xff"}]', "n.json "),
        ("n.json", "[]", "n.json has no rows"),
        ("n.jsonl", '{"id": 1}\n{"id": [1]}\n', "n.jsonl cannot be read: "),
    ],
)
def test_what_is_no_table_is_said(
    name: str, content: str | bytes, message: str, write: Write
) -> None:
    with pytest.raises(TableError, match=message):
        read_table(write(name, content), "nodes")


def test_a_graph_from_json_lines(write: Write) -> None:
    nodes = write(
        "n.jsonl",
        "".join(f'{{"id": {i}, "age": {i}, "label": "{"xy"[i % 2]}"}}\n' for i in range(4)),
    )
    edges = write("e.json", '[{"source": 0, "target": 1}, {"source": 2, "target": 3}]')
    assert from_tables(nodes, edges, target="label").node_ids == ["0", "1", "2", "3"]
