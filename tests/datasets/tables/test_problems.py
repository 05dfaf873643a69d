"""Every problem of a table gets a message that names the place and says what to do."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from subtree_attention import from_tables
from subtree_attention.datasets import TableError

NODES = "id,age,label\na,1,x\nb,2,y\nc,3,x\nd,4,y\n"
EDGES = "source,target,w\na,b,1\nb,c,2\n"


@pytest.fixture
def load(write: Callable[..., Path]) -> Callable[..., object]:
    def call(nodes: str | bytes = NODES, edges: str | bytes = EDGES, **options: object) -> object:
        paths = write("nodes.csv", nodes), write("edges.csv", edges)
        return from_tables(*paths, **{"target": "label", **options})  # type: ignore[arg-type]

    return call


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("", "nodes.csv is empty"),
        ("\n\n", "nodes.csv is empty: the first line holds the names"),
        ("id,age,label\n", "nodes.csv has no rows"),
        ("id,age,label\na,1,x\na,2,y\n", "nodes.csv, line 3: the id 'a' is that of .*line 2 too"),
        ("id,age,label\na,1,x\n,2,y\n", "nodes.csv, line 3: the id .* is empty"),
        ("id,age,label\na,1,x\nb,2,x\n", "one class only, 'x'"),
        ("id,age,label\na,1,\nb,2,\n", "'label' .* is empty: nothing to learn"),
        (
            "id,age,label\n" + "".join(f"n{i},1,{i // 1.5}\n" for i in range(60)),
            "to predict a number, use --task regression",
        ),
        ("id,age,label\na,1,x\nb,2,y\n", "2 different labels for 2 nodes"),
        ("id,age,label\na,1,x\nb,2\n", "nodes.csv, line 3: 2 values, but .* 3 columns"),
        ("id,age,label\na,1,x\nb,2,y,z\n", "nodes.csv, line 3: 4 values, but .* 3 columns"),
        (b"id,age,label\na,1,x\nb,2,\xff\n", "nodes.csv, line 3: not UTF-8"),
        (b"id,age,label,\xff\na,1,x,y\n", "nodes.csv, line 1: not UTF-8"),
        ("id,age,age,label\na,1,1,x\n", "two columns 'age'"),
        ("id,,label\na,1,x\n", "line 1: column 2 has no name"),
        ('id,age,label\na,1,x\n"b,2,y\n', "nodes.csv, after line 2: .* double quotes"),
        ("id,age,lable\na,1,x\nb,2,y\n", r"no column 'label' \(--target\). Near: lable"),
    ],
)
def test_of_nodes(nodes: str | bytes, message: str, load: Callable[..., object]) -> None:
    with pytest.raises(TableError, match=message):
        load(nodes)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ("", "edges.csv is empty"),
        ("source,target\n", "edges.csv has no rows"),
        ("source\na\n", "one column, but an edge has two ends"),
        (
            "source,target\na,b\na,z\ny,b\n",
            r"edges.csv, line 3: the edge a -> z ends .* \(2 such edges\).*--unknown-ends drop",
        ),
        (
            "source,target\na,b\nA,b\n",
            "--join.; 'A' of the edges and 'a' of the nodes differ by capital letters only .1 such",
        ),
        ("source,target\na,b\n,b\n", "edges.csv, line 3: column 'source' is empty"),
        ("source,target\na,b,c\n", "edges.csv, line 2: 3 values"),
    ],
)
def test_of_edges(edges: str, message: str, load: Callable[..., object]) -> None:
    with pytest.raises(TableError, match=message):
        load(edges=edges)


def test_ids_that_differ_by_leading_zeros_are_explained(load: Callable[..., object]) -> None:
    nodes = "id,age,label\n00123,1,x\n00124,2,y\n0125,3,x\n125,4,y\n"
    with pytest.raises(
        TableError, match=r"Note: '123' of the edges and '00123' of the nodes differ"
    ):
        load(nodes, "source,target\n123,124\n")
    with pytest.raises(TableError, match=r"by leading zeros only \(2 such ids\): write them alike"):
        load(nodes, "source,target\n0125,125\n123,124\n")
    data = load(nodes, "source,target\n0125,125\n123,0125\n", unknown_ends="drop")
    words = "\n".join(data.notes.words)  # type: ignore[attr-defined]
    assert "differ by leading zeros only (1 such id)" in words
    assert "'0125' and '125' are ids of different nodes (1 such pair)" in words


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (("1", "much"), r"edges.csv, line 3: column 'w' \(--weight\) holds 'much'"),
        (("1", ""), r"edges.csv, line 3: column 'w' \(--weight\) is empty"),
        (("1", "inf"), "line 3.*holds 'inf', not a finite number"),
        (("1", "-2"), "line 3: the weight -2 is negative"),
    ],
)
def test_of_weights(weights: tuple[str, str], message: str, load: Callable[..., object]) -> None:
    edges = "source,target,w,since\n" + "".join(f"a,b,{weight},2000\n" for weight in weights)
    with pytest.raises(TableError, match=message):
        load(edges=edges, weight="w")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id": "name"}, r"no column 'name' \(--id\)"),
        ({"source": "sauce"}, r"no column 'sauce' \(--source\). Near: source"),
        ({"dest": "to"}, r"no column 'to' \(--dest\)"),
        ({"weight": "ww"}, r"no column 'ww' \(--weight\). Near: w"),
        ({"features": ["agee"]}, r"no column 'agee' \(--features\). Near: age"),
        ({"features": ["age:numbr"]}, "unknown kind of column 'age' 'numbr'.*'number'"),
        ({"features": ["label"]}, "is the id, the label or the split already"),
        ({"split_column": "fold"}, r"no column 'fold' \(--split-column\)"),
        (
            {"split_column": "age"},
            "line 2: column 'age' .* holds '1'; it may hold train, val, test",
        ),
        ({"unknown_ends": "forget"}, "unknown way with unknown ends 'forget'"),
    ],
)
def test_of_options(options: dict, message: str, load: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match=message):
        load(**options)


def test_lines_are_counted_over_blank_lines_and_line_breaks_in_quotes(
    load: Callable[..., object],
) -> None:
    nodes = '\nid,text,label\na,"one\ntwo",x\n\nb,three,y\na,four,y\n'
    with pytest.raises(TableError, match=r"line 7: the id 'a' is that of .*line 3 too"):
        load(nodes)


def test_a_split_that_lacks_a_part_is_refused(load: Callable[..., object]) -> None:
    nodes = "id,age,fold,label\na,1,train,x\nb,2,train,y\nc,3,Valid,x\nd,4,test,\n"
    with pytest.raises(TableError, match="no node with a label for 'test'"):
        load(nodes, split_column="fold")


@pytest.mark.parametrize("name", ["nowhere.csv", "."])
def test_a_path_that_is_no_file_is_named(name: str, write: Callable[..., Path]) -> None:
    edges = write("edges.csv", EDGES)
    with pytest.raises(TableError, match=re.escape(str(edges.parent / name))):
        from_tables(edges.parent / name, edges, target="label")


def test_a_file_that_is_no_parquet_is_named(write: Callable[..., Path]) -> None:
    with pytest.raises(TableError, match=r"nodes\.parquet is not a Parquet file"):
        from_tables(write("nodes.parquet", "id\na\n"), write("edges.csv", EDGES))


def test_without_polars_the_reason_is_said_and_the_rest_works() -> None:
    code = "import sys; sys.modules['polars'] = None; import subtree_attention as sta; "
    code += "sta.recipe('cora'); sta.from_tables('nodes.csv', 'edges.csv')"
    source = str(Path(__file__).parents[3] / "src")
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": source}, capture_output=True, text=True
    )
    assert 'tables need polars: pip install "subtree-attention[tables]"' in done.stderr
