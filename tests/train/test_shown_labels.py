"""Training with labels that are shown: by splits, captured, resumed, saved, and on other graphs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import subtree_attention as sta
from subtree_attention.config import Config
from subtree_attention.datasets import Dataset
from subtree_attention.nn import NodeNetwork
from subtree_attention.train.run import Material
from subtree_attention.train.step import Trainer
from tests.samples import friends, people

pytest.importorskip("polars")
QUICK: dict[str, Any] = {"epochs": 6, "hops": 2, "heads": 2, "show_labels": 0.5}
MODELS = [{}, {"smoothing": 1}, {"model": "staformer", "hidden_channels": 16}]


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return request.param


def data() -> Dataset:
    """Its parts are those of a column."""
    nodes = people() | {"part": ["train", "train", "val", "test"] * 15}
    return sta.from_tables(nodes, friends(), target="label", split_column="part")


def config(**changes: Any) -> Config:
    return sta.recipe(data(), graph="people").replace(**{**QUICK, **changes})


def trainer(made: Config, device: str, given: Dataset | None = None, capture=True) -> Trainer:
    dataset = (given or data()).encoded(made.data.encoding)
    material = Material(dataset, made, torch.device(device))
    torch.manual_seed(0)
    return material.trainer(material.network(), material.problem(0), capture)


@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_only_labels_of_training_nodes_are_ever_shown(changes, device):
    """Other labels of validation and test nodes change scores, and nothing else."""
    given = data()
    split = given.split("own", 0)
    other = given._with(y=torch.where(split.train | (given.y < 0), given.y, 2 - given.y))
    made, ours, theirs = config(**changes), [], []
    for graph, rows in ((given, ours), (other, theirs)):
        run = trainer(made, device, graph)
        for _ in range(4):
            run.epoch()
        rows += [row[:2] for row in run.read(0)]  # loss and training score
        known = run.inputs["labels"].classes.cpu()
        assert torch.equal(known >= 0, split.train)
        assert torch.equal(known[split.train], given.y[split.train])
    assert ours == theirs


@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_the_loss_counts_the_nodes_whose_labels_are_hidden(changes, device):
    run = trainer(config(**changes, dropout=0.0), device)
    model: Any = run.model.train()
    logits = model(run.x, run.graph, **run.inputs)
    asked = model.asked
    assert 0 < int(asked.sum()) < int(run.inputs["labels"].known.numel())
    loss = torch.nn.functional.cross_entropy(logits[asked], data().y.to(device)[asked])
    torch.testing.assert_close(run.loss_of(logits), loss)
    (grad,) = torch.autograd.grad(run.loss_of(logits), logits)
    assert torch.equal(grad.abs().sum(1) > 0, asked)


@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_a_state_goes_on_to_the_same_bits(changes, device):
    made = config(**changes, dropout=0.3)
    whole, first, second = (trainer(made, device) for _ in range(3))
    for run, epochs in ((whole, 9), (first, 4)):
        for _ in range(epochs):
            run.epoch()
    second.load_state({name: tensor.cpu() for name, tensor in first.state().items()})
    for _ in range(5):
        second.epoch()
    assert second.read(4) == whole.read(4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_captured_and_eager_give_the_same_bits(changes):
    made = config(**changes, dropout=0.3)
    captured, eager = trainer(made, "cuda"), trainer(made, "cuda", capture=False)
    for _ in range(10):
        captured.epoch()
        eager.epoch()
    assert captured.replay is not None
    assert captured.read(0) == eager.read(0)
    losses = [row[0] for row in captured.read(0)]
    assert len(set(losses)) == len(losses)  # another draw in every replay


@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_a_saved_run_says_what_was_trained_and_explains_it(changes, tmp_path: Path):
    made = config(**changes)
    result = sta.fit(made, tmp_path / "out", data=data(), device="cpu")
    run = sta.open(tmp_path / "out", device="cpu")
    assert isinstance(run.model, NodeNetwork)
    assert run.scores()[1:] == (result.runs[0].val, result.runs[0].test)
    root = 7
    explanation = run.explainer(root)
    np.testing.assert_allclose(explanation.logits.numpy(), run.logits[root], atol=1e-5)
    cls = explanation.predicted
    parts = float(explanation.importance(cls).sum() + explanation.bias[cls])
    missing = explanation.residual(cls)
    assert parts + missing == pytest.approx(run.logits[root, cls], abs=1e-4)
    again = sta.fit(made, tmp_path / "again", data=data(), device="cpu")
    assert again.runs[0].val == result.runs[0].val


def test_new_nodes_see_training_labels_where_they_join_and_none_elsewhere(tmp_path: Path):
    sta.fit(config(), tmp_path / "out", data=data(), device="cpu")
    run = sta.open(tmp_path / "out", device="cpu")
    nodes, edges = people(4, seed=1, prefix="n"), friends(4, 5, seed=1, prefix="n")
    nodes["part"] = ["train"] * 4
    edges["target"] = ["p1", "p2", *edges["target"][2:]]
    joined, start = run.read_tables(nodes, edges, join=True)
    assert start == 60
    seen = run.on(joined, join=True).problem.inputs["labels"].classes
    assert torch.equal(seen[:60], torch.where(run.split.train, run.dataset.y, -1))
    assert (seen[60:] == -1).all()  # whatever the new table says of them
    predicted = sta.predict(tmp_path / "out", nodes, edges, join=True, device="cpu")
    others = run.on(joined)  # the same graph, of which nothing is known
    assert (others.problem.inputs["labels"].classes == -1).all()
    ours = run.on(joined, join=True).probabilities[60:]
    np.testing.assert_array_equal(predicted.probabilities, ours)
    assert not np.allclose(ours, others.probabilities[60:])


def test_settings_that_make_no_sense_are_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="show_labels must be at least 0 and below 1"):
        config(show_labels=1.0)
    with pytest.raises(ValueError, match="show_labels is a setting of --task classification"):
        Config.of("x", task="graph-classification", show_labels=0.5)
    nodes = people() | {"part": ["train" if i == 1 else ["val", "test"][i % 2] for i in range(60)]}
    one = sta.from_tables(nodes, friends(), target="label", split_column="part")
    made = sta.recipe(one, graph="people", show_labels=0.5)
    with pytest.raises(ValueError, match="one training node is not enough"):
        sta.fit(made, tmp_path / "out", data=one, device="cpu")
    assert not (tmp_path / "out").exists()
