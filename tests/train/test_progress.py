"""What is shown while training."""

import io

import pytest
from rich.console import Console

from subtree_attention import recipe
from subtree_attention.train import progress
from subtree_attention.train.run import Epoch, RunResult

CONFIG = recipe("digits", runs=2, epochs=100, patience=20)


def epoch(number: int) -> Epoch:
    return Epoch(number, loss=0.5, train=0.9, val=0.8, test=0.7)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_time_left_is_that_of_the_epochs_left_in_all_runs(clock: list[float]) -> None:
    lines = progress.Lines(CONFIG)
    lines.start_run(0, 0)
    clock[0] = 100.0  # the first epoch compiles, and does not count
    lines.note(0, epoch(1), epoch(1))
    assert lines.seconds_left() is None
    clock[0] = 110.0  # 10 epochs in 10 seconds; the best was epoch 6, so patience ends at 26
    for number in range(2, 12):
        lines.note(0, epoch(number), epoch(min(number, 6)))
    assert lines.seconds_left() == pytest.approx(15 + 26)  # and another run like this one
    lines.start_run(1, 0)  # beside it
    assert lines.seconds_left() == pytest.approx(15 + 20)


def test_plain_lines_come_now_and_then(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = progress.Lines(CONFIG)
    lines.start_run(0, 0)
    lines.epoch(0, epoch(1), epoch(1))
    assert capsys.readouterr().out == ""
    clock[0] = 11.0
    lines.epoch(0, epoch(2), epoch(1))
    assert "run 0  epoch 2  loss 0.5000  val 80.00" in capsys.readouterr().out
    lines.finish_run(RunResult(0, 0, 0.8, 0.7, 1, 21, 30.0))
    assert "test 70.00" in capsys.readouterr().out


def test_bars_show_epoch_scores_and_minutes_left(clock: list[float]) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    with progress.Bars(CONFIG, console) as bars:
        bars.start_run(0, 0)
        clock[0] = 1.0
        bars.epoch(0, epoch(1), epoch(1))
        clock[0] = 11.0
        bars.epoch(0, epoch(2), epoch(2))  # 20 more epochs at 10 s, then a run of 22
        bars.display.refresh()
        shown = screen.getvalue()
    assert "best 80.00" in shown
    assert "7:00 left" in shown
    assert "2/22" in shown


def test_times_are_written_as_people_read_them() -> None:
    assert (progress.clock(65), progress.clock(7387)) == ("1:05", "2:03:07")
