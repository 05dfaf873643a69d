"""Folders and patterns of parts, as Spark and the like write them."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from subtree_attention import from_tables
from subtree_attention.datasets import TableError
from subtree_attention.datasets.tables.read import read_table


def parquet(path: Path, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(columns).write_parquet(path)
    return path


@pytest.fixture
def spark(tmp_path: Path) -> Path:
    """A folder with two parts, one of which is empty, and what lies beside them."""
    folder = tmp_path / "people"
    parquet(folder / "part-00000-c1.snappy.parquet", id=["a", "b"], age=[1, 2])
    parquet(folder / "part-00001-c1.snappy.parquet", id=pl.Series([], dtype=pl.String), age=[])
    parquet(folder / "part-00002-c1.snappy.parquet", age=[3], id=["c"])
    (folder / "_SUCCESS").touch()
    (folder / ".part-00000-c1.snappy.parquet.crc").write_bytes(b"crc")
    (folder / "_metadata").write_bytes(b"x")
    return folder


@pytest.mark.parametrize("pattern", ["", "/*.parquet", "/part-0000[0-2]*", "/*"])
def test_a_folder_or_a_pattern_is_one_table(spark: Path, pattern: str) -> None:
    source = f"{spark}{pattern}"
    table = read_table(source, "nodes")
    assert table.frame.to_dict(as_series=False) == {"id": ["a", "b", "c"], "age": [1, 2, 3]}
    assert table.name == f"{source} (3 files)"
    assert table.place(1) == f"{spark}/part-00000-c1.snappy.parquet, row 2"
    assert table.place(2) == f"{spark}/part-00002-c1.snappy.parquet, row 1"


def test_a_name_with_brackets_is_a_file(tmp_path: Path) -> None:
    path = parquet(tmp_path / "part[0].parquet", id=["a"])
    assert read_table(path, "nodes").name == str(path)


def test_folders_of_hive_are_columns(tmp_path: Path) -> None:
    root = tmp_path / "people"
    parquet(root / "year=2025/city=K%C3%B6ln" / "0.parquet", id=["a"])
    parquet(root / "year=2026/city=__HIVE_DEFAULT_PARTITION__" / "0.parquet", id=["b"])
    wanted = {"id": ["a", "b"], "year": ["2025", "2026"], "city": ["Köln", None]}
    assert read_table(root, "nodes").frame.to_dict(as_series=False) == wanted
    some = read_table(f"{root}/year=202*/*/*.parquet", "nodes").frame
    assert some.to_dict(as_series=False) == wanted
    parquet(root / "year=2027/city=Rome" / "0.parquet", id=["c"], year=[2027])
    with pytest.raises(TableError, match="column 'year' is in the file, and a folder"):
        read_table(root, "nodes")


def test_parts_of_csv_name_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "n").mkdir()
    (tmp_path / "n/1.csv").write_text("id,age\na,1\n")
    (tmp_path / "n/2.csv").write_text("")  # Spark writes such ones
    (tmp_path / "n/3.csv").write_text("age,id\n\n2,a\n")
    with pytest.raises(
        TableError, match=r"n/3\.csv, line 3: the id 'a' is that of .*n/1\.csv, line 2"
    ):
        from_tables(tmp_path / "n", {"source": ["a"], "target": ["a"]})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"id": ["x"]}, r"the parts of .* differ: .*part-00000.* has a column 'age', .*z\.parquet"),
        ({"id": ["x"], "age": [1], "b": [1]}, r"z\.parquet has a column 'b', .*part-00000"),
        (
            {"id": ["x"], "age": ["1"]},
            r"column 'age' is Int64 in .*00000.* and String in .*z\.parq",
        ),
        ({"id": ["x"], "age": [1.5]}, "column 'age' is Int64 in .* and Float64 in"),
    ],
)
def test_parts_that_differ_are_refused(spark: Path, changed: dict, message: str) -> None:
    parquet(spark / "z.parquet", **changed)
    with pytest.raises(TableError, match=message):
        read_table(spark, "nodes")


def test_a_part_in_which_a_column_is_empty_fits(spark: Path) -> None:
    parquet(spark / "z.parquet", id=["z"], age=[None])
    frame = read_table(spark, "nodes").frame
    assert frame["age"].to_list() == [1, 2, 3, None]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x.csv", r"must be of one kind, but there are .*part-00000.* and .*x\.csv"),
        ("x.py", r"x\.py is no part of a table \(\.parquet, \.csv"),
        ("_delta_log/0.json", "is a Delta table"),
        ("metadata/v1.metadata.json", "is an Iceberg table"),
        ("_temporary/0", "is not written to its end"),
        ("broken.parquet", r"broken\.parquet is not a Parquet file"),
    ],
)
def test_what_does_not_belong_is_refused(spark: Path, name: str, message: str) -> None:
    (spark / name).parent.mkdir(exist_ok=True)
    (spark / name).write_text("id\n1\n")
    with pytest.raises(TableError, match=message):
        read_table(spark, "nodes")


def test_nothing_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"no file fits .*/\*\.parquet"):
        read_table(f"{tmp_path}/*.parquet", "nodes")
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(TableError, match=r"the folder .* holds no file"):
        read_table(tmp_path, "nodes")
