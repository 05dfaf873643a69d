"""Jobs and how they are worked off, on the embedded graph."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from experiments.baselines import BASELINES
from experiments.reproduce import command, queue, render, theorem
from experiments.reproduce.claims import Claims
from experiments.reproduce.experiments import EDGEWISE, EXPERIMENTS
from experiments.reproduce.records import OURS
from experiments.reproduce.store import Store
from experiments.reproduce.training import run
from subtree_attention import datasets
from subtree_attention.show.progress import Lines
from subtree_attention.train.jobs import Place
from subtree_attention.train.watch import Watch
from tests.experiments.reproduce.jobs import CONFIG, PLACE, job
from tests.runs.format1 import LATER


@pytest.fixture
def watch() -> Lines:
    return Lines()


def test_the_papers_numbers_of_runs() -> None:
    of = {name: list(EXPERIMENTS["table1"].jobs(name, None)) for name in ("cora", "physics")}
    for name, count in (("cora", 5), ("physics", 10)):
        assert [j.seed for j in of[name] if j.model == OURS] == list(range(count))
        assert [j.seed for j in of[name] if j.model == EDGEWISE] == list(range(count))
        assert [j.seed for j in of[name] if j.model == "GCN"] == 2 * list(range(5))  # decays


@pytest.mark.parametrize(("model", "own"), [("GCN", 5e-4), ("Polynormer", 5e-5)])
def test_a_baseline_is_trained_with_its_weight_decay_and_without(model: str, own: float) -> None:
    jobs = [j for j in EXPERIMENTS["table1"].jobs("cora", 1) if j.model == model]
    assert [j.training.fit.weight_decay for j in jobs] == [own, 0.0]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_two_jobs_of_an_experiment_share_a_record(name: str) -> None:
    for graph in EXPERIMENTS[name].graphs:
        keys = [j.key for j in EXPERIMENTS[name].jobs(graph, None)]
        assert len(set(keys)) == len(keys)


def test_what_is_there_is_not_run_again(tmp_path: Path, watch: Lines) -> None:
    store = Store(tmp_path)
    jobs = [job(0), job(1)]
    watch.begin("", 2)
    queue.work_off(jobs[:1], PLACE, store, watch)
    assert queue.missing(jobs, store) == jobs[1:]
    queue.work_off(queue.missing(jobs, store), PLACE, store, watch)
    assert queue.missing(jobs, store) == []
    assert watch.done == len(store.read("table1")) == 2


def test_a_job_that_fails_has_no_record_and_the_others_go_on(tmp_path: Path, watch: Lines) -> None:
    store = Store(tmp_path)
    jobs = [job(0), job(1, "GNC"), job(2)]
    assert queue.work_off(jobs, PLACE, store, watch) == ([jobs[1]], 0)
    assert queue.missing(jobs, store) == [jobs[1]]


def test_a_diverged_run_is_done(tmp_path: Path, watch: Lines) -> None:
    store, wild = Store(tmp_path), job(config=CONFIG.replace(lr=1e30))
    assert queue.work_off([wild], PLACE, store, watch) == ([], 0)
    assert queue.missing([wild], store) == []
    [record] = store.read("table1")
    assert (record.diverged, record.test) == (1, None)


def test_an_interrupt_keeps_what_is_done(
    tmp_path: Path, watch: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch, "end", stop)
    with pytest.raises(KeyboardInterrupt):
        queue.work_off([job(0), job(1)], PLACE, store, watch)
    assert len(store.read("table1")) == 1


def test_what_another_process_is_at_is_left_to_it(tmp_path: Path, watch: Lines) -> None:
    store, jobs = Store(tmp_path), [job(0), job(1)]
    other = Claims(store)
    assert other.take(jobs[0])
    watch.begin("", 2)
    assert queue.work_off(jobs, PLACE, store, watch) == ([], 1)
    assert [record.seed for record in store.read("table1")] == [1]
    assert (watch.elsewhere, watch.done, watch.total) == (1, 1, 1)
    other.close()
    queue.work_off(jobs, PLACE, store, watch)  # as chosen before the second was done
    assert (watch.elsewhere, watch.done) == (2, 2)
    queue.work_off(jobs, PLACE, store, watch, again=True)
    assert (watch.elsewhere, watch.done) == (2, 4)
    assert list((tmp_path / ".running").iterdir()) == []


def test_two_that_work_off_the_same_jobs_share_them(tmp_path: Path) -> None:
    jobs, watches = [job(seed) for seed in range(6)], [Lines(), Lines()]
    with ThreadPoolExecutor(2) as pool:
        for watch in watches:
            pool.submit(queue.work_off, jobs, PLACE, Store(tmp_path), watch)
    lines = (tmp_path / "table1" / "digits.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["seed"] for line in lines) == list(range(6))
    assert [watch.done + watch.elsewhere for watch in watches] == [6, 6]


def test_processes_give_the_same_records_and_a_failure_stays_in_its_own(
    tmp_path: Path, watch: Lines
) -> None:
    store, bad = Store(tmp_path), job(0, "GNC")
    assert queue.work_off([job(0), bad, job(1)], PLACE, store, watch, processes=2) == ([bad], 0)
    alone = {o.job.seed: o.record.test for o in run([job(0), job(1)], PLACE) if o.record}
    assert {r.seed: r.test for r in store.read("table1")} == pytest.approx(alone, abs=0.01)


EAGER = [job(model=b.name) for b in BASELINES.values() if not b.capturable]
CAPTURED = [job(model=b.name) for b in BASELINES.values() if b.capturable]
ALONE = job(1, alone=True)
JOBS = [*EAGER, ALONE, *CAPTURED]


class TestWhereJobsRun:
    def test_on_a_gpu_what_can_be_captured_stays_here(self) -> None:
        shared = queue._shared_out(JOBS, Place(torch.device("cuda")), 4)
        assert shared == (CAPTURED, EAGER, [ALONE])
        assert [job.model for job in EAGER] == ["GraphGPS", "SGFormer", "Polynormer"]

    def test_one_process_is_this_one(self) -> None:
        for device in ("cpu", "cuda"):
            _, elsewhere, _ = queue._shared_out(JOBS, Place(torch.device(device)), 1)
            assert elsewhere == []

    def test_without_capture_the_host_holds_up_everything(self) -> None:
        place = Place(torch.device("cuda"), capture=False)
        here, _, alone = queue._shared_out(JOBS, place, 4)
        assert (here, alone) == ([], [ALONE])

    def test_on_a_cpu_all_run_in_processes(self) -> None:
        assert queue._shared_out(JOBS, PLACE, 4) == ([], JOBS, [])

    @pytest.mark.parametrize(("cores", "processes"), [(1, 1), (2, 1), (8, 4), (64, 8)])
    def test_the_default_leaves_cores_for_others(
        self, cores: int, processes: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("os.cpu_count", lambda: cores)
        assert queue.default_processes(torch.device("cuda")) == processes
        assert queue.default_processes(torch.device("cpu")) == 1


def test_unknown_words_are_refused_with_what_there_is() -> None:
    with pytest.raises(ValueError, match="table1"):
        command.jobs_of("tabel1")
    with pytest.raises(ValueError, match="hops runs on cora"):
        command.jobs_of("hops", graphs=["physics"])
    with pytest.raises(ValueError, match="GCN"):
        command.jobs_of("table1", models=["GNC"])


def test_all_runs_what_there_is_of_a_graph_and_a_model() -> None:
    found = {(j.experiment, j.graph, j.model) for j in command.jobs_of("all", ["cora"], ["GCN"])}
    assert found == {(name, "cora", "GCN") for name in ("table1", "deep", "robustness")}


def test_the_theorem_is_measured_graph_by_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []

    def measure(name: str, *_: object) -> dict[str, str]:
        measured.append(name)
        return {"graph": datasets.info(name).title}

    def reproduce(*graphs: str, again: bool = False) -> list[str]:
        where = (PLACE, Store(tmp_path))
        command.reproduce("theorem", *where, graphs=[*graphs], again=again, watch=Watch())
        stored = json.loads((tmp_path / theorem.FILE).read_text())["records"]
        return [record["graph"] for record in stored]

    monkeypatch.setattr(command, "measure", measure)
    monkeypatch.setattr(command, "sentence", str)
    monkeypatch.setattr(command, "report", lambda records: {"records": records})
    monkeypatch.setattr(render, "draw", lambda *_: [])
    monkeypatch.setattr(datasets, "where", lambda *_: SimpleNamespace(status="ready"))
    assert reproduce("citeseer") == ["Citeseer"]
    assert reproduce("cora", "citeseer") == ["Cora", "Citeseer"]
    assert measured == ["citeseer", "cora"]
    assert reproduce("cora", again=True) == ["Cora", "Citeseer"]
    assert measured == ["citeseer", "cora", "cora"]


def test_the_run_of_another_experiment_is_taken_over(tmp_path: Path, watch: Lines) -> None:
    store = Store(tmp_path)
    watch.begin("", 1)
    queue.work_off([job(0)], PLACE, store, watch)
    again = replace(job(0), experiment="table3", variant="gate softmax")
    (record,) = queue.taken_over([again], store)
    (made,) = store.read("table1")
    assert (record.test, record.made_for) == (made.test, "table1")
    store.add(record)
    assert queue.missing([again], store) == []
    others = [
        replace(again, seed=1),
        replace(again, config=CONFIG.replace(gate="none")),
        replace(again, model="GCN"),
        replace(again, kind="edges added", at=0.5),
        replace(again, alone=True),
    ]
    assert queue.taken_over(others, store) == []
    assert len(queue.taken_over([replace(again, experiment="robustness", at=0.0)], store)) == 1


def test_a_run_with_other_settings_is_not_there(tmp_path: Path, watch: Lines) -> None:
    store, jobs = Store(tmp_path), [job(0), job(0, "GCN"), job(0, "MixHop")]
    queue.work_off(jobs, PLACE, store, watch)
    assert queue.missing(jobs, store) == []
    longer = replace(jobs[0], config=CONFIG.replace(epochs=4))
    wider = replace(jobs[1], settings={"hidden": 32})
    assert queue.missing([longer, wider, jobs[2]], store) == [longer, wider]
    record = store.read("table1")[1]
    assert record.settings == dict(BASELINES["gcn"].settings)
    older = {**record.config, "model": dict(record.config["model"])}
    del older["model"]["transition"]  # from before there was that setting
    store.add(replace(record, config=older))
    assert queue.missing(jobs, store) == []


def test_what_was_written_before_settings_had_parts_is_there(tmp_path: Path, watch: Lines) -> None:
    store, jobs = Store(tmp_path), [job(0), job(0, "GCN")]
    queue.work_off(jobs, PLACE, store, watch)
    path = store.path("table1", "digits")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        parts = {n: part for n, part in line["config"].items() if n != "format"}
        flat = {name: value for part in parts.values() for name, value in part.items()}
        way = {True: "beside", False: None}[flat["global_attention"]]
        flat = {name: value for name, value in flat.items() if name not in {"name", *LATER}}
        del line["format"], line["crc32"]
        line["config"] = {**flat, "similarity": None, "global_attention": way}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert queue.missing(jobs, store) == []
