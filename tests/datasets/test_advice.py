"""What is said before training: of columns, of nodes without edges, of what gives a target away."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from subtree_attention import datasets
from subtree_attention.datasets import Dataset, TableError
from subtree_attention.datasets.tables.schema import TableNotes
from subtree_attention.show.tables import show

N = 200
RANDOM = np.random.default_rng(0)
LABELS = RANDOM.choice(["yes", "no", "perhaps"], N, p=[0.5, 0.3, 0.2])
NUMBERS = RANDOM.normal(size=N)
RING = {"source": [f"n{i}" for i in range(N)], "target": [f"n{(i + 1) % N}" for i in range(N)]}
IDS = [f"n{i}" for i in range(N)]


def made(
    target: str = "label", *, edges: Any = None, task: str = "classification", **more: Any
) -> Dataset:
    """A ring with a column of chance, and more columns or options."""
    options = {name: more.pop(name) for name in ("features", "leave_out") if name in more}
    nodes = {"id": IDS, "chance": RANDOM.normal(size=N), "label": LABELS, **more}
    return datasets.from_tables(nodes, edges or RING, target, task=task, **options)


def warned(data: Dataset) -> list[str]:
    assert data.notes is not None
    return data.notes.warnings


def kinds(data: Dataset) -> dict[str, str]:
    assert data.notes is not None
    return {line.name: line.note or line.kind for line in data.notes.columns}


def test_a_plain_table_gets_no_advice() -> None:
    cities, many = (
        RANDOM.choice(list("abcde"), N),
        [f"{v} street" for v in RANDOM.integers(0, 90, N)],
    )
    assert warned(made(city=cities, street=many, age=RANDOM.integers(18, 90, N))) == []


def test_a_class_that_may_stand_for_none_is_named() -> None:
    label = ["?" if i < 7 else name for i, name in enumerate(LABELS)]
    assert warned(made(target="said", said=label, leave_out=["label"])) == [
        "'?' is a class here, of 7 nodes: if it means that the class is not known, leave these "
        "cells empty"
    ]


def test_placeholders_among_numbers_are_missing() -> None:
    size = ["-" if i == 3 else "?" if i == 5 else f"{v:.3f}" for i, v in enumerate(NUMBERS)]
    data = made(size=size)
    assert kinds(data)["size"] == "'-' and '?' taken as missing"
    assert data.notes is not None
    assert [line.missing for line in data.notes.columns if line.name == "size"] == [2]
    known = made(target="size", task="regression", size=size, leave_out=["label"]).known
    assert int(known.sum()) == N - 2
    assert kinds(made(sign=["+" if v > 0 else "-" for v in NUMBERS]))["sign"] == "category"


def test_dates_with_names_of_months_are_said_to_be_none() -> None:
    days = [f"Jan {i % 28 + 1}, {1800 + i}" for i in range(N)]
    assert warned(made(day=days)) == [
        "column 'day' looks like dates, such as 'Jan 1, 1800', which are not read as dates: write "
        "them as 2024-01-05"
    ]
    short = made(day=[f"{i % 28 + 1}-Jan-{1800 + i}" for i in range(N)])
    assert "looks like dates, such as '1-Jan-1800'" in kinds(short)["day"]


def test_nodes_without_edges_are_counted() -> None:
    half = {name: [*ends[: N // 2 - 1], "n150"] for name, ends in RING.items()}  # and a self-loop
    assert warned(made(edges=half)) == [
        "100 of 200 nodes (50.0 %) have no edge to another: their own columns are all that the "
        "model can know of them"
    ]
    data = made()
    new = {"id": ["x", "y"], "chance": [0, 1]}
    joined = datasets.join_tables(data, new, {"source": ["x"], "target": ["n0"]})
    assert warned(joined) == [
        "1 of 2 nodes (50.0 %) has no edge to another: its own columns are all that the model can "
        "know of it"
    ]
    other = datasets.apply_schema(data, new, {"source": ["x"], "target": ["x"]})
    assert warned(other)[0].startswith("2 of 2 nodes (100.0 %)")


def test_a_column_of_one_value_is_left_out_unless_it_is_asked_for_or_all_there_is() -> None:
    same = {"country": ["IT"] * N, "year": [2026] * N, "partly": [1.0, None] * (N // 2)}
    told = kinds(made(**same))
    assert told["country"] == told["year"] == "holds one value only"
    assert told["partly"] == "number"  # that it is missing may tell something
    assert kinds(made(**same, features=["country"])) == {"country": "category"}
    alone = datasets.from_tables({"id": IDS, "one": [1] * N, "label": LABELS}, RING, "label")
    assert alone.x.shape == (N, 1)


def test_a_split_is_no_feature_unasked() -> None:
    part = RANDOM.choice(["Train", "valid", "test", None], N).tolist()
    data = made(part=part, train_mask=[True, False] * (N // 2), test_mask=["0", "1"] * (N // 2))
    assert warned(data) == [
        "column 'part' holds train, val and test, and is no feature: to train on that split, use "
        "--split-column part"
    ]
    assert data.num_features == 1
    assert "mask of a split" in kinds(data)["train_mask"]
    assert made(part=part, features=["part"]).num_features == 3
    links = made("label", part=part, task="link")
    assert (warned(links), kinds(links)["part"]) == ([], kinds(links)["part"])
    assert "links are split at random" in kinds(links)["part"]
    both = made(part=RANDOM.choice(["train", "bus"], N))  # another kind of train
    assert kinds(both)["part"] == "category"


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("row", range(1000, 1000 + N), "looks like an id"),
        ("serial", np.cumsum(RANDOM.integers(1, 9, N)), "looks like an id"),
        ("customerId", RANDOM.permutation(10**6)[:N], "looks like an id"),
        ("account no", [str(v) for v in RANDOM.permutation(10**6)[:N]], "looks like an id"),
        ("zip", RANDOM.choice([10115, 20095, 80331], N), "'zip:category' (--features), or leave"),
        ("zip_code", RANDOM.integers(10**4, 10**5, N // 2).tolist() * 2, "(--leave-out zip_code)"),
        ("views", np.sort(RANDOM.permutation(10**6)[:N] ** 2), ""),  # sorted, but not counted up
        ("population", RANDOM.permutation(10**6)[:N], ""),
        ("age", RANDOM.integers(18, 90, N), ""),
        ("zip", RANDOM.normal(size=N), ""),
        ("born", [f"{1900 + i // 10}-01-{10 + i % 10}" for i in range(N)], ""),
        ("width", RANDOM.integers(0, 90, N), ""),  # no 'id' in it
        ("postal", [0, 1] * (N // 2), ""),  # yes or no
    ],
)
def test_numbers_that_are_names(name: str, values: Any, words: str) -> None:
    told = warned(made(**{name: list(values)}))
    assert [words in line for line in told] == [True] * bool(words)
    if words:
        assert warned(made(**{name: list(values)}, features=[f"{name}:number"])) == []
        assert warned(made(**{name: list(values)}, leave_out=[name])) == []


def noisy(values: Any, share: float) -> list:
    """Values of which a share is shuffled."""
    values, some = np.array(values), RANDOM.random(len(values)) < share
    values[some] = RANDOM.permutation(values[some])
    return values.tolist()


CODES = np.unique(LABELS, return_inverse=True)[1]
YES = np.where(LABELS == "yes", "gone", "stays")


@pytest.mark.parametrize(
    "values",
    [
        [f"c{v}" for v in CODES],  # a category
        noisy([f"c{v}" for v in CODES], 0.05),
        CODES,
        CODES * 100 + RANDOM.random(N),  # by two thresholds
        [["tag", f"is {v}"] if v else ["tag"] for v in CODES],  # tags
        [f"the client {IDS[i]} was then told {v} by us" for i, v in enumerate(LABELS)],  # text
    ],
)
def test_a_column_that_decides_the_class_is_named(values: Any) -> None:
    told = warned(made(after=list(values)))
    assert len(told) == 1
    assert told[0].startswith("column 'after' alone tells ")
    assert "leave" in told[0]
    assert "(--leave-out after)" in told[0]


def test_how_well_it_decides_is_said() -> None:
    data = made(
        target="gone",
        gone=YES,
        ended=[1.0 if v == "gone" else None for v in YES],
        leave_out=["label"],
    )
    largest = max(np.mean(YES == "gone"), np.mean(YES == "stays"))
    assert warned(data) == [
        f"column 'ended' alone tells all classes; the largest class is {100 * largest:.1f} %: if "
        "it is known only afterwards, leave it out (--leave-out ended)"
    ]
    tags = [["a", "gone!"] if v == "gone" else ["a", "b"][: 1 + i % 2] for i, v in enumerate(YES)]
    told = warned(made(target="gone", gone=YES, tags=tags, leave_out=["label"]))
    assert "(by 'gone!')" in told[0]
    assert "take that word out, or leave the column out" in told[0]


@pytest.mark.parametrize("rare", [False, True])
def test_chance_decides_nothing(rare: bool) -> None:
    label = np.where(RANDOM.random(N) < 0.04, "bad", "good") if rare else LABELS
    columns = {
        "many": [f"v{v}" for v in RANDOM.integers(0, 15, N)],
        "half": (CODES + RANDOM.normal(size=N)).tolist(),  # it helps, and may
        "tags": [[f"t{v}" for v in RANDOM.integers(0, 500, 4)] for _ in range(N)],
        "text": [" ".join(f"w{v}" for v in RANDOM.integers(0, 300, 6)) for _ in range(N)],
        "weak": noisy([f"c{v}" for v in CODES], 0.5),
    }
    assert warned(made(target="verdict", verdict=label, **columns, leave_out=["label"])) == []
    every = [f"v{v // 2}" for v in RANDOM.permutation(N)]  # a category of two nodes each
    assert warned(made(every=every, features=["chance", "every:category"])) == []


def test_a_column_that_orders_the_numbers_is_named() -> None:
    told = warned(
        made(
            "price",
            price=np.exp(NUMBERS),
            gross=1.19 * np.exp(NUMBERS) + 3,
            near=NUMBERS + RANDOM.normal(size=N),
            task="regression",
        )
    )
    assert len(told) == 1
    assert told[0].startswith(
        "column 'gross' alone tells the order of the numbers of 'price' to 99."
    )


def test_a_column_that_decides_a_label_is_named() -> None:
    hobbies = [[h for h in ("golf", "chess") if RANDOM.random() < 0.4] for _ in range(N)]
    club = ["in" if "golf" in some else "out" for some in hobbies]
    bought = [[f"{h} set" for h in some if h == "chess"] + ["tea"] for some in hobbies]
    told = warned(
        made(
            "hobbies",
            hobbies=hobbies,
            club=club,
            bought=bought,
            task="multilabel",
            leave_out=["label"],
        )
    )
    assert sorted(line.split(" nodes")[0] for line in told) == [
        "column 'bought' alone tells the label 'chess' of all of the",
        "column 'club' alone tells the label 'golf' of all of the",
    ]
    assert any("(by 'chess set'); always the same answer is right for " in line for line in told)


def test_graphs_are_looked_at_one_by_one() -> None:
    graphs = [f"g{i}" for i in range(40)]
    toxic = RANDOM.choice(["yes", "no"], 40)
    atoms = {
        "molecule": [g for g in graphs for _ in range(3)],
        "id": [str(i) for _ in graphs for i in range(3)],
        "mass": RANDOM.normal(size=120),
        "mark": [t for t in toxic for _ in range(3)],
    }
    bonds = {"molecule": graphs, "source": ["0"] * 40, "target": ["1"] * 40}
    table = {
        "molecule": graphs,
        "toxic": toxic,
        "died": np.where(toxic == "yes", 3.0, 1.0) + RANDOM.random(40),
    }
    table["part"] = RANDOM.choice(["train", "val", "test"], 40)
    data = datasets.from_tables(
        atoms, bonds, "toxic", graph_column="molecule", graphs=table, task="graph-classification"
    )
    told = " ".join(warned(data))
    assert "--split-column part" in told
    assert "40 of 120 nodes (33.3 %) have no edge" in told
    assert "column 'mark' alone tells all classes" in told
    assert "column 'died' alone tells" in told
    left = datasets.from_tables(
        atoms,
        bonds,
        "toxic",
        graph_column="molecule",
        graphs=table,
        leave_out=["died", "mark"],
        task="graph-classification",
    )
    assert "alone tells" not in " ".join(warned(left))


def test_what_is_left_out_is_left_out() -> None:
    data = made(age=RANDOM.integers(0, 90, N), leave_out=["age"])
    assert kinds(data)["age"] == "as asked (--leave-out)"
    assert data.num_features == 1
    with pytest.raises(TableError, match=r"no column 'agee' \(--leave-out\). Near: age"):
        made(age=CODES, leave_out=["agee"])
    with pytest.raises(
        TableError, match=r"'label' .--leave-out. is the id, the label or the split"
    ):
        made(leave_out=["label"])
    with pytest.raises(TableError, match="cannot be both in --features and in --leave-out"):
        made(age=CODES, features=["age:category"], leave_out=["age"])
    with pytest.raises(TypeError, match="leave_out must be a list of columns, got 'age'"):
        made(age=CODES, leave_out="age")


def test_advice_is_kept_with_the_graph_and_shown(tmp_path: Path) -> None:
    data = made(after=[f"c{v}" for v in CODES])
    data.save(tmp_path / "graph.safetensors")
    assert warned(datasets.read(tmp_path / "graph.safetensors")) == warned(data)
    assert data.notes is not None
    console = Console(record=True, width=100, file=io.StringIO())
    show(data.notes, console)
    shown = console.export_text()
    assert "to look at first:\n  - column 'after' alone tells all classes" in shown
    old = made().notes
    assert old is not None
    content = json.loads(json.dumps(old.to_dict()))
    assert "warnings" not in content  # as files were before
    assert TableNotes.from_dict(content).warnings == []


@pytest.mark.parametrize("name", ["twitch-es", "twitch-ptbr", "wiki-chameleon"])
def test_real_tables_are_not_suspected(name: str, mirror: Path) -> None:
    folder = mirror / "tables" / name
    nodes, edges = pl.read_csv(folder / "target.csv"), pl.read_csv(folder / "edges.csv")
    id = "new_id" if "new_id" in nodes.columns else "id"
    tags = json.loads((folder / "features.json").read_text())
    nodes = nodes.with_columns(
        tags=pl.Series([[str(t) for t in tags.get(str(i), [])] for i in nodes[id]])
    )
    if name == "wiki-chameleon":
        assert warned(datasets.from_tables(nodes, edges, "target", id=id, task="regression")) == []
        return
    told = warned(datasets.from_tables(nodes, edges, "mature", id=id))
    assert [line.split(" (")[0] for line in told] == ["column 'id' looks like an id"]
    # Whether somebody is a partner is one of the tags, and the numbers were given out by the day.
    assert (
        "column 'tags' alone tells all"
        in warned(datasets.from_tables(nodes, edges, "partner", id=id))[-1]
    )
    days = warned(datasets.from_tables(nodes, edges, "days", id=id, task="regression"))
    assert "column 'id' alone tells the order of the numbers of 'days' to 99." in days[-1]
