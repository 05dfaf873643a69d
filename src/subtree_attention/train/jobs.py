"""Many trainings at once: one engine for the runs of a configuration, trials and experiments.

Trainings that a GPU can replay share it; whoever kills or stops the process finds what is under
way saved, and takes it up again by the same call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from .. import _check
from ..config import Config
from ..ops.kernels.cpu import POOL
from ..runs.environment import choose_device
from .run import Run
from .watch import Watch

TOGETHER = 5
"""Runs that share a GPU at a time, see docs/performance.md."""

R = TypeVar("R", bound=Run)


class Stopped(Exception):
    """Trainings were stopped because `stop` said so; what was under way is saved."""


@dataclass(frozen=True)
class Place:
    """Where trainings are done: picklable, so that it can be sent to other processes.

    Attributes:
        device: the device.
        together: runs that share a GPU at a time.
        capture: on a GPU, replay epochs as CUDA graphs: the same numbers, sooner.
        memory: what training may take, in bytes, or "free"; None: whatever it takes. Then runs go
            on one by one and are not captured, which would take memory of its own.
    """

    device: torch.device
    together: int = TOGETHER
    capture: bool = True
    memory: int | str | None = None

    @classmethod
    def of(
        cls,
        device: str | Place = "auto",
        together: int | None = None,
        capture: bool = True,
        memory: int | str | None = None,
    ) -> Place:
        """From what a user says; a place is one already."""
        memory = _check.memory("memory", memory)
        if isinstance(device, Place):
            return device if memory is None else replace(device, memory=memory, capture=False)
        count = TOGETHER if together is None else _check.integer("together", together, 1)
        capture = _check.flag("capture", capture) and memory is None
        return cls(choose_device(device), count, capture, memory)

    def check(self, config: Config) -> None:
        """Refuse what cannot be trained here."""
        precision = config.fit.precision
        if precision != "full" and self.device.type == "cpu":
            raise ValueError(
                f"precision='{precision}' saves traffic to a GPU's memory; on a CPU it would only "
                "cost precision: train with --precision full, or on a GPU (--device cuda)"
            )

    def at_a_time(self, captured: bool) -> int:
        """Runs that go on side by side: what the host holds up gains nothing by it."""
        return self.together if captured and self.device.type == "cuda" else 1


def work(
    waiting: Iterator[R],
    at_a_time: int,
    watch: Watch | None = None,
    stop: Callable[[], bool] | None = None,
) -> Iterator[R | None]:
    """Train runs to their end, some at a time.

    Args:
        waiting: runs, made when their turn comes.
        at_a_time: how many share the device.
        watch: told of what goes on.
        stop: asked now and then; when it says so, what is under way is saved and `Stopped` raised.

    Yields:
        A run that has ended; or None, whenever the caller may look after something else.
    """
    watch, active = watch or Watch(), list[R]()
    try:
        while True:
            while len(active) < at_a_time and (run := next(waiting, None)) is not None:
                active.append(run)
                watch.start(run)
            if not active:
                return
            # Some epochs of every run, in turns, so that a GPU has work from all of them.
            counts = [run.epochs_to_read() for run in active]
            for number in range(max(counts)):
                for run, count in zip(active, counts, strict=True):
                    if number < count:
                        run.advance()
            for run in active.copy():
                run.record()
                watch.epoch(run)
                if run.epochs_left:
                    run.pause()
                else:
                    yield run
                    active.remove(run)
            del run  # what has ended gives its memory back before the next is made
            if len(active) < len(counts):
                # The memory of a captured epoch is used by nothing else, and kept until it is asked
                # for: a hundred runs would take all of a GPU, also from other processes. On a CPU
                # states of the next run may be of another size.
                torch.cuda.empty_cache()
                POOL.clear()
            if stop is not None and active and stop():
                raise Stopped
            yield None
    except (KeyboardInterrupt, Stopped):
        for run in active:
            run.suspend()
        raise
