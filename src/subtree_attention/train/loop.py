"""The training loop, from top to bottom.

    from subtree_attention import fit, recipe
    result = fit(recipe("cora", runs=5))            # saved under runs/
    result = fit(recipe("cora"), out="runs/mine", resume=True)

or `sta train cora --runs 5` from the command line.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from .. import data as datasets
from ..graph import Graph
from ..nn import STAGNN
from . import folder as store
from .config import Config
from .metrics import LOSSES, METRICS
from .progress import Progress, Silent


class Diverged(RuntimeError):
    """The loss or the outputs of a run are not finite any more."""


class Interrupted(KeyboardInterrupt):
    """Training was stopped by the user; everything up to then is saved in `folder`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"stopped; everything is saved in {folder}")
        self.folder = folder


@dataclass(frozen=True)
class Epoch:
    """One line of metrics.jsonl. Scores lie between 0 and 1."""

    epoch: int
    loss: float
    train: float
    val: float
    test: float


@dataclass(frozen=True)
class RunResult:
    """One run: scores at its best validation epoch."""

    run: int
    seed: int
    val: float
    test: float
    best_epoch: int
    epochs: int
    seconds: float


@dataclass(frozen=True)
class Result:
    """All runs of a configuration, and where they are saved."""

    config: Config
    runs: list[RunResult]
    folder: Path

    @property
    def mean(self) -> float:
        """Mean test score."""
        return mean(run.test for run in self.runs)

    @property
    def std(self) -> float | None:
        """Sample standard deviation of the test score; None for a single run."""
        return stdev(run.test for run in self.runs) if len(self.runs) > 1 else None

    def to_dict(self) -> dict[str, Any]:
        """What summary.json holds."""
        return {
            "graph": self.config.graph,
            "metric": self.config.metric,
            "mean": self.mean,
            "std": self.std,
            "runs": [asdict(run) for run in self.runs],
        }


def fit(
    config: Config,
    out: str | Path | None = None,
    *,
    device: str = "auto",
    resume: bool = False,
    data_dir: str | Path | None = None,
    mirror: str | Path | None = None,
    progress: Progress | None = None,
    checkpoint_seconds: float = 5.0,
) -> Result:
    """Train `config.runs` models on as many splits, and save everything under `out`.

    Args:
        config: what to train; `recipe(graph)` gives the paper's.
        out: folder of the results; by default a new one under `runs/`.
        device: "cpu", "cuda", "cuda:1", ... or "auto".
        resume: go on with what is in `out`: finished runs are kept, a killed one continues where
            it was and ends with the same numbers.
        data_dir: see `datasets.load`.
        mirror: see `datasets.load`.
        progress: what to show on the way; nothing by default.
        checkpoint_seconds: how often a run is saved on the way: what a killed one loses.
    """
    place = choose_device(device)
    progress = progress or Silent()
    given = _check_folder(config, out, resume)  # before the work of loading
    data = prepare(config, data_dir, mirror).to(str(place))  # once: the splits share it
    seeds = range(config.seed, config.seed + config.runs)
    splits = [
        datasets.apply_split(data, config.split, seed=seed, data_dir=data_dir, mirror=mirror)
        for seed in seeds
    ]
    out = given or store.new_folder(config.graph)
    with store.claimed(out):
        _check_folder(config, out, resume)  # again: somebody may have been faster
        progress.begin(out)
        store.write_json(out / "config.json", config.to_dict())
        if not (out / "environment.json").exists():
            store.write_json(out / "environment.json", store.environment(place))
        graph = Graph(data.edge_index, data.num_nodes, transition=config.transition)
        runs = [
            _fit_run(config, split.to(str(place)), graph, index, out, progress, checkpoint_seconds)
            for index, split in enumerate(splits)
        ]
        result = Result(config, runs, out)
        store.write_json(out / "summary.json", result.to_dict())
    return result


