"""Jobs and how they are worked off, on the embedded graph."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import subtree_attention as sta
from subtree_attention.reproduce import command, queue
from subtree_attention.reproduce.experiments import EDGEWISE, EXPERIMENTS, Job
from subtree_attention.reproduce.records import OURS
from subtree_attention.reproduce.store import Store

CONFIG = sta.recipe("digits", epochs=3, hops=2, heads=2)
PLACE = queue.Place(torch.device("cpu"))


def job(seed: int = 0, model: str = OURS, **more: object) -> Job:
    start = Job("table1", "digits", model, "", seed, CONFIG)
    return replace(start, **more)  # type: ignore[arg-type]


def test_the_papers_numbers_of_runs() -> None:
    of = {name: list(EXPERIMENTS["table1"].jobs(name, None)) for name in ("cora", "physics")}
    for name, count in (("cora", 5), ("physics", 10)):
        assert [j.seed for j in of[name] if j.model == OURS] == list(range(count))
        assert [j.seed for j in of[name] if j.model == EDGEWISE] == list(range(count))
        assert [j.seed for j in of[name] if j.model == "GCN"] == list(range(5))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_two_jobs_of_an_experiment_share_a_record(name: str) -> None:
    for graph in EXPERIMENTS[name].graphs:
        keys = [j.key for j in EXPERIMENTS[name].jobs(graph, None)]
        assert len(set(keys)) == len(keys)


def test_a_record_holds_what_a_reader_needs() -> None:
    [record] = queue.run([job()], PLACE)
    assert record["epochs"] == 3
    assert 0 < record["test"] < 1
    assert len(record["hop_weights"]) == 3
    assert len(record["gates"]) == 3
    assert len(record["gates"][0]) == 2
    assert record["config"]["hops"] == 2


def test_a_run_equals_that_of_sta_train(tmp_path: Path) -> None:
    records = sorted(queue.run([job(0), job(1)], PLACE), key=lambda r: r["seed"])
    trained = sta.fit(CONFIG.replace(runs=2), tmp_path / "out", device="cpu")
    assert [(r["val"], r["test"]) for r in records] == [(r.val, r.test) for r in trained.runs]


def test_the_edge_wise_formulation_learns_the_same() -> None:
    ours, edgewise = (next(queue.run([job(model=m)], PLACE)) for m in (OURS, EDGEWISE))
    assert edgewise["test"] == pytest.approx(ours["test"], abs=0.02)


def test_what_is_there_is_not_run_again(tmp_path: Path) -> None:
    store, seen = Store(tmp_path), []
    jobs = [job(0), job(1)]
    queue.work_off(jobs[:1], PLACE, store, seen.append)
    assert queue.missing(jobs, store) == jobs[1:]
    queue.work_off(queue.missing(jobs, store), PLACE, store, seen.append)
    assert queue.missing(jobs, store) == []
    assert len(seen) == len(store.read("table1")) == 2


def test_an_interrupt_keeps_what_is_done(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        queue.work_off([job(0), job(1)], PLACE, store, stop)
    assert len(store.read("table1")) == 1


def test_processes_give_the_same_records(tmp_path: Path) -> None:
    store = Store(tmp_path)
    queue.work_off([job(0), job(1)], PLACE, store, lambda _: None, processes=2)
    alone = {r["seed"]: r["test"] for r in queue.run([job(0), job(1)], PLACE)}
    assert {r["seed"]: r["test"] for r in store.read("table1")} == pytest.approx(alone, abs=0.01)


def test_unknown_words_are_refused_with_what_there_is() -> None:
    with pytest.raises(ValueError, match="table1"):
        command.jobs_of("tabel1")
    with pytest.raises(ValueError, match="hops runs on cora"):
        command.jobs_of("hops", graphs=["physics"])
    with pytest.raises(ValueError, match="GCN"):
        command.jobs_of("table1", models=["GNC"])
