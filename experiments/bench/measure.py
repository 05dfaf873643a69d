"""The clock: versions of one computation, checked, then timed in turns.

In turns, because machines are noisy: whatever slows one round slows every version in it.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch

from experiments.bench import memory

BATCH_SECONDS = 0.02
"""What is shorter is timed several times over in one go, without waiting in between."""

MOST_IN_A_BATCH = 50

TOLERANCE = 1e-4
"""A larger relative error is a wrong result. Right ones in float32 reach 5e-6 on 100,000 nodes,
in the gradient of the hop weights: a sum over all nodes whose terms cancel."""

T = TypeVar("T")
Run = Callable[[int], object]
"""Computes so many times in a row; it need not wait for the device."""


@dataclass(frozen=True)
class Version:
    """One way to compute something.

    Attributes:
        name: as it is reported.
        build: sets it up and returns what runs it. Memory counts from here on.
        error: its relative error against float64; None where there is nothing to compare with.
        tolerance: an error above this is a wrong result.
        inputs: makes what it is given, as far as that is not there yet; not counted as memory.
        needs_bytes: the size of its largest tensors, if they may be too much for the machine.
        batch_of: it is timed in multiples of so many calls.
    """

    name: str
    build: Callable[[], Run]
    error: Callable[[], float] | None = None
    tolerance: float = TOLERANCE
    inputs: Callable[[], object] = lambda: None
    needs_bytes: int = 0
    batch_of: int = 1


@dataclass
class Measurement:
    """What came out for one version; `problem` says why there are no times.

    A version that is wrong or broken is `refused`; one that only lacks memory is not.
    """

    milliseconds: list[float] = field(default_factory=list)
    batch: int = 1
    peak_bytes: int | None = None
    relative_error: float | None = None
    problem: str | None = None
    refused: bool = False

    @property
    def median(self) -> float | None:
        """The median time in milliseconds."""
        return statistics.median(self.milliseconds) if self.milliseconds else None

    def fail(self, problem: str, refused: bool) -> None:
        """Note why it is not reported, and drop what was measured so far."""
        self.problem, self.refused = problem, refused
        self.milliseconds, self.peak_bytes, self.relative_error = [], None, None

    def to_dict(self) -> dict[str, Any]:
        """As the results file holds it."""
        return {"median": self.median, **asdict(self)}


def measure(versions: list[Version], device: torch.device, rounds: int) -> dict[str, Measurement]:
    """Check every version, then time those that are right: name -> measurement.

    A version that runs out of memory or breaks, now or later, is noted as such and left out: the
    others are worth their time all the same.
    """
    results = {version.name: Measurement() for version in versions}
    runs: dict[str, Run] = {}
    for version in versions:
        result = results[version.name]
        run = _guarded(result, device, partial(_check_and_build, result, version, device))
        if run is not None:
            runs[version.name] = run
    for _ in range(rounds):
        for name, run in list(runs.items()):
            result = results[name]
            taken = _guarded(result, device, partial(seconds, run, result.batch, device))
            if taken is None:
                del runs[name]
            else:
                result.milliseconds.append(1e3 * taken / result.batch)
    runs.clear()
    memory.release(device)
    return results


def seconds(run: Run, times: int, device: torch.device) -> float:
    """Wall clock of so many times in a row, device work included."""
    _wait(device)
    start = time.perf_counter()
    run(times)
    _wait(device)
    return time.perf_counter() - start


def copy_bandwidth(device: torch.device, rounds: int = 5, times: int = 5) -> float:
    """Bytes a second that a plain copy of a large tensor reads and writes."""
    size = 2**28 if device.type == "cuda" else 2**25  # 1 GiB, or 128 MiB: beyond any cache
    source, target = (torch.zeros(size, device=device) for _ in range(2))

    def copy(times: int) -> None:
        for _ in range(times):
            target.copy_(source)

    copy(1)
    taken = statistics.median(seconds(copy, times, device) for _ in range(rounds))
    return 2 * source.nbytes * times / taken


def relative_error(got: Iterable[torch.Tensor], exact: Iterable[torch.Tensor]) -> float:
    """The largest |got - exact| / |exact| of some tensors; NaN if one is not a number."""
    pairs = zip(got, exact, strict=True)
    errors = [float((one.double() - right).norm() / right.norm()) for one, right in pairs]
    return float(torch.tensor(errors).max())  # Python's max would pass over NaN


def _check_and_build(result: Measurement, version: Version, device: torch.device) -> Run | None:
    """Fill in all but the times; return what to time, or None if it is wrong."""
    if not memory.fits(version.needs_bytes, device):
        raise MemoryError
    version.inputs()

    def first_times() -> Run:
        run = version.build()
        run(2)  # an optimiser makes its state at the end of the first
        return run

    first_times()  # libraries make their workspaces, which are nobody's part of the peak
    run, result.peak_bytes = memory.peak(first_times, device)
    if version.error is not None:
        error = version.error()
        if not error <= version.tolerance:  # also where it is not a number
            result.fail(f"wrong result: relative error {error:.1e}", refused=True)
            return None
        result.relative_error = error
    taken = seconds(run, 1, device)
    fitting = max(1, min(MOST_IN_A_BATCH, math.ceil(BATCH_SECONDS / taken)))
    result.batch = math.ceil(fitting / version.batch_of) * version.batch_of
    if result.batch > 1:
        run(result.batch)
    return run


def _guarded(result: Measurement, device: torch.device, call: Callable[[], T]) -> T | None:
    """`call()`, or None after noting in `result` what went wrong."""
    try:
        return call()
    except Exception as error:
        if memory.is_out_of_memory(error):
            result.fail("out of memory", refused=False)
        else:
            reason = (str(error).splitlines() or ["no reason given"])[0]
            result.fail(f"failed: {type(error).__name__}: {reason}", refused=True)
    # Only now, outside of the handler, are the tensors of the failed call let go.
    memory.release(device)
    return None


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
