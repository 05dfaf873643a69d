"""The search for a recipe: what it tries, what it keeps, and that nothing is done twice."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from torch import Tensor

from subtree_attention.show import study as shown
from subtree_attention.show.progress import Bars
from subtree_attention.tasks.metrics import CLASS_METRICS as METRICS
from subtree_attention.tasks.metrics import accuracy
from subtree_attention.train.recipes import RECIPES, recipe
from subtree_attention.train.run import Run
from subtree_attention.train.watch import Watch
from subtree_attention.tune import SPACES, Plan, loop
from subtree_attention.tune import search as _search
from subtree_attention.tune.loop import FAILURES, parse_budget
from subtree_attention.tune.space import grid, key, settings
from subtree_attention.tune.study import JOURNAL, Study, opened

optuna = pytest.importorskip("optuna")

TINY = {"epochs": 2, "encoding": 0}


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STA_BACKEND", "torch")  # two epochs are not worth compiling kernels


def task(method: str = "grid", space: str = "paper", runs: int = 1, **changes: object) -> Plan:
    tiny = {**TINY, **changes}
    if space == "wide":
        del tiny["encoding"]
    return Plan("digits", method, space, runs, changes=tiny)


def search(task: Plan, out: Path, **how: object) -> Study:
    return _search(task, out, device="cpu", **how)  # type: ignore[arg-type]


def states(study: Study) -> list[str]:
    return [trial.state.name for trial in study.optuna.get_trials()]


# ------------------------------------------------------------------------------------- the space


def test_the_papers_grid_has_480_points_each_once() -> None:
    points = grid(SPACES["paper"])
    assert len(points) == len({key(point) for point in points}) == 480
    assert {point["hops"] for point in points} == {3, 5, 10}
    assert {point["heads"] for point in points} == {1, 2, 4, 6, 8}
    assert grid(SPACES["paper"]) == points
    assert grid(SPACES["paper"], seed=1) != points


def test_every_corner_of_the_wide_space_is_a_recipe() -> None:
    for end in ("low", "high"):
        point = {
            name: getattr(values, end) if hasattr(values, end) else values[-1]
            for name, values in SPACES["wide"].items()
        }
        assert task("optuna", "wide").config(point).model.hops == point["hops"]


def test_numbers_are_trained_as_they_are_written() -> None:
    assert settings({"lr": 0.00123456, "hops": 3, "gate": "none"}) == {
        "lr": 0.00123,
        "hops": 3,
        "gate": "none",
    }


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("20m", 1200), ("2h", 7200), ("1h30m", 5400), ("0.5m", 30)]
)
def test_budgets(text: str, seconds: float) -> None:
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "20", "m", "0s", "20 minutes", "-5m", "30m1h"])
def test_a_wrong_budget_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="90s, 20m, 2h"):
        parse_budget(text)


# ------------------------------------------------------------------------------------ the search


def test_a_second_call_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    study = search(task(runs=2), tmp_path / "out", trials=1)
    [first] = study.trials()
    assert first.value == pytest.approx(sum(first.user_attrs["scores"]) / 2)
    study = search(task(runs=2), tmp_path / "out", trials=3)
    assert states(study) == ["COMPLETE"] * 3
    assert study.trials()[0].params == first.params
    assert len({key(trial.params) for trial in study.trials()}) == 3
    again = search(task(runs=2), tmp_path / "out", trials=3)
    assert states(again) == ["COMPLETE"] * 3
    assert not any((tmp_path / "out" / "trials").iterdir()), "trials that are done leave no folder"
    assert not list((tmp_path / "out").glob("worker-*"))


def test_optuna_searches_the_wide_space_and_goes_on_as_if_never_stopped(tmp_path: Path) -> None:
    stopped = task("optuna", "wide")
    search(stopped, tmp_path / "stopped", trials=1)
    taken_up = search(stopped, tmp_path / "stopped", trials=2)
    whole = search(stopped, tmp_path / "whole", trials=2)
    for study in (taken_up, whole):
        assert states(study) == ["COMPLETE"] * 2
    assert [t.params for t in taken_up.trials()] == [t.params for t in whole.trials()]
    assert [t.value for t in taken_up.trials()] == [t.value for t in whole.trials()]


def test_a_proposal_that_was_tried_is_replaced_by_another_point(tmp_path: Path) -> None:
    same = grid(SPACES["paper"])[-1]
    with opened(task("optuna"), tmp_path) as study:
        for _ in range(3):
            study.optuna.enqueue_trial(same)
        trials = [study.next(None) for _ in range(3)]
    points = [key(trial.params) for trial in trials if trial]
    assert len(set(points)) == 3
    assert points[0] == key(same)


def test_the_end_of_a_small_grid_is_an_end(tmp_path: Path) -> None:
    for method in ("grid", "optuna"):
        with opened(task(method), tmp_path / method) as study:
            study.points = study.points[:2]
            for point in study.points:
                study.optuna.enqueue_trial(point)
            for _ in range(2):
                trial = study.next(None)
                assert trial is not None
                study.finish(trial, [0.5], [1], 1.0)
            assert study.next(None) is None


def test_a_trial_whose_process_is_gone_is_done_again(tmp_path: Path) -> None:
    for method in ("grid", "optuna"):
        out = tmp_path / method
        with opened(task(method), out) as study:
            left = study.next(None)  # and then this process ends
            assert left is not None
        study = search(task(method), out, trials=1)
        assert states(study) == ["FAIL", "COMPLETE"]
        assert [trial.params for trial in study.trials()] == [left.params]


def test_a_trial_of_a_living_process_is_left_to_it(tmp_path: Path) -> None:
    with opened(task(), tmp_path) as one, opened(task(), tmp_path) as other:
        mine, yours = one.next(2), other.next(2)
        assert mine is not None
        assert yours is not None
        assert mine.params != yours.params
        assert other.next(2) is None
        assert states(one) == ["RUNNING", "RUNNING"]


class StopAt(Watch):
    """Stops the search like Ctrl-C does."""

    def __init__(self, epoch: int) -> None:
        self.at, self.seen = epoch, 0

    def epoch(self, run: Run) -> None:
        self.seen += 1
        if self.seen == self.at:
            raise KeyboardInterrupt


def test_ctrl_c_puts_the_trial_back_and_it_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = search(task(epochs=4), tmp_path / "whole", trials=1)
    with pytest.raises(KeyboardInterrupt):
        search(task(epochs=4), tmp_path / "out", trials=1, watch=StopAt(3))
    [folder] = (tmp_path / "out" / "trials").iterdir()
    assert (folder / "run-0" / "checkpoint.safetensors").exists()
    rest = StopAt(100)
    study = search(task(epochs=4), tmp_path / "out", trials=1, watch=rest)
    assert rest.seen == 1
    assert [t.value for t in study.trials()] == [t.value for t in whole.trials()]


def test_stopped_in_the_last_epoch_no_further_one_is_trained(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        search(task(epochs=2), tmp_path, trials=1, watch=StopAt(2))
    study = search(task(epochs=2), tmp_path, trials=1)
    assert study.trials()[0].user_attrs["epochs"] == [2]


def test_the_budget_ends_the_search_within_a_trial(tmp_path: Path) -> None:
    long = task(epochs=3000, patience=3000)
    started = time.monotonic()
    study = search(long, tmp_path, budget=4.0)
    assert time.monotonic() - started < 20
    assert states(study).count("FAIL") <= 1
    assert study.trials() == []
    with opened(long, tmp_path) as study:
        taken_up = study.next(None)
        assert taken_up is not None
        assert (study.run_folder(taken_up) / "run-0" / "checkpoint.safetensors").exists()


def test_a_trial_that_fails_is_recorded_and_the_search_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = Run.record, iter(range(100))

    def record(self: Run) -> object:
        if next(calls) == 0:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.\nmore")
        return original(self)

    monkeypatch.setattr(Run, "record", record)
    study = search(task(), tmp_path, trials=2)
    assert states(study) == ["FAIL", "COMPLETE"]
    reason = "CUDA out of memory. Tried to allocate 9 GiB."
    assert study.trials()[0].user_attrs["reason"] == reason
    assert shown._others(study) == [f"1 failed: {reason}"]
    assert states(search(task(), tmp_path, trials=2)) == ["FAIL", "COMPLETE"]


def test_a_divergence_says_why_and_many_failures_end_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = replace(METRICS["accuracy"], scores=lambda *_: lambda __: torch.full((3,), torch.nan))
    monkeypatch.setitem(METRICS, "accuracy", nothing)
    with pytest.raises(RuntimeError, match=f"{FAILURES} trials in a row failed.*not finite"):
        search(task(), tmp_path)
    with opened(task(), tmp_path) as study:
        assert states(study) == ["FAIL"] * FAILURES
        assert len(study.trials()) == FAILURES, "each is recorded with its reason, none put back"


def test_the_choice_does_not_depend_on_test_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = search(task("optuna"), tmp_path / "honest", trials=2)

    def poisoned(labels: Tensor, masks: Tensor) -> Callable[[Tensor], Tensor]:
        score = accuracy(labels, masks)
        return lambda logits: torch.cat(
            [score(logits)[:2], torch.tensor([6.66], dtype=torch.float64)]
        )

    monkeypatch.setitem(METRICS, "accuracy", replace(METRICS["accuracy"], scores=poisoned))
    original = loop.fit

    def sealed(*args: object, **how: object) -> SimpleNamespace:
        """What `fit` gives, without the test scores."""
        runs = [vars(run).copy() for run in original(*args, **how).runs]
        assert all(run.pop("test") == 6.66 for run in runs)
        return SimpleNamespace(runs=[SimpleNamespace(**run) for run in runs])

    monkeypatch.setattr(loop, "fit", sealed)
    study = search(task("optuna"), tmp_path / "poisoned", trials=2)
    assert [t.params for t in study.trials()] == [t.params for t in honest.trials()]
    assert [t.value for t in study.trials()] == [t.value for t in honest.trials()]
    assert b"6.66" not in (tmp_path / "poisoned" / JOURNAL).read_bytes()
    assert b"test" not in (tmp_path / "poisoned" / JOURNAL).read_bytes()


def test_a_trial_below_the_median_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "REPORT_EPOCHS", 1)
    long = task(epochs=6, patience=2)
    with opened(long, tmp_path) as study:
        for _ in range(11):
            trial = study.next(None)
            assert trial is not None
            for epoch in range(1, 7):
                trial.report(1.5, epoch)
            study.finish(trial, [1.5], [6], 1.0)
    study = search(long, tmp_path, trials=12, prune=True)
    assert states(study)[-1] == "PRUNED"
    assert study.done()[0].number == 0


def test_a_torn_line_of_the_journal_is_dropped(tmp_path: Path) -> None:
    search(task(), tmp_path, trials=1)
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b'{"op_code":4,"wor')
    assert states(search(task(), tmp_path, trials=2)) == ["COMPLETE"] * 2


# ------------------------------------------------------------------------------- what is told


def test_the_recipe_line_is_python_for_recipes() -> None:
    chosen, point = Plan("citeseer"), grid(SPACES["paper"])[0]
    line = eval("{" + shown.recipe_line(chosen, point) + "}")
    assert line == {"citeseer": {**RECIPES["citeseer"], **point}}
    assert chosen.protocol(point) == recipe("citeseer", **point)
    assert chosen.protocol(point).fit.runs == 5
    assert chosen.config(point).fit.runs == 3


def test_the_live_display_shows_trials_and_the_best(tmp_path: Path) -> None:
    console = Console(force_terminal=True, width=200, record=True, file=StringIO())
    with Bars(console) as bars:
        search(task(), tmp_path, trials=2, watch=bars)
        note = bars.display.tasks[1].fields["note"]
    assert "trial 1, run 0" in note
    assert "best" in note
    assert "left" in note
    assert "trial 0  val" in console.export_text()


Outcome = tuple[int | None, str, str]
QUICK = ["--runs", "1", "--epochs", "2", "--device", "cpu"]


@pytest.fixture
def run(run_sta: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Call `sta tune`: -> exit code, what it printed, its errors."""
    return partial(run_sta, "tune")


