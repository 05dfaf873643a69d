"""The loop and what it leaves on disk, on the embedded graph."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import subtree_attention as sta
from subtree_attention.feature_maps import FEATURE_MAPS
from subtree_attention.nn.heads import GATES
from subtree_attention.runs import folder as store
from subtree_attention.runs.evaluate import evaluate_folder
from subtree_attention.train import loop
from subtree_attention.train.run import Diverged, Epoch, RunResult
from subtree_attention.train.step import Trainer

QUICK = {"runs": 2, "epochs": 4, "patience": 3, "hops": 1, "heads": 2}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> loop.Result:
    out = tmp_path_factory.mktemp("fit") / "out"
    return sta.fit(sta.recipe("digits", **QUICK), out, device="cpu")


def metrics(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_folder_holds_everything(result: loop.Result) -> None:
    names = {str(p.relative_to(result.folder)) for p in result.folder.rglob("*") if p.is_file()}
    per_run = {"metrics.jsonl", "summary.json", "model.safetensors"}
    expected = {"config.json", "environment.json", "summary.json"}
    assert names == expected | {f"run-{i}/{name}" for i in range(2) for name in per_run}


def test_runs_use_different_splits_and_seeds(result: loop.Result) -> None:
    first, second = (metrics(result.folder / f"run-{i}") for i in range(2))
    assert first != second
    assert [run.seed for run in result.runs] == [0, 1]


def test_test_score_is_that_of_the_first_best_validation_epoch(result: loop.Result) -> None:
    for run in result.runs:
        history = metrics(result.folder / f"run-{run.run}")
        best = max(history, key=lambda epoch: epoch["val"])  # max keeps the first of equals
        assert (run.best_epoch, run.test) == (best["epoch"], best["test"])
        assert [epoch["epoch"] for epoch in history] == list(range(1, run.epochs + 1))


def test_summary_has_mean_and_sample_deviation(result: loop.Result) -> None:
    summary = json.loads((result.folder / "summary.json").read_text())
    scores = torch.tensor([run["test"] for run in summary["runs"]], dtype=torch.float64)
    assert summary["mean"] == pytest.approx(scores.mean().item())
    assert summary["std"] == pytest.approx(scores.std().item())


def test_loaded_model_scores_as_it_did_in_training(result: loop.Result) -> None:
    for score in evaluate_folder(result.folder, device="cpu"):
        assert score.test == score.stored_test


def test_load_takes_the_best_validated_run_or_the_one_named(result: loop.Result) -> None:
    best = max(result.runs, key=lambda run: run.val).run
    chosen, named = sta.load(result.folder), sta.load(result.folder / f"run-{best}")
    assert not chosen.training
    for a, b in zip(chosen.parameters(), named.parameters(), strict=True):
        assert torch.equal(a, b)


def test_every_kind_of_model_is_loaded_as_it_was(tmp_path: Path) -> None:
    kinds = [{"feature_map": name} for name in FEATURE_MAPS] + [{"gate": name} for name in GATES]
    kinds += [{"global_attention": "beside"}, {"aggregation": "attention"}, {"head_mix": "sum"}]
    x, edge_index = torch.rand(9, 5), torch.randint(0, 9, (2, 20))
    for kind in kinds:
        config = sta.Config("digits", heads=2, hidden_channels=8, **kind)
        sizes = {"in_channels": 5, "out_channels": 3}
        model = sta.STAGNN(**sizes, **config.model_settings()).eval()
        path = tmp_path / "run-0" / "model.safetensors"
        store.save_model(path, model.state_dict(), config, sizes)
        loaded = sta.load(tmp_path / "run-0")
        assert torch.equal(loaded(x, edge_index), model(x, edge_index)), kind


def test_load_data_gives_what_the_model_takes_and_its_own_split(result: loop.Result) -> None:
    run = result.runs[1]
    folder = result.folder / "run-1"
    model, data = sta.load(folder), sta.load_data(folder)
    right = model(data.x, data.edge_index).argmax(-1) == data.y
    assert right[data.test_mask].double().mean().item() == pytest.approx(run.test, abs=1e-12)


def test_same_seed_same_numbers(result: loop.Result, tmp_path: Path) -> None:
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


class StopAt:
    """A progress that stops the training like Ctrl-C does."""

    def __init__(self, run: int, epoch: int) -> None:
        self.at = (run, epoch)

    def begin(self, folder: Path) -> None:
        pass

    def say(self, line: str) -> None:
        pass

    def start_run(self, index: int, epoch: int) -> None:
        pass

    def epoch(self, index: int, now: Epoch, best: Epoch | None) -> None:
        if (index, now.epoch) == self.at:
            raise KeyboardInterrupt

    def finish_run(self, result: RunResult) -> None:
        pass


def test_interrupted_and_resumed_equals_never_stopped(result: loop.Result, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(loop.Interrupted):
        sta.fit(result.config, out, device="cpu", progress=StopAt(1, 2))
    assert (out / "run-1" / "checkpoint.safetensors").exists()
    assert not (out / "summary.json").exists()
    resumed = sta.fit(result.config, out, device="cpu", resume=True)
    for index in range(2):
        before, after = result.folder / f"run-{index}", resumed.folder / f"run-{index}"
        assert metrics(after) == metrics(before)
        weights = [store.read_tensors(f / "model.safetensors")[0] for f in (before, after)]
        assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("place", ["_evaluate", "_gradients", "_descend"])
def test_an_interrupt_in_the_middle_of_an_epoch_loses_no_exactness(
    place: str, result: loop.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    with pytest.raises(loop.Interrupted):
        sta.fit(result.config, out, device="cpu", checkpoint_seconds=0)
    monkeypatch.setattr(Trainer, place, original)
    sta.fit(result.config, out, device="cpu", resume=True)
    for index in range(2):
        assert metrics(out / f"run-{index}") == metrics(result.folder / f"run-{index}")


@pytest.mark.parametrize("end", [{"epochs": 4}, {"epochs": 50, "patience": 2, "lr": 0.0}])
def test_a_run_that_was_stopped_at_its_end_has_no_epoch_more(end: dict, tmp_path: Path) -> None:
    config = sta.recipe("digits", **QUICK | {"runs": 1} | end)
    whole = sta.fit(config, tmp_path / "whole", device="cpu")
    progress = StopAt(0, whole.runs[0].epochs)
    with pytest.raises(loop.Interrupted):
        sta.fit(config, tmp_path / "stopped", device="cpu", progress=progress)
    resumed = sta.fit(config, tmp_path / "stopped", device="cpu", resume=True)
    assert metrics(tmp_path / "stopped/run-0") == metrics(tmp_path / "whole/run-0")
    assert resumed.runs[0].test == whole.runs[0].test


def test_resume_finds_the_latest_unfinished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = sta.recipe("digits", **QUICK)
    with pytest.raises(loop.Interrupted) as stopped:
        sta.fit(config, device="cpu", progress=StopAt(0, 1))
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
    with pytest.raises(loop.Interrupted) as stopped:
        sta.fit(config, device="cpu", progress=StopAt(0, 1))
    assert store.latest_unfinished("digits") == stopped.value.folder


def test_a_folder_may_have_the_name_of_a_run(result: loop.Result, tmp_path: Path) -> None:
    shutil.copytree(result.folder, tmp_path / "run-7")
    names = [run.name for run in store.finished_runs(tmp_path / "run-7")]
    assert names == ["run-0", "run-1"]
    assert store.finished_runs(tmp_path / "run-7" / "run-1") == [tmp_path / "run-7" / "run-1"]
    sta.load(tmp_path / "run-7")


def test_a_file_may_be_written_by_several_at_once(tmp_path: Path) -> None:
    contents = [bytes([number]) * 10_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: store.write_bytes(tmp_path / "file", content), contents * 20))
    assert (tmp_path / "file").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# ------------------------------------------------------------------------------ what is refused


def test_a_name_is_no_configuration() -> None:
    with pytest.raises(TypeError, match=r"config must be a Config, such as recipe\('cora'\)"):
        sta.fit("cora")  # type: ignore[arg-type]


def test_a_run_that_was_stopped_is_to_be_gone_on_with(tmp_path: Path) -> None:
    config = sta.recipe("digits", **QUICK)
    with pytest.raises(loop.Interrupted):
        sta.fit(config, tmp_path / "out", device="cpu", progress=StopAt(0, 1))
    with pytest.raises(store.RunFolderError, match="go on with 'sta train --resume --out"):
        sta.load(tmp_path / "out")


def test_a_folder_with_a_run_is_not_overwritten(result: loop.Result) -> None:
    with pytest.raises(ValueError, match="holds a run already"):
        sta.fit(result.config, result.folder, device="cpu")


def test_resume_with_other_settings_is_refused(result: loop.Result) -> None:
    with pytest.raises(ValueError, match="hops 1, not 3"):
        sta.fit(result.config.replace(hops=3), result.folder, device="cpu", resume=True)


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match="not empty"):
        sta.fit(sta.recipe("digits", **QUICK), tmp_path, device="cpu")
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_two_processes_cannot_train_into_one_folder(tmp_path: Path) -> None:
    with (
        store.claimed(tmp_path / "out"),
        pytest.raises(store.RunFolderError, match="another process"),
    ):
        sta.fit(sta.recipe("digits", **QUICK), tmp_path / "out", device="cpu")


def test_a_run_that_appears_while_the_graph_is_loaded_is_not_taken_for_ones_own(
    result: loop.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, prepare = tmp_path / "out", loop.prepare

    def slow(*args: object) -> object:
        shutil.copytree(result.folder, out)
        return prepare(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "prepare", slow)
    with pytest.raises(store.RunFolderError, match="holds a run already"):
        sta.fit(result.config.replace(hops=3), out, device="cpu")
    assert store.read_config(out) == result.config


def test_a_model_that_breaks_in_the_last_epoch_is_no_result(tmp_path: Path) -> None:
    config = sta.recipe("digits", runs=1, lr=1e30, epochs=1)
    with pytest.raises(Diverged):
        sta.fit(config, tmp_path / "out", device="cpu")
    assert not (tmp_path / "out" / "summary.json").exists()


@pytest.mark.parametrize("content", ["[]", '{"runs": 2}', '{"graph": "digits", "hops": "x"}', "{"])
def test_a_broken_configuration_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(store.RunFolderError, match=r"config\.json"):
        store.read_config(tmp_path)


def test_other_folders_beside_the_runs_are_ignored(result: loop.Result, tmp_path: Path) -> None:
    shutil.copytree(result.folder, tmp_path / "copy")
    (tmp_path / "copy" / "run-notes").mkdir()
    assert len(store.finished_runs(tmp_path / "copy")) == 2


def test_a_loss_that_is_not_a_number_stops_the_run_in_words(tmp_path: Path) -> None:
    config = sta.recipe("digits", runs=1, lr=1e30, epochs=30)
    with pytest.raises(Diverged, match=r"epoch \d+ of run 0 on digits .*lr 1e\+30"):
        sta.fit(config, tmp_path / "out", device="cpu")


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    store.write_json(path, {"good": 1})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.write_json(path, {"half": 2})
    assert json.loads(path.read_text()) == {"good": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_broken_model_file_is_named(result: loop.Result, tmp_path: Path) -> None:
    broken = tmp_path / "run-0"
    broken.mkdir()
    content = (result.folder / "run-0" / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(store.RunFolderError, match=r"model.safetensors cannot be read"):
        sta.load(broken)


@pytest.mark.parametrize(
    ("device", "message"), [("gpu", "unknown device 'gpu'"), ("mps", "not supported")]
)
def test_wrong_devices_are_refused(device: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        loop.choose_device(device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_missing_gpu_is_said() -> None:
    with pytest.raises(ValueError, match="torch sees no GPU"):
        loop.choose_device("cuda")
