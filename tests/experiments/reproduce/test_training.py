"""A job becomes a record; one that diverges or fails leaves the others alone."""

import gc
import math
import weakref
from functools import partial
from pathlib import Path

import pytest
import torch

import subtree_attention as sta
from experiments.baselines import GCN
from experiments.reproduce import training
from experiments.reproduce.experiments import EDGEWISE, PaperJob
from experiments.reproduce.records import OURS, Record
from experiments.reproduce.training import Outcome
from subtree_attention.train.jobs import Place
from subtree_attention.train.step import Trainer
from subtree_attention.train.watch import Watch
from tests.experiments.reproduce.jobs import CONFIG, PLACE, job
from tests.experiments.reproduce.synthetic import NO_SCORES, record


def records(*jobs: PaperJob) -> list[Record]:
    found = [outcome.record for outcome in training.run(jobs, PLACE)]
    assert all(found)
    return found


def beside_each_other(*jobs: PaperJob) -> dict[PaperJob, Outcome]:
    """As on a GPU: by model, all jobs at a time."""
    data = training._prepared(jobs[0])
    start = partial(training._JobRun, data=data, placed=data, place=PLACE)
    found = training._train(jobs, start, len(jobs), lambda _: True, Watch())
    return {outcome.job.model: outcome for outcome in found if outcome}


def test_a_record_holds_what_a_reader_needs() -> None:
    [record] = records(job())
    assert record.epochs == 3
    assert 0 < record.test < 1
    assert record.diverged is None
    assert len(record.hop_weights) == 3
    assert len(record.gates) == 3
    assert len(record.gates[0]) == 2
    assert record.config["model"]["hops"] == 2


def test_a_run_equals_that_of_sta_train(tmp_path: Path) -> None:
    found = sorted(records(job(0), job(1)), key=lambda r: r.seed)
    trained = sta.fit(CONFIG.replace(runs=2), tmp_path / "out", device="cpu")
    assert [(r.val, r.test) for r in found] == [(r.val, r.test) for r in trained.runs]


def test_the_edge_wise_formulation_learns_the_same() -> None:
    ours, edgewise = records(job(model=OURS), job(model=EDGEWISE))
    assert edgewise.test == pytest.approx(ours.test, abs=0.02)


def test_of_a_diverged_run_the_best_epoch_before_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    [whole] = records(job(config=CONFIG.replace(epochs=2)))
    read = Trainer.read

    def diverging(self: Trainer, since: int) -> list[list[float]]:
        rows = enumerate(read(self, since), start=since + 1)
        return [row if epoch < 3 else [math.nan] * 4 for epoch, row in rows]

    monkeypatch.setattr(Trainer, "read", diverging)
    [record] = records(job(config=CONFIG.replace(epochs=9)))
    assert (record.diverged, record.epochs) == (3, 2)
    for name in ("train", "val", "test", "best_epoch"):
        assert getattr(record, name) == getattr(whole, name)


def test_a_run_that_never_was_finite_has_no_scores() -> None:
    [record] = records(job(config=CONFIG.replace(lr=1e30)))
    assert (record.diverged, record.epochs) == (1, 0)
    for name in ("train", "val", "test", "best_epoch", "hop_weights", "gates"):
        assert getattr(record, name) is None


def test_what_fails_or_diverges_ends_without_those_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = iter(range(100))

    def fail_later(*_: object) -> torch.Tensor:
        if next(calls) < 2:
            return torch.zeros(1797, 10, requires_grad=True)
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(GCN, "forward", fail_later)
    wild = job(model="MixHop", config=CONFIG.replace(epochs=4))
    read = Trainer.read
    monkeypatch.setattr(
        Trainer,
        "read",
        lambda self, since: (
            [[math.nan] * 4] if type(self.model).__name__ == "MixHop" else read(self, since)
        ),
    )
    ended = beside_each_other(job(), job(model="GCN"), job(model="GNC"), wild)
    assert ended[OURS].record.epochs == 3
    assert ended["GCN"].error == "OutOfMemoryError: no room"
    assert "unknown baseline 'gnc'" in ended["GNC"].error
    assert ended["MixHop"].record.diverged == 1


def test_a_graph_that_cannot_be_prepared_fails_its_jobs_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = job(graph="cora", config=CONFIG.replace(graph="cora"))
    prepared = training._prepared

    def torn(asked: PaperJob) -> object:
        if asked.graph == "cora":
            raise OSError("a torn file")
        return prepared(asked)

    monkeypatch.setattr(training, "_prepared", torn)
    first, second = training.run([lost, job()], PLACE)
    assert first == Outcome(lost, error="OSError: a torn file")
    assert second.record


def test_a_finished_run_is_gone_before_the_next_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    build, models = PaperJob.build, []

    def watched(*args: object) -> object:
        gc.collect()  # as where memory is measured
        assert [model() for model in models] == [None] * len(models)
        model = build(*args)
        models.append(weakref.ref(model))
        return model

    monkeypatch.setattr(PaperJob, "build", watched)
    records(job(0), job(1, EDGEWISE), job(2, "GCN"), job(3))
    assert len(models) == 4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_runs_do_not_pile_up() -> None:
    some = [job(seed, config=CONFIG.replace(epochs=20)) for seed in range(12)]
    held = [torch.cuda.memory_reserved() for _ in training.run(some, Place(torch.device("cuda")))]
    assert max(held[5:]) <= 1.3 * max(held[:5])  # five at a time


def test_where_an_error_comes_from_is_shown_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert training.in_words(ValueError()) == "ValueError"
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("STA_TRACEBACK", "1")
    list(training.run([job(model="GNC")], PLACE))
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("outcome", "words", "notable"),
    [
        (Outcome(job(), record(epochs=210)), "test 80.00  210 epochs", False),
        (
            Outcome(job(), record(epochs=210, diverged=211)),
            "test 80.00  210 epochs  diverged at epoch 211",
            True,
        ),
        (
            Outcome(job(), record(epochs=0, diverged=1, **NO_SCORES)),
            "0 epochs  diverged at epoch 1",
            True,
        ),
        (Outcome(job(), error="no room"), "failed: no room", True),
    ],
)
def test_every_end_in_a_line(outcome: Outcome, words: str, notable: bool) -> None:
    assert (outcome.words, outcome.notable) == (words, notable)