def test_it_ends_with_recipe_command_table_and_plots(
    run: Callable[..., Outcome], tmp_path: Path
) -> None:
    code, out, err = run("digits", "--trials", "2", *QUICK)
    assert code == 0, err
    assert "2/2  trial 1  val" in out
    assert '"digits": {"hops":' in out
    assert "sta train digits --epochs 2 --lr 0.0" in out
    assert "the best trials by validation accuracy" in out
    assert "test" not in out
    pytest.importorskip("matplotlib")
    for name in ("history.png", "importance.png", "slices.png"):
        assert name in out
        assert (tmp_path / "runs/tune-digits" / name).stat().st_size > 1000
    # The same command with --final: nothing is searched again, the best is trained and tested.
    code, out, err = run("digits", "--trials", "2", *QUICK, "--final")
    assert code == 0, err
    assert "2/2" not in out
    assert "test accuracy" in out
    [final] = (tmp_path / "runs/tune-digits").glob("final-*")
    assert len(json.loads((final / "summary.json").read_text())["runs"]) == 5


def test_a_folder_of_another_search_is_refused_with_what_to_do(
    run: Callable[..., Outcome], tmp_path: Path
) -> None:
    with opened(Plan("cora"), tmp_path / "mine"):
        pass
    code, _, err = run("digits", "--out", "mine")
    assert code == 2
    assert "mine holds another search (graph 'cora', not 'digits')" in err
    code, _, err = run("cora", "--space", "wide", "--out", "mine", "--mirror", "nowhere")
    assert code == 2


