"""Processes that work jobs off, each one at a time.

For what the host holds up: runs on a CPU, and on a GPU models whose epochs cannot be captured.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from experiments.reproduce.jobs import Job, Source
from experiments.reproduce.training import Begin, Outcome, run
from subtree_attention.train.jobs import Place


class Workers:
    """Some processes and the jobs that wait for one; all of them end with the `with`.

    Args:
        jobs: given to whoever is free.
        place: where the jobs run.
        processes: how many at most.
        begin: asked before a job is given to a process.
    """

    def __init__(self, jobs: Iterable[Job], place: Place, processes: int, begin: Begin) -> None:
        self.waiting, self.place, self.begin = list(jobs), place, begin
        self.count = min(processes, len(self.waiting))
        self.working: list[_Worker] = []

    def __enter__(self) -> Workers:
        for _ in range(self.count):
            self._give_next()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.working:
            worker.end()

    def ended(self, seconds: float | None = None) -> Iterator[Outcome]:
        """Outcomes that are there; waits for one, or only so long."""
        pipes: dict[Any, _Worker] = {worker.pipe: worker for worker in self.working}
        for pipe in wait(list(pipes), seconds):
            worker = pipes[pipe]
            outcome = worker.take()
            if outcome.error:
                # It may leave a process without its device: the next job gets a new one.
                self._dismiss(worker)
                self._give_next()
            else:
                self._give_next(worker)
            yield outcome

    def _give_next(self, worker: _Worker | None = None) -> None:
        """Give the next job to a process, by default a new one; if there is none, it ends."""
        job = self._next(worker.data if worker else None)
        if job is None:
            if worker:
                self._dismiss(worker)
            return
        if worker is None:
            worker = _Worker(self.place)
            self.working.append(worker)
        worker.give(job)

    def _dismiss(self, worker: _Worker) -> None:
        self.working.remove(worker)
        worker.end()

    def _next(self, prepared: Source | None) -> Job | None:
        """The next job for a process with this data."""

        def trouble(job: Job) -> tuple[bool, int]:
            """A process stays with its graph, or takes the one on which the fewest work."""
            data = job.source
            return data != prepared, sum(data == other.data for other in self.working)

        while self.waiting:
            job = min(self.waiting, key=trouble)
            self.waiting.remove(job)
            if self.begin(job):
                return job
        return None


class _Worker:
    """A process that runs job after job, and its end of a pipe."""

    def __init__(self, place: Place) -> None:
        context = multiprocessing.get_context("spawn")  # a fork cannot use the GPU
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, place), daemon=True)
        # Inherited: Ctrl-C reaches the whole group, but it is for the parent to end its workers.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self.process.start()
        finally:
            signal.signal(signal.SIGINT, before)
        theirs.close()  # or the end of the process would not be seen at ours
        self.job: Job | None = None
        self.data: Source | None = None

    def give(self, job: Job) -> None:
        self.job, self.data = job, job.source
        with suppress(OSError):  # it is dead, as `take` will find
            self.pipe.send(job)

    def take(self) -> Outcome:
        """How the job ended; waits for it."""
        assert self.job is not None
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            return Outcome(self.job, error=f"its process {how}")

    def end(self) -> None:
        self.process.terminate()
        self.process.join()
        self.pipe.close()


def _serve(pipe: Connection, place: Place) -> None:
    """What a worker does: run what comes, until nobody asks any more."""
    torch.set_num_threads(1)  # there are as many processes as cores to use, or nearly so
    with suppress(EOFError, OSError):
        while True:
            pipe.send(next(run([pipe.recv()], place)))
