"""Hits@k and MRR against their definitions, pair by pair."""

import numpy as np
import pytest
import torch

from subtree_attention.tasks.metrics import METRICS
from subtree_attention.tasks.ranking import hits

LABELS = (torch.arange(120) % 3 == 0).long()
MASKS = torch.stack([torch.arange(120) % 2 == 0, torch.arange(120) % 2 == 1])


def some_logits(ties: bool) -> torch.Tensor:
    scores = torch.randn(120)
    link = (scores * 2).round() / 2 if ties else scores
    return torch.stack([torch.zeros(120), link], 1)


def parts(logits: torch.Tensor):
    for mask in MASKS:
        link = logits[:, 1].double().numpy()
        yield link[(mask & (LABELS == 1)).numpy()], link[(mask & (LABELS == 0)).numpy()]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("k", [1, 5, 20])
def test_hits(k: int, ties: bool) -> None:
    logits = some_logits(ties)
    expected = [(these > np.sort(others)[-k]).mean() for these, others in parts(logits)]
    assert hits(LABELS, MASKS, k)(logits).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("ties", [False, True])
def test_mrr(ties: bool) -> None:
    logits = some_logits(ties)
    expected = []
    for these, others in parts(logits):
        ranks = [1 + (others > one).sum() + (others == one).sum() / 2 for one in these]
        expected.append(np.mean(1 / np.array(ranks)))
    assert METRICS["mrr"].scores(LABELS, MASKS)(logits).tolist() == pytest.approx(expected)


@pytest.mark.parametrize(("k", "says"), [(39, True), (40, False), (41, False)])
def test_hits_say_nothing_unless_there_are_more_than_k_others(k: int, says: bool) -> None:
    assert [int((mask & (LABELS == 0)).sum()) for mask in MASKS] == [40, 40]
    assert hits(LABELS, MASKS, k)(some_logits(False)).isfinite().tolist() == [says, says]
    assert METRICS["hits@100"].show(float("nan")) == "-"
    assert METRICS["hits@20"].label == "Hits@20 (%)"
