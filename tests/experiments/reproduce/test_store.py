"""Records on disk: added, read again, never lost."""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from experiments.reproduce.store import Store


def record(seed: int, test: float = 0.5, **more: object) -> dict[str, object]:
    start = {"experiment": "table1", "graph": "cora", "model": "STAGNN", "variant": ""}
    return {**start, "seed": seed, "test": test, **more}


def test_what_is_added_is_there(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(record(0))
    store.add(record(1))
    assert [r["seed"] for r in store.read("table1")] == [0, 1]
    assert store.read_graph("table1", "actor") == []


def test_the_latest_of_several_counts(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(record(0, 0.1))
    store.add(record(0, 0.2))
    assert [r["test"] for r in store.read("table1")] == [0.2]


def test_a_line_that_a_killed_writer_left_is_no_record_and_spoils_none(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(record(0))
    with store.path("table1", "cora").open("a") as file:
        file.write('{"experiment": "table1", "gra')
    assert [r["seed"] for r in store.read("table1")] == [0]
    store.add(record(1))
    assert [r["seed"] for r in store.read("table1")] == [0, 1]


def test_a_file_that_is_no_store_is_named(tmp_path: Path) -> None:
    path = tmp_path / "table1" / "cora.jsonl"
    path.parent.mkdir()
    path.write_text("hello}\n{}\n")
    with pytest.raises(ValueError, match=r"cora\.jsonl, line 1"):
        Store(tmp_path).read("table1")


def _add_some(folder: Path, first: int) -> None:
    for seed in range(first, first + 20):
        Store(folder).add(record(seed, note="x" * 5000))


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    with ProcessPoolExecutor(3) as pool:
        list(pool.map(_add_some, [tmp_path] * 3, [0, 20, 40]))
    assert len(Store(tmp_path).read("table1")) == 60
