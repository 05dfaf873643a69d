"""The picture of the differences."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.field import drawing, render
from experiments.field.drawing import COLOURS, draw
from experiments.reproduce.store import Store
from tests.experiments.field.test_render import FIVE, stored
from tests.experiments.pictures import Picture


@pytest.fixture(autouse=True)
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """GCN stands for ours."""
    for module in (render, drawing):
        monkeypatch.setattr(module, "OURS", "GCN")


def test_what_is_ahead_behind_and_level_has_its_colour(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    base = [0.90, 0.91, 0.92, 0.91, 0.90]
    store = stored(tmp_path, GCN=base, MLP=[score - 0.1 for score in base])
    _, png = draw([FIVE, replace(FIVE, name="none")], store, store, tmp_path / "picture")
    assert Picture(png).has(COLOURS["ahead"])
    assert not Picture(png).has(COLOURS["behind"])
    other = stored(tmp_path / "other", GCN=[score - 0.1 for score in base], MLP=base)
    _, png = draw([FIVE], other, other, tmp_path / "picture")
    assert Picture(png).has(COLOURS["behind"])


def test_without_runs_nothing_is_drawn(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert draw([FIVE], store, store, tmp_path / "picture") == []
