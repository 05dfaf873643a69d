"""The training loop, from top to bottom.

    from subtree_attention import fit, recipe
    result = fit(recipe("cora", runs=5))            # saved under runs/
    result = fit(recipe("cora"), out="runs/mine", resume=True)

or `sta train cora --runs 5` from the command line.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from .. import _check, datasets
from ..datasets.tables.sources import from_pyg
from ..graph import Graph
from ..nn import STAGNN
from ..ops import cpu
from ..ops.backends import choose
from ..runs import bundle
from ..runs import folder as store
from ..tasks.metrics import METRICS, check_parts, masks_of
from .config import Config
from .progress import Progress, Silent
from .run import Diverged, RunResult, SavedRun, train_together

TOGETHER = 5
"""Runs that share a GPU at a time, see docs/performance.md."""


class Interrupted(KeyboardInterrupt):
    """Training was stopped by the user; what can be taken up again is saved in `folder`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"stopped; it can be taken up again from {folder}")
        self.folder = folder


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
    capture: bool = True,
    together: int | None = None,
    data: Data | None = None,
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
        capture: on a GPU, replay epochs as CUDA graphs: the same numbers, sooner.
        together: runs that share the GPU at a time, by default `TOGETHER`; a run's numbers do not
            depend on it.
        data: what `prepare(config)` gives, if it is at hand already; or a graph of one's own (of
            `from_tables`, or any PyG `Data`, see `from_pyg`), which is then kept in `out`.
    """
    if not isinstance(config, Config):
        raise TypeError(f"config must be a Config, such as recipe('cora'), got {config!r}")
    place = choose_device(device)
    progress = progress or Silent()
    given = check_folder(config, out, resume)  # before the work of loading
    own = None
    if data is None:
        data = prepare(config, data_dir, mirror, given)
    else:
        own = _own(config, data)
        data = _prepared(config, data if own is None else own)
    # Once: the splits share it. The caller's stays where it is.
    data = copy(bundle.without_names(data)).to(str(place))
    graph = Graph.from_data(data, config.transition)
    seeds = range(config.seed, config.seed + config.runs)
    splits = [
        datasets.apply_split(data, config.split, seed=seed, data_dir=data_dir, mirror=mirror)
        for seed in seeds
    ]
    for split in splits:
        check_parts(config.metric, split.y, masks_of(split))
    out = given or store.new_folder(config.graph)
    capture = capture and can_capture(config)
    at_a_time = _check.integer("together", TOGETHER if together is None else together, 1)
    at_a_time = at_a_time if capture and place.type == "cuda" else 1
    with store.claimed(out):
        check_folder(config, out, resume)  # again: somebody may have been faster
        progress.begin(out)
        if choose("auto", place, torch.float32) == "numba" and not cpu.compiled():
            progress.say("compiling the CPU kernels: once on this machine, about half a minute")
        if own is not None:
            _keep(out, own)  # before the configuration, which is what makes a folder a run's
        store.write_json(out / "config.json", config.to_dict())
        if not (out / "environment.json").exists():
            store.write_json(out / "environment.json", store.environment(place))

        def start(index: int) -> SavedRun:
            return SavedRun(config, index, splits[index].to(str(place)), graph, out, capture)

        runs = _fit_runs(config.runs, start, out, at_a_time, progress, checkpoint_seconds)
        result = Result(config, runs, out)
        store.write_json(out / "summary.json", result.to_dict())
    return result


def _fit_runs(
    count: int,
    start: Callable[[int], SavedRun],
    out: Path,
    at_a_time: int,
    progress: Progress,
    checkpoint_seconds: float,
) -> list[RunResult]:
    """All runs, some at a time; those that are finished on disk are only read."""
    results, active = dict[int, RunResult](), list[SavedRun]()

    def waiting() -> Iterator[SavedRun]:
        for index in range(count):
            path = out / f"run-{index}" / "summary.json"
            if path.exists():
                results[index] = RunResult(**store.read_json(path))
                progress.finish_run(results[index])
            else:
                run = start(index)
                progress.start_run(index, run.epoch)
                yield run

    try:
        for run, new in train_together(waiting(), at_a_time, active):
            for epoch in new:
                progress.epoch(run.index, epoch, run.best)
            if not run.epochs_left:
                results[run.index] = run.finish()
                progress.finish_run(results[run.index])
            elif time.monotonic() - run.saved >= checkpoint_seconds:
                run.checkpoint()
    except KeyboardInterrupt:
        for run in active:
            # In the middle of an epoch, the last checkpoint is what counts.
            if run.index not in results and run.trainer.between_epochs:
                with suppress(Diverged):  # it will diverge again
                    run.record()
                run.checkpoint()
        raise Interrupted(out) from None
    return [results[index] for index in range(count)]


def can_capture(config: Config) -> bool:
    """Whether epochs can be replayed: the exact softmax similarity asks the host on the way."""
    return config.similarity is None


@torch.no_grad()
def evaluate(model: STAGNN, data: Data, graph: Graph, metric: str) -> tuple[float, float, float]:
    """The score on training, validation and test nodes, between 0 and 1.

    NaN if any logit is not finite: such a model has no score.
    """
    model.eval()
    return score(model(data.x, graph), data, metric)


def score(logits: Tensor, data: Data, metric: str) -> tuple[float, float, float]:
    """As `evaluate`, from the logits [N, C]."""
    scores = METRICS[metric](data.y, masks_of(data))(logits)
    train, val, test = torch.where(logits.isfinite().all(), scores, torch.nan).tolist()
    return train, val, test


def prepare(
    config: Config,
    data_dir: str | Path | None = None,
    mirror: str | Path | None = None,
    folder: Path | None = None,
) -> Data:
    """The graph of a configuration with its encoding, before any split.

    That of a run on one's own data is in its folder; others are in the registry.
    """
    if folder is not None and config.graph not in datasets.names():
        return with_encoding(bundle.read(folder), config.encoding)
    data = datasets.load(config.graph, data_dir=data_dir, mirror=mirror)
    return with_encoding(data, config.encoding)


def with_encoding(data: Data, m: int) -> Data:
    """A copy with m Laplacian eigenvectors among its features; `encoding` says how many."""
    data = datasets.LaplacianEncoding(m)(copy(data)) if m else copy(data)
    data.encoding = m
    return data


def _prepared(config: Config, data: Data) -> Data:
    """Data that was given, as `prepare` would give it."""
    name, encoding = data.get("name", config.graph), data.get("encoding")
    if name != config.graph:
        raise ValueError(f"data is '{name}', but the configuration is for '{config.graph}'")
    if encoding is None:
        return with_encoding(data, config.encoding)
    if encoding != config.encoding:
        raise ValueError(
            f"data has {encoding} eigenvectors among its features, but the configuration asks for "
            f"encoding={config.encoding}"
        )
    return data


def _own(config: Config, data: Data) -> Data | None:
    """A graph of one's own, if it can be trained on under this configuration; None if the data is
    of the registry, or prepared without what would have to be kept."""
    if not bundle.is_own(data):
        if data.get("name") in datasets.names() or "encoding" in data:
            return None
        data = from_pyg(data)
    if data.get("encoding"):
        raise ValueError("data has an encoding already: give the graph as `from_tables` gave it")
    if config.graph in datasets.names():
        raise ValueError(
            f"'{config.graph}' is a graph of the registry: name yours otherwise, as in "
            "recipe(data, graph='mine')"
        )
    if int(data.y.max()) < 0:
        raise ValueError("no node has a label, so there is nothing to learn: name the target")
    if data.x.size(1) + config.encoding == 0:
        raise ValueError(
            "no column is left as a feature: add one, or let positions in the graph be the "
            "features (--encoding 8)"
        )
    return data


def _keep(out: Path, data: Data) -> None:
    if (out / bundle.GRAPH).exists():
        bundle.check_same(out, data)
    else:
        bundle.save(out, data)


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


def check_folder(config: Config, out: str | Path | None, resume: bool) -> Path | None:
    """The folder to write to, if it may be written to; None if a new one is to be made."""
    if out is None:
        if not resume:
            return None
        out = store.latest_unfinished(config.graph)
    out = Path(out)
    if not resume or not store.holds_run(out):
        store.check_new(out)
        return out
    before = store.read_config(out)
    changed = [
        f"{name} {value!r}, not {getattr(config, name)!r}"
        for name, value in before.to_dict().items()
        if value != getattr(config, name)
    ]
    if changed:
        raise store.RunFolderError(f"{out} was started with other settings: {'; '.join(changed)}")
    return out
