"""Training, evaluation and prediction on one's own tables, from the command line."""

import csv
import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import subtree_attention as sta
from subtree_attention import io
from subtree_attention.runs import predict
from subtree_attention.runs.folder import GRAPH
from subtree_attention.runs.predictions import write_columns
from subtree_attention.train.recipes import recipe
from subtree_attention.train.step import Trainer
from tests.runs.format1 import downgrade
from tests.samples import csv_text, friends, people

Outcome = tuple[int, str, str]
QUICK = ["--runs", "2", "--epochs", "8", "--hops", "2", "--heads", "2", "--device", "cpu"]
TABLES = ["--nodes", "nodes.csv", "--edges", "edges.csv", "--target", "label"]
WEIGHTED = [*TABLES, "--weight", "strength"]


@pytest.fixture
def here(run_sta: Callable[..., Outcome], tmp_path: Path) -> Path:
    """The folder in which `sta` runs, with two tables in it."""
    (tmp_path / "nodes.csv").write_text(csv_text(people()))
    (tmp_path / "edges.csv").write_text(csv_text(friends()))
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on weighted tables, whose files are gone."""
    data = sta.from_tables(people(), friends(), target="label", weight="strength")
    config = sta.recipe(data, graph="people", runs=2, epochs=8, hops=2, heads=2)
    return sta.fit(config, tmp_path_factory.mktemp("own") / "out", device="cpu", data=data).folder


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_train_evaluate_predict(run_sta: Callable[..., Outcome], here: Path) -> None:
    code, out, err = run_sta("train", *WEIGHTED, *QUICK, "--out", "mine")
    assert code == 0, err
    assert "category" in out
    assert "60 nodes, 50 with a label, 3 classes (k 19, o 17, r 14); 10 to be predicted" in out
    for name in ("nodes.csv", "edges.csv"):
        (here / name).unlink()  # the folder is enough from here on
    (here / "mine").rename(here / "moved")

    code, out, err = run_sta("evaluate", "moved", "--device", "cpu")
    assert code == 0, err
    lines = [line.split("│") for line in out.splitlines() if line.startswith("│")]
    assert len(lines) == 2
    assert all(line[4].strip() == line[5].strip() for line in lines)
    for words in ("macro F1", "ROC-AUC", "calibration error", "true class in rows"):
        assert words in out
    assert (here / "moved" / "confusion.png").read_bytes().startswith(b"\x89PNG")

    code, out, err = run_sta("predict", "moved", "--out", "p.csv", "--device", "cpu")
    assert code == 0, err
    assert "temperature" in out
    found = rows(here / "p.csv")
    assert [row["id"] for row in found] == people()["id"]
    assert list(found[0]) == ["id", "prediction", "known", "k", "o", "r"]
    assert [row["known"] or None for row in found] == people()["label"]
    for row in found:
        probabilities = {name: float(row[name]) for name in "kor"}
        assert sum(probabilities.values()) == pytest.approx(1, abs=1e-5)  # six digits each
        assert row["prediction"] == max(probabilities, key=probabilities.__getitem__)

    code, _, err = run_sta("predict", "moved", "--out", "p.csv")
    assert (code, "--force" in err) == (2, True)
    assert run_sta("predict", "moved", "--out", "p.parquet")[0] == 0
    parquet = pl.read_parquet(here / "p.parquet")
    assert parquet.columns == list(found[0])
    assert parquet["known"].to_list() == people()["label"]


def test_a_place_that_cannot_be_written_to_is_refused_before_the_work(
    trained: Path, run_sta: Callable[..., Outcome], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("runs.predict", "show.report.gather"):
        monkeypatch.setattr(f"subtree_attention.{name}", None)
    tables = ["--nodes", "nodes.csv", "--edges", "edges.csv", "--target", "label"]
    for command in (
        ["predict", str(trained), "--out", "/dev/null/p.csv"],
        ["report", str(trained), "--out", "/dev/null/r.html"],
        ["train", "--out", "/dev/null/mine"],
        ["train", *tables, "--out", "/dev/null/mine"],
        ["tune", "digits", "--out", "/dev/null/study"],
    ):
        code, out, err = run_sta(*command)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert "cannot write to /dev/null" in err


def test_a_folder_that_cannot_be_written_to_is_no_place_for_a_new_run(
    run_sta: Callable[..., Outcome], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(dir: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.TemporaryFile", fail)
    tables = ["--nodes", "nodes.csv", "--edges", "edges.csv", "--target", "label"]
    for command in (["train"], ["train", *tables], ["tune", "digits"]):
        code, out, err = run_sta(*command)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert f"cannot write to {here / 'runs'}" in err
        assert "(Read-only file system)" in err


def test_new_tables_are_predicted_and_checked(
    trained: Path, run_sta: Callable[..., Outcome], here: Path
) -> None:
    run_sta("predict", str(trained), "--out", "old.csv", "--device", "cpu")
    new = ["--nodes", "nodes.csv", "--edges", "edges.csv", "--device", "cpu"]
    code, out, err = run_sta("predict", str(trained), *new, "--out", "new.csv")
    assert code == 0, err
    assert "of 50 nodes with a label are right" in out
    for old, same in zip(rows(here / "old.csv"), rows(here / "new.csv"), strict=True):
        assert old["id"] == same["id"]
        assert float(old["k"]) == pytest.approx(float(same["k"]), abs=1e-4)  # CSV rounds the ages

    (here / "n.csv").write_text(csv_text(people(4, seed=3, prefix="n")))
    (here / "e.csv").write_text("source,target,strength\nn0,p1,2\nn1,n2,1\n")
    new = ["--nodes", "n.csv", "--edges", "e.csv", "--out", "joined.csv", "--device", "cpu"]
    code, _, err = run_sta("predict", str(trained), *new)
    assert (code, "the edge n0 -> p1 ends at a node that is not" in err) == (2, True)
    assert not (here / "joined.csv").exists()
    assert run_sta("predict", str(trained), *new, "--join")[0] == 0
    joined = {row["id"]: row for row in rows(here / "joined.csv")}
    assert list(joined) == ["n0", "n1", "n2", "n3"]

    code, out, err = run_sta("explain", str(trained), "n0", *new[:4], "--join", "--json")
    assert code == 0, err
    why = json.loads(out)
    assert (why["node"], why["predicted"]) == ("n0", joined["n0"]["prediction"])
    assert why["logit"] == pytest.approx(why["model_logit"], abs=1e-5)
    (neighbour,) = why["levels"][1]["sources"]
    assert (neighbour["node"], neighbour["label"]) == ("p1", people()["label"][1])
    code, _, err = run_sta("explain", str(trained), "n0", "--join")
    assert (code, "are for new tables" in err) == (2, True)

    (here / "n.csv").write_text("id,age,city\nn0,3,Rome\n")
    code, _, err = run_sta("predict", str(trained), *new, "--force")
    assert (code, "no column 'about' (a feature of the model)" in err) == (2, True)


def test_the_bundle_gives_the_graph_back(trained: Path) -> None:
    data = sta.from_tables(people(), friends(), target="label", weight="strength")
    run = sta.open(trained)
    again = run.dataset
    assert (again.ids, again.classes, again.schema) == (data.ids, data.classes, data.schema)
    assert again.notes == data.notes
    assert again.same_as(data)
    for name in ("x", "edge_index", "edge_weight", "y"):
        assert torch.equal(getattr(again, name), getattr(data, name)), name
    masks = torch.stack(tuple(run.split))
    assert torch.equal(masks.sum(0) == 1, again.y >= 0)  # each labelled node is in one part
    names = {path.name for path in trained.iterdir() if path.is_file()}
    listed = {"config.json", "environment.json", "summary.json"}
    assert names == {"graph.safetensors", "told.safetensors", "SHA256SUMS", *listed}


def test_sparse_features_and_a_split_of_its_own_are_kept(tmp_path: Path) -> None:
    nodes = people() | {"about": [f"word{i} word{i + 1} word{i + 2}" for i in range(60)]}
    nodes["part"] = ["train", "val", "test"] * 20
    options = {"target": "label", "features": ["about:text"], "split_column": "part"}
    data = sta.from_tables(nodes, friends(), **options)
    config = sta.recipe(data, epochs=2, hops=1)
    assert data.x.layout == torch.sparse_csr
    assert (config.data.split, config.fit.runs) == ("own", 1)
    run = sta.open(sta.fit(config, tmp_path / "out", device="cpu", data=data).folder)
    again = run.dataset.x
    assert torch.equal(again.to_dense(), data.x.to_dense())
    assert again.layout == torch.sparse_csr
    assert torch.equal(run.split.val, data.split("own").val)


def test_without_columns_positions_in_the_graph_are_the_features(
    run_sta: Callable[..., Outcome], here: Path
) -> None:
    nodes = people()
    bare = {"id": nodes["id"], "label": nodes["label"]}
    (here / "nodes.csv").write_text(csv_text(bare))
    code, _, err = run_sta("train", *TABLES, *QUICK, "--out", "mine")
    assert (code, "no column is left as a feature" in err) == (2, True)
    assert run_sta("train", *TABLES, *QUICK, "--encoding", "4", "--out", "mine")[0] == 0
    new = ["--nodes", "nodes.csv", "--edges", "edges.csv", "--out", "p.csv", "--device", "cpu"]
    code, out, err = run_sta("predict", "mine", *new)
    assert code == 0, err
    assert "Laplacian eigenvectors, which are others on another graph" in out


def test_a_run_is_not_gone_on_with_on_another_graph(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "out")
    (tmp_path / "out" / "summary.json").unlink()
    data = sta.from_tables(people(), friends(seed=1), target="label", weight="strength")
    config = sta.recipe(data, graph="people", runs=2, epochs=8, hops=2, heads=2)
    with pytest.raises(ValueError, match="was started on another graph"):
        sta.fit(config, tmp_path / "out", device="cpu", data=data, resume=True)
    with pytest.raises(ValueError, match="'cora' is a graph of the registry"):
        sta.fit(config.replace(graph="cora"), tmp_path / "cora", device="cpu", data=data)


def test_weights_of_edges_count(trained: Path) -> None:
    run = sta.open(trained, device="cpu")
    data = run.dataset
    graph = sta.Graph(data.edge_index, 60, data.edge_weight, run.config.model.transition)
    with torch.no_grad():
        logits = run.model(data.x, graph).double().numpy()
        unweighted = run.model(data.x, data.edge_index).double().numpy()
    found = predict(trained, device="cpu")
    expected = run.task.probabilities(logits, run.found)
    assert found.probabilities == pytest.approx(expected, abs=1e-6)
    without = run.task.probabilities(unweighted, run.found)
    assert np.abs(without - expected).max() > 1e-4


def test_a_run_that_was_stopped_goes_on_without_the_tables(
    run_sta: Callable[..., Outcome], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = Trainer._learn, iter(range(1000))

    def stopped(self: Trainer) -> None:
        original(self)
        if next(calls) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_learn", stopped)
    slow = ["--checkpoint-seconds", "0"]
    assert run_sta("train", *TABLES, *QUICK, *slow, "--out", "mine")[0] == 130
    monkeypatch.setattr(Trainer, "_learn", original)
    code, _, err = run_sta("train", *TABLES, "--resume", "--out", "mine")
    assert (code, "--resume takes the graph from the run" in err) == (2, True)
    (here / "nodes.csv").rename(here / "gone.csv")
    assert run_sta("train", "--resume", "--out", "mine", "--device", "cpu")[0] == 0
    (here / "gone.csv").rename(here / "nodes.csv")
    assert run_sta("train", *TABLES, *QUICK, "--out", "whole")[0] == 0
    for name in ("run-0/metrics.jsonl", "run-1/model.safetensors"):
        assert (here / "mine" / name).read_bytes() == (here / "whole" / name).read_bytes()


@pytest.mark.parametrize("alone", [[], ["--no-portfolio"]], ids=["portfolio", "alone"])
def test_references_that_were_cut_off_are_there_after_all(
    alone: list[str],
    run_sta: Callable[..., Outcome],
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("subtree_attention.train.beside.compare", stopped)
        assert run_sta("train", *TABLES, *QUICK, *alone, "--out", "mine")[0] == 130
    code, out, err = run_sta("train", "--resume", "--out", "mine", "--device", "cpu")
    assert code == 0, err
    found = sta.open(here / "mine" / "run-0").references
    assert found is not None
    assert "logistic regression" in out
    assert "references.json" in (here / "mine" / "SHA256SUMS").read_text()


def test_tune_then_train(run_sta: Callable[..., Outcome], here: Path) -> None:
    pytest.importorskip("optuna")
    small = ["--epochs", "2", "--device", "cpu", "--no-references"]
    code, out, err = run_sta("train", *TABLES, *small, "--tune", "6s", "--out", "mine")
    assert code == 0, err
    run = sta.open(here / "mine")
    assert run.portfolio is not None
    assert run.portfolio.budget is not None
    assert run.portfolio.seconds < run.portfolio.budget + 2
    assert f"{run.portfolio.won} won of" in out
    assert run.result.val >= run.portfolio.named(run.portfolio.won).val
    assert (run.dataset.ids, run.dataset.name) == (people()["id"], "nodes")
    code, _, err = run_sta("train", *TABLES, *small, "--tune", "20s", "--out", "mine")
    assert (code, "holds a run already" in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cora", *TABLES], "--edges is for tables of your own: leave it out, or 'cora'"),
        (["--target", "label"], "--nodes is missing"),
        (["--nodes", "nodes.csv", "--edges", "edges.csv"], "--target is missing"),
        (["--tune", "20s"], "--nodes is missing"),
        ([*TABLES, "--tune", "soon"], "unknown time of --tune 'soon'"),
        ([*TABLES, "--tune", "20s", "--no-portfolio"], "--tune begins with the portfolio"),
        (["cora", "--no-portfolio"], "--no-portfolio is for tables of your own"),
        ([*TABLES, "--split", "own"], "no split of its own: name its column with --split-column"),
        ([*TABLES, "--split", "fixed"], "unknown split of a graph of one's own 'fixed'"),
        ([*TABLES, "--features", "city:kategory"], "Did you mean 'category'"),
    ],
)
def test_a_mistake_leaves_nothing_behind(
    arguments: list[str], message: str, run_sta: Callable[..., Outcome], here: Path
) -> None:
    code, _, err = run_sta("train", *arguments)
    assert code == 2
    assert message in err
    assert sorted(path.name for path in here.iterdir()) == ["edges.csv", "nodes.csv"]


def test_features_can_be_chosen(run_sta: Callable[..., Outcome], here: Path) -> None:
    options = ["--features", "age,city", "--features", "tags:category", "--directed"]
    code, _, err = run_sta("train", *TABLES, *QUICK, *options, "--out", "mine")
    assert code == 0, err
    schema = sta.open(here / "mine").dataset.schema
    kinds = {column.name: column.kind for column in schema.columns}
    assert kinds == {"age": "number", "city": "category", "tags": "category"}
    assert schema.directed


def test_graphs_of_the_registry_are_predicted_by_number_and_have_no_columns(
    run_sta: Callable[..., Outcome], here: Path
) -> None:
    assert run_sta("train", "digits", *QUICK, "--out", "digits")[0] == 0
    assert not (here / "digits" / "graph.safetensors").exists()
    assert run_sta("predict", "digits", "--out", "p.csv", "--device", "cpu")[0] == 0
    found = rows(here / "p.csv")
    assert [row["id"] for row in found] == [str(i) for i in range(1797)]
    assert list(found[0]) == ["id", "prediction", "known", *(str(i) for i in range(10))]
    new = ["--nodes", "nodes.csv", "--edges", "edges.csv"]
    code, _, err = run_sta("predict", "digits", *new, "--out", "new.csv")
    assert (code, "of the registry, which has no columns" in err) == (2, True)


def test_settings_go_by_size() -> None:
    data = sta.from_tables(people(), friends(), target="label")
    small = recipe(data)
    assert (small.data.encoding, small.data.split, small.fit.runs) == (0, "B", 5)
    x, y = torch.zeros(200_000, 1), torch.arange(200_000) % 100
    large = recipe(sta.Dataset(x, data.edge_index, y), graph="large")
    assert large.data.graph == "large"
    assert large.fit.runs < small.fit.runs
    assert large.model.name == "staformer"  # a state would have a hundred classes
    large = recipe(sta.Dataset(x, data.edge_index, y), graph="large", model="stagnn")
    hidden = large.model.hidden_channels
    assert 4 * 200_000 * 100 * hidden <= 2**30 or hidden == 16


# ------------------------------------------------------------------------------- hostile folders


def spoil_json(name: str, change: Callable[[object], object]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps(change(json.loads(path.read_text()))))

    return spoil


def spoil_tensor(name: str, change: Callable[[torch.Tensor], object]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        tensors, header = io.read_tensors(folder / GRAPH)
        tensors[name] = change(tensors[name])  # type: ignore[assignment]
        tensors = {key: value for key, value in tensors.items() if value is not None}
        io.write_tensors(folder / GRAPH, tensors, header)

    return spoil


def as_sparse(folder: Path) -> None:
    """Features in compressed rows that point far outside."""
    tensors, header = io.read_tensors(folder / GRAPH)
    count = tensors.pop("x").size(0)
    tensors["x_values"] = torch.ones(count)
    tensors["x_columns"] = torch.full((count,), 10**9)
    tensors["x_row_starts"] = torch.arange(count + 1)
    io.write_tensors(folder / GRAPH, tensors, header)


def wrong_sizes(folder: Path) -> None:
    path = folder / "run-0" / "model.safetensors"
    tensors, header = io.read_tensors(path)
    header["sizes"]["in_channels"] = 10**12
    io.write_tensors(path, tensors, header)
    shutil.rmtree(folder / "run-1")


HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "graph gone": (lambda f: (f / GRAPH).unlink(), "graph.safetensors is missing"),
    "graph cut": (lambda f: (f / GRAPH).write_bytes(b"abc"), "cannot be read"),
    "a pickle": (lambda f: (f / GRAPH).write_bytes(b"\x80\x04K\x01."), "cannot be read"),
    "ids gone": (lambda f: (f / "ids.json").unlink(), "ids.json is missing"),
    "ids twice": (spoil_json("ids.json", lambda ids: ["p1", *ids[1:]]), "ids must be different"),
    "ids few": (spoil_json("ids.json", lambda ids: ids[:-1]), "is broken"),
    "ids numbers": (
        spoil_json("ids.json", lambda ids: list(range(60))),
        "ids must be a list of texts",
    ),
    "columns": (spoil_json("columns.json", lambda c: c | {"recipe": {}}), "schema"),
    "not a table": (spoil_json("columns.json", lambda c: [1]), "is broken"),
    "no classes": (spoil_json("columns.json", lambda c: {"a": 1}), "is missing"),
    "edges": (spoil_tensor("edge_index", lambda t: t + 60), "edge_index names a node outside"),
    "negative": (spoil_tensor("edge_index", lambda t: t - 60), "edge_index names a node outside"),
    "labels": (spoil_tensor("y", lambda t: t + 10**6), "y must be one of 3 classes"),
    "no labels": (spoil_tensor("y", lambda t: None), "'y' is missing"),
    "weights": (
        spoil_tensor("edge_weight", lambda t: t * torch.nan),
        "edge_weight must be",
    ),
    "features": (spoil_tensor("x", lambda t: t[:, :2]), "x is not float32"),
    "infinite": (spoil_tensor("x", lambda t: t / 0), "x must be finite"),
    "sparse": (as_sparse, "is broken"),
    "sizes": (wrong_sizes, "does not fit its own settings"),
    "summary": (spoil_json("run-0/summary.json", lambda s: {"val": "x"}), "no summary of a run"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_broken_or_hostile_folder_is_a_plain_error(
    name: str, trained: Path, run_sta: Callable[..., Outcome], tmp_path: Path
) -> None:
    """Of the first format, whose parts lie open; today's has a checksum, see tests/datasets."""
    shutil.copytree(trained, tmp_path / "copy")
    downgrade(tmp_path / "copy")
    spoil, message = HOSTILE[name]
    spoil(tmp_path / "copy")
    code, _, err = run_sta("predict", "copy", "--out", "p.csv", "--device", "cpu")
    assert code == 2
    assert message in err
    assert len(err.splitlines()) <= 3
    assert not (tmp_path / "p.csv").exists()


