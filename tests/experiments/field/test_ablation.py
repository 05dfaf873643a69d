"""One change at a time to what another table chose."""

import math
from pathlib import Path

import pytest
import torch

from experiments.field import render
from experiments.field.ablation import ABLATION, FULL, Ablation
from experiments.field.command import Worker, plan
from experiments.field.gates import EdgeGatedSettings, edge_shapes
from experiments.field.plan import Clock
from experiments.field.studies import STUDIES
from experiments.reproduce.store import Store
from subtree_attention import Graph
from subtree_attention.config import STAFormerSettings
from subtree_attention.nn import build
from tests.experiments.field.studies import STUDY
from tests.experiments.reproduce.jobs import PLACE

CHANGES = {
    "no norm": lambda config: config.replace(norm="none"),
    "as it is": lambda config: config.replace(norm="layer"),
    "deeper": lambda config: config.replace(layers=3),
}
TINY = Ablation("changes", "Changes", {"digits": "tiny"}, CHANGES, model="GCN")


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STUDIES, "tiny", STUDY)


def test_every_change_is_one_to_some_graphs_model() -> None:
    for graph, name in ABLATION.sources.items():
        config = STUDIES[name].trials(graph, ABLATION.model)[0].config
        changed = {label: change(config) for label, change in ABLATION.changes.items()}
        assert sum(other != config for other in changed.values()) > len(changed) / 2


def test_edges_are_gated_by_their_place_in_the_graph() -> None:
    # A triangle with a tail, each edge both ways; edge_index in an order of its own.
    pairs = torch.tensor([[0, 1], [1, 2], [2, 0], [2, 3]])
    edges = torch.cat([pairs, pairs.flip(1)]).T[:, torch.randperm(8)]
    graph = Graph(edges, 4, transition="sym", self_loops=True)
    shapes = edge_shapes(graph)
    degree = torch.tensor([2, 2, 3, 1])
    shared = [0 if 3 in pair else 1 for pair in edges.T.tolist()]
    counts = torch.stack([degree[edges[0]], degree[edges[1]], torch.tensor(shared)], 1)
    counts = counts.double().log1p()
    expected = (counts - counts.mean(0)) / counts.std(0, correction=0)
    torch.testing.assert_close(shapes, expected.float())


def test_a_fresh_edge_gate_changes_nothing() -> None:
    settings = STAFormerSettings(hidden_channels=4, layers=2, heads=2)
    edges = torch.tensor([[0, 1, 2, 3, 0, 2], [1, 0, 3, 2, 2, 0]])
    graph, x = Graph(edges, 4, transition="sym", self_loops=True), torch.randn(4, 5)
    torch.manual_seed(0)
    plain = build(settings, 5, 3)
    gated = build(EdgeGatedSettings(**vars(settings)), 5, 3)
    gated.model.load_state_dict(plain.state_dict(), strict=False)
    torch.testing.assert_close(gated.eval()(x, graph), plain.eval()(x, graph))
    gated(x, graph).square().sum().backward()
    assert gated.model.blocks[0].conv.edge_gate.lin.weight.grad.abs().sum() > 0
    assert {*map(id, gated.no_weight_decay())} == {*map(id, gated.model.no_weight_decay())}


def test_changes_are_run_of_what_was_chosen(tmp_path: Path) -> None:
    store, page = Store(tmp_path), tmp_path / "page.md"
    assert TINY.jobs("digits", store) == []
    worker = Worker(PLACE, store, Clock(math.inf))
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
    assert "not begun" not in text
    assert "| as chosen | " in text


def test_what_was_not_run_is_told_from_what_is_there_anyway(tmp_path: Path) -> None:
    store = Store(tmp_path)
    worker = Worker(PLACE, store, Clock(math.inf))
    assert [*worker.work(STUDY, ["digits"], ["GCN"])] == []
    few = Ablation("changes", "Changes", {"digits": "tiny"}, {}, model="GCN")
    assert [*worker.work(few, ["digits"], ["GCN"])] == []
    more = Ablation("changes", "Changes", {"digits": "tiny", "cora": "nine"}, CHANGES, model="GCN")
    table = render.ablated(more, store)
    assert table.columns == ("change", "Digits")
    assert [row[1].text for row in table.rows[1:]] == ["no runs", "-", "no runs"]
    assert "Planned and not begun: Cora." in table.notes
