"""`sta train --parallel`: the numbers of one process, whatever the ranks, and whoever is killed."""

import csv
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import subtree_attention as sta
from subtree_attention.runs import folder as files
from subtree_attention.train.fit import fit
from subtree_attention.train.jobs import Stopped
from subtree_attention.train.watch import Watch
from tests.train.parallel import launch

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs Linux's /proc")

SETTINGS: dict[str, Any] = {"runs": 1, "epochs": 60, "hops": 3, "dropout": 0.3, "patience": 200}
WORDS = ["train", "digits", *(f"--{name}={value}" for name, value in SETTINGS.items())]
SOON = 20
"""Epochs after which rounding is still all that differs."""
LOST = "a process of this job has ended before the others"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process gets."""
    out = tmp_path_factory.mktemp("alone") / "out"
    fit(sta.recipe("digits", **SETTINGS), out, device="cpu")
    return out


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks get that share the nodes."""
    pytest.importorskip("pymetis")
    folder = tmp_path_factory.mktemp("two")
    said = launch.run(folder, 2, *WORDS, "--parallel", "nodes", "--out", "out")
    assert said.count("2 ranks share the nodes: ") == 1  # one rank speaks
    assert said.count("saved in out") == 1
    return folder / "out"


def assert_alike(one: Path, other: Path) -> None:
    """The same numbers to rounding: of a score, a node or two."""
    for a, b in zip(launch.curves(one)[:SOON], launch.curves(other)[:SOON], strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=2e-4)
        assert a["val"] == pytest.approx(b["val"], abs=0.01)


def test_ranks_get_what_one_process_gets_and_leave_the_folder_of_any_run(
    alone: Path, two: Path
) -> None:
    assert_alike(two, alone)
    assert files.read_config(two) == files.read_config(alone)
    assert sta.open(two).result.test == pytest.approx(sta.open(alone).result.test, abs=0.03)
    assert [words for _, words in files.check(two) if words] == []


def test_nodes_and_heads_are_shared_on_a_mesh(alone: Path, tmp_path: Path) -> None:
    how = "--parallel", "nodes=2,heads=2", "--partition", "streaming", "--out", "out"
    said = launch.run(tmp_path, 4, *WORDS, f"--epochs={SOON}", *how)
    assert "2 ranks share heads and value columns" in said
    assert_alike(tmp_path / "out", alone)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_ranks_that_share_a_gpu_get_what_one_gets_by_nccl(tmp_path: Path) -> None:
    how = f"--epochs={SOON}", "--device=cuda", "--parallel=nodes", "--partition=streaming"
    for ranks in (1, 2):
        launch.run(tmp_path, ranks, *WORDS, *how, "--out", f"of-{ranks}")
    assert_alike(tmp_path / "of-2", tmp_path / "of-1")


def test_whoever_is_killed_is_brought_back_with_the_numbers_of_an_undisturbed_run(
    two: Path, tmp_path: Path
) -> None:
    how = "--parallel", "nodes", "--checkpoint-seconds", "0.1", "--out", "out"
    job = launch.start(tmp_path, 2, *WORDS, *how, restarts=1)
    launch.kill_a_rank(job, 0, tmp_path / "out" / "run-0" / "checkpoint.safetensors")
    code, said = launch.ended(job)
    assert code == 0, said
    assert said.count(LOST) == 1
    assert "(resumed)" in said
    assert launch.curves(tmp_path / "out") == launch.curves(two)  # to the bit
    assert not [*(tmp_path / "out").glob(".ended-*")]


def test_a_rank_that_is_killed_ends_the_job_and_one_process_goes_on(tmp_path: Path) -> None:
    how = "--epochs=5000", "--patience=5000", "--checkpoint-seconds", "0.2", "--out", "out"
    job = launch.start(tmp_path, 2, *WORDS, *how, "--parallel", "heads")
    killed = launch.kill_a_rank(job, 1, tmp_path / "out" / "run-0" / "checkpoint.safetensors")
    code, said = launch.ended(job)
    assert time.monotonic() - killed < 30
    assert code != 0
    assert said.count(LOST) == 1
    saved, seen = len(launch.curves(tmp_path / "out")), list[int]()

    class Epochs(Watch):
        def epoch(self, run: Any) -> None:
            seen.append(run.epoch)

    config = files.read_config(tmp_path / "out")
    with pytest.raises(Stopped):
        fit(config, tmp_path / "out", device="cpu", watch=Epochs(), stop=lambda: len(seen) > 1)
    assert seen[0] == saved + 1 > 1


