"""Dropout on a CPU: its share, its seed, its gradient."""

import pytest
import torch
import torch.nn.functional as F

from subtree_attention import Graph, PartGraph, Partition
from subtree_attention.nn import SparseFeatures
from subtree_attention.ops import dropout
from subtree_attention.ops.dropout import drop
from subtree_attention.ops.kernels import cpu
from subtree_attention.partition import running_on

pytestmark = pytest.mark.skipif(cpu._numba_problem() is not None, reason="needs Numba")


def dropped(x: torch.Tensor, share: float, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    return drop(x, share)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_a_share_is_dropped_and_the_rest_scaled_up(share):
    out = dropped(torch.ones(1000, 1001), share)
    kept = out[out != 0]
    assert torch.allclose(kept, torch.tensor(1 / (1 - share)), rtol=1e-4)
    assert abs(1 - kept.numel() / out.numel() - share) < 0.003
    rows, columns = ((out != 0).double().mean(dim) for dim in (1, 0))
    expected = (share * (1 - share) / 1000) ** 0.5  # no row and no column gets more than its part
    assert 0.9 * expected < rows.std() < 1.1 * expected
    assert 0.9 * expected < columns.std() < 1.1 * expected


def test_neighbours_and_seeds_know_nothing_of_each_other():
    first, second = (dropped(torch.ones(1_000_000), 0.5, seed) != 0 for seed in (0, 1))
    for distance in (1, 2, 3, 4, 8, 64):
        together = (first[distance:] == first[:-distance]).double().mean()
        assert abs(together - 0.5) < 0.003
    assert abs((first == second).double().mean() - 0.5) < 0.003


@pytest.mark.parametrize("size", [0, 1, 3, 8191, 8193, 50_001])
def test_the_same_bits_with_any_number_of_threads(size):
    before, x = torch.get_num_threads(), torch.rand(size)
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(dropped(x, 0.3))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(result, results[0]) for result in results)


def test_its_gradient_is_dropped_alike():
    x = torch.rand(7, 5, dtype=torch.float64, requires_grad=True)
    out = dropped(x, 0.4)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(grad * x, out)
    assert torch.autograd.gradcheck(lambda x: dropped(x, 0.4), x)
    assert torch.autograd.gradgradcheck(lambda x: dropped(x, 0.4), x)


def test_slices_and_transposes():
    x = torch.rand(30, 40)
    assert torch.equal(dropped(x.t(), 0.5), dropped(x.t().contiguous(), 0.5))


def test_elsewhere_it_is_torchs(monkeypatch):
    x = torch.rand(20, 10)
    monkeypatch.setenv("STA_BACKEND", "torch")
    torch.manual_seed(0)
    expected = F.dropout(x, 0.5)
    assert torch.equal(dropped(x, 0.5), expected)


def test_nothing_is_drawn_where_nothing_is_dropped():
    x, before = torch.rand(4), torch.get_rng_state()
    assert drop(x, 0.5, training=False) is x
    assert drop(x, 0.0) is x
    assert torch.equal(torch.get_rng_state(), before)


class TestOnAPart:
    """Entries are dropped where they are in the whole, whoever has them."""

    nodes = torch.tensor([1, 4, 5, 11])

    @pytest.fixture
    def part(self):
        owner = torch.zeros(13, dtype=torch.int32)
        owner[self.nodes] = 1
        graph = Graph(torch.tensor([[0, 1], [1, 2]]), 13)
        return PartGraph.of(graph, Partition(owner, 2), 1)

    @pytest.mark.parametrize("backend", ["numba", "torch"])
    @pytest.mark.parametrize("shape", [(13, 7), (13, 2, 3), (13, 1)])
    def test_rows_of_nodes(self, part, backend, shape, monkeypatch):
        x = torch.rand(shape, dtype=torch.float64, requires_grad=True)
        whole = dropped(x, 0.4)
        (grad,) = torch.autograd.grad(whole.sum(), x)
        monkeypatch.setenv("STA_BACKEND", backend)
        monkeypatch.setattr(dropout, "LOT", 5)
        with running_on(part):
            own = dropped(x[self.nodes], 0.4)
            inference = dropped(x[self.nodes].detach(), 0.4)
        assert torch.equal(own, whole[self.nodes])
        assert torch.equal(inference, own)
        (own_grad,) = torch.autograd.grad(own.sum(), x)
        assert torch.equal(own_grad[self.nodes], grad[self.nodes])

    @pytest.mark.parametrize("backend", ["numba", "torch"])
    def test_entries_of_sparse_features(self, part, backend, monkeypatch):
        x = torch.rand(13, 9) * (torch.rand(13, 9) < 0.4)
        whole = SparseFeatures(x.to_sparse_csr())
        own = SparseFeatures(x[self.nodes].to_sparse_csr())
        own.starts = x.to_sparse_csr().crow_indices()[self.nodes]
        torch.manual_seed(3)
        wanted = whole.times(torch.eye(9), 0.5)
        monkeypatch.setenv("STA_BACKEND", backend)
        torch.manual_seed(3)
        with running_on(part):
            assert torch.equal(own.times(torch.eye(9), 0.5), wanted[self.nodes])

    def test_other_rows_are_refused(self, part):
        with running_on(part), pytest.raises(ValueError, match="on 3 rows, but this rank owns 4"):
            drop(torch.ones(3, 2), 0.5)
