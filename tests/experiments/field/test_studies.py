"""Trials, what they choose, and the runs of it; interrupted and taken up again."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.field.command import Worker, plan
from experiments.field.plan import Clock, seconds_of
from experiments.field.spaces import OURS, TRIALS
from experiments.field.studies import STUDIES, in_words
from experiments.reproduce.queue import missing
from experiments.reproduce.store import Store
from subtree_attention.train.recipes import recipe
from tests.experiments.field.studies import STUDY, records_of
from tests.experiments.reproduce.jobs import PLACE


def worker(store: Store, minutes: float = math.inf) -> Worker:
    return Worker(PLACE, store, Clock(minutes))


def test_every_model_of_every_table_has_as_many_different_trials() -> None:
    for study in STUDIES.values():
        for graph in study.graphs:
            for model in study.models:
                jobs = study.trials(graph, model)
                assert len({job.config for job in jobs if job.seed == 0}) == study.budget
                assert len({job.key for job in jobs}) == len(jobs)
                fits = {(job.config.fit.epochs, job.config.fit.patience) for job in jobs}
                assert len(fits) == 1


def test_all_models_of_a_graph_train_as_long_on_the_same_splits() -> None:
    for study in STUDIES.values():
        for graph in study.graphs:
            jobs = [study.trials(graph, model)[0].config for model in study.models]
            assert (
                len({(c.fit.epochs, c.fit.patience, c.fit.runs, c.data.split) for c in jobs}) == 1
            )
            assert len({c.task for c in jobs}) == 1


def test_the_best_by_validation_is_chosen_whatever_it_has_on_test() -> None:
    records = records_of(STUDY, "GCN", [0.1, 0.2], best=3)
    chosen = STUDY.chosen("digits", "GCN", records)
    assert [job.seed for job in chosen] == [0, 1]
    assert {job.config.model.hidden_channels for job in chosen} == {5}
    assert [record.test for record in STUDY.row("digits", "GCN", records)] == [0.1, 0.2]


def test_nothing_is_chosen_before_all_trials_are_there() -> None:
    records = records_of(STUDY, "GCN", [0.1, 0.2])
    assert STUDY.chosen("digits", "GCN", records[1:]) == []
    assert STUDY.row("digits", "GCN", records[1:]) == []


def test_what_was_made_with_other_settings_is_no_trial() -> None:
    records = records_of(STUDY, "GCN", [0.1, 0.2])
    other = STUDY.configs["digits"].replace(epochs=7).to_dict()
    assert STUDY.chosen("digits", "GCN", [replace(records[0], config=other), *records[1:]]) == []
    last = replace(records[-1], config=other)
    assert [r.seed for r in STUDY.row("digits", "GCN", [*records[:-1], last])] == [0]


def test_a_trial_that_diverged_at_once_is_not_chosen() -> None:
    records = records_of(STUDY, "GCN", [0.1, 0.2], best=1)
    records[1] = replace(records[1], val=None, test=None, diverged=1, best_epoch=None)
    assert STUDY.chosen("digits", "GCN", records)[0].key != records[1].key


def test_where_each_seed_chooses_no_other_one_matters() -> None:
    study = replace(STUDY, each=True)
    jobs = study.trials("digits", "GCN")
    assert len(jobs) == TRIALS * 2
    made = records_of(STUDY, "GCN", [0.1])
    of = {job.key: job for job in jobs}
    records = [
        replace(
            made[0],
            variant=job.variant,
            seed=job.seed,
            val=value,
            config=job.config.to_dict(),
        )
        for job, value in zip(jobs, [*range(6), *range(6, 0, -1)], strict=True)
        for value in [value / 10]
    ]
    chosen = study.chosen("digits", "GCN", records)
    assert [job.seed for job in chosen] == [0, 1]
    assert [of[job.key].config.model.hidden_channels for job in chosen] == [7, 2]


def test_a_table_is_filled_and_nothing_is_run_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path)
    assert [*worker(store).work(STUDY, STUDY.graphs, STUDY.models)] == []
    out = capsys.readouterr().out
    assert all(count in out for count in ("\n1/12 ", "\n12/12 ", "\n1/2 ", "\n2/2 "))
    records = store.read("tiny")
    assert len(records) == 2 * (TRIALS + 1)
    for model in STUDY.models:
        assert [r.seed for r in STUDY.row("digits", model, records)] == [0, 1]
    assert all(record.packages["torch"] for record in records)
    lines = (tmp_path / "tiny" / "digits.jsonl").read_bytes()
    assert [*worker(store).work(STUDY, STUDY.graphs, STUDY.models)] == []
    assert (tmp_path / "tiny" / "digits.jsonl").read_bytes() == lines
    assert plan(STUDY, STUDY.graphs, STUDY.models, store)[0].startswith("tiny: about 0.0")


def test_without_time_nothing_is_begun_and_the_next_call_goes_on(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert [*worker(store, minutes=0).work(STUDY, STUDY.graphs, ["GCN"])] == []
    assert store.read("tiny") == []
    trials = STUDY.trials("digits", "GCN")
    for record in records_of(STUDY, "GCN", [0.1]):
        store.add(replace(record, config=trials[0].config.to_dict(), seconds=500.0))
    assert len(missing(trials, store)) == TRIALS - 1  # made with other settings
    assert seconds_of(trials[1], store.read("tiny")) == 500
    assert [*worker(store, minutes=5).work(STUDY, STUDY.graphs, ["GCN"])] == []
    assert len(missing(trials, store)) == TRIALS - 1  # each would take longer


def test_a_crowded_device_does_not_make_runs_look_long() -> None:
    job, record = STUDY.trials("digits", "GCN")[1], records_of(STUDY, "GCN", [0.1])[0]
    alone = replace(record, seconds=10.0, epochs=100)
    crowded = replace(record, seconds=900.0, epochs=300)
    assert seconds_of(job, [alone, crowded]) == pytest.approx(20)
    assert seconds_of(job, [replace(record, seconds=7.0, epochs=0)]) == 7  # no epochs: trees


def test_a_table_says_what_is_missing(tmp_path: Path) -> None:
    line, total = plan(STUDY, STUDY.graphs, ["GCN"], Store(tmp_path))
    assert " 6 trials   1 runs" in line
    assert total.startswith("tiny: about")


def test_settings_are_named_in_words() -> None:
    words = in_words({"lr": 0.001, "residual": True, "norm": "layer", "layers": 3})
    assert words == "lr 0.001, residual yes, norm layer, layers 3"


def test_a_space_of_another_size_is_refused() -> None:
    few = replace(STUDY, spaces={"GCN": lambda graph, model: iter([{"lr": 0.1}])})
    with pytest.raises(ValueError, match="GCN has 1 trials on digits, others have 6"):
        few.trials("digits", "GCN")


@pytest.mark.parametrize("name", ["nine", "minesweeper", "links"])
def test_the_library_has_what_was_chosen(name: str) -> None:
    study, store = STUDIES[name], Store(Path(__file__).parents[3] / "results/field")
    task = {"task": "link-prediction"} if name == "links" else {}
    for graph in study.graphs:
        chosen = study.chosen(graph, OURS, store.read_graph(name, graph))[0].config
        assert recipe(graph, model="staformer", runs=chosen.fit.runs, **task) == chosen
