"""The tables of docs/scale.md are those of the committed files, which follow from the others."""

from pathlib import Path

import pytest

from experiments.scale.plan import made
from experiments.scale.render import DOCS, SCALE, render
from subtree_attention.io import read_json

ROOT = Path(__file__).parents[2]


def test_the_page_shows_the_files(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_bytes((ROOT / DOCS).read_bytes())
    assert render(ROOT / "results", page).read_text() == (ROOT / DOCS).read_text()


def test_the_file_follows_from_the_measurements() -> None:
    kept, again = read_json(ROOT / "results" / SCALE), made(ROOT / "results")
    assert kept["speeds"] == pytest.approx(again["speeds"], rel=0.02)
    assert len(kept["needs"]) == len(again["needs"])
    for before, after in zip(kept["needs"], again["needs"], strict=True):
        assert {n: v for n, v in before.items() if isinstance(v, str)} == {
            n: v for n, v in after.items() if isinstance(v, str)
        }
        if before["fits"]:
            assert before["seconds"] == pytest.approx(after["seconds"], rel=0.02)


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    with pytest.raises(ValueError, match="has no mark for 'scale speeds'"):
        render(ROOT / "results", page)