def _fit_run(
    config: Config,
    data: Data,
    graph: Graph,
    index: int,
    out: Path,
    progress: Progress,
    checkpoint_seconds: float,
) -> RunResult:
    """One run on one split, from its checkpoint if there is one."""
    folder = out / f"run-{index}"
    if (folder / "summary.json").exists():
        result = RunResult(**store.read_json(folder / "summary.json"))
        progress.finish_run(result)
        return result

    torch.manual_seed(config.seed + index)
    state = _State(config, data, folder)
    state.restore()
    progress.start_run(index, state.epoch)
    try:
        while not state.done:
            loss = state.train_step(data, graph)
            train, val, test = evaluate(state.model, data, graph, config.metric)
            if not math.isfinite(loss + val):
                raise Diverged(_diverged(config, index, state.epoch + 1, loss))
            state.record(Epoch(state.epoch + 1, loss, train, val, test))
            progress.epoch(state.history[-1], state.best)
            if time.monotonic() - state.saved >= checkpoint_seconds:
                state.checkpoint()
    except KeyboardInterrupt:
        if state.between_epochs:  # in the middle of one, the last checkpoint is what counts
            state.checkpoint()
        raise Interrupted(out) from None
    result = state.finish(index)
    progress.finish_run(result)
    return result


class _State:
    """A run under way: model, optimiser, what is best so far, and how to put it all on disk."""

    def __init__(self, config: Config, data: Data, folder: Path) -> None:
        self.config, self.folder, self.device = config, folder, data.y.device
        self.sizes = {"in_channels": data.x.size(1), "out_channels": int(data.y.max()) + 1}
        self.model = STAGNN(**self.sizes, **config.model_settings()).to(self.device)
        self.optimizer = torch.optim.Adam(
            self.model.parameter_groups(config.weight_decay), lr=config.lr
        )
        self.loss = LOSSES[config.loss]
        self.history: list[Epoch] = []
        self.best: Epoch | None = None
        self.best_weights: dict[str, Tensor] = {}
        self.between_epochs = True
        self.seconds = 0.0  # spent before the checkpoint that this process started from
        self.started = self.saved = time.monotonic()

    @property
    def epoch(self) -> int:
        return self.history[-1].epoch if self.history else 0

    @property
    def done(self) -> bool:
        waited = self.epoch - self.best.epoch if self.best else 0
        return self.epoch >= self.config.epochs or waited >= self.config.patience

    def train_step(self, data: Data, graph: Graph) -> float:
        """One step of gradient descent on the training nodes."""
        self.between_epochs = False
        self.model.train()
        self.optimizer.zero_grad()
        logits = self.model(data.x, graph)
        loss = self.loss(logits[data.train_mask], data.y[data.train_mask])
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def record(self, epoch: Epoch) -> None:
        """Note an epoch; the first of equally good ones stays the best."""
        self.history.append(epoch)
        if self.best is None or epoch.val > self.best.val:
            self.best = epoch
            weights = self.model.state_dict()
            self.best_weights = {name: tensor.clone() for name, tensor in weights.items()}
        self.between_epochs = True

    def elapsed(self) -> float:
        return self.seconds + time.monotonic() - self.started

    def checkpoint(self) -> None:
        """Everything that the rest of the run depends on, in one file."""
        if self.best is None:
            return
        tensors = _named("model", self.model.state_dict()) | _named("best", self.best_weights)
        for index, moments in self.optimizer.state_dict()["state"].items():
            tensors |= _named(f"optimizer/{index}", moments)
        tensors["rng/cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["rng/cuda"] = torch.cuda.get_rng_state(self.device)
        header = {
            "history": [asdict(epoch) for epoch in self.history],
            "best": asdict(self.best),
            "seconds": self.elapsed(),
        }
        store.write_tensors(self.folder / "checkpoint.safetensors", tensors, header)
        self._write_metrics()
        self.saved = time.monotonic()

    def restore(self) -> None:
        """Go on from the checkpoint, if there is one."""
        path = self.folder / "checkpoint.safetensors"
        if not path.exists():
            return
        tensors, header = store.read_tensors(path)
        self.model.load_state_dict(_below("model", tensors))
        self.best_weights = _below("best", tensors)
        optimizer = self.optimizer.state_dict()
        indices = [index for group in optimizer["param_groups"] for index in group["params"]]
        moments = {index: _below(f"optimizer/{index}", tensors) for index in indices}
        optimizer["state"] = {index: named for index, named in moments.items() if named}
        self.optimizer.load_state_dict(optimizer)
        self.history = [Epoch(**epoch) for epoch in header["history"]]
        self.best, self.seconds = Epoch(**header["best"]), header["seconds"]
        torch.set_rng_state(tensors["rng/cpu"])
        if "rng/cuda" in tensors and self.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["rng/cuda"], self.device)

    def finish(self, index: int) -> RunResult:
        """Write the results; only then is the checkpoint superfluous."""
        assert self.best is not None  # a run has at least one epoch
        seed = self.config.seed + index
        best, epochs, seconds = self.best, self.epoch, round(self.elapsed(), 3)
        result = RunResult(index, seed, best.val, best.test, best.epoch, epochs, seconds)
        path = self.folder / "model.safetensors"
        store.save_model(path, self.best_weights, self.config, self.sizes)
        self._write_metrics()
        store.write_json(self.folder / "summary.json", asdict(result))
        (self.folder / "checkpoint.safetensors").unlink(missing_ok=True)
        return result

    def _write_metrics(self) -> None:
        lines = "".join(json.dumps(asdict(epoch)) + "\n" for epoch in self.history)
        store.write_bytes(self.folder / "metrics.jsonl", lines.encode())


