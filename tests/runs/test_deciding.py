"""Thresholds, rejections and sets of a run: in Python, in files, on the command line, shown."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import subtree_attention as sta
from subtree_attention import cli
from subtree_attention.runs.predictions import write
from subtree_attention.show import report

pl = pytest.importorskip("polars")

N = 300
QUICK: dict[str, Any] = {"runs": 1, "epochs": 15, "hops": 1, "heads": 1, "hidden_channels": 8}


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STA_BACKEND", "torch")  # a few epochs are not worth compiling kernels


def cards(first: int = 0, count: int = N) -> dict[str, list[Any]]:
    """A table of nodes of which an eighth is "fraud"; every tenth has no label."""
    random = np.random.default_rng(first)
    fraud = random.random(count) < 0.125
    labels = ["fraud" if is_one else "ok" for is_one in fraud]
    return {
        "id": [f"n{row}" for row in range(first, first + count)],
        "amount": (random.normal(size=count) + 1.5 * fraud).round(4).tolist(),
        "label": [None if row % 10 == 9 else label for row, label in enumerate(labels)],
        "price": (random.normal(size=count) + 3 * fraud).round(4).tolist(),
    }


def pays(first: int = 0, count: int = N) -> dict[str, list[str]]:
    ends = np.random.default_rng(first + 1).integers(first, first + count, (2, 3 * count))
    return {"source": [f"n{i}" for i in ends[0]], "target": [f"n{i}" for i in ends[1]]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two classes, with class weights."""
    data = sta.from_tables(cards(), pays(), "label", features=["amount"])
    config = sta.recipe(data, graph="cards", class_weights="balanced", **QUICK)
    return sta.fit(config, tmp_path_factory.mktemp("cards") / "out", data=data, device="cpu").folder


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_rejection_is_an_empty_prediction_and_is_said(folder: Path, tmp_path: Path) -> None:
    found, path = sta.predict(folder, reject=0.2), tmp_path / "p.csv"
    write(found, path)
    table = rows(path)
    assert list(table[0]) == ["id", "prediction", "known", "rejected", "fraud", "ok"]
    assert {row["rejected"] for row in table} == {"yes", "no"}
    for row, value in zip(table, found.predicted, strict=True):
        assert (row["rejected"] == "yes") == (row["prediction"] == "") == (value is None)
    write(found, tmp_path / "p.parquet")
    kept = pl.read_parquet(tmp_path / "p.parquet")
    assert kept["prediction"].null_count() == sum(value is None for value in found.predicted)
    assert found.decided.val.share == pytest.approx(0.8, abs=0.02)


def test_a_single_new_node_is_rejected_by_what_validation_said(folder: Path) -> None:
    amounts = np.linspace(-3, 4, 200)  # from a sure no to a sure yes
    ids = [f"new-{number}" for number in range(200)]
    edges = {"source": ids, "target": ids}
    all_of_them = sta.predict(folder, {"id": ids, "amount": amounts}, edges)
    sure, least = all_of_them.answers.sureness, sta.predict(folder, reject=0.3).decided.least
    for at in (int(sure.argmin()), int(sure.argmax())):
        new, edges = (
            {"id": ["new"], "amount": [amounts[at]]},
            {"source": ["new"], "target": ["new"]},
        )
        alone = sta.predict(folder, new, edges, reject=0.3)
        assert (alone.predicted[0] is None) == (sure[at] < least)
    assert sure.min() < least < sure.max()


def test_sets_hold_the_prediction_and_are_lists_in_files(folder: Path, tmp_path: Path) -> None:
    found, path = sta.predict(folder, coverage=0.9), tmp_path / "p.csv"
    write(found, path)
    table = rows(path)
    assert list(table[0]) == ["id", "prediction", "known", "set", "fraud", "ok"]
    assert [json.loads(row["set"]) for row in table] == found.sets
    assert all(value in some for value, some in zip(found.predicted, found.sets, strict=True))
    assert {len(some) for some in found.sets} == {1, 2}
    write(found, tmp_path / "p.parquet")
    assert pl.read_parquet(tmp_path / "p.parquet")["set"].to_list() == found.sets
    with pytest.raises(ValueError, match="there are no sets of classes: predict with coverage"):
        sta.predict(folder).sets  # noqa: B018 - it is refused


