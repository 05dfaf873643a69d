"""Configurations compete on one split: who goes on, who wins, and what a stop leaves behind."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import subtree_attention as sta
from subtree_attention import io
from subtree_attention.references import Comparison, Reference
from subtree_attention.runs import compared, stacked
from subtree_attention.runs import folder as files
from subtree_attention.runs import portfolio as kept
from subtree_attention.runs.portfolio import Portfolio, Tried
from subtree_attention.tasks.metrics import CLASS_METRICS
from subtree_attention.train import beside, competition, estimate, run
from subtree_attention.train.candidates import PORTFOLIO, Candidate, entered, stand_on_best
from subtree_attention.train.competition import Competition, How, Rung
from subtree_attention.train.fit import Interrupted, Result
from subtree_attention.train.jobs import Stopped
from subtree_attention.train.portfolio import fit_portfolio, resume_portfolio, whole_time
from subtree_attention.train.recipes import recipe
from subtree_attention.train.run import Run
from subtree_attention.train.watch import Watch

QUICK: dict[str, Any] = {
    "graph": "mine",
    "runs": 2,
    "hidden_channels": 8,
    "hops": 2,
    "heads": 2,
    "patience": 9,
    "epochs": 12,
    "correct": False,  # or scores would be others than those of the epochs
}
RUNGS = (Rung(3, 0.5), Rung(6, 0.25), Rung(9, 0.0))
CANDIDATES = (
    Candidate("plain", "as it is", {"lr": 0.05}),
    Candidate("slow", "hardly learns", {"lr": 1e-6}),
    Candidate("ungated", "without gates", {"lr": 0.05, "gate": "none"}),
    Candidate("dropped", "with dropout", {"lr": 0.05, "dropout": 0.3}),
)


def data(nodes: int = 300, seed: int = 0) -> Data:
    """Two groups of nodes that know each other, with features that half tell them apart."""
    random = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % 2
    x = torch.randn(nodes, 4, generator=random) + 0.5 * y[:, None]
    source = torch.randint(nodes, (4 * nodes,), generator=random)
    target = (source + 2 * torch.randint(nodes, (4 * nodes,), generator=random)) % nodes
    return Data(x=x, edge_index=torch.stack([source, target]), y=y)


def compete(out: Path, **more: Any) -> Result:
    how = {"candidates": CANDIDATES, "rungs": RUNGS, "device": "cpu", **QUICK, **more}
    return fit_portfolio(data(), out, **how)


def told(result: Result) -> list[tuple[Any, ...]]:
    """All that must be the same again: every number but seconds."""
    assert result.portfolio is not None
    tried = [
        (one.name, one.state, one.why, one.epochs, one.best_epoch, one.val, tuple(one.rungs))
        for one in result.portfolio.tried
    ]
    return [*tried, *((run.val, run.test, run.epochs, run.found) for run in result.runs)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return compete(tmp_path_factory.mktemp("whole") / "out")


def test_the_better_half_goes_on_and_the_best_becomes_run_0(whole: Result) -> None:
    portfolio = whole.portfolio
    assert portfolio is not None
    epochs = sorted(one.epochs for one in portfolio.tried)
    assert epochs == [3, 3, 6, 9]
    assert portfolio.named("slow").why == "behind at 3 epochs"
    winner = portfolio.winner
    assert winner is not None
    assert winner.state == "won"
    assert winner.epochs == 9
    assert (whole.runs[0].val, whole.runs[0].epochs) == (winner.val, 9)
    assert len(whole.runs) == 2
    assert files.read_config(whole.folder) == whole.config == portfolio.config(winner)
    assert not (whole.folder / "portfolio").exists()
    assert sta.open(whole.folder / "run-0").result.val == winner.val


def test_what_was_tried_is_kept_with_a_checksum_and_without_test_scores(whole: Result) -> None:
    portfolio = kept.read(whole.folder)
    assert portfolio == whole.portfolio
    assert files.PORTFOLIO in files.listed(whole.folder)
    assert sta.open(whole.folder).portfolio == portfolio
    text = (whole.folder / files.PORTFOLIO).read_text()
    assert '"test"' not in text
    assert [words for _, words in files.check(whole.folder) if words] == []


def test_classes_are_corrected_where_that_helps_unless_told_otherwise() -> None:
    mine = sta.from_pyg(data())
    assert entered(mine, CANDIDATES, {}).base.task.correct
    assert not entered(mine, CANDIDATES, {"correct": False}).base.task.correct


def test_the_winner_is_what_fit_alone_would_have_trained(whole: Result, tmp_path: Path) -> None:
    config = whole.config.replace(epochs=9)
    alone = sta.fit(config, tmp_path / "out", data=data(), device="cpu")
    assert (alone.runs[0].val, alone.runs[0].test) == (whole.runs[0].val, whole.runs[0].test)


# ------------------------------------------------------------------------------ stopped, and killed


@pytest.mark.parametrize("looks", [1, 7, 14, 24])
def test_a_stop_anywhere_changes_nothing(looks: int, whole: Result, tmp_path: Path) -> None:
    left = iter(range(looks))
    out = tmp_path / "out"
    with pytest.raises(Stopped):
        compete(out, stop=lambda: next(left, None) is None)
    assert told(compete(out, resume=True)) == told(whole)


@pytest.mark.parametrize("looks", [3, 9])
def test_damage_on_the_way_is_named_and_costs_no_more_than_time(
    looks: int, whole: Result, tmp_path: Path
) -> None:
    left, out = iter(range(looks)), tmp_path / "out"
    with pytest.raises(Stopped):
        compete(out, stop=lambda: next(left, None) is None)
    file = out / files.PORTFOLIO
    file.write_text(file.read_text().replace('"epochs": 3', '"epochs": 2'))  # JSON all the same
    with pytest.raises(io.FileError, match=r"checksum is another one: delete it, and the models"):
        compete(out, resume=True)
    file.unlink()
    assert told(compete(out, resume=True)) == told(whole)


class Killed(BaseException):
    """Nothing is tidied up for it."""


POINTS = [
    (kept, "write", 1),
    (kept, "write", 6),
    (run.SavingRun, "checkpoint", 5),
    (Competition, "_sweep", 2),
    (Competition, "_choose", 1),
    (run.SavingRun, "finish", 1),
    (run, "write_result", 1),
    (competition.os, "replace", 0),
    (kept, "close", 1),
]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point[1]}-{point[2]}")
def test_a_kill_at_every_step_changes_nothing(
    point: tuple[Any, str, int],
    after: bool,
    whole: Result,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home, name, times = point
    real: Callable[..., Any] = getattr(home, name)
    calls = 0

    def killed(*given: Any, **named: Any) -> Any:
        nonlocal calls
        # The move of the winner is one of many: files are written by moves too.
        calls += times > 0 or Path(given[1]).name == "run-0"
        if calls < max(times, 1) or (not times and Path(given[1]).name != "run-0"):
            return real(*given, **named)
        if after:
            real(*given, **named)
        raise Killed

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(home, name, killed)
        with pytest.raises(Killed):
            compete(out)
    assert told(compete(out, resume=True)) == told(whole)
    assert not (out / "portfolio").exists()


STANDS = (
    Candidate("slow", "hardly learns", {"lr": 1e-6}),
    Candidate("stacked", "on {reference}", {"lr": 0.05, "reference": "logistic_neighbours"}),
)


def compare(*_: Any, **__: Any) -> Comparison:
    """In no time: logistic regression is the best that a model can stand on."""
    rows = [("propagation", 0.9), ("logistic", 0.8), ("logistic_neighbours", 0.7)]
    return Comparison([Reference(name, name, val, 0.5, 0.1) for name, val in rows])


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Result:
    pytest.importorskip("sklearn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beside, "compare", compare)
        out = tmp_path_factory.mktemp("standing") / "out"
        return compete(out, candidates=STANDS, references=True, runs=1)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("home", "name", "times"),
    [
        (beside, "compare", 1),
        (compared, "write", 1),
        (kept, "write", 2),
        (stacked, "write", 1),
        (run.SavingRun, "checkpoint", 2),
        (Competition, "_choose", 1),
        (run, "write_result", 1),
        (kept, "close", 1),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_kill_loses_neither_the_references_nor_which_it_stands_on(
    home: Any,
    name: str,
    times: int,
    after: bool,
    standing: Result,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert standing.portfolio is not None
    assert standing.portfolio.won == "stacked"
    assert standing.config.task.reference == "logistic"
    monkeypatch.setattr(beside, "compare", compare)
    real, left = getattr(home, name), iter(range(times - 1))

    def killed(*given: Any, **named: Any) -> Any:
        last = next(left, None) is None
        found = real(*given, **named) if after or not last else None
        if last:
            raise Killed
        return found

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(home, name, killed)
        with pytest.raises(Killed):
            compete(out, candidates=STANDS, references=True, runs=1)
    again = resume_portfolio(out, device="cpu")
    assert told(again) == told(standing)
    assert again.config == standing.config
    assert again.references == standing.references == compare()
    saved = sta.open(out / "run-0")
    assert saved.reference is not None
    assert saved.reference.name == "logistic"
    assert saved.references == compare()


def test_it_goes_on_by_its_folder_alone(whole: Result, tmp_path: Path) -> None:
    out, left = tmp_path / "out", iter(range(5))
    with pytest.raises(Stopped):
        compete(out, stop=lambda: next(left, None) is None)
    assert told(resume_portfolio(out, device="cpu")) == told(whole)


def test_ctrl_c_says_where_to_go_on(tmp_path: Path) -> None:
    class StopAt(Watch):
        def epoch(self, run: Run) -> None:
            if run.name == "ungated":
                raise KeyboardInterrupt

    with pytest.raises(Interrupted) as stopped:
        compete(tmp_path / "out", watch=StopAt())
    assert stopped.value.folder == tmp_path / "out"
    assert files.latest_unfinished(None, tmp_path) == tmp_path / "out"


def test_a_folder_under_way_is_no_other_run(tmp_path: Path) -> None:
    out, left = tmp_path / "out", iter(range(5))
    with pytest.raises(Stopped):
        compete(out, stop=lambda: next(left, None) is None)
    config = sta.recipe(data(), **QUICK, lr=0.05)
    with pytest.raises(io.FileError, match="holds a portfolio that has no winner yet"):
        sta.fit(config, out, data=data(), device="cpu", resume=True)
    with pytest.raises(io.FileError, match="started with other settings: hops 2, not 3"):
        compete(out, hops=3)
    how = {"candidates": CANDIDATES, "rungs": RUNGS, "device": "cpu", **QUICK}
    with pytest.raises(io.FileError, match="was started on another graph"):
        fit_portfolio(data(seed=1), out, **how)
    with pytest.raises(io.FileError, match="no winner yet"):
        files.accept(out)
    with pytest.raises(ValueError, match=r"no run in .* is finished yet"):
        sta.open(out)
    with files.claimed(out), pytest.raises(io.FileError, match="another process is training"):
        compete(out)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"candidates": CANDIDATES[:2]}, "candidates plain, slow, ungated, dropped, not plain, sl"),
        ({"candidates": (*CANDIDATES[:3], Candidate("dropped", "", {"lr": 1}))}, "'dropped'"),
        ({"rungs": RUNGS[:1]}, "rungs 0.5 at 3, 0.25 at 6, 0 at 9, not 0.5 at 3"),
        ({"budget": 9.0}, "budget none, not 9 s"),
        ({"more": lambda _: None}, "search none, not yes"),
    ],
)
def test_it_goes_on_as_it_was_begun(
    other: dict[str, Any], words: str, tmp_path: Path, whole: Result
) -> None:
    out = Path(shutil.copytree(whole.folder, tmp_path / "out"))
    with pytest.raises(io.FileError, match=words):
        compete(out, resume=True, **other)


def test_a_search_goes_on_as_one(tmp_path: Path) -> None:
    out, left = tmp_path / "out", iter(range(5))
    with pytest.raises(Stopped):
        compete(out, stop=lambda: next(left, None) is None, more=lambda _: None)
    with pytest.raises(io.FileError, match="was begun with a search"):
        resume_portfolio(out, device="cpu")
    assert resume_portfolio(out, more=lambda _: None, device="cpu").portfolio is not None


def test_a_run_without_a_portfolio_gets_none_later(tmp_path: Path) -> None:
    out, left = tmp_path / "out", iter(range(2))
    with pytest.raises(Stopped):
        sta.fit(
            sta.recipe(data(), **QUICK, lr=0.05),
            out,
            data=data(),
            device="cpu",
            stop=lambda: next(left, None) is None,
        )
    with pytest.raises(io.FileError, match="begun without a portfolio"):
        compete(out)


def test_a_finished_one_is_only_looked_at_if_that_is_asked_for(
    whole: Result, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(whole.folder, tmp_path / "out"))
    with pytest.raises(io.FileError, match="which is finished: choose another folder"):
        compete(out)
    assert told(compete(out, resume=True)) == told(whole)


# ----------------------------------------------------------------------------------- who competes


def names(portfolio: Portfolio) -> list[str]:
    return [one.name for one in portfolio.tried]


def test_the_users_settings_go_before_a_candidates_and_equals_are_left_out() -> None:
    mine = sta.from_pyg(data())
    assert names(entered(mine, CANDIDATES, {})) == [one.name for one in CANDIDATES]
    portfolio = entered(mine, CANDIDATES, {"gate": "plain", "lr": 0.02})
    assert names(portfolio) == ["plain", "dropped"]
    assert portfolio.left_out == dict.fromkeys(["slow", "ungated"], "here it is the same as plain")
    assert {portfolio.config(one).fit.lr for one in portfolio.tried} == {0.02}
    assert portfolio.given == ["gate", "lr"]


def test_what_a_model_or_task_does_not_have_is_left_out_with_its_reason() -> None:
    deep = (*CANDIDATES, Candidate("deep", "blocks", {"model": "staformer", "layers": 2}))
    mine = sta.from_pyg(data())
    portfolio = entered(mine, deep, {"head_mix": "sum"})
    assert portfolio.left_out["deep"] == "STAFormer has no --head-mix, which is set"
    only = entered(mine, deep, {"model": "staformer"})
    assert {only.config(one).model.name for one in only.tried} == {"staformer"}
    portfolio = entered(mine, [*CANDIDATES, Candidate("labels", "", {"log_target": True})], {})
    assert portfolio.left_out["labels"] == "it is for --task regression or graph-regression"


def test_a_candidate_goes_without_what_the_model_of_all_does_not_have() -> None:
    made = entered(sta.from_pyg(data()), PORTFOLIO, {"model": "staformer"})
    assert {made.config(one).model.name for one in made.tried} == {"staformer"}
    assert {"labels", "stacked"} <= {*names(made)}
    labels = made.named("labels")
    assert labels.words.endswith("(without --smoothing, which STAFormer does not have)")
    assert made.config(labels).task.show_labels == 0.5
    assert made.tried[0].words == "STAFormer, with the recipe for a graph of this size"


def test_settings_that_no_candidate_takes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown setting 'hop'"):
        fit_portfolio(data(), tmp_path / "out", hop=3)
    with pytest.raises(ValueError, match="a portfolio needs a candidate"):
        fit_portfolio(data(), tmp_path / "out", candidates=())
    with pytest.raises(ValueError, match=r"letters, digits and hyphens, got '\.\./plain'"):
        fit_portfolio(data(), tmp_path / "out", candidates=[Candidate("../plain", "")])
    with pytest.raises(ValueError, match="links and graphs have one recipe"):
        fit_portfolio(data(), tmp_path / "out", task="link")
    assert not (tmp_path / "out").exists()


def test_what_diverges_is_out_with_its_reason(tmp_path: Path) -> None:
    wild = Candidate("wild", "diverges", {"lr": 1e30})
    result = compete(tmp_path / "out", candidates=(CANDIDATES[0], wild))
    assert result.portfolio is not None
    assert result.portfolio.won == "plain"
    assert result.portfolio.named("wild").state == "failed"
    assert "not finite any more after epoch" in result.portfolio.named("wild").why
    with pytest.raises(RuntimeError, match=r"no model could be trained .plain: it is not finite"):
        compete(tmp_path / "other", candidates=CANDIDATES[:1], lr=1e30)


def test_what_the_split_does_not_allow_is_left_out(tmp_path: Path) -> None:
    mine, part = data(), torch.arange(300)
    mine.train_mask, mine.val_mask, mine.test_mask = part == 0, part % 3 == 1, part % 3 == 2
    shows = Candidate("labels", "", {"lr": 0.05, "show_labels": 0.5})
    how = {"rungs": RUNGS, "device": "cpu", **QUICK, "runs": 1, "split": "own"}

    def more(portfolio: Portfolio) -> Candidate | None:
        number = len(portfolio.tried)
        return Candidate(f"search-{number}", "", {"show_labels": 0.25}) if number < 2 else None

    pair = [CANDIDATES[0], shows]
    result = fit_portfolio(mine, tmp_path / "out", candidates=pair, more=more, **how)
    assert result.portfolio is not None
    assert result.portfolio.won == "plain"
    assert "one training" in result.portfolio.left_out["labels"]
    assert "one training" in result.portfolio.named("search-1").why
    with pytest.raises(ValueError, match="one training"):
        fit_portfolio(mine, tmp_path / "other", candidates=[shows], **how)
    assert not (tmp_path / "other").exists()


class LibraryError(Exception):
    """As LightGBM has its own."""


def test_a_reference_that_cannot_be_fitted_ends_its_candidate_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fitted(*_: Any) -> None:
        raise LibraryError("bad bins")

    monkeypatch.setattr(run.references, "fitted", fitted)
    result = compete(tmp_path / "out", candidates=STANDS, runs=1)
    assert result.portfolio is not None
    assert result.portfolio.won == "slow"
    tried = result.portfolio.named("stacked")
    words = "the reference logistic_neighbours cannot be fitted: bad bins"
    assert (tried.state, tried.why) == ("failed", words)
    assert tried.words == "on logistic regression that also sees neighbours"


def test_a_reference_is_fitted_once_for_all_that_stand_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn")
    real, seeds = run.references.fitted, list[int]()

    def fitted(name: str, dataset: Any, task: Any, problem: Any, seed: int) -> Any:
        seeds.append(seed)
        return real(name, dataset, task, problem, seed)

    def more(portfolio: Portfolio) -> Candidate | None:
        changes = {**STANDS[1].changes, "lr": 0.03}
        return None if len(portfolio.tried) > 2 else Candidate("search-1", "", changes)

    monkeypatch.setattr(run.references, "fitted", fitted)
    result = compete(tmp_path / "out", candidates=STANDS, more=more)
    assert result.portfolio is not None
    assert result.portfolio.named("search-1").epochs > 0
    assert seeds == [0, 1]  # of the portfolio, and of the second run


def test_what_cannot_fit_into_memory_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = estimate.Memory(2 * estimate.BASE, "here")
    monkeypatch.setattr(estimate, "memory", lambda _: free)
    large = Candidate("large", "", {"lr": 0.05, "smoothing": 1})
    real = estimate.cost

    def cost(dataset: Any, config: Any, *how: Any) -> estimate.Cost:
        found = real(dataset, config, *how)
        return found._replace(bytes=2**40) if getattr(config.model, "smoothing", 0) else found

    monkeypatch.setattr(estimate, "cost", cost)
    result = compete(tmp_path / "out", candidates=(CANDIDATES[0], large), runs=1)
    assert result.portfolio is not None
    assert result.portfolio.won == "plain"
    assert "about 1024.0 GiB are needed" in result.portfolio.named("large").why
    assert result.portfolio.named("large").epochs == 0


@pytest.mark.parametrize(("task", "metric"), [("regression", "mae"), ("multilabel", "macro_f1")])
def test_other_targets_of_nodes_compete_too(task: str, metric: str, tmp_path: Path) -> None:
    mine = data()
    y = mine.y.float()
    mine.y = mine.x.sum(1) if task == "regression" else torch.stack([y, 1 - y], 1)
    how = {"candidates": CANDIDATES, "rungs": RUNGS, "device": "cpu", **QUICK}
    del how["correct"]
    result = fit_portfolio(mine, tmp_path / "out", task=task, metric=metric, **how)
    assert result.portfolio is not None
    assert result.portfolio.named("slow").state == "stopped"


def test_dear_epochs_are_fewer(tmp_path: Path) -> None:
    wide = Candidate("wide", "", {"lr": 0.05, "hidden_channels": 80})
    settings = {**QUICK}
    del settings["hidden_channels"]
    plain = Candidate("plain", "", {"lr": 0.05, "hidden_channels": 8})
    how = {"rungs": (Rung(8, 0.5), Rung(8, 0.0)), "device": "cpu", **settings}
    result = fit_portfolio(data(), tmp_path / "out", candidates=[plain, wide], **how)
    assert result.portfolio is not None
    first, second = result.portfolio.tried
    assert first.epochs == 8
    assert 1 <= second.epochs <= 2


def test_a_model_that_stands_on_a_reference_takes_it_along(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    stands = Candidate("stacked", "", {"lr": 0.05, "reference": "logistic_neighbours"})
    slow = Candidate("slow", "", {"lr": 1e-7})
    result = compete(tmp_path / "out", candidates=[slow, stands])
    assert result.portfolio is not None
    assert result.portfolio.won == "stacked"
    assert sta.open(result.folder / "run-0").reference is not None
    y = data()
    y.y = y.x.sum(1)
    left_out = entered(sta.from_pyg(y), [slow, stands], {"task": "regression"}).left_out
    assert left_out["stacked"] == "it is for --task classification"


# ------------------------------------------------------------------------------------- who wins


def test_of_equals_the_first_wins(tmp_path: Path) -> None:
    # They differ in what decides no number.
    twins = [Candidate("one", "", {"patience": 9}), Candidate("two", "", {"patience": 10})]
    rungs, settings = (Rung(3, 1.0), Rung(6, 1.0)), {**QUICK}
    del settings["patience"]
    how = {"rungs": rungs, "device": "cpu", **settings}
    result = fit_portfolio(data(), tmp_path / "out", candidates=twins, **how)
    assert result.portfolio is not None
    one, two = result.portfolio.tried
    assert one.val == two.val
    assert result.portfolio.won == "one"


def test_a_later_one_that_is_ahead_wins(tmp_path: Path) -> None:
    pair = [Candidate("slow", "", {"lr": 1e-4}), Candidate("quick", "", {"lr": 0.02})]
    result = compete(tmp_path / "out", candidates=pair, rungs=(Rung(4, 1.0), Rung(8, 1.0)))
    assert result.portfolio is not None
    slow, quick = result.portfolio.tried
    assert slow.val is not None
    assert quick.val is not None
    assert slow.val < quick.val
    assert result.portfolio.won == "quick"


def test_it_stands_on_the_best_reference_that_was_compared(tmp_path: Path) -> None:
    open_to_it = Tried("stacked", "on {reference}", {"reference": "logistic_neighbours"})
    begun = Tried("begun", "on {reference}", {"reference": "logistic"})
    fixed = Tried("fixed", "on my own", {"reference": "logistic"})
    (tmp_path / "portfolio" / "begun").mkdir(parents=True)  # it was stopped before an epoch
    portfolio = Portfolio(recipe(data(), graph="mine"), [open_to_it, begun, fixed])
    rows = [("propagation", 0.9), ("trees", 0.8), ("logistic_neighbours", 0.7)]
    cut = Reference("trees_neighbours", "cut off", 0.85, 0.5, 0.1, ended=False)
    found = Comparison([cut, *(Reference(name, name, val, 0.5, 0.1) for name, val in rows)])
    stand_on_best(portfolio, found, CLASS_METRICS["accuracy"], tmp_path)
    assert open_to_it.changes["reference"] == "trees"
    assert open_to_it.words == "on boosted trees"
    assert begun.changes["reference"] == "logistic"
    assert begun.words == "on logistic regression"
    assert (fixed.changes["reference"], fixed.words) == ("logistic", "on my own")


# --------------------------------------------------------------------------------------- its time


def test_a_budget_ends_it_with_the_best_so_far(tmp_path: Path) -> None:
    result = compete(tmp_path / "out", budget=0.0)
    assert result.portfolio is not None
    assert result.portfolio.won == "plain"
    assert [one.epochs for one in result.portfolio.tried] == [1, 0, 0, 0]
    assert result.portfolio.named("slow").why == "no time was left"


class Clock:
    """Stands still, unless it is told that time has passed."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_long_round_is_remembered_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(competition, "time", clock)
    base = recipe(data(), graph="mine")
    material = run.Material(sta.from_pyg(data()), base, torch.device("cpu"))
    how = How.of(
        device="cpu",
        watch=None,
        stop=None,
        checkpoint_seconds=5.0,
        more=None,
        references=None,
        log=None,
        since=None,
    )
    found = Competition(tmp_path, Portfolio(base, [], budget=20.0), material, how)
    timed, runs = competition._Timed(found), [SimpleNamespace(name=name) for name in "ab"]
    for seconds in (4.0, 1.0):
        clock.now += seconds
        for each in runs:  # side by side: the second is told of at once
            timed.epoch(each)
    assert found.epoch_seconds == pytest.approx(4 * competition.FADES)
    assert not found._is_late()
    clock.now = 9.0
    assert found._is_late()
    found.epoch_seconds = 0.0
    assert found._is_late()  # what was passed over stays so