def test_ctrl_c_ends_with_how_to_go_on(
    run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("subtree_attention.tune.search", stop)
    code, _, err = run("digits", "--budget", "20m", *QUICK)
    assert code == 130
    assert err.strip() == (
        "Stopped. Go on with: sta tune digits --method optuna --space paper --runs 1 --seed 0 "
        "--epochs 2 --out runs/tune-digits --budget 20m --device cpu"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("coraa",), "Did you mean 'cora'"),
        (("digits", "--budget", "20"), "unknown budget '20': write 20s or 20m, or as 90s, 20m"),
        (("digits", "--method", "gird"), "Did you mean 'grid'"),
        (("digits", "--space", "wied"), "Did you mean 'wide'"),
        (("digits", "--method", "grid", "--space", "wide"), "it has no grid"),
        (("digits", "--trials", "0"), "trials must be at least 1, got 0"),
        (("digits", "--runs", "0"), "runs must be at least 1, got 0"),
        (("cora", "--mirror", "nowhere", "--data-dir", "d"), "nowhere is not a folder"),
    ],
)
def test_a_users_mistake_is_two_lines_and_leaves_nothing(
    arguments: tuple[str, ...], message: str, run: Callable[..., Outcome], tmp_path: Path
) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert message in err
    assert len(err.splitlines()) <= 2
    assert not list(tmp_path.iterdir())


def test_without_optuna_it_says_what_to_install(
    run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    code, _, err = run("digits", *QUICK)
    assert code == 1
    assert 'pip install "subtree-attention[tune]"' in err
    assert not list(tmp_path.iterdir())


def test_help_teaches(run: Callable[..., Outcome]) -> None:
    assert "sta tune cora --method grid" in run("--help")[1]
