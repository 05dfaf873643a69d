"""A graph that is written as tables in parts is the same when it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from subtree_attention import io
from subtree_attention.datasets import Dataset, from_tables, planted, write_tables
from subtree_attention.datasets.features import compact
from subtree_attention.io import FileError


@pytest.fixture
def graph() -> Dataset:
    return planted(60, 150, 3, 4, seed=1)


def read_again(folder: Path, target: str | None = "class", **asked: object) -> Dataset:
    return from_tables(folder / "nodes", folder / "edges", target, **asked)  # type: ignore[arg-type]


def pairs(data: Dataset) -> list[list[int]]:
    return sorted(data.edge_index.T.tolist())


def test_a_graph_comes_back(graph: Dataset, tmp_path: Path) -> None:
    folder = write_tables(graph, tmp_path / "made", parts=3)
    names = [f"part-0000{number}.parquet" for number in range(3)]
    for side in ("nodes", "edges"):
        assert sorted(path.name for path in (folder / side).iterdir()) == names
    again = read_again(folder, split_column="split")
    assert pairs(again) == pairs(graph)
    assert torch.equal(again.y, graph.y)
    assert again.classes == graph.classes
    for mask, other in zip(again.split("own"), graph.split("own"), strict=True):
        assert torch.equal(mask, other)
    standard = (graph.x - graph.x.mean(0)) / graph.x.std(0, correction=0)
    assert torch.allclose(again.x, standard, atol=1e-5)


@pytest.mark.parametrize("target", ["labels", "number"])
def test_other_targets(graph: Dataset, tmp_path: Path, target: str) -> None:
    y = torch.rand(60, 2).round() if target == "labels" else torch.rand(60, dtype=torch.float64)
    y[5] = torch.nan
    made = replace(graph, y=y, splits={}, classes=("a", "b") if target == "labels" else ())
    task = "multilabel" if target == "labels" else "regression"
    again = read_again(write_tables(made, tmp_path / "made"), target, task=task)
    assert torch.equal(again.y.nan_to_num(-1), y.nan_to_num(-1))


def test_directions_weights_and_names(graph: Dataset, tmp_path: Path) -> None:
    index = graph.edge_index[:, :100]  # one way
    weight = torch.rand(100) + 0.1
    ids = [f"n{i}" for i in range(60)]
    made = replace(graph, edge_index=index, edge_weight=weight, ids=ids, splits={})
    folder = write_tables(made, tmp_path / "made", parts=1)
    again = read_again(folder, directed=True, weight="weight")
    assert again.ids == ids
    order = np.lexsort(index.flip(0).numpy())
    assert torch.equal(again.edge_index, index[:, order])
    assert torch.equal(again.edge_weight, weight[order])


def test_sparse_features(graph: Dataset, tmp_path: Path) -> None:
    x = torch.eye(60)
    folders = [
        write_tables(replace(graph, x=some, schema=None), tmp_path / name, parts=4)
        for name, some in (("sparse", compact(x)), ("dense", x))
    ]
    first, second = map(read_again, folders)
    assert torch.equal(first.x, second.x)


class TestWholeOrNotAtAll:
    def test_what_is_there_is_not_written_over(self, graph: Dataset, tmp_path: Path) -> None:
        with pytest.raises(FileError, match="is there already"):
            write_tables(graph, tmp_path)

    def test_nothing_is_left_of_a_failure(
        self, graph: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(io.os, "rename", full)
        with pytest.raises(io.CannotWrite, match="free some space"):
            write_tables(graph, tmp_path / "made")
        assert list(tmp_path.iterdir()) == []

    def test_what_a_killed_process_left_is_removed(self, graph: Dataset, tmp_path: Path) -> None:
        left = tmp_path / f".made{io.TEMPORARY}"
        (left / "nodes").mkdir(parents=True)
        (left / "nodes" / "part-00009.parquet").touch()
        folder = write_tables(graph, tmp_path / "made", parts=2)
        assert len(list((folder / "nodes").iterdir())) == 2
        assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_refusals(graph: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="parts must be at least 1"):
        write_tables(graph, tmp_path / "made", parts=0)
    with pytest.raises(TypeError, match="dataset must be a Dataset"):
        write_tables("cora", tmp_path / "made")  # type: ignore[arg-type]


def test_the_command(run_sta: Callable[..., object], tmp_path: Path) -> None:
    made, sizes = str(tmp_path / "made"), ("--nodes", "1e2", "--edges", "300")
    code, out, _ = run_sta("generate", made, *sizes, "--classes", "4", "--parts", "2")
    assert code == 0
    assert "100 nodes, 300 edges, 4 classes, in 2 parts each" in out
    data = read_again(tmp_path / "made", split_column="split")
    assert (data.num_nodes, data.num_edges, data.num_classes) == (100, 600, 4)
    assert "is there already" in run_sta("generate", made, *sizes)[2]
    assert (
        "no whole number such as 1000000 or 1e6"
        in run_sta("generate", "x", "--nodes", "1.5", "--edges", "3")[2]
    )
