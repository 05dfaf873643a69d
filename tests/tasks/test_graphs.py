"""Tasks of graphs: a collection is learnt, saved, opened and gone on with."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import subtree_attention as sta
from subtree_attention.show.report import gather, render
from subtree_attention.tasks import of
from subtree_attention.train.jobs import Stopped
from subtree_attention.train.run import Material


def rings_and_lines(count: int = 60, split: bool = False) -> sta.Dataset:
    """Rings have edges all around, lines do not; features are noise and the number of edges."""
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for number in range(count):
        size, ring = int(torch.randint(3, 9, (), generator=generator)), number % 2
        ends = torch.stack([torch.arange(size), (torch.arange(size) + 1) % size])[
            :, : size - 1 + ring
        ]
        degree = torch.bincount(ends.flatten(), minlength=size).float()
        x = torch.stack([degree, torch.rand(size, generator=generator)], 1)
        graphs.append(Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], 1), y=ring))
    parts = [("train", "train", "val", "test")[i // 2 % 4] for i in range(count)] if split else None
    return sta.from_graphs(graphs, classes=["line", "ring"], split=parts)


def config_of(data: sta.Dataset, **changes: object) -> sta.Config:
    small = {
        "hops": 1,
        "heads": 2,
        "hidden_channels": 8,
        "epochs": 60,
        "layers": 1,
        "runs": 1,
        "dropout": 0.0,
        "lr": 0.01,
    }
    return sta.recipe(data, graph="shapes", **{**small, **changes})


@pytest.mark.parametrize("pooling", ["mean", "sum", "max", "all"])
def test_a_collection_is_learnt(pooling: str, tmp_path: Path) -> None:
    data = rings_and_lines()
    config = config_of(data, pooling=pooling)
    assert config.task.name == "graph-classification"
    result = sta.fit(config, tmp_path / "run", data=data, device="cpu")
    assert result.runs[0].test > 0.8
    run = sta.open(tmp_path / "run", device="cpu")
    assert run.scores()[2] == result.runs[0].test
    assert run.logits.shape == (60, 2)
    assert run.dataset.same_as(data)


def test_a_run_goes_on_with_the_same_numbers(tmp_path: Path) -> None:
    data = rings_and_lines(split=True)
    config = config_of(data, dropout=0.5)
    assert (config.data.split, config.fit.runs) == ("own", 1)
    whole = sta.fit(config, tmp_path / "whole", data=data, device="cpu")
    calls = iter(range(1000))
    with pytest.raises(Stopped):
        sta.fit(config, tmp_path / "cut", data=data, device="cpu", stop=lambda: next(calls) > 10)
    again = sta.fit(config, tmp_path / "cut", device="cpu", resume=True)
    assert (again.runs[0].test, again.runs[0].temperature) == (
        whole.runs[0].test,
        whole.runs[0].temperature,
    )


def test_numbers_of_graphs_are_learnt(tmp_path: Path) -> None:
    whole = rings_and_lines()
    sizes = whole.batch.bincount().float()
    y = sizes.index_fill(0, torch.tensor([3]), torch.nan)
    data = replace(whole, y=y, classes=())
    config = config_of(data, epochs=150, pooling="sum")
    assert (config.task.name, config.model.name) == ("graph-regression", "staformer")
    result = sta.fit(config, tmp_path / "run", data=data, device="cpu")
    assert result.runs[0].test > 0.7
    found = sta.predict(tmp_path / "run", device="cpu")
    assert (len(found.ids), found.known[3]) == (60, None)
    assert np.corrcoef(found.predicted, sizes)[0, 1] > 0.8


def test_a_report_names_the_nodes_of_graphs_that_are_wrong(tmp_path: Path) -> None:
    data = rings_and_lines()
    sta.fit(config_of(data, epochs=1), tmp_path / "run", data=data, device="cpu")
    found = gather(tmp_path / "run", device="cpu")
    wrong = found.mistakes[0]
    assert wrong["label"] != wrong["predicted"]
    assert len(wrong["sources"]) == min(5, int((data.batch == int(wrong["node"])).sum()))
    page = render(found)
    assert "if they were left out of the pooling" in page
    assert "label not known" not in page


def test_graphs_of_pyg_have_classes_or_numbers() -> None:
    some = {"x": torch.ones(2, 1), "edge_index": torch.zeros(2, 0).long()}
    data = sta.from_graphs([Data(**some, y=1.5), Data(**some), Data(**some, y=torch.tensor([2]))])
    assert data.y[[0, 2]].tolist() == [1.5, 2.0]
    assert data.known.tolist() == [True, False, True]
    assert (data.target, data.classes) == ("number", ())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("pooling", ["mean", "sum", "max", "all"])
def test_a_captured_epoch_has_the_same_numbers(pooling: str) -> None:
    data = rings_and_lines()
    config = config_of(data, pooling=pooling, dropout=0.3)

    def rows(capture: bool) -> list[list[float]]:
        material = Material(data, config, torch.device("cuda"))
        torch.manual_seed(0)
        trainer = material.trainer(material.network(), material.problem(0), capture)
        for _ in range(8):
            trainer.epoch()
        return trainer.read(0)

    assert rows(True) == rows(True) == rows(False)


def test_tasks_and_data_that_do_not_fit_are_refused() -> None:
    data = rings_and_lines(8)
    config = config_of(data, task="classification")
    with pytest.raises(ValueError, match=r"is that of each graph, not of each node: use --task gr"):
        sta.fit(config, data=data)
    one = sta.datasets.load("digits")
    with pytest.raises(
        ValueError, match=r"of each node, not of each graph: name the graph of each"
    ):
        of(sta.recipe("digits", task="graph-classification").task).accept(one)
    unknown = sta.from_graphs([Data(x=torch.ones(2, 1), edge_index=torch.zeros(2, 0).long())])
    with pytest.raises(ValueError, match="no graph has a label, so there is nothing to learn"):
        sta.fit(config_of(unknown), data=unknown)
