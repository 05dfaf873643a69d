"""Corrupted graphs: as much as asked, undirected as before, the same for the same seed."""

import pytest
import scipy.sparse
import torch
from torch_geometric.utils import is_undirected

from experiments.reproduce.corruption import KINDS, corrupt
from subtree_attention.datasets import Dataset
from subtree_attention.datasets.features import from_scipy


def make(sparse: bool) -> Dataset:
    torch.manual_seed(0)
    half = torch.triu_indices(30, 30, offset=1)[:, torch.randperm(435)[:100]]
    loops = torch.tensor([[3, 4], [3, 4]])
    x = torch.rand(30, 8) * (torch.rand(30, 8) < 0.4)
    edge_index = torch.cat([half, half.flip(0), loops], dim=1)
    x = from_scipy(scipy.sparse.csr_matrix(x.numpy())) if sparse else x
    return Dataset(x, edge_index, torch.arange(30) % 2)


def dense(x: torch.Tensor) -> torch.Tensor:
    return x.to_dense() if x.layout == torch.sparse_csr else x


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_share_is_changed_and_no_more(kind: str, sparse: bool) -> None:
    data = make(sparse)
    changed = corrupt(data, kind, 0.3, seed=1)
    again = corrupt(data, kind, 0.3, seed=1)
    assert torch.equal(changed.edge_index, again.edge_index)
    assert torch.equal(dense(changed.x), dense(again.x))
    assert is_undirected(changed.edge_index)
    before, after = data.edge_index.size(1), changed.edge_index.size(1)
    if kind == "edges added":
        assert before + 40 <= after <= before + 62
    elif kind == "edges removed":
        assert before - 62 <= after <= before - 58
    else:
        assert after == before
        assert not torch.equal(dense(changed.x), dense(data.x))
        torch.testing.assert_close(dense(changed.x).sum(0), dense(data.x).sum(0))


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_changed_by_nothing(kind: str) -> None:
    data = make(True)
    changed = corrupt(data, kind, 0.0, seed=1)
    assert torch.equal(dense(changed.x), dense(data.x))
    edges = [set(map(tuple, d.edge_index.t().tolist())) for d in (data, changed)]
    assert edges[0] == edges[1]


def test_wrong_words_and_shares_are_refused() -> None:
    with pytest.raises(ValueError, match="edges added"):
        corrupt(make(False), "edge added", 0.1, 0)
    with pytest.raises(ValueError, match="below 1"):
        corrupt(make(False), "edges added", 1.0, 0)


def test_the_encoding_is_a_feature_like_any_other() -> None:
    data = make(True).encoded(2)
    changed = corrupt(data, "noisy features", 0.5, seed=1)
    assert changed.features.shape == data.features.shape
    before, after = (dense(d.features)[:, -2:] for d in (data, changed))
    assert not torch.equal(before, after)
    torch.testing.assert_close(before.sum(0), after.sum(0))
    assert corrupt(data, "edges added", 0.5, seed=1).encoding is data.encoding
