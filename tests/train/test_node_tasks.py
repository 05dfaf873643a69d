"""Labels and numbers of nodes, from tables to the report: what the command line and Python say."""

import csv
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import subtree_attention as sta
from subtree_attention.datasets import TableError
from subtree_attention.runs import evaluate
from subtree_attention.show import report
from subtree_attention.show.explanation import of_run
from subtree_attention.train.fit import Interrupted
from subtree_attention.train.run import Run
from subtree_attention.train.watch import Watch

pl = pytest.importorskip("polars")

N = 60
QUICK: dict[str, Any] = {"runs": 1, "epochs": 12, "hops": 1, "heads": 2, "hidden_channels": 8}
OPTIONS = [f"--{name.replace('_', '-')}={value}" for name, value in QUICK.items()]
TARGETS = {"regression": "price", "multilabel": "hobbies"}


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STA_BACKEND", "torch")  # a few epochs are not worth compiling kernels


def people(first: int = 0, count: int = N) -> dict[str, list[Any]]:
    """A table of nodes: every tenth has neither a price nor hobbies."""
    random = np.random.default_rng(first)
    size, rows = random.normal(size=count), range(first, first + count)
    unknown = np.arange(count) % 10 == 9
    prices = [None if none else math.exp(s + 4) for s, none in zip(size, unknown, strict=True)]
    hobbies = [
        None if none else [name for name, has in (("chess", s > 0), ("golf", s < 0.5)) if has]
        for s, none in zip(size, unknown, strict=True)
    ]
    return {
        "id": [f"n{row}" for row in rows],
        "size": size.round(4).tolist(),
        "part": [("train", "train", "val", "test")[row % 4] for row in rows],
        "price": prices,
        "hobbies": hobbies,
    }


def friends(first: int = 0, count: int = N) -> dict[str, list[str]]:
    ends = np.random.default_rng(first + 1).integers(first, first + count, (2, 3 * count))
    return {"source": [f"n{i}" for i in ends[0]], "target": [f"n{i}" for i in ends[1]]}


def tables(task: str, **more: Any) -> sta.Dataset:
    target = TARGETS[task]
    return sta.from_tables(people(), friends(), target, features=["size"], task=task, **more)


def write(path: Path, table: dict[str, list[Any]]) -> str:
    """As CSV: lists are JSON."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        for row in zip(*table.values(), strict=True):
            writer.writerow([json.dumps(v) if isinstance(v, list) else v for v in row])
    return str(path)


@pytest.fixture(scope="module", params=list(TARGETS))
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of each task."""
    data = tables(request.param)
    log = {"log_target": True} if request.param == "regression" else {}
    out = tmp_path_factory.mktemp("run") / "out"
    return sta.fit(sta.recipe(data, graph="shop", **QUICK, **log), out, data=data).folder


# --------------------------------------------------------------------------------------- tables


def test_numbers_of_a_table_are_the_target_and_missing_ones_are_not_known() -> None:
    data = tables("regression")
    prices = people()["price"]
    assert data.target == "number"
    assert data.classes == ()
    assert [None if math.isnan(v) else v for v in data.y.tolist()] == prices
    assert int(data.known.sum()) == N - N // 10
    assert data.label(9) is None
    assert sta.recipe(data).task.name == "node-regression"
    assert "54 with a number" in data.notes.words[1]
    split = data.split("B", 0)
    assert not bool((split.train | split.val | split.test)[~data.known].any())


def test_lists_of_a_table_are_labels_and_an_empty_list_is_known() -> None:
    nodes = {"id": ["a", "b", "c", "d"], "x": [1, 2, 3, 4], "y": ['["u","v"]', "[]", "", '["v"]']}
    data = sta.from_tables(nodes, {"source": ["a"], "target": ["b"]}, "y", task="multilabel")
    assert data.classes == ("u", "v")
    assert data.y[[0, 1, 3]].tolist() == [[1, 1], [0, 0], [0, 1]]
    assert data.known.tolist() == [True, True, False, True]
    assert [data.label(node) for node in range(4)] == ["u, v", "none", None, "v"]


@pytest.mark.parametrize(
    ("column", "task", "message"),
    [
        ("price", "classification", "to predict a number, use --task regression"),
        ("hobbies", "classification", "holds lists.* use --task multilabel"),
        ("hobbies", "regression", "column 'hobbies' is a number, but holds"),
        ("price", "multilabel", "holds no lists: labels are written as"),
        ("part", "multilabel", "holds no lists"),
        ("nothing", "regression", "'nothing' .--target. is empty: nothing to learn"),
    ],
)
def test_a_target_of_another_task_names_the_right_one(column, task, message, tmp_path) -> None:
    nodes = write(tmp_path / "nodes.csv", {**people(), "nothing": [None] * N})
    with pytest.raises(TableError, match=message):
        sta.from_tables(nodes, friends(), column, features=["size"], task=task)


