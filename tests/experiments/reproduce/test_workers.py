"""Processes: one job after the other in each, and all of them end."""

import os
import signal
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from experiments.reproduce.experiments import PaperJob
from experiments.reproduce.workers import Workers, _Worker
from tests.experiments.reproduce.jobs import CONFIG, PLACE, job


def noting(given: list[PaperJob]) -> Callable[[PaperJob], bool]:
    """Every job may begin, and is noted."""
    return lambda job: not given.append(job)


def test_a_killed_process_fails_its_job_and_the_next_gets_a_new_one() -> None:
    given: list[PaperJob] = []
    jobs = [job(0), job(1)]
    with Workers(jobs, PLACE, 1, noting(given)) as workers:
        [first] = workers.working
        first.process.kill()
        [lost] = workers.ended()
        assert (lost.job, lost.error) == (jobs[0], "its process was killed by signal 9")
        [second] = workers.working
        # The user's Ctrl-C reaches the whole group: only the parent acts on it.
        os.kill(second.process.pid, signal.SIGINT)
        [done] = workers.ended()
        assert done.job == jobs[1]
        assert done.record
        assert workers.working == []
    assert given == jobs


def test_all_processes_end_with_an_interrupt() -> None:
    seen: list[_Worker] = []

    def interrupted() -> None:
        with Workers([job(0), job(1)], PLACE, 8, lambda _: True) as workers:
            seen.extend(workers.working)
            assert list(workers.ended(0)) == []
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(seen) == 2  # no more than there are jobs
    assert all(worker.process.exitcode == -signal.SIGTERM for worker in seen)


def test_a_process_stays_with_its_graph_and_others_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    def on(graph: str, seed: int) -> PaperJob:
        return job(seed, graph=graph, config=CONFIG.replace(graph=graph))

    class Stub(_Worker):
        def __init__(self, place: object) -> None:
            self.pipe = SimpleNamespace(send=lambda _: None)
            self.data = None

        def end(self) -> None:
            pass

    monkeypatch.setattr("experiments.reproduce.workers._Worker", Stub)
    given: list[PaperJob] = []
    jobs = [on("cora", 0), on("cora", 1), on("cora", 2), on("actor", 3), on("actor", 4)]
    with Workers(jobs, PLACE, 2, noting(given)) as workers:
        first, second = workers.working
        for worker in (second, first, second):
            workers._give_next(worker)
    assert [j.seed for j in given] == [0, 3, 4, 1, 2]


def test_a_job_that_may_not_begin_is_passed_over() -> None:
    with Workers([job(0), job(1)], PLACE, 2, lambda job: job.seed == 1) as workers:
        [outcome] = workers.ended()
        assert outcome.job == job(1)
        assert workers.working == []
    with Workers([job(0)], PLACE, 2, lambda _: False) as workers:
        assert workers.working == []
