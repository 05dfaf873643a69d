"""The command, in words."""

from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.field import command
from tests.experiments.field.studies import STUDY

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(command.TABLES, "tiny", STUDY)


def test_it_trains_and_draws(tmp_path: Path, run_experiments: Run) -> None:
    where = "--results", str(tmp_path), "--docs", str(tmp_path / "page.md"), "--device", "cpu"
    code, out, _ = run_experiments("field", "tiny", "--model", "MLP", *where)
    assert code == 0
    assert f"written to {tmp_path / 'tiny.md'}" in out
    assert "| MLP | same harness |" in (tmp_path / "tiny.md").read_text()
    code, out, _ = run_experiments("field", "tiny", "--plan", *where)
    assert code == 0
    assert "GCN          6 trials   1 runs" in out
    assert "MLP" not in out


def test_wrong_words_are_refused(run_experiments: Run) -> None:
    code, _, err = run_experiments("field", "fixd")
    assert (code, "fixed" in err) == (2, True)
    code, _, err = run_experiments("field", "tiny", "--model", "GNC")
    assert (code, "GCN" in err) == (2, True)
    code, _, err = run_experiments("field", "tiny", "--graph", "cora")
    assert (code, "digits" in err) == (2, True)


def test_a_run_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("nothing works")

    monkeypatch.setattr("experiments.reproduce.jobs.Job.build", fail)
    where = ["--results", str(tmp_path), "--docs", str(tmp_path / "page.md"), "--device", "cpu"]
    with pytest.raises(RuntimeError, match="6 of 6 runs failed: MLP"):
        command.main(["tiny", "--model", "MLP", *where])