@torch.no_grad()
def evaluate(model: STAGNN, data: Data, graph: Graph, metric: str) -> tuple[float, float, float]:
    """The score on training, validation and test nodes, between 0 and 1.

    NaN if any logit is not finite: such a model has no score.
    """
    model.eval()
    logits = model(data.x, graph)
    score = METRICS[metric]
    masks = (data.train_mask, data.val_mask, data.test_mask)
    scores = torch.stack([score(logits[mask], data.y[mask]) for mask in masks])
    scores = torch.where(logits.isfinite().all(), scores, torch.nan)
    train, val, test = scores.tolist()
    return train, val, test


def prepare(
    config: Config, data_dir: str | Path | None = None, mirror: str | Path | None = None
) -> Data:
    """The graph of a configuration with its encoding, before any split."""
    data = datasets.load(config.graph, data_dir=data_dir, mirror=mirror)
    return datasets.LaplacianEncoding(config.encoding)(data) if config.encoding else data


def choose_device(device: str) -> torch.device:
    """The device by name; "auto" is a GPU where there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise ValueError(f"unknown device '{device}': use cpu, cuda or auto") from None
    if chosen.type not in ("cpu", "cuda"):
        raise ValueError(f"device '{device}' is not supported: use cpu, cuda or auto")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device '{device}' was asked for, but torch sees no GPU: use cpu or auto")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"there is no device '{device}': torch sees {torch.cuda.device_count()}")
    return chosen


def _check_folder(config: Config, out: str | Path | None, resume: bool) -> Path | None:
    """The folder to write to, if it may be written to; None if a new one is to be made."""
    if out is None:
        if not resume:
            return None
        out = store.latest_unfinished(config.graph)
    out = Path(out)
    if not (out / "config.json").exists():
        if out.is_dir() and any(out.iterdir()):
            raise store.RunFolderError(
                f"{out} is not empty and holds no run: choose another folder"
            )
        if out.exists() and not out.is_dir():
            raise store.RunFolderError(f"{out} is a file: choose a folder")
        return out
    if not resume:
        raise store.RunFolderError(
            f"{out} holds a run already: go on with it (--resume), or choose another folder"
        )
    before = store.read_config(out)
    changed = [
        f"{name} {value!r}, not {getattr(config, name)!r}"
        for name, value in before.to_dict().items()
        if value != getattr(config, name)
    ]
    if changed:
        raise store.RunFolderError(f"{out} was started with other settings: {'; '.join(changed)}")
    return out


def _named(prefix: str, tensors: dict[str, Any]) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": torch.as_tensor(tensor) for name, tensor in tensors.items()}


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    start = prefix + "/"
    return {name[len(start) :]: t for name, t in tensors.items() if name.startswith(start)}


def _diverged(config: Config, index: int, epoch: int, loss: float) -> str:
    return (
        f"the model is not finite any more (loss {loss}) after epoch {epoch} of run {index} on "
        f"{config.graph} "
        f"(lr {config.lr}, weight decay {config.weight_decay}, dropout {config.dropout}, "
        f"hops {config.hops}, heads {config.heads}, feature map {config.feature_map}, "
        f"eps {config.eps}): try a smaller lr"
    )
