"""The seam: whatever a task says of its units, its network and its loss is what is trained."""

import pytest
import torch
from torch import nn

import subtree_attention as sta
from subtree_attention.config import FitSettings
from subtree_attention.datasets import Split
from subtree_attention.tasks import Problem, Task, of
from subtree_attention.tasks.metrics import METRICS
from subtree_attention.train.run import Material

CONFIG = sta.recipe("digits", hops=1, runs=1, encoding=0)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data() -> sta.Dataset:
    return sta.datasets.load("digits").encoded(0)


class Pairs(Task):
    """Whether two nodes have the same class: units are pairs, and the network has a decoder."""

    unit, metrics = "pair", METRICS

    def outputs(self, dataset):
        return 8

    def network(self, settings, in_channels, out_channels):
        return Decoded(super().network(settings, in_channels, out_channels))

    def known(self, target):
        return torch.ones_like(target, dtype=torch.bool)

    def problem(self, dataset, kind, seed):
        pairs = torch.randint(dataset.num_nodes, (2, 300), generator=torch.manual_seed(seed))
        same = (dataset.y[pairs[0]] == dataset.y[pairs[1]]).float()
        part = torch.arange(300) % 3
        seen = dataset._with(edge_index=dataset.edge_index[:, ::2])
        return Problem(
            seen, same, Split(part == 0, part == 1, part == 2), {"pairs": pairs, "times": 2}
        )

    def loss(self, model, target, mask, outputs):
        def loss(logits):
            noise = 0.1 * torch.rand_like(logits)
            error = nn.functional.binary_cross_entropy_with_logits(
                logits[mask] + noise[mask], target[mask]
            )
            return error + model.weight.square().sum()

        return loss

    def scores(self, model, target, split):
        masks = torch.stack(tuple(split)).double()
        return lambda logits: masks @ ((logits > 0) == target.bool()).double() / masks.sum(1)


class Decoded(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.weight = encoder, nn.Parameter(torch.ones(8))

    def forward(self, x, graph, pairs, times):
        h = self.encoder(x, graph)
        return times * (h[pairs[0]] * h[pairs[1]] * self.weight).sum(-1)


@pytest.fixture
def material(data, monkeypatch) -> Material:
    monkeypatch.setattr("subtree_attention.train.run.task_of", Pairs)
    return Material(data, CONFIG, CPU)


def test_a_task_brings_its_units_its_network_and_the_edges_that_are_seen(material, data):
    problem, network = material.problem(0), material.network()
    trainer = material.trainer(network, problem, capture=True)
    assert trainer.graph.num_edges == data.num_edges // 2
    for _ in range(3):
        trainer.epoch()
    rows = trainer.read(0)
    assert [len(row) for row in rows] == [4] * 3
    assert trainer.best_outputs().shape == (300,)
    assert "weight" in trainer.best_weights


def test_a_loss_may_draw_random_numbers_which_are_those_of_the_run(material):
    def losses():
        torch.manual_seed(3)
        trainer = material.trainer(material.network(), material.problem(0), capture=True)
        for _ in range(3):
            torch.rand(5)  # somebody else's
            trainer.epoch()
        return [row[0] for row in trainer.read(0)]

    assert losses() == losses()


def test_a_part_without_units_is_refused_by_what_they_are_called():
    nobody, all_of_them = torch.zeros(3, dtype=torch.bool), torch.ones(3, dtype=torch.bool)
    with pytest.raises(ValueError, match="there is no validation pair"):
        Pairs(CONFIG.task).check(torch.ones(3), Split(all_of_them, nobody, all_of_them))


def test_a_task_is_named_by_its_word_or_its_name():
    for name in ("classification", "node-classification"):
        assert sta.recipe("digits", task=name).task.name == "node-classification"
    kept = CONFIG.replace(metric="roc_auc").replace(task="classification")
    assert kept.task.metric == "roc_auc"  # the same task keeps its settings
    with pytest.raises(ValueError, match=r"unknown task 'clasification'.*classification"):
        sta.recipe("digits", task="clasification")


def test_settings_that_name_no_task_are_refused():
    with pytest.raises(ValueError, match="unknown task"):
        of(FitSettings())