def test_many_classes_that_are_numbers_get_a_note() -> None:
    nodes = {"id": list(range(90)), "x": list(range(90)), "age": [i % 30 for i in range(90)]}
    data = sta.from_tables(nodes, {"source": [0], "target": [1]}, "age")
    assert any("to predict a number, use --task regression" in note for note in data.notes.words)


def test_a_graph_with_labels_or_numbers_is_kept_as_it_is(tmp_path: Path) -> None:
    for task in TARGETS:
        data = tables(task, split_column="part")
        data.save(tmp_path / "graph.safetensors")
        again = sta.datasets.read(tmp_path / "graph.safetensors")
        assert again.same_as(data)
        assert again.schema == data.schema
        assert not again.same_as(data._with(y=data.y.roll(1, 0)))
        assert again.fingerprint() == data.fingerprint()


def test_data_of_pyg_says_by_its_type_what_is_learnt() -> None:
    edges = torch.randint(N, (2, 90))
    for y, task in [
        (torch.rand(N), "node-regression"),
        (torch.randint(2, (N, 3)), "node-multilabel"),
        (torch.randint(2, (N, 1)), "node-classification"),
    ]:
        assert sta.recipe(Data(x=torch.rand(N, 2), edge_index=edges, y=y)).task.name == task


# ---------------------------------------------------------------------------------- what is said


def test_scores_answers_and_trust_of_a_run_agree(trained: Path) -> None:
    run, (scores,) = sta.open(trained), evaluate(trained)
    assert scores.test == pytest.approx(run.result.test, abs=1e-6)
    named = scores.quality.told()
    if run.task.kind == "number":
        assert "R2 of the logarithm" in named
        assert run.task.metric.label == "R2 of the logarithm"
        test = run.split.test.numpy()
        off = run.answers.errors[test]
        inside = (np.abs(off) <= run.found["half_width"]).mean()
        assert run.calibration.test.share == pytest.approx(inside)
        assert run.calibration.val.share >= 0.9
        prices = [p for p, there in zip(people()["price"], test, strict=True) if there]
        assert run.answers.target[test] == pytest.approx(prices)
    else:
        assert run.probabilities == pytest.approx(run.answers.probabilities)
        assert set(named) >= {"micro F1", "macro F1", "ROC-AUC", "average precision"}


def test_predictions_are_written_as_the_task_has_them(trained: Path, tmp_path: Path) -> None:
    from subtree_attention.runs.predictions import write as write_predictions

    found = sta.predict(trained)
    for path in (tmp_path / "p.csv", tmp_path / "p.parquet"):
        write_predictions(found, path)
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    frame = pl.read_parquet(tmp_path / "p.parquet")
    assert [row["id"] for row in rows] == people()["id"] == frame["id"].to_list()
    assert rows[9]["known"] == ""
    assert frame["known"][9] is None
    if sta.open(trained).task.kind == "number":
        assert list(rows[0]) == ["id", "prediction", "known", "low", "high"]
        assert all(float(r["low"]) < float(r["prediction"]) < float(r["high"]) for r in rows)
        assert float(rows[0]["known"]) == pytest.approx(people()["price"][0])
        with pytest.raises(ValueError, match="numbers are predicted, which have no classes"):
            found.probabilities  # noqa: B018
    else:
        assert list(rows[0]) == ["id", "prediction", "known", "chess", "golf"]
        assert json.loads(rows[0]["known"]) == people()["hobbies"][0]
        given = [name for name in ("chess", "golf") if float(rows[0][name]) > 0.5]
        assert json.loads(rows[0]["prediction"]) == given == frame["prediction"][0].to_list()


def test_new_nodes_are_predicted_alone_and_joined(trained: Path) -> None:
    for join in (False, True):
        found = sta.predict(trained, people(N, 20), friends(N, 20), join=join)
        assert found.ids == [f"n{row}" for row in range(N, N + 20)]
        assert [value is None for value in found.known] == [row % 10 == 9 for row in range(20)]
    without = {name: values for name, values in people(N, 20).items() if name in ("id", "size")}
    assert sta.predict(trained, without, friends(N, 20)).known == [None] * 20


def test_an_explanation_adds_up_on_the_scale_that_is_told(trained: Path) -> None:
    run = sta.open(trained)
    told = of_run(run, "n3")
    parts = [level["contribution"][0] for level in told["levels"]] + told["bias"]
    assert sum(parts) == pytest.approx(told["logit"][0], abs=1e-6)
    assert told["rival"] is None
    if run.task.kind == "number":
        assert told["class"] == "log price"
        assert math.exp(told["logit"][0]) == pytest.approx(run.answers.values[3], rel=1e-5)
        with pytest.raises(ValueError, match="there is no class 'x': the target is a number"):
            of_run(run, "n3", "x")
    else:
        assert of_run(run, "n3", "golf")["class"] == "golf"
        share = 1 / (1 + math.exp(-told["logit"][0] / run.temperature))
        assert told["probability"] == pytest.approx([share], rel=1e-5)


