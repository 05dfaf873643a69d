"""Link prediction: how links are split, what is walked on, and that it is learnt."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import subtree_attention as sta
from subtree_attention.config import LinkPrediction as Settings
from subtree_attention.datasets import Dataset
from subtree_attention.nn import LinkNetwork
from subtree_attention.nn.decoder import CERTAIN
from subtree_attention.runs import evaluate
from subtree_attention.tasks import LinkPrediction
from subtree_attention.tasks import link as module
from subtree_attention.tasks.link import Links
from subtree_attention.train.jobs import Stopped
from subtree_attention.train.run import Material
from tests.datasets.test_collection import three


def two_groups(nodes: int = 40, chance: float = 0.5, directed: bool = False) -> Dataset:
    """Two groups of nodes, linked within a group only."""
    generator = torch.Generator().manual_seed(1)
    group = torch.arange(nodes) % 2
    linked = torch.rand(nodes, nodes, generator=generator) < chance
    linked &= group[:, None] == group
    linked = linked.triu(1)
    linked = linked if directed else linked | linked.T
    linked |= torch.diag(torch.arange(nodes) == 0)  # a self-loop
    x = torch.nn.functional.one_hot(group).float() + torch.randn(nodes, 2, generator=generator) / 4
    edges = linked.nonzero().T.contiguous()
    weight = torch.arange(edges.size(1)).float()
    return Dataset(x, edges, torch.full((nodes,), -1), edge_weight=weight, name="groups")


def task(**settings: Any) -> LinkPrediction:
    return LinkPrediction(Settings(**settings))


def keys_of(pairs: torch.Tensor) -> set[tuple[int, int]]:
    return set(map(tuple, pairs.T.tolist()))


@pytest.mark.parametrize("directed", [False, True])
def test_links_are_split_and_only_those_of_training_are_walked_on(directed: bool) -> None:
    data = two_groups(directed=directed)
    problem = task().problem(data, "B", 0)
    pairs, target, split = problem.inputs["pairs"], problem.target, problem.split
    links = Links.of(data)
    assert links.directed == directed
    count = len(links.keys)
    sizes = [int((mask & (target == 1)).sum()) for mask in split]
    assert sizes == [
        count - int(0.1 * count) - int(0.2 * count),
        *(int(s * count) for s in (0.1, 0.2)),
    ]
    assert [int((mask & (target == 0)).sum()) for mask in split] == sizes
    edges = keys_of(data.edge_index)
    positives, negatives = keys_of(pairs[:, target == 1]), keys_of(pairs[:, target == 0])
    assert positives <= edges
    assert not negatives & edges
    assert all(start != end for start, end in negatives)
    fixed = pairs[:, (target == 0) & ~split.train]
    assert len(keys_of(fixed)) == fixed.size(1)  # each once
    walked, train = (
        keys_of(problem.dataset.edge_index),
        keys_of(pairs[:, split.train & (target == 1)]),
    )
    both = train if directed else train | {(end, start) for start, end in train}
    assert walked == both | {(0, 0)}
    weights = dict(zip(map(tuple, data.edge_index.T.tolist()), data.edge_weight, strict=True))
    ends = map(tuple, problem.dataset.edge_index.T.tolist())
    assert [weights[end] for end in ends] == problem.dataset.edge_weight.tolist()


def test_a_seed_is_a_split() -> None:
    data = two_groups()
    one, same, other = (task().problem(data, "B", seed).inputs["pairs"] for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_pairs_are_tried_where_there_are_too_many_to_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW_PAIRS", 0)
    links = Links.of(two_groups())
    first, *others = links.none(np.random.default_rng(0), [500, 100, 120])
    apart = np.concatenate(others)
    assert len(first) == 500
    assert len(np.unique(apart)) == 220
    assert not links.known(np.concatenate([first, apart])).any()


def test_encodings_know_training_links_only() -> None:
    data = two_groups().encoded(2)
    seen = task().problem(data, "B", 0).dataset
    again = Dataset(seen.x, seen.edge_index, seen.y, seen.edge_weight).encoded(2)
    assert torch.equal(seen.encoding, again.encoding)
    assert not torch.equal(seen.encoding, data.encoding)


def test_hidden_links_are_learnt_from_and_the_others_walked_on() -> None:
    problem = task(hide=0.25, negatives=2).problem(two_groups(), "B", 0)
    pairs, target, split = problem.inputs["pairs"], problem.target, problem.split
    learnt = keys_of(pairs[:, split.train & (target == 1)])
    assert problem.walked is not None
    walked, seen = keys_of(problem.walked.edge_index), keys_of(problem.dataset.edge_index)
    assert not learnt & walked
    assert learnt < seen
    assert walked < seen
    assert int((split.train & (target == 0)).sum()) == 2 * len(learnt)
    assert torch.equal(problem.inputs["fresh"], split.train & (target == 0))


def test_a_graph_of_pyg_needs_no_target() -> None:
    whole = two_groups()
    data = sta.from_pyg(Data(x=whole.x, edge_index=whole.edge_index))
    assert (data.y.eq(-1).all(), data.classes) == (True, ())
    task().accept(data)
    with pytest.raises(ValueError, match="no node has a label, so there is nothing to learn"):
        sta.fit(sta.recipe(data), data=data)


@pytest.mark.parametrize("weighted", [False, True])
def test_masked_links_are_learnt_from_and_others_every_time(weighted: bool) -> None:
    data = two_groups()
    data = data if weighted else replace(data, edge_weight=None)
    problem = task(mask=0.3, negatives=2).problem(data, "B", 0)
    masked, pairs = problem.inputs["masked"], problem.inputs["pairs"]
    learnt = int((problem.split.train & (problem.target == 1)).sum())
    assert int(problem.inputs["fresh"].sum()) == round(0.3 * learnt * 2)
    assert (masked.links, problem.dataset.edge_weight) == (learnt, None)
    weights: list[torch.Tensor | None] = []

    class Spy(torch.nn.Linear):
        def forward(self, x, edge_index, edge_weight=None):
            weights.append(edge_weight)
            return super().forward(x)

    network = LinkNetwork(Spy(2, 8), 8)
    graph = sta.Graph.from_data(problem.dataset)
    kept = []
    for _ in range(2):
        logits = network(data.x, graph, **problem.inputs)
        certain = logits[:learnt, 1] == CERTAIN
        links = {frozenset(pair) for pair in pairs[:, :learnt][:, certain].T.tolist()}
        ends = problem.dataset.edge_index.T.tolist()
        own = masked.weight if weighted else torch.ones(len(ends))
        expected = [
            float(w) * (i == j or frozenset((i, j)) in links)
            for (i, j), w in zip(ends, own, strict=True)
        ]
        assert weights[-1].tolist() == expected
        assert 0.5 < certain.double().mean() < 0.9
        kept.append(links)
    assert kept[0] != kept[1]
    network.eval()
    assert not (network(data.x, graph, **problem.inputs)[:, 1] == CERTAIN).any()
    assert weights[-1] is masked.weight


def test_too_few_links_are_refused() -> None:
    few = Dataset(torch.ones(4, 1), torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.full((4,), -1))
    with pytest.raises(ValueError, match="the graph has 3 links, too few to split"):
        task().accept(few)


def test_a_graph_where_all_are_linked_is_refused() -> None:
    everybody = (1 - torch.eye(8)).nonzero().T.contiguous()
    data = Dataset(torch.ones(8, 1), everybody, torch.full((8,), -1))
    with pytest.raises(ValueError, match="0 pairs of nodes are not linked, too few to compare"):
        task().problem(data, "B", 0)


def test_a_collection_is_refused() -> None:
    with pytest.raises(ValueError, match="links are predicted within one graph"):
        task().accept(three())


def test_directions_choose_the_decoder() -> None:
    both = two_groups()
    one_way = both._with(edge_index=both.edge_index[:, both.edge_index[0] < both.edge_index[1]])
    one_way = one_way._with(edge_weight=None)
    assert sta.recipe(both, task="link").task.decoder == "mlp"
    assert sta.recipe(one_way, task="link").task.decoder == "directed"
    assert sta.recipe(one_way, task="link", decoder="dot").task.decoder == "dot"
    task(decoder="directed").accept(one_way)
    with pytest.raises(ValueError, match="here every edge leads both ways: use mlp or dot"):
        task(decoder="directed").accept(both)


@pytest.mark.parametrize("split", ["A", "fixed", "own"])
def test_links_have_no_split_of_nodes(split: str) -> None:
    for graph in (two_groups(), "cora"):
        with pytest.raises(ValueError, match="links are split at random, by the seed"):
            sta.recipe(graph, task="link", split=split)


def test_hits_need_more_pairs_than_k() -> None:
    problem = task(metric="hits@100").problem(two_groups(), "B", 0)
    words = r"Hits@100 needs more than 100 random pairs in each part, and validation has 18"
    with pytest.raises(ValueError, match=words):
        task(metric="hits@100").check(problem.target, problem.split)
    masked = task(metric="hits@100", mask=0.3).problem(two_groups(), "B", 0)
    few = int((masked.split.train & (masked.target == 0)).sum())
    with pytest.raises(ValueError, match=rf"and training has {few}: use"):
        task(metric="hits@100", mask=0.3).check(masked.target, masked.split)
    task(metric="mrr").check(problem.target, problem.split)
    assert sta.recipe(two_groups(), task="link").task.metric == "roc_auc"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"val_share": 0.5, "test_share": 0.5}, "must be above 0 and leave links for training"),
        ({"test_share": 0.0}, "must be above 0"),
        ({"mask": 0.3, "hide": 0.3}, "two ways to do one thing"),
        ({"metric": "accuracy"}, "metric 'accuracy' is for --task classification"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**settings)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@needs_gpu
@pytest.mark.parametrize("way", [{"mask": 0.0}, {"hide": 0.5}, {"mask": 0.5}])
def test_a_captured_epoch_draws_pairs_as_one_that_is_not(way: dict[str, float]) -> None:
    data = two_groups(60, 0.3)
    config = sta.recipe(data, task="link", **way, dropout=0.3, metric="mrr")

    def rows(capture: bool) -> list[list[float]]:
        material = Material(data, config, torch.device("cuda"))
        torch.manual_seed(0)
        trainer = material.trainer(material.network(), material.problem(0), capture)
        for _ in range(8):
            trainer.epoch()
        return trainer.read(0)

    assert rows(True) == rows(True) == rows(False)


@pytest.mark.parametrize(("decoder", "mask"), [("mlp", 0.0), ("dot", 0.0), ("mlp", 0.3)])
def test_groups_are_learnt_and_a_run_goes_on_with_the_same_numbers(
    decoder: str, mask: float, tmp_path: Path
) -> None:
    data = two_groups(60, 0.3)
    small = {
        "hidden_channels": 16,
        "layers": 1,
        "lr": 0.02,
        "dropout": 0.1,
        "epochs": 60,
        "runs": 1,
    }
    config = sta.recipe(data, task="link", metric="roc_auc", decoder=decoder, mask=mask, **small)
    result = sta.fit(config, tmp_path / "whole", data=data, device="cpu")
    assert result.runs[0].test > 0.75
    calls = iter(range(1000))
    with pytest.raises(Stopped):
        sta.fit(config, tmp_path / "cut", data=data, device="cpu", stop=lambda: next(calls) > 10)
    again = sta.fit(config, tmp_path / "cut", data=data, device="cpu", resume=True)
    assert (again.runs[0].test, again.runs[0].temperature) == (
        result.runs[0].test,
        result.runs[0].temperature,
    )
    run = sta.open(tmp_path / "whole", device="cpu")
    assert run.scores()[2] == result.runs[0].test
    assert run.logits.shape == (len(run.target), 2)
    assert run.unit_ids[0].split(" - ") == list(
        map(str, run.problem.inputs["pairs"][:, 0].tolist())
    )
    told = evaluate(tmp_path / "whole", device="cpu")[0].quality
    names = {"Hits@20", "Hits@50", "Hits@100", "MRR", "ROC-AUC", "average precision"}
    assert set(told.named()) == {*names, "calibration error"}
    others = int((run.split.test & (run.problem.target == 0)).sum())
    assert others == 50  # too few for two of them
    nothing = [told.told()[name] == "-" for name in ("Hits@20", "Hits@50", "Hits@100")]
    assert nothing == [False, True, True]
    assert told.named()["ROC-AUC"] == pytest.approx(result.runs[0].test)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5])
def test_the_loss_is_a_mean_over_the_pairs_that_a_step_asks_about(share: float) -> None:
    task = LinkPrediction(Settings(mask=share))
    target = torch.cat([torch.ones(1000), torch.zeros(400)]).long()
    logits = torch.zeros(1400, 2)
    logits[: round(1000 * (1 - share)) if share else 0, 1] = CERTAIN  # walked on
    loss = task.loss(torch.nn.Identity(), target, torch.ones(1400, dtype=torch.bool), 2)(logits)
    assert float(loss) == pytest.approx(math.log(2), abs=1e-4)
