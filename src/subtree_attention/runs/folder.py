"""What a run leaves on disk, and how it is read back.

    OUT/config.json         every setting
    OUT/environment.json    versions, machine, commit
    OUT/graph.safetensors   only of a run on one's own data: the graph, see `bundle`
    OUT/summary.json        mean and std over runs; there when all runs are done
    OUT/run-0/metrics.jsonl        a line per epoch
    OUT/run-0/summary.json         the run's result; there when the run is done
    OUT/run-0/model.safetensors    weights at the best validation epoch, and how to build the model
    OUT/run-0/checkpoint.safetensors   only while the run is not done: all it needs to go on

Files are written under a temporary name, synced and renamed: a half-written one never stands
where a good one stood. There is no pickle anywhere.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import io
from ..io import FileError as RunFolderError
from ..io import read_header, read_json, read_tensors, write_bytes, write_json, write_tensors  # noqa: F401
from ..nn import STAGNN
from ..ops.backends import choose
from ..train.config import Config

# ------------------------------------------------------------------------------------- writing


def check_free(path: Path, force: bool) -> None:
    """Refuse a file that cannot or must not be written, before any work is done."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file")
    if path.exists() and not force:
        raise ValueError(f"{path} is there already: --force writes over it")


def holds_run(folder: Path) -> bool:
    """Whether training was begun there."""
    return (folder / "config.json").exists()


def check_new(folder: Path) -> None:
    """Refuse a folder in which nothing can be begun, before any work is done."""
    if holds_run(folder):
        raise RunFolderError(
            f"{folder} holds a run already: go on with it (--resume, from Python resume=True), or "
            "choose another folder"
        )
    if folder.is_dir() and any(folder.iterdir()):
        raise RunFolderError(f"{folder} is not empty and holds no run: choose another folder")
    if folder.exists() and not folder.is_dir():
        raise RunFolderError(f"{folder} is a file: choose a folder")


def read_config(folder: Path) -> Config:
    """The configuration that a folder was started with."""
    settings = read_json(folder / "config.json")
    try:
        return Config.from_dict(settings)
    except (TypeError, ValueError) as error:
        raise RunFolderError(f"{folder / 'config.json'} is no configuration: {error}") from None


# ------------------------------------------------------------------------------------ the model


def save_model(
    path: Path, weights: dict[str, Tensor], config: Config, sizes: dict[str, int]
) -> None:
    """Weights, and in the header the settings and sizes that rebuild the model."""
    write_tensors(path, weights, {"config": config.to_dict(), "sizes": sizes})


def load(folder: str | os.PathLike[str], device: str | torch.device = "cpu") -> STAGNN:
    """The trained model of a run folder, in evaluation mode.

    Args:
        folder: what `sta train` wrote, or one run in it (`OUT/run-1`); of several runs, the one
            with the best validation score. `load_data` gives the graph that belongs to it.
        device: where the model shall be.
    """
    path = best_run(Path(folder)) / "model.safetensors"
    weights, header = read_tensors(path)
    config = _config_in(path, header)
    try:
        settings = {**header["sizes"], **config.model_settings()}
        with torch.device("meta"):  # takes no memory, whatever sizes the header claims
            STAGNN(**settings).load_state_dict(weights, assign=True)
        model = STAGNN(**settings)
        model.load_state_dict(weights)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise RunFolderError(f"{path} does not fit its own settings: {error}") from None
    return model.to(device).eval()


def config_of(run: Path) -> Config:
    """The settings that the model of a finished run was trained with."""
    path = run / "model.safetensors"
    return _config_in(path, read_header(path))


