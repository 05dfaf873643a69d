"""Logs that others keep. Where their packages look for a server, and who one is there, is said by
their own environment variables.

The name that a run has there is kept in its folder, so that it is the same one when it is taken up
again; of what is there already, nothing is sent twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from ... import io
from ...runs.folder import LOGGED, Epoch, RunResult
from .log import LoggedRun

PROJECT = "subtree-attention"
"""What runs are among, unless WANDB_PROJECT or MLFLOW_EXPERIMENT_NAME says otherwise."""
SEND_SECONDS, SEND_MOST = 1.0, 900
"""MLflow gets numbers at most so often, and so many at a time (it takes a thousand)."""


def kept(run: LoggedRun, service: str) -> dict[str, Any]:
    """What is known of a run at a service: its name there, and whether it has ended."""
    path = run.folder / LOGGED
    content = io.read_json(path) if path.exists() else {}
    found = content.get(service) if isinstance(content, dict) else None
    return found if isinstance(found, dict) else {}


def keep(run: LoggedRun, service: str, name: str, ended: bool) -> None:
    """The inverse of `kept`; what other services have there stays."""
    path = run.folder / LOGGED
    content = io.read_json(path) if path.exists() else {}
    io.write_json(path, {**content, service: {"name": name, "ended": ended}})


class WeightsAndBiases:
    """A run of the project, by `wandb`; WANDB_MODE=offline needs no network, and files are in the
    run's folder."""

    def __init__(self) -> None:
        self._runs: dict[int, tuple[Any, int]] = {}  # and up to which epoch it knows

    def begin(self, run: LoggedRun, history: Sequence[Epoch]) -> None:
        import wandb

        before = kept(run, "wandb")
        if before.get("ended"):
            return
        name = before.get("name") or uuid4().hex
        run.folder.mkdir(parents=True, exist_ok=True)
        made = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=name,
            resume="allow",
            name=run.title,
            group=run.out.name,
            config=dict(run.settings),
            dir=str(run.folder),
            reinit="create_new",  # several at a time
            settings=wandb.Settings(console="off"),
        )
        keep(run, "wandb", name, ended=False)
        # Offline nothing says how far it was: what was trained before was logged before.
        known = made.step - 1 if made.resumed else len(history) if before else 0
        self._runs[run.index] = made, known
        for epoch in history:
            self.epoch(run, epoch)

    def epoch(self, run: LoggedRun, epoch: Epoch) -> None:
        made, known = self._runs.get(run.index, (None, 0))
        if made is not None and epoch.epoch > known:
            made.log(run.numbers(epoch), step=epoch.epoch)

    def end(self, run: LoggedRun, result: RunResult | None) -> None:
        made, _ = self._runs.pop(run.index, (None, 0))
        if made is None:
            return
        if result is not None:
            made.summary.update({**run.result(result), "best_epoch": result.best_epoch})
        made.finish(exit_code=0 if result is not None else 1)
        keep(run, "wandb", made.id, ended=result is not None)


class MLflow:
    """A run of the experiment, by `mlflow`: at MLFLOW_TRACKING_URI, or where it keeps its own."""

    def __init__(self) -> None:
        self._runs: dict[int, tuple[str, int]] = {}  # its name there, and up to which epoch
        self._waiting: dict[int, list[Any]] = {}
        self._sent = 0.0

    def begin(self, run: LoggedRun, history: Sequence[Epoch]) -> None:
        from mlflow.entities import Param

        before = kept(run, "mlflow")
        if before.get("ended"):
            return
        client = self._client()
        if before:
            name = before["name"]
            client.update_run(name, status="RUNNING")
            known = max((one.step for one in client.get_metric_history(name, "loss")), default=0)
        else:
            made = client.create_run(self._experiment(client), run_name=run.title)
            name, known = made.info.run_id, 0
            settings = [Param(name, str(value)) for name, value in run.settings.items()]
            client.log_batch(name, params=settings)
            keep(run, "mlflow", name, ended=False)
        self._runs[run.index], self._waiting[run.index] = (name, known), []
        for epoch in history:
            self.epoch(run, epoch)

    def epoch(self, run: LoggedRun, epoch: Epoch) -> None:
        if run.index not in self._runs or epoch.epoch <= self._runs[run.index][1]:
            return
        waiting = self._waiting[run.index]
        waiting += self._metrics(run.numbers(epoch), epoch.epoch)
        if time.monotonic() - self._sent >= SEND_SECONDS or len(waiting) >= SEND_MOST:
            self._send(run)

    def end(self, run: LoggedRun, result: RunResult | None) -> None:
        if run.index not in self._runs:
            return
        if result is not None:
            self._waiting[run.index] += self._metrics(run.result(result), result.best_epoch)
        self._send(run)
        name, _ = self._runs.pop(run.index)
        self._client().set_terminated(name, "FINISHED" if result is not None else "KILLED")
        keep(run, "mlflow", name, ended=result is not None)

    def _client(self) -> Any:
        from mlflow import MlflowClient

        return MlflowClient()

    def _experiment(self, client: Any) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = client.get_experiment_by_name(name)
        return client.create_experiment(name) if found is None else found.experiment_id

    def _metrics(self, numbers: dict[str, float], step: int) -> list[Any]:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        return [Metric(name, value, now, step) for name, value in numbers.items()]

    def _send(self, run: LoggedRun) -> None:
        waiting, self._waiting[run.index] = self._waiting[run.index], []
        self._client().log_batch(self._runs[run.index][0], metrics=waiting)
        self._sent = time.monotonic()
