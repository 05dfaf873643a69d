"""Fixtures that every part of the tests shares."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

if "PYTEST_XDIST_WORKER" in os.environ:  # workers side by side: one thread each
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(scope="session")
def mirror() -> Path:
    """The offline mirror of the benchmark graphs (`STA_MIRROR`).

    Elsewhere such tests skip; where `STA_REQUIRE_MIRROR=1` is set, a missing mirror is a failure.
    """
    path = os.environ.get("STA_MIRROR")
    if path and Path(path).is_dir():
        return Path(path)
    reason = f"needs the mirror of the benchmark graphs: STA_MIRROR={path or 'is not set'}"
    if os.environ.get("STA_REQUIRE_MIRROR") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def run_sta(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Call `sta` in an empty folder and in this process, since starting torch anew takes seconds.

    `run_sta("train", "cora")` -> exit code, what it printed, its errors.
    """
    from subtree_attention import cli
    from subtree_attention.cli.app import err_console, out_console

    monkeypatch.chdir(tmp_path)
    for name in ("STA_DATA", "STA_MIRROR"):  # which --data-dir and --mirror set
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setattr(out_console, "width", 200)
    monkeypatch.setattr(err_console, "width", 200)

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            cli.main(list(arguments))
        printed = capsys.readouterr()
        return int(left.value.code or 0), printed.out, printed.err

    return call