def test_ranks_share_batches_and_whoever_is_killed_is_brought_back(tmp_path: Path) -> None:
    """To the bit where as many ranks go on; other ranks sample from other seeds, and are near."""
    how = "--batch=64", "--epochs=8", "--num-neighbors=5", "--out", "out"
    words = [*WORDS, *how, "--parallel", "batches"]
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    said = launch.run(tmp_path / "whole", 2, *words)
    assert said.count("2 ranks share each batch of 64 nodes") == 1
    job = launch.start(tmp_path / "killed", 2, *words, "--checkpoint-seconds", "0", restarts=1)
    launch.kill_a_rank(job, 1, tmp_path / "killed/out/run-0/checkpoint.safetensors")
    code, said = launch.ended(job)
    assert code == 0, said
    whole = launch.curves(tmp_path / "whole/out")
    assert launch.curves(tmp_path / "killed/out") == whole
    alone = sta.recipe("digits", **SETTINGS | {"epochs": 8}, batch=64, num_neighbors="5")
    fit(alone, tmp_path / "alone", device="cpu")
    assert launch.curves(tmp_path / "alone")[-1]["val"] == pytest.approx(whole[-1]["val"], abs=0.05)


def test_batches_are_shared_where_there_are_some(tmp_path: Path) -> None:
    words = "train", "digits", "--parallel", "batches"
    code, said = launch.ended(launch.start(tmp_path, 2, *words))
    assert code != 0
    assert said.count("say how large they are, by --batch 512") == 1


def test_tables_in_parts_are_read_by_ranks_and_learnt_as_by_one_process(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    data = sta.planted(1500, 6000, 3, 6, seed=1)
    sta.datasets.write_tables(data, tmp_path / "tables", parts=3)
    nodes, edges = "tables/nodes", "tables/edges"
    words = "--nodes", nodes, "--edges", edges, "--target", "class", "--split-column", "split"
    how = "--epochs=25", "--hops=2", "--parallel", "nodes", "--out", "out"
    launch.run(tmp_path, 2, "train", *words, *how)
    whole = sta.from_tables(
        tmp_path / nodes, tmp_path / edges, "class", split_column="split"
    ).renamed("nodes")
    config = sta.recipe(whole, graph="nodes", epochs=25, hops=2)
    assert files.read_config(tmp_path / "out") == config
    fit(config, tmp_path / "alone", data=whole, device="cpu")
    assert_alike(tmp_path / "out", tmp_path / "alone")
    parts = [*(tmp_path / "out" / "run-0" / "predictions").iterdir()]
    said = [row for part in parts for row in csv.DictReader(part.read_text().splitlines())]
    assert sorted(part.name for part in parts) == ["part-00000.csv", "part-00001.csv"]
    assert {row["id"] for row in said} == {*whole.unit_ids}
    theirs = sta.predict(tmp_path / "alone")
    ours = {row["id"]: [float(row[name]) for name in theirs.classes] for row in said}
    together = [ours[node] for node in theirs.ids]
    assert together == pytest.approx(theirs.probabilities, abs=0.02)


def test_what_ranks_cannot_share_is_said_once_and_nothing_is_written(tmp_path: Path) -> None:
    words = "train", "digits", "--parallel", "nodes", "--show-labels", "0.5"
    code, said = launch.ended(launch.start(tmp_path, 2, *words))
    assert code != 0
    assert said.count("--show-labels needs the whole graph in one process") == 1
    assert not (tmp_path / "runs").exists()


def test_ranks_that_share_heads_all_read_tables_in_parts(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    data = sta.planted(300, 1200, 3, 6, seed=1)
    sta.datasets.write_tables(data, tmp_path / "tables", parts=2)
    words = "--nodes", "tables/nodes", "--edges", "tables/edges", "--target", "class"
    how = "--epochs=5", "--runs=1", "--hops=2", "--parallel", "heads", "--out", "out"
    said = launch.run(tmp_path, 2, "train", *words, *how)
    assert "2 ranks share heads and value columns" in said
    assert sta.open(tmp_path / "out").dataset.num_nodes == 300  # of a graph that one process read


def test_a_job_that_died_before_its_folder_was_there_begins_anew(tmp_path: Path) -> None:
    """And does not take up a run of somebody else's that was not finished."""
    other = tmp_path / "runs" / "digits-20200101-000000"
    with pytest.raises(Stopped):
        fit(sta.recipe("digits", epochs=7), other, device="cpu", stop=lambda: True)
    assert not files.is_done(other / "run-0")
    program = tmp_path / "dies.py"
    program.write_text(launch.DIES)
    words = *WORDS, "--epochs=5", "--parallel", "heads"
    job = launch.start(tmp_path, 1, *words, restarts=1, program=program)
    code, said = launch.ended(job)
    assert code == 0, said
    assert "(resumed)" not in said
    made = [folder for folder in (tmp_path / "runs").iterdir() if folder != other]
    assert len(made) == 1
    assert files.read_config(made[0]).fit.epochs == 5
    assert files.is_done(made[0] / "run-0")
