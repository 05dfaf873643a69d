"""Fixtures for the tests of the experiments."""

from collections.abc import Callable
from pathlib import Path

import pytest

from experiments import cli


@pytest.fixture
def run_experiments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """`python -m experiments` in an empty folder and in this process.

    `run_experiments("bench", "cora")` -> exit code, what it printed, its errors.
    """
    monkeypatch.chdir(tmp_path)
    for console in (cli.out_console, cli.err_console):
        monkeypatch.setattr(console, "width", 200)

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            cli.main(list(arguments))
        printed = capsys.readouterr()
        return int(left.value.code or 0), printed.out, printed.err

    return call
