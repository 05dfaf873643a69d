"""Steps on samples: what they estimate, what they see, and how a run of them goes on."""

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import scipy.sparse
import torch

import subtree_attention as sta
from subtree_attention import cli, datasets
from subtree_attention.config import Config, fan_outs
from subtree_attention.datasets import Dataset
from subtree_attention.datasets.features import from_scipy
from subtree_attention.partition import Ranks
from subtree_attention.runs import folder as files
from subtree_attention.tasks import of as task_of
from subtree_attention.train import batches, large
from subtree_attention.train.batches import Batches
from subtree_attention.train.jobs import Stopped
from subtree_attention.train.large import sampled_if_long
from subtree_attention.train.run import Material
from subtree_attention.train.watch import Watch

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data() -> Dataset:
    return sta.planted(2000, 10_000, classes=4, features=16, seed=0)


def configured(data: Dataset, **changes: Any) -> Config:
    return sta.recipe(data, **{"graph": "mine", "hops": 2, "dropout": 0.0, **changes})


def gradients(material: Material) -> list[torch.Tensor]:
    """Of the first step, from fresh weights."""
    torch.manual_seed(0)
    trainer: Any = material.trainer(material.network(), material.problem(0), False)
    trainer.model.train()
    if material.config.fit.batch:
        trainer.gradients(trainer.prepared(0))
    else:
        trainer.loss_of(trainer.model(trainer.x, trainer.graph)).backward()
    return [p.grad for p in trainer.model.parameters()]


@pytest.mark.parametrize("changes", [{}, {"model": "staformer", "hidden_channels": 16}])
@pytest.mark.parametrize("sparse", [False, True])
def test_with_all_neighbours_a_batch_of_all_nodes_is_a_whole_step(
    data: Dataset, changes: dict[str, Any], sparse: bool
) -> None:
    if sparse:
        data = data._with(x=from_scipy(scipy.sparse.csr_matrix(data.x.numpy())))
    whole = gradients(Material(data, configured(data, **changes), CPU))
    how = {"batch": 5000, "num_neighbors": "all", **changes}
    sampled = gradients(Material(data, configured(data, **how), CPU))
    scale = max(float(grad.abs().max()) for grad in whole)
    for ours, theirs in zip(sampled, whole, strict=True):
        # Sums in float32, in another order.
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5 * scale)


def target_of(kind: str, nodes: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(1)
    if kind == "regression":
        return torch.randn(nodes, generator=random)
    if kind == "multilabel":
        return torch.randint(2, (nodes, 3), generator=random).float()
    return torch.randint(3, (nodes,), generator=random)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("classification", {}),
        ("classification", {"loss": "binary"}),
        ("classification", {"class_weights": "balanced"}),
        ("multilabel", {}),
        ("regression", {}),
        ("regression", {"loss": "huber"}),
    ],
)
def test_the_loss_of_some_units_is_that_of_a_mask_of_them(
    kind: str, changes: dict[str, Any]
) -> None:
    task, y = task_of(Config.of("mine", task=kind, **changes).task), target_of(kind, 40)
    train = torch.arange(40) % 2 == 0
    rows = train.nonzero().flatten().flip(0)  # all that are learnt from: scales are the same
    columns = 1 if kind == "regression" else 3
    outputs = torch.randn(40, columns)
    model: Any = torch.nn.Identity()
    whole = task.loss(model, y, train, columns)(outputs)
    some = task.loss_of_some(y, train, columns)(outputs[rows], rows)
    torch.testing.assert_close(some, whole)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("classification", {}),
        ("classification", {"class_weights": "balanced"}),
        ("multilabel", {}),
        ("regression", {}),
    ],
)
def test_shares_of_a_batch_add_up_to_its_loss(kind: str, changes: dict[str, Any]) -> None:
    task, y = task_of(Config.of("mine", task=kind, **changes).task), target_of(kind, 40)
    if kind == "multilabel":
        y[torch.arange(40) % 3 == 0, :2] = torch.nan
    train, columns = torch.arange(40) < 31, 1 if kind == "regression" else 3
    on, counts = (of(y, train, columns) for of in (task.loss_of_some, task.counts))
    outputs, rows = torch.randn(40, columns), train.nonzero().flatten()
    shares = [
        on(outputs[own], own) * counts[own].sum() / counts[rows].sum()
        for own in rows.tensor_split(4)
    ]
    whole = on(outputs[rows], rows)
    torch.testing.assert_close(sum(shares), whole, check_dtype=False)


