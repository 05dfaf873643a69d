"""What is shown while models train."""

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from subtree_attention.runs.folder import Epoch
from subtree_attention.show import progress
from subtree_attention.tasks.metrics import METRICS
from subtree_attention.train.run import Run


def run(name: str = "run 0") -> Run:
    """A run of at most 100 epochs and a patience of 20, whose trainer is left out."""
    trainer: Any = SimpleNamespace(metric=METRICS["accuracy"])
    return Run(name, trainer, epochs=100, patience=20)


def note(some: Run, number: int, best: int) -> None:
    """It is at epoch `number`, and `best` was the best."""
    some.history.append(Epoch(number, loss=0.5, train=0.9, val=0.8, test=0.7))
    some.best = Epoch(best, loss=0.5, train=0.9, val=0.8, test=0.7)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_time_left_is_that_of_the_epochs_left_in_all_runs(clock: list[float]) -> None:
    lines, first = progress.Lines(), run()
    lines.begin("two runs", 2)
    lines.start(first)
    clock[0] = 100.0  # the first epoch compiles, and does not count
    note(first, 1, best=1)
    lines.epoch(first)
    assert lines.seconds_left() is None
    for number in range(2, 12):  # 10 epochs in 10 seconds
        clock[0] += 1.0
        note(first, number, best=min(number, 6))  # so patience ends at 26
        lines.epoch(first)
    assert lines.seconds_left() == pytest.approx(15 + 26)  # and another run like this one
    lines.start(run("run 1"))  # beside it
    assert lines.seconds_left() == pytest.approx(15 + 20)


def test_epochs_of_an_earlier_process_do_not_count(clock: list[float]) -> None:
    lines, resumed = progress.Lines(), run()
    lines.begin("one run", 1)
    note(resumed, 50, best=50)
    lines.start(resumed)
    note(resumed, 51, best=50)
    lines.epoch(resumed)
    clock[0] = 2.0
    note(resumed, 52, best=50)
    lines.epoch(resumed)
    assert lines.seconds_left() == pytest.approx(2.0 * (70 - 52))


def test_who_has_less_time_than_that_says_so(clock: list[float]) -> None:
    lines = progress.Lines()
    lines.begin("trials", None, "trials")
    assert lines.seconds_left() is None
    lines.status(3, None, seconds_left=90.0)
    clock[0] = 30.0
    assert lines.seconds_left() == 60.0


def test_plain_lines_come_now_and_then(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    lines, some = progress.Lines(), run()
    lines.begin("one run", 1)
    lines.start(some)
    note(some, 1, best=1)
    lines.epoch(some)
    assert capsys.readouterr().out == "one run\n"
    clock[0] = 11.0
    note(some, 2, best=1)
    lines.epoch(some)
    assert "run 0  epoch 2  loss 0.5000  val 80.00" in capsys.readouterr().out
    lines.end("run 0", "2 epochs  test 70.00")
    assert capsys.readouterr().out.startswith("1/1  run 0  2 epochs  test 70.00")


def test_bars_show_epoch_scores_and_minutes_left(clock: list[float]) -> None:
    screen, some = io.StringIO(), run()
    console = Console(file=screen, force_terminal=True, width=120)
    with progress.Bars(console) as bars:
        bars.begin("two runs", 2)
        bars.start(some)
        clock[0] = 1.0
        note(some, 1, best=1)
        bars.epoch(some)
        clock[0] = 11.0
        note(some, 2, best=2)  # 20 more epochs at 10 s, then a run of 22
        bars.epoch(some)
        bars.display.refresh()
        shown = screen.getvalue()
    assert "best 80.00" in shown
    assert "7:00 left" in shown
    assert "2/22" in shown


def test_a_live_display_says_only_what_is_notable() -> None:
    screen = io.StringIO()
    with progress.Bars(Console(file=screen, force_terminal=True, highlight=False)) as bars:
        bars.begin("runs", 3)
        bars.end("run 0", "went well")
        bars.end("run 1", "failed", notable=True)
        bars.leave("run 2")
        assert (bars.done, bars.total, bars.elsewhere) == (2, 2, 1)
    assert "run 1  failed" in screen.getvalue()


def test_times_are_written_as_people_read_them() -> None:
    assert (progress.clock(65), progress.clock(7387)) == ("1:05", "2:03:07")


def test_what_trains_in_other_processes_takes_as_long_as_what_did(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = progress.Lines()
    lines.begin("three runs", 3)
    clock[0] = 30.0
    lines.end("GCN on cora, seed 0", "test 80.00")
    assert "1/3  GCN on cora, seed 0  test 80.00  about 1:00 left" in capsys.readouterr().out


def test_a_run_is_let_go_when_it_ends_and_one_that_failed_at_once_is_shown_too() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=150)
    with progress.Bars(console) as bars:
        bars.begin("two runs", 2)
        for name in ("GCN on cora, seed 0", "GCN on cora, seed 1"):
            failed = run(name)
            bars.start(failed)
            bars.epoch(failed)
            bars.end(name, "failed: no room", notable=True)
    assert bars.active == {}
