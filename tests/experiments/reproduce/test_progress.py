"""What is shown while jobs are worked off."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from experiments.reproduce import progress
from experiments.reproduce.training import Outcome
from tests.experiments.reproduce.jobs import job
from tests.experiments.reproduce.synthetic import NO_SCORES, record

RECORD = record(test=0.8, epochs=210)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome(job(), RECORD), "STAGNN on digits, seed 0  test 80.00  210 epochs"),
        (
            Outcome(job(3, "GAT", variant="K=50"), replace(RECORD, diverged=211)),
            "GAT K=50 on digits, seed 3  test 80.00  210 epochs  diverged at epoch 211",
        ),
        (
            Outcome(job(), record(epochs=0, diverged=1, **NO_SCORES)),
            "STAGNN on digits, seed 0  0 epochs  diverged at epoch 1",
        ),
        (Outcome(job(), error="no room"), "STAGNN on digits, seed 0  failed: no room"),
    ],
)
def test_every_end_in_a_line(outcome: Outcome, words: str, clock: list[float]) -> None:
    lines: list[str] = []
    watch = progress.RunLines(lines.append)
    watch.begin(3)
    watch.start(outcome.job)
    clock[0] = 30.0
    watch.end(outcome)
    assert lines == [f"1/3  {words}  about 1:00 left"]


def test_bars_show_how_many_are_done_what_is_running_and_the_time_left(clock: list[float]) -> None:
    screen, lines = io.StringIO(), []
    console = Console(file=screen, force_terminal=True, width=150)
    with progress.RunBars(lines.append, console) as watch:
        watch.begin(4)
        for seed in range(3):
            watch.start(job(seed))
        clock[0] = 10.0
        watch.end(Outcome(job(0), RECORD))
        watch.display.refresh()
        shown = screen.getvalue()
        watch.end(Outcome(job(1), error="no room"))
    assert "1/4" in shown
    assert "0:30 left  STAGNN on digits, seed 1 and 1 more" in shown
    assert lines == ["STAGNN on digits, seed 1  failed: no room"]
