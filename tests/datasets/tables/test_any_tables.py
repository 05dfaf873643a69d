"""Whatever is in two tables: a graph that passes every check and comes back from a file as it was,
or a refusal in our words."""

import csv
import io
import traceback
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("polars")

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from subtree_attention import Graph, from_tables
from subtree_attention.datasets import Dataset, apply_schema, read

here = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

# ------------------------------------------------------------------------------------- tables

WORDS = [
    *"[;\0\u2028é'\"\t ",
    "",
    "NA",
    "null",
    "7",
    "7.0",
    "07",
    "1,5",
    "2020-01-02",
    "[1]",
    "=1+1",
    "n1",
    "-1",
    "1.234,5",
    "1,234",
    "12 %",
    "€ 5",
    "\u22127",
    "01/02/2021",
    "31.12.99 10:30",
    "2021-03",
    "10:30",
    "a;b",
    "a|b",
    "中文",
]
LISTS = ['["a", "b"]', "['a', 'b']", "[0.5, 2]", "[1 2]", "two words", "a sentence of five words"]
texts = st.text(max_size=8) | st.sampled_from([*WORDS, *LISTS])
numbers = st.integers(-(2**70), 2**70) | st.integers(-5, 5) | st.floats() | st.floats(-1, 1)
values = st.one_of(
    st.none(),
    texts,
    numbers,
    st.booleans(),
    st.dates(),
    st.datetimes(),
    st.binary(max_size=4),
    st.decimals(allow_nan=False, places=2, min_value=-99, max_value=99),
    st.lists(texts, max_size=3),
    st.lists(st.lists(st.integers(0, 3), max_size=2), max_size=2),
    st.lists(st.none() | st.floats() | st.integers(-3, 2**70), max_size=2),
    st.complex_numbers(),
    st.just(2**200),
    st.just({"a": 1}),
)
scalars = [texts, numbers, st.none() | texts, st.none() | st.floats(), st.booleans(), st.none()]
few = [st.sampled_from("ab"), st.sampled_from([0, 1, 2.0]), st.dates()]
few += [st.lists(st.floats(-1, 1), min_size=2, max_size=2), st.sampled_from(WORDS)]
kinds = st.sampled_from([*scalars, *few, st.lists(texts, max_size=3), values])
names = st.sampled_from(["age", "city", "id", "label", "", " ", "a:b", "x:number", "größe", "1"])


def seldom(draw: st.DrawFn, often: int = 8) -> bool:
    """True once in a while: a table that is wrong in all it could be is refused for the first."""
    return draw(st.integers(0, often)) == often


@st.composite
def tables(draw: st.DrawFn) -> tuple[Any, Any, dict[str, Any]]:
    """Nodes n0, n1, ... with labels and columns of any kind, edges between them, and options; each
    may be something else."""
    count = draw(st.integers(0, 9)) if seldom(draw) else draw(st.integers(5, 9))
    known = [f"n{i}" for i in range(count)]
    ids = draw(st.lists(values, min_size=count, max_size=count)) if seldom(draw, 15) else known
    labels = [*"xxyy", *draw(st.lists(st.sampled_from(["x", "y", "z", None]), max_size=5))]
    nodes: dict[Any, Any] = {"id": ids, "label": (labels + [None] * count)[:count]}
    for name in draw(st.lists(names, max_size=4, unique=True)):
        length = draw(st.integers(0, 9)) if seldom(draw, 40) else count
        if name not in nodes or seldom(draw):
            nodes[name] = draw(st.lists(draw(kinds), min_size=length, max_size=length))
    ends = st.sampled_from(known or ["n0"])
    ends = ends | draw(st.sampled_from([values, st.just("n77")])) if seldom(draw) else ends
    weights = st.none() | values if seldom(draw) else st.floats(0, 9) | st.integers(0, 3)
    rows = draw(st.integers(0, 12)) if seldom(draw) else draw(st.integers(1, 12))
    columns = {"source": ends, "target": ends, "weight": weights}
    edges = {n: draw(st.lists(c, min_size=rows, max_size=rows)) for n, c in columns.items()}
    how: dict[str, Any] = {"target": "label"}
    if seldom(draw, 3):
        how["weight"] = "source" if seldom(draw) else "weight"
    if seldom(draw):
        how["target"] = draw(st.sampled_from([None, "age", "id", "nothing"]))
    for name, choices in ODD.items():
        if seldom(draw, 12):
            how[name] = draw(st.sampled_from(choices))
    return nodes, edges, how


ODD: dict[str, list[Any]] = {
    "directed": [True, False],
    "unknown_ends": ["drop", "error"],
    "id": ["id", "age", ""],
    "split_column": ["age", "city"],
    "features": [
        *([], ["age"], ["city:category"], ["age:tags"], ["city:text"], ["age:number"]),
        *(["age:vector"], ["city:date"], ["age:decimal-comma"], ["city:month-first"]),
    ],
}


def csv_file(path: Path, table: dict[Any, list[Any]], bom: bool, sign: str, quoting: int) -> Path:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=sign, quoting=quoting, escapechar="\\", lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=False))
    path.write_text(
        "\ufeff" * bom + text.getvalue(), encoding="utf-8", errors="replace", newline=""
    )
    return path


# -------------------------------------------------------------------------------------- tests


def holds(nodes: Any, edges: Any, how: dict[str, Any], folder: Path) -> None:
    """A graph or a refusal, and nothing else."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            data = from_tables(nodes, edges, **how)
    except (TypeError, ValueError) as error:
        event("refused")
        check_words(error)
        return
    event("a graph")
    data.save(folder / "graph.safetensors")
    again = read(folder / "graph.safetensors")
    assert again.same_as(data)
    assert again.fingerprint() == data.fingerprint()
    assert again.schema == data.schema
    assert Dataset(data.x, data.edge_index, data.y, data.edge_weight, classes=data.classes)
    matrix = Graph.from_data(data).matrix().weight
    assert bool(matrix.isfinite().all())
    # What was learnt from the tables makes the same of them again.
    assert apply_schema(again, nodes, edges, how.get("unknown_ends", "error")).same_as(
        again._with(splits={})
    )


def check_words(error: Exception) -> None:
    """One line, raised by one of ours and not by a library below."""
    *_, last = traceback.extract_tb(error.__traceback__)
    assert "subtree_attention" in last.filename
    assert (last.line or "").startswith("raise")
    assert len(str(error).splitlines()) == 1, str(error)


@here
@given(given=tables())
def test_columns(given: tuple[Any, Any, dict[str, Any]], tmp_path: Path) -> None:
    holds(*given, tmp_path)


@here
@given(
    given=tables(),
    bom=st.booleans(),
    sign=st.sampled_from(",;\t"),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONE]),
)
def test_csv(given: Any, bom: bool, sign: str, quoting: int, tmp_path: Path) -> None:
    nodes, edges, how = given
    files = [
        csv_file(tmp_path / name, table, bom, sign, quoting)
        for name, table in {"nodes.csv": nodes, "edges.csv": edges}.items()
    ]
    holds(*files, how, tmp_path)


@here
@given(content=st.binary(max_size=60), text=st.text(max_size=60))
def test_any_bytes_as_csv(content: bytes, text: str, tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_bytes(content)
    (tmp_path / "edges.csv").write_text(text, encoding="utf-8", errors="replace", newline="")
    holds(tmp_path / "nodes.csv", tmp_path / "edges.csv", {}, tmp_path)
