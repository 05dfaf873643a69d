"""Run folders of the first format: read, asked and gone on with as if they were of today."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import subtree_attention as sta
from subtree_attention.io import FileError
from subtree_attention.runs import evaluate
from subtree_attention.train.fit import Interrupted
from subtree_attention.train.run import Run
from subtree_attention.train.watch import Watch
from tests.runs.format1 import downgrade
from tests.samples import friends, people

QUICK = {"runs": 2, "epochs": 5, "hops": 2, "heads": 2}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = sta.from_tables(people(), friends(), target="label", weight="strength")
    config = sta.recipe(data, graph="people", **QUICK)
    return sta.fit(config, tmp_path_factory.mktemp("old") / "own", device="cpu", data=data).folder


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("old") / "digits"
    return sta.fit(sta.recipe("digits", **QUICK), out, device="cpu").folder


@pytest.mark.parametrize("which", ["own", "digits"])
def test_it_says_the_same(which: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    today = request.getfixturevalue(which)
    shutil.copytree(today, tmp_path / "old")
    downgrade(tmp_path / "old")
    old, new = (sta.open(folder, device="cpu") for folder in (tmp_path / "old", today))
    assert old.config == new.config
    assert np.array_equal(old.logits, new.logits)
    assert old.temperature == pytest.approx(new.temperature, rel=1e-6)
    assert old.dataset.same_as(new.dataset)
    assert torch.equal(torch.stack(tuple(old.split)), torch.stack(tuple(new.split)))
    assert [s.test for s in evaluate(tmp_path / "old")] == [s.test for s in evaluate(today)]


def test_a_run_that_was_stopped_is_begun_again_in_words(own: Path, tmp_path: Path) -> None:
    class Stop(Watch):
        def epoch(self, run: Run) -> None:
            if (run.name, run.epoch) == ("run 1", 3):
                raise KeyboardInterrupt

    data = sta.open(own).dataset
    config, out = sta.open(own).config, tmp_path / "out"
    with pytest.raises(Interrupted):
        sta.fit(config, out, device="cpu", data=data, watch=Stop())
    downgrade(out)
    with pytest.raises(FileError, match=r"older version.*delete it to begin that run again"):
        sta.fit(config, out, device="cpu", resume=True)
    (out / "run-1/checkpoint.safetensors").unlink()
    sta.fit(config, out, device="cpu", resume=True)
    for name in ("run-0/metrics.jsonl", "run-1/metrics.jsonl"):
        assert (out / name).read_bytes() == (own / name).read_bytes()
