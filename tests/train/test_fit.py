"""The loop and what it leaves on disk, on the embedded graph."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import subtree_attention as sta
from subtree_attention import io
from subtree_attention.config import STAGNNSettings
from subtree_attention.io import FileError
from subtree_attention.nn import build
from subtree_attention.runs import environment, evaluate, saved
from subtree_attention.runs import folder as files
from subtree_attention.train import fit as fitting
from subtree_attention.train.fit import Interrupted, Result
from subtree_attention.train.jobs import Stopped
from subtree_attention.train.run import Diverged, Run
from subtree_attention.train.step import Trainer
from subtree_attention.train.watch import Watch

QUICK = {"runs": 2, "epochs": 4, "patience": 3, "hops": 1, "heads": 2}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    out = tmp_path_factory.mktemp("fit") / "out"
    return sta.fit(sta.recipe("digits", **QUICK), out, device="cpu")


def metrics(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_folder_holds_everything(result: Result) -> None:
    names = {str(p.relative_to(result.folder)) for p in result.folder.rglob("*") if p.is_file()}
    per_run = {"metrics.jsonl", "summary.json", "model.safetensors", "SHA256SUMS"}
    expected = {"config.json", "environment.json", "summary.json", "SHA256SUMS"}
    assert names == expected | {f"run-{i}/{name}" for i in range(2) for name in per_run}


def test_runs_use_different_splits_and_seeds(result: Result) -> None:
    first, second = (metrics(result.folder / f"run-{i}") for i in range(2))
    assert first != second
    assert [run.seed for run in result.runs] == [0, 1]


def test_test_score_is_that_of_the_first_best_validation_epoch(result: Result) -> None:
    for run in result.runs:
        history = metrics(result.folder / f"run-{run.run}")
        best = max(history, key=lambda epoch: epoch["val"])  # max keeps the first of equals
        assert (run.best_epoch, run.test) == (best["epoch"], best["test"])
        assert [epoch["epoch"] for epoch in history] == list(range(1, run.epochs + 1))


def test_summary_has_mean_and_sample_deviation(result: Result) -> None:
    summary = json.loads((result.folder / "summary.json").read_text())
    scores = torch.tensor([run["test"] for run in summary["runs"]], dtype=torch.float64)
    assert summary["mean"] == pytest.approx(scores.mean().item())
    assert summary["std"] == pytest.approx(scores.std().item())


def test_loaded_model_scores_as_it_did_in_training(result: Result) -> None:
    for score in evaluate(result.folder, device="cpu"):
        assert score.test == score.run.result.test


def test_open_takes_the_best_validated_run_or_the_one_named(result: Result) -> None:
    best = max(result.runs, key=lambda run: run.val).run
    chosen, named = sta.open(result.folder), sta.open(result.folder / f"run-{best}")
    assert chosen.folder == named.folder
    assert not chosen.model.training
    for a, b in zip(chosen.model.parameters(), named.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_every_kind_of_model_is_loaded_as_it_was(tmp_path: Path) -> None:
    options = STAGNNSettings.__dataclass_fields__
    kinds = [
        {name: value}
        for name in ("feature_map", "gate", "aggregation", "head_mix", "readout")
        for value in options[name].metadata["words"]
    ]
    kinds += [{"global_attention": True}]
    x, edge_index = torch.rand(9, 5), torch.randint(0, 9, (2, 20))
    for kind in kinds:
        config = sta.Config.of("digits", heads=2, hidden_channels=8, **kind)
        sizes = {"in_channels": 5, "out_channels": 3}
        model = build(config.model, **sizes).eval()
        path = tmp_path / "run-0" / "model.safetensors"
        saved.save_model(path, model.state_dict(), config, sizes)
        loaded = sta.open(tmp_path / "run-0", device="cpu").model
        assert torch.equal(loaded(x, edge_index), model(x, edge_index)), kind


def test_a_run_has_what_its_model_takes_and_its_own_split(result: Result) -> None:
    run = sta.open(result.folder / "run-1", device="cpu")
    right = run.model(run.dataset.features, run.dataset.edge_index).argmax(-1) == run.dataset.y
    test = right[run.split.test].double().mean().item()
    assert test == pytest.approx(result.runs[1].test, abs=1e-12)


def test_the_temperature_is_found_when_training_ends(result: Result) -> None:
    for index, trained in enumerate(result.runs):
        run = sta.open(result.folder / f"run-{index}", device="cpu")
        y, stored = run.dataset.y.numpy(), run.temperature
        assert stored == trained.temperature
        again = run.task.settle(run.logits, y, run.split)
        assert stored == pytest.approx(again["temperature"], rel=1e-6)
        assert run.probabilities == pytest.approx(run.task.probabilities(run.logits, run.found))


def test_same_seed_same_numbers(result: Result, tmp_path: Path) -> None:
    again = sta.fit(result.config, tmp_path / "again", device="cpu")
    for run in range(2):
        assert metrics(again.folder / f"run-{run}") == metrics(result.folder / f"run-{run}")


def test_patience_ends_a_run(tmp_path: Path) -> None:
    config = sta.recipe("digits", runs=1, epochs=50, patience=2, hops=1, lr=0.0)
    [run] = sta.fit(config, tmp_path / "out", device="cpu").runs
    assert (run.best_epoch, run.epochs) == (1, 3)


def test_single_run_has_no_deviation(tmp_path: Path) -> None:
    config = sta.recipe("digits", **QUICK | {"runs": 1})
    assert sta.fit(config, tmp_path / "out", device="cpu").std is None


# ------------------------------------------------------------------------------ interruption


class StopAt(Watch):
    """Stops the training like Ctrl-C does."""

    def __init__(self, run: int, epoch: int) -> None:
        self.at = (f"run {run}", epoch)

    def epoch(self, run: Run) -> None:
        if (run.name, run.epoch) == self.at:
            raise KeyboardInterrupt


def test_interrupted_and_resumed_equals_never_stopped(result: Result, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(Interrupted):
        sta.fit(result.config, out, device="cpu", watch=StopAt(1, 2))
    assert (out / "run-1" / "checkpoint.safetensors").exists()
    assert not (out / "summary.json").exists()
    resumed = sta.fit(result.config, out, device="cpu", resume=True)
    for index in range(2):
        before, after = result.folder / f"run-{index}", resumed.folder / f"run-{index}"
        assert metrics(after) == metrics(before)
        weights = [io.read_tensors(f / "model.safetensors")[0] for f in (before, after)]
        assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("place", ["_evaluate", "_learn"])
def test_an_interrupt_in_the_middle_of_an_epoch_loses_no_exactness(
    place: str, result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(100))
    original = getattr(Trainer, place)

    def interrupted(*args: object, **kwargs: object) -> object:
        outcome = original(*args, **kwargs)
        if next(calls) == 2:
            raise KeyboardInterrupt
        return outcome

    monkeypatch.setattr(Trainer, place, interrupted)
    out = tmp_path / "out"
    with pytest.raises(Interrupted):
        sta.fit(result.config, out, device="cpu", checkpoint_seconds=0)
    monkeypatch.setattr(Trainer, place, original)
    sta.fit(result.config, out, device="cpu", resume=True)
    for index in range(2):
        assert metrics(out / f"run-{index}") == metrics(result.folder / f"run-{index}")


@pytest.mark.parametrize("end", [{"epochs": 4}, {"epochs": 50, "patience": 2, "lr": 0.0}])
def test_a_run_that_was_stopped_at_its_end_has_no_epoch_more(end: dict, tmp_path: Path) -> None:
    config = sta.recipe("digits", **QUICK | {"runs": 1} | end)
    whole = sta.fit(config, tmp_path / "whole", device="cpu")
    watch = StopAt(0, whole.runs[0].epochs)
    with pytest.raises(Interrupted):
        sta.fit(config, tmp_path / "stopped", device="cpu", watch=watch)
    resumed = sta.fit(config, tmp_path / "stopped", device="cpu", resume=True)
    assert metrics(tmp_path / "stopped/run-0") == metrics(tmp_path / "whole/run-0")
    assert resumed.runs[0].test == whole.runs[0].test


def test_whoever_says_stop_finds_all_saved(result: Result, tmp_path: Path) -> None:
    asked = iter([False, True])
    with pytest.raises(Stopped):
        sta.fit(result.config, tmp_path / "out", device="cpu", stop=lambda: next(asked))
    assert (tmp_path / "out/run-0/checkpoint.safetensors").exists()
    sta.fit(result.config, tmp_path / "out", device="cpu", resume=True)
    for index in range(2):
        assert metrics(tmp_path / f"out/run-{index}") == metrics(result.folder / f"run-{index}")


def test_resume_finds_the_latest_unfinished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = sta.recipe("digits", **QUICK)
    with pytest.raises(Interrupted) as stopped:
        sta.fit(config, device="cpu", watch=StopAt(0, 1))
    assert sta.fit(config, device="cpu", resume=True).folder == stopped.value.folder
    with pytest.raises(ValueError, match="no unfinished run of digits"):
        sta.fit(config, device="cpu", resume=True)


def test_a_broken_neighbour_is_not_in_the_way_of_resuming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "broken").mkdir(parents=True)
    (tmp_path / "runs" / "broken" / "config.json").write_text("{}")
    config = sta.recipe("digits", **QUICK)
    with pytest.raises(Interrupted) as stopped:
        sta.fit(config, device="cpu", watch=StopAt(0, 1))
    assert files.latest_unfinished("digits") == stopped.value.folder


def test_a_folder_may_have_the_name_of_a_run(result: Result, tmp_path: Path) -> None:
    shutil.copytree(result.folder, tmp_path / "run-7")
    names = [run.name for run in files.finished_runs(tmp_path / "run-7")]
    assert names == ["run-0", "run-1"]
    assert files.finished_runs(tmp_path / "run-7" / "run-1") == [tmp_path / "run-7" / "run-1"]
    assert sta.open(tmp_path / "run-7", device="cpu").model


def test_a_file_may_be_written_by_several_at_once(tmp_path: Path) -> None:
    contents = [bytes([number]) * 10_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: io.write_bytes(tmp_path / "file", content), contents * 20))
    assert (tmp_path / "file").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# ------------------------------------------------------------------------------ what is refused


def test_a_name_is_no_configuration() -> None:
    with pytest.raises(TypeError, match=r"config must be a Config, such as recipe\('cora'\)"):
        sta.fit("cora")  # type: ignore[arg-type]


def test_a_run_that_was_stopped_is_to_be_gone_on_with(tmp_path: Path) -> None:
    config = sta.recipe("digits", **QUICK)
    with pytest.raises(Interrupted):
        sta.fit(config, tmp_path / "out", device="cpu", watch=StopAt(0, 1))
    with pytest.raises(FileError, match="go on with 'sta train --resume --out"):
        sta.open(tmp_path / "out")


def test_a_folder_with_a_run_is_not_overwritten(result: Result) -> None:
    with pytest.raises(ValueError, match="holds a run already"):
        sta.fit(result.config, result.folder, device="cpu")


def test_resume_with_other_settings_is_refused(result: Result) -> None:
    with pytest.raises(ValueError, match="hops 1, not 3"):
        sta.fit(result.config.replace(hops=3), result.folder, device="cpu", resume=True)


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match="not empty"):
        sta.fit(sta.recipe("digits", **QUICK), tmp_path, device="cpu")
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_two_processes_cannot_train_into_one_folder(tmp_path: Path) -> None:
    with (
        files.claimed(tmp_path / "out"),
        pytest.raises(FileError, match="another process"),
    ):
        sta.fit(sta.recipe("digits", **QUICK), tmp_path / "out", device="cpu")


def test_a_run_that_appears_while_the_graph_is_loaded_is_not_taken_for_ones_own(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, load = tmp_path / "out", fitting.dataset_of

    def slow(*args: object) -> object:
        shutil.copytree(result.folder, out)
        return load(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(fitting, "dataset_of", slow)
    with pytest.raises(FileError, match="holds a run already"):
        sta.fit(result.config.replace(hops=3), out, device="cpu")
    assert files.read_config(out) == result.config


def test_a_model_that_breaks_in_the_last_epoch_is_no_result(tmp_path: Path) -> None:
    config = sta.recipe("digits", runs=1, lr=1e30, epochs=1)
    with pytest.raises(Diverged):
        sta.fit(config, tmp_path / "out", device="cpu")
    assert not (tmp_path / "out" / "summary.json").exists()


@pytest.mark.parametrize("content", ["[]", '{"runs": 2}', '{"graph": "digits", "hops": "x"}', "{"])
def test_a_broken_configuration_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(FileError, match=r"config\.json"):
        files.read_config(tmp_path)


def test_other_folders_beside_the_runs_are_ignored(result: Result, tmp_path: Path) -> None:
    shutil.copytree(result.folder, tmp_path / "copy")
    (tmp_path / "copy" / "run-notes").mkdir()
    assert len(files.finished_runs(tmp_path / "copy")) == 2


def test_a_loss_that_is_not_a_number_stops_the_run_in_words(tmp_path: Path) -> None:
    config = sta.recipe("digits", runs=1, lr=1e30, epochs=30)
    with pytest.raises(Diverged, match=r"epoch \d+ of run 0 on digits .*lr 1e\+30"):
        sta.fit(config, tmp_path / "out", device="cpu")


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    io.write_json(path, {"good": 1})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(io.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        io.write_json(path, {"half": 2})
    assert json.loads(path.read_text()) == {"good": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_broken_model_file_is_named(result: Result, tmp_path: Path) -> None:
    broken = tmp_path / "run-0"
    broken.mkdir()
    content = (result.folder / "run-0" / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(FileError, match=r"model.safetensors cannot be read"):
        assert sta.open(broken, device="cpu").model


@pytest.mark.parametrize(
    ("device", "message"), [("gpu", "unknown device 'gpu'"), ("mps", "not supported")]
)
def test_wrong_devices_are_refused(device: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        environment.choose_device(device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_missing_gpu_is_said() -> None:
    with pytest.raises(ValueError, match="torch sees no GPU"):
        environment.choose_device("cuda")
