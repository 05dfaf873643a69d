"""Multi-label classification: decisions, one temperature, and what is refused."""

import numpy as np
import pytest
import torch
from scipy.special import expit

from subtree_attention import Dataset
from subtree_attention.config import NodeMultiLabel as Settings
from subtree_attention.datasets import Split
from subtree_attention.tasks import NodeMultiLabel
from subtree_attention.tasks.calibration import decisions, softmax

NAN = float("nan")
Y = torch.tensor([[1.0, 0, 1], [0, 0, 1], [1, NAN, 0], [NAN, NAN, NAN], [0, 1, 1], [1, 0, 0]])
SPLIT = Split(*torch.tensor([[1, 1, 0, 0, 0, 0], [0, 0, 1, 0, 1, 0], [0, 0, 0, 0, 0, 1]]).bool())
NAMES = ("a", "b", "c")
LOGITS = np.array([[3.0, -1, 2], [-2, -1, 1], [-9, 1, -1], [0, -1, 1], [-1, -2, -3], [2, -1, -1]])


def answers(temperature: float = 2.0):
    return NodeMultiLabel(Settings()).answers(
        LOGITS, Y.numpy(), {"temperature": temperature}, NAMES
    )


def test_labels_above_a_half_are_given_and_known_where_any_is() -> None:
    found = answers()
    assert found.predicted == [["a", "c"], ["c"], ["b"], ["c"], [], ["a"]]
    assert found.known == [["a", "c"], ["c"], ["a"], None, ["b", "c"], ["a"]]
    assert found.told(4) == "none"
    assert found.told(0) == "a, c"
    assert found.columns["a"] == pytest.approx(expit(LOGITS[:, 0] / 2))


def test_the_surest_wrong_label_comes_first() -> None:
    found = answers()
    assert found.mistakes(np.ones(6, bool)) == [2, 4]  # 'a' of 2 is missed by far; 3 is unknown
    assert (found.worst(2), found.worst(4), found.worst(0)) == (0, 2, 0)
    assert found.mistakes(np.zeros(6, bool)) == []


def test_a_decision_is_a_choice_of_two_classes() -> None:
    pairs, right = decisions(LOGITS, Y.numpy())
    known = ~np.isnan(Y.numpy())
    assert softmax(pairs)[:, 1] == pytest.approx(expit(LOGITS[known]))
    assert right.tolist() == Y.numpy()[known].astype(int).tolist()


def test_the_temperature_is_found_on_decisions_of_validation_nodes() -> None:
    random = np.random.default_rng(0)
    honest = random.normal(size=(4000, 5)) * 2
    y = (random.random((4000, 5)) < expit(honest)).astype(np.float32)
    y[:100] = np.nan
    half = torch.arange(4000) < 2000
    task, split = NodeMultiLabel(Settings()), Split(half, half, ~half)
    found = task.settle(3 * honest, y, split)
    # 9,500 decisions tell a temperature to about two per cent.
    assert found["temperature"] == pytest.approx(3, rel=0.06)
    trust = task.calibration(found, 3 * honest, y, split).test
    assert trust.nodes == 10_000
    assert trust.ece[1] < 0.02 < trust.ece[0]
    bins = task.reliability(3 * honest[2000:], y[2000:], found)
    assert sum(bin.nodes for bin in bins) == 10_000


def test_each_label_is_told_of() -> None:
    quality = NodeMultiLabel(Settings()).quality(LOGITS, Y.numpy(), {"temperature": 1.0})
    a, b, c = quality.labels
    assert (a.units, a.given, a.precision, a.recall) == (3, 2, 1.0, 2 / 3)
    assert (b.units, b.given, b.recall) == (1, 0, 0.0)
    assert np.isnan(b.precision)
    assert c.f1 == pytest.approx(2 * 2 / (2 + 3))
    assert list(quality.told()) == [
        "average precision",
        "ROC-AUC",
        "macro F1",
        "micro F1",
        "calibration error",
    ]


@pytest.mark.parametrize(
    ("metric", "y", "message"),
    [
        ("roc_auc", torch.ones(6, 3), "roc_auc says nothing of the training nodes: .* others not"),
        ("micro_f1", torch.zeros(6, 3), "micro_f1 says nothing of the training nodes: .* any of"),
    ],
)
def test_parts_of_which_a_metric_says_nothing_are_refused(metric, y, message) -> None:
    with pytest.raises(ValueError, match=message):
        NodeMultiLabel(Settings(metric=metric)).check(y, SPLIT)


def test_a_dataset_of_labels_is_accepted_and_one_of_classes_not() -> None:
    x, edges = torch.zeros(6, 1), torch.zeros(2, 0, dtype=torch.long)
    task, labels = NodeMultiLabel(Settings()), Dataset(x, edges, Y, classes=NAMES)
    task.accept(labels)
    assert task.outputs(labels) == 3
    assert labels.label(0) == "a, c"
    assert labels.label(3) is None
    with pytest.raises(ValueError, match="a class of each node, and multilabel learns labels"):
        task.accept(Dataset(x, edges, torch.arange(6) % 2))
