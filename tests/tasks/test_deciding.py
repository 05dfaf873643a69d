"""Thresholds, rejections and sets: what they promise, by simulation, and what is refused."""

import numpy as np
import pytest
import torch

from subtree_attention.config import NodeClassification as Settings
from subtree_attention.config import NodeMultiLabel as LabelSettings
from subtree_attention.config import NodeRegression as NumberSettings
from subtree_attention.datasets import Split
from subtree_attention.tasks import NodeClassification, NodeMultiLabel, NodeRegression
from subtree_attention.tasks.answers import OfClasses
from subtree_attention.tasks.calibration import softmax
from subtree_attention.tasks.deciding import (
    Asked,
    coverages,
    find_sets,
    held,
    least_sure,
    rejections,
    sets_of,
    thresholds,
)

TWO = ("ok", "fraud")


def drawn(count: int, shares: list[float], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits [n, C] of which the softmax is true, and classes [n]."""
    random = np.random.default_rng(seed)
    logits = 1.5 * random.normal(size=(count, len(shares))) + np.log(shares)
    labels = (softmax(logits).cumsum(1) < random.random((count, 1))).sum(1)
    return logits, labels.clip(max=len(shares) - 1)


def halves(count: int) -> Split:
    """No training; validation and test by turns."""
    odd = torch.arange(count) % 2 == 1
    return Split(torch.zeros(count, dtype=torch.bool), ~odd, odd)


def of(logits: np.ndarray, labels: np.ndarray) -> OfClasses:
    names = tuple(f"c{number}" for number in range(logits.shape[1]))
    return OfClasses(names, softmax(logits), labels, logits.argmax(1))


def decided(asked: Asked, logits: np.ndarray, labels: np.ndarray, names=TWO):
    task, found = NodeClassification(Settings()), {"temperature": 1.0, "positive": 1}
    split = halves(len(labels))
    found, told = task.decide(asked, found, logits, labels, split, names)
    return task.answers(logits, labels, found, names), told


@pytest.mark.parametrize("level", [0.8, 0.9, 0.95])
def test_sets_hold_every_class_as_often_as_they_promise(level: float) -> None:
    """Split conformal: over many draws of validation units, the coverage of new ones."""
    shares, worst, alone = [], [], []
    for seed in range(60):
        logits, labels = drawn(2400, [0.9, 0.07, 0.03], seed)
        answers = of(logits, labels)
        val = np.arange(2400) < 1600
        sets = find_sets(answers, level, val)
        assert sets.promises
        assert sets.small.tolist() in ([False, False, True], [False] * 3)
        possible = sets_of(answers, sets.least)
        assert possible.any(1).all()
        truth = labels[~val]
        inside = possible[~val][np.arange(len(truth)), truth]
        shares.append(inside.mean())
        worst.append([inside[truth == number].mean() for number in range(3)])
        alone.append(held(answers, possible, ~val))
        assert alone[-1].coverage == shares[-1]
        assert alone[-1].worst_coverage == min(worst[-1])
    # Each is between the level and a bit more, up to the noise of 60 draws.
    assert np.mean(shares) > level - 0.01
    assert (np.mean(worst, 0) > level - 0.02).all()
    assert np.mean([one.size for one in alone]) < 3


def test_few_of_a_class_are_taken_together_and_too_few_promise_nothing() -> None:
    logits, labels = drawn(400, [0.96, 0.02, 0.02])
    everybody = np.ones(400, bool)
    found = find_sets(of(logits, labels), 0.9, everybody)
    assert found.small.tolist() == [False, True, True]
    assert found.least[1] == found.least[2] != found.least[0]
    strict = find_sets(of(logits, labels), 0.99, everybody)
    assert strict.small.all()  # of 63 units, 0.99 can say nothing
    assert strict.promises
    few = find_sets(of(logits, labels), 0.9, np.arange(400) < 8)
    assert few.small.all()
    assert not few.promises
    assert few.least[0] == of(logits, labels).probabilities[np.arange(8), labels[:8]].min()


def test_a_rejection_is_of_the_least_sure_and_the_rest_is_right_more_often() -> None:
    logits, labels = drawn(8000, [0.5, 0.5])
    answers, told = decided(Asked(reject=0.2), logits, labels)
    assert told.val.share == pytest.approx(0.8, abs=0.001)
    assert told.test.share == pytest.approx(0.8, abs=0.03)
    assert told.test.right > told.test.all_right + 0.02
    rejected = np.array([value is None for value in answers.predicted])
    assert answers.sureness[rejected].max() < told.least <= answers.sureness[~rejected].min()
    name, (kind, cells) = next(iter(answers.more.items()))
    assert (name, kind) == ("rejected", str)
    assert [cell == "yes" for cell in cells] == rejected.tolist()
    assert not set(answers.mistakes(np.ones(8000, bool))) & set(np.flatnonzero(rejected))
    assert answers.told(int(np.flatnonzero(rejected)[0])) == "no answer"
    assert answers.part(7999).said.tolist() == answers.said[7999:].tolist()


def test_nothing_is_rejected_unasked_nor_more_than_asked_where_many_are_alike() -> None:
    logits, labels = np.zeros((10, 2)), np.arange(10) % 2
    answers = of(logits, labels)
    assert least_sure(answers, 0.0, np.ones(10, bool)) == 0
    assert (answers.sureness >= least_sure(answers, 0.5, np.ones(10, bool))).all()


def test_a_threshold_is_about_the_rarer_class_or_the_one_that_is_named() -> None:
    logits, labels = drawn(4000, [0.9, 0.1])
    answers, told = decided(Asked(threshold=0.3), logits, labels)
    flags = answers.probabilities[:, 1] > 0.3
    assert [name == "fraud" for name in answers.predicted] == flags.tolist()
    test = np.arange(4000) % 2 == 1
    assert told.cls == "fraud"
    assert told.test.given == flags[test].sum()
    assert told.test.have == labels[test].sum()
    assert told.test.recall == (flags & (labels == 1))[test].sum() / labels[test].sum()
    assert told.test.precision == (labels == 1)[test & flags].mean()
    assert answers.more == {}
    other, told = decided(Asked(threshold=0.7, cls="ok"), logits, labels)
    assert told.cls == "ok"
    assert [name == "ok" for name in other.predicted] == (other.probabilities[:, 0] > 0.7).tolist()


def test_what_is_shown_unasked_is_what_asking_gives() -> None:
    logits, labels = drawn(3000, [0.8, 0.2])
    split, answers = halves(3000), of(logits, labels)
    assert (
        dict(rejections(answers, split))[0.2] == decided(Asked(reject=0.2), logits, labels)[1].test
    )
    names = ("c0", "c1")
    asked = decided(Asked(coverage=0.9), logits, labels, names)[1]
    assert dict(coverages(answers, split))[0.9] == asked.test
    flags = decided(Asked(threshold=0.3), logits, labels, names)[1]
    assert (0.3, flags.val, flags.test) in thresholds(answers, 1, split)


def test_labels_have_one_threshold_and_may_be_rejected() -> None:
    task, found = NodeMultiLabel(LabelSettings()), {"temperature": 1.0}
    random = np.random.default_rng(0)
    logits = random.normal(size=(2000, 3))
    target = (random.random((2000, 3)) < 1 / (1 + np.exp(-logits))).astype(float)
    target[:100, 0] = np.nan
    split, names = halves(2000), ("a", "b", "c")
    more, told = task.decide(Asked(threshold=0.8), found, logits, target, split, names)
    answers = task.answers(logits, target, more, names)
    assert answers.predicted[5] == [
        name for name, share in zip(names, answers.probabilities[5], strict=True) if share > 0.8
    ]
    test = np.arange(2000) % 2 == 1
    known = ~np.isnan(target[test])
    given = (answers.probabilities[test] > 0.8) & known
    assert told.test.given == given.sum()
    assert told.test.precision == (target[test] == 1)[given].mean() > 0.8
    more, told = task.decide(Asked(reject=0.5), found, logits, target, split, names)
    assert told.test.right > told.test.all_right
    assert None in task.answers(logits, target, more, names).predicted


def test_the_interval_of_a_number_holds_as_often_as_asked() -> None:
    task, random = NodeRegression(NumberSettings()), np.random.default_rng(0)
    outputs, found = random.normal(size=(4000, 1)), {"center": 1.0, "scale": 2.0, "half_width": 9.0}
    target = outputs[:, 0] * 2 + 1 + random.normal(size=4000)
    split = halves(4000)
    for level, width in ((0.5, 0.674), (0.95, 1.96)):
        more, told = task.decide(Asked(coverage=level), found, outputs, target, split, ())
        intervals = task.calibration(more, outputs, target, split)
        assert told is None
        assert (intervals.level, intervals.half_width) == (level, pytest.approx(width, rel=0.06))
        assert intervals.test.share == pytest.approx(level, abs=0.03)
        answers = task.answers(outputs, target, more, ())
        assert answers.high - answers.low == pytest.approx(2 * intervals.half_width)


def test_without_validation_units_there_is_nothing_to_find_it_on() -> None:
    nobody, task = torch.zeros(2, dtype=torch.bool), NodeClassification(Settings())
    found, split = {"temperature": 1.0, "positive": 1}, Split(nobody, nobody, ~nobody)
    with pytest.raises(ValueError, match="there is no validation unit to find it on"):
        task.decide(Asked(reject=0.1), found, np.zeros((2, 2)), np.zeros(2, int), split, TWO)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"threshold": 0.0}, "threshold must be above 0 and below 1, got 0.0"),
        ({"reject": 1}, "reject must be above 0 and below 1, got 1"),
        ({"coverage": float("nan")}, "coverage must be a finite number"),
        ({"threshold": 0.3, "coverage": 0.9}, "threshold and coverage are different answers"),
        ({"cls": "a"}, "a class is named for a threshold"),
    ],
)
def test_what_cannot_be_asked_is_refused(given: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Asked(**given)


@pytest.mark.parametrize(
    ("task", "names", "given", "message"),
    [
        (NodeClassification(Settings()), "abc", {"threshold": 0.3}, "there are 3 classes: use"),
        (NodeClassification(Settings()), "ab", {"threshold": 0.3, "cls": "x"}, "unknown class 'x'"),
        (NodeMultiLabel(LabelSettings()), "abc", {"coverage": 0.9}, "labels are a set already"),
        (
            NodeMultiLabel(LabelSettings()),
            "abc",
            {"threshold": 0.9, "cls": "a"},
            "a threshold is for all labels",
        ),
        (NodeRegression(NumberSettings()), "", {"threshold": 0.3}, "a number has an interval"),
        (NodeRegression(NumberSettings()), "", {"reject": 0.3}, "reject is for classes and labels"),
    ],
)
def test_what_a_task_cannot_answer_is_refused(task, names, given, message) -> None:
    with pytest.raises(ValueError, match=message):
        task.decide(Asked(**given), {}, np.zeros((2, 1)), np.zeros(2), halves(2), tuple(names))
