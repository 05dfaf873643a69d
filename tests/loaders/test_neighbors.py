"""Sampled batches: PyG's form, our walk, and threads that come and go."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, SAGEConv
from torch_geometric.testing import MyFeatureStore, MyGraphStore

from subtree_attention import STAGNN, Dataset, Graph, NeighborLoader, STAFormer
from subtree_attention.datasets.features import from_scipy
from subtree_attention.loaders import walk_graph

NODES = 120


@pytest.fixture
def data() -> Data:
    random = torch.Generator().manual_seed(0)
    edge_index = torch.randint(0, NODES, (2, 900), generator=random)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    count = edge_index.size(1)
    return Data(
        x=torch.randn(NODES, 6, generator=random),
        y=torch.arange(NODES) % 3,
        edge_index=edge_index,
        edge_attr=torch.arange(count * 2).view(count, 2).float(),
        train_mask=torch.arange(NODES) < 50,
        name="sample",
        names=[f"node {i}" for i in range(NODES)],
    )


def test_a_batch_has_what_pyg_would_put_into_it(data: Data) -> None:
    loader = NeighborLoader(data, [4, 3], batch_size=16, input_nodes=data.train_mask)
    assert [len(loader), loader.count] == [4, 50]
    batches = list(loader)
    assert [batch.batch_size for batch in batches] == [16, 16, 16, 2]
    assert torch.cat([batch.input_id for batch in batches]).tolist() == list(range(50))
    for batch in batches:
        assert torch.equal(batch.n_id[: batch.batch_size], batch.input_id)
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert torch.equal(batch.y, data.y[batch.n_id])
        assert torch.equal(batch.train_mask, data.train_mask[batch.n_id])
        assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        assert batch.names == [f"node {i}" for i in batch.n_id.tolist()]
        assert batch.name == "sample"
        assert batch.num_nodes == sum(batch.num_sampled_nodes)
        assert batch.num_edges == sum(batch.num_sampled_edges) == len(batch.entries)
        batch.validate()


@pytest.mark.parametrize("conv", [SAGEConv, GCNConv, GATConv])
def test_layers_of_pyg_run_on_a_batch(data: Data, conv: Any) -> None:
    torch.manual_seed(0)
    first, second = conv(6, 8), conv(8, 3)
    (batch,) = NeighborLoader(data, [-1, -1], batch_size=20, input_nodes=torch.arange(20))
    hidden = first(batch.x, batch.edge_index).relu()
    outputs = second(hidden, batch.edge_index)[: batch.batch_size]
    outputs.sum().backward()
    if conv is not GCNConv:  # which divides by degrees, of the batch instead of the graph
        whole = second(first(data.x, data.edge_index).relu(), data.edge_index)[:20]
        torch.testing.assert_close(outputs, whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("transition", ["rw", "sym"])
def test_our_model_gives_for_whole_rows_what_it_gives_for_the_graph(
    data: Data, transition: str
) -> None:
    torch.manual_seed(0)
    model = STAGNN(6, 8, 3, hops=3, heads=2, dropout=0.0).eval()
    graph = Graph.from_data(data, transition, self_loops=True)
    exact = model(data.x, graph)
    how = {"transition": transition, "self_loops": True}
    for batch in NeighborLoader(data, [-1] * 3, batch_size=50, **how):  # type: ignore[arg-type]
        ours = walk_graph(batch)
        assert ours.walks_by == (transition, True)
        outputs = model(batch.x, ours)[: batch.batch_size]
        torch.testing.assert_close(outputs, exact[batch.input_id], rtol=1e-4, atol=1e-5)
        loops = batch.e_id == data.num_edges
        assert int(loops.sum()) == sum(batch.num_sampled_nodes[:3])
        assert float(batch.edge_attr[loops].abs().sum()) == 0


def test_edge_weights_are_those_of_the_walk(data: Data) -> None:
    data.edge_weight = torch.rand(data.num_edges) + 0.1
    graph = Graph.from_data(data)
    (batch,) = NeighborLoader(data, [-1], batch_size=NODES, self_loops=False)
    assert torch.equal(batch.edge_weight, data.edge_weight[batch.e_id])
    torch.testing.assert_close(walk_graph(batch).dense(), graph.dense(), rtol=1e-6, atol=0)
    (looped,) = NeighborLoader(data, [-1], batch_size=NODES, self_loops=True)
    assert bool((looped.edge_weight[looped.e_id == data.num_edges] == 1).all())


def test_every_epoch_draws_anew_and_a_seed_repeats_it(data: Data) -> None:
    def epochs(loader: NeighborLoader, count: int = 2) -> list[list[int]]:
        return [[int(i) for batch in loader for i in batch.e_id] for _ in range(count)]

    how = {"num_neighbors": [3, 3], "batch_size": 30}
    first, second = epochs(NeighborLoader(data, **how, seed=4))  # type: ignore[arg-type]
    assert first != second
    assert epochs(NeighborLoader(data, **how, seed=4)) == [first, second]  # type: ignore[arg-type]
    torch.manual_seed(3)
    drawn = epochs(NeighborLoader(data, **how))  # type: ignore[arg-type]
    torch.manual_seed(3)
    assert epochs(NeighborLoader(data, **how)) == drawn  # type: ignore[arg-type]
    shuffled = NeighborLoader(data, [2], 30, shuffle=True, drop_last=True, seed=1)
    orders = [torch.cat([batch.input_id for batch in shuffled]) for _ in range(2)]
    assert not torch.equal(*orders)
    assert orders[0].sort().values.tolist() == list(range(NODES))
    assert len(NeighborLoader(data, [2], 50, drop_last=True)) == 2


@pytest.mark.parametrize("workers", [1, 3])
def test_threads_give_the_same_batches_in_the_same_order(data: Data, workers: int) -> None:
    alone, ahead = (
        list(NeighborLoader(data, [3, 3], 7, shuffle=True, seed=2, num_workers=n, by="walk"))
        for n in (0, workers)
    )
    for one, other in zip(alone, ahead, strict=True):
        assert torch.equal(one.n_id, other.n_id)
        assert torch.equal(one.entries, other.entries)


def _loading() -> list[str]:
    return [t.name for t in threading.enumerate() if "loader" in t.name]


def test_no_thread_stays_behind(data: Data) -> None:
    loader = NeighborLoader(data, [3], 1, num_workers=2, prefetch=4)
    for _ in loader:
        break
    assert not _loading()

    def interrupted() -> None:
        for _ in loader:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not _loading()
    iterator: Iterator[Data] = iter(loader)
    next(iterator)
    assert _loading()
    del iterator
    assert not _loading()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_reaches_the_caller(data: Data, workers: int) -> None:
    def refuse(batch: Data) -> Data:
        if int(batch.input_id[0]) == 20:
            raise RuntimeError("the third batch")
        batch.seen = True
        return batch

    loader = iter(NeighborLoader(data, [3], 10, transform=refuse, num_workers=workers))
    assert [next(loader).seen, next(loader).seen] == [True, True]
    with pytest.raises(RuntimeError, match="the third batch"):
        next(loader)
    assert not _loading()


# --------------------------------------------------------------------------------- where from


def test_a_dataset_brings_its_split_and_its_encoding(data: Data) -> None:
    dense = (torch.arange(NODES * 6).view(NODES, 6) % 7 == 0).float()
    codes = torch.tensor([1, 2, 4], dtype=torch.int8).repeat(NODES // 3)[:, None]
    for x in (dense, from_scipy(scipy.sparse.csr_matrix(dense.numpy()))):
        given = Dataset(x, data.edge_index, data.y, splits={"own": codes}).encoded(2)
        for batch in NeighborLoader(given, [3, 3], 40):
            assert batch.x.layout == x.layout
            rows = batch.x.to_dense() if x.layout == torch.sparse_csr else batch.x
            assert torch.equal(rows[:, :6], dense[batch.n_id])
            assert rows.size(1) == 8
            assert torch.equal(batch.val_mask, batch.n_id % 3 == 1)
            assert torch.equal(batch.y, data.y[batch.n_id])


def test_features_in_a_file_are_read_by_rows(data: Data, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", data.x.numpy())
    mapped = torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="c"))
    given = Data(x=mapped, edge_index=data.edge_index)
    for batch in NeighborLoader(given, [3], 50):
        assert torch.equal(batch.x, data.x[batch.n_id])


@pytest.mark.parametrize("layout", ["coo", "csc", "csc, by chance", "csr"])
def test_stores_of_pyg_are_asked_for_rows(data: Data, layout: str) -> None:
    features, graph = MyFeatureStore(), MyGraphStore()
    features.put_tensor(data.x, group_name=None, attr_name="x", index=None)
    features.put_tensor(data.y, group_name=None, attr_name="y", index=None)
    source, target = data.edge_index
    by = target if layout.startswith("csc") else source
    other = source if layout.startswith("csc") else target
    order = (by * NODES + other).argsort()
    if layout.endswith("chance"):
        order = torch.randperm(len(by), generator=torch.Generator().manual_seed(0))
        order = order[by[order].argsort(stable=True)]
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(by, minlength=NODES)])
    starts = starts.cumsum(0)
    ends: tuple[Tensor, Tensor] = (source, target)
    if layout == "csr":
        ends = starts, target[order]
    elif layout != "coo":
        ends = source[order], starts
    graph.put_edge_index(ends, edge_type=None, layout=layout[:3], size=(NODES, NODES))
    (batch,) = NeighborLoader((features, graph), [-1], batch_size=NODES)
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(batch.y, data.y[batch.n_id])
    exact = Graph(data.edge_index, NODES).dense()
    torch.testing.assert_close(walk_graph(batch).dense(), exact, rtol=1e-6, atol=0)


def test_what_does_not_fit_is_refused(data: Data) -> None:
    with pytest.raises(TypeError, match="data must be a Dataset, a PyG Data, or a pair"):
        NeighborLoader(data.edge_index, [2])
    with pytest.raises(TypeError, match="a FeatureStore and a GraphStore of PyG"):
        NeighborLoader((data.x, data.edge_index), [2])
    with pytest.raises(ValueError, match=r"a mask of shape \[3\], but there are 120 nodes"):
        NeighborLoader(data, [2], input_nodes=torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="seeds must be nodes 0 to 119"):
        NeighborLoader(data, [2], input_nodes=[120])
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        NeighborLoader(data, [2], batch_size=0)
    with pytest.raises(ValueError, match="num_workers must be at least 0"):
        NeighborLoader(data, [2], num_workers=-1)
    with pytest.raises(TypeError, match="transform must be a function"):
        NeighborLoader(data, [2], transform="to_undirected")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="it needs edge_index"):
        NeighborLoader(Data(x=data.x), [2])
    (batch,) = NeighborLoader(data, [2], batch_size=NODES)
    batch.edge_index = batch.edge_index.flip(1)
    with pytest.raises(ValueError, match="sorted anew"):
        walk_graph(batch)
    batch.edge_index = batch.edge_index[:, :5]
    with pytest.raises(ValueError, match="a transform changed its edges"):
        walk_graph(batch)
    with pytest.raises(ValueError, match="must come from a loader"):
        walk_graph(data)


def test_a_model_learns_from_batches(data: Data) -> None:
    """The labels are a direction of the features: the loss falls."""
    torch.manual_seed(0)
    data.y = (data.x[:, 0] > 0).long()
    model = STAGNN(6, 8, 2, hops=2, heads=2, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    loader = NeighborLoader(data, [5, 5], 40, shuffle=True, seed=0, num_workers=1)
    losses = []
    for _ in range(15):
        for batch in loader:
            optimizer.zero_grad()
            outputs = model(batch.x, walk_graph(batch))[: batch.batch_size]
            loss = torch.nn.functional.cross_entropy(outputs, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    assert sum(losses[-3:]) < 0.5 * sum(losses[:3])


@pytest.mark.parametrize("transition", ["rw", "sym", "mean"])
def test_added_loops_have_the_logit_of_loops_and_no_features(transition: str) -> None:
    torch.manual_seed(0)
    edges, attributes = torch.randint(30, (2, 90)), torch.randn(90, 3)
    data = Data(x=torch.randn(30, 4), edge_index=edges, edge_attr=attributes)
    model = STAFormer(4, 8, 3, layers=2, hops=1, edge_dim=3, transition=transition).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    whole = model(data.x, edges, edge_attr=attributes)
    given = {"batch_size": 30, "transition": transition, "self_loops": True}
    batch = next(iter(NeighborLoader(data, [-1, -1], **given)))
    out = model(batch.x, walk_graph(batch), edge_attr=batch.edge_attr)
    torch.testing.assert_close(out, whole[batch.n_id], rtol=1e-4, atol=1e-5)
    out.square().sum().backward()
    loop = model.blocks[0].conv.edge_gate.loop
    ours = loop.grad.clone()
    loop.grad = None
    whole.square().sum().backward()
    torch.testing.assert_close(ours, loop.grad, rtol=1e-3, atol=1e-5)
