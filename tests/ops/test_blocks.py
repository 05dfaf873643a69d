"""Blocks of heads and columns on ranks: they cover all, once, and are of the same size."""

import pytest
import torch

from subtree_attention.ops import blocks


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 40])
@pytest.mark.parametrize(("heads", "values"), [(1, 1), (1, 10), (4, 5), (3, 7), (8, 2)])
def test_they_cover_every_head_and_column_once(heads, values, ranks):
    seen, sizes = torch.zeros(heads, values), []
    for rank in range(ranks):
        found = blocks.share(heads, values, rank, ranks)
        assert len(found) <= 3
        mine = torch.zeros(heads, values)
        for part in found:
            mine[part] += 1
        flat = mine.flatten().nonzero().flatten()
        assert not len(flat) or flat.tolist() == [*range(int(flat[0]), int(flat[-1]) + 1)]
        seen += mine
        sizes.append(int(mine.sum()))
    assert (seen == 1).all()
    assert max(sizes) - min(sizes) <= 1
