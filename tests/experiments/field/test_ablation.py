"""One change at a time to what another table chose."""

import math
from pathlib import Path

import pytest

from experiments.field import render
from experiments.field.ablation import FULL, Ablation
from experiments.field.command import Worker, plan
from experiments.field.plan import Clock
from experiments.field.studies import STUDIES
from experiments.reproduce.store import Store
from subtree_attention.show.progress import Lines
from tests.experiments.field.studies import STUDY
from tests.experiments.reproduce.jobs import PLACE

CHANGES = {"no norm": {"norm": "none"}, "as it is": {"norm": "layer"}, "deeper": {"layers": 3}}
TINY = Ablation("changes", "Changes", {"digits": "tiny"}, CHANGES, model="GCN")


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STUDIES, "tiny", STUDY)


def test_changes_are_run_of_what_was_chosen(tmp_path: Path) -> None:
    store, page = Store(tmp_path), tmp_path / "page.md"
    assert TINY.jobs("digits", store) == []
    worker = Worker(PLACE, store, Clock(math.inf), Lines())
    assert [*worker.work(STUDY, ["digits"], ["GCN"])] == []
    assert " 0 trials   4 runs" in plan(TINY, ["digits"], ["GCN"], store)[0]
    assert [*worker.work(TINY, ["digits"], ["GCN"])] == []
    records = store.read("changes")
    assert {(r.variant, r.seed) for r in records} == {
        (label, seed) for label in (FULL, "no norm", "deeper") for seed in (0, 1)
    }
    taken = [record for record in records if record.variant == FULL]
    assert [record.made_for for record in taken] == ["tiny", "tiny"]
    chosen = STUDY.row("digits", "GCN", store.read("tiny"))
    assert {r.test for r in taken} == {r.test for r in chosen}
    assert all(r.config["model"]["norm"] == "none" for r in records if r.variant == "no norm")
    [file] = render.render([TINY], store, page, store)
    text = file.read_text()
    assert "| as it is | - |" in text
    assert "| as chosen | " in text
