"""The study of own graphs: its splits, its rivals, its tables."""

from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.own import command, rows
from experiments.own.render import best_rival, gathered, pairs, render, times
from experiments.own.rows import GCN, OURS, ROWS, SAGE, Found
from experiments.own.tables import SHARES, split_column
from experiments.reproduce.store import Store
from subtree_attention.datasets import Dataset
from subtree_attention.datasets.splits import own_codes


@pytest.mark.parametrize("labels", SHARES)
def test_a_split_has_its_shares_and_goes_by_its_seed(labels: str) -> None:
    words = np.array(split_column(1000, labels, 3))
    train, val = SHARES[labels]
    assert (words == "train").sum() == 1000 * train
    assert (words == "val").sum() == 1000 * val
    assert (words == "test").sum() == 1000 - (words != "test").sum()
    assert split_column(1000, labels, 3) == words.tolist()
    assert split_column(1000, labels, 4) != words.tolist()


def small(nodes: int = 120) -> Dataset:
    random = torch.Generator().manual_seed(0)
    y = torch.arange(nodes) % 2
    ends = 2 * torch.randint(nodes // 2, (2, 4 * nodes), generator=random)
    edges = ends + torch.randint(2, (4 * nodes,), generator=random)
    parts = [torch.arange(nodes) // 2 % 4 == part for part in range(2)]
    split = own_codes(parts[0], parts[1], ~(parts[0] | parts[1]))
    x = torch.randn(nodes, 3, generator=random) + y[:, None]
    return Dataset(x, edges, y, splits={"own": split}).renamed("small")


def test_rivals_learn_and_their_records_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "EPOCHS", 30)
    store = Store(tmp_path)
    for found in command.fitted(small(), 0, [GCN, SAGE]):
        assert found.test > 0.8
        assert found.seconds > 0
        store.add(command.as_record(found, "citeseer", "10 %", 0))
    kept = gathered(store)["citeseer", "10"]
    assert [len(kept[model]) for model in (GCN, SAGE, OURS)] == [1, 1, 0]
    assert kept[GCN][0].train is None


def records(tmp_path: Path, ours: float = 0.9) -> Store:
    """Five splits on which all others reach 0.8, and the GCN 0.85."""
    store = Store(tmp_path)
    for seed in range(5):
        for model in ROWS:
            score = ours if model == OURS else 0.85 if model == GCN else 0.8
            score += 0.001 * seed * (model == OURS)
            seconds = 12.0 if model == OURS else 4.0
            found = Found(model, score, score, seconds, settings={"won": "plain"})
            store.add(command.as_record(found, "actor", "60 %", seed))
    return store


def test_the_best_of_the_others_is_compared_and_times_are_ratios(tmp_path: Path) -> None:
    cells = gathered(records(tmp_path))
    assert best_rival(cells["actor", "60"]) == GCN
    ((_, name, difference, verdict, _),) = pairs(cells).rows
    assert name.text == GCN
    assert difference.mean == pytest.approx(5.2)
    assert verdict.text == "ahead"
    assert [cell.text for cell in times(cells).rows[0][-2:]] == ["3.0", "plain 5"]
    behind = gathered(records(tmp_path / "other", ours=0.7))
    assert pairs(behind).rows[0][3].text == "behind"


def test_the_page_gets_the_tables(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- field: own -->\nnothing yet\n<!-- end of field: own -->\nafter\n")
    written = render(records(tmp_path), page)
    assert page in written
    text = page.read_text()
    assert "nothing yet" not in text
    assert "Ours against the best of the others" in text
    assert text.startswith("before")
    assert text.endswith("after\n")


def test_wrong_words_are_refused() -> None:
    with pytest.raises(ValueError, match="graph"):
        command.main(["--graph", "nowhere"])
    with pytest.raises(ValueError, match="percent of labels"):
        command.main(["--labels", "50"])