def test_a_folder_with_a_run_is_refused_before_tables_are_read(
    trained: Path, run_sta: Callable[..., Outcome]
) -> None:
    tables = ["--nodes", "nobody.csv", "--edges", "nothing.csv", "--target", "label"]
    code, _, err = run_sta("train", *tables, "--out", str(trained))
    assert (code, "holds a run already" in err) == (2, True)


def test_a_run_with_batch_norm_is_opened_as_any(tmp_path: Path) -> None:
    """Its counter is the one weight that is no float32."""
    how = {"model": "staformer", "norm": "batch", "epochs": 3, "layers": 1, "runs": 1}
    result = sta.fit(sta.recipe("digits", **how), tmp_path / "out", device="cpu")
    run = sta.open(result.folder)
    logits = run.model(run.dataset.features, run.graph)
    assert logits.argmax(1).tolist() == run.logits.argmax(1).tolist()
    assert sta.predict(result.folder).ids == run.unit_ids


def test_large_numbers_keep_what_tells_them_apart(tmp_path: Path) -> None:
    values = np.array([1_700_004_605.25, 28.1234567891])
    own = {"id": ["a", "b"], "prediction": values.tolist()}
    write_columns(tmp_path / "p.csv", own, {"low": values}, False, {"prediction": float})
    assert (tmp_path / "p.csv").read_text().splitlines()[1:] == [
        "a,1700004605.25,1700004605.25",
        "b,28.12345679,28.12345679",
    ]