def test_a_threshold_is_about_the_rarer_class(folder: Path) -> None:
    found = sta.predict(folder, threshold=0.3)
    at = found.classes.index("fraud")
    flags = found.probabilities[:, at] > 0.3
    assert [value == "fraud" for value in found.predicted] == flags.tolist()
    other = sta.predict(folder, threshold=0.7, cls="ok")
    assert found.predicted == other.predicted  # the same line from the other side
    new = cards(N, 40)
    asked = sta.predict(folder, new, pays(N, 40), threshold=0.3)
    flags = asked.probabilities[:, at] > 0.3
    assert [value == "fraud" for value in asked.predicted] == flags.tolist()


def test_the_command_says_what_it_does_on_validation_and_test(folder: Path, in_process) -> None:
    sta_ = in_process(cli.main)
    code, printed, _ = sta_("predict", str(folder), "--threshold", "0.3")
    assert code == 0
    assert "class 'fraud' is the answer where its probability is above 30 %" in printed
    assert "without the class weights" in printed
    code, printed, _ = sta_("predict", str(folder), "--reject", "0.1", "--force")
    assert "no answer where the model is less sure than" in printed
    code, printed, _ = sta_("predict", str(folder), "--coverage", "0.9", "--force")
    assert "sets hold the true class for 90 % of the nodes" in printed
    assert "expect slightly less" in " ".join(printed.split())
    code, _, said = sta_("predict", str(folder), "--reject", "0.1", "--coverage", "0.9", "--force")
    assert code == 2
    assert "reject and coverage are different answers" in said
    code, printed, _ = sta_("evaluate", str(folder))
    for words in ("(--reject)", "(--coverage)", "Class 'fraud' above a probability (--threshold)"):
        assert words in printed


def test_the_report_says_how_it_was_scored_and_what_could_be_chosen(folder: Path) -> None:
    page = report.render(report.gather(folder, device="cpu"))
    assert "models are chosen by the average precision of class &#39;fraud&#39;" in page
    assert "in which each class counts as much as any other, however small it is" in page
    assert "Fewer answers, or more careful ones" in page
    assert 'aria-label="accuracy of the answered by the share of the rejected"' in page
    assert page.count("(--threshold)") == page.count("(--coverage)") == 1


def test_numbers_take_the_coverage_of_their_intervals(tmp_path: Path) -> None:
    data = sta.from_tables(cards(), pays(), "price", features=["amount"], task="regression")
    config = sta.recipe(data, graph="prices", **QUICK)
    folder = sta.fit(config, tmp_path / "out", data=data, device="cpu").folder
    narrow, wide = (sta.predict(folder, coverage=level) for level in (0.5, 0.95))
    assert (narrow.calibration.level, wide.calibration.level) == (0.5, 0.95)
    usual = sta.predict(folder)
    spans = [some.answers.high[0] - some.answers.low[0] for some in (narrow, usual, wide)]
    assert spans == sorted(set(spans))
    new = sta.predict(folder, cards(N, 40), pays(N, 40), coverage=0.5)
    assert new.answers.high[0] - new.answers.low[0] == pytest.approx(spans[0])
    page = report.render(report.gather(folder, device="cpu"))
    assert "Fewer answers" not in page


def test_graphs_are_weighed_rejected_and_held_as_nodes_are(tmp_path: Path) -> None:
    ring = torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]])
    rare = [number % 8 == 0 for number in range(160)]
    graphs = [Data(x=torch.rand(3, 4) + yes, edge_index=ring, y=int(yes)) for yes in rare]
    data = sta.from_graphs(graphs)
    quick = {"runs": 1, "epochs": 8, "hidden_channels": 8, "layers": 1}
    config = sta.recipe(data, graph="rings", class_weights="balanced", **quick)
    assert config.task.metric == "average_precision"
    folder = sta.fit(config, tmp_path / "out", data=data, device="cpu").folder
    assert sta.predict(folder, threshold=0.3).decided.cls == "1"
    assert None in sta.predict(folder, reject=0.3).predicted
    assert len(sta.predict(folder, coverage=0.9).sets) == 160
    page = report.render(report.gather(folder, device="cpu"))
    assert "has 87.5 % of the graphs: models are chosen by the average precision" in page
