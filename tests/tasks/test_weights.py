"""Class weights: the loss counts small classes more, and probabilities stay those that are true."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import subtree_attention as sta
from subtree_attention.config import NodeClassification as Settings
from subtree_attention.datasets import Split
from subtree_attention.io import FileError
from subtree_attention.runs import evaluate
from subtree_attention.runs.folder import accept
from subtree_attention.tasks import NodeClassification
from subtree_attention.tasks.calibration import (
    best_correction,
    best_temperature,
    calibration_error,
    softmax,
)

SHARES = np.array([0.9, 0.08, 0.02])


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STA_BACKEND", "torch")  # a few epochs are not worth compiling kernels


def drawn(count: int) -> tuple[np.ndarray, np.ndarray]:
    """True log-probabilities [n, 3], the first class by far the largest, and classes [n]."""
    random = np.random.default_rng(0)
    honest = 2 * random.normal(size=(count, 3)) + np.log(SHARES)
    probabilities = softmax(honest)
    labels = (probabilities.cumsum(1) < random.random((count, 1))).sum(1)
    return np.log(probabilities), labels.clip(max=2)


@pytest.mark.parametrize("sharpness", [1.0, 3.0])
@pytest.mark.parametrize("learnt", [1.0, 0.7])
def test_weights_are_undone_also_where_they_are_learnt_by_a_part_only(sharpness, learnt) -> None:
    honest, labels = drawn(40_000)
    weights = 1 / (3 * np.bincount(labels) / len(labels))
    logits = sharpness * (honest + learnt * np.log(weights))
    half = np.arange(len(labels)) % 2 == 0
    heat, offsets = best_correction(logits[half], labels[half], weights)
    found = softmax(logits[~half] / heat + offsets)
    assert heat == pytest.approx(sharpness, rel=0.06)
    assert calibration_error(found, labels[~half]) < 0.01
    shares = np.bincount(labels[~half]) / half.sum()
    assert found.mean(0) == pytest.approx(shares, abs=0.012)
    alone = softmax(logits[~half] / best_temperature(logits[half], labels[half]))
    assert abs(alone.mean(0) - shares).max() > 0.05  # a temperature is not enough


def test_few_nodes_take_the_weights_as_they_are() -> None:
    logits, labels, weights = np.zeros((3, 2)), np.array([0, 0, 1]), np.array([0.6, 3.0])
    _, offsets = best_correction(logits, labels, weights)
    assert offsets == pytest.approx(-np.log(weights), rel=0.3)


def test_the_answer_is_what_the_weighted_loss_decides_and_the_probability_is_the_true_one() -> None:
    task, names = NodeClassification(Settings(class_weights="balanced")), ("no", "yes")
    logits, target = np.array([[0.0, 0.5], [2.0, 0.0]]), np.array([1, 0])
    found = {"temperature": 1.0, "offsets": [0.5, -2.0], "positive": 1}
    answers = task.answers(logits, target, found, names)
    assert answers.predicted == ["yes", "no"]
    assert answers.probabilities[0, 1] == pytest.approx(1 / (1 + np.exp(2.0)))
    assert answers.sure(0) == answers.probabilities[0, 1] < 0.5
    assert task.quality(logits, target, found).accuracy == 1
    nobody = torch.zeros(2, dtype=torch.bool)
    told = task.calibration(found, logits, target, Split(nobody, nobody, ~nobody))
    assert told.weighted
    assert told.test.nll[0] != told.test.nll[1]


def test_weights_need_a_loss_whose_probabilities_can_be_made_right() -> None:
    with pytest.raises(ValueError, match="class_weights 'balanced' is for loss cross_entropy"):
        Settings(class_weights="balanced", loss="binary")
    with pytest.raises(ValueError, match="unknown class_weights 'heavy'"):
        Settings(class_weights="heavy")


def unbalanced(count: int = 400, share: float = 0.1) -> sta.Dataset:
    """Nodes of which a tenth is "fraud", told by one column with much noise."""
    torch.manual_seed(1)
    y = (torch.rand(count) < share).long()
    x = torch.randn(count, 4)
    x[:, 0] += 1.5 * y
    edges = torch.randint(count, (2, 3 * count))
    return sta.Dataset(x, edges, y, classes=("ok", "fraud"), own=True)


def test_a_weighted_run_finds_more_of_the_small_class_and_its_probabilities_are_right(
    tmp_path: Path,
) -> None:
    data = unbalanced(800)
    quick = {"runs": 1, "epochs": 40, "hops": 1, "heads": 1, "hidden_channels": 8, "lr": 0.02}
    given = {}
    for weights in ("none", "balanced"):
        config = sta.recipe(data, graph="cards", class_weights=weights, **quick)
        assert config.task.metric == "average_precision"
        folder = sta.fit(config, tmp_path / weights, data=data, device="cpu").folder
        run = sta.open(folder)
        known = run.split.val.numpy() | run.split.test.numpy()
        share = (run.target[known] == 1).mean()
        assert run.probabilities[known, 1].mean() == pytest.approx(share, abs=0.04)
        given[weights] = (run.answers.given[known] == 1).mean()
        scored = evaluate(folder)[0]
        assert scored.quality.average_precision == pytest.approx(scored.test, abs=1e-6)
    assert given["balanced"] > given["none"] + 0.1
    raw = softmax(run.logits[known] / run.temperature)[:, 1].mean()
    assert raw > share + 0.1  # without the offsets it would be far off
    assert sta.open(folder).found["offsets"] == run.result.offsets


def test_offsets_of_another_model_are_refused(tmp_path: Path) -> None:
    data = unbalanced(100)
    quick = {"runs": 1, "epochs": 1, "hops": 0, "heads": 1, "hidden_channels": 2}
    config = sta.recipe(data, graph="cards", class_weights="balanced", **quick)
    folder = sta.fit(config, tmp_path / "out", data=data, device="cpu").folder
    path = folder / "run-0" / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "offsets": [0.5]}))
    accept(folder)
    with pytest.raises(FileError, match="must have an offset for each of 2 classes"):
        sta.predict(folder)


def test_weights_are_those_of_all_training_nodes_also_where_a_step_hides_some_labels() -> None:
    task = NodeClassification(Settings(class_weights="balanced", show_labels=0.5))
    labels, logits = torch.tensor([0, 0, 0, 1, 1, 0]), torch.randn(6, 2)
    train = torch.tensor([True, True, True, True, False, False])
    asked = torch.tensor([True, False, False, True, False, False])
    each = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    weights = torch.tensor([4 / 6, 4 / 2])[labels]
    expected = (weights * each)[asked].sum() / weights[asked].sum()
    torch.testing.assert_close(task._loss(labels, train, 2)(asked)(logits), expected)
