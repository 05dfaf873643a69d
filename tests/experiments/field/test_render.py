"""Tables from made-up records, and what they say of winning and losing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.field import render
from experiments.field.published import PUBLISHED, Report
from experiments.field.verdicts import holm, verdicts
from experiments.reproduce.published import Score
from experiments.reproduce.records import Paired
from experiments.reproduce.store import Store
from tests.experiments.field.studies import STUDY, records_of
from tests.experiments.reproduce.synthetic import runs

FIVE = replace(STUDY, configs={"digits": STUDY.configs["digits"].replace(runs=5)})


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """GCN stands for ours."""
    monkeypatch.setattr(render, "OURS", "GCN")


def stored(folder: Path, **scores: list[float]) -> Store:
    store = Store(folder)
    for model, some in scores.items():
        for record in records_of(FIVE, model, some, best=2):
            store.add(record)
    return store


def written(study: Any, store: Store, paper: Store | None = None) -> str:
    [path] = render.render([study], store, Path("nowhere.md"), paper or store)
    return path.read_text()


def test_means_pairs_and_choices(tmp_path: Path, ours: None) -> None:
    store = stored(tmp_path, GCN=[0.90, 0.91, 0.92, 0.91, 0.90], MLP=[0.8, 0.8, 0.81, 0.82, 0.8])
    text = written(FIVE, store)
    assert "| GCN | same harness | **90.80 (0.84)** |" in text
    assert "| MLP | same harness | 80.60 (0.89) |" in text
    assert "| Digits | MLP | +10.20 | 0.37 | 5 | " in text
    assert "| ahead |" in text
    assert "| Digits | GCN | 6 | hidden_channels 4, lr 0.01 | 90.00 |" in text


def test_what_is_missing_is_said(tmp_path: Path, ours: None) -> None:
    text = written(FIVE, stored(tmp_path, GCN=[0.9, 0.91]))
    assert "90.50 (0.71), 2 of 5 runs" in text
    assert "| MLP | same harness | no runs |" in text
    assert "| Digits | MLP | no runs | - | 0 of 5 | - | - |" in text
    assert "| Digits | MLP | 0 of 6 | - | - |" in text


def test_trials_of_an_earlier_grid_are_counted(tmp_path: Path, ours: None) -> None:
    store = stored(tmp_path, GCN=[0.9, 0.91])
    [one, *_] = store.read("tiny")
    store.add(replace(one, variant="lr 5"))
    text = written(FIVE, store)
    assert "| Digits | GCN | 6, 1 of an earlier grid |" in text
    assert "they belong to a model's budget" in text


def test_published_numbers_are_marked(
    tmp_path: Path, ours: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = Report("best", "somebody", {"digits": Score(89.5, 0.2)}, {"digits": "GAT"})
    claim = Report("dream", "nobody", {"digits": Score(99.0, float("nan"))}, {}, with_code=False)
    monkeypatch.setitem(PUBLISHED, "tiny", (best, claim))
    text = written(FIVE, stored(tmp_path, GCN=[0.9, 0.91, 0.9, 0.91, 0.9]))
    assert "| best | published: somebody | 89.50 (0.20), GAT |" in text
    assert "| dream | claimed: nobody | 99.00 |" in text
    assert "is above the best published number with code on Digits" in text


def test_the_first_splits_have_a_column_of_their_own(tmp_path: Path, ours: None) -> None:
    store = stored(tmp_path, GCN=[0.9, 0.9, 0.9, 0.8, 0.8])
    text = written(replace(FIVE, first=3), store)
    assert "| model | source | Digits | Digits, first 3 splits |" in text
    assert "| 86.00 (5.48) | 90.00 (0.00) |" in text


def test_the_mean_over_graphs_needs_all_of_them(tmp_path: Path, ours: None) -> None:
    store = stored(tmp_path, GCN=[0.9, 0.9, 0.9, 0.8, 0.8])
    text = written(replace(FIVE, averaged=True), store)
    assert "| model | source | Digits | mean of all |" in text
    assert "| GCN | same harness | 86.00 (5.48) | 86.00 |" in text
    assert "| MLP | same harness | no runs | 0 of 1 graphs |" in text


def test_rows_of_the_paper_stand_beside(tmp_path: Path, ours: None) -> None:
    paper = Store(tmp_path / "paper")
    for record in runs([0.7] * 5, graph="digits", split="B"):
        paper.add(record)
    store = stored(tmp_path, GCN=[0.9, 0.9, 0.9, 0.8, 0.8])
    text = written(replace(FIVE, quoted=("STAGNN",)), store, paper)
    assert "| STAGNN | same harness | 70.00 (0.00) |" in text
    assert "| Digits | STAGNN | +16.00 |" in text


def test_a_page_gets_its_tables_between_its_marks(tmp_path: Path, ours: None) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- field: tiny -->\nearlier\n<!-- end of field: tiny -->\nend\n")
    store = stored(tmp_path, GCN=[0.9, 0.9, 0.9, 0.8, 0.8])
    for _ in range(2):
        assert page in render.render([FIVE], store, page, store)
    text = page.read_text()
    assert text.startswith("# Page\n\n<!-- field: tiny -->\n\n### Two models")
    assert text.endswith("<!-- end of field: tiny -->\nend\n")
    assert "earlier" not in text
    page.write_text("<!-- field: tiny -->\n")
    with pytest.raises(ValueError, match="has the mark"):
        render.render([FIVE], store, page, store)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


def test_behind_needs_points_and_errors_and_the_correction() -> None:
    sure = Paired(-0.02, 0.001, 10)
    small = Paired(-0.002, 0.0001, 10)  # sure, but of no account
    wide = Paired(-0.02, 0.015, 10)
    words = [verdict.word for verdict in verdicts([sure, small, wide, None, Paired(-1, None, 1)])]
    assert words == ["behind", "level", "level", "too few pairs", "too few pairs"]
    edge = Paired(-0.02, 0.0075, 10)  # p = 0.026 alone
    assert verdicts([edge])[0].word == "behind"
    assert [v.word for v in verdicts([edge] * 3)] == ["level"] * 3
    assert verdicts([Paired(0.02, 0.001, 10)])[0].word == "ahead"


def test_equal_differences_have_no_error() -> None:
    assert verdicts([Paired(-0.01, 0.0, 5)])[0].word == "behind"
    assert verdicts([Paired(0.0, 0.0, 5)])[0].word == "level"
