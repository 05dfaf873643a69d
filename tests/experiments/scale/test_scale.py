"""Formulas of larger graphs: held against measurements, and against what must be so."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.scale import cpu, halo, simulate
from experiments.scale.fit import ALLOWED, checks, fit
from experiments.scale.machines import DEVICES, LINKS, Link
from experiments.scale.models import DEEP, PAPERS, STAGNN, Shape
from experiments.scale.plan import MACHINES, cuts_of
from experiments.scale.seconds import Speeds
from experiments.scale.walk import Passes, Walk, peak_bytes
from experiments.scale.ways import BUDGET, Cut, heads, needs, nodes, one
from subtree_attention import Graph
from subtree_attention.partition import Partition

RESULTS = Path(__file__).parents[3] / "results"
H200 = MACHINES["H200"]


@pytest.fixture(scope="module")
def speeds() -> Speeds:
    return fit(RESULTS)


def test_the_formulas_are_within_a_quarter_of_what_was_not_fitted(speeds: Speeds) -> None:
    found = [check for check in checks(speeds, RESULTS) if check.large and not check.fitted]
    assert len(found) > 40
    assert {check.kind for check in found} == {"seconds", "bytes"}
    off = {f"{check.what}, {check.kind}": check.ratio for check in found}
    assert {what: ratio for what, ratio in off.items() if abs(ratio - 1) > ALLOWED} == {}


def test_so_they_are_on_a_cpu() -> None:
    _, found = cpu.checks(RESULTS)
    off = {check.what: check.ratio for check in found if check.large and not check.fitted}
    assert len(off) >= 2
    assert {what: ratio for what, ratio in off.items() if abs(ratio - 1) > ALLOWED} == {}


def test_every_device_reaches_the_same_share(speeds: Speeds) -> None:
    walk = Walk(1e7, 1e8, 4, 16, 16, 3)
    slower = DEVICES["A100"].bandwidth / DEVICES["H200"].bandwidth
    assert speeds.on(DEVICES["H200"]) == speeds
    ratio = speeds.training(walk) / speeds.on(DEVICES["A100"]).training(walk)
    assert ratio == pytest.approx(slower, rel=0.02)


def test_the_bytes_of_a_state_are_those_of_the_operator() -> None:
    walk = Walk(100, 1000, 4, 16, 7, 3)
    assert (walk.row, walk.factors, walk.readout) == (4 * 16 * 8 * 4, 4 * 24 * 4, 4 * 8 * 4)
    assert Passes.training(3, keeps=True) == Passes(5, 3, 5)
    assert Passes.training(3, keeps=False) == Passes(6, 3, 6)
    assert peak_bytes(walk, keeps=True) - peak_bytes(walk, keeps=False) == 100 * walk.row


def test_a_link_that_was_measured_takes_the_place_of_a_makers() -> None:
    link = Link.measured("here", 1e9, 0.51, latency=0.01)
    assert link.seconds(1e9) == pytest.approx(0.51)
    assert LINKS["NVLink 4"].seconds(450e9) == pytest.approx(1 / 0.8, rel=1e-4)


# --------------------------------------------------------------------------------- partitions


def test_the_rule_of_halos_is_exact_for_parts_drawn_at_random() -> None:
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(4000, (2, 20_000), generator=generator)
    edges = torch.cat([ends, ends.flip(0)], dim=1).unique(dim=1)
    edges = edges[:, edges[0] != edges[1]]
    owner = torch.randint(8, (4000,), generator=generator)
    found = Partition(owner, 8)
    cut = found.cut(edges) / edges.size(1)
    degrees = torch.bincount(edges[0], minlength=4000).numpy()
    measured = int(found.halo(edges).sum()) / 4000
    assert halo.rule(degrees, cut, 8) == pytest.approx(measured, rel=0.01)
    assert halo.rule(degrees, 0.5, 1) == 0


def test_degrees_of_a_power_law_have_their_mean() -> None:
    degrees = halo.power_law(29)
    assert degrees.mean() == pytest.approx(29)
    tail = np.log((degrees > 290).mean() / (degrees > 2900).mean()) / np.log(10)
    assert tail == pytest.approx(1.5, abs=0.1)


def test_cuts_go_on_as_they_were() -> None:
    def record(nodes: int, parts: int, cut: float) -> dict[str, object]:
        return {"family": "f", "method": "metis", "nodes": nodes, "parts": parts, "cut": cut}

    some = [record(10, 2, 0.9), record(100, 2, 0.1), record(100, 4, 0.2)]
    cuts = [halo.cut_of(some, "f", "metis", parts) for parts in (1, 2, 4, 16, 2**12)]
    assert cuts[:4] == pytest.approx([0, 0.1, 0.2, 0.4])
    assert cuts[4] == pytest.approx(1 - 2**-12)


def test_partitions_are_measured() -> None:
    pytest.importorskip("pymetis")
    found = list(halo.measure({"metis": (2048,), "streaming": (2048,)}, real=()))
    assert {r["method"] for r in found} == {"metis", "streaming"}
    assert {r["parts"] for r in found} == {2, 4, 8, 16}
    for record in found:
        assert 0 < record["cut"] < 1 - 1 / record["parts"] + 0.05
        assert record["halo"] == pytest.approx(record["rule"], rel=0.3)


# --------------------------------------------------------------------------------- simulation


def test_alone_hops_take_what_they_compute() -> None:
    part = simulate.Part(compute=1.0, inner=1.0, exchange=0.0, latency=1.0)
    assert simulate.seconds([part], hops=3) == pytest.approx(3)


def test_sending_hides_behind_computing_and_computing_behind_sending() -> None:
    def step(compute: float, exchange: float, inner: float = 0.0, blocks: int = 8) -> float:
        mean = simulate.Part(compute, inner, exchange, 0.0)
        return simulate.seconds([mean] * 4, hops=5, blocks=blocks)

    assert step(1.0, 0.1) == pytest.approx(5, rel=0.05)
    assert step(0.1, 1.0) == pytest.approx(5, rel=0.05)
    assert step(1.0, 1.0, blocks=1) == pytest.approx(10)
    assert step(1.0, 1.0, inner=1.0, blocks=1) == pytest.approx(5)
    assert step(1.0, 1.0, inner=0.5, blocks=1) == pytest.approx(7.5)
    assert step(1.0, 1.0) < 7


def test_the_slowest_part_holds_up_the_others() -> None:
    mean = simulate.Part(1.0, 0.0, 0.5, 0.0)
    even = simulate.seconds(simulate.parts_like(mean, 8, 1.0, 1.0), 4)
    uneven = simulate.seconds(simulate.parts_like(mean, 8, 1.5, 1.0), 4)
    assert uneven == pytest.approx(1.5 * even, rel=0.1)


# --------------------------------------------------------------------------------------- ways


def test_more_devices_need_less_memory_by_nodes_and_not_by_heads(speeds: Speeds) -> None:
    small = replace(PAPERS, nodes=5e6, edges=1e8)

    def cuts(_: Shape, parts: int) -> Cut:
        return Cut(halo=1.0, inner=0.5)

    by_nodes = [nodes(DEEP, small, H200, speeds, cuts, count) for count in (2, 8, 64)]
    by_heads = [heads(DEEP, small, H200, speeds, count) for count in (2, 8, 64)]
    assert by_nodes[0].bytes > 3 * by_nodes[1].bytes > 9 * by_nodes[2].bytes
    assert by_heads[2].bytes > by_heads[0].bytes / 3
    for ways in (by_nodes, by_heads):
        assert ways[0].walk > 3 * ways[1].walk
    assert by_heads[0].dense == by_heads[2].dense, "which all ranks do"


def test_a_graph_that_fits_is_soonest_on_one_device_in_one_part(speeds: Speeds) -> None:
    small = Shape("small", 2e6, 4e7, 100, 40)
    whole, budget = needs(STAGNN, small, H200, speeds, lambda *_: Cut(), 1)
    assert whole.fits
    assert budget.way == BUDGET
    assert budget.bytes < whole.bytes
    assert one(STAGNN, small, H200, speeds) == whole


def test_more_ranks_than_columns_are_refused(speeds: Speeds) -> None:
    assert heads(DEEP, PAPERS, H200, speeds, 512).limit == "columns"


def test_cuts_of_a_family_need_its_records() -> None:
    from subtree_attention.io import read_json

    records = read_json(RESULTS / "scale-halo.json")["partitions"]
    clear, mixed = (cuts_of(records, family)(PAPERS, 64) for family in ("clear", "mixed"))
    assert clear.halo < mixed.halo
    assert clear.inner > mixed.inner
    assert cuts_of(records, "clear")(PAPERS, 1) == Cut()


def test_the_benchmark_of_hops_measures_a_hop() -> None:
    from experiments.benchmarks import hops

    graph = Graph(torch.randint(200, (2, 2000)), 200)
    row = hops._measured(graph, 3, rounds=2)
    assert {"nodes": 200, "values": 3}.items() <= row.items()
    assert row["edges"] == graph.num_edges
    assert len(row["seconds"]) == 2
