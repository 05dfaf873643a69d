"""Regression: scales, intervals, and what is refused."""

import math

import numpy as np
import pytest
import torch

from subtree_attention import Dataset
from subtree_attention.config import NodeRegression as Settings
from subtree_attention.datasets import Split
from subtree_attention.show.text import intervals_in_words
from subtree_attention.tasks import NodeRegression
from subtree_attention.tasks.calibration import LEVEL, Intervals
from subtree_attention.tasks.regression import cover, half_width, standard

Y = torch.tensor([1.0, 3.0, 10.0, 100.0, torch.nan, 5.0, 7.0], dtype=torch.float64)
PARTS = torch.tensor([0, 0, 0, 1, 3, 1, 2])
SPLIT = Split(PARTS == 0, PARTS == 1, PARTS == 2)
MODEL = torch.nn.Identity()


def data(y: torch.Tensor = Y) -> Dataset:
    return Dataset(torch.zeros(7, 1), torch.zeros(2, 0, dtype=torch.long), y)


def test_outputs_are_on_the_scale_of_the_training_nodes() -> None:
    task, train = NodeRegression(Settings(metric="mae")), Y[:3]
    outputs = ((Y.nan_to_num() - train.mean()) / train.std(correction=0))[:, None]
    loss = task.loss(MODEL, Y, SPLIT.train, 1)
    assert float(loss(outputs)) == pytest.approx(0, abs=1e-12)
    assert float(loss(outputs + 2)) == pytest.approx(4)  # the mean square, in deviations
    off = task.scores(MODEL, Y, SPLIT)(outputs + 1)
    assert off.tolist() == pytest.approx([float(train.std(correction=0))] * 3)


def test_the_logarithm_is_learnt_and_scored_and_predictions_are_in_the_own_unit() -> None:
    task = NodeRegression(Settings(log_target=True))
    target = task.target(data())
    assert torch.equal(target[:4], Y[:4].log())
    center, scale = map(float, standard(target, SPLIT.train))
    outputs = ((target.nan_to_num() - center) / scale)[:, None].numpy()
    assert task.scores(MODEL, target, SPLIT)(torch.from_numpy(outputs))[0] == pytest.approx(1)
    found = task.settle(outputs + 1, target.numpy(), SPLIT)
    assert found == pytest.approx({"center": center, "scale": scale, "half_width": scale})
    answers = task.answers(outputs, target.numpy(), found, ())
    assert answers.values[:4] == pytest.approx(Y[:4].numpy())
    assert answers.known[3] == pytest.approx(100)
    assert answers.known[4] is None
    factor = math.exp(found["half_width"])
    assert answers.low[3] == pytest.approx(100 / factor)
    assert answers.high[3] == pytest.approx(100 * factor)
    test = SPLIT.test.numpy()
    quality = task.quality(outputs[test], target.numpy()[test], found)
    names = ("R2", "MAE", "RMSE")
    expected = [*(f"{name} of the logarithm" for name in names), *names, "in the interval"]
    assert list(quality.told()) == expected


def test_an_interval_holds_as_often_as_it_promises() -> None:
    """Split conformal: over many draws of 50 validation errors, coverage of new ones is LEVEL."""
    random = np.random.default_rng(0)
    shares = []
    for _ in range(400):
        errors = random.standard_t(3, size=1050)
        width = half_width(errors[:50])
        shares.append((np.abs(errors[50:]) <= width).mean())
    # Exactly ceil(0.9 * 51) / 51 on average; the mean of 400 draws is known to about 0.002.
    assert np.mean(shares) == pytest.approx(46 / 51, abs=0.008)
    assert half_width(np.array([1.0, -3.0])) == 3.0  # too few: the largest


@pytest.mark.parametrize(("count", "promises"), [(7, False), (8, False), (9, True), (50, True)])
def test_too_few_validation_nodes_promise_nothing(count: int, promises: bool) -> None:
    found = Intervals(LEVEL, 2.0, False, cover(np.ones(count), 2.0), cover(np.ones(3), 2.0))
    assert found.promises is promises
    few = f"as far as {count} validation nodes are off: too few to promise 90 %"
    assert (few in intervals_in_words(found)) is not promises
    if promises:  # of new errors that are like these, so many are within
        chance = np.random.default_rng(0)
        errors = np.abs(chance.normal(size=(2000, count + 1)))
        within = [new <= half_width(seen) for *seen, new in errors]
        assert np.mean(within) > LEVEL - 0.02
    assert LEVEL == 0.9


def test_the_farthest_off_is_the_worst() -> None:
    task = NodeRegression(Settings())
    outputs = torch.zeros(7, 1).numpy()
    found = task.settle(outputs, Y.numpy(), SPLIT)
    answers = task.answers(outputs, Y.numpy(), found, ())
    assert answers.mistakes(np.ones(7, bool))[:2] == [3, 2]
    assert 4 not in answers.mistakes(np.ones(7, bool))
    assert answers.part(5).known == [5.0, 7.0]
    assert task.calibration(found, outputs, Y.numpy(), SPLIT).val == (2, 1.0)


@pytest.mark.parametrize(
    ("settings", "y", "message"),
    [
        ({"log_target": True}, Y - 1, "log_target is for numbers above 0.* node 0 is 0.* add 1"),
        ({"log_target": True}, Y - 3, r"node 0 is -2: leave log_target out$"),
        ({}, torch.ones(7).double(), "all training nodes have the number 1"),
        (
            {"metric": "mae"},
            Y * 1e200,
            "too large to be squared: write them in a larger unit, or use log_target",
        ),
        ({"metric": "mae"}, Y * 1e-200, "so close together that their variance is 0"),
        ({"metric": "r2"}, torch.cat([Y[:3], torch.ones(4)]), "all validation nodes have .* 1"),
    ],
)
def test_what_cannot_be_learnt_is_refused(settings: dict, y: torch.Tensor, message: str) -> None:
    task = NodeRegression(Settings(**settings))
    with pytest.raises(ValueError, match=message):
        task.check(task.target(data(y)), SPLIT)


def test_a_target_of_another_kind_names_the_right_task() -> None:
    task = NodeRegression(Settings())
    classes = Dataset(torch.zeros(4, 1), torch.zeros(2, 0, dtype=torch.long), torch.arange(4) % 2)
    with pytest.raises(ValueError, match=r"is a class of each node.* use --task classification"):
        task.accept(classes)
    with pytest.raises(ValueError, match="no node has a label"):
        task.accept(data(torch.full((7,), torch.nan)))
