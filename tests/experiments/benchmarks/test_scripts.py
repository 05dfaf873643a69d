"""The benchmarks run, on sizes at which they measure nothing."""

import json
import runpy
import sys
from pathlib import Path

import pytest

TINY = {
    "explain": ["--nodes", "60", "--edges", "300", "--roots", "1"],
    "explore": ["--nodes", "60", "--edges", "300", "--roots", "1"],
    "pairs": ["digits", "--epochs", "2"],
    "tables": ["--nodes", "200", "--edges", "900"],
}
NAMES = [*TINY, "batches", "busy", "fidelity", "splits", "table1"]


NEEDS = {"tables": "polars", "explore": "uvicorn"}


def run(monkeypatch: pytest.MonkeyPatch, name: str, *arguments: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_module(f"experiments.benchmarks.{name}", run_name="__main__")


@pytest.mark.parametrize("name", TINY)
def test_it_leaves_a_file_with_its_results_and_the_environment(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    run(monkeypatch, name, *TINY[name], "--out", str(out))
    assert f"written to {out}" in capsys.readouterr().out
    result = json.loads(out.read_text())
    assert result.pop("environment")["packages"]["torch"]
    assert result


@pytest.mark.parametrize("name", NAMES)
def test_its_help_says_what_it_measures(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        run(monkeypatch, name, "--help")
    assert left.value.code == 0
    assert "--out" in capsys.readouterr().out
