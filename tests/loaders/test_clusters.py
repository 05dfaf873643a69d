"""Batches of clusters: what is in them, what is lost, and how rows are scaled."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

from subtree_attention import STAGNN, ClusterLoader, Graph, Partition
from subtree_attention.loaders import walk_graph

NODES = 90


@pytest.fixture
def data() -> Data:
    """Three groups with many edges within and few between them, each in both directions."""
    random = torch.Generator().manual_seed(0)
    group = torch.arange(NODES) // 30
    pairs = torch.randint(0, NODES, (2, 1500), generator=random)
    near = group[pairs[0]] == group[pairs[1]]
    pairs = pairs[:, near | (torch.rand(1500, generator=random) < 0.05)]
    pairs = pairs[:, pairs[0] != pairs[1]]
    return Data(
        x=torch.randn(NODES, 5, generator=random),
        y=group,
        edge_index=torch.cat([pairs, pairs.flip(0)], dim=1),
    )


@pytest.mark.parametrize("partition", ["metis", "streaming", "blocks", None])
def test_all_nodes_come_once_with_the_edges_among_them(data: Data, partition: str | None) -> None:
    if partition == "metis":
        pytest.importorskip("pymetis")
    loader = ClusterLoader(data, 6, batch_parts=2, shuffle=True, partition=partition, seed=1)
    assert len(loader) == 3
    seen = []
    for batch in loader:
        seen.append(batch.n_id)
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        inside = torch.isin(data.edge_index, batch.n_id).all(0)
        assert batch.e_id.sort().values.tolist() == inside.nonzero().flatten().tolist()
        batch.validate()
    assert torch.cat(seen).sort().values.tolist() == list(range(NODES))


def test_rows_are_scaled_to_what_they_were(data: Data) -> None:
    parts = Partition(data.y, 3)
    exact = Graph(data.edge_index, NODES).dense()
    for rescale in (True, False):
        for batch in ClusterLoader(data, parts, rescale=rescale):
            ours, part = walk_graph(batch).dense(), exact[batch.n_id][:, batch.n_id]
            if not rescale:
                torch.testing.assert_close(ours, part, rtol=1e-6, atol=0)
            else:
                whole = exact[batch.n_id].sum(1)
                torch.testing.assert_close(ours.sum(1), whole, rtol=1e-6, atol=0)
                shape = part / part.sum(1, keepdim=True) * whole[:, None]
                torch.testing.assert_close(ours, shape, rtol=1e-6, atol=0)


def test_one_part_is_the_graph(data: Data) -> None:
    torch.manual_seed(0)
    (batch,) = ClusterLoader(data, 1)
    model = STAGNN(5, 8, 3, hops=3, dropout=0.0).eval()
    exact = model(data.x, Graph.from_data(data))
    torch.testing.assert_close(model(batch.x, walk_graph(batch)), exact, rtol=1e-4, atol=1e-5)
    conv = SAGEConv(5, 3)
    theirs = conv(data.x, data.edge_index)
    torch.testing.assert_close(conv(batch.x, batch.edge_index), theirs, rtol=1e-4, atol=1e-5)


def test_other_parts_come_together_in_another_epoch(data: Data) -> None:
    loader = ClusterLoader(data, 9, 3, shuffle=True, seed=0, num_workers=2)
    first, second = ({tuple(batch.n_id.tolist()) for batch in loader} for _ in range(2))
    assert first != second


def test_what_does_not_fit_is_refused(data: Data) -> None:
    with pytest.raises(ValueError, match="of 3 nodes, but there are 90"):
        ClusterLoader(data, Partition.blocks(3, 2))
    with pytest.raises(ValueError, match=r"unknown partition 'meti'\. Did you mean 'metis'"):
        ClusterLoader(data, 3, partition="meti")
    with pytest.raises(ValueError, match="batch_parts must be at least 1"):
        ClusterLoader(data, 3, batch_parts=0)
    with pytest.raises(ValueError, match="parts must be at least 1"):
        ClusterLoader(data, 0)