def test_proposals_follow_and_the_best_of_all_wins(tmp_path: Path) -> None:
    rates = iter([0.04, 1e-7, 0.04, 0.03])

    def more(portfolio: Portfolio) -> Candidate | None:
        number, lr = len(portfolio.tried), next(rates, None)
        return None if lr is None else Candidate(f"search-{number}", "proposed", {"lr": lr})

    result = compete(tmp_path / "out", more=more)
    portfolio = result.portfolio
    assert portfolio is not None
    assert [one.searched for one in portfolio.tried] == [False] * 4 + [True] * 3
    assert portfolio.tried[6].changes == {"lr": 0.03}  # behind one that was there already
    poor = portfolio.tried[5]
    assert (poor.changes, poor.epochs, poor.why) == ({"lr": 1e-7}, 3, "behind at 3 epochs")
    assert portfolio.winner is not None
    assert portfolio.winner.val == max(one.val or 0 for one in portfolio.tried)


def test_the_time_of_all_of_it_is_a_range() -> None:
    mine = entered(sta.from_pyg(data()), CANDIDATES[:2], {"runs": 3, "epochs": 100, "patience": 10})
    mine.rungs = [Rung(10, 0.5), Rung(400, 0.0)]
    words = "2 models compete, then 2 more runs of the best: 40 s to 310 s in all"
    assert whole_time(mine, 1.0) == words.replace("310 s", "5.2 min")
    mine.budget = 90.0
    assert whole_time(mine, 1.0) == "2 models and a search, in 1.5 min at most"


def test_many_classes_take_the_model_whose_cost_does_not_grow_with_them() -> None:
    graph = data()
    graph.x, graph.y = torch.randn(3000, 2), torch.arange(3000) % 300
    made = entered(sta.from_pyg(graph), PORTFOLIO, {})
    assert {made.config(one).model.name for one in made.tried} == {"staformer"}
