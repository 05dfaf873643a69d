"""Faithfulness of explanations: edges really go, and the scores are GraphFramEx's."""

import itertools
import json
import sys
from functools import partial

import pytest
import torch
from torch_geometric.explain import Explainer as PyGExplainer
from torch_geometric.explain import GNNExplainer, fidelity

from experiments.benchmarks import faithfulness, faithfulness_picture, rankings
from experiments.benchmarks.faithfulness import Measured, characterised, masks, measure
from experiments.benchmarks.rankings import KINDS, OfRoot, Subject
from subtree_attention import STAGNN
from tests.explanations.test_explanation import randomised

EDGES = torch.tensor([[0, 0, 1, 2, 2, 3, 4, 5, 6], [1, 2, 2, 3, 4, 5, 5, 6, 7]])
BOTH = torch.cat([EDGES, EDGES.flip(0)], 1)
ROOT = 2


@pytest.fixture
def subject() -> Subject:
    torch.manual_seed(0)
    model = randomised(STAGNN(5, 8, 3, hops=3, heads=2, head_mix="linear"))
    return Subject(model, torch.randn(8, 5), BOTH)


def left(subject: Subject, *gone: tuple[int, int]) -> torch.Tensor:
    """The whole model on the edges that are left."""
    kept = [edge for edge in BOTH.t().tolist() if tuple(sorted(edge)) not in gone]
    hidden = subject.hidden(subject.inputs)
    return subject.model.conv(hidden, torch.tensor(kept).t())[ROOT]


def test_pairs_are_edges_without_their_direction(subject):
    assert subject.pairs.tolist() == EDGES.tolist()
    assert torch.equal(subject.pairs[:, subject.pair_of], BOTH.sort(0).values)
    assert torch.equal(subject.summed(torch.ones(18)), torch.full((9,), 2.0))


def test_the_answer_of_a_root_is_that_of_the_model(subject):
    for root in range(8):
        torch.testing.assert_close(subject.answers(root), subject.logits[root])
    weight = torch.rand(18, generator=torch.Generator().manual_seed(1)) + 0.1
    whole = subject.model.conv(subject.hidden(subject.inputs), BOTH, weight)
    torch.testing.assert_close(subject.answers(ROOT, weight=weight), whole[ROOT])


@pytest.mark.parametrize("gone", [[(2, 3)], [(0, 1), (2, 3), (2, 4)], [(0, 2), (1, 2), (2, 3)]])
def test_removed_edges_are_really_removed(subject, gone):
    """By weights of 0, by a graph without them and by the walk of all removals, alike."""
    expected = left(subject, *gone)
    assert not torch.allclose(expected, subject.logits[ROOT], atol=1e-4)
    kept = torch.tensor([tuple(pair) not in gone for pair in EDGES.t().tolist()])
    torch.testing.assert_close(subject.answer(ROOT, kept), expected.softmax(-1))
    weight = kept.float()[subject.pair_of]
    torch.testing.assert_close(subject.answers(ROOT, weight=weight), expected)
    cuts = [subject.cut("edges", units) for units in ((~kept).nonzero().flatten(), kept[:0].long())]
    found = subject.answers.without(ROOT, cuts).float()
    torch.testing.assert_close(found, torch.stack([expected, subject.logits[ROOT]]))


def test_a_node_goes_with_its_edges_and_the_root_stays(subject):
    scores = torch.tensor([0.0, 0, 9, 1, 0, 0, 0, -1])
    without, only = masks(subject, "nodes", ROOT, scores)
    pairs = EDGES.t().tolist()
    assert [tuple(pairs[p]) for p in (~without).nonzero().flatten()] == [(2, 3), (3, 5)]
    assert [tuple(pairs[p]) for p in only.nonzero().flatten()] == [(2, 3)]
    torch.testing.assert_close(
        subject.answers.without(ROOT, [subject.cut("nodes", torch.tensor([3]))])[0].float(),
        left(subject, (2, 3), (3, 5)),
    )


def test_at_most_ten_are_taken_and_none_that_speaks_against(subject, monkeypatch):
    monkeypatch.setattr(faithfulness, "TOP", 2)
    scores = torch.tensor([0.0, 3, 0, 1, 0, 2, 0, 0, -1])
    without, only = masks(subject, "edges", ROOT, scores)
    assert (~without).nonzero().flatten().tolist() == [1, 5]
    assert torch.equal(only, ~without)
    without, _ = masks(subject, "edges", ROOT, -scores)
    assert (~without).nonzero().flatten().tolist() == [8]


def test_fidelities_are_those_of_pyg(subject):
    """Which gets the same masks as weights of edges, through a layer that takes them."""
    explain = PyGExplainer(
        OfRoot(subject, ROOT),
        algorithm=GNNExplainer(epochs=1),
        explanation_type="model",
        edge_mask_type="object",
        model_config=rankings.MODEL,
    )
    told, seen = explain(subject.inputs, BOTH, index=ROOT), set()
    for number in range(0, 512, 5):
        chosen = torch.tensor([bool(number >> bit & 1) for bit in range(9)])
        found = Measured()
        measure(subject, ROOT, ~chosen, chosen, found)
        told.edge_mask = chosen.float()[subject.pair_of]
        assert fidelity(explain, told) == found.changed[0]
        seen.add(found.changed[0])
    assert len(seen) > 1


