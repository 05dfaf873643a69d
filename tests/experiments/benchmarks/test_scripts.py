"""The benchmarks run, on sizes at which they measure nothing."""

import json
import runpy
import sys
from pathlib import Path

import pytest

TINY = {
    "cpu_epochs": ["digits", "--rounds", "1"],
    "edge_gates": [*("--molecules", "3", "--atoms", "9", "--rounds", "1", "--device", "cpu")],
    "estimate": ["tiny"],
    "explain": ["--nodes", "60", "--edges", "300", "--roots", "1"],
    "explore": ["--nodes", "60", "--edges", "300", "--roots", "1"],
    "faithfulness": ["digits", "edges", "--nodes", "1", "--epochs", "1", "--training", "1"],
    "layers": ["--graphs", "digits", "--rounds", "1", "--device", "cpu"],
    "map": ["--nodes", "60"],
    "memory": ["--shape", "-", "--epochs", "-", "--edges", "1e4"],
    "pairs": ["digits", "--epochs", "1"],
    "precision": [
        *("digits", "--runs", "1", "--epochs", "2", "--precisions", "full,full", "--device", "cpu"),
        *("--shape", "30,90,4,2", "--rounds", "1", "--processes", "1"),
    ],
    "table1": ["digits", "--runs", "1", "--device", "cpu", "--processes", "1", "--together", "2"],
    "sampled": ["--graphs", "digits", "--epochs", "1", "--batch", "500"],
    "serve": ["--nodes", "200", "--edges", "900", "--asked", "3", "--requests", "1"],
    "store": ["--sizes", "200:900", "--features", "4"],
    "tables": ["--nodes", "200", "--edges", "900"],
}
NAMES = [*TINY, "batches", "busy", "deep", "first_call", "order", "overlap"]
NAMES += ["sampling", "splits"]


NEEDS = {
    "tables": "polars",
    "store": "polars",
    "explore": "uvicorn",
    "map": "uvicorn",
    "serve": "uvicorn",
}


def run(monkeypatch: pytest.MonkeyPatch, name: str, *arguments: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    module = f"experiments.benchmarks.{name}"
    monkeypatch.delitem(sys.modules, module, raising=False)  # another one may have imported it
    runpy.run_module(module, run_name="__main__")


@pytest.mark.parametrize("name", [name for name in TINY if name != "precision"])
def test_it_leaves_a_file_with_its_results_and_the_environment(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    run(monkeypatch, name, *TINY[name], "--out", str(out))
    assert f"written to {out}" in capsys.readouterr().out
    result = json.loads(out.read_text())
    assert result.pop("environment")["packages"]["torch"]
    assert result


def test_layers_are_rendered_from_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = {"GCNConv": {"median": 1.25}, "STAConv": {"median": 0.5}}
    result = {"graphs": {"cora": {"training": times, "inference": times}}}
    out = tmp_path / "out.json"
    out.write_text(json.dumps(result))
    run(monkeypatch, "layers", "--render", "--out", str(out))
    assert "| cora | 1.25 | 0.5 |" in capsys.readouterr().out


def test_the_same_precision_twice_makes_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.json"
    run(monkeypatch, "precision", *TINY["precision"], "--out", str(out))
    result = json.loads(out.read_text())
    assert result["environment"]["packages"]["torch"]
    assert result["all"] == {"pairs": 1, "mean": 0.0, "error": None}
    assert list(result["graphs"]) == ["digits", "30,90,4,2 shape"]
    for graph in result["graphs"].values():
        assert all(epoch["median"] > 0 for epoch in graph["epoch"])


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["digits"], "train with --precision full, or on a GPU"),
        (["digits", "--precisions", "full"], "two precisions are compared"),
        (["diggits"], "Did you mean 'digits'"),
    ],
)
def test_pairs_that_cannot_be_trained_are_refused_in_words(
    asked: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, "precision", *asked, "--device", "cpu", "--out", str(tmp_path / "out"))
    assert words in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_its_help_says_what_it_measures(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        run(monkeypatch, name, "--help")
    assert left.value.code == 0
    assert "--out" in capsys.readouterr().out