def test_a_report_shows_what_fits_the_task(trained: Path) -> None:
    text = report.render(report.gather(trained))
    assert "What is taken for what" not in text
    if sta.open(trained).task.kind == "number":
        assert "Predicted against true" in text
        assert "Intervals reach from 1/" in text
        assert text.count("<circle") >= 10  # the test nodes
        assert "farthest off" in text
    else:
        assert "How well each label is told" in text
        assert "How far probabilities can be trusted" in text


# ------------------------------------------------------------------------------ the command line


@pytest.mark.parametrize("task", list(TARGETS))
def test_the_commands_from_tables_to_predictions(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_sta: Callable[..., Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    nodes, edges = write(Path("nodes.csv"), people()), write(Path("edges.csv"), friends())
    given = ["--nodes", nodes, "--edges", edges, "--target", TARGETS[task], "--task", task]
    given += ["--features", "size", "--split-column", "part", "--out", "out", "--device", "cpu"]
    code, out, err = run_sta("train", *given, *OPTIONS)
    assert (code, err) == (0, "")
    code, out, _ = run_sta("evaluate", "out", "--device", "cpu")
    assert code == 0
    assert ("in the interval" if task == "regression" else "golf") in out
    new = ["--nodes", write(Path("n.csv"), people(N, 20)), "--edges"]
    new += [write(Path("e.csv"), friends(N, 20)), "--join"]
    code, out, _ = run_sta("predict", "out", *new, "--out", "p.csv")
    assert code == 0
    assert "18 nodes with a " in out or "of 18 nodes with a label are right" in out
    assert run_sta("explain", "out", "n3")[0] == 0
    code, _, err = run_sta("explore", "out", "--no-open")
    assert code == 2
    assert f"this run is of {task}" in err
    code, _, err = run_sta("train", *given[:-4], "--out", "other", "--metric", "accuracy")
    assert code == 2
    assert "metric 'accuracy' is for --task classification" in err


def test_a_summary_that_lacks_something_is_found_again(trained: Path) -> None:
    run, whole = sta.open(trained), sta.open(trained)
    run.result = replace(run.result, **dict.fromkeys(run.task.finds[-1:]))
    assert run.found == pytest.approx(whole.found, rel=1e-6)
    assert list(run.found) == list(run.task.finds)


def test_a_graph_is_what_its_tables_were() -> None:
    data = tables("regression")
    with pytest.raises(ValueError, match="y is a class of each node, which its tables were not"):
        replace(data, y=torch.arange(N) % 2)


@pytest.mark.parametrize("metric", ["mae", "rmse", "r2"])
def test_the_best_epoch_and_the_best_run_are_those_with_the_best_score(
    metric: str, tmp_path: Path
) -> None:
    data = tables("regression")
    config = sta.recipe(data, graph="shop", metric=metric, **{**QUICK, "runs": 2})
    result = sta.fit(config, tmp_path / "out", data=data)
    sign = -1 if metric != "r2" else 1
    for index, one in enumerate(result.runs):
        run = sta.open(tmp_path / "out" / f"run-{index}")
        assert one.val == max((epoch.val for epoch in run.curves), key=lambda v: sign * v)
    best = max(result.runs, key=lambda one: sign * one.val)
    assert sta.open(tmp_path / "out").result.run == best.run


class StopAt(Watch):
    def epoch(self, run: Run) -> None:
        if run.epoch == 5:
            raise KeyboardInterrupt


@pytest.mark.parametrize("task", list(TARGETS))
def test_a_run_that_was_stopped_goes_on_to_the_same_numbers(task: str, tmp_path: Path) -> None:
    data = tables(task)
    config = sta.recipe(data, graph="shop", **QUICK, dropout=0.3)
    whole = sta.fit(config, tmp_path / "whole", data=data, device="cpu")
    with pytest.raises(Interrupted):
        sta.fit(config, tmp_path / "cut", data=data, device="cpu", watch=StopAt())
    resumed = sta.fit(config, tmp_path / "cut", data=data, device="cpu", resume=True)
    for one, other in zip(whole.runs, resumed.runs, strict=True):
        assert (one.val, one.test, one.found) == (other.val, other.test, other.found)


def test_a_search_keeps_the_smallest_error(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    from subtree_attention.tune import Proposals

    data, how = tables("regression"), {**QUICK, "graph": "shop", "metric": "mae", "runs": 1}
    out = tmp_path / "out"
    result = sta.fit_portfolio(data, out, device="cpu", more=Proposals(), budget=4.0, **how)
    assert result.portfolio is not None
    assert result.portfolio.winner is not None
    errors = [one.val for one in result.portfolio.scored if one.val is not None]
    assert result.portfolio.winner.val == min(errors)
