"""Dense and CSR features: the same numbers in both layouts, and no warnings."""

import pytest
import torch

from subtree_attention.datasets.features import (
    append_columns,
    compact,
    csr_tensor,
    from_scipy,
    is_csr,
    normalise_rows,
    to_scipy,
)


@pytest.fixture
def bag_of_words() -> torch.Tensor:
    """[50, 40], 5 % non-zero, the first row empty."""
    x = (torch.rand(50, 40) < 0.05).float()
    x[0] = 0
    return x


def test_few_entries_become_csr_many_stay_dense(bag_of_words):
    assert is_csr(compact(bag_of_words))
    assert not is_csr(compact(1 - bag_of_words))
    assert torch.equal(compact(bag_of_words).to_dense(), bag_of_words)


@pytest.mark.parametrize("rows", [1, 4096, 5000])
def test_conversion_in_blocks_keeps_every_row(rows):
    x = torch.zeros(rows, 20)
    x[torch.arange(rows), torch.arange(rows) % 20] = torch.arange(rows) + 1.0
    assert torch.equal(compact(x).to_dense(), x)


def test_rows_sum_to_one_and_empty_rows_stay_empty(bag_of_words):
    dense = normalise_rows(bag_of_words)
    sparse = normalise_rows(compact(bag_of_words))
    sums = (bag_of_words.sum(1) > 0).float()
    torch.testing.assert_close(dense.sum(1), sums)
    torch.testing.assert_close(sparse.to_dense(), dense)


def test_appended_columns_are_the_same_in_both_layouts(bag_of_words):
    columns = torch.randn(50, 3)
    sparse = append_columns(compact(bag_of_words), columns)
    assert is_csr(sparse)
    assert torch.equal(sparse.to_dense(), append_columns(bag_of_words, columns))


def test_scipy_and_back(bag_of_words):
    x = compact(bag_of_words)
    assert torch.equal(from_scipy(to_scipy(x)).to_dense(), bag_of_words)


def test_parts_are_taken_as_they_are():
    x = csr_tensor(torch.tensor([0, 1, 1]), torch.tensor([2]), torch.tensor([5.0]), (2, 3))
    assert x.to_dense().tolist() == [[0, 0, 5], [0, 0, 0]]
