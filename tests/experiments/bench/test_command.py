"""`python -m experiments bench` as a user sees it: tables, the JSON file, refusals."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from experiments import bench
from experiments.attentions import EdgewiseAttention
from experiments.bench import memory, scaling
from experiments.reproduce.drawing import look
from subtree_attention.ops import library
from tests.experiments.pictures import Picture

ROOT = Path(__file__).parents[3]
SHAPE = "60,300,12,3"
TINY = ["bench", "--shape", SHAPE, "--rounds", "2", "--device", "cpu", "--backend", "torch"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs without PyG's models and the large copy: what the report does is the same."""
    monkeypatch.setattr("experiments.bench.epoch.PYG_MODELS", {})
    monkeypatch.setattr("experiments.bench.comparison.copy_bandwidth", lambda device: 1e9)


def test_it_prints_two_tables_and_writes_everything_down(run_experiments, tmp_path):
    code, out, err = run_experiments(*TINY)
    assert code == 0, err
    for words in ("operator, forward", "epoch: training", "ours", "edge-wise", "PyG SGFormer"):
        assert words in out
    assert "uniform random graph" in out
    assert f"shape {SHAPE}: preparing" in err
    picture = Picture(tmp_path / "results/bench-cpu.png")
    assert picture.size[0] == 7.2 * 150
    assert picture.has(*(look(model).colour for model in ("STAGNN", "GCN", "GAT", "SGFormer")))

    result = json.loads((tmp_path / "results/bench-cpu.json").read_text())
    assert result["backend"] == "torch"
    assert result["environment"]["packages"]["torch"]
    assert result["copy_bytes_per_second"] > 0
    graph = result["graphs"][f"{SHAPE} shape"]
    assert (graph["nodes"], graph["edges"]) == (60, 300)
    assert graph["preparation_seconds"]["graph"] >= 0
    assert graph["operator"]["needed_bytes"] > 0
    for part in ("operator", "epoch"):
        versions = graph[part]["versions"]
        ours = versions["ours"]["median"]
        for version in versions.values():
            assert len(version["milliseconds"]) == 2
            assert version["ratio"] == pytest.approx(version["median"] / ours)
            assert version["peak_bytes"] > 0
        assert versions["ours"]["relative_error"] < 1e-5
        assert result["mean_ratio"][part]["ours"] == pytest.approx(1)
    share = graph["operator"]["needed_bytes"] / (
        1e-3 * graph["operator"]["versions"]["ours"]["median"]
    )
    assert graph["operator"]["versions"]["ours"]["copy_share"] == pytest.approx(
        share / result["copy_bytes_per_second"]
    )


@pytest.mark.usefixtures("quick")
def test_a_wrong_version_is_named_with_its_error_and_the_command_fails(
    run_experiments, monkeypatch, tmp_path
):
    right = EdgewiseAttention.__call__
    monkeypatch.setattr(EdgewiseAttention, "__call__", lambda *args: 1.1 * right(*args))
    code, out, err = run_experiments(*TINY)
    assert code == 1
    assert f"edge-wise (operator) on {SHAPE} shape: wrong result: relative error" in err
    assert "wrong" in out
    result = json.loads((tmp_path / "results/bench-cpu.json").read_text())
    versions = result["graphs"][f"{SHAPE} shape"]["operator"]["versions"]
    assert versions["edge-wise"]["median"] is None
    assert versions["ours"]["median"] > 0


@pytest.mark.usefixtures("quick")
def test_ours_is_refused_too_if_it_is_wrong(run_experiments, monkeypatch):
    right = library.run

    def wrong(*args, **kwargs):
        out = right(*args, **kwargs)
        return out if out.dtype == torch.float64 else out + 1

    monkeypatch.setattr(library, "run", wrong)
    code, _, err = run_experiments(*TINY)
    assert code == 1
    assert "ours (operator)" in err


@pytest.mark.usefixtures("quick")
def test_a_contender_without_memory_is_reported_and_the_run_goes_on(
    run_experiments, monkeypatch, tmp_path
):
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(EdgewiseAttention, "__call__", full)
    code, out, _ = run_experiments(*TINY, "--out", "mine.json")
    assert code == 0
    assert out.count("out of memory") == 2
    versions = json.loads((tmp_path / "mine.json").read_text())["graphs"][f"{SHAPE} shape"]
    for part in ("operator", "epoch"):
        assert versions[part]["versions"]["edge-wise"]["problem"] == "out of memory"
        assert versions[part]["versions"]["ours"]["median"] > 0