def _config_in(path: Path, header: Any) -> Config:
    try:
        return Config.from_dict(header["config"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"{path} holds no model of ours: {error}") from None


def folder_of(run: Path) -> Path:
    """The folder that a run lies in: OUT of OUT/run-0, wherever one stands."""
    return run.resolve().parent


def best_run(folder: Path) -> Path:
    """The run with the best validation score below a folder, or the folder itself if it is one."""
    runs = finished_runs(folder)
    return runs[0] if len(runs) == 1 else max(runs, key=lambda run: read_summary(run)["val"])


def read_summary(run: Path) -> dict[str, Any]:
    """The result of a finished run: run, seed, val, test, best_epoch, epochs, seconds."""
    summary = read_json(run / "summary.json")
    names = ("run", "seed", "val", "test", "best_epoch", "epochs", "seconds")
    good = isinstance(summary, dict) and all(
        isinstance(summary.get(name), int | float) for name in names
    )
    if not good:
        raise RunFolderError(f"{run / 'summary.json'} is no summary of a run: it needs {names}")
    return summary


def finished_runs(folder: Path) -> list[Path]:
    """OUT/run-0, OUT/run-1, ... as far as they are done; or the folder itself if it is one."""
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is not a folder")
    if (folder / "model.safetensors").exists():
        return [folder]
    runs = [run for run in folder.iterdir() if re.fullmatch(r"run-\d+", run.name)]
    runs = [run for run in runs if (run / "summary.json").exists()]
    if not runs and holds_run(folder):
        raise RunFolderError(
            f"no run in {folder} is finished yet: go on with 'sta train --resume --out {folder}'"
        )
    if not runs:
        raise RunFolderError(f"no finished run in {folder}: 'sta train' writes such folders")
    return sorted(runs, key=lambda run: int(run.name.removeprefix("run-")))


# ------------------------------------------------------------------- opening a folder for writing


def new_folder(graph: str, parent: Path = Path("runs")) -> Path:
    """A new empty folder, named after the graph and the time; never one that is there already."""
    stamp = f"{graph}-{datetime.now():%Y%m%d-%H%M%S}"
    parent.mkdir(parents=True, exist_ok=True)
    for name in [stamp, *(f"{stamp}-{i}" for i in range(2, 1000))]:
        try:
            (parent / name).mkdir()
            return parent / name
        except FileExistsError:
            continue
    raise RunFolderError(f"no free name for a folder like {parent / stamp}")


def latest_unfinished(graph: str | None, parent: Path = Path("runs")) -> Path:
    """The newest run folder that has a configuration (of this graph) but no summary."""
    found = [
        path.parent
        for path in parent.glob("*/config.json")
        if not (path.parent / "summary.json").exists()
        and (graph is None or _graph_of(path.parent) == graph)
    ]
    if not found:
        of = f" of {graph}" if graph else ""
        raise RunFolderError(f"no unfinished run{of} in {parent}/ to resume: name it with --out")
    return max(found, key=lambda folder: (folder / "config.json").stat().st_mtime)


def _graph_of(folder: Path) -> str | None:
    """The graph of a run folder; None if its configuration is broken."""
    try:
        return read_config(folder).graph
    except RunFolderError:
        return None


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; a second process is refused. Ends with the process."""
    if not io.LOCKS:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)  # the folder itself is the lock: no file to leave behind
    try:
        if not io.try_lock(lock):
            raise RunFolderError(f"another process is training into {folder}")
        yield
    finally:
        os.close(lock)


def environment(device: torch.device) -> dict[str, Any]:
    """What the numbers of a run depend on besides its configuration."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join([_program(), *sys.argv[1:]]),
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "backend": choose("auto", device, torch.float32),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


_PACKAGES = (
    "subtree-attention",
    "torch",
    "torch-geometric",
    "numpy",
    "scipy",
    "safetensors",
    "numba",
)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _program() -> str:
    """What was called, without where it lies on this machine."""
    program = Path(sys.argv[0])
    return "sta" if program.name == "__main__.py" else program.name


@cache
def _commit() -> str | None:
    """The commit that this package runs from: `STA_COMMIT`, or that of the checkout it lies in."""
    if os.environ.get("STA_COMMIT"):
        return os.environ["STA_COMMIT"]
    here = Path(__file__).resolve()

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()

    try:
        if not git("ls-files", here.name):  # installed inside somebody else's repository
            return None
        return git("describe", "--always", "--dirty", "--abbrev=12") or None
    except (OSError, subprocess.TimeoutExpired):
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