def test_scales_and_weights_of_a_loss_are_those_of_all_training_units() -> None:
    y, train = torch.tensor([0, 0, 0, 1]), torch.ones(4, dtype=torch.bool)
    task = task_of(Config.of("mine", class_weights="balanced").task)
    on = task.loss_of_some(y, train, 2)
    outputs = torch.randn(2, 2)
    ours = on(outputs, torch.tensor([0, 3]))
    log = outputs.log_softmax(1)
    weights = torch.tensor([4 / (2 * 3), 4 / 2])
    wanted = -(weights[0] * log[0, 0] + weights[1] * log[1, 1]) / weights.sum()
    torch.testing.assert_close(ours, wanted)


def test_a_pass_sees_every_training_node_once_and_epochs_go_on_behind_each_other(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MOST_STEPS", 3)
    material = Material(data, configured(data, batch=250), CPU)
    nodes = torch.arange(0, 2000, 2)
    found = batches.batches_of(material.config, material.graph, nodes, seed=7)
    assert (found.in_a_pass, found.in_an_epoch) == (4, 3)
    seen = Counter(node for step in range(4) for node in found.seeds(step).tolist())
    assert seen == Counter(nodes.tolist())
    again = [node for step in range(4, 8) for node in found.seeds(step).tolist()]
    assert sorted(again) == nodes.tolist()
    assert again != [node for step in range(4) for node in found.seeds(step).tolist()]
    assert torch.equal(found.seeds(2), batches.batches_of(*_given(material, nodes)).seeds(2))


def _given(material: Material, nodes: torch.Tensor) -> tuple[Any, ...]:
    return material.config, material.graph, nodes, 7


def test_ranks_share_a_batch(data: Dataset) -> None:
    material = Material(data, configured(data, batch=101), CPU)
    nodes = torch.arange(1000)
    whole = batches.batches_of(*_given(material, nodes)).seeds(1)
    shares = []
    for rank in range(3):
        found: Batches = batches.batches_of(*_given(material, nodes), Ranks(None, rank, 3))
        sampled, own, of_all = found.sample(1)
        assert torch.equal(of_all, whole)
        assert len(whole) == 101
        assert torch.equal(sampled.n_id[: len(own)], own)
        shares.append(own)
    assert torch.equal(torch.cat(shares), whole)


def test_it_learns_as_from_the_whole_graph(data: Dataset, tmp_path: Path) -> None:
    """Both to a point of each other, on 400 test nodes of which one is a quarter of a point."""
    how = {"epochs": 60, "lr": 0.02}
    whole = sta.fit(configured(data, **how), tmp_path / "whole", data=data, device="cpu")
    config = configured(data, **{**how, "epochs": 12}, batch=200, num_neighbors="8,4")
    sampled = sta.fit(config, tmp_path / "sampled", data=data, device="cpu")
    assert sampled.mean > whole.mean - 0.02
    run = sta.open(tmp_path / "sampled")
    assert run.scores()[2] == pytest.approx(sampled.runs[0].test, abs=1e-9)  # exact, as told


def test_a_run_that_was_stopped_ends_with_the_same_numbers(data: Dataset, tmp_path: Path) -> None:
    config = configured(data, batch=300, epochs=6, dropout=0.3, num_neighbors="5,3")
    whole = sta.fit(config, tmp_path / "whole", data=data, device="cpu")
    told: list[int] = []

    class Epochs(Watch):
        def epoch(self, run: Any) -> None:
            told.append(run.epoch)

    with pytest.raises(Stopped):
        sta.fit(
            config,
            tmp_path / "stopped",
            data=data,
            device="cpu",
            watch=Epochs(),
            stop=lambda: len(told) > 2,
        )
    again = sta.fit(config, tmp_path / "stopped", data=data, device="cpu", resume=True)
    assert files.read_curves(tmp_path / "stopped/run-0") == files.read_curves(
        tmp_path / "whole/run-0"
    )
    assert again.runs[0].test == whole.runs[0].test


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"show_labels": 0.5}, "--show-labels is not for batches"),
        ({"reference": "logistic"}, "--reference is not for batches"),
        ({"global_attention": True}, "attends to all nodes: not with --batch"),
        ({"smoothing": 1}, "with a loop at every node"),
        ({"feature_map": "softmax"}, "softmax, the exact one, is not for --batch"),
        ({"model": "staformer", "norm": "batch"}, "--norm layer with --batch"),
        ({"task": "link"}, "--batch is for targets of nodes, not for --task link"),
        ({"hops": 0}, "a model without hops sees none"),
    ],
)
def test_what_looks_at_all_nodes_is_refused(
    data: Dataset, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    config = sta.recipe(data, graph="mine", batch=100, **changes)
    with pytest.raises(ValueError, match=words):
        sta.fit(config, tmp_path / "out", data=data, device="cpu")
    assert not (tmp_path / "out").exists()


class TestFanOuts:
    @pytest.mark.parametrize("hops", range(1, 13))
    def test_by_themselves_some_hundred_nodes_are_behind_a_node(self, hops: int) -> None:
        counts = fan_outs("auto", hops)
        assert len(counts) == hops
        assert min(counts) >= 1
        assert counts == sorted(counts, reverse=True)
        reached = sum(math.prod(counts[: n + 1]) for n in range(hops))
        assert 250 <= reached <= 500

    def test_the_last_of_them_holds_for_all_that_follow(self) -> None:
        assert fan_outs("5,3", 4) == [5, 3, 3, 3]
        assert fan_outs("all", 2) == [-1, -1]
        assert fan_outs("5, 3, 2", 2) == [5, 3]

    @pytest.mark.parametrize("given", ["0", "5,x", "", "-1", "2.5", "5,,3"])
    def test_others_are_refused_in_words(self, given: str) -> None:
        with pytest.raises(ValueError, match=r"as 5,3,2, or all|num_neighbors must"):
            Config.of("mine", num_neighbors=given)


class TestChoosing:
    def test_where_whole_steps_take_long_samples_are_learnt_from(
        self, data: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = sta.recipe(data, graph="mine")
        assert sampled_if_long(data, config, CPU) == (config, "")
        monkeypatch.setattr(large, "LONG", 0.0)
        chosen, words = sampled_if_long(data, config, CPU)
        assert chosen.fit.batch == large.BATCH
        assert chosen.model == config.model
        assert "steps are on 256 training nodes and samples of their neighbours" in words
        assert "--batch 0 learns from the whole graph" in words

    def test_not_where_it_cannot_be_done(
        self, data: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(large, "LONG", 0.0)
        config = sta.recipe(data, graph="mine", global_attention=True)
        assert sampled_if_long(data, config, CPU) == (config, "")

    def test_epochs_and_patience_go_by_steps(self, data: Dataset) -> None:
        few, many = (sta.recipe(data, graph="mine", batch=size).fit for size in (2000, 10))
        assert few.patience > many.patience
        assert few.epochs > many.epochs
        assert sta.recipe(data, graph="mine", batch=10, patience=99, epochs=7).fit.patience == 99

    def test_tables_say_it_before_they_are_trained_on(
        self,
        data: Dataset,
        tmp_path: Path,
        in_process: Callable[..., Any],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        pytest.importorskip("polars")
        datasets.write_tables(data, tmp_path / "tables")
        monkeypatch.setattr(large, "LONG", 0.0)
        tables = "--nodes", "tables/nodes", "--edges", "tables/edges", "--target", "class"
        how = "--no-references", "--epochs", "2", "--device", "cpu", "--out", "out"
        code, said, errors = in_process(cli.main)("train", *tables, *how)
        assert code == 0, errors
        assert "a run on the whole graph would take about" in said
        assert files.read_config(tmp_path / "out").fit.batch == large.BATCH
        assert files.read_config(tmp_path / "out").fit.epochs == 2
        whole = *how[:-1], "whole", "--batch", "0", "--no-portfolio"
        code, said, _ = in_process(cli.main)("train", *tables, *whole)
        assert code == 0
        assert "would take about" not in said
        assert files.read_config(tmp_path / "whole").fit.batch == 0
