"""`python -m experiments reproduce` as a user sees it, on a real graph with few epochs."""

from collections.abc import Callable
from functools import partial

import pytest
import torch

from experiments.baselines import GCN
from experiments.reproduce import training
from experiments.reproduce.store import Store
from tests.experiments.pictures import Picture

Outcome = tuple[int | None, str, str]
QUICK = ["--epochs", "2", "--runs", "2", "--device", "cpu", "--results", "quick"]


@pytest.fixture
def reproduce(run_experiments: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """`python -m experiments reproduce`: -> exit code, what it printed, its errors."""
    return partial(run_experiments, "reproduce")


@pytest.mark.usefixtures("mirror")
def test_runs_are_kept_and_rendered_and_not_run_again(reproduce, tmp_path):
    asked = ["table1", "--graph", "citeseer", "--model", "STAGNN", "--model", "GCN", *QUICK]
    code, out, err = reproduce(*asked)
    assert code == 0, err
    assert "6 runs to do, 0 are there" in err
    assert "6/6  GCN weight decay 0 on citeseer, seed 1  test " in err
    assert len(Store(tmp_path / "quick").read("table1")) == 6
    table = (tmp_path / "quick/table1.md").read_text()
    assert "2 of 5 runs" in table
    assert "CoraFull: its file" in table
    assert "quick/paired.tex" in out

    _, _, err = reproduce(*asked)
    assert "0 runs to do, 6 are there" in err
    (tmp_path / "quick/table1.md").unlink()
    reproduce("table1", "--render", "--results", "quick")
    assert (tmp_path / "quick/table1.md").read_text() == table


@pytest.mark.usefixtures("mirror")
def test_a_figure_is_drawn_from_the_runs(reproduce, tmp_path):
    code, _, err = reproduce("hops", "--graph", "citeseer", *QUICK)
    assert code == 0, err
    assert Picture(tmp_path / "quick/hops.png").has("#1A7CBF", "#8DBEDF")  # GPR and sum
    assert (tmp_path / "quick/hops.csv").exists()


def test_without_runs_it_says_so(reproduce):
    code, _, err = reproduce("gpr", "--render")
    assert code == 0
    assert "gpr is not drawn" in err
    assert "theorem is not drawn: nothing was measured yet" in reproduce("theorem", "--render")[2]


@pytest.mark.usefixtures("mirror")
def test_an_interrupt_says_how_to_go_on(reproduce, monkeypatch):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "_prepared", stop)
    code, _, err = reproduce("table3", "--graph", "pubmed", *QUICK)
    assert code == 130
    assert "the same command goes on" in err


@pytest.mark.usefixtures("mirror")
def test_a_run_that_fails_is_named_the_others_are_kept_and_it_is_tried_again(
    reproduce, monkeypatch, tmp_path
):
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("no room\nand more of this")

    asked = ["table1", "--graph", "citeseer", "--model", "STAGNN", "--model", "GCN", *QUICK]
    with monkeypatch.context() as patched:
        patched.setattr(GCN, "forward", full)
        code, out, err = reproduce(*asked)
    assert code == 1
    assert "GCN weight decay 0 on citeseer, seed 1  failed: OutOfMemoryError: no room  about" in err
    assert "error: 4 of 6 runs failed: GCN weight decay 0.0005 on citeseer, seeds 0, 1; " in err
    assert "quick/table1.md" in out
    assert len(Store(tmp_path / "quick").read("table1")) == 2

    code, _, err = reproduce(*asked)
    assert code == 0
    assert "4 runs to do, 2 are there" in err


def test_help_says_how_many_processes_there_are_by_default(reproduce):
    _, out, _ = reproduce("--help")
    words = " ".join(out.replace("│", " ").split())
    assert "on a CPU 1, on a GPU half of the cores, at most 8" in words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tabel1"], "Did you mean 'table1'"),
        (["table1", "--graph", "coar"], "Did you mean"),
        (["hops", "--graph", "physics"], "hops runs on cora, citeseer, deezer, actor"),
        (["table1", "--model", "GNC"], "GCN"),
        (["all", "--graph", "digits"], "all runs on cora, citeseer, deezer, actor, pubmed,"),
        (["all", "--model", "MLP"], "unknown model of all 'MLP'"),
        (["table1", "--runs", "0"], "runs must be at least 1"),
        (["table1", "--together", "0"], "together must be at least 1"),
        (["table1", "--processes", "0"], "processes must be at least 1"),
        (["table1", "--epochs", "2"], "would stand for the full ones in results/reproduce"),
    ],
)
def test_mistakes_are_told_in_words(reproduce, arguments, message):
    code, _, err = reproduce(*arguments)
    assert code == 2
    assert message in err
