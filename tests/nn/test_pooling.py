"""Pooling: the sums of PyG, in one order, with their gradients; and a network around it."""

import pytest
import torch
from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool

from subtree_attention import STAGNN, STAFormer
from subtree_attention.nn import GraphNetwork, pool

THEIRS = {"mean": global_mean_pool, "sum": global_add_pool, "max": global_max_pool}
BATCH = torch.tensor([0, 0, 0, 1, 3, 3, 4, 4, 4, 4])  # graph 2 has no nodes
EDGES = torch.tensor([[0, 1, 4, 6, 7], [1, 2, 5, 7, 8]])


@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("how", THEIRS)
def test_it_is_what_pyg_gives(how: str, is_sorted: bool) -> None:
    x = torch.randn(10, 3, dtype=torch.float64, requires_grad=True)
    batch = BATCH if is_sorted else BATCH[torch.randperm(10)]
    expected = THEIRS[how](x, batch, 5)
    torch.testing.assert_close(pool(x, batch, how, 5, is_sorted), expected)
    (theirs,) = torch.autograd.grad(expected.square().sum(), x)
    (ours,) = torch.autograd.grad(pool(x, batch, how, 5, is_sorted).square().sum(), x)
    torch.testing.assert_close(ours, theirs)


def test_all_three_stand_side_by_side() -> None:
    x = torch.randn(10, 3)
    parts = [pool(x, BATCH, how) for how in ("mean", "sum", "max")]
    assert torch.equal(pool(x, BATCH, "all"), torch.cat(parts, 1))


@pytest.mark.parametrize(
    ("how", "batch", "message"),
    [
        ("median", BATCH, "unknown pooling 'median'"),
        ("mean", BATCH[:4], r"batch must have shape \[10\]"),
        ("mean", BATCH - 1, "the negative graph -1"),
    ],
)
def test_what_cannot_be_pooled_is_refused(how: str, batch: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pool(torch.ones(10, 3), batch, how)


def network(pooling: str = "all") -> GraphNetwork:
    return GraphNetwork(STAGNN(4, 8, 8, hops=2, heads=2), 8, 3, pooling)


@pytest.mark.parametrize("pooling", ["mean", "sum", "max", "all"])
def test_a_graph_is_what_it_is_alone(pooling: str) -> None:
    model, x = network(pooling), torch.randn(10, 4)
    model(x, EDGES, BATCH, 5)  # learns how many nodes a graph has
    model.eval()
    together = model(x, EDGES, BATCH, 5)
    assert together.shape == (5, 3)
    alone = model(x[6:], EDGES[:, 3:] - 6, torch.zeros(4).long())
    torch.testing.assert_close(together[4:], alone)


def test_a_sum_is_as_large_as_a_mean() -> None:
    model = network("sum")
    model(torch.randn(10, 4), EDGES, BATCH, 5)
    assert model.nodes_per_graph == 2
    model(torch.randn(4, 4), EDGES[:, 3:] - 6, torch.zeros(4).long())  # a batch of another size
    assert model.nodes_per_graph == 2
    assert "nodes_per_graph" in model.state_dict()


def test_an_encoder_need_not_know_of_graphs() -> None:
    class Plain(torch.nn.Linear):
        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return super().forward(x)

    model = GraphNetwork(Plain(4, 8), 8, 3)
    assert model(torch.randn(10, 4), EDGES, BATCH).shape == (5, 3)
    assert list(model.no_weight_decay()) == []


def test_an_encoder_gets_what_is_given_along_with_the_edges() -> None:
    encoder = STAFormer(4, 8, 8, layers=1, hops=2, edge_dim=3)
    model, edge_attr = GraphNetwork(encoder, 8, 2).eval(), torch.randn(EDGES.size(1), 3)
    x, along = torch.randn(10, 4), {"edge_attr": edge_attr, "edge_weight": edge_attr[:, 0].abs()}
    found = model(x, EDGES, BATCH, 5, **along)
    nodes = encoder(x, EDGES, along["edge_weight"], BATCH, 5, edge_attr).relu()
    torch.testing.assert_close(found, model.decided(nodes, BATCH, 5))
    assert not torch.equal(found, model(x, EDGES, BATCH, 5, edge_attr=edge_attr))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_many_nodes_in_few_digits(dtype: torch.dtype) -> None:
    """bfloat16 counts up to 256, float16 to 2,048: sums are in float32."""
    pooled = pool(torch.ones(5000, 1, dtype=dtype), torch.zeros(5000).long(), "all")
    torch.testing.assert_close(pooled, torch.tensor([[1.0, 5000.0, 1.0]]).to(dtype))
