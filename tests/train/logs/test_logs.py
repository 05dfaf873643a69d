"""Logs that are read back: a table, TensorBoard's own reader, and one of the user's."""

import csv
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import subtree_attention as sta
from subtree_attention.runs import folder as files
from subtree_attention.runs.folder import Epoch, RunResult
from subtree_attention.train.jobs import Stopped
from subtree_attention.train.logs import LOGS, Log, LoggedRun, opened, telling
from subtree_attention.train.watch import Watch

CONFIG = sta.recipe("digits", runs=2, epochs=6, patience=6, hops=1, heads=1, hidden_channels=8)
Outcome = tuple[int, str, str]


class Own:
    """Keeps all that it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def begin(self, run: LoggedRun, history: Sequence[Epoch]) -> None:
        self.told.append(("begin", run.index, len(history)))

    def epoch(self, run: LoggedRun, epoch: Epoch) -> None:
        self.told.append(("epoch", run.index, epoch.epoch))

    def end(self, run: LoggedRun, result: RunResult | None) -> None:
        self.told.append(("end", run.index, None if result is None else result.test))


class Said(Watch):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def after(epochs: int) -> Callable[[], bool]:
    """Stops so many epochs after the beginning."""
    asked = [0]

    def stop() -> bool:
        asked[0] += 1
        return asked[0] == epochs

    return stop


@pytest.fixture(scope="module")
def stopped_and_resumed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Own]:
    """A folder whose second run was stopped after two epochs, and taken up again; and once more."""
    out, own = tmp_path_factory.mktemp("logs") / "out", Own()
    log: list[str | Log] = ["csv", "tensorboard", own]
    # The last epoch of a run is not one after which it could be stopped.
    with pytest.raises(Stopped):
        sta.fit(CONFIG, out, device="cpu", log=log, stop=after(7))
    for _ in range(2):
        sta.fit(CONFIG, out, device="cpu", log=log, resume=True)
    return out, own


def test_a_log_of_ones_own_is_told_all_once(stopped_and_resumed: tuple[Path, Own]) -> None:
    out, own = stopped_and_resumed
    tests = [files.read_result(run).test for run in files.run_folders(out)]
    first = [("epoch", 0, number) for number in range(1, 7)]
    again = [("begin", 0, 6), ("end", 0, tests[0])]  # done before: told so
    assert own.told == [
        *(("begin", 0, 0), *first, ("end", 0, tests[0])),
        *(("begin", 1, 0), ("epoch", 1, 1), ("epoch", 1, 2), ("end", 1, None)),
        *(*again, ("begin", 1, 2), *(("epoch", 1, number) for number in range(3, 7))),
        ("end", 1, tests[1]),
        *(*again, ("begin", 1, 6), ("end", 1, tests[1])),
    ]


def test_the_table_has_every_epoch_once_and_test_at_the_best(
    stopped_and_resumed: tuple[Path, Own],
) -> None:
    out = stopped_and_resumed[0]
    with open(out / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    expected = []
    for run in files.run_folders(out):
        result = files.read_result(run)
        for epoch in files.read_curves(run):
            test = str(result.test) if epoch.epoch == result.best_epoch else ""
            row = [result.run, epoch.epoch, epoch.loss, epoch.train, epoch.val, test]
            expected.append([str(value) for value in row])
    assert [list(row.values()) for row in rows] == expected
    assert list(rows[0]) == ["run", "epoch", "loss", "train", "val", "test"]


def test_tensorboard_reads_every_epoch_once(stopped_and_resumed: tuple[Path, Own]) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    out = stopped_and_resumed[0]
    for run in files.run_folders(out):
        read = events.EventAccumulator(str(out / "tensorboard" / run.name)).Reload()
        curves, result = files.read_curves(run), files.read_result(run)
        for tag, name in (("loss", "loss"), ("accuracy/train", "train"), ("accuracy/val", "val")):
            found = [(event.step, event.value) for event in read.Scalars(tag)]
            assert [step for step, _ in found] == [epoch.epoch for epoch in curves]
            assert [v for _, v in found] == pytest.approx([getattr(e, name) for e in curves])
        (test,) = read.Scalars("accuracy/test")
        assert (test.step, test.value) == (result.best_epoch, pytest.approx(result.test))
        assert "_hparams_/experiment" in read.summary_metadata


def test_what_is_logged_is_no_part_of_the_numbers(
    stopped_and_resumed: tuple[Path, Own], tmp_path: Path
) -> None:
    plain = sta.fit(CONFIG, tmp_path / "plain", device="cpu")
    logged = stopped_and_resumed[0]
    for run in files.run_folders(plain.folder):
        assert files.read_curves(run) == files.read_curves(logged / run.name)
    assert not [words for _, words in files.check(logged) if words]


class Broken(Own):
    def epoch(self, run: LoggedRun, epoch: Epoch) -> None:
        if epoch.epoch == 2:
            raise OSError("no space\x1b[31m left")
        super().epoch(run, epoch)


def test_a_log_that_fails_is_said_once_and_training_goes_on(tmp_path: Path) -> None:
    said, broken, own = Said(), Broken(), Own()
    result = sta.fit(CONFIG, tmp_path / "out", device="cpu", log=[broken, own], watch=said)
    assert len(result.runs) == 2
    assert broken.told == [("begin", 0, 0), ("epoch", 0, 1)]
    assert len(own.told) == 16
    (line,) = (line for line in said.lines if "log" in line)
    assert line == "log Broken failed (OSError: no space [31m left): training goes on without it"


class Slow(Own):
    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def epoch(self, run: LoggedRun, epoch: Epoch) -> None:
        self.free.wait(20)


def test_training_does_not_wait_for_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "LAST_SECONDS", 0.1)
    said, slow = Said(), Slow()
    assert sta.fit(CONFIG, tmp_path / "out", device="cpu", log=slow, watch=said).runs
    slow.free.set()
    assert "logs were not done 0.1 s after training" in said.lines[-1]


def test_names_and_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened(None) == []
    assert [type(log).__name__ for log in opened(["csv", "csv"])] == ["Table"]
    assert isinstance(Own(), Log)
    with pytest.raises(ValueError, match=r"unknown log 'tensorbord'. Did you mean 'tensorboard'"):
        opened("tensorbord")
    with pytest.raises(TypeError, match="log must be a name"):
        opened(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="log must be one of"):
        opened([3])  # type: ignore[list-item]
    for name, (_, package) in LOGS.items():
        if package:
            monkeypatch.setitem(sys.modules, package, None)
            with pytest.raises(ImportError, match=f"log {name} needs {package}.*pip install"):
                opened(name)


def test_on_the_command_line(run_sta: Callable[..., Outcome], tmp_path: Path) -> None:
    words = ["train", "--runs", "1", "--epochs", "3", "--hops", "1", "--device", "cpu"]
    code, _, err = run_sta(*words, "--log", "csv", "--log", "tb", "--out", str(tmp_path / "out"))
    assert (code, not (tmp_path / "out").exists()) == (2, True)
    assert "unknown log 'tb'" in err
    code, _, err = run_sta(*words, "--log", "csv", "--out", str(tmp_path / "out"))
    assert (code, err) == (0, "")
    assert len((tmp_path / "out" / "metrics.csv").read_text().splitlines()) == 4


def test_the_winner_of_a_portfolio_is_logged_from_its_first_epoch(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    ids = [f"p{i}" for i in range(60)]
    nodes = {
        "id": ids,
        "x": [float(i % 3) for i in range(60)],
        "y": [f"c{i % 3}" for i in range(60)],
    }
    edges = {"source": ids, "target": ids[3:] + ids[:3]}
    data, own = sta.from_tables(nodes, edges, target="y"), Own()
    result = sta.fit_portfolio(
        data,
        tmp_path / "out",
        graph="mine",
        candidates=[
            sta.Candidate("a", "as it is"),
            sta.Candidate("b", "small", {"hidden_channels": 8}),
        ],
        runs=1,
        epochs=5,
        hops=1,
        device="cpu",
        log=own,
    )
    assert own.told == [("begin", 0, 5), ("end", 0, result.mean)]
