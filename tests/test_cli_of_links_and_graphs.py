"""The command line for links and for graphs: from tables to predictions, reports and refusals."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runs.test_links import nodes_and_edges
from tests.samples import csv_text

Outcome = tuple[int, str, str]
FAST = ("--epochs", "25", "--runs", "1", "--hidden-channels", "8", "--layers", "1", "--lr", "0.02")
FAST += ("--device", "cpu")


@pytest.fixture
def run(run_sta: Callable[..., Outcome]) -> Callable[..., str]:
    """Call a command that must succeed: what it printed."""

    def call(*words: str) -> str:
        code, printed, errors = run_sta(*words)
        assert code == 0, errors
        return printed

    return call


@pytest.fixture
def refused(run_sta: Callable[..., Outcome]) -> Callable[..., str]:
    """Call a command that must be refused: why."""

    def call(*words: str) -> str:
        code, _, errors = run_sta(*words)
        assert code == 2, errors
        return errors

    return call


def rows(path: str) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_links_from_tables_to_suggestions(run, refused, tmp_path: Path) -> None:
    nodes, edges = nodes_and_edges()
    Path("nodes.csv").write_text(csv_text(nodes))
    Path("edges.csv").write_text(csv_text(edges))
    tables = ("--nodes", "nodes.csv", "--edges", "edges.csv")
    printed = run("train", *tables, "--task", "link", *FAST, "--metric", "roc_auc", "--out", "run")
    assert "STAFormer on nodes: test ROC-AUC (%)" in printed

    printed = run("evaluate", "run")
    assert "test pairs (%)" in printed
    assert "Hits@100" in printed
    assert "found on the validation pairs" in printed

    assert "1 pair by run/run-0 written" in run("predict", "run", "--top", "1", "--out", "one.csv")
    printed = run("predict", "run", "--top", "7")
    assert "7 pairs by run/run-0 written to predictions.csv" in printed
    found = rows("predictions.csv")
    shares = [float(row["probability"]) for row in found]
    assert shares == sorted(shares, reverse=True)
    assert {row["known"] for row in found} == {""}

    Path("pairs.csv").write_text("a,b\nn0,n2\nn0,n1\n")
    run("predict", "run", "--pairs", "pairs.csv", "--out", "pairs.parquet")
    run("predict", "run", "--pairs", "pairs.csv", "--out", "p.csv")
    assert [(row["source"], row["target"]) for row in rows("p.csv")] == [("n0", "n2"), ("n0", "n1")]
    Path("wrong.csv").write_text("a,b\nn0,n99\n")
    error = refused("predict", "run", "--pairs", "wrong.csv", "--out", "q.csv")
    assert "wrong.csv, line 2: there is no node 'n99' among 30 ids" in error
    assert "--graphs is for a model of graphs" in refused(
        "predict", "run", "--graphs", "nodes.csv", "--out", "q.csv"
    )

    run("report", "run")
    page = Path("run/report.html").read_text()
    assert "70% of the links for training" in page
    assert "a pair is scored by an MLP" in page
    assert "test pairs are wrong" in page or "test pairs are right" in page
    for pair in (["n1"], ["n1", "n2"]):
        assert "pairs of nodes are not explained" in refused("explain", "run", *pair)
    error = refused("explore", "run", "--no-open")
    assert "the page draws classes of nodes, and this run is of link: 'sta report' shows" in error
    assert "choose one of them" in refused(
        "predict", "run", "--pairs", "pairs.csv", "--top", "3", "--out", "q.csv"
    )
    assert run("check", "run").endswith("0 wrong\n")


def test_what_is_of_nodes_is_not_for_links(run, refused) -> None:
    nodes, edges = nodes_and_edges()
    Path("nodes.csv").write_text(csv_text(nodes))
    Path("edges.csv").write_text(csv_text(edges))
    train = ("train", "--nodes", "nodes.csv", "--edges", "edges.csv", "--task", "link", *FAST)
    assert "links are split at random, by the seed" in refused(*train, "--split", "fixed")
    assert "a split column is not for links" in refused(*train, "--split-column", "group")
    assert "here every edge leads both ways" in refused(*train, "--decoder", "directed")
    printed = run(*train, "--target", "group", "--out", "run")
    assert "column 'group' (--target) is kept out of the features" in " ".join(printed.split())


def molecules(count: int, prefix: str) -> tuple[dict, dict, dict]:
    """Chains of two kinds of atoms; those with an atom X are toxic."""
    atoms: dict[str, list] = {"molecule": [], "id": [], "element": []}
    bonds: dict[str, list] = {"molecule": [], "source": [], "target": []}
    table: dict[str, list] = {"molecule": [], "toxic": []}
    for number in range(count):
        name, size = f"{prefix}{number}", 3 + number % 4
        toxic = number % 2 == 0
        for atom in range(size):
            element = "X" if toxic and atom == 1 else "C"
            for column, value in zip(atoms.values(), (name, f"a{atom}", element), strict=True):
                column.append(value)
        for atom in range(size - 1):
            ends = name, f"a{atom}", f"a{atom + 1}"
            for column, value in zip(bonds.values(), ends, strict=True):
                column.append(value)
        table["molecule"].append(name)
        table["toxic"].append("yes" if toxic else "no")
    return atoms, bonds, table


def write_tables(prefix: str, count: int, start: str) -> tuple[str, ...]:
    options = []
    names = ("nodes", "edges", "graphs")
    for name, columns in zip(names, molecules(count, start), strict=True):
        Path(f"{prefix}{name}.csv").write_text(csv_text(columns))
        options += [f"--{name}", f"{prefix}{name}.csv"]
    return tuple(options)


def test_graphs_from_tables_to_new_ones(run, refused) -> None:
    tables = write_tables("", 40, "m")
    train = ("train", *tables, "--graph-column", "molecule", "--target", "toxic", *FAST)
    printed = run(*train, "--out", "run", "--pooling", "max")
    assert "40 graphs, 40 with a label, 2 classes" in printed
    assert "STAFormer on nodes: test accuracy" in printed

    printed = run("evaluate", "run")
    assert "test graphs of run 0: true class in rows" in printed

    run("predict", "run")
    found = rows("predictions.csv")
    assert (len(found), found[0]["id"], found[0]["known"]) == (40, "m0", "yes")

    printed = run("predict", "run", *write_tables("new-", 4, "n"), "--out", "new.csv")
    assert "of 4 graphs with a label are right" in printed
    assert [row["id"] for row in rows("new.csv")] == ["n0", "n1", "n2", "n3"]

    told = json.loads(run("explain", "run", "m2", "--class", "yes", "--top", "2", "--json"))
    assert (told["graph"], told["label"], told["rest"]) == ("m2", "yes", told["nodes"] - 2)
    sources = {source["node"]: source["adds"] for source in told["sources"]}
    assert len(sources) == 2
    printed = run("explain", "run", "m2")
    assert "graph m2: predicted" in printed
    assert "left out of the pooling" in printed
    assert "there is no graph 'm99'" in refused("explain", "run", "m99")
    assert "one graph is explained at a time, got m1 m2" in refused("explain", "run", "m1", "m2")
    assert "--hops is for nodes" in refused("explain", "run", "m2", "--hops", "1")

    run("report", "run")
    page = Path("run/report.html").read_text()
    assert "40 graphs (40 with a label) of" in page
    assert "a graph is the maximum of its nodes" in page
    assert "Test graphs by true class" in page
    assert "None: all 8 test graphs are right" in page or "left out of the pooling" in page
    assert "--top is for a model of links" in refused("predict", "run", "--top", "3", "--force")


def test_numbers_of_graphs(run) -> None:
    tables = write_tables("", 40, "m")
    graphs = molecules(40, "m")[2]
    sizes = {"molecule": graphs["molecule"], "size": [3 + number % 4 for number in range(40)]}
    Path("graphs.csv").write_text(csv_text(sizes))
    how = ("--graph-column", "molecule", "--target", "size", "--task", "graph-regression", *FAST)
    printed = run("train", *tables, *how, "--metric", "mae", "--pooling", "sum", "--out", "run")
    assert "test MAE" in printed
    assert "test graphs" in run("evaluate", "run")
    run("predict", "run")
    assert rows("predictions.csv")[1].keys() == {"id", "prediction", "known", "low", "high"}
    assert "adds to size" in run("explain", "run", "m3")
    run("report", "run")
    assert "a number of each graph" in Path("run/report.html").read_text()


def test_what_does_not_go_together_is_refused(refused) -> None:
    tables = write_tables("", 8, "m")
    assert "--target is missing" in refused("train", *tables)
    error = refused(
        "train", *tables, "--graph-column", "molecule", "--target", "toxic", "--task", "link"
    )
    assert "links are predicted within one graph" in error
    error = refused("train", *tables, "--target", "toxic", "--graph-column", "mol")
    assert "has no column 'mol' (--graph-column). Near: molecule" in error
    error = refused(
        "train", *tables, "--graph-column", "molecule", "--target", "toxic", "--tune", "1m"
    )
    assert "--tune searches the settings of nodes" in error
    assert "'mutag' is learnt with STAFormer" in refused("tune", "mutag", "--trials", "1")
    error = refused("train", "digits", "--task", "graph-classification")
    assert "name the graph of each node with --graph-column" in error
    error = refused("train", "digits", "--task", "link", "--pooling", "max")
    assert "pooling is a setting of --task graph-classification or graph-regression" in error
