"""`fit` on data that was given: one's own graph, any PyG `Data`, or what was prepared before."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data

import subtree_attention as sta
from subtree_attention.datasets import Dataset, load
from subtree_attention.datasets.features import from_scipy
from tests.samples import friends, people

QUICK: dict[str, Any] = {"runs": 1, "epochs": 2, "hops": 1, "heads": 1}


def plain(classes: int = 2, **more: Any) -> Data:
    """A PyG `Data` of 40 nodes, of which every fourth has no label."""
    random = torch.Generator().manual_seed(0)
    y = torch.arange(40) % classes
    y[::4] = -1
    edge_index = torch.randint(40, (2, 90), generator=random)
    return Data(x=torch.randn(40, 3, generator=random), edge_index=edge_index, y=y, **more)


def test_any_data_of_pyg_will_do_and_nodes_without_a_label_are_in_no_part(tmp_path: Path) -> None:
    out = sta.fit(sta.recipe(plain(), **QUICK), tmp_path / "out", device="cpu", data=plain()).folder
    run = sta.open(out)
    for mask in run.split:
        assert mask.any()
        assert not (mask & (run.dataset.y < 0)).any()
    assert len(sta.predict(out, device="cpu").ids) == 40


def test_masks_that_it_brings_are_its_split(tmp_path: Path) -> None:
    turn = torch.arange(40) % 3
    data = plain(train_mask=turn == 0, val_mask=turn == 1, test_mask=turn == 2)
    out = sta.fit(sta.recipe(data, **QUICK), tmp_path / "out", device="cpu", data=data).folder
    assert torch.equal(sta.open(out).split.val, data.val_mask & (data.y >= 0))


def test_a_graph_of_the_registry_is_that_of_the_configuration(tmp_path: Path) -> None:
    config = sta.recipe("digits", encoding=2, **QUICK)
    for data in (load("digits"), load("digits").encoded(2)):
        with pytest.raises(ValueError, match="data is 'digits', but the configuration is for"):
            sta.fit(config.replace(graph="cora"), tmp_path / "o", device="cpu", data=data)
    assert not (tmp_path / "o").exists()
    results = [
        sta.fit(config, tmp_path / str(i), device="cpu", data=data).mean
        for i, data in enumerate(
            (load("digits"), load("digits").encoded(2), load("digits").encoded(3), None)
        )
    ]
    assert len(set(results)) == 1


def other_features(data: Dataset) -> Dataset:
    return replace(data, x=data.x + 1)


def other_labels(data: Dataset) -> Dataset:
    return replace(data, y=torch.where(data.y >= 0, 2 - data.y, -1))


def other_weights(data: Dataset) -> Dataset:
    return replace(data, edge_weight=data.edge_weight * 2)


def other_masks(data: Dataset) -> Dataset:
    own = data.splits["own"]
    return replace(data, splits={"own": torch.where(own == 1, 2, torch.where(own == 2, 1, own))})


@pytest.mark.parametrize("change", [other_features, other_labels, other_weights, other_masks])
def test_a_run_goes_on_with_the_very_same_graph_only(
    change: Callable[[Dataset], Dataset], tmp_path: Path
) -> None:
    pytest.importorskip("polars")
    nodes = people() | {"part": ["train", "val", "test"] * 20}
    how = {"target": "label", "weight": "strength", "split_column": "part"}
    data = sta.from_tables(nodes, friends(), **how)
    config = sta.recipe(data, **QUICK)
    sta.fit(config, tmp_path / "out", device="cpu", data=data)
    sta.fit(config, tmp_path / "out", device="cpu", data=data, resume=True)
    other = change(data)
    assert other.fingerprint() != data.fingerprint()
    with pytest.raises(ValueError, match="was started on another graph"):
        sta.fit(config, tmp_path / "out", device="cpu", data=other, resume=True)


def test_the_columns_of_sparse_features_are_part_of_a_graph() -> None:
    def graph(column: int) -> Dataset:
        data = plain()
        data.x = from_scipy(scipy.sparse.eye_array(40, 400, k=column).tocsr())
        return sta.from_pyg(data)

    assert graph(0).fingerprint() == graph(0).fingerprint()
    assert graph(0).fingerprint() != graph(1).fingerprint()


@pytest.mark.parametrize(
    ("data", "changes", "message"),
    [
        (plain(3), {"task": "multilabel"}, "a class of each node, and multilabel learns labels"),
        (plain(edge_weight=torch.full((90,), -1.0)), {}, "edge_weight"),
    ],
)
def test_what_cannot_be_trained_leaves_nothing_behind(
    data: Data, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        sta.fit(sta.recipe(data, **QUICK, **changes), tmp_path / "out", device="cpu", data=data)
    sta.fit(sta.recipe(plain(), **QUICK), tmp_path / "out", device="cpu", data=plain())


def test_a_part_that_the_metric_says_nothing_about_is_named(tmp_path: Path) -> None:
    turn = torch.arange(40) % 3
    data = plain(train_mask=turn == 0, val_mask=turn == 1, test_mask=turn > 5)
    with pytest.raises(ValueError, match="there is no test node"):
        sta.fit(sta.recipe(data, **QUICK), tmp_path / "out", device="cpu", data=data)
    data.test_mask = (turn == 2) & (data.y == 0)
    config = sta.recipe(data, metric="roc_auc", **QUICK)
    with pytest.raises(ValueError, match="the test nodes are all of class 0"):
        sta.fit(config, tmp_path / "out", device="cpu", data=data)
    data.classes = ["no", "yes"]
    with pytest.raises(ValueError, match="the test nodes are all of class no"):
        sta.fit(config, tmp_path / "out", device="cpu", data=data)


def test_the_deep_model_drops_sparse_features_of_ones_own() -> None:
    words = Data(x=(torch.rand(60, 200) < 0.02).float(), edge_index=torch.randint(60, (2, 90)))
    words.y = torch.arange(60) % 2
    dense = sta.recipe(plain(), model="staformer").model
    assert (dense.input_dropout, dense.hops) == (0.0, 2)
    assert sta.recipe(words, model="staformer").model.input_dropout == 0.5