def test_scores_by_hand():
    plus, minus = torch.tensor([0.5, 1, 0, 0.5]), torch.tensor([0.25, 0, 0.3, -0.1])
    expected = [2 * 0.5 * 0.75 / 1.25, 1, 0, 2 / 3]  # below 0 counts as 0
    assert characterised(plus, minus).tolist() == pytest.approx(expected)
    found = Measured([(True, False), (False, False)], [(0.5, 0.1), (0.1, -0.3)], [1.0, 3.0])
    told = found.told()
    assert (told["fid+"], told["fid-"], told["seconds"]) == (0.5, 0, 2)
    assert (told["fid+_probability"], told["fid-_probability"]) == (0.3, -0.1)
    assert told["characterisation"] == pytest.approx(2 / 3, abs=1e-6)
    assert told["characterisation_probability"] == pytest.approx(0.6 / 1.3, abs=1e-6)
    some = found.characterisation(torch.tensor([[0, 0], [0, 1]]))
    assert some.tolist()[0] == pytest.approx([1, 2 * 0.5 * 0.9 / 1.4])
    assert torch.equal(some[1], found.characterisation())


def test_a_method_is_as_good_as_itself():
    found = Measured([(True, False), (False, False)], [(0.5, 0.1), (0.1, -0.3)], [1.0, 3.0])
    slower = Measured(found.changed, found.fallen, [2.0, 6.0])
    told = faithfulness.compared(found, slower)
    assert told["characterisation"] == {"mean": 0, "error": 0}
    assert told["times_our_seconds"] == 2


def test_every_method_ranks_what_there_is(subject):
    for kind in KINDS:
        given = rankings.rankings(subject, kind, epochs=3, lr=0.1)
        size = 9 if kind == "edges" else 8
        for name, rank in {**rankings.ours(subject, kind), **given}.items():
            scores = rank(ROOT)
            assert scores.shape == (size,), name
            assert (scores > 0).any(), name
            assert torch.equal(scores, rank(ROOT)), name


def test_flows_are_what_edges_and_nodes_bring(subject):
    why = subject.explainer(ROOT)
    cls = why.predicted
    flows = rankings.flows(subject, "edges", False, ROOT)
    assert float(flows.sum()) == pytest.approx(float(why.edges(cls).added.sum()))
    through = rankings.flows(subject, "nodes", False, ROOT)
    far = 6  # three steps away: nothing passes it
    assert float(through[far]) == pytest.approx(float(why.importance(cls)[far]), abs=1e-6)


def test_occlusion_is_the_fall_without_each(subject):
    before = float(subject.logits[ROOT].softmax(-1)[subject.predicted[ROOT]])
    scores = rankings.occlusion(subject, "edges", ROOT)
    for pair, score in zip(EDGES.t().tolist(), scores.tolist(), strict=True):
        after = left(subject, tuple(pair)).softmax(-1)[subject.predicted[ROOT]]
        assert score == pytest.approx(before - float(after), abs=1e-6)


def test_the_derivative_by_an_edge_is_the_limit_of_its_removal(subject):
    gradient = rankings.edge_gradient(subject, "edges", ROOT)
    step, predicted = 1e-3, subject.predicted[ROOT]
    for pair in range(9):
        less = torch.ones(18)
        less[subject.pair_of == pair] -= step
        after = subject.answers(ROOT, weight=less).log_softmax(-1)[predicted]
        fall = float(subject.logits[ROOT].log_softmax(-1)[predicted] - after) / step
        assert float(gradient[pair]) == pytest.approx(fall, abs=5e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_root_without_edges_has_no_explanation(kind):
    model = randomised(STAGNN(5, 8, 3, hops=2, heads=2))
    alone = Subject(model, torch.randn(9, 5), BOTH)
    methods = {**rankings.ours(alone, kind), **rankings.rankings(alone, kind, 1, 0.1)}
    methods["search"] = partial(rankings.search, alone, kind, 2, 3)
    for name in ("Occlusion", "Random", "search", *rankings.ours(alone, kind)):
        without, only = masks(alone, kind, 8, methods[name](8))
        assert without.all(), name
        assert not only.any(), name


def test_the_search_takes_what_makes_the_answer_fall_most(subject):
    scores = rankings.search(subject, "edges", 2, 9, ROOT)
    alone = rankings.occlusion(subject, "edges", ROOT)
    assert int(scores.argmax()) == int(alone.argmax())
    order = scores.argsort(descending=True)[: int((scores > 0).sum())]
    falls = []
    for count in range(len(order) + 1):
        gone = [tuple(EDGES[:, pair].tolist()) for pair in order[:count]]
        falls.append(float(left(subject, *gone).softmax(-1)[subject.predicted[ROOT]]))
    assert falls == sorted(falls, reverse=True)


def test_a_layer_that_is_not_the_papers_is_refused():
    model = STAGNN(5, 8, 3, global_attention=True)
    with pytest.raises(ValueError, match="a layer as in the paper"):
        _ = Subject(model, torch.randn(8, 5), BOTH).answers


def test_files_become_tables_and_a_picture(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    row = Measured([(True, False)], [(0.5, 0.1)], [0.002]).told()
    other = Measured([(False, False)], [(0.1, 0.1)], [1.5]).told()
    found = {"chosen": "Flows", "methods": {"Occlusion": other, "Flows": row}}
    found["occlusion_by_passes"] = {"seconds": 90.0}
    for graph, kind in itertools.product(("cora", "citeseer"), KINDS):
        result = {"graph": graph, "kind": kind, "top": 10, **found}
        (tmp_path / f"faithfulness-{graph}-{kind}.json").write_text(json.dumps(result))
    given = [str(tmp_path), "--out", str(tmp_path / "picture")]
    monkeypatch.setattr(sys, "argv", ["picture", *given])
    faithfulness_picture.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("| Flows | **1.00** (1.00, 0.00) | 0.64 | 2 ms |")
    assert lines[3].startswith("| Occlusion | 0.00 (0.00, 0.00) | 0.18 | 1.5 s (by passes 90 s) |")
    assert (tmp_path / "picture.svg").stat().st_size
    assert (tmp_path / "picture.png").stat().st_size
