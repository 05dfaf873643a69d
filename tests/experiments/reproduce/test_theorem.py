"""Theorem 1's experiment on graphs whose spectrum is known in closed form."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from experiments.reproduce.theorem import drawing, measure, spectrum, walks, words
from subtree_attention import Graph, subtree_attention
from tests.experiments.pictures import Picture

EIGENVALUE_ERROR = 1e-9  # the solver's residual is far below


def both_ways(pairs: list[tuple[int, int]]) -> Tensor:
    """[2, E] of an undirected graph; a loop counts once."""
    edges = {*pairs, *((j, i) for i, j in pairs)}
    return torch.tensor(sorted(edges)).t()


def cycle(n: int, first: int = 0) -> Tensor:
    return both_ways([(first + i, first + (i + 1) % n) for i in range(n)])


def complete(n: int) -> Tensor:
    return both_ways([(i, j) for i in range(n) for j in range(i)])


def path_with_loop(n: int) -> Tensor:
    """A cycle of 2n - 1 nodes, folded in the middle: every second of its eigenvalues is left."""
    return both_ways([*((i, i + 1) for i in range(n - 1)), (n - 1, n - 1)])


MIXING = {  # edges, nodes, lambda_2, lambda_N
    "odd cycle": (cycle(11), 11, math.cos(2 * math.pi / 11), -math.cos(math.pi / 11)),
    "long odd cycle": (cycle(301), 301, math.cos(2 * math.pi / 301), -math.cos(math.pi / 301)),
    "complete": (complete(6), 6, -1 / 5, -1 / 5),
    "large complete": (complete(300), 300, -1 / 299, -1 / 299),
    "path with a loop": (path_with_loop(7), 7, math.cos(2 * math.pi / 13), -math.cos(math.pi / 13)),
}
SMALL = ["odd cycle", "complete", "path with a loop"]


@pytest.mark.parametrize("name", MIXING)
def test_the_gap_is_that_of_the_known_spectrum(name):
    edges, n, lambda_2, lambda_n = MIXING[name]
    component, _ = spectrum.largest_component(edges, n)
    found = spectrum.extreme_eigenvalues(component)
    assert found.lambda_2 == pytest.approx(lambda_2, abs=EIGENVALUE_ERROR)
    assert found.lambda_N == pytest.approx(lambda_n, abs=EIGENVALUE_ERROR)
    assert found.residual < EIGENVALUE_ERROR
    expected = 1 - max(lambda_2, abs(lambda_n))
    assert spectrum.spectral_gap(found, False) == pytest.approx(expected, abs=EIGENVALUE_ERROR)
    assert not spectrum.two_colourable(component)


@pytest.mark.parametrize("name", SMALL)
def test_every_measured_hop_lies_within_the_bound(name):
    edges, n, *_ = MIXING[name]
    record = measure.measure_edges(edges, n)
    assert words.holds(record)
    for tolerance in ("0.1", "0.01"):
        first, second = record["epsilon"][tolerance], record["eta"][tolerance]
        assert first["bound"] >= first["measured_sum"] >= first["measured_entry"]
        assert second["bound"] >= second["sharper_bound"] >= second["measured_relative"]
        assert second["bound"] >= second["measured_attention"]
    assert "The claim holds" in words.sentence(record)


def test_bounds_are_the_paper_s():
    assert measure.first_bound(0.1, 1000, 0.01) == math.ceil(math.log(10_000) / 0.01)
    assert measure.second_bound(0.1, 1000, 0.01) == math.ceil(2 * math.log(10_000) / 0.01)


@pytest.mark.parametrize("edges", [cycle(12), both_ways([(0, 1)]), cycle(300)], ids=len)
def test_a_bipartite_graph_is_detected_and_never_converges(edges):
    record = measure.measure_edges(edges, int(edges.max()) + 1, cap=64)
    assert record["bipartite"]
    assert record["lambda_N"] == pytest.approx(-1, abs=EIGENVALUE_ERROR)
    assert record["gap"] == 0
    assert record["eta"]["0.1"]["bound"] is None
    assert record["eta"]["0.1"]["measured_relative"] is None
    assert record["curves"]["walk"]["hops"][-1] == 64
    assert words.holds(record) is None
    assert "cannot hold" in words.sentence(record)


def test_only_the_largest_component_of_a_disconnected_graph_counts():
    edges = torch.cat([complete(3), cycle(5, first=4)], dim=1)  # node 3 and node 9 stand alone
    record = measure.measure_edges(edges, 10)
    alone = measure.measure_edges(cycle(5), 5)
    assert record["components"] == 4
    assert (record["nodes"], record["edges"]) == (5, 10)
    assert record["share_of_nodes"] == 0.5
    assert record["gap"] == pytest.approx(alone["gap"], abs=EIGENVALUE_ERROR)
    assert record["curves"] == alone["curves"]
    assert "4 components" in words.sentence(record)


def test_a_gap_that_is_small_is_called_badly_conditioned():
    assert measure.measure_edges(cycle(101), 101, cap=4)["badly_conditioned"]
    assert not measure.measure_edges(cycle(5), 5, cap=4)["badly_conditioned"]


def test_walk_curves_are_those_of_the_dense_powers():
    edges = path_with_loop(6)
    component, _ = spectrum.largest_component(edges, 6)
    curve = walks.walk_curve(component, list(range(6)), cap=40, floor=0.0)
    degree = torch.bincount(edges[0]).double()
    stationary = (degree / degree.sum())[:, None]
    for place, hop in enumerate(curve["hops"]):
        away = (torch.linalg.matrix_power(component.dense(), hop) - stationary).abs()
        rounded = {"rel": 1e-5}  # a curve keeps six digits
        assert curve["sum"][place] == pytest.approx(float(away.sum(0).max()), **rounded)
        assert curve["entry"][place] == pytest.approx(float(away.max()), **rounded)
        assert curve["relative"][place] == pytest.approx(
            float((away / stationary).max()), **rounded
        )
    assert curve["sum"] == sorted(curve["sum"], reverse=True)
    assert curve["relative"] == sorted(curve["relative"], reverse=True)


def test_attention_curves_are_those_of_the_operator():
    component, _ = spectrum.largest_component(path_with_loop(6), 6)
    curve = walks.attention_curve(component, cap=12, floor=0.0, seed=3)
    query, key, value = walks.random_attention(6, seed=3)
    assert (value >= 0).all()
    levels = subtree_attention(query, key, value, component, 12, eps=0.0, backend="torch")
    complete_graph = Graph(torch.cartesian_prod(torch.arange(6), torch.arange(6)).t(), 6)
    everywhere = subtree_attention(query, key, value, complete_graph, 1, eps=0.0, backend="torch")[
        1
    ]
    for hop, largest in zip(curve["hops"], curve["largest"], strict=True):
        expected = walks.ratio_distance(levels[hop], everywhere).max()
        assert largest == pytest.approx(float(expected), rel=1e-5)


def test_the_distance_of_a_ratio_is_the_eta_that_allows_it():
    eta = torch.tensor([0.01, 0.1, 0.9], dtype=torch.float64)
    ones = torch.ones_like(eta)
    torch.testing.assert_close(walks.ratio_distance((1 + eta) / (1 - eta), ones), eta)
    torch.testing.assert_close(walks.ratio_distance((1 - eta) / (1 + eta), ones), eta)
    assert walks.ratio_distance(torch.zeros(1), torch.zeros(1)) == 0


def test_settled_is_the_first_hop_after_which_all_is_within():
    curve = {"hops": [1, 2, 4, 8, 16], "sum": [0.5, 0.05, 0.2, 0.1, 0.01]}
    assert walks.settled(curve, "sum", 0.1) == 8
    assert walks.settled(curve, "sum", 0.001) is None
    assert walks.settled(curve, "sum", 1.0) == 1


def test_looks_hold_every_power_of_two_and_end_at_the_cap():
    hops = walks.looks(5000)
    assert hops[:16] == list(range(1, 17))
    assert {2**m for m in range(13)} <= set(hops)
    assert hops[-1] == 5000
    steps = zip(hops[16:], hops[15:], strict=False)
    assert all(later / earlier < 1.12 for later, earlier in steps)


def test_the_sample_holds_the_worst_start_of_the_long_run():
    component, _ = spectrum.largest_component(path_with_loop(40), 40)
    found = spectrum.extreme_eigenvalues(component)
    sample = walks.start_nodes(component, found, 8, seed=0)
    assert len(sample) == 8
    some = walks.walk_curve(component, sorted(sample), 6000, floor=0.0)
    every = walks.walk_curve(component, list(range(40)), 6000, floor=0.0)
    assert some["relative"][-1] == pytest.approx(every["relative"][-1], rel=1e-4)
    assert all(s <= e for s, e in zip(some["relative"], every["relative"], strict=True))


def test_a_record_is_json_and_has_its_keys():
    record = measure.measure_edges(cycle(5), 5, name="pentagon")
    assert json.loads(json.dumps(record, allow_nan=False))["graph"] == "pentagon"
    keys = "graph nodes edges gap lambda_2 lambda_N bipartite epsilon eta curves start_nodes"
    assert set(keys.split()) <= set(record)
    assert list(record["epsilon"]) == list(record["eta"]) == ["0.1", "0.01"]
    assert set(record["curves"]) == {"walk", "attention"}


def test_the_same_numbers_twice():
    first, second = (measure.measure_edges(path_with_loop(9), 9) for _ in range(2))
    assert {**first, "seconds": 0} == {**second, "seconds": 0}


def test_the_table_has_a_row_for_each_graph_and_tolerance():
    records = [measure.measure_edges(edges, 8, cap=64) for edges in (complete(8), cycle(8))]
    rows = words.table(records)
    assert len(rows) == 4
    assert {len(row) for row in rows} == {len(words.COLUMNS)}
    assert rows[-1][-1] == "-"  # nothing to compare on a bipartite graph


def test_draw_leaves_an_svg_and_a_png(tmp_path: Path):
    pytest.importorskip("matplotlib")
    records = [measure.measure_edges(edges, 9, cap=64) for edges in (complete(9), cycle(8))]
    files = drawing.draw(records, tmp_path / "figures" / "theorem.1")
    assert [file.name for file in files] == ["theorem.1.svg", "theorem.1.png"]
    assert "hop k" in files[0].read_text()
    picture = Picture(files[1])
    assert picture.size == (14 * 150, int(5.4 * 150))
    assert picture.has(*drawing.STEPS[:2])  # a curve for each graph
    assert 0.5 < picture.share_of_paper < 0.98


@pytest.mark.parametrize(
    ("edges", "nodes", "message"),
    [
        (torch.tensor([[0, 1], [1, 2]]), 3, "undirected"),
        (torch.empty(2, 0, dtype=torch.long), 3, "no edge"),
        (torch.tensor([[1], [1]]), 2, "no edge"),
        (torch.empty(2, 0, dtype=torch.long), 0, "no edge"),
    ],
)
def test_graphs_without_a_walk_are_refused(edges, nodes, message):
    with pytest.raises(ValueError, match=message):
        measure.measure_edges(edges, nodes)


def test_eigenvalues_that_cannot_be_trusted_are_refused():
    vector = torch.zeros(2).numpy()
    with pytest.raises(RuntimeError, match="bipartite"):
        spectrum.spectral_gap(spectrum.Spectrum(0.5, -0.9, vector, vector, 1e-12), True)
    with pytest.raises(RuntimeError, match="only to"):
        spectrum.spectral_gap(spectrum.Spectrum(0.9999, -0.5, vector, vector, 1e-3), False)


@pytest.mark.usefixtures("mirror")
def test_cora_s_largest_component():
    record = measure.measure("cora", cap=32)
    assert (record["graph"], record["nodes"], record["edges"]) == ("Cora", 2485, 10138)
    assert record["gap"] == pytest.approx(0.004784, abs=1e-6)
    assert not record["bipartite"]
