"""Correct and smooth at the end of a run: in scores, answers, new nodes and explanations."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import subtree_attention as sta
from subtree_attention.datasets import Dataset
from subtree_attention.runs.saved import evaluate
from subtree_attention.show.explanation import of_run
from subtree_attention.show.explore.views import Views
from subtree_attention.show.text import labels_in_words

pytest.importorskip("polars")
QUICK: dict[str, Any] = {"epochs": 4, "hops": 1, "heads": 1, "encoding": 0}


def circle(count: int = 240) -> tuple[dict[str, list], dict[str, list]]:
    """People in a circle of two halves, whose columns say nothing of them."""
    chance = random.Random(0)
    nodes = {
        "id": [f"p{i}" for i in range(count)],
        "age": [chance.gauss(40, 10) for _ in range(count)],
        "label": ["ab"[i >= count // 2] for i in range(count)],
        "part": ["train", "train", "val", "test"] * (count // 4),
    }
    steps = [(i, (i + step) % count) for i in range(count) for step in (1, 2)]
    edges = {"source": [f"p{i}" for i, _ in steps], "target": [f"p{j}" for _, j in steps]}
    return nodes, edges


def data() -> Dataset:
    return sta.from_tables(*circle(), target="label", split_column="part")


def trained(out: Path, **changes: Any) -> Path:
    config = sta.recipe(data(), graph="circle").replace(**{**QUICK, **changes})
    return sta.fit(config, out, data=data(), device="cpu").folder


@pytest.fixture(scope="module", params=["stagnn", "staformer"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = {} if request.param == "stagnn" else {"model": "staformer", "hidden_channels": 16}
    return trained(tmp_path_factory.mktemp(request.param) / "out", correct=True, **made)


def test_scores_and_probabilities_are_with_it(folder: Path):
    run = sta.open(folder, device="cpu")
    assert run.corrects
    best = next(epoch for epoch in run.curves if epoch.epoch == run.result.best_epoch)
    assert run.result.val > best.val + 0.1
    assert run.result.test > 0.9
    ((_, _, val, test, quality),) = evaluate(folder, device="cpu")
    assert (val, test) == (run.result.val, run.result.test)
    assert quality.accuracy == pytest.approx(test)
    logits = torch.from_numpy(run.logits) / run.temperature
    np.testing.assert_allclose(run.probabilities, torch.softmax(logits, -1).numpy(), atol=1e-12)
    shown = sta.predict(folder, device="cpu")
    np.testing.assert_array_equal(shown.probabilities, run.probabilities)


def test_the_temperature_is_that_of_corrected_logits(folder: Path):
    run = sta.open(folder, device="cpu")
    again = run.task.settle(run.logits, run.target, run.split)
    assert again["temperature"] == run.temperature
    (_, nll), trust = run.calibration.val.nll, run.calibration.val
    assert nll <= trust.nll[0] + 1e-9


def test_it_is_a_term_of_its_own_in_an_explanation(folder: Path):
    run = sta.open(folder, device="cpu")
    for node in ("p2", "p3", "p119") if run.explainer.exact else ("p3",):
        told, root = of_run(run, node), run.dataset.find(node)
        added = run.logits[root] - run.outputs[root]
        cls = run.dataset.classes.index(told["class"])
        assert told["beside"]["correction"][0] == pytest.approx(added[cls], abs=1e-5)
        parts = told["bias"][0] + told["residual"][0] + told["beside"]["correction"][0]
        parts += sum(level["contribution"][0] for level in told["levels"])
        assert parts == pytest.approx(run.logits[root, cls], abs=1e-4)
        assert told["logit"][0] == pytest.approx(told["model_logit"][0], abs=1e-4)


def test_nodes_that_join_are_corrected_by_training_labels(folder: Path):
    run = sta.open(folder, device="cpu")
    nodes = {"id": ["x", "y"], "age": [40.0, 40.0], "label": ["a", "b"], "part": ["train"] * 2}
    edges = {"source": ["p1", "p2", "p200", "p201"], "target": ["x", "x", "y", "y"]}
    found = sta.predict(folder, nodes, edges, join=True, device="cpu")
    assert found.predicted == ["a", "b"]
    swapped = nodes | {"label": ["b", "a"]}  # what the new table says of them is not looked at
    again = sta.predict(folder, swapped, edges, join=True, device="cpu")
    np.testing.assert_array_equal(again.probabilities, found.probabilities)
    joined, _ = run.read_tables(nodes, edges, join=True)
    apart = run.on(joined)
    np.testing.assert_array_equal(apart.logits, apart.outputs)  # nothing is known there
    other, _ = run.read_tables(nodes, {"source": ["x"], "target": ["y"]})
    assert "of another graph none are known" in other.notes.words[-1]


def test_a_run_that_it_does_not_help_has_none(tmp_path: Path):
    nodes, edges = circle()
    nodes["kind"] = nodes["label"]  # the columns say it all
    data = sta.from_tables(nodes, edges, target="label", split_column="part")
    made = {**QUICK, "epochs": 30, "correct": True}
    config = sta.recipe(data, graph="circle").replace(**made)
    plain = sta.fit(config.replace(correct=False), tmp_path / "plain", data=data, device="cpu")
    out = sta.fit(config, tmp_path / "out", data=data, device="cpu")
    run = sta.open(out.folder, device="cpu")
    assert not run.corrects
    assert run.result.to_dict().keys() == plain.runs[0].to_dict().keys()
    assert (run.result.val, run.result.test) == (plain.runs[0].val, plain.runs[0].test)
    assert run.explainer(3).beside == {}


def test_the_page_and_words_tell_of_it(folder: Path):
    run = sta.open(folder, device="cpu")
    before = next(e.val for e in run.curves if e.epoch == run.result.best_epoch)
    corrected, own = labels_in_words([run])
    assert f"validation {100 * before:.2f} without, {100 * run.result.val:.2f} with it" in corrected
    assert "see their own labels" in own
    if run.explainer.exact:  # the page draws nothing else
        parts = Views(run).node("p3")["parts"]
        told = sum(source["contribution"] for source in parts["sources"])
        told += sum(parts["beside"].values()) + parts["bias"] + parts["others_contribution"]
        assert parts["beside"].keys() == {"correction"}
        assert told + parts["beyond"] == pytest.approx(parts["logit"], abs=1e-4)