@pytest.mark.usefixtures("quick")
def test_what_cannot_be_checked_is_not_reported(run_experiments, monkeypatch):
    monkeypatch.setattr(memory, "_available", lambda: 0)
    code, out, _ = run_experiments(*TINY)
    assert code == 0
    assert "float64 reference ran out of memory" in out


def test_a_picture_is_drawn_again_from_its_file(run_experiments, tmp_path):
    shutil.copy(ROOT / "results/bench-cpu.json", tmp_path / "mine.json")
    code, out, _ = run_experiments("bench", "--render", "--out", "mine.json")
    assert code == 0
    assert out.split() == ["written", "to", "mine.svg", "written", "to", "mine.png"]
    assert Picture(tmp_path / "mine.png").has(look("STAGNN").colour)


@pytest.mark.usefixtures("quick")
def test_without_matplotlib_it_says_so_and_goes_on(run_experiments, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, out, _ = run_experiments(*TINY)
    assert code == 0
    assert "no plot: figures need matplotlib, which is not installed" in out
    assert (tmp_path / "results/bench-cpu.json").exists()
    assert not (tmp_path / "results/bench-cpu.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("coraa",), "Did you mean 'cora'"),
        (("digits", "--shape", "arxive"), "Did you mean 'arxiv'"),
        (("--rounds", "0"), "rounds must be at least 1"),
        (("--backend", "numbaa"), "Did you mean 'numba'"),
        (("--device", "gpu"), "unknown device 'gpu'"),
        (("--scaling", "cora"), "--scaling runs on random graphs of its own"),
        (("--out", "."), "is a folder"),
    ],
)
def test_a_mistake_is_said_before_the_work_begins(run_experiments, arguments, message, tmp_path):
    code, _, err = run_experiments("bench", *arguments)
    assert code == 2
    assert message in err
    assert len(err.splitlines()) <= 2
    assert not list(tmp_path.iterdir())


def without(modules: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python from the checkout, not installed, on a machine without some modules."""
    code = f"import sys, runpy; sys.modules |= dict.fromkeys({modules}); "
    code += (
        "runpy.run_module('experiments', run_name='__main__')"
        if arguments
        else ("import experiments.bench, experiments.reproduce.command")
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
    )


def test_measuring_and_reproducing_need_only_torch_pyg_numpy_and_scipy():
    done = without(["rich", "typer", "matplotlib", "numba", "polars", "optuna"])
    assert done.returncode == 0, done.stderr


def test_the_command_line_says_what_it_lacks():
    done = without(["typer"], "bench")
    assert done.returncode == 1
    assert "the command line needs typer, which is not installed" in done.stderr


def test_help_teaches(run_experiments):
    out = run_experiments("bench", "--help")[1]
    assert "python -m experiments bench --shape arxiv" in out
    assert "default: cora" in out


# ------------------------------------------------------------------------------------ --scaling


def test_scaling_writes_a_point_for_every_size(run_experiments, monkeypatch, tmp_path):
    axes = {"edges": [200, 400], "hops": [1, 2], "heads": [1, 2], "classes": [2, 3]}
    monkeypatch.setattr(scaling, "AXES", axes)
    monkeypatch.setattr(scaling, "BASE_EDGES", {"cpu": 300})
    code, out, err = run_experiments("bench", "--scaling", "--rounds", "1", "--device", "cpu")
    assert code == 0, err
    assert "our operator over hops" in out
    picture = Picture(tmp_path / "results/scaling-cpu.png")
    assert picture.size == (round(4 * 2.4 * 150), round(4.6 * 150))
    assert picture.has(look("STAGNN").colour)
    result = json.loads((tmp_path / "results/scaling-cpu.json").read_text())
    for axis, sizes in axes.items():
        assert [point[axis] for point in result["axes"][axis]] == sizes
        for point in result["axes"][axis]:
            assert point["median"] > 0
            assert point["peak_bytes"] > 0
            assert point["relative_error"] < 1e-5


def test_an_axis_ends_where_memory_does():
    result = bench.scale(
        torch.device("cpu"), rounds=1, axes={"edges": [200, 10**12, 10**13]}, say=lambda _: None
    )
    assert [point["problem"] for point in result["axes"]["edges"]] == [None, "out of memory"]


def test_an_axis_ends_after_a_point_that_took_too_long():
    result = bench.scale(
        torch.device("cpu"), rounds=1, limit=0, axes={"edges": [200, 300]}, say=lambda _: None
    )
    assert len(result["axes"]["edges"]) == 1
