"""Weights & Biases and MLflow, by stand-ins that take what the packages take and nothing else."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import subtree_attention as sta
from subtree_attention.runs import folder as files
from subtree_attention.train.jobs import Stopped
from tests.train.logs.test_logs import CONFIG, Said, after


class Wandb(ModuleType):
    """wandb.init, Run.log, Run.summary, Run.finish, of version 0.31; offline unless `online`."""

    def __init__(self, online: bool) -> None:
        super().__init__("wandb")
        self.online, self.runs, self.steps = online, list[Any](), dict[str, list[int]]()

    class Settings:
        def __init__(self, *, console: str) -> None:
            assert console == "off"

    def init(
        self,
        *,
        project: str,
        id: str,
        resume: str,
        name: str,
        group: str,
        config: dict[str, Any],
        dir: str,
        reinit: str,
        settings: Any,
    ) -> Any:
        assert (resume, reinit, group) == ("allow", "create_new", "out")
        assert Path(dir).is_dir()
        json.dumps(config)
        known = self.steps.setdefault(id, [])
        resumed = self.online and bool(known)
        run = SimpleNamespace(id=id, name=name, config=config, project=project, resumed=resumed)
        run.step, run.summary, run.ended = (known[-1] + 1 if resumed else 0), {}, []

        def log(data: dict[str, float], step: int | None = None) -> None:
            assert not known or step is not None
            assert step not in known, "logged twice"
            known.append(int(step or 0))
            run.last = data

        run.log, run.finish = log, lambda exit_code=None: run.ended.append(exit_code)
        self.runs.append(run)
        return run


@pytest.mark.parametrize("online", [True, False])
def test_weights_and_biases(online: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, said = Wandb(online), Said()
    fake.__spec__ = SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setenv("WANDB_PROJECT", "digits")
    given: dict[str, Any] = {"device": "cpu", "log": "wandb", "watch": said}
    with pytest.raises(Stopped):
        sta.fit(CONFIG, tmp_path / "out", **given, stop=after(7))
    for _ in range(2):
        result = sta.fit(CONFIG, tmp_path / "out", **given, resume=True)
    assert not [line for line in said.lines if "log" in line]
    first, stopped, resumed = fake.runs  # those that had ended are not opened again
    assert [run.ended for run in fake.runs] == [[0], [1], [0]]
    assert (stopped.id, stopped.name) == (resumed.id, "out/run-1")
    assert stopped.id != first.id
    assert fake.steps == {first.id: [1, 2, 3, 4, 5, 6], stopped.id: [1, 2, 3, 4, 5, 6]}
    assert set(first.last) == {"loss", "accuracy/train", "accuracy/val"}
    assert first.project == "digits"
    assert (first.config["hops"], first.config["seed"], resumed.config["seed"]) == (1, 0, 1)
    assert [one.summary["accuracy/test"] for one in (first, resumed)] == [
        run.test for run in result.runs
    ]


class Entity(SimpleNamespace):
    """mlflow.entities.Param and Metric, as they are called."""

    @classmethod
    def param(cls, key: str, value: str) -> "Entity":
        assert isinstance(value, str)
        return cls(key=key, value=value)

    @classmethod
    def metric(cls, key: str, value: float, timestamp: int, step: int) -> "Entity":
        assert all(c.isalnum() or c in "_-. /" for c in key)
        return cls(key=key, value=value, timestamp=timestamp, step=step)


class Client:
    """MlflowClient of version 3.17, in memory."""

    def __init__(self) -> None:
        self.experiments: dict[str, str] = {}
        self.runs: dict[str, Any] = {}

    def get_experiment_by_name(self, name: str) -> Any:
        found = self.experiments.get(name)
        return None if found is None else SimpleNamespace(experiment_id=found)

    def create_experiment(self, name: str) -> str:
        return self.experiments.setdefault(name, str(len(self.experiments)))

    def create_run(self, experiment_id: str, run_name: str | None = None) -> Any:
        name = f"run{len(self.runs)}"
        made = SimpleNamespace(title=run_name, params={}, metrics=[], statuses=["RUNNING"])
        self.runs[name] = made
        return SimpleNamespace(info=SimpleNamespace(run_id=name))

    def update_run(self, run_id: str, status: str | None = None) -> None:
        self.runs[run_id].statuses.append(status)

    def set_terminated(self, run_id: str, status: str | None = None) -> None:
        self.runs[run_id].statuses.append(status)

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
        assert len(metrics) <= 1000
        assert len(params) <= 100
        self.runs[run_id].metrics += metrics
        self.runs[run_id].params |= {param.key: param.value for param in params}

    def get_metric_history(self, run_id: str, key: str) -> list[Any]:
        return [metric for metric in self.runs[run_id].metrics if metric.key == key]


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client, said = Client(), Said()
    fake, entities = ModuleType("mlflow"), ModuleType("mlflow.entities")
    fake.__spec__ = SimpleNamespace()  # type: ignore[assignment]
    fake.MlflowClient = lambda: client  # type: ignore[attr-defined]
    entities.Param, entities.Metric = Entity.param, Entity.metric  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    given: dict[str, Any] = {"device": "cpu", "log": "mlflow", "watch": said}
    with pytest.raises(Stopped):
        sta.fit(CONFIG, tmp_path / "out", **given, stop=after(7))
    for _ in range(2):
        result = sta.fit(CONFIG, tmp_path / "out", **given, resume=True)
    assert not [line for line in said.lines if "log" in line]
    assert list(client.experiments) == ["subtree-attention"]
    first, second = client.runs.values()
    assert (first.title, second.title) == ("out/run-0", "out/run-1")
    assert first.statuses == ["RUNNING", "FINISHED"]
    assert second.statuses == ["RUNNING", "KILLED", "RUNNING", "FINISHED"]
    assert (first.params["hops"], second.params["seed"]) == ("1", "1")
    for made, run in zip((first, second), result.runs, strict=True):
        curves = files.read_curves(result.folder / f"run-{run.run}")
        for key, name in (("loss", "loss"), ("accuracy/train", "train"), ("accuracy/val", "val")):
            found = [(metric.step, metric.value) for metric in made.metrics if metric.key == key]
            assert found == [(epoch.epoch, getattr(epoch, name)) for epoch in curves]
        tests = [m for m in made.metrics if m.key == "accuracy/test"]
        assert [(m.step, m.value) for m in tests] == [(run.best_epoch, run.test)]
