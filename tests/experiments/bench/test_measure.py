"""Versions are checked, then timed in turns; what fails is noted and does not end the run."""

import math

import pytest
import torch

from experiments.bench import measure, memory
from experiments.bench.measure import Version

CPU = torch.device("cpu")


def version(name="one", error=lambda: 0.0, run=lambda times: None, **more):
    return Version(name, lambda: run, error, **more)


def out_of_memory(*_):
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_an_error_that_is_not_a_number_is_the_largest():
    right, wrong = torch.ones(2), torch.tensor([1.0, math.nan])
    assert measure.relative_error([right, right], [right, right]) == 0
    for got in ([wrong, right], [right, wrong]):
        assert math.isnan(measure.relative_error(got, [right, right]))


@pytest.mark.parametrize("error", [0.5, math.nan, math.inf])
def test_a_wrong_version_is_not_reported(error):
    versions = [version("right"), version("wrong", lambda: error)]
    results = measure.measure(versions, CPU, rounds=2)
    assert results["wrong"].refused
    assert f"relative error {error:.1e}" in results["wrong"].problem
    assert results["wrong"].median is None
    assert len(results["right"].milliseconds) == 2


def test_running_out_of_memory_is_noted_at_every_stage():
    calls = []

    def later(times):
        calls.append(times)
        if len(calls) > 3:
            out_of_memory()

    failing = [
        Version("while built", out_of_memory),
        version("while checked", out_of_memory),
        version("while prepared", inputs=out_of_memory),
        version("later", run=later),
        version("foreseen", needs_bytes=2**60),
    ]
    results = measure.measure([*failing, version("fits")], CPU, rounds=3)
    for failed in failing:
        result = results[failed.name]
        assert (result.problem, result.median, result.refused) == ("out of memory", None, False)
    assert results["fits"].problem is None


def test_a_broken_version_is_refused_and_the_others_go_on():
    def broken(times):
        raise ValueError("no such kernel\nand much more")

    results = measure.measure([version("broken", run=broken), version("fine")], CPU, rounds=1)
    assert results["broken"].problem == "failed: ValueError: no such kernel"
    assert results["broken"].refused
    assert results["fine"].median is not None


def test_versions_take_turns_and_short_ones_run_in_batches(monkeypatch):
    monkeypatch.setattr(measure, "seconds", lambda run, times, device: run(times) or 0.01)
    calls = []
    runs = {name: lambda times, name=name: calls.append((name, times)) for name in "ab"}
    results = measure.measure([version(n, run=run) for n, run in runs.items()], CPU, rounds=2)
    batch = math.ceil(measure.BATCH_SECONDS / 0.01)
    assert calls[-4:] == [("a", batch), ("b", batch)] * 2
    assert results["a"].milliseconds == [10 / batch] * 2


def test_peak_counts_what_was_held_at_a_time_and_is_quiet(capfd):
    def call():
        for _ in range(3):
            held = torch.empty(1000, 1000)
        return held

    held, peak = memory.peak(call, CPU)
    assert held.nbytes <= peak <= 2 * held.nbytes  # the next is made before the last is let go
    assert capfd.readouterr().err == ""


def test_messages_about_memory_are_recognised():
    assert memory.is_out_of_memory(MemoryError())
    assert memory.is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when ..."))
    assert memory.is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: ..."))
    assert not memory.is_out_of_memory(RuntimeError("shape mismatch"))


def test_the_copy_moves_bytes():
    assert measure.copy_bandwidth(CPU, rounds=1) > 1e6
