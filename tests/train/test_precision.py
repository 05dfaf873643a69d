"""Training with states in bfloat16: on a GPU only, and what it leaves is read anywhere."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import subtree_attention as sta
from experiments.models import GlobalAttentionSettings
from subtree_attention.config import DataSettings, FitSettings
from subtree_attention.io import FileError
from subtree_attention.nn import STAGNN, set_states
from subtree_attention.ops import walk
from subtree_attention.runs import folder as files
from subtree_attention.train.jobs import Place

QUICK = {"runs": 1, "epochs": 6, "hops": 3, "heads": 2, "dropout": 0.0}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(scope="module")
def rounded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with rounded states, trained here as a GPU without a kernel of its own would do it."""
    out = tmp_path_factory.mktemp("precision") / "bf16"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STA_BACKEND", "torch")
        patch.setattr(walk, "check_states", lambda *_: None)
        patch.setattr(Place, "check", lambda *_: None)
        return sta.fit(sta.recipe("digits", **QUICK, precision="bf16"), out, device="cpu").folder


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("precision") / "full"
    return sta.fit(sta.recipe("digits", **QUICK), out, device="cpu").folder


def losses(folder: Path) -> list[float]:
    return [epoch.loss for epoch in files.read_curves(folder / "run-0")]


def test_states_are_rounded_in_training_and_little_changes(rounded: Path, full: Path) -> None:
    assert losses(rounded) != losses(full)
    # Roundings of 2^-9 in what is averaged; six steps of Adam do not blow them up.
    assert losses(rounded) == pytest.approx(losses(full), rel=1e-2)


def test_it_is_one_setting_of_the_run(rounded: Path, full: Path) -> None:
    for folder, precision in ((rounded, "bf16"), (full, "full")):
        written = json.loads((folder / "config.json").read_text())
        assert written["fit"]["precision"] == precision
        assert sta.open(folder, device="cpu").config.fit.precision == precision


def test_what_was_trained_so_is_read_on_a_cpu_with_full_states(rounded: Path) -> None:
    run = sta.open(rounded, device="cpu")
    assert run.model.conv.states == "full"
    assert sta.predict(rounded, device="cpu").probabilities == pytest.approx(run.probabilities)
    told = sta.explain(run.model, run.dataset.features, run.graph, 5)
    assert told.logits.numpy() == pytest.approx(run.logits[5], abs=1e-5)
    # Scores were taken with rounded states: the class of a node or two of 360 may change.
    assert run.scores()[2] == pytest.approx(run.result.test, abs=3 / 360)


def test_it_is_refused_on_a_cpu_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = sta.recipe("digits", precision="bf16")
    for out in (None, "mine"):
        with pytest.raises(ValueError, match=r"on a CPU.*--precision full.*--device cuda"):
            sta.fit(config, out, device="cpu")
    assert not any(tmp_path.iterdir())


def test_a_search_refuses_it_too(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    from subtree_attention.tune import Plan, search

    plan = Plan("digits", changes={"precision": "bf16"})
    with pytest.raises(ValueError, match="on a CPU it would only cost precision"):
        search(plan, tmp_path / "search", trials=1, device="cpu")
    assert not any(tmp_path.iterdir())


def test_a_run_does_not_change_its_precision_on_the_way(full: Path) -> None:
    config = files.read_config(full).replace(precision="bf16")
    with pytest.raises(FileError, match="precision"):
        files.may_write(config, full, resume=True)


def test_a_model_without_states_has_none_to_round() -> None:
    rounded = FitSettings(precision="bf16")
    with pytest.raises(ValueError, match="exact softmax attention nor a model without hops"):
        sta.Config(DataSettings("digits"), GlobalAttentionSettings(), fit=rounded)
    with pytest.raises(ValueError, match="exact softmax attention nor a model without hops"):
        sta.recipe("cora", feature_map="softmax", precision="bf16")
    assert sta.recipe("cora", hops=0, precision="bf16").fit.precision == "bf16"


def test_all_layers_of_a_model_have_the_states_that_are_set() -> None:
    model = torch.nn.Sequential(STAGNN(3, 4, 2), torch.nn.ModuleList([sta.STAConv(3, 4)]))
    set_states(model, "bfloat16")
    layers = [layer for layer in model.modules() if isinstance(layer, sta.STAConv)]
    assert [layer.states for layer in layers] == ["bfloat16"] * 2


@needs_gpu
@pytest.mark.parametrize("capture", [True, False])
def test_on_a_gpu_it_trains_and_is_read_with_full_states(tmp_path: Path, capture: bool) -> None:
    place, found = Place.of("cuda", capture=capture), {}
    for precision in ("full", "bf16"):
        config = sta.recipe("digits", **QUICK, precision=precision)
        found[precision] = sta.fit(config, tmp_path / precision, device=place).folder
    assert losses(found["bf16"]) != losses(found["full"])
    assert losses(found["bf16"]) == pytest.approx(losses(found["full"]), rel=1e-2)
    there, here = (sta.open(found["bf16"], device=device) for device in ("cuda", "cpu"))
    np.testing.assert_allclose(there.logits, here.logits, atol=1e-4)
