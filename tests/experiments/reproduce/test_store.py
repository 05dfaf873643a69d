"""Records on disk: added, read again, never lost."""

import json
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from experiments.reproduce.records import FORMAT, Record
from experiments.reproduce.store import Store
from tests.experiments.reproduce.synthetic import PLAIN, record


def seeds(records: list[Record]) -> list[int]:
    return [record.seed for record in records]


def test_what_is_added_is_there(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(record())
    store.add(record(seed=1))
    assert seeds(store.read("table1")) == [0, 1]
    assert store.read_graph("table1", "actor") == []


def test_a_line_has_a_format_number_and_what_was_written_before_there_was_one_is_read(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path)
    store.add(record(seed=1))
    path = store.path("table1", "cora")
    line = json.loads(path.read_text())
    assert len(line.pop("crc32")) == 8
    assert line == {"format": FORMAT, **PLAIN, "diverged": None, "seed": 1}
    path.write_text(json.dumps(PLAIN) + "\n")
    assert store.read("table1") == [record()]


def test_a_record_that_is_incomplete_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.path("table1", "cora")
    path.parent.mkdir()
    path.write_text(json.dumps(PLAIN).replace('"split"', '"slit"') + "\n")
    with pytest.raises(ValueError, match=r"cora\.jsonl, line 1: .*a record lacks split"):
        store.read("table1")


def test_a_damaged_record_is_named_with_what_to_do(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(record(test=0.5))
    path = store.path("table1", "cora")
    path.write_text(path.read_text().replace('"test": 0.5', '"test": 0.7'))
    with pytest.raises(ValueError, match=r"line 1: .*checksum is another one.*delete the line"):
        store.read("table1")


def test_the_latest_of_several_counts(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(record(test=0.1))
    store.add(record(test=0.2))
    assert [r.test for r in store.read("table1")] == [0.2]


def test_a_line_that_a_killed_writer_left_is_no_record_and_spoils_none(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(record())
    with store.path("table1", "cora").open("a") as file:
        file.write('{"experiment": "table1", "gra')
    assert seeds(store.read("table1")) == [0]
    store.add(record(seed=1))
    assert seeds(store.read("table1")) == [0, 1]


def test_a_file_that_is_no_store_is_named(tmp_path: Path) -> None:
    path = tmp_path / "table1" / "cora.jsonl"
    path.parent.mkdir()
    path.write_text("hello}\n{}\n")
    with pytest.raises(ValueError, match=r"cora\.jsonl, line 1"):
        Store(tmp_path).read("table1")


def _add_some(folder: Path, first: int) -> None:
    for seed in range(first, first + 20):
        Store(folder).add(record(seed=seed, variant="x" * 5000))


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    with ProcessPoolExecutor(3) as pool:
        list(pool.map(_add_some, [tmp_path] * 3, [0, 20, 40]))
    assert len(Store(tmp_path).read("table1")) == 60
