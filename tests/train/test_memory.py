"""A budget of memory, held against what a process takes; and `fit` and `sta train` within one."""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import subtree_attention as sta
from experiments.benchmarks import memory as benchmark
from experiments.benchmarks.estimate import made
from subtree_attention.ops.machine import bound
from subtree_attention.train import estimate
from subtree_attention.train.jobs import Place
from subtree_attention.train.recipes import recipe
from subtree_attention.train.run import Material
from subtree_attention.train.watch import Watch
from tests.test_package import HERE

CPU = torch.device("cpu")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
CASE = {"shape": "30000,150000,40,32", "rounds": 2}


def taken(**case: Any) -> dict[str, Any]:
    """What a case of the benchmark takes, in a fresh process."""
    command = [sys.executable, "-m", "experiments.benchmarks.memory", "--out", "-"]
    command += ["--threads", "1", "--case", json.dumps({"what": "step", **CASE, **case})]
    done = subprocess.run(command, env=HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
@pytest.mark.parametrize(("training", "shares"), [(True, (2, 4)), (False, (4,))])
def test_no_more_is_taken_than_the_budget(training: bool, shares: tuple[int, ...]) -> None:
    pytest.importorskip("numba")
    without = taken(training=training)
    budgets = [without["peak"] // share for share in shares]
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda b: taken(training=training, memory=b), budgets))
    for budget, one in zip(budgets, found, strict=True):
        assert one["peak"] <= one["budget"] == budget, one
        assert one["peak"] > budget / 3, one  # and it is made use of


class Heard(Watch):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def test_fit_within_a_budget_says_so_and_learns_the_same(tmp_path: Path) -> None:
    data = made(nodes=3000, edges=9000, features=5, classes=40)
    config = recipe(data, graph="made", model="stagnn", epochs=3, runs=1)
    heard = Heard()
    free = sta.fit(config, tmp_path / "free", data=data, device="cpu")
    bound = sta.fit(config, tmp_path / "b", data=data, device="cpu", memory="95MB", watch=heard)
    assert bound.runs[0].val == pytest.approx(free.runs[0].val, abs=0.01)
    assert any(line.startswith("memory 91 MiB: ") and "parts" in line for line in heard.lines)
    for model in ("stagnn", "staformer"):
        other = config.replace(model=model) if model != "stagnn" else config
        with pytest.raises(ValueError, match="is the least that would"):
            sta.fit(other, tmp_path / "small", data=data, device="cpu", memory="66MiB")
    with pytest.raises(ValueError, match="features and graph alone take"):
        sta.fit(config, tmp_path / "small", data=data, device="cpu", memory="10KB")
    assert not (tmp_path / "small").exists()


def test_the_least_budget_that_is_named_will_do() -> None:
    data = made(nodes=3000, edges=9000, features=5, classes=40)
    for settings in ({"model": "stagnn"}, {"model": "staformer"}):
        config = recipe(data, graph="made", **settings)
        with pytest.raises(ValueError, match=r"38 MiB cannot do, \d+MB \(\d+ bytes\)") as refused:
            estimate.planned(data, config, CPU, "40MB")
        typed, exact = re.search(r"do, (\w+) \((\d+) bytes", str(refused.value)).groups()
        for enough in (typed, int(exact)):
            plan = estimate.planned(data, config, CPU, enough)
            assert plan.bytes == int(exact) <= plan.budget
        with pytest.raises(ValueError, match="is the least"):
            estimate.planned(data, config, CPU, int(exact) - 1)


def test_what_an_evaluation_takes_is_said_where_steps_are_on_samples(tmp_path: Path) -> None:
    heard, data = Heard(), sta.planted(400, 1600, 3, 4)
    config = recipe(data, graph="made", batch=100, epochs=1, runs=1)
    sta.fit(config, tmp_path / "out", device="cpu", data=data, memory="200MB", watch=heard)
    assert any(line.startswith("evaluation in memory 191 MiB: ") for line in heard.lines)


