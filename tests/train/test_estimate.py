"""What is said of time and memory before training."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import subtree_attention as sta
from experiments.benchmarks.estimate import made
from subtree_attention.ops import machine
from subtree_attention.train import estimate
from subtree_attention.train.estimate import Cost, Estimate, Memory, Speed, clock, cost, gib
from subtree_attention.train.recipes import recipe
from subtree_attention.train.watch import Watch

CPU = torch.device("cpu")
SLOW = Speed(1e6, 1e6, 1e6)


class Heard(Watch):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def of(classes: int = 4, **settings: Any) -> Cost:
    data = made(nodes=400, edges=900, features=5, classes=classes)
    return cost(data, recipe(data, graph="made", **{"model": "stagnn", **settings}), CPU)


def test_what_grows_with_what() -> None:
    base = of()
    assert of(hops=10).walked == 2 * base.walked
    assert of(hidden_channels=32).walked == base.walked / 2
    assert 19 < of(classes=99).walked / base.walked <= 20  # the states of STAGNN, but
    deep = of(model="staformer")
    assert of(classes=99, model="staformer").walked == deep.walked  # not of STAFormer
    sizes = base, of(classes=99), of(hidden_channels=16)
    held, of_many, of_few = (size.bytes - estimate.BASE for size in sizes)
    assert of_many > 10 * held > 30 * of_few


@pytest.mark.parametrize("task", ["link", "multilabel", "regression"])
@pytest.mark.parametrize("model", ["stagnn", "staformer"])
def test_every_task_has_a_cost(task: str, model: str) -> None:
    data = made(nodes=60, edges=200, features=5, classes=3)
    y = {"multilabel": torch.eye(3)[data.y], "regression": torch.randn(60)}.get(task, data.y)
    data = sta.datasets.Dataset(x=data.x, edge_index=data.edge_index, y=y)
    config = recipe(data, graph="made", model=model, task=task)
    found = estimate.estimate(data, config, CPU, fast=SLOW)
    assert min(found.cost) > 0
    assert found.seconds > 0


def test_sparse_features_cost_what_is_in_them() -> None:
    sizes = {"nodes": 500, "edges": 900, "classes": 3}
    costs = [
        cost(data, recipe(data, graph="made"), CPU)
        for data in (
            made(features=2000, sparse=True, **sizes),
            made(features=4000, sparse=True, **sizes),
            made(features=4000, **sizes),
        )
    ]
    assert costs[0].walked == pytest.approx(costs[1].walked, rel=0.01)  # 20 entries of a node
    assert costs[1].flops < costs[2].flops
    assert costs[1].bytes < costs[2].bytes


def test_nothing_is_drawn_from_the_random_numbers_of_a_run() -> None:
    before = torch.get_rng_state()
    data = made(nodes=50, edges=90, features=5, classes=3)
    estimate.estimate(data, recipe(data, graph="made"), CPU).line()
    assert torch.equal(before, torch.get_rng_state())


def test_runs_side_by_side_add_up() -> None:
    data = made(nodes=50, edges=90, features=5, classes=3)
    config = recipe(data, graph="made", runs=3)
    one, three = (estimate.estimate(data, config, CPU, n, SLOW) for n in (1, 5))
    assert (three.runs, three.bytes) == (3, 3 * one.bytes)
    assert three.seconds == pytest.approx(3 * one.seconds)


def test_the_line() -> None:
    data = made(nodes=50, edges=90, features=5, classes=3)
    config = recipe(data, graph="made", epochs=1000, patience=100)
    sizes = Cost(2e5, 0, 0, 0, 600 * 2**20)
    found = Estimate(config, sizes, CPU, 1, Memory(18 * 2**30, "here"), SLOW)
    assert found.line() == (
        "about 0.2 s an epoch, 20 s to 3.3 min a run; 600 MiB of 18.0 GiB free here"
    )
    unknown = Memory(None, "of 8.0 GiB in all (how much is free cannot be asked on this system)")
    assert Estimate(config, sizes, CPU, 1, unknown, SLOW).fits
    assert [clock(s) for s in (0.004, 3, 45.4, 200, 7000, 1e6)] == [
        *("0.004 s", "3 s", "45 s", "3.3 min", "1.9 h", "12 days")
    ]
    assert [gib(1000), gib(2**20), gib(2**31)] == ["1,000 bytes", "1 MiB", "2.0 GiB"]


def test_what_is_too_large_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = made(nodes=2000, edges=900, features=5, classes=90)
    config = recipe(data, graph="made", model="stagnn", epochs=1, runs=1)
    needed, less = (
        cost(data, config.replace(hidden_channels=width), CPU).bytes for width in (64, 16)
    )
    monkeypatch.setattr(estimate, "memory", lambda device: Memory(49 * needed // 100, "here"))
    with pytest.raises(
        ValueError, match=r"are needed, and .* are free here: not begun; "
    ) as refused:
        sta.fit(config, tmp_path / "run", data=data, device="cpu")
    assert "--model staformer takes" in str(refused.value)
    assert not (tmp_path / "run").exists()
    unsure = Memory(49 * needed // 100, "here", sure=False)  # of a container
    monkeypatch.setattr(estimate, "memory", lambda device: unsure)
    assert "it may fail" in estimate.expect(data, config, CPU).warning
    monkeypatch.setattr(estimate, "memory", lambda device: Memory(needed, "here"))
    heard = Heard()
    sta.fit(config, tmp_path / "run", data=data, device="cpu", watch=heard)  # it may fit
    warning, took = [line for line in heard.lines if not line.startswith("compiling")][:2]
    assert "it may fail; --hidden-channels 32 takes" in warning
    assert f"--hidden-channels 16 takes {gib(less)}" in warning
    assert " an epoch, " in took
    again = Heard()
    sta.fit(config, tmp_path / "run", data=data, device="cpu", watch=again, resume=True)
    assert again.lines == []  # it is done


def test_free_memory_is_what_the_system_and_the_container_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  9 kB\nMemAvailable:  2048 kB\n")
    assert machine.available(meminfo) == 2 * 2**20
    meminfo.write_text("MemTotal:  9 kB\n")
    assert machine.available(meminfo) is None
    assert machine.of_group(tmp_path) is None
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.of_group(tmp_path) is None
    (tmp_path / "memory.max").write_text("5000\n")
    assert machine.of_group(tmp_path) is None
    (tmp_path / "memory.stat").write_text("anon 100\nfile 900\n")
    assert machine.of_group(tmp_path) == 4000
    (tmp_path / "memory.stat").write_text("anon 100\nfile 900\ninactive_file 600\n")
    assert machine.of_group(tmp_path) == 4600  # what it can take back
    monkeypatch.setattr(machine, "available", lambda: 5000)
    monkeypatch.setattr(machine, "of_group", lambda: 4000)
    assert machine.memory(CPU) == (4000, "here", False)
    monkeypatch.setattr(machine, "of_group", lambda: 6000)
    assert machine.memory(CPU) == (5000, "here", True)
    monkeypatch.setattr(machine, "available", lambda: None)
    monkeypatch.setattr(machine, "of_group", lambda: None)
    free, where, _ = machine.memory(CPU)
    assert free is None
    assert where.endswith("(how much is free cannot be asked on this system)")


def test_many_classes_take_the_deep_model_unless_told_otherwise() -> None:
    few, many = (made(nodes=6000, edges=9000, features=5, classes=c) for c in (49, 50))
    assert recipe(few, graph="made").model.name == "stagnn"
    assert recipe(many, graph="made").model.name == "staformer"
    assert recipe(many, graph="made", model="stagnn").model.name == "stagnn"
    assert recipe(many, graph="made", head_mix="sum").model.name == "stagnn"  # its own setting
    small = made(nodes=600, edges=900, features=5, classes=200)
    assert recipe(small, graph="made").model.name == "stagnn"


def test_what_was_said_was_near_to_what_was_taken() -> None:
    path = Path(__file__).parents[2] / "results" / "estimate-cpu.json"
    found = json.loads(path.read_text())["found"]
    assert len(found) == 16
    for case, said in found.items():
        for what in ("seconds", "mib"):
            assert 1 / 2 < said[what]["ratio"] < 2, (case, what)  # as docs/tables.md says