def test_a_run_goes_on_with_another_budget(tmp_path: Path) -> None:
    data = made(nodes=300, edges=900, features=5, classes=4)
    config = recipe(data, graph="made", model="stagnn", epochs=6, runs=1)
    stops = iter([False] * 3 + [True] * 99)
    from subtree_attention.train.jobs import Stopped

    how: dict[str, Any] = {"data": data, "device": "cpu", "checkpoint_seconds": 0.0}
    with pytest.raises(Stopped):
        sta.fit(config, tmp_path / "run", **how, memory="1GB", stop=lambda: next(stops))
    result = sta.fit(config, tmp_path / "run", **how, resume=True, memory="100MB")
    assert result.runs[0].epochs == 6


def test_a_place_with_a_budget_trains_one_by_one() -> None:
    place = Place.of("cpu", memory="2GB")
    assert (place.memory, place.capture, place.at_a_time(True)) == (2 * 10**9, False, 1)
    assert Place.of(place, memory="1GB").memory == 10**9
    assert Place.of(place).memory == 2 * 10**9


def test_a_budget_is_in_the_estimate() -> None:
    data = made(nodes=3000, edges=9000, features=5, classes=40)
    config = recipe(data, graph="made", model="stagnn")
    free, bound = (estimate.cost(data, config, CPU, budget) for budget in (None, 95 * 10**6))
    assert bound.bytes <= 95 * 10**6 < free.bytes
    assert bound.walked > free.walked


def test_sta_train_memory(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    command = [sys.executable, "-m", "subtree_attention", "train", "digits", "--out", out]
    command += ["--epochs", "2", "--runs", "1", "--device", "cpu", "--memory"]
    done = subprocess.run([*command, "900MB"], env=HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "memory 858 MiB: " in done.stdout + done.stderr
    done = subprocess.run([*command, "lots"], env=HERE, capture_output=True, text=True)
    assert done.returncode
    assert "memory must be a size such as '8GB'" in done.stderr


@needs_gpu
@pytest.mark.parametrize("shape", ["20000,100000,10,32", "100000,2000000,7,64"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("hops", [1, 3, 20])
def test_on_a_gpu_no_more_is_taken_than_the_budget(
    hops: int, heads: int, training: bool, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(benchmark.SIZES, "hops", hops)
    monkeypatch.setitem(benchmark.SIZES, "heads", heads)

    def taken(memory: int | None) -> dict[str, Any]:
        return benchmark.step(torch.device("cuda"), shape, training, memory, rounds=2)

    without = taken(None)["peak"]
    found = [taken(int(share * without)) for share in (1, 0.7, 0.5, 0.35, 0.25)]
    for one in found:
        assert "refused" in one or one["peak"] <= one["budget"], one


@needs_gpu
def test_on_a_gpu_what_was_freed_goes_back_before_more_is_taken() -> None:
    gpu, mb = torch.device("cuda"), 2**20
    torch.cuda.empty_cache()
    kept = torch.empty(100 * mb, dtype=torch.uint8, device=gpu)
    end = bound(gpu, 600 * mb)
    try:
        del kept
        for size in (200, 300, 400, 500):  # none fits into what the one before has left
            torch.empty(size * mb, dtype=torch.uint8, device=gpu)
            assert torch.cuda.memory_reserved(gpu) <= 701 * mb
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1000 * mb, dtype=torch.uint8, device=gpu)
    finally:
        end()
    torch.empty(1000 * mb, dtype=torch.uint8, device=gpu)


def test_only_a_gpu_is_bounded_and_as_long_as_the_material_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shares = list[float]()
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=2**30)
    )
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 2**28)
    said = list[str]()
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", said.append)
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, device: shares.append(share)
    )
    end = bound(torch.device("cuda:0"), 2**28)
    assert shares == [0.5]
    end()
    assert shares == [0.5, 1.0]
    assert said == ["expandable_segments:True", "expandable_segments:False"]
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:512")
    bound(torch.device("cuda:0"), 2**28)()
    assert len(said) == 2  # whoever has set torch's allocator up keeps it
    data = sta.planted(200, 800, 3, 4)
    material = Material(data, sta.recipe(data, graph="made"), torch.device("cpu"), "100MB")
    del material
    assert shares == [0.5, 1.0] * 2
